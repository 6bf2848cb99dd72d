"""Model files are data of strangers: nothing in them is run, leaves its folder, or takes the process down."""

from __future__ import annotations

import ast
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jiyi
import jiyi.kernels as jiyi_kernels
import jiyi.models as jiyi_models
from jiyi.models.files import ModelFilesError, read_manifest, verify_files
from jiyi.models.onnx_cross_encoder import OnnxCrossEncoder
from jiyi.models.onnx_embedder import OnnxEmbedder
from jiyi.models.onnx_external import check_external_data
from jiyi.models.onnx_folder import EMBEDDER, read_onnx_folder
from jiyi.models.onnx_session import open_session
from jiyi.models.onnx_tokens import TextTokenizer
from jiyi.models.static import SHIPPED_FOLDER, StaticEmbedder
from tests.fuzz.forked import in_child
from tests.models.tiny_onnx import make_folder

pytest.importorskip("onnx", reason="the extra [test] brings it")
import onnx

# ------------------------------------------------------------------------------------------------------- no code


def sources() -> Iterator[Path]:
    for package in (jiyi, jiyi_kernels, jiyi_models):
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            # What builds a model runs on its maker's machine, never in an application.
            if "build" not in path.parts:
                yield path


def test_nothing_unpickles_or_runs_what_a_file_holds() -> None:
    assert len(set(sources())) > 100
    for path in set(sources()):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                if name.split(".")[0] in {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib", "cloudpickle"}:
                    assert path.name == "_jit.py", f"{path}: {name}"  # the cache of compiled kernels, of this user
                assert name.split(".")[0] not in {"torch", "transformers", "safetensors"}, path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "compile", "__import__"}, f"{path}:{node.lineno}"
                assert not called.endswith(("torch.load", "register_custom_ops_library")), f"{path}:{node.lineno}"
                if called in {"np.load", "numpy.load"}:
                    allowed = {word.arg: ast.unparse(word.value) for word in node.keywords}
                    assert allowed.get("allow_pickle") == "False", f"{path}:{node.lineno}"
                    assert "mmap_mode" not in allowed or allowed["mmap_mode"] != "'w+'"
                assert not any(word.arg == "trust_remote_code" for word in node.keywords), path


# -------------------------------------------------------------------------------------------------- external data


def external_model(folder: Path, location: str | bytes, *, where: str = "initializer", content: bytes = b"") -> Path:
    """A model y = x + w whose w is said to be in another file."""
    tensor = onnx.TensorProto()
    tensor.name, tensor.data_type = "w", onnx.TensorProto.INT64
    tensor.dims.extend([1, 1])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key = "location"
    entry.value = location if isinstance(location, str) else location.decode("latin-1")
    helper = onnx.helper
    i64 = onnx.TensorProto.INT64
    x = helper.make_tensor_value_info("input_ids", i64, ["batch", "length"])
    y = helper.make_tensor_value_info("y", i64, ["batch", "length"])
    add = helper.make_node("Add", ["input_ids", "w"], ["y"])
    if where == "initializer":
        graph = helper.make_graph([add], "g", [x], [y], [tensor])
    elif where == "constant":
        graph = helper.make_graph([helper.make_node("Constant", [], ["w"], value=tensor), add], "g", [x], [y])
    else:  # in a branch of an If
        then = helper.make_graph(
            [helper.make_node("Constant", [], ["w"], value=tensor), helper.make_node("Add", ["input_ids", "w"], ["z"])],
            "then",
            [],
            [helper.make_tensor_value_info("z", i64, None)],
        )
        other = helper.make_graph(
            [helper.make_node("Identity", ["input_ids"], ["z"])],
            "else",
            [],
            [helper.make_tensor_value_info("z", i64, None)],
        )
        true = helper.make_tensor("true", onnx.TensorProto.BOOL, [], [True])
        nodes = [
            helper.make_node("Constant", [], ["c"], value=true),
            helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        ]
        graph = helper.make_graph(nodes, "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.bin"
    path.write_bytes(np.array([7], np.int64).tobytes())
    return path


def refused_before_it_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch, match: str) -> None:
    import onnxruntime

    def opened(*arguments: Any, **named: Any) -> None:
        raise AssertionError("ONNX Runtime was given the file")

    monkeypatch.setattr(onnxruntime, "InferenceSession", opened)
    with pytest.raises(ModelFilesError, match=match) as refused:
        open_session(path, device="cpu")
    assert refused.value.path == path


