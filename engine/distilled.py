"""The tables of what was distilled: which memories an extractor was given, in which batches, and what it made of them.

A row of a memory goes when the memory does; a batch of which nothing is left goes with `compact`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from jiyi.memory import Memory
from jiyi.timestamps import to_microseconds

TABLES: Final = """
-- A batch of memories that an extractor was given.
CREATE TABLE distilled (batch INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, extractor TEXT NOT NULL);
CREATE INDEX distilled_by_extractor ON distilled (namespace, extractor);
-- state: a hash of what a memory of the batch said; NULL for a memory that the extractor made of the batch.
CREATE TABLE distilled_ids (
    namespace INTEGER NOT NULL,
    id TEXT NOT NULL,
    batch INTEGER NOT NULL,
    state INTEGER,
    PRIMARY KEY (namespace, id, batch)
) WITHOUT ROWID;
CREATE INDEX distilled_ids_by_batch ON distilled_ids (batch);
"""


@dataclass(slots=True)
class DistilledBatch:
    """One batch, as it is remembered."""

    number: int
    states: dict[str, int] = field(default_factory=dict)
    """What was given, by id: a hash of what it said."""
    results: list[str] = field(default_factory=list)
    """Ids of what the extractor made of it."""


def state_of(memory: Memory) -> int:
    """Return 63 bits that change when a memory says something else: its text, speaker, session or time."""
    said = (memory.text, memory.speaker, memory.session, to_microseconds(memory.timestamp))
    return int.from_bytes(blake2b(repr(said).encode(), digest_size=8).digest(), "little") >> 1


def batches_of(connection: sqlite3.Connection, namespace: int, extractor: str) -> list[DistilledBatch]:
    """Return the batches that an extractor was given, oldest first."""
    found = {
        number: DistilledBatch(number)
        for (number,) in connection.execute(
            "SELECT batch FROM distilled WHERE namespace = ? AND extractor = ? ORDER BY batch", (namespace, extractor)
        )
    }
    rows = connection.execute(
        "SELECT i.batch, i.id, i.state FROM distilled d JOIN distilled_ids i USING (batch) "
        "WHERE d.namespace = ? AND d.extractor = ? ORDER BY i.batch, i.id",
        (namespace, extractor),
    )
    for number, memory_id, state in rows:
        if state is None:
            found[number].results.append(memory_id)
        else:
            found[number].states[memory_id] = state
    return list(found.values())


def superseded_by(
    connection: sqlite3.Connection, namespace: int, extractor: str, ids: Sequence[str]
) -> dict[int, list[str]]:
    """Return earlier batches of an extractor that a batch takes the place of, each with what was made of it.

    Those are the ones of which every memory that is still there is in the new batch too.
    """
    given = (namespace, extractor, json.dumps(ids))
    touched = connection.execute(
        "SELECT DISTINCT i.batch FROM distilled_ids i JOIN distilled d USING (batch) WHERE i.namespace = ? "
        "AND d.extractor = ? AND i.state IS NOT NULL AND i.id IN (SELECT value FROM json_each(?)) ORDER BY i.batch",
        given,
    ).fetchall()
    found: dict[int, list[str]] = {}
    for (number,) in touched:
        live = connection.execute(
            "SELECT m.id FROM distilled_ids i JOIN memories m ON m.namespace = i.namespace AND m.id = i.id "
            "WHERE i.batch = ? AND i.state IS NOT NULL",
            (number,),
        )
        if {row[0] for row in live} <= set(ids):
            made = connection.execute("SELECT id FROM distilled_ids WHERE batch = ? AND state IS NULL", (number,))
            found[number] = [row[0] for row in made]
    return found


def known(connection: sqlite3.Connection, namespace: int, extractor: str, states: Mapping[str, int]) -> bool:
    """Return whether an extractor was given every one of these memories, by id, as it is now."""
    rows = connection.execute(
        "SELECT i.id, i.state FROM distilled_ids i JOIN distilled d USING (batch) WHERE i.namespace = ? "
        "AND d.extractor = ? AND i.state IS NOT NULL AND i.id IN (SELECT value FROM json_each(?))",
        (namespace, extractor, json.dumps(list(states))),
    )
    return set(rows) >= set(states.items())


def remember(
    connection: sqlite3.Connection,
    namespace: int,
    extractor: str,
    states: Mapping[str, int],
    results: Iterable[str],
    instead_of: Sequence[int],
) -> int:
    """Keep a batch, in place of those numbered; return its number."""
    for number in instead_of:
        connection.execute("DELETE FROM distilled_ids WHERE batch = ?", (number,))
        connection.execute("DELETE FROM distilled WHERE batch = ?", (number,))
    row = connection.execute(
        "INSERT INTO distilled (namespace, extractor) VALUES (?, ?) RETURNING batch", (namespace, extractor)
    ).fetchone()
    number = int(row[0])
    rows: list[tuple[int, str, int, int | None]] = [
        (namespace, memory_id, number, state) for memory_id, state in states.items()
    ]
    rows += [(namespace, memory_id, number, None) for memory_id in results]
    connection.executemany("INSERT OR REPLACE INTO distilled_ids VALUES (?, ?, ?, ?)", rows)
    return number


def keys_of(connection: sqlite3.Connection, namespace: int, ids: Sequence[str]) -> list[int]:
    """Return the keys of those memories that are there."""
    query = "SELECT key FROM memories WHERE namespace = ? AND id IN (SELECT value FROM json_each(?)) ORDER BY key"
    return [row[0] for row in connection.execute(query, (namespace, json.dumps(ids)))]


def ended(connection: sqlite3.Connection, places: Iterable[tuple[int, str]]) -> None:
    """Forget that memories, by (namespace, id), were given or made."""
    if connection.execute("SELECT 1 FROM distilled_ids LIMIT 1").fetchone() is not None:
        connection.executemany("DELETE FROM distilled_ids WHERE namespace = ? AND id = ?", places)


def tidy(connection: sqlite3.Connection) -> None:
    """Forget batches of which nothing is left."""
    connection.execute("DELETE FROM distilled WHERE batch NOT IN (SELECT batch FROM distilled_ids)")
