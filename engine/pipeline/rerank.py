"""Fourth stage: a closer look at the best candidates, by cross-encoder or BM25, fused with the first stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Candidates, Floats, Ints, Query, Reranking, Signal, ranks
from jiyi.kernels.fusion import rrf_scores, weighted_sum
from jiyi.kernels.normalize import minmax
from jiyi.kernels.order import best_first
from jiyi.models.protocols import BudgetedCrossEncoder, CrossEncoder
from jiyi.recall.keyword import keyword_scores

# Small enough to stop soon when the budget is spent, large enough to be worth a batch.
_BATCH: Final = 8
# A model that cannot read half of a query has nothing to say on it; nor on a text.
_READABLE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Request:
    """Texts to be scored for one query, best candidates first."""

    scorer: CrossEncoder
    query: str
    texts: Sequence[str]


#: The stage hands out requests and is sent their scores (NaN for what was not reached), or what went wrong.
Rerank = Generator[Request, Floats | Exception, Candidates]


def rerank(candidates: Candidates, query: Query, scorers: Sequence[str | CrossEncoder], texts_of: Texts) -> Rerank:
    """Rescore the best `rerank_candidates` and put those that were scored first.

    A scorer that raises, or returns no numbers, leaves the order as it was; a spent budget leaves the rest of the
    candidates unscored. A model that cannot read the query is not asked; a text that it cannot read keeps the first
    stage's score. `.degraded` tells all of it.

    Args:
        candidates: fused and blended.
        query: its configuration says how many are scored and how scores are fused.
        scorers: "bm25", or objects that score texts.
        texts_of: the texts of candidates, by position.
    """
    top = candidates.order[: query.config.rerank_candidates]
    if len(top) == 0 or not scorers:
        return candidates
    signals: list[Signal] = []
    counted: list[NDArray[np.bool_]] = []  # by signal: what has a place by it, scored or not
    texts: list[str] | None = None
    for scorer in scorers:
        if isinstance(scorer, str):  # "bm25": names of models were loaded before
            raw = keyword_scores(query, candidates.rows[top])
            signals.append(_over_pool(_distinct("bm25", signals), candidates, top, raw))
            counted.append(signals[-1].scored)
            continue
        name = _name(scorer)
        try:
            texts = texts_of(top) if texts is None else texts
            readable = _readable(scorer, query.text, texts)
            if readable is None:
                candidates.note("rerank", f"{name} cannot read the language of this query")
                continue
            if len(readable) == 0:
                candidates.note("rerank", f"{name} cannot read any of {len(top)} candidates")
                continue
            answer = yield Request(scorer, query.text, [texts[i] for i in readable])
            if isinstance(answer, Exception):
                raise answer
            raw = _checked(answer, len(readable))
        except Exception as error:  # a model of the user's: whatever it raises, the query is answered
            candidates.note("rerank", f"{name} failed: {type(error).__name__}: {error!s:.80}")
            continue
        if len(readable) < len(top):
            foreign = len(top) - len(readable)
            candidates.note(
                "rerank",
                f"{name} cannot read {foreign} of {len(top)} candidates; they count by their first-stage score",
            )
        reached = ~np.isnan(raw)
        if not reached.all():
            left = int(np.count_nonzero(~reached))
            candidates.note("rerank", f"{name} left {left} of {len(top)} candidates: budget spent")
        if reached.any():
            signal = _over_pool(_distinct(name, signals), candidates, top[readable[reached]], raw[reached])
            unread = top[np.setdiff1d(np.arange(len(top)), readable)]
            signals.append(_keeping_first(signal, candidates, top, unread) if len(unread) else signal)
            counted.append(signal.scored.copy())
            counted[-1][unread] = True
    if not signals:
        return candidates
    return _fused(candidates, query, tuple(signals), counted)


Texts = Callable[[Ints], list[str]]


def answer(request: Request, deadline: float | None) -> Floats | Exception:
    """Score the texts of a request.

    Args:
        request: from `rerank`.
        deadline: `time.perf_counter()` value after which no further batch is started, or None.
    """
    try:
        return _score(request, deadline)
    except Exception as error:
        return error


def answer_together(requests: Sequence[Request]) -> list[Floats | Exception]:
    """Score the texts of several requests; one call for all that go to the same scorer, if it takes pairs."""
    answers: dict[int, Floats | Exception] = {}
    together: dict[int, list[int]] = {}
    for i, request in enumerate(requests):
        if isinstance(request.scorer, BudgetedCrossEncoder):
            together.setdefault(id(request.scorer), []).append(i)
        else:
            answers[i] = answer(request, None)
    for places in together.values():
        scorer = requests[places[0]].scorer
        pairs = [(requests[i].query, text) for i in places for text in requests[i].texts]
        try:
            scores = np.asarray(scorer.score_pairs(pairs), dtype=np.float64)  # type: ignore[attr-defined]
            if scores.shape != (len(pairs),):
                raise ValueError(f"it returned scores of shape {scores.shape} for {len(pairs)} pairs")
        except Exception as error:
            answers.update(dict.fromkeys(places, error))
            continue
        bounds = np.cumsum([len(requests[i].texts) for i in places])[:-1]
        answers.update(zip(places, np.split(scores, bounds), strict=True))
    return [answers[i] for i in range(len(requests))]


def _readable(scorer: CrossEncoder, text: str, texts: Sequence[str]) -> NDArray[np.int64] | None:
    """Places of the texts that a model can read, all for one that does not say; None if it cannot read the query."""
    if not isinstance(scorer, BudgetedCrossEncoder):
        return np.arange(len(texts))
    if scorer.knows(text) < _READABLE:
        return None
    return np.flatnonzero([scorer.knows(each) >= _READABLE for each in texts])


def _score(request: Request, deadline: float | None) -> Floats:
    scorer, text, texts = request.scorer, request.query, request.texts
    if isinstance(scorer, BudgetedCrossEncoder):
        pairs = [(text, each) for each in texts]
        return np.asarray(scorer.score_pairs(pairs, deadline=deadline), dtype=np.float64)
    if deadline is None:
        return _finite(scorer.score(text, texts), len(texts))
    scores = np.full(len(texts), np.nan)
    for start in range(0, len(texts), _BATCH):
        if time.perf_counter() >= deadline:
            break
        batch = texts[start : start + _BATCH]
        scores[start : start + len(batch)] = _finite(scorer.score(text, batch), len(batch))
    return scores


def _finite(scores: object, count: int) -> Floats:
    array = _checked(scores, count)
    if not np.isfinite(array).all():
        raise ValueError("it returned NaN or infinity")
    return array


def _checked(scores: object, count: int) -> Floats:
    array = np.asarray(scores, dtype=np.float64)
    if array.shape != (count,):
        raise ValueError(f"it returned scores of shape {array.shape} for {count} texts")
    if np.isinf(array).any():
        raise ValueError("it returned NaN or infinity")
    return array


def _name(scorer: CrossEncoder) -> str:
    try:
        return str(getattr(scorer, "name", type(scorer).__name__))[:80]
    except Exception:  # a model of the user's
        return type(scorer).__name__


def _distinct(name: str, signals: Sequence[Signal]) -> str:
    """The name, numbered where another scorer has it: explanations go by name."""
    taken = {signal.name for signal in signals}
    numbered = (f"{name} ({i})" for i in range(2, len(taken) + 2))
    return name if name not in taken else next(other for other in numbered if other not in taken)


def _over_pool(name: str, candidates: Candidates, positions: Ints, raw: Floats) -> Signal:
    """Spread the scores of some candidates over the pool."""
    over, scored, scale = np.zeros(len(candidates)), np.zeros(len(candidates), dtype=bool), np.zeros(len(candidates))
    over[positions], scored[positions], scale[positions] = raw, True, minmax(np.ascontiguousarray(raw))
    return Signal(name, over, scored, normalized=scale, weight=1.0)


def _keeping_first(signal: Signal, candidates: Candidates, top: Ints, unread: Ints) -> Signal:
    """Count the first stage's score, on the scale of all that were to be scored, for those that were not read."""
    scale = signal.normalized.copy()
    first = np.zeros(len(candidates))
    first[top] = minmax(np.ascontiguousarray(candidates.score[top]))
    scale[unread] = first[unread]
    return replace(signal, normalized=scale)


