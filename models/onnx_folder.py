"""A folder with an ONNX model: what its manifest, or the configuration files of a plain export, say of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jiyi.models.files import MANIFEST, ModelFilesError, file_in

__all__ = ["CROSS_ENCODER", "EMBEDDER", "OnnxFolder", "read_onnx_folder"]

EMBEDDER: Final = "onnx-embedder"
CROSS_ENCODER: Final = "onnx-cross-encoder"
MODEL: Final = "model.onnx"
TOKENIZER: Final = "tokenizer.json"
POOLINGS: Final = ("mean", "cls", "last")
ACTIVATIONS: Final = ("sigmoid", "none")
DEFAULT_MAX_TOKENS: Final = 512
_MOST_TOKENS: Final = 1_000_000
_LARGEST_DIM: Final = 65_536

_ADVICE: Final = "a model folder holds model.onnx and tokenizer.json (and manifest.json, where it is one of jiyi's)"
_DAMAGED: Final = "fetch or build the model again"


@dataclass(frozen=True, slots=True)
class OnnxFolder:
    """What is known of a model before it is loaded.

    Attributes:
        folder: the folder.
        model: the ONNX file in it.
        tokenizer: content of its `tokenizer.json`.
        name: the manifest's; for a plain folder its own name with a digest of the model, so that two folders called
            "model" are two models.
        version: the manifest's, or "".
        max_tokens: tokens the model takes, special ones included.
        languages: ISO 639-1 codes it was trained for; ("*",) for any; empty where nothing says so.
        licence: as the manifest has it, or "".
        pooling: "mean", "cls" or "last" (embedders).
        normalize: whether vectors are scaled to length 1 (embedders).
        query_prefix: put before a query (embedders).
        passage_prefix: put before a memory (embedders).
        dim: length of the vectors where something says so.
        activation: "sigmoid" or "none" (cross-encoders).
        positive_logit: which of two logits means relevant (cross-encoders of two logits).
        pad_id: id of the padding token where something says so.
    """

    folder: Path
    model: Path
    tokenizer: bytes
    name: str
    version: str
    max_tokens: int
    languages: tuple[str, ...]
    licence: str
    pooling: str
    normalize: bool
    query_prefix: str
    passage_prefix: str
    dim: int | None
    activation: str
    positive_logit: int | None
    pad_id: int | None


def read_onnx_folder(folder: Path | str, kind: str) -> OnnxFolder:
    """Read what a folder says of its model; nothing in it is executed.

    With a `manifest.json` that is what counts, and the files it lists are checked (size and SHA-256). Without one, the
    files that exporters leave are read: `config.json`, `tokenizer_config.json`, `sentence_bert_config.json`,
    `config_sentence_transformers.json`, `modules.json`, `1_Pooling/config.json`; what none of them says has a default
    (512 tokens, mean pooling, unit length, no prefixes, no activation).

    Args:
        folder: holds `model.onnx` and `tokenizer.json`, or both in `onnx/` below it.
        kind: `EMBEDDER` or `CROSS_ENCODER`.

    Raises:
        ModelFilesError: the folder or a file is missing, damaged, or holds a model of another kind.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelFilesError(folder, "is not a folder", _ADVICE)
    manifest = folder / MANIFEST
    if manifest.is_file():
        said = _json(manifest)
        _verify(folder, said.get("files", {}))
        fields = _from_manifest(manifest, said, kind)
    else:
        fields = _from_configs(folder)
    model, tokenizer = _find(folder, MODEL), _find(folder, TOKENIZER)
    try:
        content = tokenizer.read_bytes()
        fields["name"] = fields["name"] or f"{folder.resolve().name}@{_digest(model)[:8]}"
    except OSError as error:
        raise ModelFilesError(tokenizer, f"cannot be read ({error.strerror})", _DAMAGED) from error
    return OnnxFolder(folder=folder, model=model, tokenizer=content, **fields)


