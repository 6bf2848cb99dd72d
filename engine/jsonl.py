"""JSON lines: one object a line, read with errors that name the line and say what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any, Final, NamedTuple

from jiyi.errors import JiyiError

#: A longer line is refused rather than read into memory.
LONGEST_LINE_BYTES: Final = 64 * 2**20

_BOM: Final = b"\xef\xbb\xbf"


class BadLineError(JiyiError, ValueError):
    """A line of a file is not what it must be."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        self.source = source
        self.line = line
        self.reason = reason
        super().__init__(f"{source}, line {line}: {reason}")


class Line(NamedTuple):
    """One line that holds something."""

    number: int
    """From 1; blank lines count."""
    record: dict[str, Any]
    end: int
    """Bytes read up to its end."""


def read_lines(stream: IO[bytes], source: str) -> Iterator[Line]:
    """Yield the objects of a JSON lines file, one at a time; blank lines are passed over.

    Args:
        stream: opened in binary mode.
        source: what error messages call it.

    Raises:
        BadLineError: a line is no UTF-8, no JSON (NaN and Infinity are none), no object, or over 64 MiB long.
    """
    end = number = 0
    while line := stream.readline(LONGEST_LINE_BYTES + 1):
        number += 1
        end += len(line)
        if len(line) > LONGEST_LINE_BYTES:
            raise BadLineError(
                source, number, f"is over {LONGEST_LINE_BYTES // 2**20} MiB long; is this a JSON lines file?"
            )
        if number == 1:
            line = line.removeprefix(_BOM)
        if line.strip():
            yield Line(number, _parsed(line, source, number), end)


def _parsed(line: bytes, source: str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line.decode("utf-8"), parse_constant=_refused, object_pairs_hook=_object)
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


def _refused(constant: str) -> None:
    raise ValueError(f"holds {constant}, which is no JSON; use null or leave the field out")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"holds the field {twice[:80]!r} twice; which one counts cannot be known")
    return record
