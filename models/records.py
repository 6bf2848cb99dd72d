"""What there is to load: models that ship, that were built or pulled, of installed packages, and of the user's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from jiyi.models.cache import added_models, model_folder, models_folder
from jiyi.models.files import MANIFEST, ModelFilesError, file_in
from jiyi.models.minilm import MINILM, minilm_installed, minilm_problem
from jiyi.models.static import SHIPPED_FOLDER

__all__ = ["CROSS_ENCODER", "EMBEDDER", "STATIC_KIND", "ModelRecord", "available", "find", "record_of"]

Role = Literal["embedder", "cross-encoder"]
Origin = Literal["shipped", "built", "pulled", "package", "added"]

STATIC_KIND: Final = "static-token-table"
EMBEDDER: Final = "onnx-embedder"
CROSS_ENCODER: Final = "onnx-cross-encoder"
_ROLES: Final[dict[str, Role]] = {STATIC_KIND: "embedder", EMBEDDER: "embedder", CROSS_ENCODER: "cross-encoder"}


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """One model that is on this machine.

    Attributes:
        name: what it is loaded by.
        role: "embedder" or "cross-encoder"; None where its manifest cannot be read.
        kind: the manifest's word for it.
        origin: where it comes from.
        folder: where its files are; for a model of a package, where they will be.
        languages: ISO 639-1 codes, ("*",) for about a hundred.
        licence: of the weights, None where it is not known.
        dim: length of an embedder's vectors, where the manifest says it.
        max_tokens: where longer texts are cut or windowed, where the manifest says it.
        pooling, query_prefix, passage_prefix: how an embedder is asked, where the manifest says it.
        activation: what a cross-encoder's scores went through, where the manifest says it.
        bytes: size on disk.
        problem: why it cannot be loaded, None if nothing is known against it. That its files are there in the size that
            the manifest says is looked at here, what is in them only when they are loaded.
    """

    name: str
    role: Role | None
    kind: str
    origin: Origin
    folder: Path
    languages: tuple[str, ...] = ()
    licence: str | None = None
    dim: int | None = None
    max_tokens: int | None = None
    pooling: str | None = None
    query_prefix: str | None = None
    passage_prefix: str | None = None
    activation: str | None = None
    bytes: int = 0
    problem: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON takes it."""
        return {
            "name": self.name,
            "role": self.role,
            "kind": self.kind,
            "origin": self.origin,
            "folder": str(self.folder),
            "languages": list(self.languages),
            "licence": self.licence,
            "dim": self.dim,
            "max_tokens": self.max_tokens,
            "pooling": self.pooling,
            "query_prefix": self.query_prefix,
            "passage_prefix": self.passage_prefix,
            "activation": self.activation,
            "bytes": self.bytes,
            "problem": self.problem,
        }


def available() -> list[ModelRecord]:
    """Return every model on this machine: the default embedder, what ships, the cache, packages, the user's own.

    A name is there once: what ships comes before the cache, and that before the user's own. A damaged model is listed
    with its `problem`. Nothing is loaded.
    """
    records: dict[str, ModelRecord] = {}
    for record in _all():
        records.setdefault(record.name, record)
    return list(records.values())


def find(name: str) -> ModelRecord | None:
    """Return the model of a name, None if there is none."""
    return next((record for record in available() if record.name == name), None)


def _all() -> Iterator[ModelRecord]:
    yield record_of(SHIPPED_FOLDER, "shipped")
    for path in _model_folders(SHIPPED_FOLDER):
        yield record_of(path, "shipped")
    for path in _model_folders(models_folder()):
        # A folder of the cache is loaded by its own name, whatever its manifest says.
        yield record_of(path, None, name=path.name)
    if minilm_installed():
        yield ModelRecord(
            name=MINILM,
            role="embedder",
            kind=EMBEDDER,
            origin="package",
            folder=model_folder(MINILM),
            languages=("en",),
            licence="Apache-2.0",
            dim=384,
            max_tokens=256,
            problem=minilm_problem(),
        )
    try:
        added = added_models()
    except ModelFilesError:
        return  # `jiyi models add` says what is wrong with the list
    for name, entry in added.items():
        folder = Path(entry["folder"])
        record = record_of(folder, "added", name=name, kind=entry["kind"])
        yield record


