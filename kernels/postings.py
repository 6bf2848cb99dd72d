"""Postings: which rows hold each token, built over the rows that are settled."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import int64, jit, reads, uint8, uint16, uint32, writes

#: Rows of at most `SHORT - 1` tokens that hold a token at most `OFTEN` times: nearly all entries. What BM25 computes
#: from the two numbers is then looked up, and the row's length is not fetched.
OFTEN: Final = 4
SHORT: Final = 256
#: How many such shapes there are; the others are numbered from here on by frequency alone.
SHAPES: Final = OFTEN * SHORT
#: More repeats of a token in a row than this count as this many.
MOST_REPEATS: Final = 65_536 - SHAPES


class Postings(NamedTuple):
    """Which rows hold each token: the CSR of rows by token, turned around.

    Attributes:
        indptr: shape (vocabulary + 1,), int64: token t's entries are [indptr[t], indptr[t + 1]).
        rows: shape (nnz,), uint32, ascending within a token.
        shapes: shape (nnz,), uint16: how often the row holds the token and how long the row is, in one number. Below
            SHAPES it is (frequency − 1) · SHORT + length; from there on SHAPES − 1 + frequency, whatever the length.
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.uint32]
    shapes: NDArray[np.uint16]


def build_postings(
    indptr: NDArray[np.int64],
    ids: NDArray[np.uint32],
    freqs: NDArray[np.uint16],
    lengths: NDArray[np.uint32],
    n_rows: int,
    vocabulary_size: int,
) -> Postings:
    """Turn rows of tokens into tokens' rows by counting sort.

    Args:
        indptr: shape (≥ n_rows + 1,), int64, ascending: row r's tokens are [indptr[r], indptr[r + 1]).
        ids: shape (≥ indptr[n_rows],), uint32, each below vocabulary_size, unique within a row.
        freqs: shape of ids, uint16, each at least 1: how often the row holds the token; more than 64,512 count as that.
        lengths: shape (≥ n_rows,), uint32: how many tokens each row has, repeats counted.
        n_rows: how many rows to index, at least 0.
        vocabulary_size: one above the largest id, at least 0.

    Returns:
        Postings, each token's rows ascending. No rows give no entries. O(nnz + vocabulary_size).

    Raises:
        TypeError: an array of another dtype, or a count that is not an integer.
        ValueError: arrays that do not belong together, an id at or above vocabulary_size, or a frequency of 0.
    """
    n_rows = _check.count(n_rows, "n_rows")
    vocabulary_size = _check.count(vocabulary_size, "vocabulary_size")
    check_tokens(indptr, ids, freqs, n_rows)
    _check.at_least(_check.array(lengths, _check.U32, 1, "lengths"), n_rows, "lengths")
    counts = np.zeros(vocabulary_size + 1, np.int64)
    nnz = int(indptr[n_rows] - indptr[0])
    rows = np.empty(nnz, np.uint32)
    shapes = np.empty(nnz, np.uint16)
    bad = _build_postings_kernel(indptr, ids, freqs, lengths, n_rows, counts, rows, shapes)
    if bad >= 0 and ids[bad] >= vocabulary_size:
        raise ValueError(
            f"ids[{bad}] is {ids[bad]}, allowed is below vocabulary_size = {vocabulary_size}: count it too"
        )
    if bad >= 0:
        raise ValueError(f"freqs[{bad}] is 0, allowed is at least 1: leave out tokens that a row does not hold")
    return Postings(counts, rows, shapes)


@jit()
def base_fits(post_indptr: Any, post_rows: Any) -> Any:
    """Whether the lists of postings are within the entries (first and last pointer only)."""
    return len(post_indptr) > 0 and post_indptr[0] >= 0 and post_indptr[len(post_indptr) - 1] <= len(post_rows)


@jit()
def rows_fit(indptr: Any, ids: Any, n: Any) -> Any:
    """Whether n rows are within the ids (first and last pointer only)."""
    return len(indptr) > n and indptr[0] >= 0 and indptr[n] <= len(ids)


@jit()
def _shape(freq: Any, length: Any) -> Any:
    if freq <= OFTEN and length < SHORT:
        return (freq - 1) * SHORT + length
    return SHAPES - 1 + min(freq, MOST_REPEATS)


@jit(
    (
        reads(int64),
        reads(uint32),
        reads(uint16),
        reads(uint32),
        int64,
        writes(int64),
        writes(uint32),
        writes(uint16),
    )
)
def _build_postings_kernel(
    indptr: Any, ids: Any, freqs: Any, lengths: Any, n_rows: Any, counts: Any, rows: Any, shapes: Any
) -> Any:
    vocabulary_size = len(counts) - 1
    for position in range(indptr[0], indptr[n_rows]):
        if ids[position] >= vocabulary_size or freqs[position] == 0:
            return position
        counts[ids[position] + 1] += 1
    for token in range(vocabulary_size):
        counts[token + 1] += counts[token]
    # counts[t] is where t's entries start; it advances as they are placed, and is shifted back at the end.
    for row in range(n_rows):
        length = int64(lengths[row])
        for position in range(indptr[row], indptr[row + 1]):
            token = ids[position]
            place = counts[token]
            rows[place] = row
            shapes[place] = _shape(int64(freqs[position]), length)
            counts[token] = place + 1
    for token in range(vocabulary_size, 0, -1):
        counts[token] = counts[token - 1]
    counts[0] = 0
    return -1


