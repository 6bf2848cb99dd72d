"""Compressed sparse rows: bring each row into ascending order, with or without its repeats."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import int32, int64, jit, reads, uint8, uint16, uint32, uint64, writes
from jiyi.kernels._numbering import number_distinct

_U64 = np.dtype(np.uint64)


def csr_of_lists(lists: Sequence[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Lists of ids, such as texts of token ids, as one array and where each list begins in it.

    Args:
        lists: n lists of whole numbers, each 0 to 2^32 − 1.

    Returns:
        (indptr int64 of shape (n + 1,), ids uint32 of shape (nnz,)): list i is ids[indptr[i] : indptr[i + 1]]. Orders
        and repeats stay as they are. No lists: [0] and empty. O(nnz); from lists, Python's `array` takes numbers in a
        third of the time that NumPy does.

    Raises:
        TypeError: something that is not a list, or an id that is not an integer.
        ValueError: an id out of range.
    """
    ids = array("I")
    for i, row in enumerate(lists):
        try:
            ids.fromlist(row)
        except TypeError:
            raise TypeError(
                f"lists[{i}] is {row!r:.80}, allowed are lists of integers: pass list(map(int, …))"
            ) from None
        except OverflowError:
            raise ValueError(
                f"lists[{i}] holds a number that is not one of 0 to 4294967295, as allowed: number the tokens from 0 on"
            ) from None
    pointers = array("q", accumulate(map(len, lists), initial=0))
    return np.frombuffer(pointers, np.int64), np.frombuffer(ids, np.uint32)


def count_sorted_rows(
    indptr: NDArray[np.int64], values: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint16]]:
    """Sort every row, keep each value once and say how often it stood there.

    Args:
        indptr: shape (n + 1,), int64, ascending from 0 to nnz.
        values: shape (nnz,), uint64.

    Returns:
        (indptr int64 of shape (n + 1,), values uint64 of shape (m,), ascending and unique within a row, counts uint16
        of shape (m,), at least 1; more than 65,535 repeats count as 65,535). Empty rows stay empty. O(nnz log row).

    Raises:
        TypeError: an array of another dtype.
        ValueError: another shape, not contiguous, or pointers that do not run from 0 to nnz.
    """
    nnz = _check.array(values, _U64, 1, "values")
    _check_pointers(indptr, nnz)
    kept = np.empty(nnz, np.uint64)
    counts = np.empty(nnz, np.uint16)
    pointers = np.zeros(len(indptr), np.int64)
    size = _count_sorted_rows_kernel(indptr, values, pointers, kept, counts)
    return pointers, kept[:size].copy(), counts[:size].copy()


@jit((reads(int64), reads(uint64), writes(int64), writes(uint64), writes(uint16)))
def _count_sorted_rows_kernel(indptr: Any, values: Any, pointers: Any, kept: Any, counts: Any) -> Any:
    size = 0
    for row in range(len(indptr) - 1):
        ordered = np.sort(values[indptr[row] : indptr[row + 1]])
        for i in range(len(ordered)):
            if i > 0 and ordered[i] == ordered[i - 1]:
                if counts[size - 1] < 65535:
                    counts[size - 1] += 1
            else:
                kept[size] = ordered[i]
                counts[size] = 1
                size += 1
        pointers[row + 1] = size
    return size


