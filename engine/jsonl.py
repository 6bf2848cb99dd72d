"""JSON lines: one object a line, read with errors that name the line and say what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any, Final, NamedTuple

from jiyi.errors import JiyiError
from jiyi.paths import shown
from jiyi.quoted import quoted

#: A longer line is refused rather than read into memory.
LONGEST_LINE_BYTES: Final = 64 * 2**20

_BOM: Final = b"\xef\xbb\xbf"
_SHOWN_BYTES: Final = 512
_SKIPPED_BYTES: Final = 2**16


class BadLineError(JiyiError, ValueError):
    """A line of a file is not what it must be."""

    def __init__(self, source: str, line: int, reason: str, unit: str = "line") -> None:
        self.source = source
        self.line = line
        self.reason = reason
        super().__init__(f"{shown(source)}, {unit} {line}: {reason}")


class Line(NamedTuple):
    """One line that holds something."""

    number: int
    """From 1; blank lines count."""
    record: dict[str, Any]
    end: int
    """Bytes read up to its end."""
    content: bytes = b""
    """The line itself."""


class BadLine(NamedTuple):
    """One line that is no JSON object."""

    number: int
    reason: str
    end: int
    content: bytes
    """How it begins."""


def read_lines(stream: IO[bytes], source: str) -> Iterator[Line]:
    """Yield the objects of a JSON lines file, one at a time; blank lines are passed over.

    Args:
        stream: opened in binary mode.
        source: what error messages call it.

    Raises:
        BadLineError: a line is no UTF-8, no JSON (NaN and Infinity are none), no object, or over 64 MiB long.
    """
    for line in scan_lines(stream, source):
        if isinstance(line, BadLine):
            raise BadLineError(source, line.number, line.reason)
        yield line


def scan_lines(stream: IO[bytes], source: str, *, after: tuple[int, int] = (0, 0)) -> Iterator[Line | BadLine]:
    """Yield what `read_lines` does and, where it would raise, what is wrong with the line; then go on.

    Args:
        stream: opened in binary mode.
        source: what error messages call it.
        after: number and end of the line that the stream stands behind.
    """
    number, end = after
    while line := stream.readline(LONGEST_LINE_BYTES + 1):
        number += 1
        end += len(line)
        if len(line) > LONGEST_LINE_BYTES:
            reason = f"is over {LONGEST_LINE_BYTES // 2**20} MiB long; is this a JSON lines file?"
            begins = line[:_SHOWN_BYTES]
            while not line.endswith(b"\n") and (line := stream.readline(_SKIPPED_BYTES)):
                end += len(line)
            yield BadLine(number, reason, end, begins)
            continue
        if number == 1:
            line = line.removeprefix(_BOM)
        if line.isspace() or not line:
            continue
        try:
            yield Line(number, _parsed(line, source, number), end, line)
        except BadLineError as error:
            yield BadLine(number, error.reason, end, line[:_SHOWN_BYTES])


def _parsed(line: bytes, source: str, number: int) -> dict[str, Any]:
    try:
        record = strict_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 (byte 0x{line[error.start]:02x} at position {error.start}); convert the file to UTF-8"
        raise BadLineError(source, number, reason) from None
    except json.JSONDecodeError as error:
        reason = f"is not JSON ({error.msg} at character {error.pos + 1}); every line must be one whole JSON object"
        raise BadLineError(source, number, reason) from None
    except RecursionError:
        raise BadLineError(source, number, "is nested too deep to be read; flatten it") from None
    except ValueError as error:  # NaN, a field twice, or a whole number with thousands of digits
        raise BadLineError(source, number, str(error)) from None
    if not isinstance(record, dict):
        kind = "null" if record is None else type(record).__name__
        raise BadLineError(source, number, f'must be a JSON object such as {{"text": …}}, got {kind}')
    return record


def strict_json(text: str) -> Any:
    """Return what JSON text says; NaN and Infinity, which are no JSON, and a field twice are a ValueError."""
    if text.startswith("\ufeff"):
        raise json.JSONDecodeError("Unexpected UTF-8 BOM", text, 0)
    return _DECODER.decode(text)


def _refused(constant: str) -> None:
    raise ValueError(f"holds {constant}, which is no JSON; use null or leave the field out")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        seen: set[str] = set()  # once through: a line may have millions of fields
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"holds the field {quoted(name)} twice; which one counts cannot be known")
            seen.add(name)
    return record


# Made once: `json.loads` makes one a call when it is given hooks, which takes as long as reading a short line.
_DECODER: Final = json.JSONDecoder(parse_constant=_refused, object_pairs_hook=_object)
