"""Compressed sparse rows: bring each row into ascending order, with or without its repeats."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import int64, jit, reads, uint16, uint32, uint64, writes

_U64 = np.dtype(np.uint64)


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
