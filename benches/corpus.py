"""Texts to measure with: made up, seeded, shaped like conversation memories in two languages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files

import numpy as np

from jiyi.text import is_run, segments


def _vocabulary() -> tuple[list[str], list[str]]:
    """Words and short Chinese runs of the demo's conversation, to be mixed anew."""
    lines = (files("jiyi") / "demo" / "memories.jsonl").read_text(encoding="utf-8").splitlines()
    english: dict[str, None] = {}
    chinese: dict[str, None] = {}
    for line in lines:
        for segment in segments(json.loads(line)["text"]):
            if is_run(segment):
                chinese.update((segment[i : i + 2], None) for i in range(0, len(segment) - 1, 2))
            else:
                english[segment] = None
    return list(english), list(chinese)


def texts(count: int, *, seed: int = 0, words: int = 15, rare_words: int = 20_000) -> Iterator[str]:
    """Yield made-up memories: two thirds English, a third Chinese, words after Zipf and one rare name in each."""
    rng = np.random.default_rng(seed)
    english, chinese = _vocabulary()
    rng.shuffle(english)
    rng.shuffle(chinese)
    for _ in range(count):
        vocabulary, joint = (english, " ") if rng.random() < 2 / 3 else (chinese, "")
        ranks = np.minimum(rng.zipf(1.3, size=words) - 1, len(vocabulary) - 1)
        picked = [vocabulary[rank] for rank in ranks]
        picked[int(rng.integers(words))] = f"n{rng.integers(rare_words)}"
        yield joint.join(picked)
