"""The table of memories that were merged into others: hidden while they are, given back when that is undone.

A row is a memory as it was, usage and vector included. It lives as long as the memory that it was merged into: deleting
that deletes it. A memory that is added with the id of a hidden one takes its place; one that is added with the id of
what they were merged into has them given back before.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from jiyi.errors import StoreError
from jiyi.memory import Memory
from jiyi.quoted import quoted

TABLE: Final = """
-- Memories that were merged into another one (into_id), as they were. model: what made the vector.
CREATE TABLE merged (
    namespace INTEGER NOT NULL,
    id TEXT NOT NULL,
    into_id TEXT NOT NULL,
    memory TEXT NOT NULL,
    vector BLOB,
    model TEXT NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX merged_by_id ON merged (namespace, id);
CREATE INDEX merged_by_into ON merged (namespace, into_id);
"""


_READ: Final = "id, into_id, memory, vector, model, checksum"


@dataclass(frozen=True, slots=True)
class Original:
    """A memory as it was before it was merged."""

    memory: Memory
    vector: bytes | None
    """float32, as it was given."""
    model: str
    """What the vector is of: of any other model it says nothing."""


def keep(connection: sqlite3.Connection, namespace: int, into_id: str, originals: Iterable[Original]) -> None:
    """Hide originals, in the order they were stored, behind the memory that they are merged into."""
    rows = []
    for original in originals:
        record = original.memory.to_json()
        checksum = _checksum(record, original.vector)
        rows.append((namespace, original.memory.id, into_id, record, original.vector, original.model, checksum))
    connection.executemany("INSERT OR REPLACE INTO merged VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def of(connection: sqlite3.Connection, namespace: int, into_id: str) -> list[Original]:
    """Return what was merged into a memory, by time, then as it was stored; empty if nothing was."""
    query = f"SELECT {_READ} FROM merged WHERE namespace = ? AND into_id = ? ORDER BY rowid"
    found = [_sound(*row) for row in connection.execute(query, (namespace, into_id))]
    return sorted(found, key=lambda original: original.memory.timestamp)


def behind(connection: sqlite3.Connection, namespace: int, ids: Sequence[str], model: str) -> dict[str, list[Original]]:
    """Return what is merged into memories, by their ids, as they were stored; what hides nothing is absent.

    Args:
        connection: that is read from.
        namespace: the number of theirs.
        ids: of the memories.
        model: of any other, a vector is left out.

    Raises:
        StoreError: one of them is not what was written.
    """
    found: dict[str, list[Original]] = {}
    query = (
        f"SELECT {_READ} FROM merged WHERE namespace = ? AND into_id IN (SELECT value FROM json_each(?)) ORDER BY rowid"
    )
    for row in connection.execute(query, (namespace, json.dumps(ids))):
        original = _sound(*row)
        if original.model != model:
            original = replace(original, vector=None)
        found.setdefault(row[1], []).append(original)
    return found


def record_of(stored: str) -> dict[str, Any]:
    """Return the fields of a memory as a row of the table has them."""
    fields: dict[str, Any] = json.loads(stored)
    return fields


def _sound(memory_id: Any, into_id: Any, record: Any, vector: Any, model: Any, checksum: object) -> Original:
    """The original of a row (`_READ`), if it is what was written."""
    try:
        if is_sound(record, vector, checksum):
            return Original(Memory.from_dict(record_of(record)), vector, model)
    except (TypeError, ValueError, RecursionError):
        pass
    raise StoreError(
        f"the memory {quoted(memory_id)}, which is merged into {quoted(into_id)}, is damaged: it is not what was "
        "written; verify() lists all that is"
    )


def held_by(connection: sqlite3.Connection, namespace: int, ids: Sequence[str]) -> list[str]:
    """Return which of the ids are those of memories that hide others."""
    query = (
        "SELECT DISTINCT into_id FROM merged WHERE namespace = ? AND into_id IN (SELECT value FROM json_each(?)) "
        "ORDER BY into_id"
    )
    return [row[0] for row in connection.execute(query, (namespace, json.dumps(ids)))]


def every(connection: sqlite3.Connection, namespace: int) -> Iterator[tuple[str, Memory]]:
    """Yield all that is hidden in a namespace: the id of what it is merged into, and itself."""
    query = f"SELECT {_READ} FROM merged WHERE namespace = ? ORDER BY rowid"
    for row in connection.execute(query, (namespace,)):
        yield row[1], _sound(*row).memory


def drop(connection: sqlite3.Connection, namespace: int, into_id: str) -> None:
    """Forget what is hidden behind a memory."""
    connection.execute("DELETE FROM merged WHERE namespace = ? AND into_id = ?", (namespace, into_id))


def replaced(connection: sqlite3.Connection, places: Iterable[tuple[int, str]]) -> None:
    """Forget hidden memories whose (namespace, id) was added anew; what the new ones hide themselves stays."""
    if any_in(connection):
        connection.executemany("DELETE FROM merged WHERE namespace = ? AND id = ? AND into_id <> id", places)


def present(connection: sqlite3.Connection, namespace: int, ids: Sequence[str]) -> set[str]:
    """Return which of the ids are there, as memories or merged into one."""
    query = (
        "SELECT id FROM memories WHERE namespace = ?1 AND id IN (SELECT value FROM json_each(?2)) UNION "
        "SELECT id FROM merged WHERE namespace = ?1 AND id IN (SELECT value FROM json_each(?2))"
    )
    return {row[0] for row in connection.execute(query, (namespace, json.dumps(ids)))}


def concerned(connection: sqlite3.Connection, namespace: int, ids: Sequence[str]) -> set[str]:
    """Return which of the ids are those of hidden memories, or of memories that hide others."""
    query = (
        "SELECT id FROM merged WHERE namespace = ?1 AND id IN (SELECT value FROM json_each(?2)) UNION "
        "SELECT into_id FROM merged WHERE namespace = ?1 AND into_id IN (SELECT value FROM json_each(?2))"
    )
    return {row[0] for row in connection.execute(query, (namespace, json.dumps(ids)))}


def ended(connection: sqlite3.Connection, places: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Forget what is hidden behind memories, by (namespace, id), that left; return the places of what it was."""
    if not any_in(connection):
        return []
    gone = [
        (namespace, row[0])
        for namespace, memory_id in places
        for row in connection.execute(
            "DELETE FROM merged WHERE namespace = ? AND into_id = ? RETURNING id", (namespace, memory_id)
        ).fetchall()
    ]
    return gone


def damage(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield what is wrong with the table, one line each."""
    for memory_id, record, vector, checksum in connection.execute("SELECT id, memory, vector, checksum FROM merged"):
        if not is_sound(record, vector, checksum):
            yield f"ledger: the memory {quoted(memory_id)}, which is merged into another one, is not what was written"


def is_sound(record: Any, vector: Any, checksum: object) -> bool:
    """Return whether a row is what was written, whatever types its values have."""
    try:
        return _checksum(record, vector) == checksum
    except (TypeError, AttributeError, UnicodeEncodeError):
        return False


def _checksum(record: str, vector: bytes | None) -> int:
    return zlib.crc32(vector or b"", zlib.crc32(record.encode()))


def any_in(connection: sqlite3.Connection) -> bool:
    """Return whether any memory of the store is merged into another."""
    return connection.execute("SELECT 1 FROM merged LIMIT 1").fetchone() is not None