@pytest.mark.parametrize("where", ["initializer", "constant", "branch"])
@pytest.mark.parametrize("location", ["{absolute}", "../secret.bin", "sub/../../secret.bin", "..\\secret.bin"])
def test_weights_outside_the_folder_are_refused(
    tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, where: str, location: str
) -> None:
    path = external_model(tmp_path / "model", location.format(absolute=secret), where=where)
    refused_before_it_is_opened(path, monkeypatch, "takes weights from .* (no file of|leaves) its folder")


@pytest.mark.parametrize(
    "location", ["", ".", "sub", "missing.bin", "a\0b", "C:\\secret.bin", "C:secret.bin", "x" * 5000, "/dev/zero",
                 "*/_ORT_MEM_ADDR_/*", "\\\\server\\share\\w", "pipe", "loop", "file:///etc/passwd"]
)  # fmt: skip
def test_names_that_are_no_plain_file_of_the_folder_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    path = external_model(tmp_path / "model", location)
    (tmp_path / "model" / "sub").mkdir()
    os.mkfifo(tmp_path / "model" / "pipe")
    (tmp_path / "model" / "loop").symlink_to("loop")
    refused_before_it_is_opened(path, monkeypatch, "takes weights from")


@pytest.mark.parametrize("inside", ["link.bin", "linked/secret.bin"])
def test_links_out_of_the_folder_are_refused(
    tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    path = external_model(tmp_path / "model", inside)
    (tmp_path / "model" / "link.bin").symlink_to(secret)
    (tmp_path / "model" / "linked").symlink_to(tmp_path)
    refused_before_it_is_opened(path, monkeypatch, "a link that leaves its folder")


def test_weights_beside_the_model_are_read(tmp_path: Path) -> None:
    path = external_model(tmp_path / "model", "weights.bin")
    (tmp_path / "model" / "weights.bin").write_bytes(np.array([7], np.int64).tobytes())
    session = open_session(path, device="cpu")
    assert session.run({"input_ids": np.array([[1, 2]])}, "y").tolist() == [[8, 9]]


def test_the_name_is_found_however_the_message_is_written(tmp_path: Path) -> None:
    """Fields in another order, lengths in more bytes than they need, a field twice: the same message to a reader."""

    def field(number: int, content: bytes, *, long: bool = False) -> bytes:
        size = bytes([len(content) & 0x7F | 0x80, len(content) >> 7 | 0x80, 0]) if long else _varint(len(content))
        return _varint(number << 3 | 2) + size + content

    path = tmp_path / "model.onnx"
    for long in (False, True):
        for entry in (
            field(2, b"/etc/passwd", long=long) + field(1, b"location", long=long),
            field(1, b"location") + field(2, b"fine.bin") + field(2, b"../x"),
            field(1, b"other") + field(2, b"../x", long=long) + field(1, b"location"),
            field(7, b"unknown") + field(1, b"location") + b"\x18\xff\x01" + field(2, b"../x"),
        ):
            tensor = field(13, entry, long=long)
            for path_to_it in ([5], [1, 5, 5], [1, 5, 6, 5], [1, 5, 10], [15, 1], [1, 5, 11, 15, 2], [1, 5, 22, 1]):
                message = tensor
                for number in reversed(path_to_it):
                    message = field(number, message, long=long)
                for outer in (field(7, message), field(20, field(1, message)), b"\x08\x08" + field(7, message)):
                    path.write_bytes(outer)
                    with pytest.raises(ModelFilesError, match="takes weights from"):
                        check_external_data(path)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_models_that_are_nested_for_ever_end_nobodys_stack(tmp_path: Path) -> None:
    content = b"\x0a\x08location"
    for _ in range(30_000):
        content = (
            b"\x2a" + _varint(len(content)) + content if len(content) % 2 else b"\x0a" + _varint(len(content)) + content
        )
    (tmp_path / "model.onnx").write_bytes(b"\x3a" + _varint(len(content)) + content)
    try:
        check_external_data(tmp_path / "model.onnx")
    except ModelFilesError as error:
        assert "is not an ONNX model" in str(error)  # noqa: PT017


@given(st.binary(max_size=300))
def test_bytes_that_are_no_model_are_refused_or_name_nothing(tmp_path_factory: Any, content: bytes) -> None:
    path = tmp_path_factory.mktemp("m") / "model.onnx"
    path.write_bytes(b"\x3a\x0c\x2a\x0a\x0a\x08location" + content)
    try:
        check_external_data(path)
    except ModelFilesError as error:
        assert "takes weights" in str(error) or "is not an ONNX model" in str(error)  # noqa: PT017


# ------------------------------------------------------------------------------------------------ damaged graphs


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("tiny") / "model", manifest={})