def document_frequencies(
    query_ids: NDArray[np.uint32],
    postings: Postings,
    n_base: int,
    indptr: NDArray[np.int64],
    ids: NDArray[np.uint32],
    n: int,
    live: NDArray[np.uint8],
    *,
    base_is_live: bool = False,
) -> NDArray[np.int64]:
    """How many live rows hold each query token.

    df(t) = |{r < n : live[r], t ∈ r}|; rows below n_base through the postings, the rest by merging sorted ids.

    Args:
        query_ids: shape (q,), uint32, ascending and unique; an id beyond the postings' vocabulary is in no base row.
        postings: of the rows [0, n_base), see `build_postings`.
        n_base: how many rows the postings cover, 0 to n.
        indptr: shape (≥ n + 1,), int64.
        ids: shape (≥ indptr[n],), uint32, ascending and unique within a row.
        n: how many rows there are.
        live: shape (≥ n,), uint8; rows with 0 do not count.
        base_is_live: whether every row that the postings hold is live and below n_base, whatever `live` says: then the
            lengths of their lists are the counts, and the lists are not read.

    Returns:
        Shape (q,), int64, in the order of `query_ids`; zeros when nothing is live. O(entries of the query's tokens +
        tokens of the rows from n_base on).

    Raises:
        TypeError: an array of another dtype, or a count that is not an integer.
        ValueError: arrays that do not belong together, n_base above n, or query_ids not ascending.
    """
    n, n_base = _check.count(n, "n"), _check.count(n_base, "n_base")
    df = np.zeros(_check.array(query_ids, _check.U32, 1, "query_ids"), np.int64)
    try:
        bad = _document_frequencies_kernel(
            query_ids, postings.indptr, postings.rows, n_base, indptr, ids, n, live, int(base_is_live), df
        )
    except TypeError:
        _refuse(postings, n_base, indptr, ids, n, live)
        raise
    if bad >= 0:
        _refuse(postings, n_base, indptr, ids, n, live)
        refuse_bad_query(bad, query_ids)
    return df


def _refuse(
    postings: Postings,
    n_base: int,
    indptr: NDArray[np.int64],
    ids: NDArray[np.uint32],
    n: int,
    live: NDArray[np.uint8],
) -> None:
    """Say what the kernel found wrong with the columns: asking in advance takes longer than most counts."""
    check_base(postings, n_base, n)
    _check.csr_of(indptr, ids, n, "ids")
    _check.at_least(_check.array(live, _check.U8, 1, "live"), n, "live")


@jit(
    (
        reads(uint32),
        reads(int64),
        reads(uint32),
        int64,
        reads(int64),
        reads(uint32),
        int64,
        reads(uint8),
        int64,
        writes(int64),
    )
)
def _document_frequencies_kernel(
    query_ids: Any,
    post_indptr: Any,
    post_rows: Any,
    n_base: Any,
    indptr: Any,
    ids: Any,
    n: Any,
    live: Any,
    base_is_live: Any,
    df: Any,
) -> Any:
    q = len(query_ids)
    if n_base > n or not base_fits(post_indptr, post_rows) or not rows_fit(indptr, ids, n) or len(live) < n:
        return q
    vocabulary_size = len(post_indptr) - 1
    for t in range(q):
        token = query_ids[t]
        if t > 0 and token <= query_ids[t - 1]:
            return t
        if token < vocabulary_size:
            if base_is_live != 0:
                df[t] = post_indptr[token + 1] - post_indptr[token]
                continue
            for entry in range(post_indptr[token], post_indptr[token + 1]):
                row = post_rows[entry]
                if row >= n_base:  # ascending: the rest is beyond the base too
                    break
                if live[row] != 0:
                    df[t] += 1
    for row in range(n_base, n):
        if live[row] == 0:
            continue
        t, position, end = 0, indptr[row], indptr[row + 1]
        while t < q and position < end:
            if query_ids[t] == ids[position]:
                df[t] += 1
                t += 1
                position += 1
            elif query_ids[t] < ids[position]:
                t += 1
            else:
                position += 1
    return -1


def check_tokens(indptr: NDArray[np.int64], ids: NDArray[np.uint32], freqs: NDArray[np.uint16], n: int) -> None:
    """Check a CSR of ids with frequencies that must hold n rows."""
    available = _check.csr_of(indptr, ids, n, "ids")
    _check.at_least(_check.array(freqs, _check.U16, 1, "freqs"), min(available, int(indptr[n])), "freqs")


def check_base(postings: Postings, n_base: int, n: int) -> tuple[int, int]:
    """Check postings that cover the first n_base of n rows; return n and n_base."""
    n, n_base = _check.count(n, "n"), _check.count(n_base, "n_base")
    if n_base > n:
        raise ValueError(f"n_base is {n_base}, allowed is 0 to n = {n}: the postings cover a prefix of the rows")
    vocabulary = _check.array(postings.indptr, _check.I64, 1, "postings.indptr") - 1
    entries = _check.array(postings.rows, _check.U32, 1, "postings.rows")
    _check.length(_check.array(postings.shapes, _check.U16, 1, "postings.shapes"), entries, "postings.shapes", "rows")
    _check.csr(postings.indptr, vocabulary, entries, "postings.rows")
    return n, n_base


def refuse_bad_query(bad: int, query_ids: NDArray[np.uint32]) -> None:
    """Say which query token, if any, a kernel found out of order."""
    if bad >= 0:
        raise ValueError(
            f"query_ids[{bad}] is {query_ids[bad]} after {query_ids[bad - 1]}, allowed are ascending unique ids: "
            "pass np.unique(query_ids)"
        )
