"""What a memory borrows from the one before it: in a conversation the question is found, and the answer follows it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float64, int64, jit, reads, uint32, writes


def lent_by_previous(
    rows: NDArray[np.int64],
    relevance: NDArray[np.float64],
    previous: NDArray[np.int64],
    lengths: NDArray[np.uint32],
    share: float,
    full_length: int,
) -> NDArray[np.float64]:
    """The share of its relevance that each candidate's predecessor lends it.

    lent(c) = relevance(p) · share · min(1, length(c) / full_length) for p the candidate before c in its session, when p
    is a candidate with a relevance above 0. A short turn ("ok, sounds good") answers nothing, whatever was asked before
    it, and borrows in proportion to its length.

    Args:
        rows: shape (m,), int64, ascending and unique: the rows of the candidates.
        relevance: shape (m,), float64, in the order of `rows`.
        previous: shape (≥ largest row + 1,), int64: the row before each row in its session, -1 for none.
        lengths: shape of `previous`, uint32, tokens.
        share: 0 to 1; 0 lends nothing.
        full_length: tokens from which on a candidate borrows the whole share, at least 1.

    Returns:
        Shape (m,), float64, in the order of `rows`; NaN where nothing is lent. Empty gives empty. O(m log m).

    Raises:
        TypeError: an array of another dtype, or a number of another type.
        ValueError: arrays that do not belong together, a row out of range, share or full_length out of range.
    """
    m = _check.array(rows, _check.I64, 1, "rows")
    _check.length(_check.array(relevance, _check.F64, 1, "relevance"), m, "relevance", "rows")
    n = _check.array(previous, _check.I64, 1, "previous")
    _check.at_least(_check.array(lengths, _check.U32, 1, "lengths"), n, "lengths")
    share = _check.fraction(share, "share")
    if _check.count(full_length, "full_length") < 1:
        raise ValueError(f"full_length is {full_length}, allowed is at least 1: pass 1 to lend the whole share to all")
    lent = np.empty(m, np.float64)
    bad = _lent_kernel(rows, relevance, previous, lengths, share, full_length, lent)
    if bad >= 0:
        raise ValueError(f"rows[{bad}] is {rows[bad]}, allowed is 0 to {n - 1}: pass rows of these columns")
    return lent


@jit((reads(int64), reads(float64), reads(int64), reads(uint32), float64, int64, writes(float64)))
def _lent_kernel(
    rows: Any, relevance: Any, previous: Any, lengths: Any, share: Any, full_length: Any, lent: Any
) -> Any:
    for i in range(len(rows)):
        lent[i] = np.nan
        row = rows[i]
        if row < 0 or row >= len(previous):
            return i
        before = previous[row]
        if before < 0 or share == 0.0:
            continue
        low, high = 0, len(rows)
        while low < high:
            middle = (low + high) >> 1
            if rows[middle] < before:
                low = middle + 1
            else:
                high = middle
        if low < len(rows) and rows[low] == before and relevance[low] > 0.0:
            lent[i] = relevance[low] * (share * min(1.0, lengths[row] / full_length))
    return -1
