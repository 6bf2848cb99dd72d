"""One writer a folder: a lock that dies with the process that holds it."""

from __future__ import annotations

import errno
import os
import socket
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from jiyi.errors import StoreError, StoreLockedError
from jiyi.paths import said_by, shown

_FILE_NAME: Final = "writer.lock"


class WriterLock:
    """An exclusive lock on a store's folder.

    It is the operating system's lock on an open file, not the file's existence: it is gone as soon as the process is,
    however that ended, and a reused process id cannot keep it. The file only names the holder for the error message.

    Raises:
        StoreLockedError: somebody else holds it; the message names them.
        StoreError: the lock file cannot be made, or its file system knows no locks.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / _FILE_NAME
        try:
            self._file: IO[str] | None = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise StoreError(
                f"cannot write in {shown(folder)}: {said_by(error)}; open the store with read_only=True to only read"
            ) from error
        try:
            taken = _try_lock(self._file)
        except OSError as error:
            self._file.close()
            raise StoreError(
                f"{shown(path)} cannot be locked ({said_by(error)}): without a lock two processes could write at once. "
                "Network and overlay file systems may have none; keep the store on a local disk, or mount with locks "
                "(NFS: without nolock)"
            ) from error
        if not taken:
            holder = _holder(self._file)
            self._file.close()
            raise StoreLockedError(str(folder), holder)
        _held.add(self)
        try:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(
                f"process {os.getpid()} on {socket.gethostname()} ({Path(sys.argv[0] or 'python').name})\n"
            )
            self._file.flush()
        except OSError:
            pass  # a full disk must not keep anybody from opening: the holder goes unnamed

    def release(self) -> None:
        """Let another process write."""
        if self._file is not None:
            _unlock(self._file)  # closing is not enough while a forked child has the file open too
            self._close()

    def _forget(self) -> None:
        """In a forked child: give up this copy, so that the lock dies with the parent and not with the child."""
        if self._file is not None:
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        with suppress(OSError):  # the holder's name, where a full disk had no room for it, is written once more
            if file is not None:
                file.close()


def _holder(file: IO[str]) -> str:
    """What the holder says of itself, on one line."""
    try:
        file.seek(0)
        return " ".join(file.read(300).split()) or "another process"
    except (OSError, ValueError):  # locked against reading as well, or no text
        return "another process"


def _refused(error: OSError) -> bool:
    """False for a lock that is taken; anything else that is wrong is raised."""
    if error.errno not in _TAKEN:
        raise error
    return False


def _forget_all() -> None:
    for lock in list(_held):
        lock._forget()


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


# What a lock that somebody else has looks like; every other error is the file system's.
_TAKEN: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[str]) -> bool:
        try:
            file.seek(0x7FFF0000)  # beyond the text, which others must be able to read
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError as error:
            return _refused(error)
        return True

    def _unlock(file: IO[str]) -> None:
        file.seek(0x7FFF0000)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _try_lock(file: IO[str]) -> bool:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return _refused(error)
        return True

    def _unlock(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
