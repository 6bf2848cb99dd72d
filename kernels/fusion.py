"""Merge rankings or scores of several signals into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float64, int64, jit, reads, writes
from jiyi.kernels._numbering import number_distinct
from jiyi.kernels._order import sort_best_first
from jiyi.kernels.normalize import scale_to_unit

# Weights of lists that have none, for as many as there are in practice.
_ONES = np.ones(64, np.float64)
_ONES.flags.writeable = False


def rrf(
    lists: Sequence[NDArray[np.int64]],
    *,
    k: float = 60.0,
    weights: NDArray[np.float64] | Sequence[float] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Reciprocal rank fusion of ranked lists of ids.

    score(d) = Σ_l w_l / (k + rank_l(d)), ranks from 1: Cormack, Clarke & Büttcher 2009, Reciprocal Rank Fusion
    outperforms Condorcet and individual Rank Learning Methods.

    Args:
        lists: arrays of shape (n_l,), int64, best first. An id counts once per list, at its first place; ranks are
            counted after its repeats are removed.
        k: at least 0; larger values flatten the top.
        weights: one per list, finite and at least 0; None = 1 each.

    Returns:
        (ids int64, scores float64), each id once, best first; ties go to the smaller id. No lists, or only empty ones:
        two empty arrays. O(N log N) in all ids together.

    Raises:
        TypeError: a list of another dtype, or a number of another type.
        ValueError: another shape, not contiguous, k or a weight out of range, or not one weight per list.
    """
    k = _check.not_negative(k, "k")
    weights = _check_weights(weights, len(lists))
    bounds = _bounds(lists)
    fused_ids = np.empty(bounds[-1], np.int64)
    scores = np.empty(bounds[-1], np.float64)
    if bounds[-1] == 0:
        return fused_ids, scores
    count = _rrf_kernel(np.concatenate(lists), np.array(bounds, np.int64), k, weights, fused_ids, scores)
    return fused_ids[:count], scores[:count]


@jit((reads(int64), reads(int64), float64, reads(float64), writes(int64), writes(float64)))
def _rrf_kernel(ids: Any, bounds: Any, k: Any, weights: Any, fused_ids: Any, scores: Any) -> Any:
    numbers = np.empty(len(ids), np.int32)
    count = number_distinct(ids, len(ids), numbers, fused_ids)
    last_list = np.full(count, -1, np.int64)  # the last list that an id was seen in
    scores[:count] = 0.0
    for which in range(len(bounds) - 1):
        rank = 0
        for position in range(bounds[which], bounds[which + 1]):
            number = numbers[position]
            if last_list[number] != which:
                last_list[number] = which
                rank += 1
                scores[number] += weights[which] / (k + rank)
    sort_best_first(scores, fused_ids, count)
    return count


