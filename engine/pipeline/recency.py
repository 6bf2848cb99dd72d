"""Third stage: what happened (or was used) lately counts a little more, and so does a procedure that works."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Candidates, Floats, Query, best_first
from jiyi.config import Curve, SearchConfig
from jiyi.kernels.decay import exponential, linear, logarithmic
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
    outcome = outcomes(score, view.kinds[rows], usage, config.outcome_weight)
    score = score + outcome
    return replace(
        candidates,
        recency=factor,
        age_s=age_s,
        used=usage,
        outcome=outcome,
        score=score,
        order=best_first(score),
    )


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
    factor = decay(counted_s, config.recency_curve, config.half_life_s)
    factor[_ageless(tuple(config.ageless_kinds))[kinds]] = 1.0
    for kind, aging in config.aging.items():
        of_kind = kinds == KINDS.index(kind)
        if of_kind.any():
            half_life_s = config.half_life_s if aging.half_life_s is None else aging.half_life_s
            own = decay(counted_s[of_kind], aging.curve or config.recency_curve, half_life_s)
            factor[of_kind] = np.maximum(own, aging.floor)
    return age_s, factor


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


@lru_cache(maxsize=64)
def _ageless(kinds: tuple[str, ...]) -> NDArray[np.bool_]:
    """By kind's number, whether it does not age."""
    return np.array([kind in kinds for kind in KINDS])


def decay(age_s: Floats, curve: Curve, half_life_s: float) -> Floats:
    """Return the recency of ages in seconds by one of the three curves, each ½ at the half-life."""
    if math.isinf(half_life_s):
        return np.ones(len(age_s))
    if curve == "linear":
        return linear(age_s, 2 * half_life_s)
    if curve == "logarithmic":
        return logarithmic(age_s, half_life_s / _LOGARITHMIC_HALF)
    return exponential(age_s, half_life_s)
