"""SQLite's file, read page by page without SQLite: what is left to do when it refuses a ledger.

After "Database File Format" of SQLite's documentation (https://www.sqlite.org/fileformat2.html). Nothing here trusts
what it reads: a number that leads nowhere ends a cell, a chain or a walk, never the process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

_MAGIC: Final = b"SQLite format 3\0"
_PAGE_SIZES: Final = tuple(1 << power for power in range(9, 17))
_OURS: Final = 8192

TABLE_LEAF: Final = 0x0D
TABLE_INNER: Final = 0x05
INDEX_LEAF: Final = 0x0A
INDEX_INNER: Final = 0x02
_KINDS: Final = frozenset({TABLE_LEAF, TABLE_INNER, INDEX_LEAF, INDEX_INNER})

_LOG_MAGIC: Final = 0x377F0682
_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_LONGEST_RECORD: Final = 1 << 30


class Cell(NamedTuple):
    """One row of a table, or one entry of an index."""

    rowid: int | None
    """None in an index."""
    values: tuple[Any, ...]
    """int, float, bytes, None, or text as it was read: bytes that are no UTF-8 come with lone surrogates."""


class Pages:
    """The pages of a database file with those of its write-ahead log over them.

    Args:
        path: the file. It may be truncated, and any byte of it may be wrong.
    """

    def __init__(self, path: Path) -> None:
        self._content = path.read_bytes() if path.exists() else b""
        header = self._content[:100]
        self.has_header = header.startswith(_MAGIC)
        size = int.from_bytes(header[16:18], "big") if self.has_header else 0
        size = 65_536 if size == 1 else size
        log = path.with_name(f"{path.name}-wal")
        log_content = log.read_bytes() if log.exists() else b""
        if size not in _PAGE_SIZES:
            size = _log_page_size(log_content) or _likely_page_size(self._content)
        self.size = size
        reserved = header[20] if self.has_header and header[20] <= 64 else 0
        self.usable = size - reserved
        self.logged: dict[int, bytes] = {}
        """Pages that the log holds, of transactions that were committed."""
        self.loose: list[bytes] = []
        """Pages that stand in the log behind a place that is damaged: of which moment is not known."""
        self._read_log(log_content)
        self.count = max([(len(self._content) + size - 1) // size, *self.logged])

    def page(self, number: int) -> bytes | None:
        """Return a page as it is now, from 1; None when there is none, filled up with zeros where the file ends."""
        found = self.logged.get(number)
        if found is not None:
            return found
        start = (number - 1) * self.size
        if number < 1 or start >= len(self._content):
            return None
        return self._content[start : start + self.size].ljust(self.size, b"\0")

    def free(self) -> set[int]:
        """Return the pages that the free list names, as far as it can be followed."""
        first = self.page(1)
        found: set[int] = set()
        trunk = int.from_bytes(first[32:36], "big") if first is not None and self.has_header else 0
        while trunk and trunk not in found and (page := self.page(trunk)) is not None:
            found.add(trunk)
            trunk, count = struct.unpack_from(">II", page)
            if count > self.size // 4 - 2:
                break
            found.update(struct.unpack_from(f">{count}I", page, 8))
        return found

    def tree(self, root: int) -> set[int]:
        """Return the pages of the b-tree with this root that can be reached from it."""
        found: set[int] = set()
        waiting = [root]
        while waiting:
            number = waiting.pop()
            page = self.page(number)
            if number in found or page is None:
                continue
            found.add(number)
            at = 100 if number == 1 else 0
            if page[at] not in (TABLE_INNER, INDEX_INNER):
                continue
            waiting.append(int.from_bytes(page[at + 8 : at + 12], "big"))
            for offset in self._offsets(page, at):
                waiting.append(int.from_bytes(page[offset : offset + 4], "big"))
        return found

    def roots(self) -> dict[str, int]:
        """Return the root page of every table and index that the schema names, as far as it can be read."""
        found: dict[str, int] = {}
        for number in self.tree(1):
            page = self.page(number)
            for cell in self.cells(page, number) if page is not None else ():
                values = cell.values
                if len(values) == 5 and isinstance(values[1], str) and isinstance(values[3], int):
                    found[values[1]] = values[3]
        return found

    def cells(self, page: bytes, number: int = 0) -> Iterator[Cell]:
        """Yield what a page holds; cells that make no sense are passed over. Inner pages of tables hold nothing."""
        at = 100 if number == 1 else 0
        kind = page[at]
        if kind not in _KINDS:
            kind = TABLE_LEAF  # of a page whose head is damaged, the rows may be whole
        if kind == TABLE_INNER:
            return
        for offset in self._offsets(page, at, kind):
            try:
                cell = self._cell(page, offset, kind)
            except (IndexError, struct.error, ValueError):
                continue
            if cell is not None:
                yield cell

    def _offsets(self, page: bytes, at: int, kind: int | None = None) -> Iterator[int]:
        kind = page[at] if kind is None else kind
        start = at + (12 if kind in (TABLE_INNER, INDEX_INNER) else 8)
        count = min(int.from_bytes(page[at + 3 : at + 5], "big"), (self.size - start) // 2)
        for place in range(start, start + 2 * count, 2):
            offset = int.from_bytes(page[place : place + 2], "big")
            if start < offset < self.usable - 3:
                yield offset

    def _cell(self, page: bytes, offset: int, kind: int) -> Cell | None:
        if kind == INDEX_INNER:
            offset += 4  # the page to its left
        length, offset = _varint(page, offset)
        rowid = None
        if kind == TABLE_LEAF:
            rowid, offset = _varint(page, offset)
            most = self.usable - 35
        else:
            most = (self.usable - 12) * 64 // 255 - 23
        if not 0 < length < _LONGEST_RECORD:
            return None
        record = self._record(page, offset, length, most)
        return None if record is None else Cell(_signed(rowid), _decoded(record))

    def _record(self, page: bytes, offset: int, length: int, most: int) -> bytes | None:
        """The bytes of a record, with what spills over into other pages."""
        if length <= most:
            return page[offset : offset + length]
        least = (self.usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (self.usable - 4)
        local = local if local <= most else least
        parts = [page[offset : offset + local]]
        missing = length - local
        following = int.from_bytes(page[offset + local : offset + local + 4], "big")
        seen: set[int] = set()
        while missing > 0:
            more = self.page(following)
            if more is None or following in seen:
                return None
            seen.add(following)
            parts.append(more[4 : min(self.usable, missing + 4)])
            missing -= len(parts[-1])
            following = int.from_bytes(more[:4], "big")
        return b"".join(parts)

    # -------------------------------------------------------------------------------------------------- the log

    def _read_log(self, log: bytes) -> None:
        if len(log) < _LOG_HEADER or int.from_bytes(log[:4], "big") & ~1 != _LOG_MAGIC:
            return
        order = ">" if int.from_bytes(log[:4], "big") & 1 else "<"
        sums = _log_sums(order, log[:24], (0, 0))
        sound = sums == struct.unpack_from(">II", log, 24)
        waiting: dict[int, bytes] = {}
        for start in range(_LOG_HEADER, len(log) - _FRAME_HEADER - self.size + 1, _FRAME_HEADER + self.size):
            if log[start + 8 : start + 16] != log[16:24]:
                sound = False  # of an earlier round
                continue
            page = log[start + _FRAME_HEADER : start + _FRAME_HEADER + self.size]
            number, committed_size = struct.unpack_from(">II", log, start)
            if sound:
                sums = _log_sums(order, page, _log_sums(order, log[start : start + 8], sums))
                sound = sums == struct.unpack_from(">II", log, start + 16)
            if not sound:
                self.loose.append(page)
                continue
            waiting[number] = page
            if committed_size:
                self.logged |= waiting
                waiting = {}


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(8):
        byte = content[at + i]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + i + 1
    return value << 8 | content[at + 8], at + 9


def _signed(value: int | None) -> int | None:
    return value if value is None or value < 1 << 63 else value - (1 << 64)


_WIDTHS: Final = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)


def _decoded(record: bytes) -> tuple[Any, ...]:
    end, at = _varint(record, 0)
    values: list[Any] = []
    place = end
    while at < end:
        kind, at = _varint(record, at)
        if kind in (10, 11):
            raise ValueError("no serial type")
        width = _WIDTHS[kind] if kind < 10 else (kind - 12) // 2
        content = record[place : place + width]
        if len(content) < width:
            raise ValueError("too short")
        place += width
        if kind == 0:
            values.append(None)
        elif kind == 7:
            values.append(struct.unpack(">d", content)[0])
        elif kind in (8, 9):
            values.append(kind - 8)
        elif kind < 7:
            values.append(int.from_bytes(content, "big", signed=True))
        else:
            values.append(content.decode("utf-8", "surrogateescape") if kind % 2 else content)
    return tuple(values)


def _log_sums(order: str, content: bytes, before: tuple[int, int]) -> tuple[int, int]:
    first, second = before
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for i in range(0, len(words), 2):
        first = (first + words[i] + second) & 0xFFFFFFFF
        second = (second + words[i + 1] + first) & 0xFFFFFFFF
    return first, second


def _log_page_size(log: bytes) -> int | None:
    if len(log) >= _LOG_HEADER and int.from_bytes(log[:4], "big") & ~1 == _LOG_MAGIC:
        size = int.from_bytes(log[8:12], "big")
        return size if size in _PAGE_SIZES else None
    return None


def _likely_page_size(content: bytes) -> int:
    """Of a file without a head: the size at whose multiples pages begin most often, or the one that ledgers have."""

    def begun(size: int) -> float:
        starts = content[size::size][:2_000]
        return sum(byte in _KINDS or byte == 0 for byte in starts) / max(len(starts), 1)

    return _OURS if begun(_OURS) >= max(begun(4096), 0.5) else 4096
