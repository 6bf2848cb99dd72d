"""Where models live that do not ship: one folder each under the user's cache, made aside and renamed when whole.

The cache is the folder that the environment variable JIYI_CACHE names, else `jiyi` in the platform's cache folder.
Models are in `models/<name>/` of it, and `added.json` lists folders of the user's own that have a name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from jiyi.models.files import MANIFEST, ModelFilesError

__all__ = [
    "added_models",
    "checked_model_name",
    "link_or_copy",
    "model_folder",
    "models_folder",
    "remember",
    "staged",
    "write_manifest",
]

_VARIABLE: Final = "JIYI_CACHE"
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_ADDED: Final = "added.json"
_LEFTOVER_S: Final = 86_400.0


def cache_folder() -> Path:
    """Return jiyi's cache folder, which may not exist yet."""
    given = os.environ.get(_VARIABLE)
    if given:
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "jiyi"
    variable, default = ("LOCALAPPDATA", "AppData/Local") if sys.platform == "win32" else ("XDG_CACHE_HOME", ".cache")
    # A relative path is to be ignored (XDG base directory specification).
    base = Path(os.environ.get(variable) or "")
    return (base if base.is_absolute() else Path.home() / default) / "jiyi"


def models_folder() -> Path:
    """Return the folder that holds one folder for each model; it may not exist yet."""
    return cache_folder() / "models"


def checked_model_name(name: str) -> str:
    """Return a model's name if it can be one.

    Raises:
        TypeError: it is no str.
        ValueError: it is no name. It may become a folder, so it has 1 to 100 letters, digits, dots, `_` and `-` of
            ASCII, a letter or digit first and last.
    """
    if not isinstance(name, str):
        raise TypeError(f"a model's name must be a str, got {type(name).__name__}")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name[:80]!r} cannot be a model's name; use 1 to 100 of A-Z, a-z, 0-9, '.', '_' and '-', "
            "with a letter or digit at both ends"
        )
    return name


def model_folder(name: str) -> Path:
    """Return where a model of the cache lives (see `checked_model_name` for the errors)."""
    return models_folder() / checked_model_name(name)


@contextmanager
def staged(name: str) -> Iterator[Path]:
    """Make a model's folder whole or not at all.

    Yields:
        An empty folder beside the final one. When the block ends, its files are flushed to the disk and the folder
        takes the model's place; if the block raises, it is removed. What a killed process leaves has a name that starts
        with a dot, is never taken for a model, and is removed a day later.
    """
    final = model_folder(name)
    final.parent.mkdir(parents=True, exist_ok=True)
    _sweep(final.parent)
    aside = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=final.parent))
    try:
        yield aside
        aside.chmod(0o755)  # mkdtemp's 0o700 would shut out others whom the cache folder lets in
        for path in aside.rglob("*"):
            if path.is_file():
                _flush(path)
        _replace_folder(aside, final)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _replace_folder(new: Path, final: Path) -> None:
    old = new.with_name(new.name + ".old")
    with suppress(FileNotFoundError):
        final.rename(old)
    try:
        new.rename(final)
    except OSError:
        if old.exists() and not final.exists():
            old.rename(final)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what killed builds have left."""
    for path in folder.glob(".*"):
        try:
            stale = path.is_dir() and time.time() - path.stat().st_mtime > _LEFTOVER_S
        except OSError:
            continue
        if stale:
            shutil.rmtree(path, ignore_errors=True)


def _flush(path: Path) -> None:
    # Opened for writing: Windows flushes no others. A file that may not be written was not written here.
    if os.access(path, os.W_OK):
        with path.open("rb+") as stream:
            os.fsync(stream.fileno())


def link_or_copy(source: Path, target: Path) -> None:
    """Put a file into a model's folder without a second copy on the disk where that can be.

    A hard link, not a symbolic one: ONNX Runtime refuses weights beside the model that are a link out of its folder.
    """
    source = source.resolve()
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def write_manifest(folder: Path, fields: Mapping[str, Any]) -> None:
    """Write `manifest.json`: the fields given, and `files` with the bytes and SHA-256 of every file in the folder."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    text = json.dumps({**fields, "files": files}, ensure_ascii=False, indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# -------------------------------------------------------------------------------------------- folders of the user's own


def added_models() -> dict[str, dict[str, str]]:
    """Return the models that `remember` has recorded: name to `folder` and `kind`.

    Raises:
        ModelFilesError: the list is damaged.
    """
    path = cache_folder() / _ADDED
    try:
        data = json.loads(path.read_bytes())
        return {
            checked_model_name(name): {"folder": str(entry["folder"]), "kind": str(entry["kind"])}
            for name, entry in data.items()
        }
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFilesError(
            path, f"is damaged ({type(error).__name__}: {error})", "delete it and add the models again"
        ) from error


def remember(name: str, folder: Path, kind: str) -> None:
    """Record a folder of the user's own under a name, in place of the one that has it."""
    models = added_models() | {checked_model_name(name): {"folder": str(folder.absolute()), "kind": kind}}
    path = cache_folder() / _ADDED
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=f".{_ADDED}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(models, stream, ensure_ascii=False, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        Path(aside).replace(path)
    finally:
        Path(aside).unlink(missing_ok=True)
