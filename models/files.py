"""A model's folder: a manifest, and files that must be the ones it names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

__all__ = ["MANIFEST", "REINSTALL", "Manifest", "ModelFilesError", "file_in", "read_manifest", "verify_files"]

MANIFEST = "manifest.json"
REINSTALL = "reinstall jiyi to restore the weights that ship with it"


class ModelFilesError(RuntimeError):
    """A model's file is missing or is not the one its manifest names.

    Attributes:
        path: the file.
        reason: what is wrong with it.
        advice: what to do about it.
    """

    def __init__(self, path: Path, reason: str, advice: str = REINSTALL) -> None:
        """Say which file is wrong, how, and what to do."""
        self.path = path
        self.reason = reason
        self.advice = advice
        super().__init__(f"{path}: {reason}; {advice}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a model's folder says about itself."""

    name: str
    version: str
    kind: str
    dim: int
    rows: int
    files: Mapping[str, Mapping[str, Any]]
    """File name to its `bytes` and `sha256`."""


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's manifest.

    Raises:
        ModelFilesError: there is none, or it does not have the fields of one.
    """
    path = folder / MANIFEST
    try:
        data = json.loads(path.read_bytes())
        return Manifest(
            name=str(data["name"]),
            version=str(data["version"]),
            kind=str(data["kind"]),
            dim=int(data["dim"]),
            rows=int(data["rows"]),
            files={
                str(name): {"bytes": int(f["bytes"]), "sha256": str(f["sha256"])} for name, f in data["files"].items()
            },
        )
    except OSError as error:
        raise ModelFilesError(path, f"cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelFilesError(path, f"is not a manifest ({type(error).__name__}: {error!s:.80})") from error


def file_in(folder: Path, name: str) -> Path | None:
    """Return a file that a manifest names, None where that is no plain file of the folder: absolute, by `..`, a pipe.

    A link is followed: what it leads to is read as the model's data, and no more of it is told than its digest.
    """
    forms = (PurePosixPath(name), PureWindowsPath(name))
    if not name or "\0" in name or any(form.anchor or ".." in form.parts for form in forms):
        return None
    path = folder / name
    try:  # what is not there is reported by whoever opens it
        return path if path.is_file() or not path.exists() else None
    except OSError:  # a name that no file system takes
        return None


def verify_files(folder: Path, manifest: Manifest) -> dict[str, bytes]:
    """Read every file that a manifest names, and check its size and SHA-256 (about 20 ms for 20 MB).

    Returns:
        File name to content, so that what is used is what was checked.

    Raises:
        ModelFilesError: a file is missing, cannot be read, or differs from the manifest.
    """
    contents: dict[str, bytes] = {}
    for name, expected in manifest.files.items():
        path = file_in(folder, name)
        if path is None:
            raise ModelFilesError(folder / MANIFEST, f"lists {name[:80]!r}, which is no file of this folder")
        try:
            if path.stat().st_size != expected["bytes"]:  # before it is read: it may be any size
                size = path.stat().st_size
                raise ModelFilesError(path, f"has {size:,} bytes, the manifest says {expected['bytes']:,}")
            content = path.read_bytes()
        except OSError as error:
            raise ModelFilesError(path, f"cannot be read ({error.strerror})") from error
        if len(content) != expected["bytes"]:
            raise ModelFilesError(path, f"has {len(content):,} bytes, the manifest says {expected['bytes']:,}")
        digest = hashlib.sha256(content).hexdigest()
        if digest != expected["sha256"]:
            raise ModelFilesError(path, f"is damaged: its SHA-256 is {digest[:12]}…, not {expected['sha256'][:12]}…")
        contents[name] = content
    return contents
