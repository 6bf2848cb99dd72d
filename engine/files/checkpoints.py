"""How far jobs that did not end have read their files, kept in the ledger: set by the transaction that stores the rows.

A job that runs to its end leaves nothing here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

TABLE: Final = """
-- How far ingesting has come in files, of jobs that have not ended. file: a hash of where it lies.
CREATE TABLE ingesting (
    file TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    row INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    rejects_bytes INTEGER NOT NULL
) WITHOUT ROWID;
"""


class Position(NamedTuple):
    """How far a file was read."""

    row: int = 0
    """Lines or rows."""
    offset: int = 0
    """Bytes of the decompressed file, for formats of lines."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far one file was read."""

    fingerprint: str
    """Of the file as it was: another is read from its beginning."""
    position: Position
    ended: bool
    """It was read to its end, and the job has others."""
    rejects_bytes: int
    """How long the reject file was."""


def key_of(identity: str, namespace: str | None) -> str:
    """Return what a file is known by: its place, and whose its rows are by default."""
    return blake2b(f"{namespace or ''}\0{identity}".encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def read(connection: sqlite3.Connection, key: str) -> Checkpoint | None:
    """Return how far a file was read, if a job that did not end has begun it."""
    query = "SELECT fingerprint, row, offset, ended, rejects_bytes FROM ingesting WHERE file = ?"
    found = connection.execute(query, (key,)).fetchone()
    return None if found is None else Checkpoint(found[0], Position(found[1], found[2]), bool(found[3]), found[4])


def write(connection: sqlite3.Connection, key: str, checkpoint: Checkpoint) -> None:
    """Set how far a file was read."""
    connection.execute(
        "INSERT OR REPLACE INTO ingesting VALUES (?, ?, ?, ?, ?, ?)",
        (
            key,
            checkpoint.fingerprint,
            *checkpoint.position,
            int(checkpoint.ended),
            checkpoint.rejects_bytes,
        ),
    )


def clear(connection: sqlite3.Connection, keys: Iterable[str]) -> None:
    """Forget how far files were read."""
    connection.executemany("DELETE FROM ingesting WHERE file = ?", ((key,) for key in keys))
