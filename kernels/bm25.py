"""The BM25 scores of every row or of named rows, over token ids."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float64, int64, jit, reads, uint8, uint16, uint32, writes
from jiyi.kernels.postings import (
    MOST_REPEATS,
    SHAPES,
    SHORT,
    Postings,
    check_base,
    check_tokens,
    refuse_bad_query,
)

# Adding and taking away this number rounds to a multiple of 2^-40, and sums of such multiples are exact up to 8,192. So
# a score does not depend on the order of the terms, which comes from when a namespace met them: it is the same to the
# bit after reopening, and in another namespace that holds the same texts.
_GRID = 1.5 * 2.0**12


def idf(df: NDArray[np.int64], n_docs: int) -> NDArray[np.float64]:
    """Inverse document frequency in the form that is never negative.

    idf(t) = ln(1 + (N − df + ½) / (df + ½)): Robertson & Zaragoza 2009, The Probabilistic Relevance Framework: BM25 and
    Beyond, with Lucene's 1 + inside the logarithm.

    Args:
        df: shape (q,), int64, each 0 to n_docs: how many documents hold the token.
        n_docs: how many documents there are, at least 0.

    Returns:
        Shape (q,), float64, above 0, in the order of `df`. Equal df give equal values; empty gives empty. O(q).

    Raises:
        TypeError: df of another dtype, or n_docs not an integer.
        ValueError: another shape, not contiguous, or a df below 0 or above n_docs.
    """
    q = _check.array(df, _check.I64, 1, "df")
    n_docs = _check.count(n_docs, "n_docs")
    weights = np.empty(q, np.float64)
    bad = _idf_kernel(df, n_docs, weights)
    if bad >= 0:
        raise ValueError(
            f"df[{bad}] is {df[bad]}, allowed is 0 to n_docs = {n_docs}: count both over the same documents"
        )
    return weights


@jit((reads(int64), int64, writes(float64)))
def _idf_kernel(df: Any, n_docs: Any, weights: Any) -> Any:
    for t in range(len(df)):
        if df[t] < 0 or df[t] > n_docs:
            return t
        weights[t] = np.log1p((n_docs - df[t] + 0.5) / (df[t] + 0.5))
    return -1


def bm25_scores(
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
    *,
    k1: float,
    b: float,
) -> NDArray[np.float64]:
    """The BM25 score of every row.

    score(r) = Σ_t w_t · f(k1 + 1) / (f + k1(1 − b + b·len_r/avg)), f = how often r holds t: Robertson & Zaragoza 2009,
    The Probabilistic Relevance Framework: BM25 and Beyond, section 3. What a term adds is rounded to 2^-40 (about
    1e-12), so that the order of the terms changes no bit of a score below 8,192.

    Args:
        query_ids: shape (q,), uint32, ascending and unique.
        weights: shape (q,), float64, finite: idf, or idf times a boost.
        postings: of the rows [0, n_base).
        n_base: how many rows the postings cover, 0 to n.
        indptr: shape (≥ n + 1,), int64.
        ids: shape (≥ indptr[n],), uint32, ascending and unique within a row.
        freqs: shape of ids, uint16.
        lengths: shape (≥ n,), uint32: how many tokens each row has, repeats counted.
        n: how many rows there are.
        eligible: shape (≥ n,), uint8; rows with 0 score 0.
        average_length: mean length over the live rows, at least 0; 0 leaves length out (every row as if average).
        k1: saturation of frequency, at least 0.
        b: how much length counts, 0 to 1.

    Returns:
        Shape (n,), float64, by row; 0 where nothing matches or the row is not eligible. Equal rows score the same to
        the bit. No query tokens or n = 0: zeros or empty. O(n + entries of the query's tokens + tokens from n_base on).

    Raises:
        TypeError: an array of another dtype, or a number of another type.
        ValueError: arrays that do not belong together, query_ids not ascending, or a number out of range.
    """
    q = _check.array(query_ids, _check.U32, 1, "query_ids")
    _check.length(_check.array(weights, _check.F64, 1, "weights"), q, "weights", "query_ids")
    n, n_base = check_base(postings, n_base, n)
    check_tokens(indptr, ids, freqs, n)
    _check.at_least(_check.array(lengths, _check.U32, 1, "lengths"), n, "lengths")
    _check.at_least(_check.array(eligible, _check.U8, 1, "eligible"), n, "eligible")
    average_length = _check.not_negative(average_length, "average_length")
    k1, b = _check.not_negative(k1, "k1"), _check.fraction(b, "b")
    scores = np.zeros(n, np.float64)
    refuse_bad_query(
        _bm25_scores_kernel(
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
            eligible,
            average_length,
            k1,
            b,
            scores,
        ),
        query_ids,
    )
    return scores


@jit()
def length_norm(length: Any, average_length: Any, k1: Any, b: Any) -> Any:
    """What of a term's saturation is due to the row's length."""
    # Written so that all but one product is the same for every row, and is taken out of the loop.
    return k1 * (1.0 - b) + length * (k1 * b / average_length) if average_length > 0.0 else k1


@jit()
def saturation(freq: Any, k1: Any, norm: Any) -> Any:
    """What a term of weight 1 adds to a row, before rounding."""
    return freq * (k1 + 1.0) / (freq + norm)


@jit()
def rounded(score: Any) -> Any:
    """A score that may be added up in any order."""
    return score + _GRID - _GRID


@jit()
def _freq_of(shape: Any) -> Any:
    """How often the row of a posting holds its token."""
    return float64(shape // SHORT + 1 if shape < SHAPES else shape - (SHAPES - 1))


@jit()
def row_score(
    query_ids: Any,
    weights: Any,
    indptr: Any,
    ids: Any,
    freqs: Any,
    row: Any,
    length: Any,
    average_length: Any,
    k1: Any,
    b: Any,
) -> Any:
    """The score of one row, by merging its tokens with the query's."""
    norm = length_norm(length, average_length, k1, b)
    score = 0.0
    t, position, end = 0, indptr[row], indptr[row + 1]
    while t < len(query_ids) and position < end:
        if query_ids[t] == ids[position]:
            score += rounded(weights[t] * saturation(float64(min(int64(freqs[position]), MOST_REPEATS)), k1, norm))
            t += 1
            position += 1
        elif query_ids[t] < ids[position]:
            t += 1
        else:
            position += 1
    return score


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
        reads(uint8),
        float64,
        float64,
        float64,
        writes(float64),
    )
)
def _bm25_scores_kernel(
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
    eligible: Any,
    average_length: Any,
    k1: Any,
    b: Any,
    scores: Any,
) -> Any:
    vocabulary_size = len(post_indptr) - 1
    for t in range(len(query_ids)):
        token = query_ids[t]
        if t > 0 and token <= query_ids[t - 1]:
            return t
        if token < vocabulary_size:
            for entry in range(post_indptr[token], post_indptr[token + 1]):
                row = post_rows[entry]
                if row >= n_base:  # ascending: the rest is beyond the base too
                    break
                if eligible[row] != 0:
                    norm = length_norm(float64(lengths[row]), average_length, k1, b)
                    scores[row] += rounded(weights[t] * saturation(_freq_of(int64(post_shapes[entry])), k1, norm))
    for row in range(n_base, len(scores)):
        if eligible[row] != 0:
            length = float64(lengths[row])
            scores[row] = row_score(query_ids, weights, indptr, ids, freqs, row, length, average_length, k1, b)
    return -1