def _model_folders(parent: Path) -> list[Path]:
    try:
        return sorted(
            path for path in parent.iterdir() if not path.name.startswith(".") and (path / MANIFEST).is_file()
        )
    except OSError:
        return []


def record_of(folder: Path, origin: Origin | None, *, name: str | None = None, kind: str | None = None) -> ModelRecord:
    """Describe a model's folder by its manifest, or as far as that goes without one.

    Args:
        folder: the model's.
        origin: where it comes from; None to take the manifest's word for it.
        name: what it is loaded by; the manifest's name if left out, and the folder's without a manifest.
        kind: what it is, if there is no manifest.
    """
    problem: str | None = None
    data: dict[str, Any] = {}
    try:
        data = _read(folder / MANIFEST)
    except FileNotFoundError:
        if kind is None or not folder.is_dir():
            problem = f"{folder} has no {MANIFEST}" if folder.is_dir() else f"{folder} does not exist"
    except OSError as error:
        problem = f"{folder / MANIFEST} cannot be read ({error.strerror})"
    except (ValueError, RecursionError) as error:
        problem = f"{folder / MANIFEST} is not a manifest ({type(error).__name__}: {error})"
    found = str(data.get("kind", kind or "unknown"))
    role = _ROLES.get(found)
    if role is None and problem is None:
        problem = f"{folder / MANIFEST} describes a model of kind {found[:80]!r}; known are {', '.join(_ROLES)}"
    if problem is None:
        problem = _missing_or_cut(folder, data.get("files"))
    if origin is None:
        origin = (
            "built" if data.get("origin") == "built" else "package" if data.get("origin") == "package" else "pulled"
        )
    languages = data.get("languages")
    return ModelRecord(
        name=name or str(data.get("name", folder.name)),
        role=role,
        kind=found,
        origin=origin,
        folder=folder,
        languages=tuple(map(str, languages)) if isinstance(languages, list) else (),
        licence=str(data["licence"]) if data.get("licence") is not None else None,
        dim=_whole(data.get("dim")),
        max_tokens=_whole(data.get("max_tokens")),
        pooling=_text(data.get("pooling")),
        query_prefix=_text(data.get("query_prefix")),
        passage_prefix=_text(data.get("passage_prefix")),
        activation=_text(data.get("activation")),
        bytes=_size(folder),
        problem=problem,
    )


def _read(path: Path) -> dict[str, Any]:
    data = json.loads(path.read_bytes())
    if not isinstance(data, dict):
        raise ValueError(f"it holds a {type(data).__name__}, not an object")
    return data


def _missing_or_cut(folder: Path, files: Any) -> str | None:
    """What is wrong with the files that a manifest names, as far as that is seen without reading them."""
    for name, expected in files.items() if isinstance(files, dict) else ():
        path, size = file_in(folder, str(name)), expected.get("bytes") if isinstance(expected, dict) else None
        if path is None or not isinstance(size, int):
            continue  # a manifest that is wrong is told by whoever loads the model
        try:
            found = path.stat().st_size
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
        if found != size:
            return f"{path} has {found:,} bytes, the manifest says {size:,}"
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _size(folder: Path) -> int:
    """Bytes of a model's own files: a folder's, but not those of the models in folders beside them."""
    try:
        paths = [path for path in folder.iterdir() if path.is_file()]
        below = [path for name in ("onnx", "1_Pooling") for path in (folder / name).glob("*") if path.is_file()]
        return sum(path.stat().st_size for path in paths + below)
    except OSError:
        return 0
