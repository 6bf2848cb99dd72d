"""Memories from files into a store, as a job: in batches, each durable when it is counted, and resumable.

Each transaction also notes how far its file was read, so that a job that was killed goes on there. Where a transformer
makes the vectors, the next batches are read in one thread and analysed in another while one is written.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jiyi.analysis import as_vector
from jiyi.engine import Engine
from jiyi.files import checkpoints, merged
from jiyi.files.ahead import ahead
from jiyi.files.checkpoints import Checkpoint, Position
from jiyi.files.columnar import columnar_batches
from jiyi.files.errors import BadFileError, MissingPackageError
from jiyi.files.known import Known, known
from jiyi.files.lines import line_batches
from jiyi.files.rejects import RejectFile
from jiyi.files.rows import MERGED_INTO, Batch, Intake, Reject
from jiyi.files.sources import FORMATS, Format, Source, find_sources
from jiyi.files.streams import opened
from jiyi.jsonl import BadLineError, Line, read_lines
from jiyi.memory import Memory, checked_name
from jiyi.models.protocols import TokenTable
from jiyi.paths import checked_path
from jiyi.quoted import quoted
from jiyi.store import Analysed, store_of

#: How many rejects a report keeps; all of them are in the reject file.
_KEPT_REJECTS: Final = 100

# Batches that are read ahead of the one being analysed, and analysed ahead of the one being written.
_READ_AHEAD: Final = 2
_ANALYSED_AHEAD: Final = 1

# Batches without anything to store only move the checkpoint: no need to write each.
_CHECKPOINT_EVERY_S: Final = 1.0


class MemoryLine(NamedTuple):
    """A memory as a line of a file gives it."""

    number: int
    memory: Memory
    vector: NDArray[np.float32] | None
    end: int
    """Bytes of the file up to the end of the line."""


def read_memories(
    stream: IO[bytes], source: str, *, namespace: str | None = None, dim: int | None = None
) -> Iterator[MemoryLine]:
    """Yield the memories of a JSON lines file: the fields of `Memory`, and "vector" where there is one.

    Those that are merged into another one ("merged_into"), which no search finds, are passed over.

    Args:
        stream: opened in binary mode.
        source: what error messages call it.
        namespace: of lines that do not say their own.
        dim: length that vectors must have; that of the first one, when left out.

    Raises:
        BadLineError: naming the line, what is wrong with it and what is allowed.
    """
    for line in read_lines(stream, source):
        is_merged = line.record.pop(MERGED_INTO, None) is not None
        try:
            memory, vector = _memory(line, namespace, dim)
        except (TypeError, ValueError) as error:
            raise BadLineError(source, line.number, str(error)) from None
        if vector is not None and dim is None:
            dim = len(vector)
        if is_merged:
            continue
        yield MemoryLine(line.number, memory, vector, line.end)


def _memory(line: Line, namespace: str | None, dim: int | None) -> tuple[Memory, NDArray[np.float32] | None]:
    record: dict[str, Any] = line.record
    given = record.pop("vector", None)
    if namespace is not None and record.get("namespace") is None:
        record["namespace"] = namespace
    memory = Memory.from_dict(record)
    return memory, None if given is None else as_vector(given, dim, "the vector")


# --------------------------------------------------------------------------------------------------------- jobs


@dataclass(frozen=True, slots=True)
class IngestStatus:
    """How far a job has come, or how it ended. Counts are of this run; what was stored is durable."""

    state: str
    """"planned", "running", "paused", "done", "cancelled" or "stopped" (too many rejects)."""
    rows: int = 0
    """Rows that were read: lines that hold something, or rows of a table."""
    added: int = 0
    replaced: int = 0
    """Memories whose id was there, for something else."""
    unchanged: int = 0
    """Memories that were there as they are; nothing was written."""
    rejected: int = 0
    files: int = 0
    """Files that were read to their end."""
    skipped_rows: int = 0
    """Rows that an earlier run had read, which stopped before its end."""
    file_bytes: int = 0
    total_bytes: int | None = None
    """Of all files, as they lie on the disk; None where nobody knows."""
    seconds: float = 0.0
    failed: tuple[str, ...] = ()
    """Files that could not be read, or not to their end, and why."""
    rejects: tuple[Reject, ...] = ()
    """The first hundred."""
    rejects_file: str | None = None
    """Where all of them are; None while there is none."""

    @property
    def stored(self) -> int:
        """Memories that were written."""
        return self.added + self.replaced

    @property
    def fraction(self) -> float | None:
        """How much of all there is to read was read, 0 to 1."""
        return self.file_bytes / self.total_bytes if self.total_bytes else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object, the rejects as their number."""
        rate = self.stored / self.seconds if self.seconds else 0.0
        record: dict[str, Any] = {
            "state": self.state,
            "stored": self.stored,
            "added": self.added,
            "replaced": self.replaced,
            "unchanged": self.unchanged,
            "rejected": self.rejected,
            "rows": self.rows,
            "skipped_rows": self.skipped_rows,
            "files": self.files,
            "failed": list(self.failed),
            "rejects_file": self.rejects_file,
            "bytes": self.file_bytes,
            "total_bytes": self.total_bytes,
            "seconds": round(self.seconds, 3),
            "per_second": round(rate, 1),
        }
        return record


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file of a job, before it runs."""

    name: str
    bytes: int | None
    """None for a pipe."""
    resumes_after: int
    """Rows that an earlier run has stored; 0 when it is read from its beginning."""
    ended: bool
    """An earlier run has read it to its end."""


@dataclass(slots=True)
class _Prepared:
    """A batch, and what of it is to be written."""

    batch: Batch
    memories: list[Memory] = field(default_factory=list)
    vectors: list[NDArray[np.float32] | None] = field(default_factory=list)
    analysed: Analysed | None = None
    replaced: int = 0
    unchanged: int = 0


class IngestJob:
    """Stores the memories of files: JSON lines, Parquet and Arrow, plain or inside gzip or zstd.

    A row that is wrong is rejected and the job goes on. Reading a file again changes nothing: a memory whose id is
    there as it is counts as unchanged, and a row without an id gets one of the file's place, its number and its text
    (on standard input, a new one). A job that was killed goes on behind its last batch when the same files are read
    again and have not changed.

    Args:
        engine: open for writing, or in any way for a dry run. Its searches go on meanwhile.
        paths: files, patterns ("data/*.parquet"), folders, or "-" for standard input.
        namespace: of rows that do not say their own.
        format: "jsonl", "parquet" or "arrow", instead of what the first bytes of each file say.
        rejects: a file that tells of each row that was wrong, one JSON object a line: source, line or row, reason and
            the first 80 characters. It is made when there is one.
        max_rejects: stop at the row of which there is one more. Rows before it are stored.
        strict: raise at the first wrong row. Rows before it are stored.
        dry_run: check everything and store nothing.
        restart: read from the beginning what an earlier run has read.
        progress: called with the status after each batch, in the thread that runs.

    Raises:
        BadFileError: a file does not exist, or a pattern has none.
        TypeError, ValueError: an argument is not as it must be.
    """

    def __init__(
        self,
        engine: Engine,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        namespace: str | None = None,
        format: Format | None = None,
        rejects: str | os.PathLike[str] | None = None,
        max_rejects: int | None = None,
        strict: bool = False,
        dry_run: bool = False,
        restart: bool = False,
        progress: Callable[[IngestStatus], None] | None = None,
    ) -> None:
        store = store_of(engine)
        if isinstance(paths, str | os.PathLike):
            paths = [paths]
        if not isinstance(paths, Sequence) or isinstance(paths, bytes | bytearray):
            raise TypeError(f"paths must be a file's name or a list of them, got {type(paths).__name__[:80]}")
        if not paths:
            raise ValueError("paths is an empty list; name at least one file")
        for path in paths:
            if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str) or not os.fspath(path):
                checked_path(path, "a file's name in paths")  # says what is wrong; of the rest `find_sources` does
        if format is not None and format not in FORMATS:
            raise ValueError(f"format is {quoted(format)}; it must be one of {', '.join(FORMATS)}")
        if namespace is not None:
            checked_name(namespace, "the namespace")
        if max_rejects is not None and (isinstance(max_rejects, bool) or not isinstance(max_rejects, int)):
            raise TypeError(f"max_rejects must be a whole number, got {quoted(max_rejects)}")
        if max_rejects is not None and max_rejects < 0:
            raise ValueError(f"max_rejects is {quoted(max_rejects)}; it must be at least 0")
        for name, flag in (("strict", strict), ("dry_run", dry_run), ("restart", restart)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} must be True or False, got {quoted(flag)}")
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be a function of an IngestStatus, got {type(progress).__name__[:80]}")
        if not dry_run:
            store.check_writable("ingest")
        self._engine = engine
        self._store = store
        self._namespace = namespace
        self._format = format
        self._max_rejects = max_rejects
        self._strict = strict
        self._dry_run = dry_run
        self._restart = restart
        self._progress = progress
        self._sources, self.again = find_sources([os.fspath(path) for path in paths])
        """Names of files that were named twice, and are read once."""
        sizes = [source.size for source in self._sources]
        total = None if None in sizes else sum(size for size in sizes if size is not None)
        self._status = IngestStatus("planned", total_bytes=total)
        self._rejects_path = None if rejects is None else checked_path(rejects, "the reject file")
        self._rejects: RejectFile | None = None
        self._cancelled = threading.Event()
        self._going = threading.Event()
        self._going.set()
        self._done_bytes = 0
        self._started = 0.0
        self._noted = 0.0

    # ------------------------------------------------------------------------------------------------- control

    def plan(self) -> list[PlannedFile]:
        """Return the files of the job in the order they are read, and where reading them begins."""
        planned = []
        for source in self._sources:
            found = self._checkpoint(source)
            row, ended = (0, False) if found is None else (found.position.row, found.ended)
            planned.append(PlannedFile(source.name, source.size, row, ended))
        return planned

    def status(self) -> IngestStatus:
        """Return how far the job has come; from any thread."""
        return self._status

    def pause(self) -> None:
        """Stop before the next batch, until `resume`."""
        self._going.clear()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._going.set()

    def cancel(self) -> None:
        """Stop before the next batch and return from `run`; a job of the same files goes on there."""
        self._cancelled.set()
        self._going.set()

    def run(self) -> IngestStatus:
        """Do the job; return how it ended.

        Files that cannot be read, or not to their end, are named in the status (`failed`), and the others are read.

        Raises:
            BadLineError: strict, and a row is wrong. Those before it are stored, those after it are not.
            BadFileError: strict, and a file cannot be read.
            MissingPackageError: a format needs pyarrow.
            StoreError, ModelError, ModelMismatchError: the store cannot take the memories. Batches before stay.
        """
        self._started = time.perf_counter()
        found = [None if self._restart else self._checkpoint(source) for source in self._sources]
        skipped = sum(each.position.row for each in found if each is not None)
        self._status = replace(self._status, state="running", skipped_rows=skipped)
        if self._rejects_path is not None:
            keep = max((each.rejects_bytes for each in found if each is not None), default=0)
            self._rejects = RejectFile(self._rejects_path, keep)
        if self._restart:
            self._write([], [], self._forget)
        intake = Intake(self._namespace, self._store.dim, self._strict, self._max_rejects, self._holds)
        batches = self._batches(intake, found)
        prepared: Iterator[_Prepared]
        try:
            with ExitStack() as stack:
                if self._overlaps():
                    batches = stack.enter_context(ahead(batches, _READ_AHEAD, "read"))
                    prepared = stack.enter_context(ahead(map(self._prepared, batches), _ANALYSED_AHEAD, "analyse"))
                else:
                    prepared = map(self._prepared, batches)
                for each in prepared:
                    if not self._take(each):
                        break
                else:
                    self._write([], [], self._forget)
                    self._tell(state="done")
        finally:
            if self._rejects is not None:
                self._rejects.close()
        return self._status

    def _overlaps(self) -> bool:
        """Whether threads are worth it: where a transformer embeds, which takes most of the time and no lock of Python.

        With the token table everything is Python and SQLite, call by call, and threads that read and analyse ahead made
        it slower. And one that waits for a pipe cannot be stopped.
        """
        embedder = self._store.embedder
        files = all(source.size is not None for source in self._sources)
        return files and embedder is not None and not isinstance(embedder, TokenTable)

    # ------------------------------------------------------------------------------------------------- reading

    def _checkpoint(self, source: Source) -> Checkpoint | None:
        """How far an earlier run came in a file that is still the same."""
        if source.identity is None or self._dry_run:
            return None
        with self._store.ledger.reading() as connection:
            found = checkpoints.read(connection, self._key(source))
        return found if found is not None and found.fingerprint == source.fingerprint() else None

    def _key(self, source: Source) -> str:
        return checkpoints.key_of(source.identity or "", self._namespace)

    def _batches(self, intake: Intake, found: Sequence[Checkpoint | None]) -> Iterator[Batch]:
        for source, checkpoint in zip(self._sources, found, strict=True):
            start = Position() if checkpoint is None else checkpoint.position
            last = Batch(source, end=start, ended=True, file_bytes=source.size or 0)
            if checkpoint is not None and checkpoint.ended:
                yield last
                continue
            try:
                with opened(source, self._format) as file:
                    read = line_batches if file.format == "jsonl" else columnar_batches
                    for batch in read(source, file, intake, start):
                        last.end = batch.end
                        yield batch
                        if intake.stopped:
                            return
            except MissingPackageError:
                raise
            except (BadFileError, OSError) as error:
                if self._strict:
                    raise
                last.failed = str(error) if isinstance(error, BadFileError) else f"{source.name}: {error}"
            yield last

    # ------------------------------------------------------------------------------------------------- storing

    def _prepared(self, batch: Batch) -> _Prepared:
        prepared = _Prepared(batch)
        if not batch.memories:
            return prepared
        status = known(self._store, batch.memories, batch.vectors, batch.dated)
        places = {(memory.namespace, memory.id): i for i, memory in enumerate(batch.memories)}
        last = sorted(i for i in places.values() if status[i] is not Known.SAME)
        # Of two rows with one id the later one stays, and says what becomes of both.
        earlier = (places[memory.namespace, memory.id] for memory in batch.memories)
        prepared.unchanged = sum(status[i] is Known.SAME for i in earlier)
        outdone = len(batch.memories) - prepared.unchanged - len(last)
        prepared.replaced = sum(status[i] is Known.OTHER for i in last) + outdone
        prepared.memories = [batch.memories[i] for i in last]
        prepared.vectors = [batch.vectors[i] for i in last]
        if not self._dry_run:
            prepared.analysed = self._store.analysed(prepared.memories, prepared.vectors)
        return prepared

    def _take(self, prepared: _Prepared) -> bool:
        """Store a batch; return whether to go on."""
        batch = prepared.batch
        if not self._going.is_set():
            self._tell(state="paused")
            self._going.wait()
            self._tell(state="running")
        if self._cancelled.is_set():
            self._tell(state="cancelled")
            return False
        if self._rejects is not None and not self._strict:
            self._rejects.add(batch.rejects)
        now = time.perf_counter()
        if prepared.memories or batch.hidden or batch.ended or now - self._noted >= _CHECKPOINT_EVERY_S:
            self._noted = now
            self._store_batch(prepared)
        before = self._status
        stored = len(batch.memories) + len(batch.hidden) - prepared.unchanged
        rejected = before.rejected + len(batch.rejects)
        self._tell(
            rows=before.rows + batch.rows,
            added=before.added + stored - prepared.replaced,
            replaced=before.replaced + prepared.replaced,
            unchanged=before.unchanged + prepared.unchanged,
            rejected=rejected,
            files=before.files + (batch.ended and batch.failed is None),
            file_bytes=self._done_bytes + batch.file_bytes,
            failed=before.failed if batch.failed is None else (*before.failed, batch.failed),
            rejects=(*before.rejects, *batch.rejects)[:_KEPT_REJECTS],
            rejects_file=str(self._rejects.path) if self._rejects is not None and rejected else None,
        )
        if batch.ended:
            self._done_bytes += batch.source.size or 0
        if batch.rejects and self._strict:
            self._refuse(batch.rejects[0])
        if self._max_rejects is not None and rejected > self._max_rejects:
            self._tell(state="stopped")
            return False
        return True

    def _store_batch(self, prepared: _Prepared) -> None:
        """Write a batch in one transaction, what is merged into others behind them."""
        batch = prepared.batch
        note = self._note(batch)
        if not batch.hidden:
            self._write(prepared.memories, prepared.vectors, note, prepared.analysed)
            return
        if self._dry_run:
            with self._store.ledger.reading() as connection:
                told = merged.known(connection, self._store, batch)
        else:
            with self._store.together():
                self._write(prepared.memories, prepared.vectors, note, prepared.analysed)
                told = merged.hide(self._store, batch)
        prepared.unchanged += told.count(Known.SAME)
        prepared.replaced += told.count(Known.OTHER)

    def _holds(self, namespace: str, memory_id: str) -> bool:
        """Whether the store has a memory."""
        query = "SELECT 1 FROM memories m JOIN namespaces n USING (namespace) WHERE n.name = ? AND m.id = ?"
        with self._store.ledger.reading() as connection:
            return connection.execute(query, (namespace, memory_id)).fetchone() is not None

    def _refuse(self, reject: Reject) -> None:
        count = self._status.stored + self._status.unchanged
        before = {0: "nothing was stored", 1: "the memory before it is stored"}
        known_before = before.get(count, f"the {count:,} memories before it are stored")
        raise BadLineError(reject.source, reject.number, f"{reject.reason}; {known_before}", reject.unit)

    def _note(self, batch: Batch) -> Callable[[sqlite3.Connection], None] | None:
        """What notes, in the transaction that stores a batch, how far its file was read."""
        if batch.source.identity is None or batch.failed is not None:
            return None
        size = self._rejects.size if self._rejects is not None else 0
        # Taken once a file: one that is written to meanwhile is read from its beginning by the next run.
        checkpoint = Checkpoint(self._fingerprint(batch.source), batch.end, batch.ended, size)
        key = self._key(batch.source)
        return lambda connection: checkpoints.write(connection, key, checkpoint)

    def _fingerprint(self, source: Source) -> str:
        if self._fingerprinted is None or self._fingerprinted[0] is not source:
            self._fingerprinted = source, source.fingerprint()
        return self._fingerprinted[1]

    _fingerprinted: tuple[Source, str] | None = None

    def _forget(self, connection: sqlite3.Connection) -> None:
        checkpoints.clear(connection, [self._key(source) for source in self._sources if source.identity is not None])

    def _write(
        self,
        memories: Sequence[Memory],
        vectors: Sequence[NDArray[np.float32] | None],
        then: Callable[[sqlite3.Connection], None] | None,
        analysed: Analysed | None = None,
    ) -> None:
        if not self._dry_run:
            self._store.write(memories, vectors, then=then, analysed=analysed)

    def _tell(self, **changes: Any) -> None:
        self._status = replace(self._status, seconds=time.perf_counter() - self._started, **changes)
        if self._progress is not None:
            self._progress(self._status)


def ingest_files(
    engine: Engine, paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **settings: Any
) -> IngestStatus:
    """Store the memories of files and return how it went: an `IngestJob`, run at once.

    >>> import jiyi, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder, jiyi.open(embedder=None) as engine:
    ...     path = pathlib.Path(folder) / "memories.jsonl"
    ...     _ = path.write_text('{"text": "likes tea"}\\n{"text": 5}\\n')
    ...     done = ingest_files(engine, path)
    >>> done.stored, done.rejected, done.rejects[0].reason
    (1, 1, 'text must be text, got int')
    """
    return IngestJob(engine, paths, **settings).run()


__all__ = ["IngestJob", "IngestStatus", "MemoryLine", "PlannedFile", "ingest_files", "read_memories"]