def gather_rows(
    indptr: NDArray[np.int64], ids: NDArray[np.uint32], wanted: NDArray[np.uint8], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Take some rows, and of each only the ids that are wanted, in their order.

    Args:
        indptr: shape (≥ largest row + 2,), int64.
        ids: shape (nnz,), uint32.
        wanted: shape (vocabulary,), uint8, by id; an id beyond it is not wanted.
        rows: shape (m,), int64; may repeat.

    Returns:
        (indptr int64 of shape (m + 1,), ids uint32): the rows in the order of `rows`. No rows: [0] and empty.
        O(ids read).

    Raises:
        TypeError: an array of another dtype.
        ValueError: another shape, not contiguous, or a row out of range.
    """
    _check.csr_of(indptr, ids, 0, "ids")
    _check.array(wanted, _check.U8, 1, "wanted")
    m = _check.array(rows, _check.I64, 1, "rows")
    pointers = np.zeros(m + 1, np.int64)
    gathered = _gather_rows_kernel(indptr, ids, wanted, rows, pointers)
    if pointers[0] != 0:
        bad = -int(pointers[0]) - 1
        raise ValueError(f"rows[{bad}] is {rows[bad]}, allowed is 0 to {len(indptr) - 2} within ids")
    return pointers, gathered


@jit((reads(int64), reads(uint32), reads(uint8), reads(int64), writes(int64)))
def _gather_rows_kernel(indptr: Any, ids: Any, wanted: Any, rows: Any, pointers: Any) -> Any:
    total = 0
    for i in range(len(rows)):
        row = rows[i]
        if row < 0 or row >= len(indptr) - 1 or indptr[row] < 0 or indptr[row + 1] > len(ids):
            pointers[0] = -i - 1
            return np.empty(0, np.uint32)
        total += max(indptr[row + 1] - indptr[row], 0)
    gathered = np.empty(total, np.uint32)
    size = 0
    for i in range(len(rows)):
        for position in range(indptr[rows[i]], indptr[rows[i] + 1]):
            token = ids[position]
            if token < len(wanted) and wanted[token] != 0:
                gathered[size] = token
                size += 1
        pointers[i + 1] = size
    return gathered[:size]


def number_values(values: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """Number the distinct values 0, 1, 2, … in order of first appearance: `np.unique` with inverse, without the sort.

    Args:
        values: shape (n,), uint64.

    Returns:
        (numbers int32 of shape (n,), distinct uint64 of shape (m,)): distinct[numbers] equals values. Empty gives
        empty. O(n) expected, by open addressing.

    Raises:
        TypeError: another dtype.
        ValueError: another shape, or not contiguous.
    """
    n = _check.array(values, _U64, 1, "values")
    numbers = np.empty(n, np.int32)
    distinct = np.empty(n, np.uint64)
    count = _number_values_kernel(values, numbers, distinct) if n else 0
    return numbers, distinct[:count].copy()


@jit((reads(uint64), writes(int32), writes(uint64)))
def _number_values_kernel(values: Any, numbers: Any, distinct: Any) -> Any:
    return number_distinct(values, len(values), numbers, distinct)


def sort_rows(
    indptr: NDArray[np.int64], ids: NDArray[np.uint32], freqs: NDArray[np.uint16]
) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    """Sort the ids of every row ascending and take their frequencies along.

    Args:
        indptr: shape (n + 1,), int64, ascending from 0 to nnz.
        ids: shape (nnz,), uint32.
        freqs: shape (nnz,), uint16.

    Returns:
        (ids uint32, freqs uint16), new arrays of shape (nnz,). Equal ids of a row keep their order. O(row) for rows
        that are in order already, O(row²) for others up to 64 ids, O(row log row) for longer ones.

    Raises:
        TypeError: an array of another dtype.
        ValueError: another shape, not contiguous, or pointers that do not run from 0 to nnz.
    """
    nnz = _check.array(ids, _check.U32, 1, "ids")
    _check.length(_check.array(freqs, _check.U16, 1, "freqs"), nnz, "freqs", "ids")
    _check_pointers(indptr, nnz)
    ids, freqs = ids.copy(), freqs.copy()
    _sort_rows_kernel(indptr, ids, freqs)
    return ids, freqs


@jit((reads(int64), writes(uint32), writes(uint16)))
def _sort_rows_kernel(indptr: Any, ids: Any, freqs: Any) -> Any:
    for row in range(len(indptr) - 1):
        start, end = indptr[row], indptr[row + 1]
        if end - start > 64:
            order = np.argsort(ids[start:end], kind="mergesort")
            ids[start:end] = ids[start:end][order]
            freqs[start:end] = freqs[start:end][order]
            continue
        for i in range(start + 1, end):
            token, freq = ids[i], freqs[i]
            j = i - 1
            while j >= start and ids[j] > token:
                ids[j + 1], freqs[j + 1] = ids[j], freqs[j]
                j -= 1
            ids[j + 1], freqs[j + 1] = token, freq


def _check_pointers(indptr: NDArray[np.int64], nnz: int) -> None:
    if _check.array(indptr, _check.I64, 1, "indptr") == 0 or indptr[0] != 0 or indptr[-1] != nnz:
        raise ValueError(f"indptr must run from 0 to {nnz}, the number of values: pass the pointers of these values")
