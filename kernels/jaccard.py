"""Jaccard similarity of token sets: shared tokens over all tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float64, int64, jit, popcount, reads, uint32, uint64, writes
from jiyi.kernels._numbering import number_and_count


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
    matrix = np.empty((n, n), np.float64)
    if n > 0:
        _matrix_kernel(indptr, ids, matrix)
    return matrix


@jit()
def _place_tokens(holders: Any, count: Any, n: Any) -> Any:
    """Where each token is counted: (its bit or -1, where its rows are listed, words of bits).

    A bit costs each pair of rows a 64th of a word, a list each pair of rows that share the token: tokens of an eighth
    of all rows are bits, and the next most frequent ones fill up the last word.
    """
    tokens_of = np.zeros(n + 1, np.int32)  # by how many rows hold them
    for number in range(count):
        tokens_of[min(holders[number], n)] += 1  # more than n where a row repeats a token
    bits, least = 0, n + 1
    while least > 1 and 8 * (least - 1) >= n:
        least -= 1
        bits += tokens_of[least]
    words = (bits + 63) // 64
    while least > 1 and bits + tokens_of[least - 1] <= 64 * words:
        least -= 1
        bits += tokens_of[least]
    bit, start = np.empty(count, np.int32), np.empty(count, np.int32)
    placed, listed = 0, 0
    for number in range(count):
        if holders[number] >= least:
            bit[number] = placed
            placed += 1
        else:
            bit[number], start[number] = -1, listed
            listed += holders[number]
    return bit, start, words


@jit((reads(int64), reads(uint32), writes(float64, 2)))
def _matrix_kernel(indptr: Any, ids: Any, matrix: Any) -> None:
    n = matrix.shape[0]
    base = indptr[0]
    nnz = indptr[n] - base
    numbers = np.empty(nnz, np.int32)
    holders = np.zeros(nnz, np.int32)
    count = number_and_count(ids[base : base + nnz], numbers, holders)
    bit, end_of, words = _place_tokens(holders, count, n)
    masks = np.zeros((words, n), np.uint64)
    # For each token without a bit, the rows met so far that hold it: each pair of rows is met once.
    rows = np.empty(nnz, np.int32)
    first = end_of.copy()
    shared = np.empty(n, np.int32)
    sizes = np.empty(n, np.int32)
    for row in range(n):
        start, end = indptr[row] - base, indptr[row + 1] - base
        size = np.int32(end - start)
        sizes[row] = size
        shared[:row] = 0
        for position in range(start, end):
            number = uint64(numbers[position])
            if bit[number] >= 0:
                masks[bit[number] >> 6, row] |= uint64(1) << uint64(bit[number] & 63)
                continue
            entry, stop = uint64(first[number]), uint64(end_of[number])  # unsigned: none counts from the end
            while entry < stop:
                shared[uint64(rows[entry])] += np.int32(1)
                entry += uint64(1)
            rows[stop] = row
            end_of[number] += 1
        for word in range(words):
            own, others = masks[word, row], masks[word]
            for other in range(row):
                shared[other] += np.int32(popcount(own & others[other]))
        line = matrix[row]
        for other in range(row):
            union = size + sizes[other] - shared[other]
            line[other] = float64(shared[other]) / float64(max(union, np.int32(1)))  # J(∅, ∅) = 0
        for other in range(row):
            matrix[other, row] = line[other]
        line[row] = 1.0 if size > 0 else 0.0
