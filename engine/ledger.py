"""The ledger: one SQLite file that is the single source of truth.

Everything else (columns in memory, hnswlib graphs, Tantivy indexes) is derived from it and can be thrown away.
Every change takes the next *sequence number*; a memory's *label* is the number of the change that wrote it, so
labels grow with time and are never used twice: a replaced memory is a new row under a new label.

Rows are keyed by `namespace << 40 | label`. A namespace is therefore one contiguous range of the file, which is
read in one sweep when its partition is loaded, however interleaved the writes of many tenants were.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from jiyi import acknowledged, distilled, generations, originals, page_sums
from jiyi.acknowledged import Acknowledged
from jiyi.checksums import (
    any_earlier,
    columns_are_sound,
    columns_checksum,
    columns_checksums,
    earlier_memory_checksum,
    is_earlier,
    memory_checksum,
    memory_is_sound,
    namespace_checksum,
    unsound_rows,
    unsound_vectors,
)
from jiyi.connections import Connections
from jiyi.copying import Copied, copy_ledger
from jiyi.derived import flush_to_disk, remove_partial
from jiyi.disk_errors import os_error_of
from jiyi.erase import NOTE, empty_log, purge_leftovers
from jiyi.errors import ClosedError, DamagedError, StoreError, StoreVersionError
from jiyi.memory import KINDS, Memory
from jiyi.migration import keep_copy, remove_copies
from jiyi.paths import said_by, shown
from jiyi.schema import FORMAT_VERSION, SCHEMA, UPGRADES
from jiyi.timestamps import from_microseconds, to_microseconds

Durability = Literal["process", "power"]

FILE_NAME: Final = "ledger.sqlite"

#: What a StoreError advises where bytes of the ledger have changed.
DAMAGED: Final = (
    "the ledger is damaged: `jiyi verify` lists what is, `jiyi verify --repair OUT` saves what can be read into a new "
    "store, and a snapshot can be put in its place (`jiyi restore`)"
)

# Namespaces whose numbers are remembered: a store may have a million.
_MOST_NAMES: Final = 1_024
# As many rows as there are.
_ALL: Final = 2**31 - 1
_UNDECODABLE: Final = "Could not decode to UTF-8"

LABEL_BITS: Final = 40
LABEL_MASK: Final = (1 << LABEL_BITS) - 1

#: What `to_memory` takes.
MEMORY_FIELDS: Final = (
    "m.key, m.id, m.kind, m.timestamp_us, m.expires_us, m.session, m.speaker, m.metadata, m.sources, m.text, "
    "m.subject, m.predicate, m.object, m.multivalued, m.title, m.steps, m.use_when, "
    "u.uses, u.last_used_us, u.successes, u.failures, m.checksum"
)
_USAGE: Final = "LEFT JOIN usage u ON u.key = m.key"
_FROM_MEMORIES: Final = f"FROM memories m JOIN namespaces n ON n.namespace = m.namespace {_USAGE}"

COLUMN_FIELDS: Final = "key, kind, timestamp_us, expires_us, session, fact, terms, freqs, tokens"
ColumnRow = tuple[int, int, int, int | None, int, int, bytes, bytes, bytes]

_STORED: Final = (
    "key, namespace, id, kind, timestamp_us, expires_us, session, speaker, metadata, sources, checksum, text, "
    "subject, predicate, object, multivalued, title, steps, use_when"
)

_INSERT_MEMORY: Final = f"INSERT INTO memories ({_STORED}) VALUES ({', '.join('?' * len(_STORED.split(', ')))})"
_INSERT_COLUMNS: Final = (
    f"INSERT INTO columns ({COLUMN_FIELDS}, checksum, vector) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

_USAGE_FIELDS: Final = "key, uses, last_used_us, successes, failures"
UsageRow = tuple[int, int, int | None, int, int]
"""key, uses, last_used_us, successes, failures: how a memory was used, as it is now."""


@dataclass(frozen=True, slots=True)
class DerivedRow:
    """What analysis made of one memory, as the bytes that the ledger keeps."""

    vector: bytes | None
    """float32 (dim,), as given: not normalised."""
    terms: bytes
    """uint64, ascending."""
    freqs: bytes
    """uint16, one a term."""
    tokens: bytes
    """uint32 rows of the token table, in text order."""


@dataclass(frozen=True, slots=True)
class Written:
    """What one transaction did: the keys it made, in the order given, and the keys it ended."""

    keys: list[int]
    ended: list[int]
    sequence: int
    usage: list[UsageRow] = field(default_factory=list)
    """How memories were used, of those for which this changed (and of the new ones that were used before)."""
    rows: list[ColumnRow] = field(default_factory=list)
    """What it has put into the columns, but for the vectors: one row a key."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened to a namespace, as of one moment."""

    rows: list[ColumnRow]
    """New rows without their vectors, oldest first."""
    vectors: Iterator[list[bytes | None]]
    """Their vectors in parts: they are most of the bytes, and no two copies of all should be in memory."""
    ended: list[int] | None
    """Keys of all namespaces that ended; None when `compact` has forgotten some of them."""
    usage: list[UsageRow]
    """How memories were used, of those for which this changed."""
    sequence: int
    connection: sqlite3.Connection
    """Sees that moment."""
    generation: int
    """The one that serves at that moment."""
    damaged: list[int] = field(default_factory=list)
    """Keys of rows that are not what was written. They are not among the rows; those that only their vectors tell are,
    without vectors, and are added when those have been read: they have to be ended then."""
    complete: bool = True
    """Whether the generation that was asked for has everything of the namespace."""


