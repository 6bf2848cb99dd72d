"""Number words and pairs of numbers, the same number for the same word at every call, in tables that grow."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import int32, int64, jit, reads, uint8, uint32, uint64, writes
from jiyi.kernels._numbering import home_slot

_FIRST_WORDS = 1 << 10
_I32 = np.dtype(np.int32)


class Words:
    """Words (of code points) and their numbers 0, 1, 2, …. Not safe to share between threads without a lock.

    Attributes:
        size: how many words there are.
    """

    def __init__(self) -> None:
        self.size = 0
        self._slots = np.full(2 * _FIRST_WORDS, -1, np.int32)
        self._hashes = np.empty(_FIRST_WORDS, np.uint64)
        self._ends = np.zeros(_FIRST_WORDS + 1, np.int64)
        self._letters = np.empty(8 * _FIRST_WORDS, np.uint32)

    @property
    def letters(self) -> int:
        """How many code points the words have in all."""
        return int(self._ends[self.size])

    def number(
        self,
        codes: NDArray[np.uint32],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        kinds: NDArray[np.uint8],
        *,
        most_kind: int = 255,
    ) -> NDArray[np.int32]:
        """Return the number of each segment, giving the next numbers to words that are new.

        Args:
            codes: shape (c,), uint32.
            starts, ends, kinds: shape (m,): segments of `codes`, see `cutting.cut`.
            most_kind: segments of a higher kind get -1.

        Raises:
            TypeError, ValueError: arrays of another dtype, shape or length, or a segment outside `codes`.
        """
        size = _check.array(codes, _check.U32, 1, "codes")
        m = _check.array(starts, _check.I64, 1, "starts")
        _check.length(_check.array(ends, _check.I64, 1, "ends"), m, "ends", "starts")
        _check.length(_check.array(kinds, _check.U8, 1, "kinds"), m, "kinds", "starts")
        self._reserve(m, size)
        numbers = np.empty(m, np.int32)
        self.size, bad = _number_words_kernel(
            codes, starts, ends, kinds, most_kind, self.size, self._slots, self._hashes, self._ends, self._letters,
            numbers,
        )  # fmt: skip
        if bad >= 0:
            raise ValueError(
                f"segment {bad} is {starts[bad]} to {ends[bad]}, allowed is within 0 to {size}, none overlapping: pass "
                "the cut of these codes"
            )
        return numbers

    def texts(self, first: int) -> list[str]:
        """Return the words from a number on, as text."""
        ends = self._ends[first : self.size + 1].tolist()
        whole = self._letters[ends[0] : ends[-1]].tobytes().decode("utf-32-le", "surrogatepass")
        return [whole[start - ends[0] : end - ends[0]] for start, end in pairwise(ends)]

    def text(self, number: int) -> str:
        """Return a word as text."""
        return self._letters[self._ends[number] : self._ends[number + 1]].tobytes().decode("utf-32-le", "surrogatepass")

    def first_letters(self, numbers: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the first code point of some words, which are not empty."""
        return self._letters[self._ends[numbers]]

    def _reserve(self, words: int, letters: int) -> None:
        """Make room for so many words more: the kernel cannot grow anything."""
        if self.size + words > len(self._hashes):
            capacity = max(self.size + words, 2 * len(self._hashes))
            self._hashes = _grown(self._hashes, self.size, capacity)
            self._ends = _grown(self._ends, self.size + 1, capacity + 1)
            bits = max(3, int(2 * capacity - 1).bit_length())
            self._slots = np.full(1 << bits, -1, np.int32)
            _place_kernel(self._hashes, self.size, self._slots)
        if self.letters + letters > len(self._letters):
            self._letters = _grown(self._letters, self.letters, max(self.letters + letters, 2 * len(self._letters)))


