"""Whether a ledger is what was written: its pages, every row by its checksum, and what belongs together."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Final

from jiyi import generations, originals
from jiyi.checksums import columns_are_sound, namespace_checksum
from jiyi.errors import DamagedError, StoreError
from jiyi.ledger import COLUMN_FIELDS, LABEL_BITS, LABEL_MASK, MEMORY_FIELDS, Ledger, read_rows, to_memory
from jiyi.quoted import quoted


def damage(ledger: Ledger) -> list[str]:
    """Return what is wrong with a ledger, one line each; empty when every page and every row is sound."""
    found: list[str] = []
    for check in CHECKS:
        try:
            with ledger.reading() as connection:
                found.extend(check(connection))
        except StoreError as error:
            found.append(f"ledger: a check could not be finished: {error.__cause__ or error}")
    return found


def damage_on(connection: sqlite3.Connection, *, indexes: bool = True) -> list[str]:
    """Return the same of what a connection sees; without `indexes`, not whether they agree with their tables."""
    found: list[str] = []
    for check in CHECKS if indexes else (broken_pages, *CHECKS[1:]):
        try:
            found.extend(check(connection))
        except (sqlite3.Error, StoreError) as error:
            found.append(f"ledger: a check could not be finished: {error}")
    return found


def damaged_pages(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield what SQLite finds wrong with its file, one line each."""
    yield from _told_by(connection, "integrity_check")


def broken_pages(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the same of a file whose indexes were made of their tables a moment ago."""
    yield from _told_by(connection, "quick_check")


def _told_by(connection: sqlite3.Connection, check: str) -> Iterator[str]:
    for (line,) in connection.execute(f"PRAGMA {check}"):
        if line != "ok":
            yield f"ledger: {line}"


def unsound_memories(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Yield the keys of memories that are not what was written, and a line on each."""
    parts: dict[str, int] = {}
    query = (
        f"SELECT {MEMORY_FIELDS}, m.namespace, n.name FROM memories m "
        "LEFT JOIN namespaces n ON n.namespace = m.namespace LEFT JOIN usage u ON u.key = m.key ORDER BY m.key"
    )
    for *row, number, name in read_rows(connection, query, ()):
        if name is None:
            yield (
                row[0],
                f"ledger: memory {quoted(row[1])} (label {row[0] & LABEL_MASK}) has a namespace without name",
            )
            continue
        try:
            to_memory(row, name, parts.setdefault(name, namespace_checksum(name)))
            sound = row[0] >> LABEL_BITS == number
        except DamagedError:
            sound = False
        if not sound:
            yield (
                row[0],
                f"ledger: memory {quoted(row[1])} (label {row[0] & LABEL_MASK}) in namespace {quoted(name)} is not "
                "what was written",
            )


def damaged_memories(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield which memories are not what was written, one line each."""
    yield from (line for _, line in unsound_memories(connection))


def unsound_columns(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Yield the keys of rows of columns that are not what was written, and a line on each."""
    for table, where in _column_tables(connection):
        query = f"SELECT {COLUMN_FIELDS}, vector, checksum FROM {table} ORDER BY key"
        for *row, vector, checksum in read_rows(connection, query, ()):
            if not columns_are_sound(row, vector, checksum):
                yield row[0], f"ledger: the columns of label {row[0] & LABEL_MASK} are not what was written{where}"


def damaged_columns(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield which rows of columns are not what was written, one line each."""
    yield from (line for _, line in unsound_columns(connection))


def unpaired(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield which memories have no columns, and which columns no memory, one line each."""
    yield from (line for _, line in without_text(connection))
    yield from (line for _, line in without_columns(connection))
    for found in generations.beside(connection):
        if found.state != generations.DROPPING:
            for key in generations.missing(connection, found):
                yield f"ledger: label {key & LABEL_MASK} has no columns{_in_generation(found)}"


def without_text(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Yield the keys of columns that have no memory, and a line on each."""
    for table, where in _column_tables(connection):
        for (key,) in connection.execute(f"SELECT key FROM {table} EXCEPT SELECT key FROM memories"):
            yield key, f"ledger: label {key & LABEL_MASK} has columns and no text{where}"


def without_columns(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Yield the keys of memories that have no columns, and a line on each."""
    for (key,) in connection.execute("SELECT key FROM memories EXCEPT SELECT key FROM columns"):
        yield key, f"ledger: label {key & LABEL_MASK} has no columns"


#: Each goes on where another cannot.
CHECKS: Final[tuple[Callable[[sqlite3.Connection], Iterator[str]], ...]] = (
    damaged_pages,
    damaged_memories,
    damaged_columns,
    unpaired,
    originals.damage,
)


def _column_tables(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """The tables of columns that are, or may come, in use, and how to say which."""
    others = [found for found in generations.beside(connection) if found.state != generations.DROPPING]
    return [("columns", ""), *((f"columns_{found.number}", _in_generation(found)) for found in others)]


def _in_generation(found: generations.Generation) -> str:
    return f" (generation {found.number}, {found.state})"
