"""Model folders to measure with: random weights of a real model's shape, a tokenizer trained on the bench's texts.

A model's speed does not depend on what its weights are. The folder is what any user's is, so what is measured is the
whole way from text to score.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from bert_graph import BertShape, Weights, bert
from corpus import texts
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer(vocabulary: int = 8_000) -> Tokenizer:
    """BERT's kind of tokenizer, trained on 5,000 texts of `corpus`."""
    made = Tokenizer(models.WordPiece({}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=SPECIAL, show_progress=False)
    made.train_from_iterator(texts(5_000), trainer)
    ids = [(token, made.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ids
    )
    return made


def write_folder(folder: Path, shape: BertShape, weights: Weights, made: Tokenizer, **graph: Any) -> Path:
    """Write `model.onnx`, `tokenizer.json` and `config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(bert(shape, weights, **graph), folder / "model.onnx")
    made.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": shape.positions, "pad_token_id": 0}))
    return folder


def quantize(source: Path, folder: Path) -> Path:
    """Write the int8 version of a folder, quantised dynamically, by channel, as models are that ship small."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    folder.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantize_dynamic(
                source / "model.onnx",
                folder / "model.onnx",
                per_channel=True,
                reduce_range=True,
                weight_type=QuantType.QInt8,
            )
    finally:
        logging.disable(logging.NOTSET)
    for name in ("tokenizer.json", "config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    return folder


def fitted(shape: BertShape, made: Tokenizer) -> BertShape:
    """The shape with as many words as the tokenizer has."""
    return replace(shape, vocabulary=made.get_vocab_size())


def texts_of(made: Tokenizer, lengths: Sequence[int], *, seed: int = 0) -> list[str]:
    """Texts of so many tokens each, special ones not counted."""
    rng = np.random.default_rng(seed)
    tokens = (made.id_to_token(number) for number in range(len(SPECIAL), made.get_vocab_size()))
    # Whole words only, one token each: a word between spaces of a Chinese text may be a hundred tokens.
    words = [token for token in tokens if token.isascii() and token.isalpha()]
    return [" ".join(rng.choice(words, length)) for length in lengths]


def pairs_of(
    made: Tokenizer, count: int, *, median: float, spread: float, longest: int = 115, pages: float = 0.0, seed: int = 0
) -> list[tuple[str, str]]:
    """Pairs whose lengths are drawn in tokens: questions of 8 to 17, texts log-normal.

    Args:
        made: the tokenizer that counts.
        count: how many pairs.
        median: tokens of a text, half of them below.
        spread: standard deviation of the logarithm of a text's length.
        longest: tokens that no text but a page has more of; a log-normal tail reaches further than conversation does.
        pages: share of the texts that are pages instead: a median of 250 tokens, a spread of 0.35, at most 400.
        seed: of everything drawn.
    """
    rng = np.random.default_rng(seed)
    page = rng.random(count) < pages
    logarithms = rng.normal(np.where(page, np.log(250), np.log(median)), np.where(page, 0.35, spread))
    lengths = np.clip(np.exp(logarithms), 3, np.where(page, 400, longest)).astype(int)
    questions = texts_of(made, rng.integers(8, 18, count).tolist(), seed=seed + 1)
    return list(zip(questions, texts_of(made, lengths.tolist(), seed=seed + 2), strict=True))


def hugging_face_weights(weights: Mapping[str, Any]) -> dict[str, Any]:
    """The same weights under the names of transformers' BertForSequenceClassification."""
    return {name if name.startswith("classifier") else f"bert.{name}": value for name, value in weights.items()}
