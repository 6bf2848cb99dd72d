from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from jiyi.models import ModelFilesError
from jiyi.models.onnx_embedder import OnnxEmbedder
from jiyi.models.protocols import Embedder
from tests.models.tiny_onnx import SHAPE, make_folder, sentences, unigram, wordpiece

HOSTILE = [
    "cat \ud83d sat",
    "\x00cat\x00",
    "👩‍👩‍👧 cat",
    "\u202ecat",
    "e" + "\u0301" * 500,
    "x" * 1_000_000,
    "cat " * 250_000,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("embedder") / "tiny")


@pytest.fixture(scope="module")
def embedder(folder: Path) -> OnnxEmbedder:
    return OnnxEmbedder(folder, device="cpu", threads=1)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> OnnxEmbedder:
    return OnnxEmbedder(make_folder(tmp_path_factory.mktemp("int8") / "tiny", int8=True), device="cpu", threads=2)


def oracle(folder: Path, text: str, pool: str = "mean", tokenizer: Callable[[], Tokenizer] = wordpiece) -> np.ndarray:
    """One text through plain onnxruntime, cut and pooled the slow way."""
    raw = tokenizer()
    raw.no_padding()
    raw.enable_truncation(SHAPE.positions)
    ids = np.array([raw.encode(text).ids])
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    hidden = session.run(None, feeds)[0][0]
    vector = {"mean": hidden.mean(0), "cls": hidden[0], "last": hidden[-1]}[pool]
    return vector / np.linalg.norm(vector)


def test_is_an_embedder(embedder: OnnxEmbedder) -> None:
    assert isinstance(embedder, Embedder)
    assert embedder.dim == SHAPE.width
    assert embedder.degraded == ()


@pytest.mark.parametrize("pool", ["mean", "cls", "last"])
def test_pooling_is_over_the_texts_own_tokens(folder: Path, pool: str) -> None:
    embedder = OnnxEmbedder(folder, device="cpu", threads=1, pooling=pool)
    texts = sentences(12)
    for text, vector in zip(texts, embedder.embed(texts), strict=True):
        np.testing.assert_allclose(vector, oracle(folder, text, pool), atol=1e-5)


def test_rows_are_unit_and_in_order(embedder: OnnxEmbedder) -> None:
    texts = sentences(200)
    vectors = embedder.embed(texts)
    assert vectors.shape == (200, SHAPE.width)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    order = np.random.default_rng(0).permutation(200)
    np.testing.assert_allclose(embedder.embed([texts[i] for i in order]), vectors[order], atol=1e-4)


def test_fp32_does_not_depend_on_the_batch(embedder: OnnxEmbedder) -> None:
    texts = [*sentences(40), "cat " * 400, "a"]
    together = embedder.embed(texts)
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_int8_does_not_depend_on_the_batch_at_all(quantized: OnnxEmbedder) -> None:
    texts = [*sentences(40), "cat " * 400, "a"]
    together = quantized.embed(texts)
    alone = np.concatenate([quantized.embed([text]) for text in texts])
    assert np.array_equal(together, alone)
    assert np.array_equal(together, quantized.embed(texts[::-1])[::-1])


def test_texts_without_a_token_have_zero_rows(embedder: OnnxEmbedder) -> None:
    texts = ["", " ", "\n\t\u3000", "\x00\x01", "\u200b", "cat", "", "the"]
    vectors = embedder.embed(texts)
    assert (np.linalg.norm(vectors, axis=1) > 0).tolist() == [False, False, False, False, False, True, False, True]
    assert not embedder.embed_query("").any()
    assert embedder.embed([]).shape == (0, SHAPE.width)
    assert embedder.embed(["", ""]).shape == (2, SHAPE.width)


def test_with_a_prefix_texts_without_a_token_have_zero_rows_too(folder: Path) -> None:
    embedder = OnnxEmbedder(folder, device="cpu", threads=1, passage_prefix="long note ", query_prefix="query ")
    assert (np.linalg.norm(embedder.embed(["", "\x00", "cat"]), axis=1) > 0).tolist() == [False, False, True]
    np.testing.assert_allclose(embedder.embed(["cat"])[0], oracle(folder, "long note cat"), atol=1e-5)
    np.testing.assert_allclose(embedder.embed_query("cat"), oracle(folder, "query cat"), atol=1e-5)


def test_identical_texts_are_run_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = OnnxEmbedder(folder, device="cpu", threads=1)
    rows = []
    run = embedder._session.run
    monkeypatch.setattr(
        embedder._session, "run", lambda feeds, out: rows.append(len(feeds["input_ids"])) or run(feeds, out)
    )
    vectors = embedder.embed(["the cat", "redis", "the cat", "", "redis", "the cat"])
    assert sum(rows) == 2
    assert np.array_equal(vectors[0], vectors[2])
    assert np.array_equal(vectors[1], vectors[4])


