"""Third stage: what happened lately counts a little more; who somebody is does not age."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Candidates, Floats, Query, best_first
from jiyi.config import Curve
from jiyi.kernels.decay import exponential, linear, logarithmic
from jiyi.memory import KINDS

# 1 / ln(e + age/unit) is ½ where age/unit = e² − e.
_LOGARITHMIC_HALF = math.e**2 - math.e


def recency(candidates: Candidates, query: Query) -> Candidates:
    """Blend recency into relevance: relevance·(1 − w) + recency·w."""
    config = query.config
    age_s = np.maximum(query.now_s - query.view.timestamps_s[candidates.rows], 0.0)
    factor = decay(age_s, config.recency_curve, config.half_life_s)
    factor[_ageless(tuple(config.ageless_kinds))[query.view.kinds[candidates.rows]]] = 1.0
    weight = config.recency_weight
    score = candidates.relevance * (1 - weight) + factor * weight
    return replace(candidates, recency=factor, age_s=age_s, score=score, order=best_first(score))


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
