"""Which rows the later stages look at: what both legs recalled, and what follows it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import int64, jit, reads, uint8, writes


def pool_rows(
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    leading: int,
    following: NDArray[np.int64],
    eligible: NDArray[np.uint8],
) -> NDArray[np.int64]:
    """The union of two lists of rows, and of the rows that follow the first of each.

    pool = a ∪ b ∪ {following[r] : r among the first `leading` of a or of b, following[r] an eligible row}.

    Args:
        a: shape (p,), int64, rows from 0.
        b: shape (q,), int64, likewise; it may share rows with a.
        leading: how many of each list, from its start, bring the row that follows; at least 0.
        following: shape (≥ largest row + 1,), int64: the row that follows each; −1 for none. Rows from the length of
            `eligible` on are none either.
        eligible: shape (n,), uint8; rows with 0 follow nothing.

    Returns:
        int64, ascending, each row once. Two empty lists give an empty one. O(p + q) log(p + q).

    Raises:
        TypeError: an array of another dtype, or leading not an integer.
        ValueError: another shape, not contiguous, a row out of range, or leading below 0.
    """
    _check.array(a, _check.I64, 1, "a")
    _check.array(b, _check.I64, 1, "b")
    n = _check.array(eligible, _check.U8, 1, "eligible")
    _check.at_least(_check.array(following, _check.I64, 1, "following"), n, "following")
    rows = np.empty(2 * (len(a) + len(b)), np.int64)
    count = _pool_rows_kernel(a, b, _check.count(leading, "leading"), following, eligible, rows)
    if count < 0:
        raise ValueError(f"a row is {rows[0]}, allowed is 0 to {n - 1}: pass rows of these columns")
    return rows[:count]


@jit((reads(int64), reads(int64), int64, reads(int64), reads(uint8), writes(int64)))
def _pool_rows_kernel(a: Any, b: Any, leading: Any, following: Any, eligible: Any, rows: Any) -> Any:
    count = 0
    for part in (a, b):
        for i in range(len(part)):
            row = part[i]
            if row < 0 or row >= len(eligible):
                rows[0] = row
                return -1
            rows[count] = row
            count += 1
            if i < leading:
                after = following[row]
                if 0 <= after < len(eligible) and eligible[after] != 0:
                    rows[count] = after
                    count += 1
    rows[:count].sort()
    distinct = 0
    for i in range(count):
        if i == 0 or rows[i] != rows[i - 1]:
            rows[distinct] = rows[i]
            distinct += 1
    return distinct
