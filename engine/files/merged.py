"""Rows of memories that are merged into another one: hidden behind it, as they were in the store they come from."""

from __future__ import annotations

import sqlite3
from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi import originals
from jiyi.files.known import Known, same_memory
from jiyi.files.rows import Batch, HiddenRow
from jiyi.memory import Memory
from jiyi.originals import Original
from jiyi.store import Store

_KEY: Final = "SELECT m.key FROM memories m JOIN namespaces n USING (namespace) WHERE n.name = ? AND m.id = ?"


def hide(store: Store, batch: Batch) -> list[Known]:
    """Hide the rows of a batch whose others are written, in the transaction that wrote them; say what was there.

    A memory that has the id of one goes behind the scenes with it. A row whose id another row of the batch has that
    comes later is passed over, as that one counts; one whose memory has left meanwhile is a memory by itself.
    """
    hidden: dict[tuple[str, str], list[Original]] = {}
    ending: list[int] = []
    alone: list[HiddenRow] = []
    told: list[Known] = []
    rows = _counting(batch)
    with store.ledger.changing() as connection:
        for row, counts in rows:
            name, memory = row.memory.namespace, row.memory
            found = _known(connection, store, row) if counts else Known.SAME
            told.append(found)
            if found is Known.SAME:
                continue
            if connection.execute(_KEY, (name, row.into_id)).fetchone() is None:
                alone.append(row)
                continue
            vector = None if row.vector is None else row.vector.tobytes()
            hidden.setdefault((name, row.into_id), []).append(Original(memory, vector, store.vectors_model))
            if memory.id != row.into_id:
                ending.extend(key for (key,) in connection.execute(_KEY, (name, memory.id)))

    def keep(connection: sqlite3.Connection) -> None:
        for (name, into_id), of_it in hidden.items():
            number = connection.execute("SELECT namespace FROM namespaces WHERE name = ?", (name,)).fetchone()
            originals.keep(connection, int(number[0]), into_id, of_it)

    if hidden:
        store.write([], [], ending=ending, hiding=True, then=keep)
    if alone:
        store.write([row.memory for row in alone], [row.vector for row in alone])
    return told


def known(connection: sqlite3.Connection, store: Store, batch: Batch) -> list[Known]:
    """Return what the store has of the hidden rows of a batch."""
    return [_known(connection, store, row) if counts else Known.SAME for row, counts in _counting(batch)]


def _counting(batch: Batch) -> list[tuple[HiddenRow, bool]]:
    """The hidden rows, and whether no later row of the batch has the same id."""
    last: dict[tuple[str, str], int] = {}
    for place, memory in enumerate(batch.memories):
        last[memory.namespace, memory.id] = place
    last_hidden = {(row.memory.namespace, row.memory.id): i for i, row in enumerate(batch.hidden)}
    rows: list[tuple[HiddenRow, bool]] = []
    for i, row in enumerate(batch.hidden):
        named = row.memory.namespace, row.memory.id
        later = row.memory.id != row.into_id and last.get(named, -1) >= row.place
        rows.append((row, not later and last_hidden[named] == i))
    return rows


def _known(connection: sqlite3.Connection, store: Store, row: HiddenRow) -> Known:
    query = (
        "SELECT o.into_id, o.memory, o.vector, o.model, o.checksum FROM merged o JOIN namespaces n USING (namespace) "
        "WHERE n.name = ? AND o.id = ?"
    )
    found = connection.execute(query, (row.memory.namespace, row.memory.id)).fetchone()
    if found is None:
        query = f"{_KEY} AND m.id <> ?"
        other = connection.execute(query, (row.memory.namespace, row.memory.id, row.into_id)).fetchone()
        return Known.NEW if other is None else Known.OTHER
    into_id, record, vector, model, checksum = found
    fits = _fits(row.vector, vector if model == store.vectors_model else None)
    if not originals.is_sound(record, vector, checksum) or into_id != row.into_id or not fits:
        return Known.OTHER
    stored = Memory.from_dict(originals.record_of(record))
    return Known.SAME if same_memory(stored, row.memory, dated=row.dated) else Known.OTHER


def _fits(given: NDArray[np.float32] | None, stored: bytes | None) -> bool:
    """Whether a vector would change nothing."""
    return given is None or given.tobytes() == stored
