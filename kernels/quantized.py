"""Exact dense top-k at a quarter of the memory traffic: int8 codes rule rows out, float32 decides among the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._int_dot import ROWS_AT_ONCE, int_dots, levels_for
from jiyi.kernels._jit import float32, float64, int8, int64, jit, prefetch, reads, uint8, writes
from jiyi.kernels._order import offer, sort_heap
from jiyi.kernels.topk import dot, refuse_query

# Where one row in so many is eligible, reading all in a row beats skipping: 100,000 rows of 256 codes, a random half of
# them eligible, took 4.2 ms instead of 8.5, a random tenth 4.2 instead of 3.3, all 4.3 (medians, one core).
_DENSE = 6
# Rows whose products are taken before they are compared: a multiple of eight.
_BLOCK = 256
# How many rows ahead are fetched: eight are read side by side, which processors do not foresee. 100,000 rows of 256
# codes took 2.6 ms with it and 5.1 without (medians, one core).
_AHEAD = 32


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

    The query is rounded to int16 for one pass over the codes in whole numbers. A product is then off by at most
    scales[r]/2 · Σ_j |query[j]|, and a little for the rounded query. Rows that cannot reach the k-th best by that bound
    are ruled out; the others are scored from their float32 vectors.

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
    rows = np.empty(m, np.int64)
    best = np.empty(m, np.float32)
    if m == 0:
        return rows, best
    held = _quantized_top_k_kernel(codes, scales, vectors, query, eligible, levels_for(len(query)), rows, best)
    if held < 0:
        refuse_query(query)
    return rows[:held], best[:held]


@jit(
    (
        reads(int8, 2),
        reads(float32),
        reads(float32, 2),
        reads(float32),
        reads(uint8),
        int64,
        writes(int64),
        writes(float32),
    )
)
def _quantized_top_k_kernel(
    codes: Any, scales: Any, vectors: Any, query: Any, eligible: Any, levels: Any, rows: Any, best: Any
) -> Any:
    if not _is_finite(query):
        return -1
    whole, slack = _in_whole_numbers(query, levels)
    return _best_of(vectors, _possible_rows(codes, scales, whole, slack, eligible, len(rows)), query, rows, best)


@jit()
def _is_finite(query: Any) -> Any:
    for j in range(len(query)):  # noqa: SIM110 – Numba compiles no generator into a kernel
        if not np.isfinite(query[j]):
            return False
    return True


@jit()
def _in_whole_numbers(query: Any, levels: Any) -> Any:
    """The query in steps of its largest value's `levels`-th, and by how many steps a product with scale 1 is off."""
    magnitude, largest = 0.0, np.float32(0.0)
    for j in range(len(query)):
        magnitude += abs(float64(query[j]))
        largest = max(largest, abs(query[j]))
    step = float64(largest) / levels if largest > 0 else 1.0
    whole = np.empty(len(query), np.int16)
    for j in range(len(query)):
        whole[j] = np.int16(np.rint(float64(query[j]) / step))
    # Half a code step for each value of the query, half a step for each code, and what float32 rounds away.
    return whole, np.float32(magnitude / step * (0.5 + 127 * 1e-5) + 0.5 * 127 * len(query))


@jit()
def _best_of(vectors: Any, possible: Any, query: Any, rows: Any, best: Any) -> Any:
    """Fill rows with the best of the possible ones (ascending) by their float32 vectors; how many there are."""
    held, capacity = 0, len(rows)
    floor = np.float32(-np.inf)
    for i in range(len(possible)):
        score = dot(vectors, possible[i], query)
        if score > floor:
            held = offer(best, rows, held, capacity, score, possible[i])
            if held == capacity:
                floor = best[0]
    sort_heap(best, rows, held)
    return held


@jit()
def _possible_rows(codes: Any, scales: Any, whole: Any, slack: Any, eligible: Any, k: Any) -> Any:
    """Rows whose true product may be among the k best, ascending."""
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
    read, products = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.int32)
    left = np.empty(_BLOCK, np.int64)
    for start in range(0, len(scales), _BLOCK):
        end = min(start + _BLOCK, len(scales))
        n_read = 0
        if sparse:
            for row in range(start, end):
                read[n_read] = row
                n_read += eligible[row] != 0
        else:  # without a choice the loop is half as long
            for row in range(start, end):
                read[row - start] = row
            n_read = end - start
        _products(codes, read, n_read, whole, products, -1 if sparse else start + _AHEAD)
        n_left = 0
        for i in range(n_read):
            row = read[i]
            left[n_left] = i
            n_left += (eligible[row] != 0) & ((np.float32(products[i]) + slack) * scales[row] >= floor)
        for i in left[:n_left]:
            row = read[i]
            score = np.float32(products[i]) * scales[row]
            off = slack * scales[row]
            if score + off < floor:
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


@jit()
def _products(codes: Any, read: Any, count: Any, whole: Any, products: Any, ahead: Any) -> None:
    """Of the first `count` rows named, the last again to make up eight. ahead: the first row to fetch; -1: none."""
    for i in range(count, -(-count // ROWS_AT_ONCE) * ROWS_AT_ONCE):
        read[i] = read[count - 1]
    for start in range(0, count, ROWS_AT_ONCE):
        if ahead >= 0:
            for row in range(ahead + start, min(ahead + start + ROWS_AT_ONCE, len(codes))):
                prefetch(codes, row)
        int_dots(codes, read, start, whole, products)
