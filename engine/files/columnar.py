"""Batches of rows from Parquet and Arrow files: columns are turned around a batch at a time, vectors stay arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from jiyi.files.checkpoints import Position
from jiyi.files.errors import BadFileError, MissingPackageError
from jiyi.files.rows import BATCH_BYTES, BATCH_ROWS, MERGED_INTO, Batch, Intake
from jiyi.files.sources import Source
from jiyi.files.streams import Opened
from jiyi.jsonl import strict_json
from jiyi.memory import FIELDS
from jiyi.quoted import quoted

if TYPE_CHECKING:
    import pyarrow as pa

_VECTOR: Final = "vector"
_LISTS: Final = ("sources", "steps")
_TIMES: Final = ("timestamp", "expires_at", "last_used")

# An index that pandas wrote beside the columns.
_IGNORED: Final = "__index_level_"


class Unusable:
    """A cell that could not be read."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def columnar_batches(source: Source, opened: Opened, intake: Intake, start: Position) -> Iterator[Batch]:
    """Yield the rows of a Parquet or Arrow file from a position on.

    Raises:
        BadFileError: it cannot be read, to its end or at all, or has a column that no memory has. The rows before
            were yielded.
        MissingPackageError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingPackageError(f"reading {source.name}") from None
    row = start.row
    records = _parquet if opened.format == "parquet" else _arrow
    try:
        for read, share in records(source, opened, start.row):
            for part in _in_parts(read):
                batch = Batch(source)
                _take(part, batch, intake, row)
                row += part.num_rows
                batch.end, batch.file_bytes = Position(row), round(share * (source.size or 0))
                yield batch
                if intake.stopped:
                    return
    except (pa.ArrowException, OSError, ValueError, TypeError, EOFError) as error:
        if isinstance(error, BadFileError):
            raise
        said = " ".join(str(error).split())[:200]
        where = f" after row {row:,}" if row else ""
        raise BadFileError(
            source.name, f"is damaged, cut off or no {opened.format.capitalize()} file: {said}{where}"
        ) from error


def _parquet(source: Source, opened: Opened, skipped: int) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Yield the columns of rows, and how much of the file they are the end of."""
    import pyarrow.parquet as pq

    # A column chunk is read a megabyte at a time, not as a whole: row groups may be as large as their file.
    file = pq.ParquetFile(opened.stream, buffer_size=2**20, pre_buffer=False)
    columns = _columns(source, file.schema_arrow.names)
    groups = list(range(file.metadata.num_row_groups))
    done, total = 0, max(file.metadata.num_rows, 1)
    while groups and done + (rows := file.metadata.row_group(groups[0]).num_rows) <= skipped:
        done += rows
        groups.pop(0)
    for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns):
        begin, done = done, done + batch.num_rows
        if done > skipped:
            yield batch.slice(max(skipped - begin, 0)), done / total


def _arrow(source: Source, opened: Opened, skipped: int) -> Iterator[tuple[pa.RecordBatch, float]]:
    import pyarrow as pa

    if opened.arrow_stream:
        reader = pa.ipc.open_stream(opened.stream)
        batches: Iterator[pa.RecordBatch] = iter(reader)
    else:
        reader = pa.ipc.open_file(opened.stream)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    columns = _columns(source, reader.schema.names)
    done = 0
    for i, batch in enumerate(batches, start=1):
        begin, done = done, done + batch.num_rows
        if done <= skipped:
            continue
        batch = batch.select(columns).slice(max(skipped - begin, 0))
        # Offsets that lead outside of their buffers crash whoever follows them.
        batch.validate()
        share = opened.read_bytes() / (source.size or 1) if opened.arrow_stream else i / reader.num_record_batches
        yield batch, min(share, 1.0)


def _columns(source: Source, names: list[str]) -> list[str]:
    kept = [name for name in names if not name.startswith(_IGNORED)]
    unknown = [name for name in kept if name not in FIELDS and name not in (_VECTOR, MERGED_INTO)]
    if unknown:
        raise BadFileError(
            source.name,
            f"has the column {quoted(unknown[0])}; a memory has {', '.join(FIELDS)}, and vector (put your own into the "
            "column metadata, as a struct, a map or JSON)",
        )
    twice = next((name for name in kept if kept.count(name) > 1), None)
    if twice is not None:
        raise BadFileError(source.name, f"has the column {quoted(twice)} twice; which one counts cannot be known")
    return kept


