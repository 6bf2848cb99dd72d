"""What can be read of a damaged store, into a new one: every memory whose checksum holds, with all that belongs to it.

The ledger is read page by page (`pages`), not by SQL: a page that is damaged costs the rows on it and no others, also
where SQLite refuses the file. A row counts only if its checksum holds, so nothing is guessed. What the free list names,
and what a tombstone says has ended, stays away.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from jiyi import distilled, originals
from jiyi.analysis import analyse
from jiyi.checksums import (
    columns_are_sound,
    earlier_memory_checksum,
    is_earlier,
    memory_content_is_sound,
    namespace_checksum,
)
from jiyi.derived import flush_to_disk
from jiyi.errors import StoreError, StoreLockedError
from jiyi.ledger import FILE_NAME, LABEL_BITS, LABEL_MASK, DerivedRow, Ledger, as_memory_row
from jiyi.lock import WriterLock
from jiyi.memory import Memory
from jiyi.pages import Cell, Pages
from jiyi.paths import checked_path, shown
from jiyi.quoted import quoted
from jiyi.snapshots import beside, refuse_filled, rename

_BATCH: Final = 1_000
# Since the first format rows have become longer at their end; what is missing there is NULL.
_MEMORY_VALUES: Final = 19
_LEAST_MEMORY_VALUES: Final = 12
_COLUMNS_VALUES: Final = frozenset({10, 11})
_CARRIED: Final = ("embedder", "dim", "table", "vectors_version", "analyzer")


@dataclass(frozen=True, slots=True)
class LostMemory:
    """A memory that could not be read whole."""

    label: int
    """Its number in the old store, by the order in which memories were stored."""
    namespace: str | None
    id: str | None
    """None where that cannot be read either."""

    def __str__(self) -> str:
        called = f"label {self.label}" if self.id is None else f"{quoted(self.id)} (label {self.label})"
        return called if self.namespace is None else f"{called} in namespace {quoted(self.namespace)}"


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What became of a damaged store."""

    folder: Path
    """The new one."""
    saved: int
    """How many memories are in it."""
    lost: tuple[LostMemory, ...]
    """Those that are known to have been there and could not be read whole."""
    merged: int = 0
    """How many memories that were merged into others were saved besides."""
    without_vectors: int = 0
    """How many of those saved had a vector that could not be read: words find them; `reindex` embeds them anew."""
    notes: tuple[str, ...] = ()
    """What else is not as it was."""


@dataclass(slots=True)
class _Found:
    """What the pages of a ledger hold, by key where there is one."""

    memories: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    columns: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """Rows whose checksums hold: terms, freqs, tokens, vector."""
    usage: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    names: dict[int, set[str]] = field(default_factory=dict)
    merged: list[tuple[Any, ...]] = field(default_factory=list)
    batches: dict[int, tuple[int, str]] = field(default_factory=dict)
    given: list[tuple[Any, ...]] = field(default_factory=list)
    manifest: dict[str, Any] = field(default_factory=dict)
    known: dict[int, str | None] = field(default_factory=dict)
    """Keys of which something was seen, with their ids where an index has them."""


def salvage(
    store: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Salvaged:
    """Read what can be read of a damaged store into a new one; the damaged one stays as it is.

    Saved is every memory whose checksum holds, with its vector, terms, usage, facts and what was merged into it. It
    works without SQLite's help: on a ledger with damaged pages, a truncated one, one without its first page.

    What cannot be saved: a memory of which one byte is wrong; the names of namespaces where every page that has them
    is gone (they are called "recovered-<number>"); which model the vectors are from where the manifest is gone (they
    count as the caller's own, until `reindex`).

    Args:
        store: the damaged store's folder. Nobody may write to it.
        out: the new store's folder.
        progress: called with (memories written, memories in all).

    Raises:
        ValueError: there is no ledger, or the new folder is not empty.
        StoreLockedError: the store is open for writing.
        StoreError: the new store cannot be written; nothing is left of it.
    """
    source, folder = checked_path(store, "the damaged store's folder"), checked_path(out, "the new store's folder")
    if not (source / FILE_NAME).is_file():
        raise ValueError(f"{shown(source)} holds no {FILE_NAME}; name the folder of the damaged store")
    refuse_filled(folder, "name a new folder for what is saved")
    if folder.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"{shown(folder)} lies inside the damaged store; name a folder outside of it")
    lock: WriterLock | None = None
    try:
        with suppress(StoreError):
            try:
                lock = WriterLock(source)
            except StoreLockedError:
                raise _InUseError from None
        found = _read(Pages(source / FILE_NAME))
    except _InUseError:
        WriterLock(source)  # says who holds it
        raise
    finally:
        if lock is not None:
            lock.release()
    with beside(folder, f"saving {shown(source)} to {shown(folder)}") as partial:
        result = _write(found, partial, folder, progress)
        flush_to_disk(partial / FILE_NAME)
        rename(partial, folder)
    return result


