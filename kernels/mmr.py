"""Maximal marginal relevance: pick what is relevant and unlike what has been picked."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float32, float64, int64, jit, jit_sum, reads, uint32, writes
from jiyi.kernels._order import sift_down
from jiyi.kernels.jaccard import _shared, ratio
from jiyi.kernels.topk import first_nonfinite_row


class MmrSelection(NamedTuple):
    """What MMR chose, in the order of choice, with the numbers behind each choice.

    Attributes:
        order: shape (m,), int64: candidates, first choice first.
        score: shape (m,), float64: λ·relevance − (1−λ)·penalty at the moment of choice.
        penalty: shape (m,), float64: the highest similarity to those chosen before; starts at 0, never below.
        blocker: shape (m,), int64: the candidate with that similarity, the first chosen of several; −1 if penalty is 0.
    """

    order: NDArray[np.int64]
    score: NDArray[np.float64]
    penalty: NDArray[np.float64]
    blocker: NDArray[np.int64]


def mmr_from_matrix(
    relevance: NDArray[np.float64],
    similarity: NDArray[np.float64] | NDArray[np.float32],
    k: int,
    lambda_: float,
) -> MmrSelection:
    """Greedy MMR on similarities that exist.

    Each round takes argmax_c λ·relevance(c) − (1−λ)·max(0, max_{s chosen} similarity(c, s)): Carbonell & Goldstein
    1998, The Use of MMR, Diversity-Based Reranking for Reordering Documents and Producing Summaries.

    Args:
        relevance: shape (n,), float64, finite; min-max it first, so that λ means the same for every query.
        similarity: shape (n, n), float64 or float32; row s holds the similarities to s, the diagonal is not read.
        k: at least 0; more than n is allowed.
        lambda_: 0 (only diversity) to 1 (only relevance, the same as top-k).

    Returns:
        MmrSelection of m = min(k, n), first choice first. Ties go to the lower index. n = 0 or k = 0: empty arrays. All
        relevant alike: the least similar first. A negative similarity is no reward. O(k n).

    Raises:
        TypeError: an array of another dtype, or a number of another type.
        ValueError: another shape, not contiguous, relevance NaN or infinite, NaN among the similarities of a chosen
            candidate, k below 0, or lambda_ outside 0 to 1.
    """
    n = _check.array(relevance, _check.F64, 1, "relevance")
    dtype = _check.F32 if getattr(similarity, "dtype", None) == _check.F32 else _check.F64
    _check.array(similarity, dtype, 2, "similarity")
    if similarity.shape != (n, n):
        raise ValueError(
            f"similarity has shape {similarity.shape}, allowed is ({n}, {n}), one row per candidate: compute it over "
            "the same candidates as relevance"
        )
    selection = _allocate(n, k)
    bad, other = _from_matrix_kernel(relevance, similarity, _check.fraction(lambda_, "lambda_"), *selection)
    if other >= 0:
        raise ValueError(f"similarity[{bad}, {other}] is NaN, allowed are numbers: pass 0 for candidates without one")
    _refuse_relevance(bad, relevance)
    return selection


def mmr_jaccard(
    relevance: NDArray[np.float64],
    indptr: NDArray[np.int64],
    ids: NDArray[np.uint32],
    k: int,
    lambda_: float,
) -> MmrSelection:
    """Greedy MMR with the Jaccard similarity of token sets, computed only where it decides.

    The formula and its source are those of `mmr_from_matrix`, with similarity(c, s) = |c ∩ s| / |c ∪ s|, J(∅, ∅) = 0.

    Args:
        relevance: shape (n,), float64, finite; min-max it first, so that λ means the same for every query.
        indptr: shape (≥ n + 1,), int64, ascending: candidate c's tokens are [indptr[c], indptr[c + 1]).
        ids: shape (≥ indptr[n],), uint32, unique within a row.
        k: at least 0; more than n is allowed.
        lambda_: 0 (only diversity) to 1 (only relevance, the same as top-k).

    Returns:
        MmrSelection of m = min(k, n), first choice first. Ties go to the lower index; at λ = 0 a copy never comes
        before a distinct candidate. n = 0 or k = 0: empty arrays. O(n), and pairs compared: at most k n, where
        relevance differs a few for each of k.

    Raises:
        TypeError: an array of another dtype, or a number of another type.
        ValueError: another shape, not contiguous, relevance NaN or infinite, k below 0, or lambda_ outside 0 to 1.
    """
    n = _check.array(relevance, _check.F64, 1, "relevance")
    _check.csr_of(indptr, ids, n, "ids")
    selection = _allocate(n, k)
    _refuse_relevance(
        _jaccard_kernel(relevance, indptr, ids, _check.fraction(lambda_, "lambda_"), *selection), relevance
    )
    return selection


def mmr_cosine(relevance: NDArray[np.float64], vectors: NDArray[np.float32], k: int, lambda_: float) -> MmrSelection:
    """Greedy MMR with the cosine of vectors, computed only where it decides.

    The formula and its source are those of `mmr_from_matrix`, with similarity(c, s) = c·s / (‖c‖ ‖s‖) in float64.

    Args:
        relevance: shape (n,), float64, finite; min-max it first, so that λ means the same for every query.
        vectors: shape (n, d), float32, finite; need not be unit. A zero row has similarity 0 with everything.
        k: at least 0; more than n is allowed.
        lambda_: 0 (only diversity) to 1 (only relevance, the same as top-k).

    Returns:
        MmrSelection of m = min(k, n), first choice first. Ties go to the lower index; at λ = 0 a copy never comes
        before a distinct candidate. n = 0 or k = 0: empty arrays. A negative cosine is no reward. O(n d)
        and the pairs that are compared, see `mmr_jaccard`.

    Raises:
        TypeError: an array of another dtype, or a number of another type.
        ValueError: another shape, not contiguous, relevance or a vector NaN or infinite, k below 0, or lambda_ outside
            0 to 1.
    """
    n = _check.array(relevance, _check.F64, 1, "relevance")
    _check.length(_check.array(vectors, _check.F32, 2, "vectors"), n, "vectors", "relevance")
    selection = _allocate(n, k)
    _refuse_relevance(_cosine_kernel(relevance, vectors, _check.fraction(lambda_, "lambda_"), *selection), relevance)
    bad = first_nonfinite_row(vectors)
    if bad >= 0:
        raise ValueError(f"vectors[{bad}] holds NaN or infinity, allowed are finite numbers: drop that candidate")
    return selection


@jit()
def _first_nonfinite(x: Any) -> Any:
    for i in range(len(x)):
        if not np.isfinite(x[i]):
            return i
    return -1


@jit()
def _take_best(relevance: Any, lambda_: Any, worst: Any, nearest: Any, taken: Any, place: Any, chosen: Any) -> Any:
    """Take the candidate of the best marginal relevance, note why, return it. `chosen`: the arrays of MmrSelection."""
    best, best_score = -1, 0.0
    for c in range(len(relevance)):
        if not taken[c]:
            score = lambda_ * relevance[c] - (1.0 - lambda_) * worst[c]
            if best < 0 or score > best_score:
                best, best_score = c, score
    order, scores, penalties, blockers = chosen
    order[place], scores[place], penalties[place], blockers[place] = best, best_score, worst[best], nearest[best]
    taken[best] = True
    return best


@jit()
def _note(similarity: Any, c: Any, best: Any, worst: Any, nearest: Any) -> None:
    """Raise the penalty of candidate c to its similarity with the one just chosen."""
    if similarity > worst[c]:
        worst[c] = similarity
        nearest[c] = best


@jit(
    (
        reads(float64),
        reads(float64, 2),
        float64,
        writes(int64),
        writes(float64),
        writes(float64),
        writes(int64),
    ),
    (
        reads(float64),
        reads(float32, 2),
        float64,
        writes(int64),
        writes(float64),
        writes(float64),
        writes(int64),
    ),
)
def _from_matrix_kernel(
    relevance: Any, similarity: Any, lambda_: Any, order: Any, scores: Any, penalties: Any, blockers: Any
) -> Any:
    n = len(relevance)
    bad = _first_nonfinite(relevance)
    if bad >= 0:
        return bad, -1
    worst, nearest, taken = np.zeros(n), np.full(n, -1, np.int64), np.zeros(n, np.bool_)
    chosen = (order, scores, penalties, blockers)
    for place in range(len(order)):
        best = _take_best(relevance, lambda_, worst, nearest, taken, place, chosen)
        for c in range(n):
            if not taken[c]:
                if np.isnan(similarity[best, c]):
                    return best, c
                _note(float64(similarity[best, c]), c, best, worst, nearest)
    return -1, -1


@jit()
def _by_relevance(relevance: Any, lambda_: Any) -> Any:
    """A heap of all candidates, what each can score at most on top of it, the lower index of equals first.

    Both numbers are negated: `sift_down` keeps the worst pair at the root, and this heap the best.
    """
    n = len(relevance)
    bounds, keys = np.empty(n), np.empty(n, np.int64)
    for c in range(n):
        bounds[c], keys[c] = -(lambda_ * relevance[c]), -c
    for start in range(n // 2 - 1, -1, -1):
        sift_down(bounds, keys, start, n)
    return bounds, keys


@jit()
def _take_root(bounds: Any, keys: Any, held: Any) -> None:
    """Take the root out of a heap of `held`."""
    bounds[0], keys[0] = bounds[held - 1], keys[held - 1]
    sift_down(bounds, keys, 0, held - 1)


@jit()
def _ascending(ids: Any, start: Any, end: Any, base: Any, own: Any) -> None:
    """Copy ids [start, end) to `own`, where they stand `base` lower, in ascending order (Shell's sort)."""
    in_order = True
    for position in range(start, end):
        own[position - base] = ids[position]
        in_order = in_order and (position == start or ids[position - 1] < ids[position])
    gap = 0 if in_order else (end - start) // 2
    while gap > 0:
        for position in range(start - base + gap, end - base):
            token, place = own[position], position
            while place >= start - base + gap and own[place - gap] > token:
                own[place] = own[place - gap]
                place -= gap
            own[place] = token
        gap //= 2


@jit(
    (
        reads(float64),
        reads(int64),
        reads(uint32),
        float64,
        writes(int64),
        writes(float64),
        writes(float64),
        writes(int64),
    )
)
def _jaccard_kernel(
    relevance: Any, indptr: Any, ids: Any, lambda_: Any, order: Any, scores: Any, penalties: Any, blockers: Any
) -> Any:
    n = len(relevance)
    bad = _first_nonfinite(relevance)
    if bad >= 0:
        return bad
    base = indptr[0]
    own = np.empty(indptr[n] - base, np.uint32)  # rows in ascending order, of the candidates looked at
    compared = np.full(n, -1, np.int64)  # with so many of those chosen; -1: not looked at yet
    worst, nearest = np.zeros(n), np.full(n, -1, np.int64)
    bounds, keys = _by_relevance(relevance, lambda_)
    for place in range(len(order)):
        # A candidate that was compared with only some of those chosen scores no more than its bound: where one that was
        # compared with all of them tops every bound, the others need not be compared (Minoux 1978, Accelerated Greedy
        # Algorithms for Maximizing Submodular Set Functions).
        while True:
            c = -keys[0]
            start, end = indptr[c], indptr[c + 1]
            if compared[c] < 0:
                _ascending(ids, start, end, base, own)
                compared[c] = 0
            if compared[c] == place:
                break
            s = order[compared[c]]
            compared[c] += 1
            s_start, s_end = indptr[s], indptr[s + 1]
            shared = _shared(own, start - base, end - base, own, s_start - base, s_end - base)
            similarity = ratio(shared, end - start, s_end - s_start)
            if similarity > worst[c]:
                worst[c], nearest[c] = similarity, s
                bounds[0] = -(lambda_ * relevance[c] - (1.0 - lambda_) * worst[c])
                sift_down(bounds, keys, 0, n - place)
        order[place], scores[place], penalties[place], blockers[place] = c, -bounds[0], worst[c], nearest[c]
        _take_root(bounds, keys, n - place)
    return -1


@jit_sum()
def _dot(vectors: Any, a: Any, b: Any) -> Any:
    total = 0.0
    for j in range(vectors.shape[1]):
        total += float64(vectors[a, j]) * float64(vectors[b, j])
    return total


@jit(
    (
        reads(float64),
        reads(float32, 2),
        float64,
        writes(int64),
        writes(float64),
        writes(float64),
        writes(int64),
    )
)
def _cosine_kernel(
    relevance: Any, vectors: Any, lambda_: Any, order: Any, scores: Any, penalties: Any, blockers: Any
) -> Any:
    n = len(relevance)
    bad = _first_nonfinite(relevance)
    if bad >= 0:
        return bad
    norms = np.empty(n)  # of the candidates looked at
    compared = np.full(n, -1, np.int64)
    worst, nearest = np.zeros(n), np.full(n, -1, np.int64)
    bounds, keys = _by_relevance(relevance, lambda_)
    for place in range(len(order)):
        while True:  # as in `_jaccard_kernel`
            c = -keys[0]
            if compared[c] < 0:
                norms[c] = np.sqrt(_dot(vectors, c, c))
                compared[c] = 0
            if compared[c] == place:
                break
            s = order[compared[c]]
            compared[c] += 1
            if norms[c] == 0.0 or norms[s] == 0.0:
                continue
            similarity = min(_dot(vectors, s, c) / (norms[s] * norms[c]), 1.0)  # rounding may exceed 1
            if similarity > worst[c]:
                worst[c], nearest[c] = similarity, s
                bounds[0] = -(lambda_ * relevance[c] - (1.0 - lambda_) * worst[c])
                sift_down(bounds, keys, 0, n - place)
        order[place], scores[place], penalties[place], blockers[place] = c, -bounds[0], worst[c], nearest[c]
        _take_root(bounds, keys, n - place)
    return -1


def _allocate(n: int, k: int) -> MmrSelection:
    m = min(_check.count(k, "k"), n)
    return MmrSelection(np.empty(m, np.int64), np.empty(m), np.empty(m), np.empty(m, np.int64))


def _refuse_relevance(bad: int, relevance: NDArray[np.float64]) -> None:
    if bad >= 0:
        raise ValueError(f"relevance[{bad}] is {relevance[bad]}, allowed are finite numbers: drop that candidate")
