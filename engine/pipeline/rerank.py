"""Fourth stage: a closer look at the best candidates, by cross-encoder or BM25, fused with the first stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from jiyi.candidates import Candidates, Floats, Ints, Query, Signal, best_first, ranks
from jiyi.config import TextScorer
from jiyi.kernels.fusion import rrf_scores, weighted_sum
from jiyi.kernels.normalize import minmax
from jiyi.recall.keyword import keyword_scores

# Small enough to stop soon when the budget is spent, large enough to be worth a batch.
_BATCH: Final = 8


def rerank(
    candidates: Candidates, query: Query, texts_of: Callable[[Ints], list[str]], deadline: float | None
) -> Candidates:
    """Rescore the best `rerank_candidates` and put those that were scored first.

    A scorer that raises, or returns no numbers, leaves the order as it was; a spent budget leaves the rest of the
    candidates unscored. `.degraded` tells either.

    Args:
        candidates: fused and blended.
        query: its configuration names the scorers.
        texts_of: the texts of candidates, by position.
        deadline: `time.perf_counter()` value after which no further batch is started, or None.
    """
    config = query.config
    top = candidates.order[: config.rerank_candidates]
    if len(top) == 0 or not config.rerank:
        return candidates
    signals: list[Signal] = []
    texts: list[str] | None = None
    for scorer in config.rerank:
        if scorer == "bm25":
            raw = keyword_scores(query, candidates.rows[top])
            signals.append(_over_pool("bm25", candidates, top, raw))
            continue
        try:
            texts = texts_of(top) if texts is None else texts
            raw = _score(scorer, query.text, texts, deadline)
        except Exception as error:  # a model of the user's: whatever it raises, the query is answered
            candidates = candidates.with_degraded(
                "rerank", f"{_name(scorer)} failed: {type(error).__name__}: {error}"[:300]
            )
            continue
        if len(raw) < len(top):
            left = len(top) - len(raw)
            candidates = candidates.with_degraded(
                "rerank", f"{_name(scorer)} left {left} of {len(top)} candidates: budget spent"
            )
        if len(raw):
            signals.append(_over_pool(_name(scorer), candidates, top[: len(raw)], raw))
    if not signals:
        return candidates
    return _fused(candidates, query, tuple(signals))


def _score(scorer: TextScorer, text: str, texts: Sequence[str], deadline: float | None) -> Floats:
    if deadline is None:
        return _checked(scorer.score(text, texts), len(texts))
    parts: list[Floats] = []
    for start in range(0, len(texts), _BATCH):
        if time.perf_counter() >= deadline:
            break
        batch = texts[start : start + _BATCH]
        parts.append(_checked(scorer.score(text, batch), len(batch)))
    return np.concatenate(parts) if parts else np.empty(0)


def _checked(scores: object, count: int) -> Floats:
    array = np.asarray(scores, dtype=np.float64)
    if array.shape != (count,):
        raise ValueError(f"it returned scores of shape {array.shape} for {count} texts")
    if not np.isfinite(array).all():
        raise ValueError("it returned NaN or infinity")
    return array


def _name(scorer: TextScorer) -> str:
    return str(getattr(scorer, "name", type(scorer).__name__))


def _over_pool(name: str, candidates: Candidates, positions: Ints, raw: Floats) -> Signal:
    """Spread the scores of some candidates over the pool."""
    over, scored, scale = np.zeros(len(candidates)), np.zeros(len(candidates), dtype=bool), np.zeros(len(candidates))
    over[positions], scored[positions], scale[positions] = raw, True, minmax(np.ascontiguousarray(raw))
    return Signal(name, over, scored, scale, 1.0)


def _fused(candidates: Candidates, query: Query, signals: tuple[Signal, ...]) -> Candidates:
    config = query.config
    scored = np.logical_and.reduce([signal.scored for signal in signals])
    positions = np.flatnonzero(scored)
    first = minmax(np.ascontiguousarray(candidates.score[positions])) if len(positions) else np.empty(0)
    if config.rerank_fusion == "rrf":
        places = np.stack(
            [ranks(candidates.score, scored)[positions], *(signal.ranks()[positions] for signal in signals)]
        )
        fused = rrf_scores(places, k=config.rrf_k) * (config.rrf_k + 1) / len(places)
    else:
        share = config.rerank_weight / len(signals)
        rows = np.stack([first, *(np.ascontiguousarray(signal.normalized[positions]) for signal in signals)])
        fused = weighted_sum(rows, np.array([1 - config.rerank_weight, *[share] * len(signals)]))
    score = candidates.score.copy()
    score[positions] = fused
    # Those that were looked at come first, whatever the others' scores: their scales are not the same.
    rest = [position for position in candidates.order.tolist() if not scored[position]]
    order = np.concatenate((positions[best_first(fused)], np.array(rest, dtype=np.int64)))
    if rest and len(fused):
        score[rest] = score[rest] * min(1.0, float(fused.min()) / max(float(score[rest].max()), 1e-12))
    return replace(candidates, reranked=signals, score=score, order=order)