class _InUseError(Exception):
    """Somebody writes to the store."""


# ------------------------------------------------------------------------------------------------------- reading


def _read(pages: Pages) -> _Found:
    found = _Found()
    roots = pages.roots()
    free = pages.free()
    beside_it = {name: root for name, root in roots.items() if name.startswith("columns_")}
    passed_over = set().union(*(pages.tree(root) for root in beside_it.values()), free)
    facts = pages.tree(roots["facts_by_subject"]) if "facts_by_subject" in roots else set()
    for page in pages.loose:  # first: what is known to be newer goes over it
        for cell in pages.cells(page):
            _take(cell, found, by_id=False)
    for number in range(1, pages.count + 1):
        page_now = pages.page(number)
        if page_now is None or number in passed_over:
            continue
        for cell in pages.cells(page_now, number):
            _take(cell, found, by_id=number not in facts)
    return found


def _take(cell: Cell, found: _Found, *, by_id: bool) -> None:
    """Put a cell where its shape says that it belongs."""
    rowid, values = cell
    count = len(values)
    if rowid is None:
        _take_entry(values, found, by_id=by_id)
    elif _LEAST_MEMORY_VALUES <= count <= _MEMORY_VALUES and values[0] is None:
        _take_memory(rowid, (*values, *[None] * (_MEMORY_VALUES - count)), found)
    elif count in _COLUMNS_VALUES and values[0] is None:
        _take_columns(rowid, values, found)
    elif count == 6 and values[0] is None and _whole(values[1:3]) and _whole(values[4:]):
        before = found.usage.get(rowid)
        if before is None or values[1] >= before[0]:
            found.usage[rowid] = (values[1], *values[2:])
    elif count == 7 and isinstance(values[3], str):
        found.merged.append(values)
    elif count == 3 and values[0] is None and isinstance(values[1], int) and isinstance(values[2], str):
        found.batches[rowid] = (values[1], values[2])
    elif count == 2 and values[0] is None:
        if isinstance(values[1], int):
            found.ended.add(values[1])
        elif isinstance(values[1], str):
            found.names.setdefault(rowid, set()).add(values[1])


def _take_entry(values: tuple[Any, ...], found: _Found, *, by_id: bool) -> None:
    """An index's entry, or a row of a table without row ids."""
    if len(values) == 2 and isinstance(values[0], str):
        found.manifest[values[0]] = values[1]
        if isinstance(values[1], int):  # a namespace's name looks alike; its number tells
            found.names.setdefault(values[1], set()).add(values[0])
    elif len(values) == 3 and by_id and _whole((values[0], values[2])) and isinstance(values[1], str):
        if values[2] >> LABEL_BITS == values[0] > 0:
            found.known[values[2]] = values[1]
    elif len(values) == 4 and _whole((values[0], values[2])) and isinstance(values[1], str):
        found.given.append(values)


def _take_memory(key: int, values: tuple[Any, ...], found: _Found) -> None:
    namespace, memory_id, checksum = values[1], values[2], values[10]
    if not isinstance(namespace, int) or key >> LABEL_BITS != namespace:
        return
    found.known.setdefault(key, memory_id if isinstance(memory_id, str) else None)
    row = (key, *values[2:10], *values[11:])
    if key not in found.memories and (is_earlier(checksum) or memory_content_is_sound(row, checksum)):
        found.memories[key] = (*row, checksum)


