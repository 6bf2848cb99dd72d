"""Memories from a JSON lines file into a store, in batches: memory stays bounded, and what is counted is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jiyi.analysis import as_vector
from jiyi.engine import Engine
from jiyi.jsonl import BadLineError, Line, read_lines
from jiyi.memory import Memory

_BATCH_LINES: Final = 1_000
_BATCH_BYTES: Final = 8 * 2**20


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

    Args:
        stream: opened in binary mode.
        source: what error messages call it.
        namespace: of lines that do not say their own.
        dim: length that vectors must have; that of the first one, when left out.

    Raises:
        BadLineError: naming the line, what is wrong with it and what is allowed.
    """
    for line in read_lines(stream, source):
        try:
            memory, vector = _memory(line, namespace, dim)
        except (TypeError, ValueError) as error:
            raise BadLineError(source, line.number, str(error)) from None
        if vector is not None and dim is None:
            dim = len(vector)
        yield MemoryLine(line.number, memory, vector, line.end)


def _memory(line: Line, namespace: str | None, dim: int | None) -> tuple[Memory, NDArray[np.float32] | None]:
    record: dict[str, Any] = line.record
    given = record.pop("vector", None)
    if namespace is not None and record.get("namespace") is None:
        record["namespace"] = namespace
    memory = Memory.from_dict(record)
    return memory, None if given is None else as_vector(given, dim, "the vector")


def ingest(
    engine: Engine,
    stream: IO[bytes],
    source: str,
    *,
    namespace: str | None = None,
    stored: Callable[[int, int], None] | None = None,
) -> int:
    """Store the memories of a JSON lines file; return how many lines there were.

    Each batch is one transaction: what was reported as stored survives the death of the process. Reading the same
    file again replaces memories that have ids and doubles those that have none.

    Args:
        engine: open for writing.
        stream: opened in binary mode.
        source: what error messages call it.
        namespace: of lines that do not say their own.
        stored: called after each batch with the number of lines stored so far and the bytes they took.

    Raises:
        BadLineError: a line is wrong. Those before it are stored, those after it are not.
        StoreError, ModelMismatchError: the store cannot take them; batches reported before stay.
    """
    count = 0
    batch: list[MemoryLine] = []

    def store() -> None:
        nonlocal count
        if not batch:
            return
        vectors = [line.vector for line in batch]
        engine.add_many([line.memory for line in batch], vectors=vectors)
        count += len(batch)
        end = batch[-1].end
        batch.clear()
        if stored is not None:
            stored(count, end)

    start = 0
    try:
        for line in read_memories(stream, source, namespace=namespace, dim=engine.stats()["dim"]):
            batch.append(line)
            if len(batch) == _BATCH_LINES or line.end - start >= _BATCH_BYTES:
                store()
                start = line.end
    except BadLineError as error:
        store()
        before = {0: "nothing was stored", 1: "the memory before it is stored"}
        known = before.get(count, f"the {count:,} memories before it are stored")
        raise BadLineError(error.source, error.line, f"{error.reason}; {known}") from None
    store()
    return count
