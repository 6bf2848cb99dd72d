"""The k rows of the highest BM25 score, without the scores of all: blocks of rows, bounds on what a term can add."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float64, int64, jit, reads, uint8, uint16, uint32, uint64, writes
from jiyi.kernels._order import keep_best, sort_best_first
from jiyi.kernels.bm25 import length_norm, rounded, row_score, saturation
from jiyi.kernels.postings import (
    OFTEN,
    SHAPES,
    SHORT,
    Postings,
    base_fits,
    check_base,
    check_tokens,
    refuse_bad_query,
    rows_fit,
)

# Rows whose scores are summed up at a time: they stay in the fast caches. Other sizes from 2,048 on took as long,
# within a tenth. The first block is smaller, so that a floor is known early.
_FIRST_BLOCK: Final = 1_024
_BLOCK: Final = 4_096
# Lists are left out while they add up to at most this share of the floor. 8 tokens, the best 10 of 10,000 rows, by
# blocks of 2,048: 28 µs by 0.3, 32 by 0, 35 by 0.5, and more by 1, as in the source: looking a row up takes much
# longer than reading an entry in order.
_LEFT_OUT: Final = 0.3
# Entries that are read in the time in which one row is looked up.
_LOOK_UP: Final = 16
# Below the smallest score there is, a multiple of 2^-40.
_NOTHING: Final = 2.0**-41
# What bounds exceed the sums of rounded terms by: more than rounding can.
_SLACK: Final = 1e-9


def bm25_top_k(
    query_ids: NDArray[np.uint32],
    weights: NDArray[np.float64],
    postings: Postings,
    n_base: int,
    indptr: NDArray[np.int64],
    ids: NDArray[np.uint32],
    freqs: NDArray[np.uint16],
    lengths: NDArray[np.uint32],
    n: int,
    eligible: NDArray[np.uint8],
    average_length: float,
    k: int,
    *,
    k1: float,
    b: float,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The eligible rows of the k highest BM25 scores above 0, best first.

    The formula and its rounding are those of `bm25.bm25_scores`, and so is every bit of the scores. Postings are added
    up a block of rows at a time. Once k rows are held, tokens that together cannot lift a row to the worst score held
    are left out, and looked up only for rows that the other tokens bring near it: MaxScore (Turtle & Flood 1995, Query
    Evaluation: Strategies and Optimizations), by blocks.

    Args:
        query_ids: shape (q,), uint32, ascending and unique.
        weights: shape (q,), float64, finite and at least 0: idf, or idf times a boost.
        postings: of the rows [0, n_base).
        n_base: how many rows the postings cover, 0 to n.
        indptr: shape (≥ n + 1,), int64.
        ids: shape (≥ indptr[n],), uint32, ascending and unique within a row.
        freqs: shape of ids, uint16, each at least 1.
        lengths: shape (≥ n,), uint32: how many tokens each row has, repeats counted.
        n: how many rows there are.
        eligible: shape (≥ n,), uint8; rows with 0 are not returned.
        average_length: mean length over the live rows, at least 0; 0 leaves length out (every row as if average).
        k: at least 0; more than there are rows is allowed.
        k1: saturation of frequency, at least 0.
        b: how much length counts, 0 to 1.

    Returns:
        (rows int64, scores float64), both of shape (m,), m ≤ min(k, n). Ties go to the lower row. No query tokens,
        nothing eligible, n = 0 or k = 0: two empty arrays. O(entries of the query's tokens + tokens from n_base on +
        n / 4,096 q).

    Raises:
        TypeError: an array of another dtype, or a number of another type.
        ValueError: arrays that do not belong together, query_ids not ascending, a weight below 0 or not finite, or a
            number out of range.
    """
    n, n_base = _check.count(n, "n"), _check.count(n_base, "n_base")
    average_length = _check.not_negative(average_length, "average_length")
    k1, b = _check.not_negative(k1, "k1"), _check.fraction(b, "b")
    m = min(_check.count(k, "k"), n)
    rows, best = np.empty(m, np.int64), np.empty(m, np.float64)
    try:
        held = _bm25_top_k_kernel(
            query_ids,
            weights,
            postings.indptr,
            postings.rows,
            postings.shapes,
            n_base,
            indptr,
            ids,
            freqs,
            lengths,
            n,
            eligible,
            average_length,
            k1,
            b,
            rows,
            best,
        )
    except TypeError:
        _refuse(query_ids, weights, postings, n_base, indptr, ids, freqs, lengths, n, eligible)
        raise
    if held < 0:
        _refuse(query_ids, weights, postings, n_base, indptr, ids, freqs, lengths, n, eligible)
    return rows[:held], best[:held]


