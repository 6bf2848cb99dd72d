"""Bytes of a source, decompressed: what a file holds is told by its first bytes, whatever its name says."""

from __future__ import annotations

import gzip
import io
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final, cast

from jiyi.files.errors import BadFileError, MissingPackageError
from jiyi.files.sources import Compression, Format, Source

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = (b"\x28\xb5\x2f\xfd", *(bytes([byte]) + b"\x2a\x4d\x18" for byte in range(0x50, 0x60)))
_PARQUET: Final = b"PAR1"
_ARROW_FILE: Final = b"ARROW1"
_ARROW_STREAM: Final = b"\xff\xff\xff\xff"
_FEATHER_1: Final = b"FEA1"

_BLOCK_BYTES: Final = 2**18

#: What reading compressed bytes raises when they are damaged or end too early.
DAMAGE: Final = (EOFError, zlib.error, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Opened:
    """A source, ready to be read."""

    stream: io.BufferedReader
    """What it holds, decompressed."""
    format: Format
    arrow_stream: bool
    """Arrow as a stream, that has no directory at its end."""
    compressed: Compression | None
    read_bytes: Callable[[], int]
    """How many bytes of the file itself were read by now."""


class _Raw(io.RawIOBase):
    """Gives what has only `read` a buffer and lines."""

    def __init__(self, source: Any) -> None:
        # What is there when a file turns out to be cut off is still given: `read` would only raise.
        self._read = getattr(source, "read1", source.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        content = self._read(len(view))
        view[: len(content)] = content
        return len(content)


@contextmanager
def opened(source: Source, given: Format | None) -> Iterator[Opened]:
    """Open a source and find out what it holds.

    Args:
        source: a file or standard input.
        given: its format, instead of what its first bytes say.

    Raises:
        BadFileError: it cannot be opened, or holds what cannot be read.
        MissingPackageError: it needs pyarrow.
    """
    with ExitStack() as stack:
        try:
            if source.path is None:
                file = cast("io.BufferedReader", sys.stdin.buffer)
                if not isinstance(file, io.BufferedReader):  # what tests and notebooks put in its place
                    file = io.BufferedReader(_Raw(file), _BLOCK_BYTES)
            else:
                file = io.BufferedReader(stack.enter_context(source.path.open("rb", buffering=0)), _BLOCK_BYTES)
            compressed = _compression(file.peek(8))
        except OSError as error:
            raise BadFileError(source.name, error.strerror or str(error)) from error
        counted = _Counted(file)
        stream = file
        if compressed is not None:
            stream = io.BufferedReader(_decompressing(counted, compressed), _BLOCK_BYTES)
        try:
            head = stream.peek(8)
        except DAMAGE as error:
            raise BadFileError(source.name, damage(error, compressed)) from error
        known = _format(head, source.name)
        if given is None:
            given = known or "jsonl"
        read_bytes = (lambda: counted.count) if compressed is not None else _position(file)
        if given != "jsonl" and (compressed is not None or source.size is None) and not head.startswith(_ARROW_STREAM):
            if compressed is not None:
                raise BadFileError(
                    source.name, f"{given} is read from both ends and cannot be inside {compressed}; decompress it"
                )
            stream = stack.enter_context(_spooled(stream))
        yield Opened(stream, given, head.startswith(_ARROW_STREAM), compressed, read_bytes)


class _Counted:
    """Counts what is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.count = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        self.count += len(content)
        return content

    # What pyarrow asks of a file.
    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def _position(file: io.BufferedReader) -> Callable[[], int]:
    return file.tell if file.seekable() else lambda: 0


def _compression(head: bytes) -> Compression | None:
    if head.startswith(_GZIP):
        return "gzip"
    return "zstd" if head.startswith(_ZSTD) else None


def _decompressing(file: _Counted, compression: Compression) -> io.RawIOBase:
    if compression == "gzip":
        return _Raw(gzip.GzipFile(fileobj=cast("IO[bytes]", file), mode="rb"))
    try:
        import pyarrow
    except ImportError:
        raise MissingPackageError("reading zstd") from None
    return _Raw(pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd"))


def _format(head: bytes, name: str) -> Format | None:
    if head.startswith(_PARQUET):
        return "parquet"
    if head.startswith((_ARROW_FILE, _ARROW_STREAM)):
        return "arrow"
    if head.startswith(_FEATHER_1):
        raise BadFileError(name, "is Feather of version 1, which nobody writes any more; save it as version 2")
    return None


def _spooled(stream: io.BufferedReader) -> io.BufferedReader:
    """Copy what can be read only once to where it can be read from both ends."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    while content := stream.read(_BLOCK_BYTES):
        copy.write(content)
    copy.seek(0)
    return cast("io.BufferedReader", copy)


def damage(error: BaseException, compressed: Compression | None) -> str:
    """Say what is wrong with bytes that could not be read."""
    said = " ".join(str(error).split())[:200] or type(error).__name__
    if isinstance(error, EOFError) or "runcated" in said:
        return f"is cut off: the {compressed or 'file'} ends before its end ({said})"
    return f"is damaged or cannot be read: {said}"