def test_a_damaged_graph_is_an_error_and_never_the_end_of_the_process(tiny: Path, tmp_path: Path) -> None:
    content = (tiny / "model.onnx").read_bytes()
    folder = tmp_path / "damaged"
    shutil.copytree(tiny, folder)

    def trial() -> str:
        rng = np.random.default_rng(5)
        told = []
        for i in range(40):
            changed = bytearray(content)
            if i % 4 == 0:
                del changed[int(rng.integers(len(changed))) :]
            else:
                # Most of the file is weights; what says how they are used stands at both ends.
                span = len(changed) if i % 2 else 600
                for _ in range(int(rng.integers(1, 6))):
                    changed[int(rng.integers(span))] = int(rng.integers(256))
            (folder / "model.onnx").write_bytes(changed)
            try:
                OnnxEmbedder(folder, device="cpu").embed(["green tea"])
                told.append("ran")
            except ModelFilesError as error:
                assert len(str(error)) < 1000  # noqa: PT017
                told.append("refused")
        return " ".join(told)

    assert in_child(trial).count("refused") > 5


# ------------------------------------------------------------------------------------------- manifests and configs

VALUES = [
    None, True, False, 0, -1, 1, 2**31, 10**30, 1e400, -0.5, float("nan"), "", "x", "x" * 3000, "../../etc/passwd",
    "/etc/passwd", "\0", "\ud800", [], {}, [[]], [None], {"a": 1}, [1] * 1000, {"bytes": "x", "sha256": 3},
]  # fmt: skip
FIELDS = ["name", "version", "kind", "max_tokens", "languages", "licence", "pooling", "normalize", "query_prefix",
          "passage_prefix", "dim", "activation", "positive_logit", "pad_id", "files"]  # fmt: skip


def tried(folder: Path) -> str:
    """Load an embedder and use it, in this process: "ran", or the kind and text of a clear refusal."""
    try:
        embedder = OnnxEmbedder(folder, device="cpu")
        vectors = embedder.embed(["green tea and some more words"])
    except ModelFilesError as error:
        said = str(error)
        assert len(said.replace(str(folder), "")) < 1000, said
        return "refused"
    assert np.isfinite(vectors).all()
    return "ran"


