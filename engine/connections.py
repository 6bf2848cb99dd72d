"""SQLite connections to one file: one that writes, a pool that reads, and what becomes of them in a forked child.

SQLite keeps its locks on files in the memory of the process. In a forked child that memory says that locks are held
which the child does not have, so a store opened there would be read without any. Therefore nobody uses a connection
while the process forks, and the child closes those it has inherited before anybody can open the file again. That lets
go of no lock of the parent's and changes nothing on disk: the parent holds a lock that keeps others from cleaning up.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Final

from jiyi.errors import ClosedError, ForkedError, StoreError
from jiyi.paths import shown

# How long a fork waits for what is being read or written; after that the child cannot open stores.
_FORK_WAIT_S: Final = 5.0

# Pages of the log that are moved into the file at once, 32 MB: a quarter as often as by default. Waiting for the disk
# then is a good part of what a small write costs (`benches/durability.py`).
_LOG_PAGES: Final = 4_000

_Stamp = tuple[int, ...]


class Connections:
    """Connections to a ledger's file, or the one to a database in memory.

    Args:
        path: the file; None for one in memory.
        read_only: without the right to change it.
        durability: "power" for an fsync at each commit.
        write_lock: whoever uses `writer` holds it.

    Raises:
        StoreError: the file cannot be read without its log, and its folder has no room to read that.
        ForkedError: this process was forked while its parent was at work in a store.
        sqlite3.Error: it cannot be opened.
    """

    def __init__(self, path: Path | None, *, read_only: bool, durability: str, write_lock: Any) -> None:
        self.path = path
        self.lent: dict[sqlite3.Connection, object] = {}
        """Those that are lent for reading, each with what tells one loan from another."""
        self._read_only = read_only
        self._durability = durability
        self._write_lock = write_lock
        self._pid = os.getpid()
        self._closed = False
        self._idle: list[sqlite3.Connection] = []
        self._busy: dict[int, int] = {}  # by thread: how many connections it reads from, or opens
        self._held_for_fork = False
        self._stamp: _Stamp | None = None
        self._reopened = 0
        _refuse_in_child(path)
        _all.add(self)
        self.writer = self._open()

    # ------------------------------------------------------------------------------------------------- opening

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        elif self._read_only:
            connection = self._open_to_read(self.path)
        else:
            connection = _connect(self.path, "?mode=rwc")
        try:
            if self.path is not None and not self._read_only:
                # Six vectors of 256 floats a page, instead of two and an overflow.
                connection.execute("PRAGMA page_size = 8192")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
                connection.execute(f"PRAGMA synchronous = {'FULL' if self._durability == 'power' else 'NORMAL'}")
            connection.execute("PRAGMA temp_store = MEMORY")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_to_read(self, path: Path) -> sqlite3.Connection:
        stamp = _stamp_of(path)
        connection = _connect(path, "?mode=ro")
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            # A read-only mount has no room for the log's index. Nobody writes now, or the index would be there.
            connection.close()
            _refuse_unfinished_log(path)
            self._stamp = stamp
            return _connect(path, "?immutable=1")
        except BaseException:
            connection.close()
            raise
        return connection

    def _follow_file(self, path: Path) -> None:
        """Open anew what was opened as immutable, if somebody has changed the file or begun to write since."""
        if self._stamp is None or self._stamp == _stamp_of(path):
            return
        with self._write_lock:
            if self._stamp is None or self._stamp == _stamp_of(path):
                return
            self._stamp = None
            idle, self._idle = self._idle, []
            for connection in (*idle, self.writer):
                connection.close()
            self._reopened += 1
            self.writer = self._open()

    # ------------------------------------------------------------------------------------------------- lending

    def take(self) -> sqlite3.Connection:
        """Lend a connection for reading; nothing else uses it until it is given back."""
        thread = threading.get_ident()
        while True:
            self._busy[thread] = self._busy.get(thread, 0) + 1
            gate = _gate
            if gate is None or self._busy[thread] > 1:  # who has one may need another to get on
                break
            self._leave(thread)
            gate.wait(2 * _FORK_WAIT_S)
        try:
            if self._closed:
                raise ClosedError
            if self._stamp is not None and self.path is not None:
                self._follow_file(self.path)
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._open()
        except BaseException:
            self._leave(thread)
            raise
        self.lent[connection] = object()
        return connection

    def give(self, connection: sqlite3.Connection) -> None:
        """Take a connection back."""
        self.lent.pop(connection, None)
        self._idle.append(connection)
        if self._closed:  # meanwhile
            self._close_idle()
        self._leave(threading.get_ident())

    def check_unchanged(self) -> None:
        """Raise StoreError if a file that is read without its log was changed while it was read."""
        if self._stamp is not None and self.path is not None and self._stamp != _stamp_of(self.path):
            raise StoreError(f"{shown(self.path)} was changed while it was read from a read-only folder; ask again")

    def _leave(self, thread: int) -> None:
        left = self._busy[thread] - 1
        if left:
            self._busy[thread] = left
        else:
            del self._busy[thread]

    def version(self) -> tuple[int, int]:
        """Return what changes whenever another process has committed. The caller holds the write lock."""
        if self._closed:
            raise ClosedError
        if self._stamp is not None and self.path is not None:
            self._follow_file(self.path)
        return self._reopened, int(self.writer.execute("PRAGMA data_version").fetchone()[0])

    @property
    def closed(self) -> bool:
        """Whether they were closed."""
        return self._closed

    def close(self) -> None:
        """Close every connection; those that are lent when they are given back. The caller holds the write lock."""
        self._closed = True
        if self._pid == os.getpid():
            self.writer.close()
        self._close_idle()

    def _close_idle(self) -> None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            connection.close()

    # ------------------------------------------------------------------------------------------------- forking

    def hold(self, deadline: float) -> None:
        """Before a fork: let everybody finish, and nobody begin."""
        thread = threading.get_ident()
        self._held_for_fork = self._write_lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
        while any(other != thread for other in list(self._busy)) and time.monotonic() < deadline:
            time.sleep(0.001)

    def let_go(self) -> None:
        """After a fork, in the parent."""
        if self._held_for_fork:
            self._held_for_fork = False
            self._write_lock.release()

    def abandon(self) -> None:
        """After a fork, in the child: close what is the parent's, or never touch it again."""
        if self._closed and not self.lent:  # the parent had closed them
            if self._held_for_fork:
                self._held_for_fork = False
                self._write_lock.release()
            return
        thread = threading.get_ident()
        idle, self._idle, self._closed = self._idle, [], True
        held, self._held_for_fork = self._held_for_fork or self._write_lock.acquire(blocking=False), False
        if not held or any(other != thread for other in self._busy):
            # Somebody was inside SQLite: one of its own locks may be held for ever, and a transaction be half done.
            _leak([self.writer, *idle, *self.lent])
            _unusable.add(None)
            return
        used = [*self.lent, *([self.writer] if self.writer.in_transaction else [])]  # by the thread that forked
        if used:
            _leak(used)
            _unusable.add(_identity(self.path))
        for connection in {self.writer, *idle}.difference(used):
            connection.close()
        self._write_lock.release()


