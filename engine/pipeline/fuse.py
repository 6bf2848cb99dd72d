"""Second stage: signals of different scales become one relevance between 0 and 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jiyi.candidates import Candidates, Floats, Ints, Query, Signal, best_first
from jiyi.config import Normalization
from jiyi.kernels.fusion import rrf_scores, weighted_sum
from jiyi.kernels.normalize import minmax, rank_scores, zscore

_NORMALIZERS = {"minmax": minmax, "zscore": zscore, "rank": rank_scores}
# Tokens from which on a turn is long enough to be an answer. LoCoMo's recall@10 was within 0.2 for 1, 4, 8 and 12.
_FULL_LENGTH = 8


def fuse(candidates: Candidates, query: Query) -> Candidates:
    """Normalise every signal over the pool and fuse them.

    A signal that has something on no candidate gets weight 0, and the others share the whole.
    "weighted": the mean of the normalised scores by weight. "rrf": reciprocal ranks, divided by what a candidate that
    is first everywhere would get, so that recency blends in alike.
    """
    config = query.config
    wanted = [getattr(config, f"{signal.name}_weight") if signal.scored.any() else 0.0 for signal in candidates.signals]
    total = sum(wanted)
    weights = [weight / total if total else 0.0 for weight in wanted]
    signals = tuple(
        replace(signal, normalized=normalized(signal, config.normalization), weight=weight)
        for signal, weight in zip(candidates.signals, weights, strict=True)
    )
    relevance = np.zeros(len(candidates))
    if total and len(candidates):
        shares = np.array(weights)
        if config.fusion == "rrf":
            places = np.stack([signal.ranks() for signal in signals])
            relevance = rrf_scores(places, k=config.rrf_k, weights=shares) * (config.rrf_k + 1)
        else:
            relevance = weighted_sum(np.stack([signal.normalized for signal in signals]), shares)
    lent = _lent(candidates.rows, relevance, query)
    relevance = np.fmax(relevance, lent)
    return replace(
        candidates, signals=signals, relevance=relevance, lent=lent, score=relevance, order=best_first(relevance)
    )


def _lent(rows: Ints, relevance: Floats, query: Query) -> Floats:
    """What each candidate is lent by the one before it in its session: a share of that one's relevance, else NaN.

    In a conversation the turn that answers often shares no word with the query; the question before it does.
    """
    before = query.view.previous[rows]
    places = np.minimum(np.searchsorted(rows, before), max(len(rows) - 1, 0))
    is_candidate = (before >= 0) & (rows[places] == before) if len(rows) else np.zeros(0, dtype=bool)
    if query.config.neighbor_share == 0:
        return np.full(len(rows), np.nan)
    # "Ok, sounds good" answers nothing, whatever was asked before it: short turns borrow in proportion to their length.
    share = query.config.neighbor_share * np.minimum(1.0, query.view.lengths[rows] / _FULL_LENGTH)
    return np.where(is_candidate & (relevance[places] > 0), relevance[places] * share, np.nan)


def normalized(signal: Signal, how: Normalization) -> Floats:
    """Return a signal's scores on the common scale.

    The keyword and late signals' 0 ("nothing in common") is a score like any other. A vector that does not exist is
    none: it takes the lowest normalised value of those that do.
    """
    if how == "none" or len(signal.raw) == 0:
        return signal.raw
    normalize = _NORMALIZERS[how]
    if signal.name != "dense" or signal.scored.all():
        return normalize(signal.raw)
    scores = np.zeros(len(signal.raw))
    if signal.scored.any():
        among = normalize(np.ascontiguousarray(signal.raw[signal.scored]))
        scores[signal.scored] = among
        scores[~signal.scored] = min(0.0, float(among.min()))
    return scores
