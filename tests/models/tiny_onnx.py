"""Model folders small enough for a test: a two-layer BERT with random weights and a tokenizer of a few words."""

from __future__ import annotations

import json
import string
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from bert_graph import BertShape, bert, random_weights
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

SHAPE = BertShape(layers=2, width=32, heads=4, inner=64, vocabulary=400, positions=64)

WORDS = (
    "the a i we you to of and in is it that for on with my love hike hiking trail running database index redis "
    "typescript project rewrite backend tea green coffee morning paris moved city dog named max cat sat query where "
    "what who when does live like work server deploy gpu note long word"
).split()
HAN = "我你他在是的了喜欢喝龙井茶今天部署服务器京都会议"


def wordpiece() -> Tokenizer:
    """BERT's kind: [CLS] a [SEP] b [SEP], token types, unknown words as [UNK]."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *HAN]
    pieces += [
        *string.ascii_lowercase,
        *("##" + letter for letter in string.ascii_lowercase),
        *string.digits,
        *".,?!'[]",
    ]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=special
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    # A state that jiyi must not depend on.
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=16)
    return tokenizer


def unigram() -> Tokenizer:
    """XLM-RoBERTa's kind, as multilingual-e5 has it: <s> a </s></s> b </s>, no token for a newline."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", *("▁" + word for word in WORDS), *WORDS, *HAN]
    pieces += [*string.ascii_lowercase, *string.digits, *".,?!':"]
    scored = [(piece, -float(i) / 100 - 3 * (len(piece) == 1)) for i, piece in enumerate(dict.fromkeys(pieces))]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=3, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    return tokenizer


def byte_level() -> Tokenizer:
    """GPT-2's kind, with the template of a decoder that embeds: the end token last, nothing before the text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate([*alphabet, "<|endoftext|>"])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", pair="$A $B <|endoftext|>", special_tokens=[("<|endoftext|>", len(alphabet))]
    )
    return tokenizer


def make_folder(
    folder: Path,
    *,
    outputs: int | None = None,
    tokenizer: Tokenizer | None = None,
    manifest: dict[str, Any] | None = None,
    seed: int = 0,
    int8: bool = False,
    half_beside: bool = False,
    **graph: Any,
) -> Path:
    """Write a model folder.

    Args:
        folder: made where it is missing.
        outputs: logits a pair (a cross-encoder); None makes an embedder.
        tokenizer: `wordpiece()` unless given.
        manifest: fields of a manifest.json beside those every one has; None writes none.
        seed: of the weights.
        int8: quantise dynamically, as models are that ship small.
        half_beside: write model_fp16.onnx too.
        graph: as `bert` takes it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = random_weights(SHAPE, seed=seed, outputs=outputs)
    onnx.save(bert(SHAPE, weights, **graph), folder / "model.onnx")
    if half_beside:
        onnx.save(bert(SHAPE, weights, half=True, **graph), folder / "model_fp16.onnx")
    if int8:
        _quantize(folder / "model.onnx")
    (tokenizer or wordpiece()).save(str(folder / "tokenizer.json"))
    if manifest is not None:
        kind = "onnx-embedder" if outputs is None else "onnx-cross-encoder"
        fields = {"name": "tiny", "version": "1", "kind": kind, "max_tokens": SHAPE.positions, "languages": ["en"]}
        (folder / "manifest.json").write_text(json.dumps(fields | manifest))
    else:
        (folder / "config.json").write_text(json.dumps({"max_position_embeddings": SHAPE.positions}))
    return folder


def _quantize(path: Path) -> None:
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantize_dynamic(path, path, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
    finally:
        logging.disable(logging.NOTSET)


def sentences(count: int, *, seed: int = 0, longest: int = 25) -> list[str]:
    """Made-up sentences of mixed lengths, none twice."""
    rng = np.random.default_rng(seed)
    made: dict[str, None] = {}
    while len(made) < count:
        made[" ".join(rng.choice(WORDS, int(rng.integers(1, longest + 1))))] = None
    return list(made)
