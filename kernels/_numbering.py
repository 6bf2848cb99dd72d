"""Number the distinct values of an array 0, 1, 2, … in order of first appearance (open addressing, linear probing)."""

from __future__ import annotations

from typing import Any

import numpy as np

from jiyi.kernels._jit import jit, uint64

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64/φ: Knuth, The Art of Computer Programming vol. 3, 6.4


@jit()
def table_bits(at_most: Any) -> Any:
    """How many bits address a table that `at_most` distinct values fill to half at most."""
    bits = 3
    while (1 << bits) < 2 * at_most:
        bits += 1
    return bits


@jit()
def home_slot(value: Any, bits: Any) -> Any:
    """Where the search for a value starts in a table of 2^bits slots (multiplicative hashing)."""
    return np.int64((uint64(value) * _GOLDEN) >> uint64(64 - bits))


@jit()
def number_distinct(values: Any, at_most: Any, numbers: Any, distinct: Any) -> Any:
    """Fill numbers[i] with the number of values[i] and distinct[number] with the value; return how many there are.

    `at_most` bounds the distinct values; `distinct` has at least that length.
    """
    bits = table_bits(at_most)
    mask = (1 << bits) - 1
    slots = np.full(1 << bits, -1, np.int32)
    count = 0
    for i in range(len(values)):
        value = values[i]
        slot = home_slot(value, bits)
        while slots[slot] >= 0 and distinct[slots[slot]] != value:
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = count
            distinct[count] = value
            count += 1
        numbers[i] = slots[slot]
    return count


@jit()
def number_and_count(values: Any, numbers: Any, counts: Any) -> Any:
    """Fill numbers[i] with the number of values[i] and counts[number] with how often it stands there.

    Return how many numbers there are. `counts` has the length of `values` and begins as zeros. Indices are unsigned, so
    that none is taken for one from the end.
    """
    bits = table_bits(len(values))
    mask = uint64((1 << bits) - 1)
    slots = np.full(1 << bits, -1, np.int32)
    distinct = np.empty(len(values), values.dtype)
    count = 0
    for i in range(len(values)):
        value = values[i]
        slot = uint64(home_slot(value, bits))
        while slots[slot] >= 0 and distinct[uint64(slots[slot])] != value:
            slot = (slot + uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot] = count
            distinct[count] = value
            count += 1
        number = uint64(slots[slot])
        numbers[i] = number
        counts[number] += 1
    return count
