"""Exact dense top-k at a quarter of the memory traffic: int8 codes rule rows out, float32 decides among the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float32, float64, int8, int64, jit, jit_sum, reads, uint8, writes
from jiyi.kernels._order import offer
from jiyi.kernels.topk import dense_rows, top_k

# Where one row in so many is eligible, reading all in a row beats skipping: 100,000 rows of 256 codes, a random half of
# them eligible, took 4.2 ms instead of 8.5, a random tenth 4.2 instead of 3.3, all 4.3 (medians, one core).
_DENSE = 6


def quantize_rows(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Each row as int8 codes and one scale: vectors[r] ≈ codes[r] · scales[r], each value off by at most scales[r] / 2.

    scales[r] = max_j |vectors[r, j]| / 127.

    Args:
        vectors: shape (n, d), float32, finite.

    Returns:
        (codes int8 (n, d), scales float32 (n,)). A zero row has codes and scale 0. n = 0: empty arrays. O(n d).

    Raises:
        TypeError: another dtype.
        ValueError: another shape, or not contiguous.
    """
    n = _check.array(vectors, _check.F32, 2, "vectors")
    codes = np.empty(vectors.shape, np.int8)
    scales = np.empty(n, np.float32)
    _quantize_rows_kernel(vectors, codes, scales)
    return codes, scales


@jit((reads(float32, 2), writes(int8, 2), writes(float32)))
def _quantize_rows_kernel(vectors: Any, codes: Any, scales: Any) -> None:
    n, d = vectors.shape
    for row in range(n):
        largest = np.float32(0.0)
        for j in range(d):
            largest = max(largest, abs(vectors[row, j]))
        scales[row] = largest / np.float32(127.0)
        for j in range(d):
            codes[row, j] = (
                np.int8(0) if largest == 0 else np.int8(np.rint(vectors[row, j] / largest * np.float32(127.0)))
            )


def quantized_top_k(
    codes: NDArray[np.int8],
    scales: NDArray[np.float32],
    vectors: NDArray[np.float32],
    query: NDArray[np.float32],
    eligible: NDArray[np.uint8],
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The rows of the k highest dot products with the query: what `dense_top_k` returns, to the bit.

    A code's product with the query is off by at most scales[r]/2 · Σ_j |query[j]|. Rows that cannot reach the k-th best
    by that bound are ruled out in one pass over the codes; the others are scored from their float32 vectors.

    Args:
        codes: shape (n, d), int8, of these vectors (`quantize_rows`).
        scales: shape (n,), float32.
        vectors: shape (n, d), float32, finite.
        query: shape (d,), float32, finite.
        eligible: shape (n,) or longer, uint8; rows with 0 do not count, and where they are most, are not read.
        k: at least 0; more than there are rows is allowed.

    Returns:
        (rows int64, scores float32), both of shape (m,), m ≤ min(k, n), best first; ties go to the lower row.
        Nothing eligible, n = 0 or k = 0: two empty arrays. O(n d) bytes read, and O(d)
        floats for each row not ruled out.

    Raises:
        TypeError: an array of another dtype, or k not an integer.
        ValueError: another shape or dimension, not contiguous, eligible too short, NaN or infinity in the query.
    """
    n = _check.array(codes, _check.I8, 2, "codes")
    _check.length(_check.array(scales, _check.F32, 1, "scales"), n, "scales", "codes")
    _check.length(_check.array(vectors, _check.F32, 2, "vectors"), n, "vectors", "codes")
    if _check.array(query, _check.F32, 1, "query") != codes.shape[1]:
        raise ValueError(f"query has dimension {len(query)}, allowed is {codes.shape[1]}, that of the codes")
    _check.at_least(_check.array(eligible, _check.U8, 1, "eligible"), n, "eligible")
    m = min(_check.count(k, "k"), n)
    rows = _possible_rows_kernel(codes, scales, query, eligible, m) if m else np.empty(0, np.int64)
    scores = dense_rows(vectors, rows, query)
    best, top = top_k(scores, np.ones(len(rows), np.uint8), m)
    return rows[best], top


@jit_sum()
def _code_dot(codes: Any, row: Any, query: Any) -> Any:
    total = np.float32(0.0)
    for j in range(len(query)):
        total += np.float32(codes[row, j]) * query[j]
    return total


@jit((reads(int8, 2), reads(float32), reads(float32), reads(uint8), int64))
def _possible_rows_kernel(codes: Any, scales: Any, query: Any, eligible: Any, k: Any) -> Any:
    """Rows whose true product may be among the k best, ascending."""
    magnitude = 0.0
    for j in range(len(query)):
        magnitude += abs(float64(query[j]))
    # Half a code step, and what float32 sums of a few hundred products can be off by.
    slack = np.float32(magnitude * (0.5 + 127 * 1e-5))
    lowest = np.empty(k, np.float32)
    keys = np.empty(k, np.int64)
    held = 0
    floor = np.float32(-np.inf)  # the k-th best so far of what scores are at least
    # Rows that were possible when they were met: few, since the floor rises early.
    rows = np.empty(16 * k, np.int64)
    highest = np.empty(16 * k, np.float32)
    count = 0
    passing = 0
    for row in range(len(scales)):
        passing += eligible[row] != 0
    sparse = passing * _DENSE < len(scales)
    for row in range(len(scales)):
        if sparse and eligible[row] == 0:
            continue
        score = scales[row] * _code_dot(codes, row, query)
        off = slack * scales[row]
        if score + off < floor or eligible[row] == 0:
            continue
        if count == len(rows):
            rows = np.concatenate((rows, np.empty(count, np.int64)))
            highest = np.concatenate((highest, np.empty(count, np.float32)))
        rows[count], highest[count] = row, score + off
        count += 1
        if score - off > floor:
            held = offer(lowest, keys, held, k, score - off, row)
            if held == k:
                floor = lowest[0]
    return rows[:count][highest[:count] >= floor]
