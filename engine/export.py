"""Memories of a store into a file, a page at a time, that `ingest` reads back to the same memories."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from jiyi.derived import flush_to_disk
from jiyi.engine import Engine, NamespaceLike
from jiyi.errors import StoreError
from jiyi.files.sources import FORMATS, Compression, Format, suffixes_of
from jiyi.files.writers import Row, writing
from jiyi.filters import compile_where


def export_file(
    engine: Engine,
    path: str | os.PathLike[str],
    *,
    format: Format | None = None,
    vectors: bool = False,
    namespace: NamespaceLike | None = None,
    where: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write memories to a new file; return how many.

    Namespace by namespace, by name, and in each in the order they were stored, all as of one moment; writing to the
    store goes on meanwhile. The file appears under its name when it is complete. What was merged (`consolidate`) is
    written as the memory that stands for it.

    Args:
        engine: open in any way.
        path: its name says the format and compression: .jsonl, .parquet, .arrow; .jsonl.gz, .jsonl.zst. All but
            .jsonl and .jsonl.gz need pyarrow: pip install 'jiyi[files]'.
        format: "jsonl", "parquet" or "arrow", instead of what the name says.
        vectors: write them too; otherwise the embedder makes them again.
        namespace, where: which memories, see `Engine.list`; None for all.
        progress: called with the number of memories written after each page.

    Raises:
        ValueError: the name says no format, or the file exists.
        MissingPackageError: it needs pyarrow.
        StoreError: the file could not be written; nothing is left of it.
    """
    target = Path(path)
    said, compression = suffixes_of(target.name)
    chosen = checked_format(format, said, compression, target.name)
    if target.exists():
        raise ValueError(f"{target} exists; name a new file")
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as stream:
            count = export_stream(
                engine,
                stream,
                format=chosen,
                compression=compression,
                vectors=vectors,
                namespace=namespace,
                where=where,
                progress=progress,
            )
        flush_to_disk(partial)
        partial.replace(target)
        flush_to_disk(target.parent)
    except OSError as error:
        raise StoreError(f"writing {target} failed: {error.strerror or error}; nothing is left of it") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def checked_format(given: Format | None, said: Format | None, compression: Compression | None, name: str) -> Format:
    """Return the format to write: what was given, or what the file's name says."""
    if given is not None and given not in FORMATS:
        raise ValueError(f"format is {given!r:.80}; it must be one of {', '.join(FORMATS)}")
    chosen = given or said
    if chosen is None:
        raise ValueError(f"{name!r:.80} says no format; end it in .jsonl, .parquet or .arrow, or give the format")
    if chosen != "jsonl" and compression is not None:
        raise ValueError(f"{chosen} compresses itself and is not written inside {compression}; leave the suffix out")
    return chosen


def export_stream(
    engine: Engine,
    stream: IO[bytes],
    *,
    format: Format = "jsonl",
    compression: Compression | None = None,
    vectors: bool = False,
    namespace: NamespaceLike | None = None,
    where: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write memories to a stream opened in binary mode, see `export_file`; return how many."""
    count = 0
    with writing(stream, format, compression, vectors=vectors, dim=engine._store.dim) as write:
        for page in _pages(engine, namespace, where, vectors):
            write(page)
            count += len(page)
            if progress is not None:
                progress(count)
    return count


def _pages(
    engine: Engine, namespace: NamespaceLike | None, where: Mapping[str, Any] | None, vectors: bool
) -> Iterator[list[Row]]:
    names = sorted(engine.namespaces(namespace))
    condition = compile_where(where)
    yield from engine._store.ledger.pages(names, condition.sql, condition.parameters, vectors=vectors)
