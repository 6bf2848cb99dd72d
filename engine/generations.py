"""Generations of the columns: the one that serves, and those beside it, as tables of the ledger.

What is derived of memories (terms, token rows, vectors) lies in one table a generation. The one that serves is always
called `columns`, any other `columns_<its number>`; a switch renames both in one small transaction, so that nothing is
rewritten and whoever reads meanwhile goes on in the one he began with. Beside it there may be one that is *building*
(a reindex), one that is *kept* (to go back to) and some that are *dropping* (a few rows at a time).

Memories that are stored meanwhile are noted for each that is building or kept (`behind`), in the transaction that
stores them; memories that end leave every generation in the transaction that ends them. A generation's `cursor` is the
checkpoint of the first sweep over all memories by key: what is up to it and not in `behind` is in it.

All functions work within the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

BUILDING: Final = "building"
KEPT: Final = "kept"
DROPPING: Final = "dropping"

#: What is derived of each memory, one table a generation. key = namespace << 40 | label, as in memories.
COLUMNS: Final = """
CREATE TABLE {table} (
    key INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    timestamp_us INTEGER NOT NULL,
    expires_us INTEGER,
    session INTEGER NOT NULL,  -- hash of its name, 0 for none
    fact INTEGER NOT NULL DEFAULT 0,  -- hash of what facts that supersede each other share, 0 for none
    terms BLOB NOT NULL,
    freqs BLOB NOT NULL,
    tokens BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    vector BLOB  -- last: the others are read without it
);
"""

TABLES: Final = """
-- Generations of the columns beside the one that serves.
CREATE TABLE generations (
    generation INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    embedder TEXT,
    dim INTEGER,
    token_table TEXT,
    analyzer TEXT,
    vectors_version INTEGER NOT NULL,
    cursor INTEGER NOT NULL,
    done INTEGER NOT NULL
);
-- Memories that a generation beside has not taken in.
CREATE TABLE behind (
    generation INTEGER NOT NULL,
    key INTEGER NOT NULL,
    PRIMARY KEY (generation, key)
) WITHOUT ROWID;
"""

_FIELDS: Final = "generation, state, embedder, dim, token_table, analyzer, vectors_version, cursor, done"

# Above every key: the sweep is over.
SWEPT: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation beside the one that serves."""

    number: int
    state: str
    embedder: str | None
    """Name of the model of its vectors; None for a store that has none yet."""
    dim: int | None
    table: str | None
    """Name of the token table, where that is not the embedder itself."""
    analyzer: str | None
    """Version of the analysis that cut its terms."""
    vectors_version: int
    """Number of the generation in which its vectors were made: two of the same have the same vectors."""
    cursor: int
    """Key up to which the sweep has come."""
    done: int
    """How many memories the sweep has taken in."""

    @property
    def swept(self) -> bool:
        """Whether the first sweep over all memories has ended."""
        return self.cursor == SWEPT


def table_of(connection: sqlite3.Connection, number: int | None) -> str:
    """Return the name of a generation's table, as of the moment that a connection sees; of the serving one for None."""
    return "columns" if number is None or number == serving(connection) else f"columns_{number}"


def serving(connection: sqlite3.Connection) -> int:
    """Return the number of the generation that serves."""
    return _entry(connection, "generation")


def beside(connection: sqlite3.Connection) -> list[Generation]:
    """Return every generation beside the one that serves, oldest first."""
    return [Generation(*row) for row in connection.execute(f"SELECT {_FIELDS} FROM generations ORDER BY generation")]


def begin(
    connection: sqlite3.Connection,
    *,
    embedder: str | None,
    dim: int | None,
    table: str | None,
    analyzer: str | None,
    same_vectors: bool,
) -> Generation:
    """Make the table of a generation that is to be built; return it.

    Args:
        connection: of a write transaction.
        embedder, dim, table, analyzer: see `Generation`.
        same_vectors: its vectors are those of the one that serves.
    """
    # Numbers are never used twice, so that whoever slept through two switches sees that there was one.
    last = max(
        _entry(connection, "generation"), _entry(connection, "vectors_version"), _entry(connection, "last_generation")
    )
    number = last + 1
    _set(connection, {"last_generation": number})
    connection.execute(COLUMNS.format(table=f"columns_{number}"))
    version = _entry(connection, "vectors_version") if same_vectors else number
    made = Generation(number, BUILDING, embedder, dim, table, analyzer, version, -1, 0)
    connection.execute(f"INSERT INTO generations ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", _row(made))
    return made


def added(connection: sqlite3.Connection, keys: Sequence[int]) -> None:
    """Note memories that were stored for those generations that have to take them in."""
    for (number,) in connection.execute(f"SELECT generation FROM generations WHERE state <> '{DROPPING}'").fetchall():
        connection.executemany("INSERT OR IGNORE INTO behind VALUES (?, ?)", ((number, key) for key in keys))


def ended(connection: sqlite3.Connection, keys: Sequence[int]) -> None:
    """Delete what every generation beside has of memories that ended."""
    for (number,) in connection.execute("SELECT generation FROM generations").fetchall():
        connection.executemany(f"DELETE FROM columns_{number} WHERE key = ?", ((key,) for key in keys))
        connection.executemany("DELETE FROM behind WHERE generation = ? AND key = ?", ((number, key) for key in keys))