class _SoundColumns:
    """The rows of columns within a range of keys that are what was written."""

    def __init__(self, connection: sqlite3.Connection, within: str, parameters: tuple[int, int]) -> None:
        self._connection, self._within, self._parameters = connection, within, parameters
        query = f"SELECT {COLUMN_FIELDS}, checksum {within}"
        found = list(chain.from_iterable(read_parts(connection, query, parameters, _ALL)))
        # Each with its checksum behind: cutting that off would take as long as checking it.
        self.rows: list[ColumnRow] = found
        self._checksums: list[Any] = [row[9] for row in found]
        self._earlier = any_earlier(self._checksums)
        self._unsound = unsound_rows(found, self._checksums)
        self.damaged: list[int] = [found[place][0] for place in sorted(self._unsound)]
        if self._unsound:
            self.rows = [row for place, row in enumerate(self.rows) if place not in self._unsound]
            self._checksums = [value for place, value in enumerate(self._checksums) if place not in self._unsound]

    def vectors(self) -> Iterator[list[bytes | None]]:
        """Yield the rows' vectors in parts; None for those that are not what was written."""
        place = start = 0
        query = f"SELECT vector {self._within}"
        for rows in read_parts(self._connection, query, self._parameters, 2_000):
            part = [vector for (vector,) in rows]
            if self._unsound:
                part = [vector for i, vector in enumerate(part, start=place) if i not in self._unsound]
            place += len(rows)
            for i in self._wrong(part, start):
                part[i] = None
                self.damaged.append(self.rows[start + i][0])
            start += len(part)
            yield part

    def _wrong(self, vectors: list[bytes | None], start: int) -> list[int]:
        checksums = self._checksums[start : start + len(vectors)]
        if not self._earlier:
            return unsound_vectors(vectors, checksums)
        return [
            i
            for i, (vector, checksum) in enumerate(zip(vectors, checksums, strict=True))
            if not columns_are_sound(self.rows[start + i][:9], vector, checksum)
        ]


def column_row(key: int, memory: Memory, row: DerivedRow) -> ColumnRow:
    """Return a memory's row of the columns table, but for the vector."""
    timestamp_us, expires_us = to_microseconds(memory.timestamp), _microseconds(memory.expires_at)
    kind, session = KINDS.index(memory.kind), _hash(memory.session)
    fact = 0 if memory.subject is None else _hash(memory.fact_key)
    return key, kind, timestamp_us, expires_us, session, fact, row.terms, row.freqs, row.tokens


def _hash(name: str | None) -> int:
    """63 bits that tell sessions (or facts) apart, so that a partition need not hold their names; 0 for none."""
    if name is None:
        return 0
    return _hash_of(name)