def bm25_rows(
    rows: NDArray[np.int64],
    query_ids: NDArray[np.uint32],
    weights: NDArray[np.float64],
    indptr: NDArray[np.int64],
    ids: NDArray[np.uint32],
    freqs: NDArray[np.uint16],
    lengths: NDArray[np.uint32],
    average_length: float,
    *,
    k1: float,
    b: float,
) -> NDArray[np.float64]:
    """The BM25 score of named rows, bit-identical to what `bm25_scores` gives the same rows.

    The formula, its source and its rounding are those of `bm25_scores`.

    Args:
        rows: shape (m,), int64, each at least 0 and covered by indptr and lengths; may repeat.
        query_ids: shape (q,), uint32, ascending and unique.
        weights: shape (q,), float64, finite: idf, or idf times a boost.
        indptr: shape (≥ largest row + 2,), int64.
        ids: shape (nnz,), uint32, ascending and unique within a row.
        freqs: shape of ids, uint16.
        lengths: uint32, how many tokens each row has, repeats counted.
        average_length: mean length over the live rows, at least 0; 0 leaves length out.
        k1: saturation of frequency, at least 0.
        b: how much length counts, 0 to 1.

    Returns:
        Shape (m,), float64, in the order of `rows`; 0 where nothing matches. Empty rows give an empty array.
        O(Σ tokens of the rows + m q).

    Raises:
        TypeError: an array of another dtype, or a number of another type.
        ValueError: arrays that do not belong together, a row or a number out of range, or query_ids not ascending.
    """
    m = _check.array(rows, _check.I64, 1, "rows")
    q = _check.array(query_ids, _check.U32, 1, "query_ids")
    _check.length(_check.array(weights, _check.F64, 1, "weights"), q, "weights", "query_ids")
    check_tokens(indptr, ids, freqs, 0)
    n = min(len(indptr) - 1, _check.array(lengths, _check.U32, 1, "lengths"))
    average_length = _check.not_negative(average_length, "average_length")
    k1, b = _check.not_negative(k1, "k1"), _check.fraction(b, "b")
    scores = np.empty(m, np.float64)
    bad = _bm25_rows_kernel(rows, query_ids, weights, indptr, ids, freqs, lengths, n, average_length, k1, b, scores)
    if bad >= q:
        i = bad - q
        raise ValueError(f"rows[{i}] is {rows[i]}, allowed is 0 to {n - 1} within the ids: pass rows of these columns")
    refuse_bad_query(bad, query_ids)
    return scores


@jit(
    (
        reads(int64),
        reads(uint32),
        reads(float64),
        reads(int64),
        reads(uint32),
        reads(uint16),
        reads(uint32),
        int64,
        float64,
        float64,
        float64,
        writes(float64),
    )
)
def _bm25_rows_kernel(
    rows: Any,
    query_ids: Any,
    weights: Any,
    indptr: Any,
    ids: Any,
    freqs: Any,
    lengths: Any,
    n: Any,
    average_length: Any,
    k1: Any,
    b: Any,
    scores: Any,
) -> Any:
    q = len(query_ids)
    for t in range(1, q):
        if query_ids[t] <= query_ids[t - 1]:
            return t
    for i in range(len(rows)):
        row = rows[i]
        # A column with spare capacity has pointers beyond its rows: those must not be followed.
        if row < 0 or row >= n or indptr[row] < 0 or indptr[row + 1] > len(ids):
            return q + i
        length = float64(lengths[row])
        scores[i] = row_score(query_ids, weights, indptr, ids, freqs, row, length, average_length, k1, b)
    return -1