def stage(
    connection: sqlite3.Connection,
    number: int,
    columns: str,
    rows: Sequence[Sequence[Any]],
    *,
    cursor: int | None = None,
    done: int = 0,
) -> None:
    """Take memories into a generation; those that are gone by now are passed over.

    Args:
        connection: of a write transaction.
        number: the generation.
        columns: names of what the rows hold, key first.
        rows: of its table.
        cursor: how far the sweep has come with them; None when they are none of it.
        done: how many more the sweep has taken in.
    """
    places = ", ".join(f"?{place}" for place in range(1, columns.count(",") + 2))
    connection.executemany(
        f"INSERT OR REPLACE INTO columns_{number} ({columns}) "
        f"SELECT {places} WHERE EXISTS (SELECT 1 FROM memories WHERE key = ?1)",
        rows,
    )
    connection.executemany("DELETE FROM behind WHERE generation = ? AND key = ?", ((number, row[0]) for row in rows))
    if cursor is not None:
        connection.execute(
            "UPDATE generations SET cursor = ?, done = done + ? WHERE generation = ?", (cursor, done, number)
        )


def behind(connection: sqlite3.Connection, number: int, most: int) -> list[int]:
    """Return keys of memories that a generation has not taken in, ascending."""
    query = "SELECT key FROM behind WHERE generation = ? ORDER BY key LIMIT ?"
    return [row[0] for row in connection.execute(query, (number, most))]


def count_behind(connection: sqlite3.Connection, number: int) -> int:
    """Return how many memories a generation has not taken in, but for those that the sweep has not come to."""
    return int(connection.execute("SELECT count(*) FROM behind WHERE generation = ?", (number,)).fetchone()[0])


def complete_up_to(connection: sqlite3.Connection, number: int, first: int, last: int) -> int:
    """Return the key, of those from `first` to `last`, up to which a generation has taken in every memory."""
    query = "SELECT min(key) FROM behind WHERE generation = ? AND key BETWEEN ? AND ?"
    found = connection.execute(query, (number, first, last)).fetchone()[0]
    return last if found is None else int(found) - 1


def missing(connection: sqlite3.Connection, found: Generation) -> list[int]:
    """Return keys of memories that a generation should have and has not: none, unless it is damaged."""
    query = (
        f"SELECT key FROM memories WHERE key <= ?1 EXCEPT SELECT key FROM columns_{found.number} "
        "EXCEPT SELECT key FROM behind WHERE generation = ?2"
    )
    return [row[0] for row in connection.execute(query, (found.cursor, found.number))]


def switch(connection: sqlite3.Connection, to: int, *, keep: bool) -> None:
    """Let another generation serve, which must have taken in every memory.

    The one that served is kept, or marked to be dropped; so is one that was kept before.
    """
    found = next(generation for generation in beside(connection) if generation.number == to)
    if not found.swept or behind(connection, to, 1):
        raise RuntimeError(f"generation {to} has not taken in every memory")
    manifest = dict(connection.execute("SELECT key, value FROM manifest").fetchall())
    left = Generation(
        number=serving(connection),
        state=KEPT if keep else DROPPING,
        embedder=manifest.get("embedder"),
        dim=manifest.get("dim"),
        table=manifest.get("table"),
        analyzer=manifest.get("analyzer"),
        vectors_version=manifest.get("vectors_version", 0),
        cursor=SWEPT,
        done=found.done,
    )
    connection.execute(f"UPDATE generations SET state = '{DROPPING}' WHERE state = '{KEPT}' AND generation <> ?", (to,))
    connection.execute(f"ALTER TABLE columns RENAME TO columns_{left.number}")
    connection.execute(f"ALTER TABLE columns_{to} RENAME TO columns")
    connection.execute("DELETE FROM generations WHERE generation = ?", (to,))
    connection.execute(f"INSERT INTO generations ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", _row(left))
    entries = {
        "embedder": found.embedder,
        "dim": found.dim,
        "table": found.table,
        "analyzer": found.analyzer,
        "vectors_version": found.vectors_version,
        "generation": to,
    }
    _set(connection, {key: value for key, value in entries.items() if value is not None})
    connection.executemany(
        "DELETE FROM manifest WHERE key = ?", [(k,) for k, value in entries.items() if value is None]
    )


def release(connection: sqlite3.Connection, number: int) -> None:
    """Mark a generation beside to be dropped: nothing is taken into it any more."""
    connection.execute(f"UPDATE generations SET state = '{DROPPING}' WHERE generation = ?", (number,))


def drop_some(connection: sqlite3.Connection, number: int, most: int) -> bool:
    """Delete so many rows of a generation that is dropping, then the generation; return whether it is gone.

    Few at a time: dropping a table of a million rows at once would keep writers waiting.
    """
    last = connection.execute(
        f"SELECT key FROM columns_{number} ORDER BY key LIMIT 1 OFFSET ?", (max(most - 1, 0),)
    ).fetchone()
    if last is not None:
        connection.execute(f"DELETE FROM columns_{number} WHERE key <= ?", last)
        return False
    kept_back = behind(connection, number, most)
    connection.executemany("DELETE FROM behind WHERE generation = ? AND key = ?", ((number, key) for key in kept_back))
    if len(kept_back) == most:
        return False
    connection.execute(f"DROP TABLE columns_{number}")
    connection.execute("DELETE FROM generations WHERE generation = ?", (number,))
    return True


def _row(generation: Generation) -> tuple[Any, ...]:
    return (
        generation.number,
        generation.state,
        generation.embedder,
        generation.dim,
        generation.table,
        generation.analyzer,
        generation.vectors_version,
        generation.cursor,
        generation.done,
    )


def _entry(connection: sqlite3.Connection, key: str) -> int:
    row = connection.execute("SELECT value FROM manifest WHERE key = ?", (key,)).fetchone()
    return 0 if row is None else int(row[0])


def _set(connection: sqlite3.Connection, entries: dict[str, Any]) -> None:
    connection.executemany("INSERT OR REPLACE INTO manifest VALUES (?, ?)", list(entries.items()))
