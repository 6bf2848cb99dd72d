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
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal

from jiyi import distilled, originals
from jiyi.derived import flush_to_disk
from jiyi.erase import NOTE, empty_log, purge_leftovers
from jiyi.errors import ClosedError, StoreError, StoreVersionError
from jiyi.memory import KINDS, Memory
from jiyi.schema import FORMAT_VERSION, SCHEMA, UPGRADES
from jiyi.timestamps import from_microseconds, to_microseconds

Durability = Literal["process", "power"]

FILE_NAME: Final = "ledger.sqlite"

LABEL_BITS: Final = 40
LABEL_MASK: Final = (1 << LABEL_BITS) - 1

_FIELDS_BUT_NAMESPACE: Final = (
    "m.key, m.id, m.kind, m.timestamp_us, m.expires_us, m.session, m.speaker, m.metadata, m.sources, m.text, "
    "m.subject, m.predicate, m.object, m.multivalued, m.title, m.steps, m.use_when, "
    "u.uses, u.last_used_us, u.successes, u.failures"
)
_MEMORY_FIELDS: Final = _FIELDS_BUT_NAMESPACE.replace("m.id,", "m.id, n.name,")
_USAGE: Final = "LEFT JOIN usage u ON u.key = m.key"
_FROM_MEMORIES: Final = f"FROM memories m JOIN namespaces n ON n.namespace = m.namespace {_USAGE}"

_COLUMN_FIELDS: Final = "key, kind, timestamp_us, expires_us, session, fact, terms, freqs, tokens"
ColumnRow = tuple[int, int, int, int | None, int, int, bytes, bytes, bytes]