def _take_columns(key: int, values: tuple[Any, ...], found: _Found) -> None:
    # A ledger of the first format has no fact, and one that was upgraded since has it at the end.
    if len(values) == 10:
        values = (*values[:5], 0, *values[5:])
    elif isinstance(values[5], bytes):
        values = (*values[:5], values[10], *values[5:10])
    *row, checksum, vector = (key, *values[1:])
    if (vector is None or isinstance(vector, bytes)) and columns_are_sound(row, vector, checksum):
        found.columns[key] = (row[6], row[7], row[8], vector)
        found.known.setdefault(key, None)


def _whole(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int) for value in values)


# ------------------------------------------------------------------------------------------------------- writing


def _write(found: _Found, partial: Path, folder: Path, progress: Callable[[int, int], None] | None) -> Salvaged:
    notes: list[str] = []
    by_part = {namespace_checksum(name): name for names in found.names.values() for name in names}
    memories: dict[int, Memory] = {}
    nameless: set[int] = set()
    for key, (*row, checksum) in found.memories.items():
        if key in found.ended:
            continue
        memory = _named(row, checksum, found, by_part, nameless)
        if memory is not None:
            memories[key] = memory
    memories = _newest(memories)
    if nameless:
        notes.append(
            f"the names of {len(nameless)} namespaces could not be read; they are called "
            f"{', '.join(sorted(f'recovered-{number}' for number in nameless)[:3])}"
        )
    names = {key >> LABEL_BITS: memory.namespace for key, memory in memories.items()}
    columns = {key: found.columns[key] for key in memories if key in found.columns}
    manifest, dim = _manifest(found, columns, notes)
    ledger = Ledger(partial)
    try:
        without = _put_all(ledger, memories, columns, dim, manifest, progress)
        merged, orphans = _put_merged(ledger, found, names, memories, dim, notes)
        _put_distilled(ledger, found, names)
    finally:
        ledger.close()
    places = {(memory.namespace, memory.id) for memory in memories.values()}
    lost = [
        LostMemory(key & LABEL_MASK, names.get(key >> LABEL_BITS) or _only_name(found, key), memory_id)
        for key, memory_id in sorted(found.known.items(), key=lambda item: item[0] & LABEL_MASK)
        if key not in memories
        and key not in found.ended
        and (names.get(key >> LABEL_BITS) or _only_name(found, key), memory_id) not in places
    ]
    return Salvaged(folder, len(memories) + orphans, tuple(lost), merged, without, tuple(notes))


def _only_name(found: _Found, key: int) -> str | None:
    names = found.names.get(key >> LABEL_BITS, set())
    return next(iter(names)) if len(names) == 1 else None


def _named(row: list[Any], checksum: Any, found: _Found, by_part: dict[int, str], nameless: set[int]) -> Memory | None:
    """The memory of a row in the namespace that its checksum holds for; None where it holds for none."""
    number = row[0] >> LABEL_BITS
    used = found.usage.get(row[0], (0, 0, None, 0, 0))[1:]
    if is_earlier(checksum):
        for name in sorted(found.names.get(number, ())):
            memory = as_memory_row((*row, *used), name)
            if memory is not None and earlier_memory_checksum(memory) == checksum:
                return memory
        return None
    known_as = by_part.get(~int(checksum) & 0xFFFFFFFF)
    if known_as is None:
        nameless.add(number)
        known_as = f"recovered-{number}"
    return as_memory_row((*row, *used), known_as) or as_memory_row((*row, 0, None, 0, 0), known_as)


def _newest(memories: dict[int, Memory]) -> dict[int, Memory]:
    """Of memories with one id the one stored last, all in the order they were stored."""
    last: dict[tuple[str, str], int] = {}
    for key in sorted(memories, key=lambda key: key & LABEL_MASK):
        last[memories[key].namespace, memories[key].id] = key
    return {key: memories[key] for key in sorted(last.values(), key=lambda key: key & LABEL_MASK)}


