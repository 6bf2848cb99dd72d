"""How much better one ranking is than another, and how sure that is."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi.evaluation.scoring import METRICS, groups_of, values_of
from jiyi.evaluation.sets import Question

_SAMPLES: Final = 2_000
_SEED: Final = 0
# One stream of random numbers serves a group's metrics one after another. With these first, it gives the intervals of
# a plain loop over `random.choices` for the three that are looked at most.
_FIRST: Final = ("recall@5", "recall@10", "ndcg@10")


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of (other - this) over questions, with its 95 % interval. From -1 to 1; above 0, the other is better."""

    mean: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0


def compare(
    questions: Sequence[Question], ranked: Mapping[str, Sequence[str]], other: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Difference]]:
    """Return other - ranked for every group of `score` and every metric.

    The interval is a paired bootstrap's (Efron & Tibshirani 1993): the questions' differences are drawn 2,000 times
    with replacement, and it holds the middle 95 % of the means. The seed is fixed, so it is the same on every run.

    Args:
        questions: those that both were asked.
        ranked, other: ids by qid, best first; a question that is missing scores 0.
    """
    found: dict[str, dict[str, Difference]] = {}
    for group, members in groups_of(questions).items():
        these, others = values_of(members, ranked), values_of(members, other)
        stream = _stream()
        rows: dict[str, Difference] = {}
        for name in sorted(METRICS, key=lambda name: (name not in _FIRST, list(METRICS).index(name))):
            rows[name] = _bootstrap(np.array(others[name]) - np.array(these[name]), stream)
        found[group] = {name: rows[name] for name in METRICS}
    return found


def changed(ranked: Mapping[str, Sequence[str]], other: Mapping[str, Sequence[str]]) -> int:
    """Return for how many questions the ranked ids are not the same."""
    return sum(list(ranked.get(qid, ())) != list(other.get(qid, ())) for qid in ranked.keys() | other.keys())


def _bootstrap(differences: NDArray[np.float64], stream: np.random.Generator) -> Difference:
    n = len(differences)
    drawn = (stream.random((_SAMPLES, n)) * n).astype(np.int64)
    means = np.sort(differences[drawn].mean(axis=1))
    return Difference(
        float(differences.mean()),
        float(means[_SAMPLES * 25 // 1000]),
        float(means[_SAMPLES - 1 - _SAMPLES * 25 // 1000]),
    )


def _stream() -> np.random.Generator:
    """The numbers of Python's `random.Random(seed)`, by the thousand."""
    _, state, _ = random.Random(_SEED).getstate()
    source = np.random.MT19937()
    source.state = {
        "bit_generator": "MT19937",
        "state": {"key": np.array(state[:-1], dtype=np.uint32), "pos": state[-1]},
    }
    return np.random.Generator(source)