def weighted_lists(
    lists: Sequence[NDArray[np.int64]],
    scores: Sequence[NDArray[np.float64]],
    *,
    weights: NDArray[np.float64] | Sequence[float] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Weighted fusion of scored lists of ids: each list min-maxed, then the weighted sum by id.

    total(d) = Σ_l w_l · minmax_l(score_l(d)), 0 from a list that lacks d: CombSUM, Fox & Shaw 1994, Combination of
    Multiple Searches, on the scale of Lee 1997, Analyses of Multiple Evidence Combination.

    Where every signal is known for every candidate, `minmax_weighted_sum` makes up no zeros.

    Args:
        lists: arrays of shape (n_l,), int64. An id counts once per list, at its first place.
        scores: arrays of shape (n_l,), float64, finite, those of `lists`; higher is better.
        weights: one per list, finite and at least 0; None = 1 each.

    Returns:
        (ids int64, sums float64), each id once, best first; ties go to the smaller id. A list whose scores are all
        alike gives 1.0 each, see `normalize.minmax`. No lists, or only empty ones: two empty arrays. O(N log N) in all
        ids together.

    Raises:
        TypeError: an array of another dtype, or a weight of another type.
        ValueError: another shape, not contiguous, lengths that differ, NaN or infinity, or a weight out of range.
    """
    _check.length(len(scores), len(lists), "scores", "lists")
    weights = _check_weights(weights, len(lists))
    bounds = _bounds(lists)
    for number, (ids, values) in enumerate(zip(lists, scores, strict=True)):
        if not _check.is_array(values, _check.F64, 1) or len(values) != len(ids):
            name = f"scores[{number}]"
            _check.length(_check.array(values, _check.F64, 1, name), len(ids), name, f"lists[{number}]")
    fused_ids = np.empty(bounds[-1], np.int64)
    sums = np.empty(bounds[-1], np.float64)
    if bounds[-1] == 0:
        return fused_ids, sums
    count = _weighted_lists_kernel(
        np.concatenate(lists), np.concatenate(scores), np.array(bounds, np.int64), weights, fused_ids, sums
    )
    if count < 0:
        raise ValueError(f"scores[{-count - 1}] holds NaN or infinity: allowed are finite numbers")
    return fused_ids[:count], sums[:count]


@jit((reads(int64), reads(float64), reads(int64), reads(float64), writes(int64), writes(float64)))
def _weighted_lists_kernel(ids: Any, scores: Any, bounds: Any, weights: Any, fused_ids: Any, sums: Any) -> Any:
    numbers = np.empty(len(ids), np.int32)
    count = number_distinct(ids, len(ids), numbers, fused_ids)
    last_list = np.full(count, -1, np.int64)  # the last list that an id was seen in
    firsts = np.empty(len(ids), np.int32)
    values = np.empty(len(ids), np.float64)
    sums[:count] = 0.0
    for which in range(len(bounds) - 1):
        held = 0
        for position in range(bounds[which], bounds[which + 1]):
            number = numbers[position]
            if last_list[number] != which:
                last_list[number] = which
                firsts[held], values[held] = number, scores[position]
                held += 1
        if scale_to_unit(values[:held], values[:held], 1.0) >= 0:
            return -1 - which
        for i in range(held):
            sums[firsts[i]] += weights[which] * values[i]
    sort_best_first(sums, fused_ids, count)
    return count


def rrf_scores(
    ranks: NDArray[np.int64], *, k: float = 60.0, weights: NDArray[np.float64] | Sequence[float] | None = None
) -> NDArray[np.float64]:
    """Reciprocal rank fusion of candidates whose ranks are known.

    score(c) = Σ_l w_l / (k + ranks[l, c]) over the lists that hold c: Cormack, Clarke & Büttcher 2009.

    Args:
        ranks: shape (lists, n), int64, from 1; 0 = absent from that list.
        k: at least 0.
        weights: shape (lists,), finite and at least 0; None = 1 each.

    Returns:
        Shape (n,), float64, in the order of the candidates; 0 for one that no list holds. Equal ranks give equal
        scores. No lists give zeros, n = 0 an empty array. O(lists · n).

    Raises:
        TypeError: another dtype, or a number of another type.
        ValueError: another shape, not contiguous, a rank below 0, k or a weight out of range.
    """
    _check.array(ranks, _check.I64, 2, "ranks")
    k = _check.not_negative(k, "k")
    weights = _check_weights(weights, ranks.shape[0])
    scores = np.zeros(ranks.shape[1], np.float64)
    bad = _rrf_scores_kernel(ranks, k, weights, scores)
    if bad >= 0:
        which, candidate = divmod(bad, ranks.shape[1])
        raise ValueError(
            f"ranks[{which}, {candidate}] is {ranks[which, candidate]}, allowed is 1 and above, or 0 for absent: "
            "count ranks from 1"
        )
    return scores


@jit((reads(int64, 2), float64, reads(float64), writes(float64)))
def _rrf_scores_kernel(ranks: Any, k: Any, weights: Any, scores: Any) -> Any:
    lists, n = ranks.shape
    for which in range(lists):
        for candidate in range(n):
            rank = ranks[which, candidate]
            if rank < 0:
                return which * n + candidate
            if rank > 0:
                scores[candidate] += weights[which] / (k + rank)
    return -1


def weighted_sum(scores: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weighted sum of several signals per candidate.

    total(c) = Σ_s weights[s] · scores[s, c]: CombSUM with weights, Fox & Shaw 1994, Combination of Multiple Searches.

    Args:
        scores: shape (signals, n), float64, finite.
        weights: shape (signals,), float64, finite.

    Returns:
        Shape (n,), float64, in the order of the candidates, added in the order of the signals. Equal columns give equal
        sums. No signals give zeros, n = 0 an empty array. O(signals · n).

    Raises:
        TypeError: another dtype.
        ValueError: another shape, not contiguous, or a sum that is NaN or infinite.
    """
    _check.array(scores, _check.F64, 2, "scores")
    signals = _check.array(weights, _check.F64, 1, "weights")
    _check.length(signals, scores.shape[0], "weights", "scores' first axis")
    total = np.zeros(scores.shape[1], np.float64)
    bad = _weighted_sum_kernel(scores, weights, total)
    if bad >= 0:
        raise ValueError(
            f"the sum of candidate {bad} is {total[bad]} from scores {scores[:, bad].tolist()} and weights "
            f"{weights.tolist()}, allowed are finite numbers: normalise each signal first"
        )
    return total


@jit((reads(float64, 2), reads(float64), writes(float64)))
def _weighted_sum_kernel(scores: Any, weights: Any, total: Any) -> Any:
    signals, n = scores.shape
    for signal in range(signals):
        for candidate in range(n):
            total[candidate] += weights[signal] * scores[signal, candidate]
    for candidate in range(n):
        if not np.isfinite(total[candidate]):
            return candidate
    return -1


def minmax_weighted_sum(
    raw: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Min-max each signal, then the weighted sum per candidate: the default fusion in one call.

    `weighted_sum(np.stack([minmax(signal) for signal in raw]), weights)`, to the bit.

    Args:
        raw: shape (signals, n), float64, finite; higher is better.
        weights: shape (signals,), float64, finite.

    Returns:
        (normalised float64 (signals, n), sums float64 (n,)). Constant signals are 1.0 each, see
        `normalize.minmax`. No signals give zeros, n = 0 empty arrays. O(signals · n).

    Raises:
        TypeError: another dtype.
        ValueError: another shape, not contiguous, or NaN or infinity.
    """
    signals = _check.array(raw, _check.F64, 2, "raw")
    _check.length(_check.array(weights, _check.F64, 1, "weights"), signals, "weights", "raw's first axis")
    normalized = np.empty(raw.shape, np.float64)
    total = np.zeros(raw.shape[1], np.float64)
    bad = _minmax_weighted_sum_kernel(raw, weights, normalized, total)
    if bad >= 0:
        raise ValueError(f"signal {bad} holds NaN or infinity, or its weight is: allowed are finite numbers")
    return normalized, total


@jit((reads(float64, 2), reads(float64), writes(float64, 2), writes(float64)))
def _minmax_weighted_sum_kernel(raw: Any, weights: Any, normalized: Any, total: Any) -> Any:
    signals, n = raw.shape
    for signal in range(signals):
        if not np.isfinite(weights[signal]) or scale_to_unit(raw[signal], normalized[signal], 1.0) >= 0:
            return signal
        for candidate in range(n):
            total[candidate] += weights[signal] * normalized[signal, candidate]
    return -1


def _bounds(lists: Sequence[NDArray[np.int64]]) -> list[int]:
    """Where each list begins once they are joined, and where the last one ends."""
    bounds = [0]
    for ids in lists:
        if not _check.is_array(ids, _check.I64, 1):
            _check.array(ids, _check.I64, 1, f"lists[{len(bounds) - 1}]")
        bounds.append(bounds[-1] + len(ids))
    return bounds


def _check_weights(weights: NDArray[np.float64] | Sequence[float] | None, lists: int) -> NDArray[np.float64]:
    if weights is None:
        return _ONES[:lists] if lists <= len(_ONES) else np.ones(lists, np.float64)
    if _check.is_array(weights, _check.F64, 1):
        weights = weights.tolist()  # type: ignore[union-attr]  # numbers of Python are quicker to check
    checked = [_check.not_negative(weight, f"weights[{number}]") for number, weight in enumerate(weights)]
    _check.length(len(checked), lists, "weights", "lists")
    return np.array(checked, np.float64)
