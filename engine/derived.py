"""Derived files: indexes kept on disk so that reopening is quick, and never trusted.

A *generation* is a folder `indexes/<name>-<sequence>` with the files and a manifest that names the sequence number
of the ledger they show, their sizes and SHA-256. It is written aside, flushed to the disk, read back from there and
then renamed into place, so a crash or a full disk leaves either the whole generation or nothing that is looked at. One
that is missing, of other settings or damaged is as good as absent: the index is built again from the ledger.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Final

_MANIFEST: Final = "manifest.json"
_PARTIAL: Final = "partial-"
# <what>-<namespace's number>-<sequence>; whatever else lies in the folder is not ours.
_NAME: Final = re.compile(r"[a-z.0-9]+-[0-9]+-[0-9]+", re.ASCII)


def write_generation(
    folder: Path,
    name: str,
    sequence: int,
    settings: Mapping[str, Any],
    fill: Callable[[Path], None],
    *,
    swapping: AbstractContextManager[Any],
) -> Path:
    """Write a generation and remove the older ones of its name.

    Args:
        folder: the store's folder for derived files; made when missing.
        name: what is indexed, e.g. "graph-7".
        sequence: the ledger's sequence number that the index shows.
        settings: everything that must be the same for the files to be of use: model, dimension, versions.
        fill: writes the files into the empty folder that it is given.
        swapping: a lock that is held while the new files take the place of older ones.

    Raises:
        OSError: the files could not be written whole; nothing in place has changed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{_PARTIAL}{uuid.uuid4().hex}"
    target = folder / f"{name}-{sequence}"
    try:
        partial.mkdir()
        fill(partial)
        files = {path.name: _fingerprint(path) for path in sorted(partial.iterdir())}
        for path in sorted(partial.iterdir()):
            flush_to_disk(path, forget=True)
            if _fingerprint(path) != files[path.name]:
                raise OSError(errno.EIO, "the disk does not hold what was written to it", str(path))
        manifest = {"sequence": sequence, "settings": dict(settings), "files": files}
        (partial / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        flush_to_disk(partial / _MANIFEST)
        flush_to_disk(partial)
        with swapping:
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
            partial.rename(target)
        flush_to_disk(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    with swapping:
        for older in _generations(folder, name):
            if older != target:
                shutil.rmtree(older, ignore_errors=True)
    return target


def read_generation(folder: Path, name: str, settings: Mapping[str, Any], sequence: int) -> Path | None:
    """Return the newest undamaged generation of a name that has these settings, or None.

    One that shows a later sequence number than `sequence` is passed over.
    """
    for generation in reversed(_generations(folder, name)):
        if sequence_of(generation) > sequence:
            continue
        try:
            manifest = json.loads((generation / _MANIFEST).read_text(encoding="utf-8"))
            if manifest["settings"] != json.loads(json.dumps(dict(settings))):
                continue
            if manifest["sequence"] != sequence_of(generation):
                continue
            listed, there = set(manifest["files"]), {path.name for path in generation.iterdir()} - {_MANIFEST}
            # Tantivy adds lock files of its own when it opens an index.
            if not listed or any(not name.endswith(".lock") for name in there - listed):
                continue
            if all(_fingerprint(generation / file) == found for file, found in manifest["files"].items()):
                return generation
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return None


def remove_generations(folder: Path, unwanted: Callable[[str], bool]) -> None:
    """Remove the generations of every name that is not wanted."""
    for generation in _generations(folder, "*"):
        if unwanted(generation.name.rpartition("-")[0]):
            shutil.rmtree(generation, ignore_errors=True)


def remove_newer(folder: Path, sequence: int) -> None:
    """Remove every generation that shows a later sequence number than the ledger has."""
    for generation in _generations(folder, "*"):
        if sequence_of(generation) > sequence:
            shutil.rmtree(generation, ignore_errors=True)


def remove_partial(folder: Path) -> None:
    """Remove what a process that died while writing has left."""
    if folder.is_dir():
        for path in folder.glob(f"{_PARTIAL}*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink(missing_ok=True)


def remove_superseded(folder: Path) -> None:
    """Remove what a process that died while removing has left: parts of generations, and those with a newer one."""
    seen: set[str] = set()
    for generation in reversed(_generations(folder, "*")):
        name = generation.name.rpartition("-")[0]
        if name in seen or not _is_complete(generation):
            shutil.rmtree(generation, ignore_errors=True)
        else:
            seen.add(name)


def _is_complete(generation: Path) -> bool:
    """Whether every file is there, as long as it was; what is in them is looked at when they are used."""
    try:
        manifest = json.loads((generation / _MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest["files"]) and all(
            (generation / file).stat().st_size == found[0] for file, found in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return False


def generations_of(folder: Path) -> list[Path]:
    """Return every generation of every name."""
    return _generations(folder, "*")


def sequence_of(generation: Path) -> int:
    """Return the ledger's sequence number that a generation shows."""
    return int(generation.name.rpartition("-")[2])


def _generations(folder: Path, name: str) -> list[Path]:
    """All generations of a name, oldest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.glob(f"{name}-*") if _NAME.fullmatch(path.name) is not None]
    return sorted(found, key=sequence_of)


def _fingerprint(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return [path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]


def flush_to_disk(path: Path, *, forget: bool = False) -> None:
    """Make a file, or a folder's list of names, reach the disk.

    Args:
        path: its.
        forget: have the system drop what it holds of the file in memory: the next that reads it reads the disk.
    """
    if path.is_dir() and os.name == "nt":  # Windows flushes folders by itself and cannot open them
        return
    descriptor = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(descriptor)
        if forget and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
