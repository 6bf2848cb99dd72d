"""The copy of a ledger that is kept when it is brought to a newer format."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from jiyi.derived import flush_to_disk
from jiyi.errors import StoreError
from jiyi.paths import said_by, shown

# Room beside the copy for what the migration itself writes.
_SPARE_BYTES: Final = 16 << 20


def keep_copy(connection: sqlite3.Connection, path: Path, found: str) -> Path:
    """Keep a copy of a ledger as it is before its format changes, as `ledger.sqlite.format-<found>`.

    It appears under its name when it is whole: one that is there is from a migration that did not end, and stays.

    Raises:
        StoreError: there is no room for it, or it cannot be written. Nothing has changed.
    """
    copy = path.with_name(f"{path.name}.format-{found}")
    if copy.exists():
        return copy
    size = path.stat().st_size
    free = shutil.disk_usage(path.parent).free
    if free < size + _SPARE_BYTES:
        raise StoreError(
            f"{shown(path)} is a store of format {found} and has to be brought to a newer one, of which a copy is "
            f"kept: that takes {(size + _SPARE_BYTES) / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free. Make room, or "
            "copy the folder to where there is some"
        )
    partial = path.with_name(f"partial-{copy.name}")
    try:
        partial.unlink(missing_ok=True)
        with closing(sqlite3.connect(partial)) as target:
            connection.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # a file by itself
        flush_to_disk(partial)
        partial.replace(copy)
        flush_to_disk(path.parent)
    except OSError as error:
        raise StoreError(
            f"a copy of {shown(path)} could not be kept before its format is changed: {said_by(error)}"
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return copy


def remove_copies(path: Path) -> None:
    """Remove the copies that were kept of a ledger: they hold what is being erased."""
    for copy in path.parent.glob(f"{path.name}.format-*"):
        copy.unlink(missing_ok=True)
