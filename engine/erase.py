"""What erasing means for files: no table of the ledger and no derived file may hold what was erased.

`Store.erase` goes through these steps, of which each can be done again:

1. in one transaction the rows are deleted, and a note in the manifest says that an erasure is under way;
2. the indexes of the namespaces concerned are dropped, from memory and disk, with what is being built of them;
3. the ledger is written anew without its free pages (VACUUM), and the write-ahead log is emptied into it;
4. the note is taken out.

A process that dies in between leaves the note, and the next that opens the store for writing goes on from there.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from jiyi import originals
from jiyi.derived import generations_of
from jiyi.errors import StoreError
from jiyi.filters import Test, holds
from jiyi.quoted import quoted

#: Manifest entry of a store in which an erasure has not ended: the numbers of its namespaces, as a JSON list.
NOTE: Final = "erasing"

# What a namespace's own rows are not in, or holds numbers alone.
_NOT_OF_MEMORIES: Final = frozenset({"manifest", "namespaces", "memories", "tombstones"})

_RETRY_S: Final = 0.05


def purge_leftovers(connection: sqlite3.Connection) -> None:
    """Delete from every table that keeps something by a memory's key what belongs to no memory any more.

    Those are the tables that memories are spread over, and what a reindex has staged, which keeps the vectors of
    memories that were replaced meanwhile.
    """
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    for (table,) in tables.fetchall():
        columns = {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}
        if "key" in columns and table not in _NOT_OF_MEMORIES:
            connection.execute(f'DELETE FROM "{table}" WHERE key NOT IN (SELECT key FROM memories)')


def refuse_merged(connection: sqlite3.Connection, namespace: int, ids: Sequence[str]) -> None:
    """Raise if one of the ids is that of a memory which is merged into another that is not among them.

    That one may say the same words, and stays: erasing would seem to have done what it cannot.
    """
    query = (
        "SELECT id, into_id FROM merged WHERE namespace = ?1 AND id <> into_id "
        "AND id IN (SELECT value FROM json_each(?2)) AND into_id NOT IN (SELECT value FROM json_each(?2)) LIMIT 1"
    )
    found = connection.execute(query, (namespace, json.dumps(list(ids)))).fetchone()
    if found is not None:
        raise ValueError(
            f"{quoted(found[0])} is merged into {quoted(found[1])}; erase that one, or undo it first (unconsolidate)"
        )


def refuse_hidden(connection: sqlite3.Connection, namespace: int, test: Test, keys: Sequence[int]) -> None:
    """Raise if a filter holds for a memory as it was before it was merged into one that is not among the keys.

    That one stays, and with it all that is hidden behind it.
    """
    query = "SELECT id FROM memories WHERE namespace = ? AND key IN (SELECT value FROM json_each(?))"
    going: set[str] | None = None
    for into_id, memory in originals.every(connection, namespace):
        if not holds(test, memory):
            continue
        if going is None:
            going = {row[0] for row in connection.execute(query, (namespace, json.dumps(list(keys))))}
        if into_id not in going:
            raise ValueError(
                f"the filter holds for {quoted(memory.id)} as it was before it was merged into {quoted(into_id)}, and "
                "not for what it is merged into; erase that one by its id, or undo it first (unconsolidate)"
            )


def empty_log(connection: sqlite3.Connection, wait_s: float, who_reads: Callable[[], str]) -> None:
    """Move the write-ahead log into the database file and cut it to nothing.

    Args:
        connection: with the right to write, in no transaction.
        wait_s: how long to wait for readers that still need the log.
        who_reads: names them.

    Raises:
        StoreError: somebody still reads from before; the log is as it was.
    """
    connection.execute(f"PRAGMA busy_timeout = {round(wait_s * 1000)}")
    try:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute("PRAGMA busy_timeout = 30000")
    if busy:
        raise StoreError(
            f"the memories are deleted, and their bytes still stand in the store's write-ahead log: {who_reads()} has "
            f"been reading for {wait_s:g} s what stood there before. End that (a long list, export or snapshot) and "
            "erase again; compacting, or the next opening for writing, goes on with it too"
        )


def remove_index_files(folder: Path, namespaces: set[int], wait_s: float) -> None:
    """Remove every generation of some namespaces' indexes, and make sure that they are gone.

    Raises:
        StoreError: one cannot be removed (where open files cannot be, a search in another process may hold it).
    """
    deadline = time.monotonic() + wait_s
    while True:
        left = [path for path in generations_of(folder) if _number_of(path) in namespaces]
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        left = [path for path in left if path.exists()]
        if not left:
            return
        if time.monotonic() > deadline:
            raise StoreError(
                f"the memories are deleted, and {left[0]}, which holds vectors or words of them, cannot be removed; "
                "close what has it open and erase again"
            )
        time.sleep(_RETRY_S)


def _number_of(generation: Path) -> int | None:
    """The namespace's number in `<name>-<number>-<sequence>`."""
    number = generation.name.split("-")[-2]
    return int(number) if number.isdecimal() else None
