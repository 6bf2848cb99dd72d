"""Give a name to a model in a folder of the user's own."""

from __future__ import annotations

import os
from pathlib import Path

from jiyi.models.cache import checked_model_name, remember
from jiyi.models.files import MANIFEST
from jiyi.models.known import KNOWN
from jiyi.models.minilm import MINILM
from jiyi.models.records import CROSS_ENCODER, EMBEDDER, ModelRecord, find, record_of
from jiyi.models.registry import BUILDABLE

__all__ = ["add"]

_KINDS = {"embedder": EMBEDDER, "cross-encoder": CROSS_ENCODER}


def add(name: str, folder: str | os.PathLike[str], *, role: str | None = None) -> ModelRecord:
    """Record a folder with `model.onnx` and `tokenizer.json` under a name, after it has been opened once.

    Args:
        name: 1 to 100 letters, digits, dots, `_` and `-`; one that another model has is refused, one that was added
            before is given to the new folder.
        folder: the model's; it stays where it is.
        role: "embedder" or "cross-encoder"; by default what its manifest or its outputs say.

    Returns:
        The record that `available()` now has.

    Raises:
        TypeError, ValueError: the name or role is none, or the name is taken.
        ModelFilesError: the folder or a file is missing, or the model cannot be opened.
        OSError: the cache cannot be written.
    """
    checked_model_name(name)
    if role is not None and role not in _KINDS:
        raise ValueError(f"a model is an embedder or a cross-encoder, got {role!r:.80}")
    if name in KNOWN or name in BUILDABLE or name == MINILM:
        raise ValueError(
            f"the name {name!r} is kept for the model that `jiyi models info {name}` describes; take another"
        )
    other = find(name)
    if other is not None and other.origin != "added":
        raise ValueError(f"the name {name!r} belongs to a model that is {other.origin}; take another")
    path = Path(folder)
    kind = _KINDS[role] if role is not None else _kind_of(path)
    _open(path, kind)
    remember(name, path, kind)
    return record_of(path.absolute(), "added", name=name, kind=kind)


def _kind_of(folder: Path) -> str:
    """Return what a folder's model is: by its manifest, else by its outputs (one or two scores a text, or vectors)."""
    if (folder / MANIFEST).is_file():
        return record_of(folder, "added").kind
    from jiyi.models.onnx_folder import read_onnx_folder
    from jiyi.models.onnx_session import open_session

    session = open_session(read_onnx_folder(folder, EMBEDDER).model, device="cpu")
    scores = any(
        name == "logits" or (len(shape) == 2 and shape[1] in (1, 2)) for name, shape in session.outputs.items()
    )
    return CROSS_ENCODER if scores else EMBEDDER


def _open(folder: Path, kind: str) -> None:
    if kind == CROSS_ENCODER:
        from jiyi.models.onnx_cross_encoder import OnnxCrossEncoder

        OnnxCrossEncoder(folder, device="cpu")
    else:
        from jiyi.models.onnx_embedder import OnnxEmbedder

        OnnxEmbedder(folder, device="cpu")
