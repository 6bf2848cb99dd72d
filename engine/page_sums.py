"""Checksums of the ledger's pages, beside it: what tells at opening whether the file is as it was closed.

SQLite has none. They are written when a store that was open for writing is closed and its log is in its file, and
taken away when it is opened for writing again, so that they are there exactly while nobody changes the file. After the
death of a process there are none, and SQLite's own check of the structure stands in (`recovery`). They name the state
that they are of (`state_of`): of another one, such as an older copy that was put in the ledger's place, they say
nothing.
"""

from __future__ import annotations

import os
import struct
import uuid
import zlib
from array import array
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

FILE_NAME: Final = "ledger.sums"
#: Manifest entry that is new whenever the ledger is first changed after it was opened.
SESSION: Final = "session"
_HEAD: Final = struct.Struct("<8sQIIQ")
_MAGIC: Final = b"jiyisum2"
_PAGE_BYTES: Final = 8192
_CHUNK_PAGES: Final = 512

#: Larger ledgers are checked by `verify` alone: opening one must not read all of it.
MOST_BYTES: Final = 256 << 20


def state_of(manifest: Mapping[str, object]) -> int:
    """Return a number that no two states of ledgers share, by what their manifests say."""
    names = "\0".join(str(manifest.get(key)) for key in ("store", SESSION, "sequence"))
    return int.from_bytes(blake2b(names.encode(), digest_size=8).digest(), "little")


def are_of(content: bytes, state: int) -> bool:
    """Return whether checksums (`read`) are of a state."""
    return int(_HEAD.unpack_from(content)[4]) == state


def written(path: Path, state: int) -> bytes | None:
    """Return the checksums of a ledger's pages as they would be written; None when it is too large or has a log."""
    size = path.stat().st_size
    if size > MOST_BYTES or not log_is_empty(path):
        return None
    sums = _sums_of(path)
    content = sums.tobytes()
    return _HEAD.pack(_MAGIC, size, zlib.crc32(content), len(sums), state) + content


def keep(path: Path, content: bytes) -> None:
    """Write checksums beside a ledger.

    Raises:
        OSError: they could not be written; there are none then.
    """
    partial = path.with_name(f"partial-{uuid.uuid4().hex}")
    try:
        partial.write_bytes(content)
        partial.replace(path.with_name(FILE_NAME))
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def drop(path: Path) -> None:
    """Take the checksums of a ledger away, before it is changed."""
    path.with_name(FILE_NAME).unlink(missing_ok=True)


def read(path: Path) -> bytes | None:
    """Return the checksums beside a ledger; None when there are none that are whole."""
    try:
        content = path.with_name(FILE_NAME).read_bytes()
        magic, _, crc, count, _ = _HEAD.unpack_from(content)
    except (OSError, struct.error):
        return None
    sums = content[_HEAD.size :]
    return content if magic == _MAGIC and len(sums) == 4 * count and zlib.crc32(sums) == crc else None


def wrong_pages(path: Path) -> set[int] | None:
    """Return the numbers, from 1, of the pages that are not what was written; None when that cannot be known."""
    content = read(path)
    if content is None or not log_is_empty(path):
        return None
    try:
        size = path.stat().st_size
        sums = _sums_of(path) if size <= 2 * MOST_BYTES else array("I")
    except OSError:
        return None
    expected = array("I", content[_HEAD.size :])
    _, expected_size, _, _, _ = _HEAD.unpack_from(content)
    wrong = {i for i, (got, wanted) in enumerate(zip(sums, expected, strict=False), start=1) if got != wanted}
    wrong |= set(range(min(len(sums), len(expected)) + 1, max(len(sums), len(expected)) + 1))
    if size != expected_size:
        wrong.add(len(expected))
    if wrong and (read(path) != content or not log_is_empty(path)):
        return None  # somebody has opened it for writing meanwhile
    return wrong


def log_is_empty(path: Path) -> bool:
    """Return whether a ledger has everything that was written to it: nothing stands in its log alone."""
    try:
        return os.stat(f"{path}-wal").st_size == 0  # noqa: PTH116
    except OSError:
        return True


def _sums_of(path: Path) -> array[int]:
    sums = array("I")
    buffer = bytearray(_PAGE_BYTES * _CHUNK_PAGES)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            sums.extend(zlib.crc32(view[at : min(at + _PAGE_BYTES, count)]) for at in range(0, count, _PAGE_BYTES))
    return sums