def _refuse(
    query_ids: NDArray[np.uint32],
    weights: NDArray[np.float64],
    postings: Postings,
    n_base: int,
    indptr: NDArray[np.int64],
    ids: NDArray[np.uint32],
    freqs: NDArray[np.uint16],
    lengths: NDArray[np.uint32],
    n: int,
    eligible: NDArray[np.uint8],
) -> None:
    """Say what the kernel found wrong. Asking in advance takes Python as long as the kernel reads 3,000 entries."""
    q = _check.array(query_ids, _check.U32, 1, "query_ids")
    _check.length(_check.array(weights, _check.F64, 1, "weights"), q, "weights", "query_ids")
    check_base(postings, n_base, n)
    check_tokens(indptr, ids, freqs, n)
    _check.at_least(_check.array(lengths, _check.U32, 1, "lengths"), n, "lengths")
    _check.at_least(_check.array(eligible, _check.U8, 1, "eligible"), n, "eligible")
    for t in range(q):
        if not 0.0 <= weights[t] < np.inf:
            raise ValueError(
                f"weights[{t}] is {weights[t]}, allowed are finite numbers of at least 0: pass what `idf` returns"
            )
        if t > 0 and query_ids[t] <= query_ids[t - 1]:
            refuse_bad_query(t, query_ids)


@jit()
def _added(weight: Any, shape: Any, lengths: Any, row: Any, by_shape: Any, average_length: Any, k1: Any, b: Any) -> Any:
    """What a token adds to the score of a row that holds it."""
    if shape < uint64(SHAPES):
        return rounded(weight * by_shape[shape])
    freq = float64(int64(shape) - (SHAPES - 1))
    norm = length_norm(float64(lengths[row]), average_length, k1, b)
    return rounded(weight * saturation(freq, k1, norm))


@jit()
def _place_of(rows: Any, start: Any, end: Any, row: Any) -> Any:
    """Where a row stands, or would, in an ascending list."""
    while start < end:
        middle = (start + end) >> 1
        if rows[middle] < row:
            start = middle + 1
        else:
            end = middle
    return start


@jit()
def _by_shape(average_length: Any, k1: Any, b: Any) -> Any:
    """What a token of weight 1 adds, before rounding, by the shape of the posting."""
    table = np.empty(SHAPES, np.float64)
    for more in range(OFTEN):
        freq = float64(more + 1)
        for length in range(SHORT):
            table[more * SHORT + length] = saturation(freq, k1, length_norm(float64(length), average_length, k1, b))
    return table


