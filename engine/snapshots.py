"""Snapshots of a store, and stores from snapshots: copied aside, checked, and then renamed into place.

A folder appears under its name when it is whole and was read back without a fault, or not at all. What a copy that was
stopped has left lies beside it under a hidden name and is nobody's store. The next snapshot to the same place goes on
with it; whatever else is made there removes it.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jiyi import acknowledged, page_sums
from jiyi.connections import Connections
from jiyi.copying import remove_copy
from jiyi.derived import flush_to_disk
from jiyi.erase import NOTE
from jiyi.errors import StoreError, StoreLockedError
from jiyi.integrity import broken_pages, damage, damage_on
from jiyi.ledger import FILE_NAME, Ledger
from jiyi.lock import WriterLock
from jiyi.migration import remove_copies
from jiyi.paths import checked_path, said_by, shown
from jiyi.quoted import quoted

if TYPE_CHECKING:
    from jiyi.store import Store

_LOG: Final = f"{FILE_NAME}-wal"
_LOG_INDEX: Final = f"{FILE_NAME}-shm"
_INDEXES: Final = "indexes"
# What is behind a folder's name where a snapshot to there grows.
_GROWING: Final = "-snapshot"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def snapshot(store: Store, dest: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> Path:
    """Copy a store into a new folder, see `Engine.snapshot`."""
    folder = checked_path(dest, "the folder of the snapshot")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of two numbers, got {type(progress).__name__[:80]}")
    _refuse_dest(store, folder)
    doing, damaged = f"the snapshot to {shown(folder)}", f"the snapshot to {shown(folder)} was not made: the store"
    with _kept_beside(folder, doing, store.folder) as partial:
        _refuse_dest(store, folder)  # another snapshot to there may have ended meanwhile
        if store.folder is not None:  # what is copied row by row must have no row that cannot be reached
            with store.ledger.reading() as connection:
                _refuse_damaged(list(broken_pages(connection)), damaged)
        while True:
            copied = store.ledger.copy_to(partial, progress)
            _finish(partial / FILE_NAME)
            with closing(_opened(partial / FILE_NAME)) as copy:
                found = damage_on(copy, indexes=copied.kept > 0)
            if not found or not copied.kept:
                break
            remove_copy(partial / FILE_NAME)  # what an earlier one had left may be damaged, and not the store
        _refuse_damaged(found, damaged)
        _remove_log(partial)
        flush_to_disk(partial / FILE_NAME)
        rename(partial, folder)
    return folder


def _refuse_dest(store: Store, folder: Path) -> None:
    refuse_filled(folder, "name a new folder for the snapshot")
    if store.folder is not None and folder.resolve().is_relative_to(store.folder.resolve()):
        raise ValueError(
            f"{shown(folder)} lies inside the store itself; name a folder outside of {shown(store.folder)}"
        )


@contextmanager
def _kept_beside(folder: Path, doing: str, store: Path | None) -> Iterator[Path]:
    """The hidden folder in which a snapshot grows, locked meanwhile. It stays where the work is stopped from outside.

    Raises:
        StoreLockedError: another snapshot to the same place is under way.
        StoreError: something cannot be written.
    """
    partial = folder.with_name(f".{folder.name}{_GROWING}")
    lock: WriterLock | None = None
    keep = False
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_stopped(folder, but=partial)
        partial.mkdir(exist_ok=True)
        lock = WriterLock(partial)
        yield partial
    except StoreLockedError:
        keep = True
        raise
    except (OSError, StoreError) as error:
        cause = error if isinstance(error, OSError) else error.os_error
        keep = lock is not None and cause is not None and not _takes_room_of(store, partial, cause)
        said = _cannot(doing, error) if isinstance(error, OSError) else error
        if not keep:
            raise said from (error if said is not error else error.__cause__)
        raise StoreError(
            f"{said}. What was copied lies in {shown(partial)}; the next snapshot to {shown(folder)} goes on there"
        ) from error
    except Exception:
        raise
    except BaseException:  # interrupted
        keep = True
        raise
    finally:
        if lock is not None:
            lock.release()
        if not keep and partial.exists():
            shutil.rmtree(partial, ignore_errors=True)


def _takes_room_of(store: Path | None, partial: Path, error: OSError) -> bool:
    """Whether what was copied has filled the disk that the store itself has to write to."""
    if error.errno not in _FULL or store is None:
        return False
    try:
        return store.stat().st_dev == partial.stat().st_dev
    except OSError:
        return True


def _cannot(doing: str, error: OSError) -> StoreError:
    return StoreError(f"{doing} failed: {said_by(error)}; choose a folder that can be written and has room")


def restore(snapshot: str | os.PathLike[str], store: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Make a store of a snapshot; return its folder. The snapshot stays as it is.

    It is copied aside, brought to this release's format and checked; only then the store is there, all at once.

    Args:
        snapshot: the folder that `Engine.snapshot` made. Any store will do, also one that is in use.
        store: the folder of the new store.
        overwrite: replace the store that is there. Nobody may have it open. At every moment one of the two is there.

    Raises:
        ValueError: there is no snapshot, or the folder is not empty and is not to be overwritten.
        StoreLockedError: the store that is to be overwritten is in use.
        StoreError: the snapshot is damaged, or the store cannot be written. What was there is untouched.

    >>> import jiyi, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with jiyi.open(folder / "store", embedder=None) as engine:
    ...     _ = engine.add("周末喜欢去徒步")
    ...     _ = engine.snapshot(folder / "snapshot")
    >>> restored = jiyi.restore(folder / "snapshot", folder / "again")
    >>> with jiyi.open(restored, embedder=None) as engine:
    ...     engine.count()
    1
    """
    source, folder = checked_path(snapshot, "the snapshot's folder"), checked_path(store, "the store's folder")
    if not isinstance(overwrite, bool):
        raise TypeError(f"overwrite must be True or False, got {quoted(overwrite)}")
    if not (source / FILE_NAME).is_file():
        raise ValueError(
            f"{shown(source)} holds no {FILE_NAME}, so it is no snapshot; name the folder that `snapshot` made"
        )
    if folder.exists() and source.resolve() == folder.resolve():
        raise ValueError(f"{shown(folder)} is the snapshot itself; name another folder for the store")
    if overwrite:
        if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / FILE_NAME).exists())):
            raise ValueError(
                f"{shown(folder)} holds something that is no store; it is not overwritten. Name another folder"
            )
    else:
        refuse_filled(folder, "name a new folder for the store, or give overwrite=True")
    doing = f"restoring {shown(source)} to {shown(folder)}"
    with beside(folder, doing) as partial:
        _copy(source / FILE_NAME, partial / FILE_NAME, doing)
        ledger = Ledger(partial)
        try:
            _refuse_damaged(damage(ledger), f"{doing} was given up: the snapshot")
        finally:
            ledger.close()
        remove_copies(partial / FILE_NAME)  # the snapshot is that copy
        _remove_log(partial)
        flush_to_disk(partial / FILE_NAME)
        if folder.is_dir() and any(folder.iterdir()):
            _take_the_place(partial, folder)
        else:
            rename(partial, folder)
    return folder