def _fused(
    candidates: Candidates, query: Query, signals: tuple[Signal, ...], counted: Sequence[NDArray[np.bool_]]
) -> Candidates:
    """Order those that have a place by every signal by all of them, then the rest as they were."""
    config = query.config
    scored = np.logical_and.reduce(counted)
    positions = np.flatnonzero(scored)
    first = minmax(np.ascontiguousarray(candidates.score[positions])) if len(positions) else np.empty(0)
    if config.rerank_fusion == "rrf":
        weights = np.full(1 + len(signals), 1 / (1 + len(signals)))
        places = np.stack(
            [
                ranks(candidates.score, scored)[positions],
                *(ranks(signal.normalized, has)[positions] for signal, has in zip(signals, counted, strict=True)),
            ]
        )
        fused = rrf_scores(places, k=config.rrf_k) * (config.rrf_k + 1) / len(places)
        rows = (config.rrf_k + 1) / (config.rrf_k + places)
    else:
        share = config.rerank_weight / len(signals)
        weights = np.array([1 - config.rerank_weight, *[share] * len(signals)])
        rows = np.stack([first, *(np.ascontiguousarray(signal.normalized[positions]) for signal in signals)])
        fused = weighted_sum(rows, weights)
    score = candidates.score.copy()
    score[positions] = fused
    # Those that were looked at come first, whatever the others' scores: their scales are not the same.
    rest = [position for position in candidates.order.tolist() if not scored[position]]
    order = np.concatenate((positions[best_first(fused)], np.array(rest, dtype=np.int64)))
    scale = 1.0
    if rest and len(fused):
        scale = min(1.0, float(fused.min()) / max(float(score[rest].max()), 1e-12))
        score[rest] = score[rest] * scale
    shares = np.zeros((1 + len(signals), len(candidates)))
    shares[0] = candidates.score * scale
    shares[:, positions] = rows * weights[:, np.newaxis]
    for signal, weight in zip(signals, weights[1:].tolist(), strict=True):
        signal.weight = weight
    candidates.reranked = signals
    candidates.reranking = Reranking(candidates.score, scored, shares, scale)
    candidates.score, candidates.order = score, order
    return candidates