@jit(
    (
        reads(uint32),
        reads(float64),
        reads(int64),
        reads(uint32),
        reads(uint16),
        int64,
        reads(int64),
        reads(uint32),
        reads(uint16),
        reads(uint32),
        int64,
        reads(uint8),
        float64,
        float64,
        float64,
        writes(int64),
        writes(float64),
    )
)
def _bm25_top_k_kernel(
    query_ids: Any,
    weights: Any,
    post_indptr: Any,
    post_rows: Any,
    post_shapes: Any,
    n_base: Any,
    indptr: Any,
    ids: Any,
    freqs: Any,
    lengths: Any,
    n: Any,
    eligible: Any,
    average_length: Any,
    k1: Any,
    b: Any,
    best_rows: Any,
    best_scores: Any,
) -> Any:
    q, k = len(query_ids), len(best_rows)
    vocabulary_size = len(post_indptr) - 1
    if not (
        len(weights) == q
        and n_base <= n
        and base_fits(post_indptr, post_rows)
        and len(post_shapes) == len(post_rows)
        and rows_fit(indptr, ids, n)
        and len(freqs) >= indptr[n]
        and len(lengths) >= n
        and len(eligible) >= n
    ):
        return -1
    for t in range(q):
        if not 0.0 <= weights[t] < np.inf or (t > 0 and query_ids[t] <= query_ids[t - 1]):
            return -1
    if k == 0 or q == 0:
        return 0
    # The lists that are to be read, the one that can add most first.
    start, end = np.empty(q, np.int64), np.empty(q, np.int64)
    weight, most = np.empty(q, np.float64), np.empty(q, np.float64)
    lists = 0
    for t in range(q):
        token = query_ids[t]
        if token >= vocabulary_size or post_indptr[token] == post_indptr[token + 1]:
            continue
        at = lists
        while at > 0 and weight[at - 1] < weights[t]:
            start[at], end[at], weight[at], most[at] = start[at - 1], end[at - 1], weight[at - 1], most[at - 1]
            at -= 1
        start[at], end[at], weight[at] = post_indptr[token], post_indptr[token + 1], weights[t]
        most[at] = weights[t] * (k1 + 1.0) * (1.0 + _SLACK) + _SLACK
        lists += 1
    by_shape = _by_shape(average_length, k1, b) if lists > 0 else np.empty(0, np.float64)
    sums = np.zeros(_BLOCK, np.float64)
    near = np.empty(_BLOCK, np.int64)  # rows of the block that come near the floor
    room = 2 * k + _BLOCK
    found_rows, found_scores = np.empty(room, np.int64), np.empty(room, np.float64)
    found, floor = 0, _NOTHING
    read, left_out = lists, 0.0
    low = 0
    while low < n_base and lists > 0:
        high = min(low + min(max(low, _FIRST_BLOCK), _BLOCK), n_base)
        while read > 1 and floor > _NOTHING and left_out + most[read - 1] <= _LEFT_OUT * floor:
            read -= 1
            left_out += most[read]
        need = floor - left_out
        count, touched = 0, False
        for i in range(read):
            # Unsigned, so that no index is taken for one from the end.
            entry, stop, w = uint64(start[i]), uint64(end[i]), weight[i]
            while entry < stop:
                row = int64(post_rows[entry])
                if row >= high:
                    break
                place = uint64(row - low)
                before = sums[place]
                after = before + _added(w, uint64(post_shapes[entry]), lengths, row, by_shape, average_length, k1, b)
                sums[place] = after
                if after >= need and before < need:
                    near[count] = row
                    count += 1
                entry += uint64(1)
            touched |= int64(entry) != start[i]
            start[i] = int64(entry)
        rest = left_out
        for j in range(read, lists):
            if count == 0:
                break
            first = _place_of(post_rows, start[j], end[j], low)
            stop = _place_of(post_rows, first, end[j], high)
            start[j], w = stop, weight[j]
            rest -= most[j]
            if _LOOK_UP * count > stop - first:  # looking up that many takes longer than reading
                for at in range(first, stop):
                    row = int64(post_rows[at])
                    sums[row - low] += _added(w, uint64(post_shapes[at]), lengths, row, by_shape, average_length, k1, b)
                touched = True
            kept = 0
            for i in range(count):
                row = near[i]
                if _LOOK_UP * count <= stop - first:
                    at = _place_of(post_rows, first, stop, row)
                    if at < stop and post_rows[at] == row:
                        sums[row - low] += _added(
                            w, uint64(post_shapes[at]), lengths, row, by_shape, average_length, k1, b
                        )
                if sums[row - low] + rest >= floor:
                    near[kept] = row
                    kept += 1
            count = kept
        for i in range(count):
            row = near[i]
            if sums[row - low] >= floor and eligible[row] != 0:
                found_rows[found], found_scores[found] = row, sums[row - low]
                found += 1
        if touched:
            sums[: high - low] = 0.0
        if found >= (k if floor == _NOTHING else 2 * k):
            keep_best(found_scores, found_rows, found, k)
            found = k
            floor = found_scores[k - 1]
        low = high
    for row in range(n_base, n):
        if eligible[row] == 0:
            continue
        length = float64(lengths[row])
        score = row_score(query_ids, weights, indptr, ids, freqs, row, length, average_length, k1, b)
        if score >= floor:
            if found == room:
                keep_best(found_scores, found_rows, found, k)
                found = k
                floor = found_scores[k - 1]
            found_rows[found], found_scores[found] = row, score
            found += 1
    if found > k:
        keep_best(found_scores, found_rows, found, k)
        found = k
    sort_best_first(found_scores, found_rows, found)
    best_rows[:found] = found_rows[:found]
    best_scores[:found] = found_scores[:found]
    return found
