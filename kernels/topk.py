"""The k best rows: from scores that exist, or straight from a scan over vectors that never writes the scores down."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float32, float64, int64, jit, jit_sum, reads, uint8, uint32, writes
from jiyi.kernels._order import offer, sort_heap

# Rows scored before their scores are looked at: a loop in which each score decides at once whether its row goes to the
# heap is slower than one that only adds up.
_BLOCK = 64
_EXPONENT = np.uint32(0x7F800000)  # all ones in a float32 exactly when it is NaN or infinite


def top_k(
    scores: NDArray[np.float64] | NDArray[np.float32],
    eligible: NDArray[np.uint8],
    k: int,
    *,
    above: float = -np.inf,
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The rows of the k highest scores, best first.

    A bounded heap of k pairs, filled in one pass (Knuth, The Art of Computer Programming vol. 3, 5.2.3).

    Args:
        scores: shape (n,), float64 or float32.
        eligible: shape (n,) or longer, uint8; rows with 0 do not count.
        k: at least 0; more than there are rows is allowed.
        above: only scores strictly above it count.

    Returns:
        (rows int64, scores of the input's dtype), both of shape (m,), m ≤ min(k, n), best first.

    Ties go to the lower row. NaN is above nothing and is never returned, nor is −∞. Nothing eligible, n = 0 or k = 0:
    two empty arrays. O(n + m log k log n) expected for rows in random order, O(n log k) at worst.

    Raises:
        TypeError: an array of another dtype, or k not an integer.
        ValueError: another shape, not contiguous, eligible shorter than scores, k below 0, or above NaN.
    """
    dtype = _check.F32 if getattr(scores, "dtype", None) == _check.F32 else _check.F64
    n = _check.array(scores, dtype, 1, "scores")
    _check.at_least(_check.array(eligible, _check.U8, 1, "eligible"), n, "eligible")
    m = min(_check.count(k, "k"), n)
    if above != above:
        raise ValueError("above is NaN, allowed is a number or -inf: pass -np.inf for no floor")
    rows = np.empty(m, np.int64)
    best = np.empty(m, dtype)
    held = _top_k_kernel(scores, eligible, float(above), rows, best) if m else 0
    return rows[:held], best[:held]


@jit(
    (reads(float64), reads(uint8), float64, writes(int64), writes(float64)),
    (reads(float32), reads(uint8), float64, writes(int64), writes(float32)),
)
def _top_k_kernel(scores: Any, eligible: Any, above: Any, rows: Any, best: Any) -> Any:
    held = 0
    capacity = len(rows)
    floor = above  # what a score must exceed: `above`, then the worst score held
    for row in range(len(scores)):
        score = scores[row]
        if score > floor and eligible[row] != 0:
            held = offer(best, rows, held, capacity, score, row)
            if held == capacity:
                floor = float64(best[0])
    sort_heap(best, rows, held)
    return held


