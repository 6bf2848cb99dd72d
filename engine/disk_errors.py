"""Which error of the operating system lies behind one of SQLite's, which names its own and keeps the other."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from pathlib import Path
from typing import Final

# Primary result codes; the extended ones have more bits above.
_READ_ONLY: Final = 8
_IO: Final = 10
_FULL: Final = 13
_CANNOT_OPEN: Final = 14


def os_error_of(error: sqlite3.Error, path: Path | None) -> OSError | None:
    """Return what the operating system has said, as far as can be seen from where the file lies.

    Args:
        error: SQLite's.
        path: the database file; None for one in memory.

    Returns:
        The OSError, with SQLite's error as its cause; None where the file system is not to blame.
    """
    number = _number(getattr(error, "sqlite_errorcode", 0) & 0xFF, path)
    if number is None:
        return None
    found = OSError(number, os.strerror(number)) if path is None else OSError(number, os.strerror(number), str(path))
    found.__cause__ = error
    return found


def _number(code: int, path: Path | None) -> int | None:
    if code not in (_READ_ONLY, _IO, _FULL, _CANNOT_OPEN):
        return None
    seen = None if path is None else _seen(path)
    if code == _FULL:
        return seen if seen in (errno.EFBIG, errno.EROFS) else errno.ENOSPC
    if code == _READ_ONLY:
        return seen or errno.EACCES
    if code == _CANNOT_OPEN:
        return (None if path is None else _opening(path)) or seen or errno.EIO
    return seen or errno.EIO


def _seen(path: Path) -> int | None:
    """What keeps a file from growing, if that can be seen from outside."""
    if sys.platform == "win32":
        return None
    if _limit_reached(path):
        return errno.EFBIG
    try:
        file_system = os.statvfs(path.parent)
    except OSError as error:
        return error.errno
    if file_system.f_flag & os.ST_RDONLY:
        return errno.EROFS
    return errno.ENOSPC if file_system.f_bavail == 0 else None


def _limit_reached(path: Path) -> bool:
    """Whether one of the database's files is within a page's reach of what this process may write to one file."""
    if sys.platform == "win32":
        return False
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return False
    sizes = []
    for name in (path.name, f"{path.name}-wal"):
        try:
            sizes.append(path.with_name(name).stat().st_size)
        except OSError:
            continue
    return max(sizes, default=0) + 65_536 >= limit


def _opening(path: Path) -> int | None:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        return error.errno
    return None if os.access(path.parent, os.W_OK) else errno.EACCES