@pytest.mark.parametrize("field", FIELDS)
def test_any_value_in_a_manifest_is_refused_or_right(tiny: Path, tmp_path: Path, field: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    manifest = json.loads((folder / "manifest.json").read_text())

    def trial() -> str:
        told = []
        for value in VALUES:
            (folder / "manifest.json").write_text(json.dumps(manifest | {field: value}), encoding="utf-8")
            told.append(tried(folder))
        return " ".join(told)

    in_child(trial)


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../model.onnx", "a/../../x", "\0", "", "C:\\x", "..\\x", "pipe", "sub", "x" * 5000, "/dev/zero"],
)
def test_a_manifest_lists_no_files_of_other_folders(tiny: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    (folder / "sub").mkdir()
    os.mkfifo(folder / "pipe")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"files": {name: {"sha256": "0" * 64}}}))
    with pytest.raises(ModelFilesError, match=r"no file of this folder|cannot be read"):
        read_onnx_folder(folder, EMBEDDER)
    shipped = {"name": "x", "version": "1", "kind": "static-token-table", "dim": 2, "rows": 1}
    (folder / "manifest.json").write_text(json.dumps(shipped | {"files": {name: {"bytes": 1, "sha256": "0" * 64}}}))
    with pytest.raises(ModelFilesError, match=r"no file of this folder|cannot be read"):
        verify_files(folder, read_manifest(folder))


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b'{"files": ' + b"9" * 5000 + b"}",
     b'{"name":"x","version":"1","kind":"k","dim":Infinity,"rows":1,"files":{}}',
     b'{"name":"x","version":"1","kind":"k","dim":1,"rows":1,"files":{"x":{"bytes":1e400,"sha256":""}}}'],
)  # fmt: skip
def test_a_manifest_that_is_none_is_refused(tiny: Path, tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(ModelFilesError):
        read_onnx_folder(folder, EMBEDDER)
    with pytest.raises(ModelFilesError):
        read_manifest(folder)
    for name in ("config.json", "tokenizer_config.json", "sentence_bert_config.json"):
        (folder / "manifest.json").unlink(missing_ok=True)
        (folder / name).write_bytes(content)
        try:
            read_onnx_folder(folder, EMBEDDER)
        except ModelFilesError as error:
            assert error.path.name == name  # noqa: PT017
        (folder / name).unlink()


@pytest.mark.parametrize("key", ["pad_token_id", "max_position_embeddings", "model_type", "sentence_transformers",
                                 "sbert_ce_default_activation_function", "prompts"])  # fmt: skip
def test_any_value_in_an_exporters_config_is_refused_or_right(tiny: Path, tmp_path: Path, key: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    (folder / "manifest.json").unlink()

    def trial() -> str:
        told = []
        for value in VALUES:
            for name in ("config.json", "config_sentence_transformers.json"):
                (folder / name).write_text(json.dumps({"max_position_embeddings": 64, key: value}))
            told.append(tried(folder))
        return " ".join(told)

    assert "ran" in in_child(trial)


# ------------------------------------------------------------------------------------------------------ tokenizers


def mutations(value: Any) -> Iterator[Callable[[], Any]]:
    """Every way to put something else in one place of a JSON value."""

    def at(path: tuple[Any, ...], put: Any) -> Any:
        copy = json.loads(json.dumps(value))
        holder = copy
        for key in path[:-1]:
            holder = holder[key]
        if put is ...:
            del holder[path[-1]]
        else:
            holder[path[-1]] = put
        return copy

    def walk(part: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        if path:
            yield path
        items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for place, (key, inside) in enumerate(items):
            if place < 12:  # of a vocabulary some are enough
                yield from walk(inside, (*path, key))

    for path in walk(value, ()):
        for put in (..., None, -1, 2**40, "", "x", [], {}):
            yield lambda path=path, put=put: at(path, put)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte_level"])
def test_a_damaged_tokenizer_is_an_error_and_never_the_end_of_the_process(kind: str, tmp_path: Path) -> None:
    from tests.models import tiny_onnx

    getattr(tiny_onnx, kind)().save(str(tmp_path / "tokenizer.json"))
    whole = json.loads((tmp_path / "tokenizer.json").read_text())

    def trial() -> str:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a panic of the library says so there too
        told = []
        for i, change in enumerate(mutations(whole)):
            if i % 3:
                continue
            try:
                tokenizer = TextTokenizer(json.dumps(change()).encode(), Path("tokenizer.json"))
                for text in ("green tea 的 [SEP] ?", "", "\ud800 x", "a" * 500):
                    assert all(isinstance(number, int) for number in tokenizer.ids(text, 20))
                tokenizer.pair()
                told.append("ran")
            except ModelFilesError:
                told.append("refused")
        return f"{told.count('ran')} {told.count('refused')}"

    ran, refused = map(int, in_child(trial, seconds=120).split())
    assert ran > 20
    assert refused > 20


@pytest.mark.parametrize("content", [b"", b"{}", b"null", b"[" * 100_000, b"\0" * 100, b"\xff", b'{"version":"1.0"}'])
def test_what_is_no_tokenizer_is_refused(content: bytes) -> None:
    with pytest.raises(ModelFilesError, match="is not a tokenizer"):
        TextTokenizer(content, Path("tokenizer.json"))


# ------------------------------------------------------------------------------------------------ what ships


@pytest.mark.parametrize("name", sorted(json.loads((SHIPPED_FOLDER / "manifest.json").read_text())["files"]))
def test_a_flipped_byte_of_the_table_that_ships_is_named(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    for path in SHIPPED_FOLDER.iterdir():
        if path.is_file() and path.name != name:
            os.link(path, folder / path.name) if _same_device(path, folder) else shutil.copyfile(
                path, folder / path.name
            )
    content = bytearray((SHIPPED_FOLDER / name).read_bytes())
    content[len(content) // 2] ^= 0x10
    (folder / name).write_bytes(content)
    with pytest.raises(ModelFilesError, match="is damaged: its SHA-256") as refused:
        StaticEmbedder(folder)
    assert refused.value.path.name == name


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_flipped_byte_of_the_cross_encoder_that_ships_is_named(tmp_path: Path, name: str) -> None:
    shipped, folder = SHIPPED_FOLDER / "rerank-en", tmp_path / "rerank-en"
    assert name in json.loads((shipped / "manifest.json").read_text())["files"]
    shutil.copytree(shipped, folder)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 3] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ModelFilesError, match="is damaged: its SHA-256") as refused:
        OnnxCrossEncoder(folder, device="cpu")
    assert refused.value.path.name == name


def _same_device(path: Path, folder: Path) -> bool:
    return path.stat().st_dev == folder.stat().st_dev
