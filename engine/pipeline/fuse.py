"""Second stage: signals of different scales become one relevance between 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jiyi.candidates import Candidates, Floats, Query, Signal, best_first
from jiyi.config import BONUSES, Normalization
from jiyi.kernels.fusion import minmax_weighted_sum, rrf_scores, weighted_sum
from jiyi.kernels.lending import lent_by_previous
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
    own = [signal for signal in candidates.signals if signal.name not in BONUSES]
    wanted = [getattr(config, f"{signal.name}_weight") if signal.scored.any() else 0.0 for signal in own]
    total = sum(wanted)
    weights = [weight / total if total else 0.0 for weight in wanted]
    shares = np.array(weights)
    if config.fusion == "weighted" and config.normalization == "minmax" and total and _dense_on_all(own):
        stacked, relevance = minmax_weighted_sum(np.stack([signal.raw for signal in own]), shares)
        scales = list(stacked)
    else:
        scales = [normalized(signal, config.normalization) for signal in own]
        if not total:
            relevance = np.zeros(len(candidates))
        elif config.fusion == "rrf":
            places = np.stack([signal.ranks() for signal in own])
            relevance = rrf_scores(places, k=config.rrf_k, weights=shares) * (config.rrf_k + 1)
        else:
            relevance = weighted_sum(np.stack(scales), shares)
    view = query.view
    lent = lent_by_previous(
        candidates.rows, relevance, view.previous, view.lengths, config.neighbor_share, _FULL_LENGTH
    )
    relevance = np.fmax(relevance, lent)
    for signal in candidates.signals:
        if signal.name in BONUSES and total:
            # Who said it, and when, comes last, so that one speaker's question still lends to the other's answer; and
            # in proportion, so that it lifts nothing that has nothing else to say.
            gain = signal.raw * relevance
            setting = getattr(config, f"{signal.name}_bonus")
            bonus = setting / (1 + setting)
            relevance, lent = relevance * (1 - bonus) + gain * bonus, lent * (1 - bonus)
            own, scales, weights = [*own, signal], [*scales, gain], [*(w * (1 - bonus) for w in weights), bonus]
    signals = tuple(
        Signal(signal.name, signal.raw, signal.scored, scale, weight, signal.plan)
        for signal, scale, weight in zip(own, scales, weights, strict=True)
    )
    return replace(
        candidates, signals=signals, relevance=relevance, lent=lent, score=relevance, order=best_first(relevance)
    )


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
