"""Reranking and embedding on a GPU, in under four minutes: half precision checked against full, then pairs a second.

    python benches/gpu.py [--device auto|cpu|cuda|cuda:N] [--json] [--seconds S]

Needs jiyi with onnxruntime-gpu in the place of onnxruntime, and `onnx`. Models have random weights of a real model's
shape: speed does not depend on what they are, and order agreement of random scores is a harder test than that of a
trained model's, whose scores are further apart. Where there is no CUDA it says so, and runs tiny sizes on the CPU so
that the script itself is tested; those figures say nothing.

For each shape and length two figures: the whole way from texts to scores (`score_pairs`, no cache), and the model alone
on batches already built.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bert_graph import BERT_BASE, BERT_LARGE, MINILM_6, BertShape, random_weights
from corpus import texts
from model_folder import SPECIAL, fitted, texts_of, tokenizer, write_folder
from tokenizers import Tokenizer

from jiyi.models.onnx_batches import encoder_feeds, plan_batches
from jiyi.models.onnx_cross_encoder import OnnxCrossEncoder
from jiyi.models.onnx_embedder import OnnxEmbedder
from jiyi.models.onnx_session import Session

LENGTHS = (64, 256)
# With how many pairs or texts a run has: enough to fill the card, few enough for four minutes in all.
SHAPES = {
    "6 layers, 384 wide": (MINILM_6, 8_192),
    "12 layers, 768 wide": (BERT_BASE, 2_048),
    "24 layers, 1,024 wide": (BERT_LARGE, 512),
}
TINY = {"2 layers, 64 wide": (BertShape(layers=2, width=64, heads=4, inner=128), 32)}
# Both precisions of these: the largest is measured in half precision only, which is what one would run.
CHECKED = 2
AGREEMENT = 0.98
GOAL_PAIRS = 20_000


def has_cuda() -> bool:
    import onnxruntime

    return "CUDAExecutionProvider" in onnxruntime.get_available_providers()


def card() -> str:
    try:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown card"


def rate(work: Callable[[], int], seconds: float) -> float:
    """Items a second, over at least so many seconds, after one run to warm up."""
    work()
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        done += work()
    return done / (time.perf_counter() - start)


def order_agreement(a: np.ndarray, b: np.ndarray) -> float:
    """Share of the pairs of items that both score lists put in the same order; ties agree with either."""
    i, j = np.triu_indices(len(a), 1)
    return float(np.mean((a[i] - a[j]) * (b[i] - b[j]) >= 0))


class Measured:
    """One shape: its folders, and what is measured on them."""

    def __init__(self, folder: Path, shape: BertShape, made: Tokenizer, device: str, *, full: bool) -> None:
        self.device, self.made, self.shape, self.full = device, made, fitted(shape, made), full
        weights = random_weights(self.shape, outputs=1)
        self.half = write_folder(folder / "half", self.shape, weights, made, half=True)
        if full:
            self.single = write_folder(folder / "full", self.shape, weights, made)
        del weights["classifier.weight"], weights["classifier.bias"]
        self.embedder = folder / "embedder"
        write_folder(self.embedder, self.shape, weights, made, half=True)

    def agreement(self, pairs: list[tuple[str, str]]) -> dict[str, float]:
        """How well half precision keeps the order of full precision, both on the device."""
        half, full = (
            OnnxCrossEncoder(folder, device=self.device, cache_pairs=0).score_pairs(pairs)
            for folder in (self.half, self.single)
        )
        return {
            "fp16 order agreement": order_agreement(half, full),
            "fp16 moves scores by, of their spread": float(np.abs(half - full).max() / np.ptp(full)),
        }

    def throughput(self, count: int, seconds: float) -> dict[str, float]:
        """Pairs and texts a second at each length."""
        model = OnnxCrossEncoder(self.half, device=self.device, cache_pairs=0)
        embedder = OnnxEmbedder(self.embedder, device=self.device)
        measured: dict[str, float] = {}
        for length in LENGTHS:
            # 3 special tokens and a question of 8.
            question = texts_of(self.made, [8])[0]
            pairs = [(question, text) for text in texts_of(self.made, [length - 11] * count)]
            measured[f"{length} tokens: pairs a second"] = rate(lambda p=pairs: len(model.score_pairs(p)), seconds)
            alone = self._alone(model._session, length, count)
            measured[f"{length} tokens: pairs a second, model alone"] = rate(alone, seconds)
            several = texts_of(self.made, [length - 2] * count)
            measured[f"{length} tokens: texts embedded a second"] = rate(
                lambda t=several: len(embedder.embed(t)), seconds
            )
        return measured

    def _alone(self, session: Session, length: int, count: int) -> Callable[[], int]:
        rows = np.random.default_rng(0).integers(len(SPECIAL), self.shape.vocabulary, (count, length)).tolist()
        most = 32_768 if session.device != "cpu" else 512
        batches = plan_batches([length] * count, most_tokens=most)
        feeds = [encoder_feeds([rows[i] for i in batch], 0) for batch in batches]
        return lambda: sum(map(len, session.run_many(feeds, "logits")))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each figure, at least (default 3)")
    arguments = parser.parse_args()
    gpu = arguments.device != "cpu" and has_cuda()
    if not gpu and arguments.device not in ("auto", "cpu"):
        print(
            f"{arguments.device}: the onnxruntime installed here has no CUDA; install onnxruntime-gpu", file=sys.stderr
        )
        return 1
    device = ("cuda" if arguments.device == "auto" else arguments.device) if gpu else "cpu"
    shapes = SHAPES if gpu else TINY
    seconds = arguments.seconds if gpu else min(arguments.seconds, 0.3)
    report: dict[str, Any] = {"device": card() if gpu else "no CUDA here: tiny sizes on the CPU, to test the script"}
    say = (lambda *_: None) if arguments.json else (lambda *parts: print(*parts, flush=True))
    say(report["device"])
    start = time.perf_counter()
    made = tokenizer()
    kept = True
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (shape, count)) in enumerate(shapes.items()):
            say(f"\n{name}")
            measured = Measured(Path(folder) / str(number), shape, made, device, full=number < CHECKED)
            figures: dict[str, float] = {}
            if measured.full:
                pairs = list(zip(texts(256, seed=1, words=6), texts(256, seed=2), strict=True))
                figures |= measured.agreement(pairs if gpu else pairs[:32])
                kept &= figures["fp16 order agreement"] >= AGREEMENT
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # a silent fall to the CPU would be measured as if it were the GPU
                figures |= measured.throughput(count, seconds)
            for what, value in figures.items():
                say(f"  {what}: {value:,.4f}" if value < 2 else f"  {what}: {value:,.0f}")
            report[name] = figures
    report["seconds"] = time.perf_counter() - start
    say(f"\nhalf precision keeps the order (at least {AGREEMENT}): {'yes' if kept else 'NO'}")
    if gpu:
        fast = report["6 layers, 384 wide"]["64 tokens: pairs a second"]
        met = "met" if fast >= GOAL_PAIRS else "missed"
        say(f"goal of {GOAL_PAIRS:,} pairs a second at 64 tokens, six layers: {met}")
    say(f"{report['seconds']:.0f} s")
    if arguments.json:
        print(json.dumps(report, indent=2))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