def _manifest(
    found: _Found, columns: dict[int, tuple[Any, ...]], notes: list[str]
) -> tuple[dict[str, Any], int | None]:
    """What the new store says of its vectors, and their length."""
    manifest: dict[str, Any] = {name: found.manifest[name] for name in _CARRIED if name in found.manifest}
    lengths = [len(row[3]) // 4 for row in columns.values() if row[3] is not None]
    dim = manifest.get("dim")
    usual = max(set(lengths), key=lengths.count) if lengths else None
    if usual is not None and dim != usual:
        dim = manifest["dim"] = usual
    if usual is not None and not isinstance(manifest.get("embedder"), str):
        manifest["embedder"] = "external"
        notes.append("which model the vectors are from could not be read; `jiyi reindex` embeds every memory anew")
    return manifest, dim if isinstance(dim, int) else None


def _put_all(
    ledger: Ledger,
    memories: dict[int, Memory],
    columns: dict[int, tuple[Any, ...]],
    dim: int | None,
    manifest: dict[str, Any],
    progress: Callable[[int, int], None] | None,
) -> int:
    """Write the memories; return how many have lost their vectors."""
    without = 0
    keys = list(memories)
    for start in range(0, len(keys), _BATCH):
        part = keys[start : start + _BATCH]
        rows: list[DerivedRow] = []
        for key in part:
            held = columns.get(key)
            vector = None if held is None else held[3]
            if vector is not None and len(vector) != 4 * (dim or 0):
                vector = None
                without += 1
            if held is None:
                without += dim is not None
                (made,) = analyse([memories[key]], [None], None, None)
                # Its terms are cut by this release; those of the others are when the store is opened, if need be.
                rows.append(made)
            else:
                rows.append(DerivedRow(vector, held[0], held[1], held[2]))
        ledger.put([memories[key] for key in part], rows, manifest if start == 0 else {})
        if progress is not None:
            progress(start + len(part), len(keys))
    if not keys:
        ledger.put([], [], manifest)
    return without


def _put_merged(
    ledger: Ledger,
    found: _Found,
    names: dict[int, str],
    memories: dict[int, Memory],
    dim: int | None,
    notes: list[str],
) -> tuple[int, int]:
    """Hide merged memories behind what they are merged into; give those back of which that is lost. Return how many."""
    there = {(memory.namespace, memory.id) for memory in memories.values()}
    count, orphans = 0, 0
    seen: set[tuple[int, str]] = set()
    for namespace, memory_id, into_id, record, vector, model, checksum in reversed(found.merged):
        if (namespace, memory_id) in seen or not originals.is_sound(record, vector, checksum):
            continue
        seen.add((namespace, memory_id))
        try:
            memory = Memory.from_dict(json.loads(record))
        except (TypeError, ValueError, RecursionError):
            continue
        name = names.get(namespace, memory.namespace)
        if (name, into_id) in there:
            original = originals.Original(memory, vector, model)
            with ledger.changing() as connection:
                number = connection.execute("SELECT namespace FROM namespaces WHERE name = ?", (name,)).fetchone()
                if number is not None:
                    originals.keep(connection, int(number[0]), into_id, [original])
                    count += 1
        elif (name, memory_id) not in there and not _ended_since(found, namespace, into_id):
            usable = vector is not None and dim is not None and len(vector) == 4 * dim
            given = np.frombuffer(vector, np.float32) if usable else None
            ledger.put([memory], analyse([memory], [given], None, None), {})
            orphans += 1
    if orphans:
        notes.append(f"{orphans} memories that were merged into one that is lost are memories of their own again")
    return count, orphans


def _ended_since(found: _Found, namespace: int, into_id: str) -> bool:
    """Whether what a memory was merged into was deleted, and not lost."""
    return not any(
        known_id == into_id and key >> LABEL_BITS == namespace and key not in found.ended
        for key, known_id in found.known.items()
    )


def _put_distilled(ledger: Ledger, found: _Found, names: dict[int, str]) -> None:
    """What extractors were given, so that they are not given it again."""

    def rows(numbers: dict[str, int]) -> Iterator[tuple[int, str, int, int | None]]:
        for namespace, memory_id, batch, state in found.given:
            number = numbers.get(names.get(namespace, ""))
            if number is not None and batch in found.batches and (state is None or isinstance(state, int)):
                yield number, memory_id, batch, state

    if not found.batches:
        return
    with ledger.changing() as connection:
        numbers = dict(connection.execute("SELECT name, namespace FROM namespaces").fetchall())
        for batch, (namespace, extractor) in found.batches.items():
            number = numbers.get(names.get(namespace, ""))
            if number is not None:
                connection.execute("INSERT INTO distilled VALUES (?, ?, ?)", (batch, number, extractor))
        connection.executemany("INSERT OR REPLACE INTO distilled_ids VALUES (?, ?, ?, ?)", rows(numbers))
        distilled.tidy(connection)
