"""Late interaction on a static token table: every query token looks for its nearest token in the text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._int_dot import ROWS_AT_ONCE, int_dots, levels_for
from jiyi.kernels._jit import float32, float64, int8, int64, jit, prefetch, reads, uint8, uint32, writes
from jiyi.kernels._numbering import home_slot, number_distinct, table_bits

# Table rows to ask for ahead of the one in work: a row takes about a third as long to work on as to come from memory.
_AHEAD = 6


def max_sim(
    query_vectors: NDArray[np.float32],
    query_weights: NDArray[np.float64],
    table: NDArray[np.int8],
    inverse_norms: NDArray[np.float32],
    indptr: NDArray[np.int64],
    table_rows: NDArray[np.uint32],
    rows: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Weighted MaxSim of named texts over uncontextual token vectors.

    score(i) = Σ_j w_j · max(0, max_{t in text i} q_j · table[t] · inverse_norms[t]): Khattab & Zaharia 2020, ColBERT,
    with the rows of a static table for token vectors. Similarities are computed once per distinct token among the
    texts, with query vectors rounded to int16 (a similarity is off by at most √d / 64,000 of its query vector's largest
    value), and summed in float64.

    Args:
        query_vectors: shape (q, d), float32, finite, unit rows.
        query_weights: shape (q,), float64, finite: the idf of each query token.
        table: shape (R, d), int8.
        inverse_norms: shape (R,), float32: 1 / ‖table[t]‖, 0 for a zero row.
        indptr: shape (≥ largest row + 2,), int64: text i's tokens are [indptr[i], indptr[i + 1]).
        table_rows: shape (nnz,), uint32, each below R; in any order, repeats allowed.
        rows: shape (m,), int64: the texts to score; may repeat.

    Returns:
        Shape (m,), float64, in the order of `rows`. A text without tokens scores 0, a best similarity below 0 counts as
        0. Equal texts score the same to the bit. Empty rows, or no query tokens: empty or zeros.
        O(distinct tokens · q · d + tokens · q).

    Raises:
        TypeError: an array of another dtype.
        ValueError: arrays that do not belong together, a text or a table row out of range.
    """
    q = _check.array(query_vectors, _check.F32, 2, "query_vectors")
    _check.length(_check.array(query_weights, _check.F64, 1, "query_weights"), q, "query_weights", "query_vectors")
    size = _check.array(table, _check.I8, 2, "table")
    _check.length(_check.array(inverse_norms, _check.F32, 1, "inverse_norms"), size, "inverse_norms", "table")
    if query_vectors.shape[1] != table.shape[1]:
        raise ValueError(
            f"query_vectors has dimension {query_vectors.shape[1]}, allowed is {table.shape[1]}, that of the table: "
            "take the query's vectors from the same table"
        )
    _check.csr_of(indptr, table_rows, 0, "table_rows")
    m = _check.array(rows, _check.I64, 1, "rows")
    scores = np.zeros(m, np.float64)
    bad_text, bad_token = _max_sim_kernel(
        query_vectors, query_weights, table, inverse_norms, indptr, table_rows, rows, levels_for(table.shape[1]), scores
    )
    if bad_token >= 0:
        raise ValueError(
            f"table_rows[{bad_token}] is {table_rows[bad_token]}, allowed is 0 to {size - 1}: use the table's tokenizer"
        )
    if bad_text >= 0:
        raise ValueError(
            f"rows[{bad_text}] is {rows[bad_text]}, allowed is 0 to {len(indptr) - 2} within table_rows: "
            "pass rows of these columns"
        )
    return scores


@jit()
def _in_whole_numbers(query_vectors: Any, levels: Any, padded: Any) -> Any:
    """The query vectors as int16, in steps of a `levels`-th of each one's largest value, and the steps; 0 to spare."""
    q, d = query_vectors.shape
    whole, steps = np.zeros((padded, d), np.int16), np.zeros(padded, np.float32)
    for i in range(q):
        largest = np.float32(0.0)
        for j in range(d):
            largest = max(largest, abs(query_vectors[i, j]))
        steps[i] = largest / np.float32(levels)
        if largest > 0:
            for j in range(d):
                whole[i, j] = np.int16(np.rint(query_vectors[i, j] / largest * np.float32(levels)))
    return whole, steps


@jit()
def _similarities(whole: Any, steps: Any, every: Any, table: Any, inverse_norms: Any, tokens: Any, count: Any) -> Any:
    """Cosines of table rows with every query vector, shape (count, rows of `whole`)."""
    padded, d = whole.shape
    similarities = np.empty((count, padded), np.float32)
    values, dots = np.empty(d, np.int16), np.empty(padded, np.int32)
    for number in range(count):
        if number + _AHEAD < count:
            prefetch(table, np.int64(tokens[number + _AHEAD]))
        token = np.int64(tokens[number])
        for j in range(d):
            values[j] = table[token, j]
        for start in range(0, padded, ROWS_AT_ONCE):
            int_dots(whole, every, start, values, dots)
        for i in range(padded):
            similarities[number, i] = np.float32(dots[i]) * steps[i] * inverse_norms[token]
    return similarities


