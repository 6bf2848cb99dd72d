"""Rows of a table for segments of text: words by their number, runs of characters by the longest key from the left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import int32, int64, jit, reads, uint8, uint32, uint64, writes
from jiyi.kernels._numbering import home_slot
from jiyi.kernels.cutting import WORD, Cut

_NONE = np.uint64(0xFFFFFFFFFFFFFFFF)
_CODE_BITS = 21


class Trie(NamedTuple):
    """Keys as a tree of code points; the ways from a node to its children in one hash table.

    Attributes:
        ways: shape (2^b,), uint64: node << 21 | code point, all ones where a slot is free.
        nodes: shape (2^b,), int32: the child that a way leads to.
        rows: shape (nodes,), int32: the row of the key that ends in a node, -1 for none. Node 0 is the root.
    """

    ways: NDArray[np.uint64]
    nodes: NDArray[np.int32]
    rows: NDArray[np.int32]


def build_trie(keys: Sequence[str], rows: Sequence[int]) -> Trie:
    """Return the tree of some keys, distinct and not empty, and the row of each. O(characters)."""
    bounds = np.zeros(len(keys) + 1, np.int64)
    np.cumsum([len(key) for key in keys], out=bounds[1:])
    codes = np.frombuffer("".join(keys).encode("utf-32-le", "surrogatepass"), np.uint32)
    bits = max(3, int(2 * len(codes)).bit_length())
    ways, nodes = np.full(1 << bits, _NONE, np.uint64), np.empty(1 << bits, np.int32)
    row_of = np.full(len(codes) + 1, -1, np.int32)
    count = _build_trie_kernel(codes, bounds, np.array(rows, np.int32), ways, nodes, row_of)
    return Trie(ways, nodes, row_of[:count].copy())


@jit((reads(uint32), reads(int64), reads(int32), writes(uint64), writes(int32), writes(int32)))
def _build_trie_kernel(codes: Any, bounds: Any, rows: Any, ways: Any, nodes: Any, row_of: Any) -> Any:
    count = 1
    for key in range(len(rows)):
        node = 0
        for i in range(bounds[key], bounds[key + 1]):
            slot = _slot_of(node, codes[i], ways)
            if ways[slot] == _NONE:
                ways[slot] = uint64(node) << uint64(_CODE_BITS) | uint64(codes[i])
                nodes[slot] = count
                count += 1
            node = nodes[slot]
        row_of[node] = rows[key]
    return count


@jit()
def _slot_of(node: Any, code: Any, ways: Any) -> Any:
    bits = 0
    while (1 << bits) < len(ways):
        bits += 1
    mask = len(ways) - 1
    way = uint64(node) << uint64(_CODE_BITS) | uint64(code)
    slot = home_slot(way, bits)
    while ways[slot] != _NONE and ways[slot] != way:
        slot = (slot + 1) & mask
    return slot


def match_rows(
    codes: NDArray[np.uint32],
    segments: Cut,
    numbers: NDArray[np.int32],
    word_ends: NDArray[np.int64],
    word_rows: NDArray[np.uint32],
    trie: Trie,
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Return the rows of n texts: those of each word, and of each run the longest keys from the left.

    Where no key of two characters or more begins, one character is passed: with its row if it is a key, without if not.

    Args:
        codes: shape (c,), uint32: the code points of the texts.
        segments: their cut.
        numbers: shape (m,), int32: which word each segment is; not looked at for characters of runs.
        word_ends: shape (words + 1,), int64: word w's rows are word_rows[word_ends[w] : word_ends[w + 1]].
        word_rows: uint32.
        trie: of the keys.

    Returns:
        (indptr int64 of shape (n + 1,), rows uint32), in text order. O(c · longest key).

    Raises:
        TypeError, ValueError: arrays of another dtype or shape, or that do not belong together.
    """
    _check.array(codes, _check.U32, 1, "codes")
    m = len(segments.kinds)
    _check.length(_check.array(numbers, np.dtype(np.int32), 1, "numbers"), m, "numbers", "segments")
    _check.array(word_ends, _check.I64, 1, "word_ends")
    _check.array(word_rows, _check.U32, 1, "word_rows")
    words = numbers[segments.kinds == WORD]
    if len(words) and not 0 <= words.min() <= words.max() < len(word_ends) - 1:
        raise ValueError(f"numbers must be 0 to {len(word_ends) - 2} for words: pass those of these segments")
    most = int((word_ends[words + 1] - word_ends[words]).sum()) + m - len(words)
    indptr, rows = np.zeros(len(segments.indptr), np.int64), np.empty(most, np.uint32)
    size = int(_match_rows_kernel(codes, *segments, numbers, word_ends, word_rows, *trie, indptr, rows))
    return indptr, rows[:size].copy()


@jit(
    (
        reads(uint32),
        reads(int64),
        reads(int64),
        reads(int64),
        reads(uint8),
        reads(int32),
        reads(int64),
        reads(uint32),
        reads(uint64),
        reads(int32),
        reads(int32),
        writes(int64),
        writes(uint32),
    )
)
def _match_rows_kernel(
    codes: Any, indptr: Any, starts: Any, ends: Any, kinds: Any, numbers: Any, word_ends: Any, word_rows: Any,
    ways: Any, nodes: Any, row_of: Any, out: Any, rows: Any,
) -> Any:  # fmt: skip
    size = 0
    for text in range(len(indptr) - 1):
        i, last = indptr[text], indptr[text + 1]
        while i < last:
            if kinds[i] == WORD:
                for j in range(word_ends[numbers[i]], word_ends[numbers[i] + 1]):
                    rows[size] = word_rows[j]
                    size += 1
                i += 1
                continue
            run_end = i + 1
            while run_end < last and kinds[run_end] == 2:
                run_end += 1
            while i < run_end:
                node, length, row = 0, 1, -1
                for j in range(i, run_end):
                    slot = _slot_of(node, codes[starts[j]], ways)
                    if ways[slot] == _NONE:
                        break
                    node = nodes[slot]
                    if row_of[node] >= 0:
                        length, row = j + 1 - i, row_of[node]
                if row >= 0:
                    rows[size] = row
                    size += 1
                i += length
        out[text + 1] = size
    return size
