"""A model's folder: a manifest, and files that must be the ones it names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["MANIFEST", "REINSTALL", "Manifest", "ModelFilesError", "read_manifest", "verify_files"]

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
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFilesError(path, f"is not a manifest ({type(error).__name__}: {error})") from error


def verify_files(folder: Path, manifest: Manifest) -> dict[str, bytes]:
    """Read every file that a manifest names, and check its size and SHA-256 (about 20 ms for 20 MB).

    Returns:
        File name to content, so that what is used is what was checked.

    Raises:
        ModelFilesError: a file is missing, cannot be read, or differs from the manifest.
    """
    contents: dict[str, bytes] = {}
    for name, expected in manifest.files.items():
        path = folder / name
        try:
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
