"""Reranking throughput on pairs of mixed lengths: jiyi beside a plain onnxruntime loop and sentence-transformers.

    pytest benches/test_cross_encoder.py -s

One model (six layers, 384 wide, random weights), one set of pairs, the same cores, in one run; the rounds take turns,
so that what else the machine does falls on all. Each side starts from texts. The plain loop takes batches of 32 in the
order given, padded to their longest; sentence-transformers' CrossEncoder runs the same weights in torch, float32, with
its defaults. All three first have to agree on the scores. Nothing asserts a time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bert_graph import MINILM_6, BertShape, random_weights
from model_folder import fitted, hugging_face_weights, pairs_of, quantize, texts_of, tokenizer, write_folder

from jiyi.models.cores import usable_cores
from jiyi.models.onnx_cross_encoder import OnnxCrossEncoder

PAIRS = 128
# Lengths of texts in tokens. Turns of recorded conversations measure a median of 29 with a spread of 0.6, at most
# 115, their questions 8 to 17; a memory that also keeps pages of documents is the second.
LENGTHS: dict[str, dict[str, float]] = {
    "conversation": {"median": 29, "spread": 0.6},
    "conversation and one page in ten": {"median": 29, "spread": 0.6, "pages": 0.1},
}
ROUNDS = 3
Side = Callable[[list[tuple[str, str]]], Any]


class Model:
    """One model in the three forms that are compared."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = tokenizer()
        self.shape: BertShape = fitted(MINILM_6, self.tokenizer)
        self.weights = random_weights(self.shape, outputs=1)
        self.fp32 = write_folder(folder / "fp32", self.shape, self.weights, self.tokenizer)
        self.int8 = quantize(self.fp32, folder / "int8")
        self.folder = folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(tmp_path_factory.mktemp("bench"))


def ours(folder: Path) -> Side:
    return OnnxCrossEncoder(folder, device="cpu", cache_pairs=0).score_pairs


def plain_loop(model: Model) -> Side:
    """What one writes with onnxruntime and tokenizers alone."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    session = onnxruntime.InferenceSession(model.fp32 / "model.onnx", options, providers=["CPUExecutionProvider"])
    model.tokenizer.enable_truncation(model.shape.positions)
    model.tokenizer.enable_padding()

    def score(pairs: list[tuple[str, str]]) -> Any:
        scores = []
        for start in range(0, len(pairs), 32):
            encodings = model.tokenizer.encode_batch(pairs[start : start + 32])
            feeds = {
                "input_ids": np.array([encoding.ids for encoding in encodings]),
                "attention_mask": np.array([encoding.attention_mask for encoding in encodings]),
                "token_type_ids": np.array([encoding.type_ids for encoding in encodings]),
            }
            scores.append(session.run(None, feeds)[0][:, 0])
        return np.concatenate(scores)

    return score


def sentence_transformers(model: Model) -> Side:
    library = pytest.importorskip("sentence_transformers")
    import torch
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    shape = model.shape
    config = BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner,
        num_labels=1,
    )
    torch_model = BertForSequenceClassification(config)
    weights = {name: torch.from_numpy(value) for name, value in hugging_face_weights(model.weights).items()}
    torch_model.load_state_dict(weights, strict=False)
    folder = model.folder / "torch"
    torch_model.save_pretrained(folder)
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=model.tokenizer, model_max_length=512, model_input_names=inputs, **names
    )
    wrapped.save_pretrained(folder)
    torch.set_num_threads(usable_cores())
    encoder = library.CrossEncoder(str(folder), device="cpu")
    return lambda pairs: encoder.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)


def describe(model: Model, pairs: list[tuple[str, str]]) -> str:
    """Tokens of the pairs, and how many more a batch of 32 in this order or sorted by length is padded to."""
    model.tokenizer.no_padding()
    model.tokenizer.no_truncation()
    lengths = [len(encoding.ids) for encoding in model.tokenizer.encode_batch(pairs)]

    def padding(order: list[int]) -> float:
        batches = [order[start : start + 32] for start in range(0, len(order), 32)]
        return sum(len(batch) * max(batch) for batch in batches) / sum(lengths)

    return (
        f"{min(lengths)} to {max(lengths)} tokens, median {statistics.median(lengths):.0f}; batches of 32 pad to "
        f"{padding(lengths):.2f} ×, sorted {padding(sorted(lengths)):.2f} ×"
    )


def measure(sides: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median seconds of each side, their rounds taking turns, after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for round_ in range(ROUNDS + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            if round_:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("lengths", list(LENGTHS))
@pytest.mark.parametrize("baseline", [plain_loop, sentence_transformers], ids=lambda side: side.__name__)
def test_throughput(model: Model, baseline: Callable[[Model], Side], lengths: str) -> None:
    pairs = pairs_of(model.tokenizer, PAIRS, **LENGTHS[lengths])
    reference, fp32, int8 = baseline(model), ours(model.fp32), ours(model.int8)
    expected = np.asarray(reference(pairs), np.float64)
    np.testing.assert_allclose(fp32(pairs), expected, atol=2e-3)
    assert np.corrcoef(int8(pairs), expected)[0, 1] > 0.98
    seconds = measure(
        {
            baseline.__name__: lambda: reference(pairs),
            "jiyi fp32": lambda: fp32(pairs),
            "jiyi int8": lambda: int8(pairs),
        }
    )
    print(f"\n{PAIRS} pairs, {lengths}: {describe(model, pairs)}; cores: {usable_cores()}")
    for name, taken in seconds.items():
        ratio = seconds[baseline.__name__] / taken
        print(f"  {name:<22} {PAIRS / taken:7.1f} pairs a second {ratio:6.2f} × {baseline.__name__}")


def test_one_long_text_among_short_ones(model: Model) -> None:
    score = ours(model.fp32)
    short = pairs_of(model.tokenizer, 31, median=12, spread=0.15)
    long = list(zip(texts_of(model.tokenizer, [9]), texts_of(model.tokenizer, [500]), strict=True))
    sides = {
        "together": lambda: score([*short[:16], *long, *short[16:]]),
        "short": lambda: score(short),
        "long": lambda: score(long),
    }
    seconds = measure(sides)
    ratio = seconds["together"] / (seconds["short"] + seconds["long"])
    print(
        f"\none pair ({describe(model, long)}) among 31 ({describe(model, short)}): {ratio:.2f} × the sum of its parts"
    )


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_how_far_int8_scores_move_in_batches(model: Model, rows: int) -> None:
    """One text a batch is what jiyi does with them on a CPU; this is why."""
    pairs = pairs_of(model.tokenizer, 64, median=29, spread=0.6)
    alone = ours(model.int8)(pairs)
    batched = OnnxCrossEncoder(model.int8, device="cpu", cache_pairs=0)
    batched._batch_rows = rows
    moved = np.abs(batched.score_pairs(pairs) - alone)
    spread = float(np.ptp(alone))
    print(f"\nint8 in batches of up to {rows}: moved by at most {moved.max():.4f}, of a spread of {spread:.2f}")
    assert rows > 1 or not moved.any()
