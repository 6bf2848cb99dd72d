from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from jiyi.models import ModelFilesError
from jiyi.models.onnx_embedder import OnnxEmbedder
from jiyi.models.onnx_folder import CROSS_ENCODER, EMBEDDER, read_onnx_folder
from tests.models.tiny_onnx import make_folder


def configure(folder: Path, **files: dict[str, Any]) -> None:
    for name, content in files.items():
        path = folder / (name.replace("__", "/") + ".json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "plain")


def test_manifest_is_what_counts(tmp_path: Path) -> None:
    said = {
        "pooling": "cls",
        "query_prefix": "q: ",
        "passage_prefix": "p: ",
        "normalize": False,
        "dim": 32,
        "licence": "MIT",
    }
    folder = make_folder(tmp_path, manifest=said)
    configure(folder, **{"1_Pooling__config": {"pooling_mode_lasttoken": True}})
    told = read_onnx_folder(folder, EMBEDDER)
    assert (told.name, told.version, told.max_tokens, told.languages) == ("tiny", "1", 64, ("en",))
    assert (told.pooling, told.query_prefix, told.passage_prefix, told.normalize) == ("cls", "q: ", "p: ", False)
    assert (told.dim, told.licence) == (32, "MIT")


def test_plain_folder_has_defaults_and_a_name_of_its_content(tmp_path: Path, plain: Path) -> None:
    told = read_onnx_folder(plain, EMBEDDER)
    assert (told.pooling, told.normalize, told.query_prefix, told.languages) == ("mean", True, "", ())
    assert told.max_tokens == 64
    assert told.name.startswith("plain@")
    other = make_folder(tmp_path / "elsewhere" / "plain", seed=1)
    assert read_onnx_folder(other, EMBEDDER).name != told.name


@pytest.mark.parametrize("kind", [EMBEDDER, CROSS_ENCODER])
def test_files_below_onnx(tmp_path: Path, plain: Path, kind: str) -> None:
    (plain / "onnx").mkdir()
    (plain / "model.onnx").rename(plain / "onnx" / "model.onnx")
    told = read_onnx_folder(plain, kind)
    assert told.model == plain / "onnx" / "model.onnx"


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({}, "mean"),
    ],
)
def test_pooling_of_sentence_transformers(plain: Path, config: dict[str, Any], pooling: str) -> None:
    configure(plain, **{"1_Pooling__config": config})
    assert read_onnx_folder(plain, EMBEDDER).pooling == pooling


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"config": {}}, 512),
        ({"config": {"max_position_embeddings": 514, "model_type": "xlm-roberta"}}, 512),
        ({"config": {"max_position_embeddings": 512}, "sentence_bert_config": {"max_seq_length": 256}}, 256),
        ({"config": {"max_position_embeddings": 512}, "tokenizer_config": {"model_max_length": 1e30}}, 512),
        ({"config": {}, "tokenizer_config": {"model_max_length": 8192}}, 8192),
        ({"config": {"max_position_embeddings": "many"}, "sentence_bert_config": {"max_seq_length": None}}, 512),
    ],
)
def test_max_tokens_of_a_plain_folder(plain: Path, files: dict[str, Any], expected: int) -> None:
    configure(plain, **files)
    assert read_onnx_folder(plain, EMBEDDER).max_tokens == expected


