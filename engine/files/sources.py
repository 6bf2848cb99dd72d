"""Which files a job reads: names, patterns and folders, in a fixed order, each once."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal

from jiyi.files.errors import BadFileError
from jiyi.paths import too_long

Format = Literal["jsonl", "parquet", "arrow"]
FORMATS: Final[tuple[Format, ...]] = ("jsonl", "parquet", "arrow")
Compression = Literal["gzip", "zstd"]

#: What stands for standard input.
STDIN: Final = "-"

_SUFFIXES: Final[dict[str, Format]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_COMPRESSED: Final[dict[str, Compression]] = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}

_HEAD_BYTES: Final = 2**16


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read, or standard input."""

    name: str
    """As it was given, for messages."""
    path: Path | None
    """None for standard input."""
    size: int | None
    """Bytes, when the job began; None where nobody knows: a pipe, a FIFO."""
    modified_ns: int = 0

    @property
    def identity(self) -> str | None:
        """Where it lies, the same however it was named; None for what cannot be read twice."""
        return None if self.path is None or self.size is None else str(self.path.resolve())

    def fingerprint(self) -> str:
        """Return what tells whether it is still the file that it was: its size, its time and how it begins."""
        if self.path is None or self.size is None:
            raise ValueError(f"{self.name} cannot be read twice")
        with self.path.open("rb") as stream:
            head = blake2b(stream.read(_HEAD_BYTES), digest_size=16).hexdigest()
        return f"{self.size}/{self.modified_ns}/{head}"


def suffixes_of(name: str) -> tuple[Format | None, Compression | None]:
    """Return the format and the compression that a file's name says."""
    path = Path(name)
    compression = _COMPRESSED.get(path.suffix.lower())
    inner = Path(path.stem).suffix if compression else path.suffix
    return _SUFFIXES.get(inner.lower()), compression


def find_sources(paths: Sequence[str | Path]) -> tuple[list[Source], list[str]]:
    """Return the files that names, patterns and folders stand for, and the names of those that came up again.

    A pattern (`*`, `?`, `[…]`, `**` for any depth) gives its files by name, and so does a folder, which gives those
    with a name that says a format, at any depth. A name that exists is never taken as a pattern.

    Raises:
        BadFileError: there is no such file, or none that a pattern or a folder stands for.
    """
    found: list[Source] = []
    again: list[str] = []
    seen: set[str] = set()
    for given in map(str, paths):
        for source in _sources(given):
            key = source.identity or source.name
            if key in seen:
                again.append(source.name)
            else:
                seen.add(key)
                found.append(source)
    return found, again


def _sources(given: str) -> Iterator[Source]:
    if given == STDIN:
        if sys.stdin is None:
            raise BadFileError("standard input", "it is closed; name a file")
        yield Source("standard input", None, None)
        return
    if "\0" in given:
        raise BadFileError(given.replace("\0", "\\0"), "a file name cannot hold the character U+0000")
    if (wrong := too_long(given)) is not None:
        raise BadFileError(given, wrong)
    path = Path(given)
    if path.is_dir():
        inside = sorted(each for each in path.rglob("*") if suffixes_of(each.name)[0] and each.is_file())
        if not inside:
            raise BadFileError(given, f"the folder holds no file named {', '.join(_SUFFIXES)} (.gz, .zst)")
        yield from map(_file, map(str, inside))
    elif path.exists() or not any(sign in given for sign in "*?["):
        yield _file(given)
    else:
        names = sorted(name for name in glob(given, recursive=True) if not Path(name).is_dir())  # noqa: PTH207 - absolute ones too
        if not names:
            raise BadFileError(given, "no file matches this pattern, seen from the working folder")
        yield from map(_file, names)


def _file(name: str) -> Source:
    try:
        status = Path(name).stat()
    except OSError as error:
        raise BadFileError(name, f"{error.strerror or error}; name a file that can be read") from error
    if not os.access(name, os.R_OK):
        raise BadFileError(name, "is not to be read by this user; change its permissions")
    regular = stat.S_ISREG(status.st_mode)
    return Source(name, Path(name), status.st_size if regular else None, status.st_mtime_ns if regular else 0)
