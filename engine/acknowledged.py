"""The sequence number of the last change that was acknowledged, in a file of its own beside the ledger's log.

SQLite takes a log whose end is damaged for one whose writing was stopped, and drops that end without a word. This file
knows better: after the death of a process it says up to which change the ledger must reach. It is written after each
commit, without an fsync (a microsecond or two), so it can lag behind and never runs ahead of what was acknowledged; a
store that is closed has none.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

_FILE_NAME: Final = "ledger.acknowledged"
_RECORD: Final = struct.Struct("<QI")


def read(path: Path) -> int | None:
    """Return what the file beside a ledger says; None when there is none, or it is damaged."""
    try:
        sequence, crc = _RECORD.unpack(path.with_name(_FILE_NAME).read_bytes())
    except (OSError, struct.error):
        return None
    return int(sequence) if zlib.crc32(_RECORD.pack(sequence, 0)) == crc else None


def drop(path: Path) -> None:
    """Remove the file beside a ledger that another takes the place of."""
    path.with_name(_FILE_NAME).unlink(missing_ok=True)


class Acknowledged:
    """Keeps the file up to date. What goes wrong with it is passed over: it makes a loss known, and loses nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(_FILE_NAME)
        self._descriptor: int | None = None

    def note(self, sequence: int) -> None:
        """Say that changes up to a number are acknowledged."""
        with suppress(OSError):
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o666)
            content = _RECORD.pack(sequence, zlib.crc32(_RECORD.pack(sequence, 0)))
            if hasattr(os, "pwrite"):
                os.pwrite(self._descriptor, content, 0)
            else:
                os.lseek(self._descriptor, 0, os.SEEK_SET)
                os.write(self._descriptor, content)

    def close(self, *, whole: bool) -> None:
        """Close the file; `whole`: the ledger has everything, and the file goes."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None
        if whole:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