def test_prompts_and_activation_of_sentence_transformers(plain: Path) -> None:
    configure(
        plain,
        config={"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}, "pad_token_id": 1},
        config_sentence_transformers={"prompts": {"query": "query: ", "document": "passage: "}},
    )
    told = read_onnx_folder(plain, CROSS_ENCODER)
    assert (told.query_prefix, told.passage_prefix, told.activation, told.pad_id) == (
        "query: ",
        "passage: ",
        "sigmoid",
        1,
    )
    configure(plain, config={"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}})
    assert read_onnx_folder(plain, CROSS_ENCODER).activation == "none"


def checked(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name in ("model.onnx", "tokenizer.json")
        for content in [(folder / name).read_bytes()]
    }


def rewrite(folder: Path, **fields: Any) -> None:
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | fields))


def test_checksums_are_checked(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, manifest={})
    rewrite(folder, files=checked(folder))
    read_onnx_folder(folder, EMBEDDER)
    content = bytearray((folder / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "model.onnx").write_bytes(content)
    with pytest.raises(ModelFilesError, match=r"model\.onnx: is damaged: its SHA-256") as caught:
        OnnxEmbedder(folder)
    assert "reinstall" not in str(caught.value)
    (folder / "model.onnx").write_bytes(content[:-1])
    with pytest.raises(ModelFilesError, match=r"model\.onnx: has [\d,]+ bytes"):
        OnnxEmbedder(folder)
    (folder / "model.onnx").unlink()
    with pytest.raises(ModelFilesError, match=r"model\.onnx: cannot be read"):
        OnnxEmbedder(folder)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "onnx/../../x"])
def test_files_outside_the_folder_are_not_read(tmp_path: Path, name: str) -> None:
    folder = make_folder(tmp_path, manifest={"files": {name: {"bytes": 1}}})
    with pytest.raises(ModelFilesError, match="which is no file of this folder"):
        read_onnx_folder(folder, EMBEDDER)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "static-token-table"}, "of kind 'static-token-table', not 'onnx-embedder'"),
        ({"kind": "onnx-cross-encoder"}, "not 'onnx-embedder'"),
        ({"pooling": "max"}, "pooling = 'max'; it can be 'mean', 'cls', 'last'"),
        ({"activation": "tanh"}, "activation = 'tanh'"),
        ({"positive_logit": 2}, "positive_logit = 2"),
        ({"positive_logit": True}, "positive_logit = True"),
        ({"pooling": ["mean"]}, "pooling"),
        ({"max_tokens": "512"}, "max_tokens = '512'"),
        ({"max_tokens": True}, "max_tokens = True"),
        ({"max_tokens": 2}, "at least 8"),
        ({"languages": "en"}, "languages = 'en'"),
        ({"normalize": 1}, "normalize = 1"),
        ({"name": ""}, "no name"),
        ({"files": []}, "lists its files"),
        ({"files": {"model.onnx": 3}}, "no file of this folder"),
    ],
)
def test_bad_manifest_is_an_error_of_its_own(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    folder = make_folder(tmp_path, manifest=fields)
    with pytest.raises(ModelFilesError, match="manifest") as caught:
        read_onnx_folder(folder, EMBEDDER)
    assert message in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("name", ["manifest.json", "config.json"])
def test_broken_json_is_an_error_of_its_own(plain: Path, name: str, content: bytes) -> None:
    (plain / name).write_bytes(content)
    with pytest.raises(ModelFilesError, match=rf"{name}: is not (a )?JSON"):
        read_onnx_folder(plain, EMBEDDER)


def test_missing_parts_are_named(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match="is not a folder"):
        read_onnx_folder(tmp_path / "nowhere", EMBEDDER)
    with pytest.raises(ModelFilesError, match="is not a folder"):
        read_onnx_folder(plain / "model.onnx", EMBEDDER)
    (plain / "tokenizer.json").unlink()
    with pytest.raises(ModelFilesError, match=r"tokenizer\.json: is missing; a model folder holds"):
        read_onnx_folder(plain, EMBEDDER)
    (plain / "model.onnx").unlink()
    with pytest.raises(ModelFilesError, match=r"model\.onnx: is missing"):
        read_onnx_folder(plain, EMBEDDER)


def test_code_in_a_folder_is_not_run(plain: Path) -> None:
    (plain / "modeling.py").write_text("raise SystemExit('executed')")
    configure(plain, config={"auto_map": {"AutoModel": "modeling.Model"}}, modules={"0": {"type": "modeling.Model"}})
    read_onnx_folder(plain, EMBEDDER)
