"""Texts to measure with: made up, seeded, shaped like conversation memories in two languages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files

import numpy as np

from jiyi.text import is_run, segments


def _words() -> tuple[list[str], list[str]]:
    """English words and Chinese pairs of characters of the demo's conversation, each as often as it stands there."""
    lines = (files("jiyi.demo") / "memories.jsonl").read_text(encoding="utf-8").splitlines()
    english: list[str] = []
    chinese: list[str] = []
    for line in lines:
        for segment in segments(json.loads(line)["text"]):
            if is_run(segment):
                chinese.extend(segment[i : i + 2] for i in range(0, len(segment) - 1, 2))
            else:
                english.append(segment)
    return english, chinese


def texts(count: int, *, seed: int = 0, words: int = 15, rare_words: int = 20_000) -> Iterator[str]:
    """Yield made-up memories: two thirds English, a third Chinese, words as frequent as in talk, one of them rare."""
    rng = np.random.default_rng(seed)
    english, chinese = _words()
    for _ in range(count):
        source, joint = (english, " ") if rng.random() < 2 / 3 else (chinese, "")
        picked = [source[i] for i in rng.integers(len(source), size=words)]
        picked[int(rng.integers(words))] = f"n{rng.integers(rare_words)}"
        yield joint.join(picked)


def queries(count: int, *, seed: int = 1, words: int = 8) -> Iterator[str]:
    """Yield questions of some eight words from the same source."""
    for text in texts(count, seed=seed, words=words):
        yield f"what about {text}?"
