"""Memories written to files, a few at a time: JSON lines, Parquet or Arrow, plain or inside gzip or zstd.

The canonical form of a memory as a line is `Memory.to_json`: fields in one order, empty ones left out, times in UTC
with a "Z", metadata as it was given, Chinese as it is; "vector" last, where asked for. What is merged into another
memory (`consolidate`) stands behind that, as it was, and says so: "merged_into" with its id. In a table each field is a
column: texts as strings, times as timestamp[us, UTC], metadata as JSON, sources and steps as lists, the vector as a
fixed-size list of float32; what is empty is null.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from jiyi.files.errors import MissingPackageError
from jiyi.files.rows import MERGED_INTO
from jiyi.files.sources import Compression, Format
from jiyi.memory import Memory

if TYPE_CHECKING:
    import pyarrow as pa


class Row(NamedTuple):
    """What one line, or row, tells."""

    memory: Memory
    vector: bytes | None
    """float32"""
    merged_into: str | None = None
    """Id of the memory that it is merged into (`consolidate`)."""


Write = Callable[[Sequence[Row]], None]

# Rows of a Parquet row group or Arrow record batch: 16 MB of vectors of 256 numbers.
_GROUP_ROWS: Final = 16_384
_GROUP_BYTES: Final = 64 * 2**20

_COMPRESSION_LEVEL: Final = 6


@contextmanager
def writing(
    stream: IO[bytes], format: Format, compression: Compression | None, *, vectors: bool, dim: int | None
) -> Iterator[Write]:
    """Lend a function that writes memories to a stream; what it was given is complete when the block is left.

    Args:
        stream: opened in binary mode.
        format, compression: of what is written; tables compress themselves.
        vectors: write them too.
        dim: their length.

    Raises:
        MissingPackageError: it needs pyarrow.
    """
    with ExitStack() as stack:
        if format == "jsonl":
            yield _lines(_compressed(stream, compression, stack), vectors)
            return
        try:
            import pyarrow as pa
        except ImportError:
            raise MissingPackageError(f"writing {format}") from None
        schema = _schema(dim if vectors else None)
        if format == "parquet":
            import pyarrow.parquet as pq

            target: Any = stack.enter_context(pq.ParquetWriter(stream, schema, compression="zstd"))
        else:
            target = stack.enter_context(
                pa.ipc.new_file(stream, schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))
            )
        waiting: list[Row] = []
        waiting_bytes = 0

        def write(rows: Sequence[Row]) -> None:
            nonlocal waiting_bytes
            for row in rows:
                waiting.append(row)
                waiting_bytes += len(row[0].text)
                if len(waiting) == _GROUP_ROWS or waiting_bytes >= _GROUP_BYTES:
                    flush()

        def flush() -> None:
            nonlocal waiting_bytes
            if waiting:
                target.write_table(_table(waiting, schema))
            waiting.clear()
            waiting_bytes = 0

        yield write
        flush()


def _compressed(stream: IO[bytes], compression: Compression | None, stack: ExitStack) -> IO[bytes]:
    if compression == "gzip":
        # Without a time in it: the same memories make the same file.
        packed = gzip.GzipFile(filename="", mode="wb", compresslevel=_COMPRESSION_LEVEL, fileobj=stream, mtime=0)
        stack.callback(packed.close)
        return cast("IO[bytes]", packed)
    if compression == "zstd":
        try:
            import pyarrow as pa
        except ImportError:
            raise MissingPackageError("writing zstd") from None
        compressed: IO[bytes] = stack.enter_context(pa.CompressedOutputStream(pa.PythonFile(stream, mode="w"), "zstd"))
        return compressed
    return stream


def _lines(stream: IO[bytes], vectors: bool) -> Write:
    def write(rows: Sequence[Row]) -> None:
        stream.write("".join(line_of(row, vectors=vectors) + "\n" for row in rows).encode())

    return write


def line_of(row: Row, *, vectors: bool) -> str:
    """Return a memory as a line of JSON, with its vector where there is one and it is asked for."""
    record = row.memory.to_dict()
    if row.merged_into is not None:
        record[MERGED_INTO] = row.merged_into
    if vectors and row.vector is not None:
        record["vector"] = np.frombuffer(row.vector, np.float32).tolist()
    return json.dumps(record, ensure_ascii=False)


def _schema(dim: int | None) -> pa.Schema:
    import pyarrow as pa

    text, moment, number = pa.string(), pa.timestamp("us", "UTC"), pa.int64()
    fields: dict[str, pa.DataType] = {
        "id": text,
        "namespace": text,
        "kind": text,
        "timestamp": moment,
        "text": text,
        "session": text,
        "speaker": text,
        "metadata": text,
        "expires_at": moment,
        "sources": pa.list_(text),
        "subject": text,
        "predicate": text,
        "object": text,
        "multivalued": pa.bool_(),
        "title": text,
        "use_when": text,
        "steps": pa.list_(text),
        "uses": number,
        "successes": number,
        "failures": number,
        "last_used": moment,
        MERGED_INTO: text,
    }
    if dim is not None:
        fields["vector"] = pa.list_(pa.float32(), dim)
    return pa.schema(list(fields.items()))


def _table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns = []
    for field in schema:
        if field.name == "vector":
            columns.append(_vectors([row.vector for row in rows], field.type))
        elif field.name == MERGED_INTO:
            columns.append(pa.array([row.merged_into for row in rows], type=field.type))
        elif field.name == "metadata":
            texts = [json.dumps(dict(m.metadata), ensure_ascii=False) if m.metadata else None for m, *_ in rows]
            columns.append(pa.array(texts, type=field.type))
        else:
            cells = [getattr(m, field.name) for m, *_ in rows]
            # A text may be empty; a zero, False or no sources are what a memory has when nothing is said.
            columns.append(pa.array([cell if cell or cell == "" else None for cell in cells], type=field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _vectors(given: Sequence[bytes | None], kind: pa.FixedSizeListType) -> pa.Array:
    import pyarrow as pa

    width = 4 * kind.list_size
    usable = [vector is not None and len(vector) == width for vector in given]
    flat = np.frombuffer(b"".join(v if ok and v else bytes(width) for v, ok in zip(given, usable, strict=True)), "f4")
    missing = pa.array([not ok for ok in usable])
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), type=kind, mask=missing)
