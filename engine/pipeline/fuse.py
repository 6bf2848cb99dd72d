"""Second stage: signals of different scales become one relevance between 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jiyi.candidates import Candidates, Floats, Query, Signal
from jiyi.config import BONUSES, Normalization
from jiyi.kernels.fusion import minmax_weighted_sum, rrf_scores, weighted_sum
from jiyi.kernels.lending import lent_by_previous
from jiyi.kernels.normalize import minmax, rank_scores, zscore

_NORMALIZERS = {"minmax": minmax, "zscore": zscore, "rank": rank_scores}
# Tokens from which on a turn is long enough to be an answer. LoCoMo's recall@10 was within 0.2 for 1, 4, 8 and 12.
_FULL_LENGTH = 8


def fuse(candidates: Candidates, query: Query) -> Candidates:
    """Normalise every signal over the pool and fuse them into `relevance`.

    A signal that has something on no candidate gets weight 0, and the others share the whole.
    "weighted": the mean of the normalised scores by weight. "rrf": reciprocal ranks, divided by what a candidate that
    is first everywhere would get, so that recency blends in alike.
    """
    config, view = query.config, query.view
    own = [signal for signal in candidates.signals if signal.name not in BONUSES]
    wanted = [getattr(config, f"{signal.name}_weight") if signal.scored.any() else 0.0 for signal in own]
    total = sum(wanted)
    for signal, weight in zip(own, wanted, strict=True):
        signal.weight = weight / total if total else 0.0
    shares = np.array([signal.weight for signal in own])
    if config.fusion == "weighted" and config.normalization == "minmax" and total and _dense_on_all(own):
        scales, relevance = minmax_weighted_sum(np.array([signal.raw for signal in own]), shares)
        for signal, scale in zip(own, scales, strict=True):
            signal.normalized = scale
    else:
        for signal in own:
            signal.normalized = normalized(signal, config.normalization)
        if not total:
            relevance = np.zeros(len(candidates))
        elif config.fusion == "rrf":
            places = np.stack([signal.ranks() for signal in own])
            relevance = rrf_scores(places, k=config.rrf_k, weights=shares) * (config.rrf_k + 1)
        else:
            relevance = weighted_sum(np.stack([signal.normalized for signal in own]), shares)
    lent = lent_by_previous(
        candidates.rows, relevance, view.previous, view.lengths, config.neighbor_share, _FULL_LENGTH
    )
    relevance = np.fmax(relevance, lent)
    bonuses = [signal for signal in candidates.signals if signal.name in BONUSES] if total else []
    for signal in bonuses:
        # Who said it, and when, comes last, so that one speaker's question still lends to the other's answer; and in
        # proportion, so that it lifts nothing that has nothing else to say.
        signal.normalized = signal.raw * relevance
        setting = getattr(config, f"{signal.name}_bonus")
        bonus = setting / (1 + setting)
        relevance, lent = relevance * (1 - bonus) + signal.normalized * bonus, lent * (1 - bonus)
        for other in own:
            other.weight *= 1 - bonus
        signal.weight = bonus
        own.append(signal)
    candidates.signals = tuple(own)
    candidates.relevance = candidates.score = relevance
    candidates.lent = lent
    return candidates


def _dense_on_all(signals: Sequence[Signal]) -> bool:
    return all(signal.name != "dense" or signal.scored.all() for signal in signals)


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
