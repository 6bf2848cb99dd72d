"""A ledger copied row by row, so that a copy that was stopped goes on with what it has.

What is copied is one moment of the source, however long it takes. The copy grows by transactions of some megabytes; a
process that dies between, or within, two of them leaves a file that holds all but the last. The next copy to there
compares it with the source, by the keys and checksums of rows, a few thousand at a time, and takes over only what is
new or differs. Nothing of rows that were deleted is carried along, as it would be page by page.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

#: Rows that are compared, and written, at a time.
_ROWS: Final = 2_000
# What one transaction writes, some megabytes: so much is lost at most when the process dies.
_TRANSACTION_ROWS: Final = 6_000
_BELOW_ALL: Final = -(1 << 63)

_SCHEMA: Final = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"


class Copied(NamedTuple):
    """What a copy took."""

    rows: int
    """Rows that were written."""
    kept: int
    """Rows that an earlier copy, which was stopped, had written and that are still the same."""


def copy_ledger(source: sqlite3.Connection, path: Path, progress: Callable[[int, int], None] | None = None) -> Copied:
    """Make a file hold what a connection sees of a ledger, starting from what the file holds already.

    Args:
        source: in a transaction, so that all it sees is of one moment.
        path: the copy, which nobody else uses. One of another store, or one that cannot be read, is begun anew.
        progress: called with (rows done, rows in all) of the two large tables, after each transaction.

    Raises:
        sqlite3.Error: the source cannot be read, or the copy not be written.
    """
    size = int(source.execute("PRAGMA page_size").fetchone()[0])
    if path.exists() and not _is_of(path, source):
        remove_copy(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as target:
        target.execute(f"PRAGMA page_size = {size}")
        target.execute("PRAGMA locking_mode = EXCLUSIVE")
        target.execute("PRAGMA journal_mode = TRUNCATE")  # a process that dies: the last transaction is undone
        target.execute("PRAGMA synchronous = OFF")  # it is flushed when it is whole; until then it is checked anyway
        target.execute("PRAGMA secure_delete = ON")  # what was erased in the source since must not stay here
        target.execute("PRAGMA temp_store = MEMORY")
        copied = _Copy(source, target, progress).run()
    with closing(sqlite3.connect(path, isolation_level=None)) as target:
        target.execute("PRAGMA journal_mode = WAL")  # as a store's own is
    return copied


def remove_copy(path: Path) -> None:
    """Remove a copy, and the logs beside it."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _is_of(path: Path, source: sqlite3.Connection) -> bool:
    """Whether a file that is there is an earlier copy of the same store, and can be gone on with."""
    query = "SELECT value FROM manifest WHERE key = 'store'"
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as target:
        found = target.execute(query).fetchone()
        if found is not None and found == source.execute(query).fetchone():
            return bool(target.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    return False


class _Copy:
    """One copy, table by table."""

    def __init__(
        self,
        source: sqlite3.Connection,
        target: sqlite3.Connection,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self._total = 2 * int(source.execute("SELECT count(*) FROM memories").fetchone()[0])
        self._done = 0
        self._written = self._kept = 0
        self._rows = 0  # of the transaction

    def run(self) -> Copied:
        wanted = {name: (kind, sql) for kind, name, sql in self._source.execute(_SCHEMA).fetchall()}
        self._target.execute("BEGIN IMMEDIATE")
        for kind, name, sql in self._target.execute(_SCHEMA).fetchall():
            if wanted.get(name) != (kind, sql) and kind == "table":
                self._target.execute(f'DROP TABLE "{name}"')
        have = {name: (kind, sql) for kind, name, sql in self._target.execute(_SCHEMA).fetchall()}
        for name in [name for name, (kind, sql) in have.items() if wanted.get(name) != (kind, sql)]:
            self._target.execute(f'DROP INDEX "{name}"')
        tables = [name for name, (kind, _) in wanted.items() if kind == "table"]
        tables.sort(key=lambda name: name != "manifest")  # first: it says whose copy this is
        for name in tables:
            if name not in have:
                self._target.execute(wanted[name][1])
            self._table(name, wanted[name][1])
        if "sqlite_sequence" in {row[0] for row in self._source.execute("SELECT name FROM sqlite_master")}:
            rows = self._source.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
            self._target.execute("DELETE FROM sqlite_sequence")
            self._target.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", rows)
        for name, (kind, sql) in wanted.items():
            if kind == "index" and have.get(name) != (kind, sql):
                self._commit()  # sorting a large index takes a while
                self._target.execute(sql)
        self._target.execute("COMMIT")
        return Copied(self._written, self._kept)

    def _table(self, name: str, sql: str) -> None:
        info = self._source.execute(f'PRAGMA table_info("{name}")').fetchall()
        columns = [row[1] for row in info]
        if sql.rstrip().upper().endswith("WITHOUT ROWID"):
            self._whole(name, columns)
            return
        # A key of its own is the row's number, and what has none keeps that number all the same.
        own = [row[1] for row in info if row[5] == 1 and row[2].upper() == "INTEGER"]
        key = own[0] if own else "rowid"
        columns = [key, *(column for column in columns if column != key)]
        counts = name in ("memories", "columns")
        self._by_key(name, key, columns, "checksum" if "checksum" in columns else None, counts)

    def _whole(self, name: str, columns: Sequence[str]) -> None:
        """Copy a table that is small, or of which nothing is large."""
        listed = ", ".join(columns)
        same = self._source.execute(f"SELECT count(*) FROM {name}").fetchone()[0] <= _ROWS and (
            set(self._source.execute(f"SELECT {listed} FROM {name}"))
            == set(self._target.execute(f"SELECT {listed} FROM {name}"))
        )
        if not same:
            self._target.execute(f"DELETE FROM {name}")
            self._insert(name, columns, self._source.execute(f"SELECT {listed} FROM {name}"))

    def _by_key(self, name: str, key: str, columns: Sequence[str], checksum: str | None, counts: bool) -> None:
        """Copy a table by ascending keys: compare what is there, and write what is not."""
        marks = f"{key}, {checksum}" if checksum is not None else ", ".join(columns)
        listed = ", ".join(columns)
        row = self._target.execute(f"SELECT max({key}) FROM {name}").fetchone()
        last_there = _BELOW_ALL if row[0] is None else int(row[0])
        low = _BELOW_ALL  # everything up to there is done
        above, up_to = f"{key} > ?1", f"{key} <= ?2"
        while True:
            if low >= last_there:
                query = f"SELECT {listed} FROM {name} WHERE {above} ORDER BY {key} LIMIT {_ROWS}"
                count = self._insert(name, columns, self._source.execute(query, (low,)))
                if not count:
                    return
                low = int(self._target.execute(f"SELECT max({key}) FROM {name}").fetchone()[0])
            else:
                query = f"SELECT {marks} FROM {name} WHERE {above} ORDER BY {key} LIMIT {_ROWS}"
                wanted = {row[0]: row[1:] for row in self._source.execute(query, (low,))}
                if not wanted:
                    self._target.execute(f"DELETE FROM {name} WHERE {above}", (low,))
                    return
                high = max(wanted)
                query = f"SELECT {marks} FROM {name} WHERE {above} AND {up_to}"
                there = {row[0]: row[1:] for row in self._target.execute(query, (low, high))}
                count = self._mend(name, key, columns, wanted, there)
                low = high
            if counts:
                self._done = min(self._done + count, self._total)
            if self._rows >= _TRANSACTION_ROWS:
                self._commit()

    def _mend(
        self,
        name: str,
        key: str,
        columns: Sequence[str],
        wanted: dict[int, tuple[Any, ...]],
        there: dict[int, tuple[Any, ...]],
    ) -> int:
        """Make some rows of the copy those of the source; return how many these are."""
        gone = [(number,) for number, mark in there.items() if wanted.get(number) != mark]
        self._target.executemany(f"DELETE FROM {name} WHERE {key} = ?", gone)
        new = [number for number, mark in wanted.items() if there.get(number) != mark]
        listed = ", ".join(columns)
        read = f"SELECT {listed} FROM {name} WHERE {key} = ?"
        self._insert(name, columns, (self._source.execute(read, (number,)).fetchone() for number in sorted(new)))
        self._kept += len(wanted) - len(new)
        return len(wanted)

    def _insert(self, name: str, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> int:
        """Write rows; return how many they were."""
        places = ", ".join("?" * len(columns))
        # Straight from one cursor into the other: no row is looked at here.
        query = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({places})"
        count = max(self._target.executemany(query, rows).rowcount, 0)
        self._written += count
        self._rows += count
        return count

    def _commit(self) -> None:
        self._target.execute("COMMIT")
        self._rows = 0
        if self._progress is not None:
            self._progress(self._done, self._total)
        self._target.execute("BEGIN IMMEDIATE")
