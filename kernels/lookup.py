"""Where values stand in a sorted list."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import int64, jit, reads, uint64, writes

_U64 = np.dtype(np.uint64)


def numbers_of(known: NDArray[np.uint64], numbers: NDArray[np.int64], values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The number of each value, by binary search among the known ones.

    Args:
        known: shape (n,), uint64, ascending and unique.
        numbers: shape (n,), int64, at least 0: of each known value.
        values: shape (m,), uint64, in any order.

    Returns:
        Shape (m,), int64; −1 for a value that is not known. Empty gives empty. O(m log n).

    Raises:
        TypeError: an array of another dtype.
        ValueError: another shape, not contiguous, or not one number a known value.
    """
    n = _check.array(known, _U64, 1, "known")
    _check.length(_check.array(numbers, _check.I64, 1, "numbers"), n, "numbers", "known")
    found = np.empty(_check.array(values, _U64, 1, "values"), np.int64)
    _numbers_of_kernel(known, numbers, values, found)
    return found


@jit((reads(uint64), reads(int64), reads(uint64), writes(int64)))
def _numbers_of_kernel(known: Any, numbers: Any, values: Any, found: Any) -> None:
    for i in range(len(values)):
        low, high = 0, len(known)
        while low < high:
            middle = (low + high) >> 1
            if known[middle] < values[i]:
                low = middle + 1
            else:
                high = middle
        found[i] = numbers[low] if low < len(known) and known[low] == values[i] else -1