def refuse_filled(folder: Path, advice: str) -> None:
    """Raise if a folder that is to be made is there and holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{shown(folder)} exists and is not empty; {advice}")


@contextmanager
def beside(folder: Path, doing: str) -> Iterator[Path]:
    """A hidden folder next to the one that is to be, locked while it is filled, and gone in the end."""
    partial: Path | None = None
    lock: WriterLock | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_stopped(folder)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        lock = WriterLock(partial)
        partial.chmod(0o777 & ~_umask())
        yield partial
    except OSError as error:
        raise _cannot(doing, error) from error
    finally:
        if lock is not None:
            lock.release()
        if partial is not None and partial.exists():
            shutil.rmtree(partial, ignore_errors=True)


def _remove_stopped(folder: Path, but: Path | None = None) -> None:
    """Remove what copies to this folder have left that were stopped: nobody holds their locks."""
    for left in folder.parent.glob(f".{folder.name}-*"):
        if left == but or not left.is_dir() or not (left / "writer.lock").exists():
            continue
        with suppress(StoreLockedError, StoreError):
            WriterLock(left).release()
            shutil.rmtree(left, ignore_errors=True)


def rename(partial: Path, folder: Path) -> None:
    """Let a folder that was made aside appear under its name."""
    flush_to_disk(partial)
    partial.replace(folder)  # onto nothing or an empty folder; another copy may have been quicker
    flush_to_disk(folder.parent)


def _copy(source: Path, target: Path, doing: str) -> None:
    """Copy a ledger as it is at one moment."""
    connections: Connections | None = None
    try:
        connections = Connections(source, read_only=True, durability="process", write_lock=threading.RLock())
        with closing(sqlite3.connect(target)) as copy:
            connections.writer.backup(copy)
    except sqlite3.Error as error:
        raise StoreError(f"{doing} failed: {error}; `jiyi verify --store {shown(source.parent)}` says more") from error
    finally:
        if connections is not None:
            connections.close()


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _finish(path: Path) -> None:
    """Make a copy a file of its own."""
    with closing(_opened(path)) as copy:
        copy.execute("DELETE FROM manifest WHERE key = ?", (NOTE,))  # nothing that was deleted has come along
        # A file of its own: put in the place of the store's, it is not what that one's page checksums are of.
        copy.execute("INSERT OR REPLACE INTO manifest VALUES (?, ?)", (page_sums.SESSION, uuid.uuid4().hex))
        copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _refuse_damaged(found: list[str], what: str) -> None:
    if found:
        raise StoreError(
            f"{what} is damaged ({len(found)} faults, the first: {found[0]:.300}); `jiyi verify --repair OUT` saves "
            "what can be read into a new store"
        )


def _take_the_place(partial: Path, folder: Path) -> None:
    """Put the ledger of one folder in the place of another's. The derived files of that are removed before."""
    lock = WriterLock(folder)
    try:
        _empty_old_log(folder)
        shutil.rmtree(folder / _INDEXES, ignore_errors=True)
        page_sums.drop(folder / FILE_NAME)
        acknowledged.drop(folder / FILE_NAME)
        remove_copies(folder / FILE_NAME)
        (partial / FILE_NAME).replace(folder / FILE_NAME)
        flush_to_disk(folder)
    finally:
        lock.release()


def _empty_old_log(folder: Path) -> None:
    """Bring the log of a ledger that is to be replaced into its file, so that it is not taken for the new one's."""
    try:
        with closing(_opened(folder / FILE_NAME)) as old:
            old.execute("PRAGMA busy_timeout = 1000")
            old.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise StoreError(
                f"{shown(folder)} is being read by another process or engine; close it there first"
            ) from error
        _remove_log(folder)  # damaged, and not to be kept
    except sqlite3.Error:
        _remove_log(folder)


def _remove_log(folder: Path) -> None:
    for name in (_LOG, _LOG_INDEX):
        (folder / name).unlink(missing_ok=True)


def _umask() -> int:
    """What new files are not allowed, as this process has it; there is no way to read it without setting it."""
    mask = os.umask(0o22)
    os.umask(mask)
    return mask
