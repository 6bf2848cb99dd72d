"""Text vectors from a static token table: the weighted mean of the rows of a text's tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float32, float64, int8, int64, jit_sum, reads, uint32, writes


def mean_rows(
    table: NDArray[np.int8],
    scales: NDArray[np.float32],
    indptr: NDArray[np.int64],
    rows: NDArray[np.uint32],
    weights: NDArray[np.float32],
    *,
    normalize: bool = True,
) -> NDArray[np.float32]:
    """The weighted mean of each text's table rows, as a unit vector by default.

    v(text) = Σ_{r in text} weights[r]·scales[r]·table[r] / Σ_{r in text} weights[r], then v / ‖v‖: Arora, Liang & Ma
    2017, A Simple but Tough-to-Beat Baseline for Sentence Embeddings. Summed in float64.

    Args:
        table: shape (R, d), int8, quantised by row.
        scales: shape (R,), float32, finite: table[r]·scales[r] is the vector of row r.
        indptr: shape (n + 1,), int64, ascending: text i's rows are [indptr[i], indptr[i + 1]).
        rows: shape (≥ indptr[n],), uint32, each below R; a row that repeats counts each time.
        weights: shape (R,), float32, finite, at least 0.
        normalize: divide by the norm; False leaves the mean.

    Returns:
        Shape (n, d), float32, in the order of the texts. A text without rows, or whose weights sum to 0, is the zero
        vector, and so is a mean of length 0. Equal texts give equal vectors. n = 0 gives shape (0, d). O(nnz · d).

    Raises:
        TypeError: an array of another dtype.
        ValueError: arrays that do not belong together, a row at or above R, or a text whose mean is NaN or infinite.
    """
    size = _check.array(table, _check.I8, 2, "table")
    _check.length(_check.array(scales, _check.F32, 1, "scales"), size, "scales", "table")
    _check.length(_check.array(weights, _check.F32, 1, "weights"), size, "weights", "table")
    n = _check.array(indptr, _check.I64, 1, "indptr") - 1
    _check.csr_of(indptr, rows, n, "rows")
    vectors = np.empty((n, table.shape[1]), np.float32)
    text, position = _mean_rows_kernel(table, scales, indptr, rows, weights, int(bool(normalize)), vectors)
    if position >= 0:
        raise ValueError(f"rows[{position}] is {rows[position]}, allowed is 0 to {size - 1}: use the table's tokenizer")
    if text >= 0:
        raise ValueError(
            f"the mean of text {text} is not finite, allowed are finite scales and weights: check the table"
        )
    return vectors


@jit_sum(
    (
        reads(int8, 2),
        reads(float32),
        reads(int64),
        reads(uint32),
        reads(float32),
        int64,
        writes(float32, 2),
    )
)
def _mean_rows_kernel(
    table: Any, scales: Any, indptr: Any, rows: Any, weights: Any, normalize: Any, vectors: Any
) -> Any:
    size, d = table.shape
    total = np.empty(d, np.float64)
    for text in range(vectors.shape[0]):
        total[:] = 0.0
        mass = 0.0
        for position in range(indptr[text], indptr[text + 1]):
            row = np.int64(rows[position])
            if row >= size:
                return text, position
            mass += weights[row]
            factor = float64(weights[row]) * float64(scales[row])
            for j in range(d):
                total[j] += factor * float64(table[row, j])
        divisor = mass
        if normalize:  # the mean's direction is the sum's
            squares = 0.0
            for j in range(d):
                squares += total[j] * total[j]
            divisor = np.sqrt(squares) if mass != 0.0 else 0.0
        if not (np.isfinite(divisor) and np.isfinite(mass)):
            return text, -1
        inverse = 1.0 / divisor if divisor != 0.0 else 0.0
        for j in range(d):
            vectors[text, j] = np.float32(total[j] * inverse)
    return -1, -1
