"""Checksums of the ledger's rows: what every read of a row is held against.

A row of `memories` is read a few at a time and checked as it is fetched. Rows of columns are read by the hundred
thousand when a namespace is loaded, so theirs is put together of CRC-32s (zlib's) by sums that NumPy does for all rows
at once: about a microsecond a row.

Both tell two parts apart, 31 bits and 32 bits: the row and its namespace's name, the row and its vector. They are
negative numbers; those of earlier releases, a CRC-32 of the row's JSON or `repr`, are not, and still count.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.memory import Memory

_ROW: Final = "\0".join(["%s"] * 17)
_PRIME: Final = 0x9E3779B97F4A7C15
_WORD: Final = 2**64 - 1
_NO_EXPIRY: Final = -(2**63)
_INTEGERS: Final = struct.Struct("<6q")

# Of a row of columns: key, kind, timestamp_us, expires_us, session, fact; then terms, freqs, tokens.
_NUMBERS: Final = 6
# Below so many rows the loop is quicker than NumPy.
_FEW: Final = 16


def memory_checksum(row: Sequence[Any], namespace: str) -> int:
    """Return the checksum of a row of `memories`, from its key to `use_when` as the ledger reads it."""
    return _joined(zlib.crc32((_ROW % tuple(row)).encode("utf-8", "surrogatepass")), namespace_checksum(namespace))


def memory_is_sound(row: Sequence[Any], namespace_part: int, checksum: object) -> bool:
    """Return whether a row of `memories` is what was written, by a checksum of this release.

    Args:
        row: from its key to `use_when`.
        namespace_part: `namespace_checksum` of its namespace's name.
        checksum: as it is stored; of an earlier release's, see `is_earlier`.
    """
    return _joined(zlib.crc32((_ROW % tuple(row)).encode("utf-8", "surrogatepass")), namespace_part) == checksum


def memory_content_is_sound(row: Sequence[Any], checksum: object) -> bool:
    """Return whether a row is what was written, whatever its namespace is called; for checksums of this release."""
    content = zlib.crc32((_ROW % tuple(row)).encode("utf-8", "surrogatepass"))
    return isinstance(checksum, int) and checksum < 0 and ~checksum >> 32 == content & 0x7FFFFFFF


def namespace_checksum(name: str) -> int:
    """Return the part of a memory's checksum that its namespace's name makes."""
    return zlib.crc32(name.encode("utf-8", "surrogatepass"))


def is_earlier(checksum: object) -> bool:
    """Return whether a checksum is one of an earlier release."""
    return not isinstance(checksum, int) or checksum >= 0


def earlier_memory_checksum(memory: Memory) -> int:
    """Return the checksum that earlier releases gave a memory."""
    return zlib.crc32(memory.to_json(usage=False).encode())


def columns_checksum(row: Sequence[Any], vector: bytes | None) -> int:
    """Return the checksum of a row of columns: from its key to its tokens, and its vector.

    Raises:
        TypeError, struct.error: the row holds something that is none.
    """
    *numbers, terms, freqs, tokens = row
    if numbers[3] is None:
        numbers[3] = _NO_EXPIRY
    _INTEGERS.pack(*numbers)  # only whole numbers of 64 bits
    mixed = 0
    for part in (*numbers, zlib.crc32(terms), zlib.crc32(freqs), zlib.crc32(tokens)):
        mixed = ((mixed ^ (part & _WORD)) * _PRIME) & _WORD
        mixed ^= mixed >> 32
    return _joined(mixed & 0xFFFFFFFF, 0 if vector is None else zlib.crc32(vector))


def columns_checksums(rows: Sequence[Sequence[Any]], vectors: Sequence[bytes | None]) -> list[int]:
    """Return `columns_checksum` of each row and its vector: of many at once, in a tenth of the time."""
    if len(rows) < _FEW:
        return [columns_checksum(row, vector) for row, vector in zip(rows, vectors, strict=True)]
    of_rows = (_mixed(rows) & np.uint64(0x7FFFFFFF)).tolist()
    of_vectors = [0 if vector is None else zlib.crc32(vector) for vector in vectors]
    return [~(row << 32 | vector) for row, vector in zip(of_rows, of_vectors, strict=True)]


def earlier_columns_checksum(row: Sequence[Any], vector: bytes | None) -> int:
    """Return the checksum that earlier releases gave a row of columns."""
    *numbers, fact, terms, freqs, tokens = row
    # Without a fact, the checksum is that of the first format.
    checksum = zlib.crc32(repr([*numbers, fact] if fact else numbers).encode())
    for part in (terms, freqs, tokens, b"" if vector is None else vector):
        checksum = zlib.crc32(part, checksum)
    return checksum


def columns_are_sound(row: Sequence[Any], vector: bytes | None, checksum: object) -> bool:
    """Return whether a row of columns with its vector is what was written."""
    try:
        if is_earlier(checksum):
            return earlier_columns_checksum(row, vector) == checksum
        return columns_checksum(row, vector) == checksum
    except (TypeError, ValueError, struct.error):
        return False


def any_earlier(checksums: Sequence[Any]) -> bool:
    """Return whether one of the checksums is an earlier release's."""
    try:
        return max(checksums, default=-1) >= 0
    except TypeError:
        return True


