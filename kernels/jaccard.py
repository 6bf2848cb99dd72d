"""Jaccard similarity of token sets: shared tokens over all tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float64, int64, jit, reads, uint32, writes
from jiyi.kernels._numbering import number_distinct


@jit()
def _shared(a: Any, a_start: Any, a_end: Any, b: Any, b_start: Any, b_end: Any) -> Any:
    """How many ids two ascending runs share: a merge without branches on the data, which would be mispredicted."""
    count = np.int64(0)
    i, j = a_start, b_start
    while i < a_end and j < b_end:
        left, right = a[i], b[j]
        count += np.int64(left == right)
        i += np.int64(left <= right)
        j += np.int64(right <= left)
    return count


@jit()
def ratio(intersection: Any, a_size: Any, b_size: Any) -> Any:
    """|A ∩ B| / |A ∪ B| from the three sizes, 0 when both sets are empty."""
    union = a_size + b_size - intersection
    return intersection / union if union > 0 else 0.0


def jaccard(a_ids: NDArray[np.uint32], b_ids: NDArray[np.uint32]) -> float:
    """The Jaccard similarity of two sets.

    J(A, B) = |A ∩ B| / |A ∪ B|: Jaccard 1901, Étude comparative de la distribution florale.

    Args:
        a_ids: shape (a,), uint32, ascending and unique.
        b_ids: shape (b,), uint32, ascending and unique.

    Returns:
        0 to 1; 1 for equal sets, 0 when nothing is shared. J(∅, ∅) = 0. O(a + b).

    Raises:
        TypeError: another dtype.
        ValueError: another shape, or not contiguous.
    """
    _check.array(a_ids, _check.U32, 1, "a_ids")
    _check.array(b_ids, _check.U32, 1, "b_ids")
    return float(_jaccard_kernel(a_ids, b_ids))


@jit((reads(uint32), reads(uint32)))
def _jaccard_kernel(a: Any, b: Any) -> Any:
    return ratio(_shared(a, 0, len(a), b, 0, len(b)), len(a), len(b))


def jaccard_one_to_many(
    query_ids: NDArray[np.uint32], indptr: NDArray[np.int64], ids: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """The Jaccard similarity of one set with each of many.

    J(Q, r) = |Q ∩ r| / |Q ∪ r|: Jaccard 1901.

    Args:
        query_ids: shape (q,), uint32, ascending and unique.
        indptr: shape (n + 1,), int64, ascending: row r's ids are [indptr[r], indptr[r + 1]).
        ids: shape (≥ indptr[n],), uint32, ascending and unique within a row.

    Returns:
        Shape (n,), float64, by row, 0 to 1. Equal rows give equal values; J(∅, ∅) = 0. O(nnz + n q).

    Raises:
        TypeError: another dtype.
        ValueError: another shape, not contiguous, or pointers beyond the ids.
    """
    _check.array(query_ids, _check.U32, 1, "query_ids")
    n = _check.array(indptr, _check.I64, 1, "indptr") - 1
    _check.csr_of(indptr, ids, n, "ids")
    similarities = np.empty(n, np.float64)
    _one_to_many_kernel(query_ids, indptr, ids, similarities)
    return similarities


@jit((reads(uint32), reads(int64), reads(uint32), writes(float64)))
def _one_to_many_kernel(query_ids: Any, indptr: Any, ids: Any, similarities: Any) -> None:
    q = len(query_ids)
    for row in range(len(similarities)):
        start, end = indptr[row], indptr[row + 1]
        similarities[row] = ratio(_shared(query_ids, 0, q, ids, start, end), q, end - start)


def jaccard_matrix(indptr: NDArray[np.int64], ids: NDArray[np.uint32]) -> NDArray[np.float64]:
    """The Jaccard similarity of every pair of rows.

    J(r, s) = |r ∩ s| / |r ∪ s|: Jaccard 1901. Shared tokens are counted through the rows of each token, so that pairs
    which share nothing cost nothing.

    Args:
        indptr: shape (n + 1,), int64, ascending: row r's ids are [indptr[r], indptr[r + 1]).
        ids: shape (≥ indptr[n],), uint32, unique within a row.

    Returns:
        Shape (n, n), float64, symmetric, 0 to 1, the diagonal 1 except for empty rows, where J(∅, ∅) = 0. Equal rows
        give 1. n = 0 gives shape (0, 0). O(n² + Σ_t df(t)²).

    Raises:
        TypeError: another dtype.
        ValueError: another shape, not contiguous, or pointers beyond the ids.
    """
    n = _check.array(indptr, _check.I64, 1, "indptr") - 1
    _check.csr_of(indptr, ids, n, "ids")
    matrix = np.zeros((n, n), np.float64)
    if n > 0:
        _matrix_kernel(indptr, ids, matrix)
    return matrix


@jit((reads(int64), reads(uint32), writes(float64, 2)))
def _matrix_kernel(indptr: Any, ids: Any, matrix: Any) -> None:
    n = matrix.shape[0]
    base = indptr[0]
    nnz = indptr[n] - base
    numbers = np.empty(nnz, np.int32)
    count = number_distinct(ids[base : base + nnz], nnz, numbers, np.empty(nnz, np.uint32))

    # For each token, the rows met so far that hold it: filled while the rows are walked, so each pair is met once.
    starts = np.zeros(count + 1, np.int64)
    for number in numbers:
        starts[number + 1] += 1
    for number in range(count):
        starts[number + 1] += starts[number]
    ends = starts[:count].copy()
    holders = np.empty(nnz, np.int32)
    for row in range(n):
        size = indptr[row + 1] - indptr[row]
        for position in range(indptr[row] - base, indptr[row + 1] - base):
            number = numbers[position]
            for entry in range(starts[number], ends[number]):
                matrix[row, holders[entry]] += 1.0
            holders[ends[number]] = row
            ends[number] += 1
        for other in range(row):
            intersection = matrix[row, other]
            if intersection > 0.0:
                similarity = ratio(intersection, size, indptr[other + 1] - indptr[other])
                matrix[row, other] = similarity
                matrix[other, row] = similarity
        matrix[row, row] = 1.0 if size > 0 else 0.0