def test_long_texts_are_cut_at_their_end(folder: Path, embedder: OnnxEmbedder) -> None:
    text = " ".join(sentences(20))
    np.testing.assert_allclose(embedder.embed([text])[0], oracle(folder, text), atol=1e-5)
    np.testing.assert_allclose(embedder.embed([text + " cat"])[0], embedder.embed([text])[0], atol=1e-6)
    short = OnnxEmbedder(folder, device="cpu", threads=1, max_tokens=8)
    np.testing.assert_allclose(
        short.embed(["the cat sat on my note and like tea"]), short.embed(["the cat sat on my note"]), atol=1e-5
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_have_an_answer(embedder: OnnxEmbedder, quantized: OnnxEmbedder, text: str) -> None:
    for model in (embedder, quantized):
        vectors = model.embed([text, "cat"])
        assert np.isfinite(vectors).all()
        np.testing.assert_allclose(vectors[1], model.embed(["cat"])[0], atol=1e-4)


def test_newlines_are_folded_for_a_vocabulary_without_them(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "e5", tokenizer=unigram(), token_types=False)
    embedder = OnnxEmbedder(folder, device="cpu", threads=1)
    folded, spaced = embedder.embed(["the cat\n\nsat\ton", "the cat sat on"])
    assert np.array_equal(folded, spaced)


@pytest.mark.parametrize("count", [1, 30])
def test_threads_share_an_embedder(embedder: OnnxEmbedder, count: int) -> None:
    texts = sentences(count)
    expected = embedder.embed(texts)
    wrong: list[float] = []

    def work() -> None:
        for _ in range(5):
            difference = float(np.abs(embedder.embed(texts) - expected).max())
            if difference > 1e-4:
                wrong.append(difference)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_more_texts_than_a_chunk(folder: Path, monkeypatch: pytest.MonkeyPatch, embedder: OnnxEmbedder) -> None:
    from jiyi.models import onnx_embedder

    texts = sentences(50)
    expected = embedder.embed(texts)
    monkeypatch.setattr(onnx_embedder, "CHUNK", 7)
    np.testing.assert_allclose(embedder.embed(texts), expected, atol=1e-4)


def test_name_tells_settings_apart(folder: Path) -> None:
    names = [
        OnnxEmbedder(folder, device="cpu", **settings).name
        for settings in ({}, {"pooling": "cls"}, {"query_prefix": "q "}, {"max_tokens": 32}, {"normalize": False})
    ]
    assert len(set(names)) == 5
    assert OnnxEmbedder(folder, device="cpu", pooling="mean").name == names[0]
    assert OnnxEmbedder(folder, device="cpu", name="mine").name == "mine"


def test_without_normalize_rows_are_as_the_model_gives_them(folder: Path, embedder: OnnxEmbedder) -> None:
    raw = OnnxEmbedder(folder, device="cpu", threads=1, normalize=False).embed(["the cat"])
    assert np.linalg.norm(raw) > 2
    np.testing.assert_allclose(raw / np.linalg.norm(raw), embedder.embed(["the cat"]), atol=1e-5)


def test_model_that_pools_itself(tmp_path: Path) -> None:
    import onnx
    from onnx import helper

    folder = make_folder(tmp_path)
    model = onnx.load(folder / "model.onnx")
    model.graph.node.append(
        helper.make_node("ReduceMax", ["last_hidden_state"], ["sentence_embedding"], axes=[1], keepdims=0)
    )
    output = helper.make_tensor_value_info("sentence_embedding", onnx.TensorProto.FLOAT, ["n", "dim"])
    del model.graph.output[:]
    model.graph.output.append(output)
    onnx.save(model, folder / "model.onnx")
    embedder = OnnxEmbedder(folder, device="cpu", threads=1)
    assert embedder.dim == SHAPE.width
    assert embedder.embed(["the cat", "redis"]).shape == (2, SHAPE.width)


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    import onnx
    from onnx import numpy_helper

    folder = make_folder(tmp_path)
    model = onnx.load(folder / "model.onnx")
    for weight in model.graph.initializer:
        if weight.name == "encoder.layer.1.output.LayerNorm.bias":
            weight.CopyFrom(numpy_helper.from_array(np.full(SHAPE.width, np.inf, np.float32), weight.name))
    onnx.save(model, folder / "model.onnx")
    with pytest.raises(FloatingPointError, match="not finite"):
        OnnxEmbedder(folder, device="cpu").embed(["the cat"])


@pytest.mark.parametrize("texts", ["the cat", b"the cat", [b"the cat"], [None], ["cat", 3]])
def test_what_is_not_texts(embedder: OnnxEmbedder, texts: Any) -> None:
    with pytest.raises(TypeError, match=r"string"):
        embedder.embed(texts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"pooling": "max"}, "pooling is 'max'"), ({"max_tokens": 4}, "max_tokens is 4"), ({"max_tokens": 65}, "8 to 64")],
)
def test_bad_settings(folder: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OnnxEmbedder(folder, device="cpu", **settings)


def test_cross_encoder_is_no_embedder(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match="of kind 'onnx-cross-encoder'"):
        OnnxEmbedder(make_folder(tmp_path / "a", outputs=1, manifest={}))


def test_manifest_with_another_dim(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match="gives vectors of 32 numbers, its manifest says 384"):
        OnnxEmbedder(make_folder(tmp_path, manifest={"dim": 384}))