def unsound_rows(rows: Sequence[Sequence[Any]], checksums: Sequence[Any]) -> set[int]:
    """Return which rows of columns are not what was written, their vectors and what follows the tokens aside.

    Of rows with an earlier release's checksum nothing can be said without their vectors: none of them is named.
    """
    try:
        found = _mixed(rows)
        stored = np.array(checksums, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):  # something among them is of another type: find out which
        return {place for place, row in enumerate(rows) if not _row_is_sound(row[:9], checksums[place])}
    wrong = (stored < 0) & ((~stored >> 32) != (found & np.uint64(0x7FFFFFFF)).astype(np.int64))
    return set(np.flatnonzero(wrong).tolist())


def unsound_vectors(vectors: Sequence[Any], checksums: Sequence[int]) -> list[int]:
    """Return which vectors are not what was written. The checksums must be of this release."""
    try:
        given = [vector or b"" for vector in vectors]
        found = np.fromiter(map(zlib.crc32, given), np.int64, len(given))
    except TypeError:
        return [place for place, vector in enumerate(vectors) if not _vector_is_sound(vector, checksums[place])]
    stored = ~np.array(checksums, dtype=np.int64) & 0xFFFFFFFF
    wrong: list[int] = np.flatnonzero(found != stored).tolist()
    return wrong


def _mixed(rows: Sequence[Sequence[Any]]) -> NDArray[np.uint64]:
    mixed = np.zeros(len(rows), dtype=np.uint64)
    for place in range(_NUMBERS + 3):
        column = map(itemgetter(place), rows)
        if place < _NUMBERS:
            part = np.array(_integers(list(column), place == 3), dtype=np.int64)
        else:
            part = np.fromiter(map(zlib.crc32, column), np.int64, len(rows))
        mixed ^= part.view(np.uint64)
        mixed *= np.uint64(_PRIME)
        mixed ^= mixed >> np.uint64(32)
    return mixed


def _integers(column: Sequence[Any], expiry: bool) -> Sequence[int]:
    if expiry:
        column = [_NO_EXPIRY if value is None else value for value in column]
    if set(map(type, column)) - {int}:  # NumPy would cut a float short
        raise TypeError
    return column


def _row_is_sound(row: Sequence[Any], checksum: object) -> bool:
    try:
        return not isinstance(checksum, int) or checksum >= 0 or ~columns_checksum(row, None) >> 32 == ~checksum >> 32
    except (TypeError, ValueError, struct.error):
        return False


def _vector_is_sound(vector: Any, checksum: int) -> bool:
    try:
        return ~checksum & 0xFFFFFFFF == (0 if vector is None else zlib.crc32(vector))
    except TypeError:
        return False


def _joined(row: int, other: int) -> int:
    return ~((row & 0x7FFFFFFF) << 32 | other)
