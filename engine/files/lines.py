"""Batches of rows from JSON lines."""

from __future__ import annotations

from collections.abc import Iterator

from jiyi.files.checkpoints import Position
from jiyi.files.errors import BadFileError
from jiyi.files.rows import BATCH_BYTES, BATCH_ROWS, Batch, Intake
from jiyi.files.sources import Source
from jiyi.files.streams import DAMAGE, Opened, damage
from jiyi.jsonl import BadLine, scan_lines


def line_batches(source: Source, opened: Opened, intake: Intake, start: Position) -> Iterator[Batch]:
    """Yield the rows of a JSON lines file from a position on; blank lines are passed over.

    What is appended to the file meanwhile is left for another time.

    Raises:
        BadFileError: it cannot be read to its end. The rows before were yielded.
    """
    stream = opened.stream
    plain_size = source.size if opened.compressed is None else None
    batch = Batch(source)
    begun = start.offset
    last = start
    try:
        if start.offset:
            _skip(opened, start.offset)
        for line in scan_lines(stream, source.name, after=(start.row, start.offset)):
            if isinstance(line, BadLine):
                intake.refuse(batch, "line", line.number, line.reason, line.content)
            else:
                intake.take(batch, "line", line.number, line.record, content=line.content)
            last = Position(line.number, line.end)
            grown = plain_size is not None and line.end >= plain_size
            full = batch.rows >= BATCH_ROWS or line.end - begun >= BATCH_BYTES
            if full or grown or intake.stopped:
                batch.end, batch.file_bytes = last, opened.read_bytes()
                begun = line.end
                yield batch
                batch = Batch(source)
                if grown or intake.stopped:
                    return
    except DAMAGE as error:
        if isinstance(error, BadFileError):
            raise
        if batch.rows:
            batch.end, batch.file_bytes = last, opened.read_bytes()
            yield batch
        where = f" after line {last.row:,}" if last.row else ""
        raise BadFileError(source.name, damage(error, opened.compressed) + where) from error
    if batch.rows:
        batch.end, batch.file_bytes = last, opened.read_bytes()
        yield batch


def _skip(opened: Opened, offset: int) -> None:
    """Go on behind what was read before."""
    if opened.compressed is None and opened.stream.seekable():
        opened.stream.seek(offset)
        return
    while offset > 0 and (content := opened.stream.read(min(offset, 2**20))):
        offset -= len(content)