def dense_top_k(
    vectors: NDArray[np.float32], query: NDArray[np.float32], eligible: NDArray[np.uint8], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The rows of the k highest dot products with the query, best first: exact search in one pass over the vectors.

    score(r) = Σ_j vectors[r, j] · query[j], which is the cosine when both are unit. Summed in float32, vectorised.

    Args:
        vectors: shape (n, d), float32, finite.
        query: shape (d,), float32, finite.
        eligible: shape (n,) or longer, uint8; rows with 0 are not read.
        k: at least 0; more than there are rows is allowed.

    Returns:
        (rows int64, scores float32), both of shape (m,), m ≤ min(k, n), best first.

    Ties go to the lower row. A row that holds NaN is never returned. A zero row scores 0: leave it out of `eligible` to
    keep it out of the result. Nothing eligible, n = 0 or k = 0: two empty arrays. O(n d + m log k log n) expected.

    Raises:
        TypeError: an array of another dtype, or k not an integer.
        ValueError: another shape or dimension, not contiguous, eligible too short, NaN or infinity in the query.
    """
    n = _check.array(vectors, _check.F32, 2, "vectors")
    _check_query(vectors, query)
    _check.at_least(_check.array(eligible, _check.U8, 1, "eligible"), n, "eligible")
    m = min(_check.count(k, "k"), n)
    rows = np.empty(m, np.int64)
    best = np.empty(m, np.float32)
    if m == 0:
        return rows, best
    held = _dense_top_k_kernel(vectors, query, eligible, rows, best)
    if held < 0:
        refuse_query(query)
    return rows[:held], best[:held]


@jit_sum()
def dot(vectors: Any, row: Any, query: Any) -> Any:
    """One inner loop for the scan and for named rows, so that both give the same bits."""
    vector = vectors[row]
    total = np.float32(0.0)
    for j in range(len(vector)):
        total += vector[j] * query[j]
    return total


@jit_sum((reads(float32, 2), reads(float32), reads(uint8), writes(int64), writes(float32)))
def _dense_top_k_kernel(vectors: Any, query: Any, eligible: Any, rows: Any, best: Any) -> Any:
    for j in range(len(query)):
        if not np.isfinite(query[j]):
            return -1
    n, held, capacity = vectors.shape[0], 0, len(rows)
    floor = np.float32(-np.inf)
    which = np.empty(_BLOCK, np.int64)
    scores = np.empty(_BLOCK, np.float32)
    row = 0
    while row < n:
        size = 0
        while size < _BLOCK and row < n:
            which[size] = row
            size += eligible[row] != 0
            row += 1
        if size > 0 and which[size - 1] - which[0] == size - 1:
            first = which[0]
            for i in range(size):
                scores[i] = dot(vectors, first + i, query)
        else:
            for i in range(size):
                scores[i] = dot(vectors, which[i], query)
        for i in range(size):
            if scores[i] > floor:
                held = offer(best, rows, held, capacity, scores[i], which[i])
                if held == capacity:
                    floor = best[0]
    sort_heap(best, rows, held)
    return held


def dense_rows(
    vectors: NDArray[np.float32], rows: NDArray[np.int64], query: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The dot products of named rows with the query, bit-identical to what `dense_top_k` gives the same rows.

    score(r) = Σ_j vectors[r, j] · query[j], summed in float32.

    Args:
        vectors: shape (n, d), float32.
        rows: shape (m,), int64, each in [0, n); may repeat.
        query: shape (d,), float32, finite.

    Returns:
        Shape (m,), float32, in the order of `rows`. Empty rows give an empty array; a row with NaN gives NaN. O(m d).

    Raises:
        TypeError: an array of another dtype.
        ValueError: another shape or dimension, not contiguous, a row out of range, NaN or infinity in the query.
    """
    n = _check.array(vectors, _check.F32, 2, "vectors")
    m = _check.array(rows, _check.I64, 1, "rows")
    _check_query(vectors, query)
    scores = np.empty(m, np.float32)
    bad = _dense_rows_kernel(vectors, rows, query, scores)
    if bad == -2:
        refuse_query(query)
    if bad >= 0:
        raise ValueError(f"rows[{bad}] is {rows[bad]}, allowed is 0 to {n - 1}: pass rows of these vectors")
    return scores


@jit_sum((reads(float32, 2), reads(int64), reads(float32), writes(float32)))
def _dense_rows_kernel(vectors: Any, rows: Any, query: Any, scores: Any) -> Any:
    for j in range(len(query)):
        if not np.isfinite(query[j]):
            return -2
    for i in range(len(rows)):
        row = rows[i]
        if row < 0 or row >= vectors.shape[0]:
            return i
        scores[i] = dot(vectors, row, query)
    return -1


def unit_rows(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Each row divided by its Euclidean norm.

    unit[r] = vectors[r] / √(Σ_j vectors[r, j]²), the norm in float64, so that rows of size 1e-25 or 1e30 neither
    vanish nor overflow.

    Args:
        vectors: shape (n, d), float32, finite (`first_nonfinite_row` finds what is not).

    Returns:
        (unit float32 (n, d), nonzero uint8 (n,)): zero rows stay zero and are 0 in `nonzero`. The input is not changed.
        n = 0 or d = 0 give empty or zero rows. A row with NaN or infinity becomes NaN. O(n d).

    Raises:
        TypeError: another dtype.
        ValueError: another shape, or not contiguous.
    """
    n = _check.array(vectors, _check.F32, 2, "vectors")
    unit = np.empty_like(vectors, subok=False)
    nonzero = np.empty(n, np.uint8)
    _unit_rows_kernel(vectors, unit, nonzero)
    return unit, nonzero


@jit_sum((reads(float32, 2), writes(float32, 2), writes(uint8)))
def _unit_rows_kernel(vectors: Any, unit: Any, nonzero: Any) -> None:
    n, d = vectors.shape
    for row in range(n):
        squares = 0.0
        for j in range(d):
            value = float64(vectors[row, j])
            squares += value * value
        nonzero[row] = squares != 0.0
        norm = np.sqrt(squares) if squares != 0.0 else 1.0
        for j in range(d):
            unit[row, j] = np.float32(float64(vectors[row, j]) / norm)


def first_nonfinite_row(vectors: NDArray[np.float32]) -> int:
    """The first row that holds NaN or infinity, −1 when there is none.

    Looks at the bits (IEEE 754: the exponent is all ones), so that no floating-point shortcut can hide a NaN.

    Args:
        vectors: shape (n, d), float32.

    Returns:
        The row's number, or −1; n = 0 or d = 0 give −1. O(n d).

    Raises:
        TypeError: another dtype.
        ValueError: another shape, or not contiguous.
    """
    _check.array(vectors, _check.F32, 2, "vectors")
    return int(_first_nonfinite_row_kernel(vectors.view(np.uint32)))


@jit((reads(uint32, 2),))
def _first_nonfinite_row_kernel(bits: Any) -> Any:
    n, d = bits.shape
    for row in range(n):
        largest = np.uint32(0)
        for j in range(d):
            largest = max(largest, np.uint32(bits[row, j] & _EXPONENT))
        if largest == _EXPONENT:
            return row
    return -1


def _check_query(vectors: NDArray[np.float32], query: NDArray[np.float32]) -> None:
    d = _check.array(query, _check.F32, 1, "query")
    if d != vectors.shape[1]:
        raise ValueError(
            f"query has dimension {d}, allowed is {vectors.shape[1]}, that of the vectors: "
            "use the model that made the vectors"
        )


def refuse_query(query: NDArray[np.float32]) -> None:
    """Say which value of a query that a kernel refused is not finite."""
    j = int(np.argmin(np.isfinite(query)))
    raise ValueError(f"query[{j}] is {query[j]}, allowed are finite numbers: check the embedder's output")