@lru_cache(maxsize=1 << 10)
def _hash_of(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") >> 1 or 1


def _microseconds(value: datetime | None) -> int | None:
    return None if value is None else to_microseconds(value)


def _memory_row(columns: ColumnRow, memory: Memory) -> tuple[Any, ...]:
    """A memory as the table of memories keeps it, by what `column_row` made of it."""
    key, kind, timestamp_us, expires_us = columns[:4]
    row = (
        key,
        memory.id,
        kind,
        timestamp_us,
        expires_us,
        memory.session,
        memory.speaker,
        json.dumps(memory.metadata, ensure_ascii=False) if memory.metadata else None,
        json.dumps(memory.sources, ensure_ascii=False) if memory.sources else None,
        memory.text,
        memory.subject,
        memory.predicate,
        memory.object,
        1 if memory.multivalued else None,
        memory.title,
        json.dumps(memory.steps, ensure_ascii=False) if memory.steps else None,
        memory.use_when,
    )
    return key, key >> LABEL_BITS, *row[1:9], memory_checksum(row, memory.namespace), *row[9:]


def to_memory(row: Sequence[Any], namespace: str, namespace_part: int) -> Memory:
    """Return the memory of a row (`MEMORY_FIELDS`) that is what was written.

    Args:
        row: as it was read.
        namespace: the name of its namespace.
        namespace_part: `namespace_checksum` of that.

    Raises:
        DamagedError: the row is not what was written; names the memory.
    """
    checksum = row[21]
    if is_earlier(checksum):
        memory = as_memory_row(row, namespace)
        if memory is not None and earlier_memory_checksum(memory) == checksum:
            return memory
    elif memory_is_sound(row[:17], namespace_part, checksum):
        memory = as_memory_row(row, namespace)
        if memory is not None:  # its usage, which has no checksum, may be damaged
            return memory
    raise DamagedError(row[0] & LABEL_MASK, row[1], namespace)


def as_memory_row(row: Sequence[Any], namespace: str) -> Memory | None:
    """Return what a row says, from its key to its failures, whatever its checksum is; None when that is no memory."""
    _, memory_id, kind, timestamp_us, expires_us, session, speaker, metadata, sources, text = row[:10]
    subject, predicate, object_, multivalued, title, steps, use_when = row[10:17]
    uses, last_used_us, successes, failures = row[17:21]
    try:
        return Memory.restored(
            text=text,
            id=memory_id,
            namespace=namespace,
            kind=KINDS[kind],
            timestamp=from_microseconds(timestamp_us),
            session=session,
            speaker=speaker,
            metadata=json.loads(metadata) if metadata else {},
            expires_at=None if expires_us is None else from_microseconds(expires_us),
            sources=tuple(json.loads(sources)) if sources else (),
            subject=subject,
            predicate=predicate,
            object=object_,
            multivalued=multivalued is not None,
            title=title,
            steps=tuple(json.loads(steps)) if steps else (),
            use_when=use_when,
            uses=uses or 0,
            last_used=None if last_used_us is None else from_microseconds(last_used_us),
            successes=successes or 0,
            failures=failures or 0,
        )
    except (TypeError, ValueError, IndexError, OverflowError, RecursionError):
        return None


def read_rows(connection: sqlite3.Connection, query: str, parameters: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield rows. Text that is no UTF-8 any more comes as text that no checksum holds for, instead of an error."""
    for part in read_parts(connection, query, parameters, 1_000):
        yield from part


def read_parts(
    connection: sqlite3.Connection, query: str, parameters: Sequence[Any], size: int
) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows in lists of so many, as `read_rows` does."""
    count = 0
    try:
        cursor = connection.execute(query, parameters)
        while part := cursor.fetchmany(size):
            yield part
            count += len(part)
        return
    except sqlite3.OperationalError as error:
        if _UNDECODABLE not in str(error):
            raise
    connection.text_factory = _decoded
    try:
        rows = connection.execute(query, parameters).fetchall()
    finally:
        connection.text_factory = str
    yield from (rows[start : start + size] for start in range(count, len(rows), size))


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def key_range(namespace: int) -> tuple[int, int]:
    """Return the first and last key that memories of a namespace can have."""
    return namespace << LABEL_BITS, namespace << LABEL_BITS | LABEL_MASK


class _StoreErrors:
    """Raises StoreError for SQLite's errors. A class, as a generator takes as long to enter as a small statement."""

    __slots__ = ("_doing", "_path")

    def __init__(self, doing: str, path: Path | None) -> None:
        self._doing, self._path = doing, path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            self._refuse(error)

    def _refuse(self, error: sqlite3.Error) -> NoReturn:
        if isinstance(error, sqlite3.ProgrammingError):
            if "closed" in str(error):  # by another thread, while this one was reading
                raise ClosedError from error
            raise StoreError(f"{self._doing} failed: {error}") from error
        if _UNDECODABLE in str(error):  # the rest of the message is what the ledger holds
            raise StoreError(f"{self._doing} failed: a text is no UTF-8 any more; {DAMAGED}") from None
        code = getattr(error, "sqlite_errorcode", None)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "malformed" in str(error):
            advice = DAMAGED
        else:
            advice = "free space and permissions of the folder are worth a look"
        raise StoreError(f"{self._doing} failed: {error}; {advice}") from (os_error_of(error, self._path) or error)


@dataclass(slots=True)
class _Known:
    """What the only writer need not ask the file for again, as long as it writes nothing but memories."""

    sequence: int
    merged: bool
    """Whether any memory is merged into another."""
    distilled: bool
    """Whether any was distilled, or made by that."""
    beside: bool
    """Whether there are generations of the columns beside the one that serves."""
    namespaces: dict[str, int] = field(default_factory=dict)
    """Numbers of namespaces, those used lately."""

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> _Known:
        """Ask the file."""
        sequence, merged, made, beside = connection.execute(
            "SELECT (SELECT value FROM manifest WHERE key = 'sequence'), EXISTS (SELECT 1 FROM merged), "
            "EXISTS (SELECT 1 FROM distilled_ids), EXISTS (SELECT 1 FROM generations)"
        ).fetchone()
        return cls(int(sequence), bool(merged), bool(made), bool(beside))


class Ledger:
    """The SQLite file of one store, or a database in memory.

    One connection writes, behind a lock; readers take one of a pool, so that a search never waits for a write
    (SQLite's write-ahead log lets them see the last committed state).

    Args:
        folder: Where `ledger.sqlite` lies or will lie; None keeps it in memory.
        read_only: Open an existing file without the right to change it.
        durability: "process": a committed write survives the death of the process (WAL, synchronous=NORMAL).
            "power": it survives power loss too (synchronous=FULL: one fsync a transaction).
    """

    def __init__(self, folder: Path | None, *, read_only: bool = False, durability: Durability = "process") -> None:
        self.path = None if folder is None else folder / FILE_NAME
        self.read_only = read_only
        self._durability = durability
        self._write_lock = threading.RLock()
        self._within = False
        self._changed = self._renamed = False
        self._known: _Known | None = None
        self.trusted = False
        """Whether somebody has looked at the ledger's pages (`recovery`), so that closing may vouch for them."""
        self.wrong_pages = None if self.path is None else page_sums.wrong_pages(self.path)
        """Pages that are not as they were when the store was closed; None when that cannot be known."""
        self._sums = None if self.path is None else page_sums.read(self.path)
        self._acknowledged = None if self.path is None or read_only else Acknowledged(self.path)
        reached = None if self.path is None else acknowledged.read(self.path)
        with _StoreErrors(f"opening {shown(self.path or 'a store in memory')}", self.path):
            if self.path is not None and read_only and not self.path.exists():
                raise StoreError(
                    f"{shown(self.path)} does not exist, so there is nothing to read; open it for writing first"
                )
            self._connections = Connections(
                self.path, read_only=read_only, durability=durability, write_lock=self._write_lock
            )
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise
        manifest = self.manifest()
        if self._sums is not None and not page_sums.are_of(self._sums, page_sums.state_of(manifest)):
            self._sums = self.wrong_pages = None  # of what lay here before
        sequence = manifest["sequence"]
        self.missing = (sequence + 1, reached) if reached is not None and reached > sequence else None
        """The first and last change that were acknowledged and are not there."""

    def _prepare(self) -> None:
        """Make the tables of a new store, bring an older one up to date, refuse one of another format."""
        with _StoreErrors(f"opening {shown(self.path or 'a store in memory')}", self.path):
            if self.path is not None and not self.read_only:
                try:
                    page_sums.drop(self.path)
                    remove_partial(self.path.parent)
                except OSError as error:
                    raise StoreError(f"cannot write in {shown(self.path.parent)}: {said_by(error)}") from error
            if self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                if self.read_only:
                    raise StoreError(f"{shown(str(self.path))} holds no store yet; open it for writing first")
                self._writer.executescript(SCHEMA.format(format=FORMAT_VERSION, store=uuid.uuid4().hex))
            found = self.manifest().get("format") if self._has_manifest() else None
            if self.path is not None and not self.read_only and found in UPGRADES:
                keep_copy(self._writer, self.path, str(found))
            while not self.read_only and found in UPGRADES:
                self._changed = True
                self._writer.executescript(UPGRADES[found])
                found = self.manifest()["format"]
        if found != FORMAT_VERSION:
            raise StoreVersionError(str(self.path), str(found), FORMAT_VERSION, can_upgrade=found in UPGRADES)
        if self.path is not None and not self.read_only and self._durability == "power":
            self._flush_folders(self.path.resolve())

    @staticmethod
    def _flush_folders(path: Path) -> None:
        """Have the names of the file and of its folders reach the disk: new ones may be in memory alone."""
        for folder in path.parents:
            try:
                flush_to_disk(folder)
            except PermissionError:  # not ours, so not new
                return
            except OSError as error:
                raise StoreError(f"{shown(folder)} could not be flushed to the disk: {said_by(error)}") from error

    # ------------------------------------------------------------------------------------------ connections

    @property
    def _writer(self) -> sqlite3.Connection:
        return self._connections.writer

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for reading: nothing else uses it meanwhile."""
        if self.path is None:
            with self._write_lock, _StoreErrors("reading the store", self.path):
                yield self._writer
            return
        with _StoreErrors("reading the store", self.path):
            connection = self._connections.take()
            try:
                yield connection
                self._connections.check_unchanged()
            finally:
                self._connections.give(connection)

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Lend the writing connection for one transaction, all or none, with all that is written meanwhile."""
        with self._writing() as connection:
            yield connection

    @contextmanager
    def _writing(self, *, plain: bool = False) -> Iterator[sqlite3.Connection]:
        """Lend the writing connection for one transaction.

        Args:
            plain: it changes nothing of what is known but by `_known` itself.
        """
        with self._write_lock, _StoreErrors("writing to the store", self.path):
            if self._within:  # part of a larger transaction, which ends with `changing` and may write what it likes
                self._known = None
                yield self._writer
                self._known = None
                return
            writer = self._writer
            if not plain:
                self._known = None
            writer.execute("BEGIN IMMEDIATE")
            self._within = True
            try:
                self._begin_session()
                yield writer
                known = self._known if plain else None
                sequence = self._sequence(writer) if known is None else known.sequence
                writer.execute("COMMIT")
                self._known = known
                self._renamed = True
                if self._acknowledged is not None:
                    self._acknowledged.note(sequence)
            except BaseException:
                self._known = None
                with suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
                raise
            finally:
                self._within = False

    def _look(self, connection: sqlite3.Connection) -> _Known:
        """Return what is known, within a transaction."""
        known = self._known
        if known is None:
            known = self._known = _Known.of(connection)
        return known

    @property
    def has_merged(self) -> bool:
        """Whether any memory is merged into another."""
        known = self._known
        if known is not None:
            return known.merged
        with self.reading() as connection:
            return originals.any_in(connection)

    def _begin_session(self) -> None:
        """Before the first change since opening: what is known of the file's pages is of another state from here on."""
        if not self._renamed and self.path is not None:
            values = (page_sums.SESSION, uuid.uuid4().hex)
            self._writer.execute("INSERT OR REPLACE INTO manifest VALUES (?, ?)", values)
        self._changed = True

    def close(self) -> None:
        """Close every connection."""
        with self._write_lock:
            if self.path is None or self.read_only or self._connections.closed:
                self._connections.close()
                return
            with suppress(sqlite3.Error):  # somebody reads: the log stays, and the next who opens the store has it
                self._writer.execute("PRAGMA busy_timeout = 0")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            state = None
            with suppress(sqlite3.Error):
                manifest = dict(self._writer.execute("SELECT key, value FROM manifest").fetchall())
                state = page_sums.state_of(manifest)
            self._connections.close()
            self._vouch(self.path, state)

    def _vouch(self, path: Path, state: int | None) -> None:
        """Leave checksums of the pages beside a ledger that is closed, if its pages were found to be sound."""
        whole = page_sums.log_is_empty(path)
        if self._acknowledged is not None:
            self._acknowledged.close(whole=whole)
        with suppress(OSError):
            sums = self._sums
            if self.trusted and state is not None and (self._changed or sums is None):
                sums = page_sums.written(path, state)
            elif self._changed:
                sums = None
            if sums is not None and whole:
                page_sums.keep(path, sums)

    # --------------------------------------------------------------------------------------------- manifest

    def _has_manifest(self) -> bool:
        query = "SELECT count(*) FROM sqlite_master WHERE name = 'manifest'"
        return bool(self._writer.execute(query).fetchone()[0])

    def manifest(self) -> dict[str, Any]:
        """Return what the store says of itself: format, analyser, embedder, dimension, sequence."""
        with self.reading() as connection:
            return dict(connection.execute("SELECT key, value FROM manifest").fetchall())

    def data_version(self) -> tuple[int, int]:
        """Return what changes whenever another process has committed."""
        with self._write_lock, _StoreErrors("reading the store", self.path):
            return self._connections.version()

    # ----------------------------------------------------------------------------------------------- writing

    def put(
        self,
        memories: Sequence[Memory],
        derived: Sequence[DerivedRow],
        manifest: dict[str, Any],
        *,
        ending: Sequence[int] = (),
        hiding: bool = False,
        inherit_usage: bool = True,
        then: Callable[[sqlite3.Connection], None] | None = None,
    ) -> Written:
        """Write memories durably, all or none; those whose id exists in their namespace replace it.

        Args:
            memories: with ids that are distinct within a namespace.
            derived: theirs.
            manifest: entries that are set in the same transaction.
            ending: keys of memories that end with it; those that hold nothing are passed over.
            hiding: they will come back: what is known of them besides stays.
            inherit_usage: a memory that says nothing of its usage has that of the one it replaces.
            then: does the rest of the transaction, when the memories are written.
        """
        with self._writing(plain=then is None) as connection:
            known = self._look(connection)
            sequence = known.sequence
            namespaces = self._namespace_numbers(connection, {memory.namespace for memory in memories})
            # Replaced memories end first (their numbers come first), then the new ones get theirs.
            ended = self._keys_of_ids(connection, namespaces, memories)
            used = self._usage_by_id(connection, ended) if ended and inherit_usage else {}
            sequence = self._end(connection, ended, sequence, replaced=True)
            if ending:
                others = [key for key in ending if self._holds(connection, key)]
                sequence = self._end(connection, others, sequence, replaced=hiding)
                ended = [*ended, *others]
            if known.merged:
                originals.replaced(connection, [(namespaces[memory.namespace], memory.id) for memory in memories])
            keys = [
                namespaces[memory.namespace] << LABEL_BITS | label
                for label, memory in enumerate(memories, start=sequence + 1)
            ]
            sequence += len(memories)
            rows = [column_row(key, memory, row) for key, memory, row in zip(keys, memories, derived, strict=True)]
            vectors = [row.vector for row in derived]
            connection.executemany(_INSERT_MEMORY, map(_memory_row, rows, memories))
            connection.executemany(
                _INSERT_COLUMNS,
                [
                    (*columns, checksum, vector)
                    for columns, checksum, vector in zip(rows, columns_checksums(rows, vectors), vectors, strict=True)
                ],
            )
            if known.beside:
                generations.added(connection, keys)
            usage = self._usage_of(keys, memories, used)
            self._set_usage(connection, usage, sequence)
            if then is not None:
                then(connection)
            self._finish(connection, sequence, manifest)
        return Written(keys, ended, sequence, usage, rows)

    @staticmethod
    def _holds(connection: sqlite3.Connection, key: int) -> bool:
        return connection.execute("SELECT 1 FROM memories WHERE key = ?", (key,)).fetchone() is not None

    @staticmethod
    def _usage_of(
        keys: Sequence[int], memories: Sequence[Memory], before: dict[tuple[int, str], UsageRow]
    ) -> list[UsageRow]:
        """How new memories were used: what they say, or what those that they replace do."""
        rows: list[UsageRow] = []
        for key, memory in zip(keys, memories, strict=True):
            if memory.uses or memory.successes or memory.failures or memory.last_used is not None:
                rows.append((key, memory.uses, _microseconds(memory.last_used), memory.successes, memory.failures))
            elif before and (kept := before.get((key >> LABEL_BITS, memory.id))) is not None:
                rows.append((key, *kept[1:]))
        return rows

    @staticmethod
    def _usage_by_id(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[tuple[int, str], UsageRow]:
        if not keys:
            return {}
        query = (
            "SELECT m.namespace, m.id, u.key, u.uses, u.last_used_us, u.successes, u.failures "
            "FROM usage u JOIN memories m ON m.key = u.key WHERE u.key IN (SELECT value FROM json_each(?))"
        )
        return {(row[0], row[1]): row[2:] for row in connection.execute(query, (json.dumps(keys),))}

    @staticmethod
    def _set_usage(connection: sqlite3.Connection, rows: Sequence[UsageRow], sequence: int) -> None:
        if not rows:
            return
        connection.executemany(
            f"INSERT OR REPLACE INTO usage (seq, {_USAGE_FIELDS}) VALUES (?, ?, ?, ?, ?, ?)",
            ((sequence, *row) for row in rows),
        )

    def use(self, keys: Sequence[int], now_us: int, *, uses: int = 0, successes: int = 0, failures: int = 0) -> Written:
        """Count uses of memories and how they went, durably, all or none; keys that hold nothing are passed over.

        They were used last at `now_us`, unless a later moment is known.
        """
        with self._writing(plain=True) as connection:
            sequence = self._look(connection).sequence + 1
            rows: list[UsageRow] = []
            for key in dict.fromkeys(keys):
                if not self._holds(connection, key):
                    continue
                query = f"SELECT {_USAGE_FIELDS} FROM usage WHERE key = ?"
                _, used, last_us, went_well, failed = connection.execute(query, (key,)).fetchone() or (0, 0, None, 0, 0)
                latest_us = now_us if last_us is None else max(last_us, now_us)
                rows.append((key, used + uses, latest_us, went_well + successes, failed + failures))
            if rows:
                self._set_usage(connection, rows, sequence)
                self._finish(connection, sequence, {})
        return Written([], [], sequence, rows)

    def delete(self, keys: Sequence[int]) -> Written:
        """End memories durably, all or none. Keys that hold nothing are passed over."""
        with self._writing(plain=True) as connection:
            held = [key for key in keys if self._holds(connection, key)]
            sequence = self._end(connection, held, self._look(connection).sequence)
            self._finish(connection, sequence, {})
        return Written([], held, sequence)

    @staticmethod
    def _sequence(connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT value FROM manifest WHERE key = 'sequence'").fetchone()[0])

    def _finish(self, connection: sqlite3.Connection, sequence: int, manifest: dict[str, Any]) -> None:
        if sequence > LABEL_MASK:
            raise StoreError(f"the store has used all its {LABEL_MASK} sequence numbers; export it into a new one")
        connection.execute("UPDATE manifest SET value = ? WHERE key = 'sequence'", (sequence,))
        if manifest:
            connection.executemany("INSERT OR REPLACE INTO manifest VALUES (?, ?)", list(manifest.items()))
        if self._known is not None:
            self._known.sequence = sequence

    def _end(
        self, connection: sqlite3.Connection, keys: Sequence[int], sequence: int, *, replaced: bool = False
    ) -> int:
        """Delete memories; what is known of them besides stays if memories with their ids are to follow."""
        if not keys:
            return sequence
        known = self._look(connection)
        if not replaced and (known.merged or known.distilled):
            query = "SELECT namespace, id FROM memories WHERE key = ?"
            places = [place for key in keys if (place := connection.execute(query, (key,)).fetchone()) is not None]
            distilled.ended(connection, [*places, *originals.ended(connection, places)])
        gone = [(key,) for key in keys]
        connection.executemany("DELETE FROM memories WHERE key = ?", gone)
        connection.executemany("DELETE FROM columns WHERE key = ?", gone)
        if known.beside:
            generations.ended(connection, keys)
        connection.executemany("DELETE FROM usage WHERE key = ?", gone)
        connection.executemany("INSERT INTO tombstones VALUES (?, ?)", enumerate(keys, start=sequence + 1))
        return sequence + len(keys)

    @staticmethod
    def _keys_of_ids(
        connection: sqlite3.Connection, namespaces: dict[str, int], memories: Sequence[Memory]
    ) -> list[int]:
        """Keys of the memories that have the ids of these."""
        if len(memories) == 1:
            (memory,) = memories
            query = "SELECT key FROM memories WHERE namespace = ? AND id = ?"
            return [row[0] for row in connection.execute(query, (namespaces[memory.namespace], memory.id))]
        ids: dict[str, list[str]] = {}
        for memory in memories:
            ids.setdefault(memory.namespace, []).append(memory.id)
        query = "SELECT key FROM memories WHERE namespace = ? AND id IN (SELECT value FROM json_each(?)) ORDER BY key"
        return [
            row[0]
            for name, wanted in ids.items()
            for row in connection.execute(query, (namespaces[name], json.dumps(wanted)))
        ]

    def _namespace_numbers(self, connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, int]:
        known = self._look(connection).namespaces
        numbers: dict[str, int] = {}
        for name in sorted(names):
            number = known.get(name)
            if number is None:
                row = connection.execute("SELECT namespace FROM namespaces WHERE name = ?", (name,)).fetchone()
                if row is None:
                    row = connection.execute(
                        "INSERT INTO namespaces (name) VALUES (?) RETURNING namespace", (name,)
                    ).fetchone()
                if len(known) == _MOST_NAMES:
                    known.clear()
                number = known[name] = int(row[0])
            numbers[name] = number
        return numbers

    def replace_terms(self, batches: Iterable[list[tuple[int, bytes, bytes]]], manifest: dict[str, Any]) -> None:
        """Rewrite the terms of memories, all or none: lists of (key, terms, freqs)."""
        read = f"SELECT {COLUMN_FIELDS}, vector FROM columns WHERE key = ?"
        with self._writing() as connection:
            for batch in batches:
                for key, terms, freqs in batch:
                    *row, vector = connection.execute(read, (key,)).fetchone()
                    columns: ColumnRow = (*row[:6], terms, freqs, row[8])
                    connection.execute(
                        "UPDATE columns SET terms = ?, freqs = ?, checksum = ? WHERE key = ?",
                        (terms, freqs, columns_checksum(columns, vector), key),
                    )
            self._finish(connection, self._sequence(connection), manifest)

    def compact(self, now_us: int, also: Sequence[int] = ()) -> Written:
        """Remove expired memories and others, forget tombstones, and give free pages back to the file system."""
        with self._writing() as connection:
            keys = [row[0] for row in connection.execute("SELECT key FROM memories WHERE expires_us <= ?", (now_us,))]
            expired = list(dict.fromkeys([*keys, *also]))
            sequence = self._end(connection, expired, self._sequence(connection))
            emptied = connection.execute(
                "DELETE FROM namespaces WHERE namespace NOT IN (SELECT DISTINCT namespace FROM memories) RETURNING 1"
            ).fetchall()
            sequence += bool(emptied)  # a change of its own, so that readers look names up anew
            connection.execute("DELETE FROM tombstones WHERE seq <= ?", (sequence,))
            distilled.tidy(connection)
            self._finish(connection, sequence, {"tombstones_from": sequence + 1})
        if self.path is not None:
            with self._write_lock, _StoreErrors("compacting the store", self.path):
                self._writer.execute("VACUUM")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Written([], expired, sequence)

    def erase(self, keys: Sequence[int], namespaces: Iterable[int]) -> tuple[Written, set[int], set[int]]:
        """Delete memories durably and note that an erasure is under way, which `scrub` ends.

        Args:
            keys: of the memories; those that hold nothing are passed over.
            namespaces: numbers of the namespaces concerned. Those that are left empty lose their names.

        Returns:
            What was written, the namespaces that were left empty, and all that unfinished erasures concern.
        """
        with self._writing() as connection:
            held = [key for key in keys if self._holds(connection, key)]
            sequence = self._end(connection, held, self._sequence(connection))
            distilled.tidy(connection)
            purge_leftovers(connection)
            concerned = {*namespaces, *(key >> LABEL_BITS for key in held)}
            emptied = {number for number in concerned if not self._any_in(connection, number)}
            connection.executemany("DELETE FROM namespaces WHERE namespace = ?", ((number,) for number in emptied))
            changes: dict[str, Any] = {}
            if emptied:  # a change of its own, of which readers are told no more than that: they look names up anew
                sequence += 1
                connection.execute("DELETE FROM tombstones WHERE seq <= ?", (sequence,))
                changes["tombstones_from"] = sequence + 1
            noted = connection.execute("SELECT value FROM manifest WHERE key = ?", (NOTE,)).fetchone()
            concerned |= set(json.loads(noted[0])) if noted else set()
            self._finish(connection, sequence, changes | {NOTE: json.dumps(sorted(concerned))})
        return Written([], held, sequence), emptied, concerned

    @staticmethod
    def _any_in(connection: sqlite3.Connection, namespace: int) -> bool:
        query = "SELECT 1 FROM memories WHERE key BETWEEN ? AND ? LIMIT 1"
        return connection.execute(query, key_range(namespace)).fetchone() is not None

    def being_erased(self) -> set[int]:
        """Return the numbers of the namespaces in which an erasure has not ended."""
        return set(json.loads(self.manifest().get(NOTE, "[]")))

    def scrub(self, wait_s: float) -> None:
        """Leave no byte in the file and its log of what was deleted; see `erase.empty_log`. Ends what `erase` began."""
        with self._write_lock, _StoreErrors("erasing from the store", self.path):
            if self.path is not None:
                self._begin_session()
                remove_copies(self.path)
                before = dict(self._connections.lent)
                self._writer.execute("VACUUM")
                empty_log(self._writer, wait_s, lambda: self._who_reads_since(before))
            self._writer.execute("DELETE FROM manifest WHERE key = ?", (NOTE,))

    def _who_reads_since(self, before: dict[sqlite3.Connection, object]) -> str:
        own = any(self._connections.lent.get(connection) is loan for connection, loan in before.items())
        return "a thread of this process" if own else "another process"

    def checkpoint(self) -> None:
        """Move what the write-ahead log holds into the file, and onto the disk."""
        if self.path is not None and not self.read_only:
            with self._write_lock, _StoreErrors("writing to the store", self.path):
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def copy_to(self, folder: Path, progress: Callable[[int, int], None] | None = None) -> Copied:
        """Write a copy of one moment of the ledger into a folder, while writing goes on; see `copy_ledger`."""
        with self.reading() as source:
            if self.path is not None:
                source.execute("BEGIN")
            try:
                with _StoreErrors(f"copying the store to {shown(folder)}", folder / FILE_NAME):
                    return copy_ledger(source, folder / FILE_NAME, progress)
            finally:
                if self.path is not None:
                    source.execute("COMMIT")

    # ----------------------------------------------------------------------------------------------- reading

    def namespace_number(self, name: str) -> int | None:
        """Return the number of a namespace, or None when nothing was ever stored in it."""
        with self.reading() as connection:
            row = connection.execute("SELECT namespace FROM namespaces WHERE name = ?", (name,)).fetchone()
        return None if row is None else int(row[0])

    def namespace_numbers(self) -> set[int]:
        """Return the number of every namespace that is known."""
        with self.reading() as connection:
            return {int(number) for (number,) in connection.execute("SELECT namespace FROM namespaces")}

    def namespaces(self) -> list[tuple[str, int]]:
        """Return the name of every namespace that holds memories, with their number."""
        query = f"SELECT n.name, count(*) {_FROM_MEMORIES} GROUP BY m.namespace ORDER BY n.name"
        with self.reading() as connection:
            return [(name, int(count)) for name, count in connection.execute(query)]

    def names_from(self, prefix: str) -> list[str]:
        """Return the names of all namespaces that begin with a prefix, ascending."""
        names: list[str] = []
        with self.reading() as connection:
            # They follow one another in the index; nothing in a prefix is a wildcard.
            for (name,) in connection.execute("SELECT name FROM namespaces WHERE name >= ? ORDER BY name", (prefix,)):
                if not name.startswith(prefix):
                    break
                names.append(name)
        return names

    @contextmanager
    def changes(
        self, namespace: int, after_label: int = 0, after_sequence: int = 0, generation: int | None = None
    ) -> Iterator[Changes]:
        """Read what a namespace holds above a label, and what ended after a sequence number, all from one moment.

        A generation that is named is read, whether it serves or not, up to the first memory that it has not taken in;
        otherwise the one that serves.
        """
        first, last = key_range(namespace)

        with self.reading() as connection:
            connection.execute("BEGIN")
            try:
                within = f"FROM {generations.table_of(connection, generation)} WHERE key > ? AND key <= ? ORDER BY key"
                if generation is not None:
                    last = generations.complete_up_to(connection, generation, first, last)
                parameters = (first + after_label, last)
                columns = _SoundColumns(connection, within, parameters)
                ended = self._ended(connection, after_sequence)
                query = f"SELECT {_USAGE_FIELDS} FROM usage WHERE seq > ? AND key BETWEEN ? AND ?"
                usage = connection.execute(query, (after_sequence, first, last)).fetchall()
                if after_label:  # rows that come late to a generation may have been used before that
                    query = f"SELECT {_USAGE_FIELDS} FROM usage WHERE seq <= ? AND key > ? AND key <= ?"
                    usage.extend(connection.execute(query, (after_sequence, *parameters)).fetchall())
                yield Changes(
                    columns.rows,
                    columns.vectors(),
                    ended,
                    usage,
                    self._sequence(connection),
                    connection,
                    generations.serving(connection),
                    columns.damaged,
                    last == key_range(namespace)[1],
                )
            finally:
                connection.execute("COMMIT")

    @staticmethod
    def _ended(connection: sqlite3.Connection, after_sequence: int) -> list[int] | None:
        row = connection.execute("SELECT value FROM manifest WHERE key = 'tombstones_from'").fetchone()
        if row is not None and after_sequence + 1 < row[0]:
            return None
        query = "SELECT key FROM tombstones WHERE seq > ? ORDER BY seq"
        return [int(key) for (key,) in connection.execute(query, (after_sequence,))]

    def memories(self, keys: Sequence[int], namespace: str, damaged: list[int] | None = None) -> dict[int, Memory]:
        """Return memories of one namespace by key; keys that hold nothing (any more) are absent.

        Args:
            keys: theirs.
            namespace: the name of theirs.
            damaged: the keys of those that are not what was written are added to it; they are absent as well.

        Raises:
            DamagedError: one is not what was written, and there is no list to add it to.
        """
        with self.reading() as connection:
            return self.memories_on(connection, keys, namespace, damaged)

    @staticmethod
    def memories_on(
        connection: sqlite3.Connection, keys: Sequence[int], namespace: str, damaged: list[int] | None = None
    ) -> dict[int, Memory]:
        """Return `memories` as of the moment that a connection sees."""
        found: dict[int, Memory] = {}
        read = f"SELECT {MEMORY_FIELDS} FROM memories m {_USAGE}"
        namespace_part = namespace_checksum(namespace)
        for start in range(0, len(keys), 500):
            part = list(keys[start : start + 500])
            for row in read_rows(connection, f"{read} WHERE m.key IN ({','.join('?' * len(part))})", part):
                try:
                    found[row[0]] = to_memory(row, namespace, namespace_part)
                except DamagedError:
                    if damaged is None:
                        raise
                    damaged.append(row[0])
        return found

    def stated(self, keys: Sequence[int]) -> list[tuple[int, str, str, str]]:
        """Return key, subject, predicate and object of those memories that state facts, keys ascending."""
        query = (
            "SELECT key, subject, predicate, object FROM memories "
            "WHERE key IN (SELECT value FROM json_each(?)) AND subject IS NOT NULL ORDER BY key"
        )
        with self.reading() as connection:
            return connection.execute(query, (json.dumps(keys),)).fetchall()

    def find(self, namespace: str, memory_id: str) -> tuple[int, Memory] | None:
        """Return a memory and its key by id, or None."""
        query = f"SELECT {MEMORY_FIELDS} {_FROM_MEMORIES} WHERE n.name = ? AND m.id = ?"
        with self.reading() as connection:
            row = next(read_rows(connection, query, (namespace, memory_id)), None)
        return None if row is None else (row[0], to_memory(row, namespace, namespace_checksum(namespace)))

    def vector(self, key: int) -> bytes | None:
        """Return the vector of a memory as it was given, float32; None when it has none."""
        with self.reading() as connection:
            row = connection.execute("SELECT vector FROM columns WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def select_keys(self, condition: str, parameters: Sequence[Any]) -> list[int]:
        """Return the keys, ascending, of memories that satisfy an SQL condition over `m` and `n` (namespaces)."""
        query = f"SELECT m.key {_FROM_MEMORIES} WHERE {condition} ORDER BY m.key"
        with self.reading() as connection:
            return [row[0] for row in connection.execute(query, parameters)]

    def count(self, condition: str, parameters: Sequence[Any]) -> int:
        """Return how many memories satisfy an SQL condition."""
        with self.reading() as connection:
            query = f"SELECT count(*) {_FROM_MEMORIES} WHERE {condition}"
            return int(connection.execute(query, parameters).fetchone()[0])

    def count_all(self) -> int:
        """Return how many memories there are."""
        with self.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM memories").fetchone()[0])

    def select(
        self, condition: str, parameters: Sequence[Any], *, order: str = "m.key & 1099511627775", limit: int = -1
    ) -> Iterator[tuple[int, Memory]]:
        """Yield (key, memory) for memories that satisfy an SQL condition, in the order they were stored by default."""
        query = f"SELECT {MEMORY_FIELDS}, n.name {_FROM_MEMORIES} WHERE {condition} ORDER BY {order} LIMIT ?"
        parts: dict[str, int] = {}
        with self.reading() as connection:
            for *row, name in read_rows(connection, query, (*parameters, limit)):
                part = parts.get(name)
                if part is None:
                    part = parts[name] = namespace_checksum(name)
                yield row[0], to_memory(row, name, part)

    def pages(
        self,
        namespaces: Sequence[str],
        condition: str,
        parameters: Sequence[Any],
        *,
        vectors: bool,
        merged: str | None = None,
        size: int = 1_000,
    ) -> Iterator[list[tuple[Memory, bytes | None, str | None]]]:
        """Yield memories of one namespace after the other as they were stored, all as of one moment, a page at a time.

        Args:
            namespaces: their names.
            condition, parameters: SQL over `m`, `n` and `u`.
            vectors: with their vectors, float32; else None stands for each.
            merged: with what is merged into them, behind them, each with their id; of these vectors those of this
                model. None leaves them out.
            size: of a page, without what is merged.
        """
        chosen = f"m.key > ? AND m.key <= ? AND ({condition})"
        keys_of = f"SELECT m.key {_FROM_MEMORIES} WHERE {chosen} ORDER BY m.key LIMIT ?"
        vector_of = "SELECT key, vector FROM columns WHERE key IN (SELECT value FROM json_each(?))"
        with self.reading() as connection:
            if self.path is not None:
                connection.execute("BEGIN")
            try:
                numbers = dict(connection.execute("SELECT name, namespace FROM namespaces").fetchall())
                for name in namespaces:
                    last, end = key_range(numbers.get(name, 0))
                    while keys := [row[0] for row in connection.execute(keys_of, (last, end, *parameters, size))]:
                        last = keys[-1]
                        found = self.memories_on(connection, keys, name)
                        own = dict(connection.execute(vector_of, (json.dumps(keys),)).fetchall()) if vectors else {}
                        ids = [] if merged is None else [found[key].id for key in keys]
                        behind = originals.behind(connection, numbers[name], ids, merged or "") if ids else {}
                        page: list[tuple[Memory, bytes | None, str | None]] = []
                        for key in keys:
                            memory = found[key]
                            page.append((memory, own.get(key), None))
                            for hidden in behind.get(memory.id, ()):
                                page.append((hidden.memory, hidden.vector if vectors else None, memory.id))
                        yield page
            finally:
                if self.path is not None:
                    connection.execute("COMMIT")