def _in_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch so that no part has too many rows, or bytes."""
    rows = batch.num_rows
    if rows == 0:
        return
    size = max(1, min(BATCH_ROWS, rows * BATCH_BYTES // max(batch.nbytes, 1)))
    for begin in range(0, rows, size):
        yield batch.slice(begin, size)


def _take(part: pa.RecordBatch, batch: Batch, intake: Intake, before: int) -> None:
    names: list[str] = []
    columns: list[list[Any]] = []
    vectors: list[Any] = [None] * part.num_rows
    wrong: dict[int, str] = {}
    for name, column in zip(part.schema.names, part.columns, strict=True):
        if column.null_count == len(column):
            continue
        cells = _vectors(column) if name == _VECTOR else _cells(name, column)
        for i, cell in enumerate(cells):
            if type(cell) is Unusable:
                wrong.setdefault(i, f"{name} {cell.reason}")
        if name == _VECTOR:
            vectors = cells
        else:
            names.append(name)
            columns.append(cells)
    rows = zip(*columns, strict=True) if columns else ((),) * part.num_rows
    for i, cells_of_row in enumerate(rows):
        number = before + i + 1
        record = dict(zip(names, cells_of_row, strict=True))
        if i in wrong:
            intake.refuse(batch, "row", number, wrong[i], _without(record))
        else:
            intake.take(batch, "row", number, record, vectors[i])
        if intake.stopped:
            return


def _without(record: dict[str, Any]) -> dict[str, Any]:
    return {name: cell for name, cell in record.items() if cell is not None and not isinstance(cell, Unusable)}


# ----------------------------------------------------------------------------------------------------- columns


def _cells(name: str, column: pa.Array) -> list[Any]:
    """Return a column as what `Memory` takes; `Unusable` for what nothing can be made of."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        cells = _texts(column)
        if name == "metadata":
            return [_parsed(cell, Mapping, "an object") for cell in cells]
        if name in _LISTS:
            return [_parsed(cell, list, "a list") for cell in cells]
        return cells
    if name in _TIMES and pa.types.is_timestamp(kind):
        return _moments(column)
    cells = _each(column)
    if name == "metadata" and pa.types.is_map(kind):
        return [_mapping(cell) for cell in cells]
    if name == "metadata" and pa.types.is_struct(kind):
        # A struct has all the fields that any row has: where a row has none, there is a null.
        return [_given(cell) for cell in cells]
    return cells


def _each(column: pa.Array) -> list[Any]:
    """Return the cells of a column as Python objects; one that is not valid does not spoil the others."""
    try:
        column.validate(full=True)
        cells: list[Any] = column.to_pylist()
    except (ValueError, OverflowError, UnicodeDecodeError, NotImplementedError):
        cells = []
        for i in range(len(column)):
            try:
                one = column.slice(i, 1)
                one.validate(full=True)
                cells.append(one[0].as_py())
            except (ValueError, OverflowError, NotImplementedError) as error:
                cells.append(Unusable(f"cannot be read: {' '.join(str(error).split())[:120]}"))
    return cells


def _texts(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    try:
        column.validate(full=True)  # offsets, and UTF-8
        texts: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return texts
    except (ValueError, UnicodeDecodeError):
        plain = column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column
        raw = plain.view(pa.large_binary() if pa.types.is_large_string(plain.type) else pa.binary())
        raw.validate(full=True)
        return [None if content is None else _decoded(content) for content in raw.to_pylist()]


def _decoded(content: bytes) -> str | Unusable:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        return Unusable(f"is not UTF-8 (byte 0x{content[error.start]:02x} at position {error.start})")


def _parsed(cell: Any, kind: type, what: str) -> Any:
    if cell is None or isinstance(cell, Unusable):
        return cell
    try:
        value = strict_json(cell)
    except json.JSONDecodeError as error:
        return Unusable(f"is not JSON ({error.msg} at character {error.pos + 1})")
    except RecursionError:
        return Unusable("is nested too deep to be read; flatten it")
    except ValueError as error:
        return Unusable(str(error))
    return value if value is None or isinstance(value, kind) else Unusable(f"must be JSON of {what}")


def _mapping(cell: Any) -> Any:
    if cell is None or isinstance(cell, Unusable):
        return cell
    mapping = dict(cell)
    return mapping if len(mapping) == len(cell) else Unusable("has a key twice; which one counts cannot be known")


def _given(cell: Any) -> Any:
    if not isinstance(cell, dict):
        return cell
    return {key: _given(value) for key, value in cell.items() if value is not None}


def _moments(column: pa.Array) -> list[Any]:
    """Times as datetimes without a zone, which are UTC; whole microseconds (what is finer is cut off)."""
    import pyarrow as pa

    try:
        exact = column.cast(pa.timestamp("us"), safe=False) if column.type.unit == "ns" else _in_us(column)
        cells: list[Any] = exact.to_numpy(zero_copy_only=False).astype("datetime64[us]").tolist()
    except pa.ArrowInvalid:
        return _each(column)
    # Outside of the years 1 to 9999 there are only numbers.
    return [Unusable("is outside the years 1 to 9999") if isinstance(cell, int) else cell for cell in cells]


def _in_us(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.timestamp("us"), safe=False)


# ----------------------------------------------------------------------------------------------------- vectors


def _vectors(column: pa.Array) -> list[Any]:
    """Return vectors as rows of one float32 array, None where there is none, `Unusable` for what is none."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_null(kind):
        return [None] * len(column)
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        return [cell if cell is None else Unusable(f"must be a list of numbers, got {kind}") for cell in _each(column)]
    column.validate(full=True)
    values = column.flatten()  # of the rows that are not null, one behind the other
    if pa.types.is_fixed_size_list(kind):
        sizes = np.full(len(column), kind.list_size, dtype=np.int64)
        if column.null_count:
            sizes[column.is_null().to_numpy(zero_copy_only=False)] = 0
    else:
        sizes = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        flat = values.to_numpy(zero_copy_only=False).astype(np.float32)  # nulls are NaN
    ends = np.cumsum(sizes)
    finite = np.isfinite(flat).all() if len(flat) else True
    present = column.is_valid().to_pylist()
    cells: list[Any] = []
    for start, end, there in zip((ends - sizes).tolist(), ends.tolist(), present, strict=True):
        row = flat[start:end] if there else None
        if row is not None and not finite and not np.isfinite(row).all():
            row = Unusable(f"holds NaN, null or infinity (in float32) at position {int(np.argmin(np.isfinite(row)))}")
        cells.append(row)
    return cells


Reader = Callable[[Source, Opened, Intake, Position], Iterator[Batch]]