def _from_manifest(path: Path, said: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if said.get("kind") != kind:
        raise ModelFilesError(path, f"describes a model of kind {said.get('kind')!r:.80}, not {kind!r}", _ADVICE)

    def field(name: str, types: type | tuple[type, ...], default: Any) -> Any:
        value = said.get(name, default)
        if value is not None and (not isinstance(value, types) or (isinstance(value, bool) and types is int)):
            raise ModelFilesError(path, f"has {name} = {value!r:.80}, which has the wrong type", _DAMAGED)
        return default if value is None else value

    def choice(name: str, allowed: tuple[Any, ...], default: Any) -> Any:
        value = said.get(name, default)
        if isinstance(value, bool | float) or value not in allowed:
            said_ = f"{value!r:.80}"
            raise ModelFilesError(path, f"has {name} = {said_}; it can be {', '.join(map(repr, allowed))}", _DAMAGED)
        return value

    fields = {
        "name": field("name", str, ""),
        "version": f"{said.get('version', '')!s:.80}",
        "max_tokens": field("max_tokens", int, DEFAULT_MAX_TOKENS),
        "languages": tuple(map(str, field("languages", list, []))),
        "licence": field("licence", str, ""),
        "pooling": choice("pooling", POOLINGS, "mean"),
        "normalize": field("normalize", bool, True),
        "query_prefix": field("query_prefix", str, ""),
        "passage_prefix": field("passage_prefix", str, ""),
        "dim": field("dim", int, None),
        "activation": choice("activation", ACTIVATIONS, "none"),
        "positive_logit": choice("positive_logit", (0, 1, None), None),
        "pad_id": field("pad_id", int, None),
    }
    if not fields["name"]:
        raise ModelFilesError(path, "has no name", _DAMAGED)
    for name, low, high in (("max_tokens", 8, _MOST_TOKENS), ("dim", 1, _LARGEST_DIM), ("pad_id", 0, 2**31 - 1)):
        if fields[name] is not None and not low <= fields[name] <= high:
            said_ = f"{fields[name]!r:.80}"
            raise ModelFilesError(path, f"has {name} = {said_}; it must be at least {low}, at most {high}", _DAMAGED)
    return fields


def _from_configs(folder: Path) -> dict[str, Any]:
    config = _optional(folder / "config.json")
    sentence = _optional(folder / "config_sentence_transformers.json")
    pooling = _optional(folder / "1_Pooling" / "config.json")
    prompts = sentence.get("prompts")
    prompts = prompts if isinstance(prompts, dict) else {}
    inside = config.get("sentence_transformers")
    activation = str((inside.get("activation_fn") if isinstance(inside, dict) else "") or "")
    activation += str(config.get("sbert_ce_default_activation_function") or "")
    return {
        "name": "",
        "version": "",
        "max_tokens": _max_tokens(folder, config),
        "languages": (),
        "licence": "",
        "pooling": _pooling(pooling),
        "normalize": True,
        "query_prefix": str(prompts.get("query") or ""),
        "passage_prefix": str(prompts.get("passage") or prompts.get("document") or ""),
        "dim": None,
        "activation": "sigmoid" if "sigmoid" in activation.lower() else "none",
        "positive_logit": None,
        "pad_id": _pad_id(config.get("pad_token_id")),
    }


def _pad_id(said: object) -> int | None:
    usable = isinstance(said, int) and not isinstance(said, bool) and 0 <= said < 2**31
    return int(said) if usable and isinstance(said, int) else None


def _max_tokens(folder: Path, config: Mapping[str, Any]) -> int:
    """Tokens a plain export takes: the least of what its files say, at most the positions it has."""
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and "roberta" in str(config.get("model_type", "")).lower():
        positions -= 2  # RoBERTa counts positions from its padding id on
    limits = [
        _optional(folder / "sentence_bert_config.json").get("max_seq_length"),
        _optional(folder / "tokenizer_config.json").get("model_max_length"),
        positions,
    ]
    usable = [int(limit) for limit in limits if isinstance(limit, int | float) and 8 <= limit <= _MOST_TOKENS]
    return min(usable, default=DEFAULT_MAX_TOKENS)


def _pooling(config: Mapping[str, Any]) -> str:
    if config.get("pooling_mode_cls_token") or config.get("pooling_mode") == "cls":
        return "cls"
    if config.get("pooling_mode_lasttoken") or config.get("pooling_mode") == "lasttoken":
        return "last"
    return "mean"


def _find(folder: Path, name: str) -> Path:
    path = next((path for path in (folder / name, folder / "onnx" / name) if path.is_file()), None)
    if path is None:
        raise ModelFilesError(folder / name, "is missing", _ADVICE)
    return path


def _verify(folder: Path, files: Any) -> None:
    """Check size and SHA-256 of the files that a manifest lists, reading them piece by piece (0.1 s for 100 MB)."""
    if not isinstance(files, dict):
        raise ModelFilesError(folder / MANIFEST, "lists its files as something that is not an object", _DAMAGED)
    for name, expected in files.items():
        path = file_in(folder, name)
        if path is None or not isinstance(expected, dict):
            raise ModelFilesError(folder / MANIFEST, f"lists {name[:80]!r}, which is no file of this folder", _DAMAGED)
        try:
            size = path.stat().st_size
            if size != expected.get("bytes", size):
                wanted = f"{expected['bytes']!r:.80}"
                raise ModelFilesError(path, f"has {size} bytes, the manifest says {wanted}", _DAMAGED)
            digest = _digest(path) if "sha256" in expected else None
        except OSError as error:
            raise ModelFilesError(path, f"cannot be read ({error.strerror})", _DAMAGED) from error
        if digest is not None and digest != expected["sha256"]:
            wanted = f"{expected['sha256']!s:.80}"
            raise ModelFilesError(path, f"is damaged: its SHA-256 is {digest[:12]}…, not {wanted[:12]}…", _DAMAGED)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFilesError(path, f"cannot be read ({error.strerror})", _DAMAGED) from error
    except (ValueError, RecursionError) as error:
        raise ModelFilesError(path, f"is not JSON ({error!s:.80})", _DAMAGED) from error
    if not isinstance(value, dict):
        raise ModelFilesError(path, "is not a JSON object", _DAMAGED)
    return value


def _optional(path: Path) -> dict[str, Any]:
    return _json(path) if path.is_file() else {}
