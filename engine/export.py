"""Memories of a store into a file, a page at a time, that `ingest` reads back to the same memories."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from jiyi.derived import flush_to_disk
from jiyi.engine import Engine, NamespaceLike
from jiyi.errors import StoreError
from jiyi.files.sources import FORMATS, Compression, Format, suffixes_of
from jiyi.files.writers import Row, writing
from jiyi.filters import compile_where
from jiyi.paths import checked_path, shown
from jiyi.quoted import quoted
from jiyi.store import Store, store_of


def export_file(
    engine: Engine,
    path: str | os.PathLike[str],
    *,
    format: Format | None = None,
    vectors: bool = False,
    merged: bool = True,
    namespace: NamespaceLike | None = None,
    where: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write memories to a new file; return how many.

    Namespace by namespace, by name, and in each in the order they were stored, all as of one moment; writing to the
    store goes on meanwhile. The file appears under its name when it is complete. What was merged (`consolidate`) stands
    behind the memory that stands for it, and names that as `merged_into`: in the store that reads the file it is
    hidden again, and `unconsolidate` gives it back.

    Args:
        engine: open in any way.
        path: its name says the format and compression: .jsonl, .parquet, .arrow; .jsonl.gz, .jsonl.zst. All but
            .jsonl and .jsonl.gz need pyarrow: pip install 'jiyi[files]'.
        format: "jsonl", "parquet" or "arrow", instead of what the name says.
        vectors: write them too; otherwise the embedder makes them again.
        merged: write what was merged too; without, only the memories that stand for it.
        namespace, where: which memories, see `Engine.list`; None for all. What is merged goes with what it is merged
            into.
        progress: called with the number of memories written after each page.

    Raises:
        TypeError: the engine or the path is none.
        ValueError: the name says no format, or the file exists.
        MissingPackageError: it needs pyarrow.
        DamagedError: a memory is not what was written; the message names it. Nothing is left of the file.
        StoreError: the file could not be written; nothing is left of it.
    """
    store_of(engine)
    target = checked_path(path, "the path to export to")
    said, compression = suffixes_of(target.name)
    chosen = checked_format(format, said, compression, target.name)
    if target.exists():
        raise ValueError(f"{shown(target)} exists; name a new file")
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as stream:
            count = export_stream(
                engine,
                stream,
                format=chosen,
                compression=compression,
                vectors=vectors,
                merged=merged,
                namespace=namespace,
                where=where,
                progress=progress,
            )
        flush_to_disk(partial)
        partial.replace(target)
        flush_to_disk(target.parent)
    except OSError as error:
        said_of_it = error.strerror or f"{error!s:.200}"
        raise StoreError(f"writing {shown(target)} failed: {said_of_it}; nothing is left of it") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def checked_format(given: Format | None, said: Format | None, compression: Compression | None, name: str) -> Format:
    """Return the format to write: what was given, or what the file's name says."""
    if given is not None and given not in FORMATS:
        raise ValueError(f"format is {quoted(given)}; it must be one of {', '.join(FORMATS)}")
    chosen = given or said
    if chosen is None:
        raise ValueError(f"{quoted(name)} says no format; end it in .jsonl, .parquet or .arrow, or give the format")
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
    merged: bool = True,
    namespace: NamespaceLike | None = None,
    where: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write memories to a stream opened in binary mode, see `export_file`; return how many."""
    store = store_of(engine)
    if not callable(getattr(stream, "write", None)):
        raise TypeError(f"stream must be opened in binary mode to write to, got {type(stream).__name__[:80]}")
    for name, given in (("vectors", vectors), ("merged", merged)):
        if not isinstance(given, bool):
            raise TypeError(f"{name} must be True or False, got {quoted(given)}")
    count = 0
    with writing(stream, format, compression, vectors=vectors, dim=store.dim) as write:
        for page in _pages(engine, store, namespace, where, vectors, merged):
            write(page)
            count += len(page)
            if progress is not None:
                progress(count)
    return count


def _pages(
    engine: Engine,
    store: Store,
    namespace: NamespaceLike | None,
    where: Mapping[str, Any] | None,
    vectors: bool,
    merged: bool,
) -> Iterator[list[Row]]:
    names = sorted(engine.namespaces(namespace))
    condition = compile_where(where)
    model = store.vectors_model if merged else None
    for page in store.ledger.pages(names, condition.sql, condition.parameters, vectors=vectors, merged=model):
        yield [Row(*each) for each in page]