class Pairs:
    """Pairs of numbers and their numbers 0, 1, 2, …. Not safe to share between threads without a lock.

    Attributes:
        size: how many pairs there are.
    """

    def __init__(self) -> None:
        self.size = 0
        self._slots = np.full(2 * _FIRST_WORDS, -1, np.int32)
        self._keys = np.empty(_FIRST_WORDS, np.uint64)

    def number(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the number of each pair, giving the next numbers to pairs that are new.

        Args:
            keys: shape (m,), uint64: first << 32 | second.

        Raises:
            TypeError, ValueError: an array of another dtype or shape.
        """
        m = _check.array(keys, np.dtype(np.uint64), 1, "keys")
        if self.size + m > len(self._keys):
            capacity = max(self.size + m, 2 * len(self._keys))
            self._keys = _grown(self._keys, self.size, capacity)
            self._slots = np.full(1 << int(2 * capacity - 1).bit_length(), -1, np.int32)
            _place_kernel(self._keys, self.size, self._slots)
        numbers = np.empty(m, np.int32)
        self.size = _number_keys_kernel(keys, self.size, self._slots, self._keys, numbers)
        return numbers

    def keys(self, first: int) -> NDArray[np.uint64]:
        """Return the pairs from a number on."""
        return self._keys[first : self.size].copy()


def _grown(array: NDArray[Any], kept: int, capacity: int) -> NDArray[Any]:
    grown = np.empty(capacity, array.dtype)
    grown[:kept] = array[:kept]
    return grown


@jit((reads(uint64), int64, writes(int32)))
def _place_kernel(hashes: Any, size: Any, slots: Any) -> Any:
    bits = 0
    while (1 << bits) < len(slots):
        bits += 1
    mask = len(slots) - 1
    for number in range(size):
        slot = home_slot(hashes[number], bits)
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = number


@jit((reads(uint64), int64, writes(int32), writes(uint64), writes(int32)))
def _number_keys_kernel(keys: Any, size: Any, slots: Any, known: Any, numbers: Any) -> Any:
    bits = 0
    while (1 << bits) < len(slots):
        bits += 1
    mask = len(slots) - 1
    for i in range(len(keys)):
        key = keys[i]
        slot = home_slot(key, bits)
        while slots[slot] >= 0 and known[slots[slot]] != key:
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = size
            known[size] = key
            size += 1
        numbers[i] = slots[slot]
    return size


@jit(
    (
        reads(uint32),
        reads(int64),
        reads(int64),
        reads(uint8),
        int64,
        int64,
        writes(int32),
        writes(uint64),
        writes(int64),
        writes(uint32),
        writes(int32),
    )
)
def _number_words_kernel(
    codes: Any, starts: Any, stops: Any, kinds: Any, most_kind: Any, size: Any, slots: Any, hashes: Any, ends: Any,
    letters: Any, numbers: Any,
) -> Any:  # fmt: skip
    bits = 0
    while (1 << bits) < len(slots):
        bits += 1
    mask = len(slots) - 1
    last = 0
    for i in range(len(starts)):
        start, stop = starts[i], stops[i]
        if start < last or stop < start or stop > len(codes):
            return size, i
        last = stop
        if kinds[i] > most_kind:
            numbers[i] = -1
            continue
        # FNV-1a over code points, 64 bits: Fowler, Noll & Vo 1991. What has the same hash is compared in full.
        value = uint64(0xCBF29CE484222325)
        for j in range(start, stop):
            value = (value ^ uint64(codes[j])) * uint64(0x100000001B3)
        value ^= value >> uint64(29)
        slot = home_slot(value, bits)
        while slots[slot] >= 0:
            number = slots[slot]
            if hashes[number] == value and ends[number + 1] - ends[number] == stop - start:
                same = True
                at = ends[number]
                for j in range(stop - start):
                    if letters[at + j] != codes[start + j]:
                        same = False
                        break
                if same:
                    break
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = size
            hashes[size] = value
            at = ends[size]
            for j in range(stop - start):
                letters[at + j] = codes[start + j]
            ends[size + 1] = at + stop - start
            size += 1
        numbers[i] = slots[slot]
    return size, -1