_STORED: Final = (
    "key, namespace, id, kind, timestamp_us, expires_us, session, speaker, metadata, sources, checksum, text, "
    "subject, predicate, object, multivalued, title, steps, use_when"
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


def column_row(key: int, memory: Memory, row: DerivedRow) -> ColumnRow:
    """Return a memory's row of the columns table, but for the vector."""
    timestamp_us, expires_us = to_microseconds(memory.timestamp), _microseconds(memory.expires_at)
    kind, session, fact = KINDS.index(memory.kind), _hash(memory.session), _hash(memory.fact_key)
    return key, kind, timestamp_us, expires_us, session, fact, row.terms, row.freqs, row.tokens


def _columns_checksum(row: ColumnRow, vector: bytes | None) -> int:
    *numbers, fact, terms, freqs, tokens = row
    # Without a fact, the checksum is that of the first format.
    checksum = zlib.crc32(repr([*numbers, fact] if fact else numbers).encode())
    for part in (terms, freqs, tokens, b"" if vector is None else vector):
        checksum = zlib.crc32(part, checksum)
    return checksum


def _hash(name: str | None) -> int:
    """63 bits that tell sessions (or facts) apart, so that a partition need not hold their names; 0 for none."""
    if name is None:
        return 0
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") >> 1 or 1


def _microseconds(value: datetime | None) -> int | None:
    return None if value is None else to_microseconds(value)


def _checksum(memory: Memory) -> int:
    return zlib.crc32(memory.to_json(usage=False).encode())


def _to_memory(row: Sequence[Any]) -> Memory:
    key, memory_id, namespace, kind, timestamp_us, expires_us, session, speaker, metadata, sources, text = row[:11]
    subject, predicate, object_, multivalued, title, steps, use_when = row[11:18]
    uses, last_used_us, successes, failures = row[18:]
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
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise StoreError(
            f"the memory of label {key & LABEL_MASK} is damaged ({error}); verify() lists all that are"
        ) from error


def key_range(namespace: int) -> tuple[int, int]:
    """Return the first and last key that memories of a namespace can have."""
    return namespace << LABEL_BITS, namespace << LABEL_BITS | LABEL_MASK


@contextmanager
def _store_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.ProgrammingError as error:
        if "closed" in str(error):  # by another thread, while this one was reading
            raise ClosedError from error
        raise StoreError(f"{doing} failed: {error}") from error
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            advice = "the ledger is damaged: verify() lists what is, and a snapshot or export can be put in its place"
        else:
            advice = "free space and permissions of the folder are worth a look"
        raise StoreError(f"{doing} failed: {error}; {advice}") from error


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
        self._idle: list[sqlite3.Connection] = []
        self._lent: dict[sqlite3.Connection, object] = {}
        with _store_errors(f"opening {self.path or 'a store in memory'}"):
            if self.path is not None and read_only and not self.path.exists():
                raise StoreError(f"{self.path} does not exist, so there is nothing to read; open it for writing first")
            self._writer = self._connect()
            if self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                if read_only:
                    raise StoreError(f"{self.path} holds no store yet; open it for writing first")
                self._writer.executescript(SCHEMA.format(format=FORMAT_VERSION, store=uuid.uuid4().hex))
            found = self.manifest().get("format") if self._has_manifest() else None
            if not read_only and found in UPGRADES:
                self._writer.executescript(UPGRADES[found])
                found = self.manifest()["format"]
        if found != FORMAT_VERSION:
            self.close()
            raise StoreVersionError(str(self.path), str(found), FORMAT_VERSION, can_upgrade=found in UPGRADES)

    # ------------------------------------------------------------------------------------------ connections

    def _connect(self) -> sqlite3.Connection:
        if self.path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        else:
            mode = "ro" if self.read_only else "rwc"
            connection = self._connect_file(self.path, f"?mode={mode}")
            if self.read_only:
                try:
                    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                except sqlite3.OperationalError:
                    # A read-only mount has no room for the log's index; nobody can be writing there either.
                    connection.close()
                    self._refuse_unfinished_log(self.path)
                    connection = self._connect_file(self.path, "?immutable=1")
            else:
                # Six vectors of 256 floats a page, instead of two and an overflow.
                connection.execute("PRAGMA page_size = 8192")
                connection.execute("PRAGMA journal_mode = WAL")
                level = "FULL" if self._durability == "power" else "NORMAL"
                connection.execute(f"PRAGMA synchronous = {level}")
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection

    @staticmethod
    def _refuse_unfinished_log(path: Path) -> None:
        """Acknowledged writes that are only in the write-ahead log must not go missing silently."""
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise StoreError(
                f"{log} holds writes that are not in {path.name} yet, and the folder cannot be written to take them "
                "over; open the store once for writing, or copy the folder to where it can be written"
            )

    @staticmethod
    def _connect_file(path: Path, query: str) -> sqlite3.Connection:
        uri = path.resolve().as_uri() + query
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for reading: nothing else uses it meanwhile."""
        if self.path is None:
            with self._write_lock, _store_errors("reading the store"):
                yield self._writer
            return
        with _store_errors("reading the store"):
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._connect()
            self._lent[connection] = object()
            try:
                yield connection
            finally:
                self._lent.pop(connection, None)
                self._idle.append(connection)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._write_lock, _store_errors("writing to the store"):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close every connection."""
        with self._write_lock:
            self._writer.close()
            while self._idle:
                self._idle.pop().close()

    # --------------------------------------------------------------------------------------------- manifest

    def _has_manifest(self) -> bool:
        query = "SELECT count(*) FROM sqlite_master WHERE name = 'manifest'"
        return bool(self._writer.execute(query).fetchone()[0])

    def manifest(self) -> dict[str, Any]:
        """Return what the store says of itself: format, analyser, embedder, dimension, sequence."""
        with self.reading() as connection:
            return dict(connection.execute("SELECT key, value FROM manifest").fetchall())

    def data_version(self) -> int:
        """Return a number that changes whenever another process has committed."""
        with self._write_lock, _store_errors("reading the store"):
            return int(self._writer.execute("PRAGMA data_version").fetchone()[0])

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
        with self._writing() as connection:
            sequence = self._sequence(connection)
            namespaces = self._namespace_numbers(connection, {memory.namespace for memory in memories})
            # Replaced memories end first (their numbers come first), then the new ones get theirs.
            ended = self._keys_of_ids(connection, namespaces, memories)
            used = self._usage_by_id(connection, ended) if inherit_usage else {}
            sequence = self._end(connection, ended, sequence, replaced=True)
            others = [key for key in ending if self._holds(connection, key)]
            sequence = self._end(connection, others, sequence, replaced=hiding)
            ended = [*ended, *others]
            originals.replaced(connection, [(namespaces[memory.namespace], memory.id) for memory in memories])
            keys = [
                namespaces[memory.namespace] << LABEL_BITS | label
                for label, memory in enumerate(memories, start=sequence + 1)
            ]
            sequence += len(memories)
            connection.executemany(
                f"INSERT INTO memories ({_STORED}) VALUES ({', '.join('?' * len(_STORED.split(', ')))})",
                (
                    (
                        key,
                        key >> LABEL_BITS,
                        memory.id,
                        KINDS.index(memory.kind),
                        to_microseconds(memory.timestamp),
                        _microseconds(memory.expires_at),
                        memory.session,
                        memory.speaker,
                        json.dumps(memory.metadata, ensure_ascii=False) if memory.metadata else None,
                        json.dumps(memory.sources, ensure_ascii=False) if memory.sources else None,
                        _checksum(memory),
                        memory.text,
                        memory.subject,
                        memory.predicate,
                        memory.object,
                        1 if memory.multivalued else None,
                        memory.title,
                        json.dumps(memory.steps, ensure_ascii=False) if memory.steps else None,
                        memory.use_when,
                    )
                    for key, memory in zip(keys, memories, strict=True)
                ),
            )
            connection.executemany(
                f"INSERT INTO columns ({_COLUMN_FIELDS}, checksum, vector) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (*(columns := column_row(key, memory, row)), _columns_checksum(columns, row.vector), row.vector)
                    for key, memory, row in zip(keys, memories, derived, strict=True)
                ),
            )
            usage = self._usage_of(keys, memories, used)
            self._set_usage(connection, usage, sequence)
            if then is not None:
                then(connection)
            self._finish(connection, sequence, manifest)
        return Written(keys, ended, sequence, usage)

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
        connection.executemany(
            f"INSERT OR REPLACE INTO usage (seq, {_USAGE_FIELDS}) VALUES (?, ?, ?, ?, ?, ?)",
            ((sequence, *row) for row in rows),
        )

    def use(self, keys: Sequence[int], now_us: int, *, uses: int = 0, successes: int = 0, failures: int = 0) -> Written:
        """Count uses of memories and how they went, durably, all or none; keys that hold nothing are passed over.

        They were used last at `now_us`, unless a later moment is known.
        """
        with self._writing() as connection:
            sequence = self._sequence(connection) + 1
            rows: list[UsageRow] = []
            for key in dict.fromkeys(keys):
                if connection.execute("SELECT 1 FROM memories WHERE key = ?", (key,)).fetchone() is None:
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
        with self._writing() as connection:
            held = [
                key for key in keys if connection.execute("SELECT 1 FROM memories WHERE key = ?", (key,)).fetchone()
            ]
            sequence = self._end(connection, held, self._sequence(connection))
            self._finish(connection, sequence, {})
        return Written([], held, sequence)

    @staticmethod
    def _sequence(connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT value FROM manifest WHERE key = 'sequence'").fetchone()[0])

    @staticmethod
    def _finish(connection: sqlite3.Connection, sequence: int, manifest: dict[str, Any]) -> None:
        if sequence > LABEL_MASK:
            raise StoreError(f"the store has used all its {LABEL_MASK} sequence numbers; export it into a new one")
        connection.executemany(
            "INSERT OR REPLACE INTO manifest VALUES (?, ?)", list({**manifest, "sequence": sequence}.items())
        )

    @staticmethod
    def _end(connection: sqlite3.Connection, keys: Sequence[int], sequence: int, *, replaced: bool = False) -> int:
        """Delete memories; what is known of them besides stays if memories with their ids are to follow."""
        if not replaced:
            query = "SELECT namespace, id FROM memories WHERE key = ?"
            places = [place for key in keys if (place := connection.execute(query, (key,)).fetchone()) is not None]
            distilled.ended(connection, [*places, *originals.ended(connection, places)])
        connection.executemany("DELETE FROM memories WHERE key = ?", ((key,) for key in keys))
        connection.executemany("DELETE FROM columns WHERE key = ?", ((key,) for key in keys))
        connection.executemany("DELETE FROM usage WHERE key = ?", ((key,) for key in keys))
        connection.executemany("INSERT INTO tombstones VALUES (?, ?)", enumerate(keys, start=sequence + 1))
        return sequence + len(keys)

    @staticmethod
    def _keys_of_ids(
        connection: sqlite3.Connection, namespaces: dict[str, int], memories: Sequence[Memory]
    ) -> list[int]:
        """Keys of the memories that have the ids of these."""
        ids: dict[str, list[str]] = {}
        for memory in memories:
            ids.setdefault(memory.namespace, []).append(memory.id)
        query = "SELECT key FROM memories WHERE namespace = ? AND id IN (SELECT value FROM json_each(?)) ORDER BY key"
        return [
            row[0]
            for name, wanted in ids.items()
            for row in connection.execute(query, (namespaces[name], json.dumps(wanted)))
        ]

    @staticmethod
    def _namespace_numbers(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for name in sorted(names):
            row = connection.execute("SELECT namespace FROM namespaces WHERE name = ?", (name,)).fetchone()
            if row is None:
                row = connection.execute(
                    "INSERT INTO namespaces (name) VALUES (?) RETURNING namespace", (name,)
                ).fetchone()
            numbers[name] = int(row[0])
        return numbers

    def replace_terms(self, batches: Iterable[list[tuple[int, bytes, bytes]]], manifest: dict[str, Any]) -> None:
        """Rewrite the terms of memories, all or none: lists of (key, terms, freqs)."""
        read = f"SELECT {_COLUMN_FIELDS}, vector FROM columns WHERE key = ?"
        with self._writing() as connection:
            for batch in batches:
                for key, terms, freqs in batch:
                    *row, vector = connection.execute(read, (key,)).fetchone()
                    columns: ColumnRow = (*row[:6], terms, freqs, row[8])
                    connection.execute(
                        "UPDATE columns SET terms = ?, freqs = ?, checksum = ? WHERE key = ?",
                        (terms, freqs, _columns_checksum(columns, vector), key),
                    )
            self._finish(connection, self._sequence(connection), manifest)

    def restage(self, model: str) -> None:
        """Make an empty table for the vectors and tokens of another model, beside those in use."""
        with self._writing() as connection:
            connection.execute("DROP TABLE IF EXISTS staged")
            connection.execute("CREATE TABLE staged (key INTEGER PRIMARY KEY, vector BLOB, tokens BLOB NOT NULL)")
            self._finish(connection, self._sequence(connection), {"staged": model})

    def stage(self, rows: Sequence[tuple[int, bytes | None, bytes]]) -> None:
        """Keep (key, vector, tokens) of some memories for `replace_vectors`; of those that are still there."""
        query = "INSERT OR REPLACE INTO staged SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM memories WHERE key = ?1)"
        with self._writing() as connection:
            connection.executemany(query, rows)

    def replace_vectors(self, manifest: dict[str, Any]) -> None:
        """Put what is staged in place of the vectors and tokens in use, all or none."""
        read = (
            f"SELECT {', '.join(f'c.{name}' for name in _COLUMN_FIELDS.split(', ')[:-1])}, s.tokens, s.vector "
            "FROM columns c JOIN staged s USING (key) WHERE c.key > ? ORDER BY c.key LIMIT 1000"
        )
        with self._writing() as connection:
            last = -1
            while rows := connection.execute(read, (last,)).fetchall():
                connection.executemany(
                    "UPDATE columns SET vector = ?, tokens = ?, checksum = ? WHERE key = ?",
                    ((vector, row[-1], _columns_checksum(tuple(row), vector), row[0]) for *row, vector in rows),
                )
                last = rows[-1][0]
            connection.execute("DROP TABLE staged")
            connection.execute("DELETE FROM manifest WHERE key IN ('staged', 'table')")
            version = connection.execute("SELECT value FROM manifest WHERE key = 'vectors_version'").fetchone()
            changed = {"vectors_version": 1 + (0 if version is None else version[0])}
            self._finish(connection, self._sequence(connection), manifest | changed)

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
            with self._write_lock, _store_errors("compacting the store"):
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
            held = [
                key for key in keys if connection.execute("SELECT 1 FROM memories WHERE key = ?", (key,)).fetchone()
            ]
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
        with self._write_lock, _store_errors("erasing from the store"):
            if self.path is not None:
                before = dict(self._lent)
                self._writer.execute("VACUUM")
                empty_log(self._writer, wait_s, lambda: self._who_reads_since(before))
            self._writer.execute("DELETE FROM manifest WHERE key = ?", (NOTE,))

    def _who_reads_since(self, before: dict[sqlite3.Connection, object]) -> str:
        own = any(self._lent.get(connection) is loan for connection, loan in before.items())
        return "a thread of this process" if own else "another process"

    def checkpoint(self) -> None:
        """Move what the write-ahead log holds into the file, and onto the disk."""
        if self.path is not None and not self.read_only:
            with self._write_lock, _store_errors("writing to the store"):
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def copy_to(self, folder: Path) -> None:
        """Write a consistent copy of the ledger into a folder, while writing goes on."""
        with self.reading() as source, _store_errors(f"copying the store to {folder}"):
            target = sqlite3.connect(folder / FILE_NAME)
            try:
                source.backup(target, pages=4096)
            finally:
                target.close()
        flush_to_disk(folder / FILE_NAME)

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
    def changes(self, namespace: int, after_label: int = 0, after_sequence: int = 0) -> Iterator[Changes]:
        """Read what a namespace holds above a label, and what ended after a sequence number, all from one moment."""
        first, last = key_range(namespace)
        within = "FROM columns WHERE key > ? AND key <= ? ORDER BY key"

        def vectors(connection: sqlite3.Connection) -> Iterator[list[bytes | None]]:
            cursor = connection.execute(f"SELECT vector {within}", (first + after_label, last))
            while part := cursor.fetchmany(2_000):
                yield [vector for (vector,) in part]

        with self.reading() as connection:
            connection.execute("BEGIN")
            try:
                query = f"SELECT {_COLUMN_FIELDS} {within}"
                rows = connection.execute(query, (first + after_label, last)).fetchall()
                ended = self._ended(connection, after_sequence)
                query = f"SELECT {_USAGE_FIELDS} FROM usage WHERE seq > ? AND key BETWEEN ? AND ?"
                usage = connection.execute(query, (after_sequence, first, last)).fetchall()
                yield Changes(rows, vectors(connection), ended, usage, self._sequence(connection), connection)
            finally:
                connection.execute("COMMIT")

    @staticmethod
    def _ended(connection: sqlite3.Connection, after_sequence: int) -> list[int] | None:
        row = connection.execute("SELECT value FROM manifest WHERE key = 'tombstones_from'").fetchone()
        if row is not None and after_sequence + 1 < row[0]:
            return None
        query = "SELECT key FROM tombstones WHERE seq > ? ORDER BY seq"
        return [int(key) for (key,) in connection.execute(query, (after_sequence,))]

    def memories(self, keys: Sequence[int], namespace: str) -> dict[int, Memory]:
        """Return memories of one namespace by key; keys that hold nothing (any more) are absent."""
        with self.reading() as connection:
            return self.memories_on(connection, keys, namespace)

    @staticmethod
    def memories_on(connection: sqlite3.Connection, keys: Sequence[int], namespace: str) -> dict[int, Memory]:
        """Return `memories` as of the moment that a connection sees."""
        found: dict[int, Memory] = {}
        read = f"SELECT {_FIELDS_BUT_NAMESPACE} FROM memories m {_USAGE}"
        for start in range(0, len(keys), 500):
            part = list(keys[start : start + 500])
            for row in connection.execute(f"{read} WHERE m.key IN ({','.join('?' * len(part))})", part):
                found[row[0]] = _to_memory((row[0], row[1], namespace, *row[2:]))
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
        query = f"SELECT {_MEMORY_FIELDS} {_FROM_MEMORIES} WHERE n.name = ? AND m.id = ?"
        with self.reading() as connection:
            row = connection.execute(query, (namespace, memory_id)).fetchone()
        return None if row is None else (row[0], _to_memory(row))

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

    def select(
        self, condition: str, parameters: Sequence[Any], *, order: str = "m.key & 1099511627775", limit: int = -1
    ) -> Iterator[tuple[int, Memory]]:
        """Yield (key, memory) for memories that satisfy an SQL condition, in the order they were stored by default."""
        query = f"SELECT {_MEMORY_FIELDS} {_FROM_MEMORIES} WHERE {condition} ORDER BY {order} LIMIT ?"
        with self.reading() as connection:
            cursor = connection.execute(query, (*parameters, limit))
            while rows := cursor.fetchmany(1000):
                for row in rows:
                    yield row[0], _to_memory(row)

    # ------------------------------------------------------------------------------------------ verification

    def damage(self) -> list[str]:
        """Return what is wrong with the file, one line each; empty when every page and every row is sound."""
        found: list[str] = []
        for check in (
            self._damaged_pages,
            self._damaged_memories,
            self._damaged_columns,
            self._unpaired,
            originals.damage,
        ):
            try:
                with self.reading() as connection:
                    found.extend(check(connection))
            except StoreError as error:
                found.append(f"ledger: a check could not be finished: {error.__cause__}")
        return found

    @staticmethod
    def _damaged_pages(connection: sqlite3.Connection) -> Iterator[str]:
        for (line,) in connection.execute("PRAGMA integrity_check"):
            if line != "ok":
                yield f"ledger: {line}"

    @staticmethod
    def _damaged_memories(connection: sqlite3.Connection) -> Iterator[str]:
        for *row, checksum in connection.execute(
            f"SELECT {_MEMORY_FIELDS}, m.checksum {_FROM_MEMORIES} ORDER BY m.key"
        ):
            try:
                sound = _checksum(_to_memory(row)) == checksum
            except (StoreError, TypeError, ValueError, AttributeError):
                sound = False
            if not sound:
                yield f"ledger: memory {row[1]!r:.80} in namespace {row[2]!r:.80} is not what was written"

    @staticmethod
    def _damaged_columns(connection: sqlite3.Connection) -> Iterator[str]:
        query = f"SELECT {_COLUMN_FIELDS}, vector, checksum FROM columns ORDER BY key"
        for *row, vector, checksum in connection.execute(query):
            try:
                sound = _columns_checksum(tuple(row), vector) == checksum
            except (TypeError, ValueError):
                sound = False
            if not sound:
                yield f"ledger: the columns of label {row[0] & LABEL_MASK} are not what was written"

    @staticmethod
    def _unpaired(connection: sqlite3.Connection) -> Iterator[str]:
        for query, what in (
            ("SELECT key FROM memories EXCEPT SELECT key FROM columns", "has no columns"),
            ("SELECT key FROM columns EXCEPT SELECT key FROM memories", "has columns and no text"),
        ):
            for (key,) in connection.execute(query):
                yield f"ledger: label {key & LABEL_MASK} {what}"
