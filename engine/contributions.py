"""What each part of the pipeline adds to a hit's score: amounts that add up to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jiyi.config import BONUSES, SearchConfig

#: Parts beside the signals, in the order they are added; bonuses are signals, added after the turn before.
LENT: Final = "lent"
LED: Final = "led"
RECENCY: Final = "recency"
OUTCOME: Final = "outcome"
RERANK: Final = "rerank"


def contributions(factors: Mapping[str, Any], config: SearchConfig) -> dict[str, float]:
    """Return what each part adds to the score of a hit; the sum is the score (to rounding).

    score = (Σ_s weight_s · counted_s + lent + speaker + date + led) · (1 − w) + recency · w + outcome + rerank, with w
    the recency weight, `lent` what the turn before lends on top of the signals, `speaker` and `date` what it gets for
    who said it and when, `led` what the fact that leads to it adds to all that, `outcome` what a procedure gets or
    loses for how using it went, and `rerank` how far reranking moved the score, up or down.

    Args:
        factors: `Hit.factors`, but for `contributions`.
        config: the settings of the search.

    Returns:
        dict[str, float]: by signal name, then `lent`, `speaker` where the query names one, `led` where a fact leads to
            it, `recency`, `outcome` where memories were used, and `rerank` where they were reranked.
    """
    kept = 1 - config.recency_weight
    own = {
        name: factor["weight"] * counted(name, factor, config)
        for name, factor in factors["signals"].items()
        if name not in BONUSES
    }
    so_far = sum(own.values())
    lent = 0.0 if factors["lent"] is None else max(0.0, factors["lent"] - so_far)
    so_far += lent
    parts = {name: amount * kept for name, amount in own.items()}
    parts[LENT] = lent * kept
    for name in BONUSES:
        if name in factors["signals"]:
            bonus = factors["signals"][name]
            gain = bonus["weight"] * bonus["normalized"]  # in proportion to the rest, with RRF too
            so_far += gain
            parts[name] = gain * kept
    if "led" in factors:
        parts[LED] = max(0.0, factors["led"]["relevance"] - so_far) * kept
    parts[RECENCY] = factors["recency"] * config.recency_weight
    if "used" in factors:
        parts[OUTCOME] = factors["used"]["change"]
    if "rerank" in factors:
        rerank = factors["rerank"]
        shares = [rerank["before_share"], *(factor["share"] for factor in factors["reranked"].values())]
        parts[RERANK] = sum(shares) - rerank["before"]
    return parts


def counted(name: str, factor: Mapping[str, Any], config: SearchConfig) -> float:
    """Return what a signal's weight is multiplied by: its normalised score, or with RRF its scaled reciprocal rank."""
    if config.fusion == "rrf" and name not in BONUSES:
        rank = factor["rank"]
        return 0.0 if rank is None else (config.rrf_k + 1) / (config.rrf_k + rank)
    return float(factor["normalized"])