def _connect(path: Path, query: str) -> sqlite3.Connection:
    uri = path.resolve().as_uri() + query
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30)


def _refuse_unfinished_log(path: Path) -> None:
    """Acknowledged writes that are only in the write-ahead log must not go missing silently."""
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise StoreError(
            f"{shown(log)} holds writes that are not in {path.name} yet, and the folder cannot be written to take them "
            "over; open the store once for writing, or copy the folder to where it can be written"
        )


def _stamp_of(path: Path) -> _Stamp:
    """What changes with a file, or when somebody begins to write to it."""
    stamp: list[int] = []
    for name in (path, f"{path}-wal"):
        try:
            found = Path(name).stat()
        except OSError:
            stamp.append(-1)
        else:
            stamp.extend((found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(stamp)


# ------------------------------------------------------------------------------------------------------ forks

_all: weakref.WeakSet[Connections] = weakref.WeakSet()
_gate: threading.Event | None = None
_forking = threading.Lock()
_unusable: set[tuple[int, int] | None] = set()
"""Files that this process, a forked child, cannot open; None for every one."""


def _identity(path: Path | None) -> tuple[int, int] | None:
    if path is None:
        return (0, 0)
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _refuse_in_child(path: Path | None) -> None:
    if _unusable and (None in _unusable or (path is not None and _identity(path) in _unusable)):
        raise ForkedError(os.getppid(), os.getpid(), busy=True)


def _leak(connections: list[sqlite3.Connection]) -> None:
    """Never close these, also not when the process ends: a transaction of the parent's would be rolled back."""
    import ctypes

    for connection in connections:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _before_fork() -> None:
    global _gate
    _forking.acquire()
    _gate = threading.Event()
    deadline = time.monotonic() + _FORK_WAIT_S
    for connections in list(_all):
        connections.hold(deadline)


def _after_fork_in_parent() -> None:
    global _gate
    for connections in list(_all):
        connections.let_go()
    gate, _gate = _gate, None
    if gate is not None:
        gate.set()
    _forking.release()


def _after_fork_in_child() -> None:
    global _gate, _forking
    _gate, _forking = None, threading.Lock()
    for connections in list(_all):
        connections.abandon()
    _all.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
