"""Third stage: what happened (or was used) lately counts a little more, and so does a procedure that works."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Candidates, Floats, Query
from jiyi.config import Aging, Curve, SearchConfig
from jiyi.kernels.decay import CURVES, aged
from jiyi.kernels.order import best_first
from jiyi.memory import KINDS
from jiyi.usage import Usage

# 1 / ln(e + age/unit) is ½ where age/unit = e² − e.
_LOGARITHMIC_HALF = math.e**2 - math.e


def recency(candidates: Candidates, query: Query) -> Candidates:
    """Blend recency into relevance, relevance·(1 − w) + recency·w, then how procedures went."""
    config, view, rows = query.config, query.view, candidates.rows
    usage = None if view.usage is None else view.usage.of(rows)
    age_s, factor = recency_of(query.now_s, view.timestamps_s[rows], view.kinds[rows], usage, config)
    weight = config.recency_weight
    score = candidates.relevance * (1 - weight) + factor * weight
    if usage is not None:
        candidates.outcome = outcomes(score, view.kinds[rows], usage, config.outcome_weight)
        score = score + candidates.outcome
    candidates.recency, candidates.age_s, candidates.used = factor, age_s, usage
    candidates.score, candidates.order = score, best_first(score)
    return candidates


def recency_of(
    now_s: float, timestamps_s: Floats, kinds: NDArray[np.uint8], used: Usage | None, config: SearchConfig
) -> tuple[Floats, Floats]:
    """Return the age in seconds and the recency, 0 to 1, of memories at a moment."""
    happened_s, longer = timestamps_s, None
    if used is not None and config.reinforcement == "last_use":
        happened_s = np.maximum(timestamps_s, used.last_used_s)
    elif used is not None and config.reinforcement == "half_life":
        longer = 1.0 + config.reinforcement_growth * used.uses
    age_s = np.maximum(now_s - happened_s, 0.0)
    # A half-life that is longer by a factor is an age that is shorter by it.
    counted_s = age_s if longer is None else age_s / longer
    rules = _rules(
        config.recency_curve, config.half_life_s, tuple(config.ageless_kinds), tuple(sorted(config.aging.items()))
    )
    return age_s, aged(counted_s, kinds, *rules)


@lru_cache(maxsize=64)
def _rules(
    curve: Curve, half_life_s: float, ageless: tuple[str, ...], aging: tuple[tuple[str, Aging], ...]
) -> tuple[NDArray[np.uint8], Floats, Floats]:
    """By kind's number: its curve, the curve's length in seconds, and what it never falls below."""
    own = dict(aging)
    curves, lengths_s, floors = np.zeros(len(KINDS), np.uint8), np.ones(len(KINDS)), np.zeros(len(KINDS))
    for number, kind in enumerate(KINDS):
        rule = own.get(kind)
        if rule is None and kind in ageless:
            continue
        chosen = curve if rule is None else rule.curve or curve
        half_s = half_life_s if rule is None or rule.half_life_s is None else rule.half_life_s
        floors[number] = 0.0 if rule is None else rule.floor
        if not math.isinf(half_s):
            curves[number] = CURVES[chosen]
            lengths_s[number] = _length_s(chosen, half_s)
    return curves, lengths_s, floors


def _length_s(curve: Curve, half_life_s: float) -> float:
    """What a curve is ½ at the half-life with."""
    if curve == "linear":
        return 2 * half_life_s
    return half_life_s / _LOGARITHMIC_HALF if curve == "logarithmic" else half_life_s


def outcomes(score: Floats, kinds: NDArray[np.uint8], used: Usage | None, weight: float) -> Floats:
    """Return what is added to the score of procedures for how using them went; 0 for what was not tried."""
    change = np.zeros(len(score))
    if used is None or weight == 0:
        return change
    tried = (kinds == KINDS.index("procedural")) & (used.successes + used.failures > 0)
    # Laplace's rule of succession, from −1 to 1: one failure says little, twenty say a lot.
    balance = 2.0 * (used.successes + 1) / (used.successes + used.failures + 2) - 1.0
    room = np.where(balance > 0, 1.0 - score, score)
    change[tried] = (weight * balance * np.maximum(room, 0.0))[tried]
    return change