@jit(
    (
        reads(float32, 2),
        reads(float64),
        reads(int8, 2),
        reads(float32),
        reads(int64),
        reads(uint32),
        reads(int64),
        int64,
        writes(float64),
    )
)
def _max_sim_kernel(
    query_vectors: Any,
    query_weights: Any,
    table: Any,
    inverse_norms: Any,
    indptr: Any,
    table_rows: Any,
    rows: Any,
    levels: Any,
    scores: Any,
) -> Any:
    q = query_vectors.shape[0]
    size = table.shape[0]
    total = 0
    for i in range(len(rows)):
        row = rows[i]
        # A column with spare capacity has pointers beyond its rows: those must not be followed.
        if row < 0 or row >= len(indptr) - 1 or indptr[row] < 0 or indptr[row + 1] > len(table_rows):
            return i, -1
        for position in range(indptr[row], indptr[row + 1]):
            if table_rows[position] >= size:
                return i, position
        total += max(indptr[row + 1] - indptr[row], 0)

    tokens = np.empty(total, np.uint32)
    filled = 0
    for i in range(len(rows)):
        for position in range(indptr[rows[i]], indptr[rows[i] + 1]):
            tokens[filled] = table_rows[position]
            filled += 1
    at_most = min(total, size)
    numbers = np.empty(total, np.int32)
    distinct = np.empty(at_most, np.uint32)
    count = number_distinct(tokens, at_most, numbers, distinct)

    padded = -(-q // ROWS_AT_ONCE) * ROWS_AT_ONCE
    whole, steps = _in_whole_numbers(query_vectors, levels, padded)
    similarities = _similarities(whole, steps, np.arange(padded), table, inverse_norms, distinct, count)

    best = np.empty(padded, np.float32)
    filled = 0
    for i in range(len(rows)):
        best[:] = np.float32(0.0)
        for _ in range(indptr[rows[i]], indptr[rows[i] + 1]):
            number = numbers[filled]
            filled += 1
            for j in range(padded):
                similarity = similarities[number, j]
                best[j] = similarity if similarity > best[j] else best[j]
        score = 0.0
        for j in range(q):
            score += query_weights[j] * float64(best[j])
        scores[i] = score
    return -1, -1


def token_frequencies(
    query_rows: NDArray[np.uint32],
    indptr: NDArray[np.int64],
    table_rows: NDArray[np.uint32],
    n: int,
    live: NDArray[np.uint8],
) -> NDArray[np.int64]:
    """How many live texts hold each query token.

    df(t) = |{i < n : live[i], t among text i's tokens}|; a text counts once however often it holds the token.

    Args:
        query_rows: shape (q,), uint32, ascending and unique.
        indptr: shape (≥ n + 1,), int64.
        table_rows: shape (≥ indptr[n],), uint32, in any order, repeats allowed.
        n: how many texts there are.
        live: shape (≥ n,), uint8; texts with 0 do not count.

    Returns:
        Shape (q,), int64, in the order of `query_rows`; zeros when nothing is live. O(tokens of the live texts + q).

    Raises:
        TypeError: an array of another dtype, or n not an integer.
        ValueError: arrays that do not belong together, or query_rows not ascending.
    """
    q = _check.array(query_rows, _check.U32, 1, "query_rows")
    n = _check.count(n, "n")
    _check.csr_of(indptr, table_rows, n, "table_rows")
    _check.at_least(_check.array(live, _check.U8, 1, "live"), n, "live")
    df = np.zeros(q, np.int64)
    bad = _token_frequencies_kernel(query_rows, indptr, table_rows, n, live, df) if q else -1
    if bad >= 0:
        raise ValueError(
            f"query_rows[{bad}] is {query_rows[bad]} after {query_rows[bad - 1]}, allowed are ascending unique rows: "
            "pass np.unique(query_rows)"
        )
    return df


@jit((reads(uint32), reads(int64), reads(uint32), int64, reads(uint8), writes(int64)))
def _token_frequencies_kernel(query_rows: Any, indptr: Any, table_rows: Any, n: Any, live: Any, df: Any) -> Any:
    q = len(query_rows)
    bits = table_bits(2 * q)  # a quarter full: most tokens of most texts meet an empty slot at once
    mask = (1 << bits) - 1
    slots = np.full(1 << bits, -1, np.int32)
    for t in range(q):
        if t > 0 and query_rows[t] <= query_rows[t - 1]:
            return t
        slot = home_slot(query_rows[t], bits)
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = t
    last_text = np.full(q, -1, np.int64)
    for text in range(n):
        if live[text] == 0:
            continue
        for position in range(indptr[text], indptr[text + 1]):
            token = table_rows[position]
            slot = home_slot(token, bits)
            while slots[slot] >= 0 and query_rows[slots[slot]] != token:
                slot = (slot + 1) & mask
            t = slots[slot]
            if t >= 0 and last_text[t] != text:
                last_text[t] = text
                df[t] += 1
    return -1
