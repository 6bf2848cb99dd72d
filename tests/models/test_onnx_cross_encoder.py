from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from jiyi.models import ModelFilesError, onnx_session
from jiyi.models.onnx_cross_encoder import LOWEST_LOGIT, OnnxCrossEncoder
from jiyi.models.protocols import BudgetedCrossEncoder, CrossEncoder
from tests.models.fake_gpu import FakeRuntime
from tests.models.tiny_onnx import SHAPE, make_folder, sentences, unigram, wordpiece

HOSTILE = {
    "surrogate": "cat \ud83d sat",
    "NUL": "\x00cat\x00",
    "emoji": "👩‍👩‍👧 cat",
    "right to left": "\u202ecat",
    "combining": "e" + "\u0301" * 500,
    "separator": "[SEP] [CLS] [PAD]",
    "letters": "x" * 1_000_000,
    "words": "cat " * 250_000,
}


def load(folder: Path, **settings: Any) -> OnnxCrossEncoder:
    return OnnxCrossEncoder(folder, **{"device": "cpu", "threads": 1} | settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("cross") / "tiny", outputs=1, manifest={})


@pytest.fixture
def model(folder: Path) -> OnnxCrossEncoder:
    return load(folder)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("cross8") / "tiny", outputs=1, int8=True, manifest={})


def oracle(folder: Path, query: str, text: str) -> np.ndarray:
    """Logits of one pair that fits, through the tokenizer's own pair and plain onnxruntime."""
    raw = wordpiece()
    raw.no_padding()
    raw.no_truncation()
    encoding = raw.encode(query, text)
    ids = np.array([encoding.ids])
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.array([encoding.type_ids])}
    return session.run(None, feeds)[0][0]


class Rows:
    """Counts the rows that a model is asked for."""

    def __init__(self, model: OnnxCrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[np.ndarray] = []
        run = model._session.run

        def counting(feeds: Any, output: str) -> Any:
            self.batches.append(feeds["input_ids"])
            return run(feeds, output)

        monkeypatch.setattr(model._session, "run", counting)

    @property
    def count(self) -> int:
        return sum(map(len, self.batches))


def test_protocols(model: OnnxCrossEncoder) -> None:
    assert isinstance(model, CrossEncoder)
    assert isinstance(model, BudgetedCrossEncoder)
    assert (model.name, model.degraded) == ("tiny", ())


# Scores


def test_scores_are_the_models(folder: Path, model: OnnxCrossEncoder) -> None:
    texts = sentences(25)
    scores = model.score("where does the cat live?", texts)
    assert scores.dtype == np.float32
    expected = [oracle(folder, "where does the cat live?", text)[0] for text in texts]
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert np.ptp(scores) > 0.1


def test_sigmoid(folder: Path, model: OnnxCrossEncoder) -> None:
    texts = sentences(10)
    logits = model.score("tea", texts)
    np.testing.assert_allclose(
        load(folder, activation="sigmoid").score("tea", texts), 1 / (1 + np.exp(-logits)), atol=1e-5
    )


@pytest.mark.parametrize("positive", [0, 1, None])
def test_two_logits_score_the_positive_one_less_the_other(tmp_path: Path, positive: int | None) -> None:
    folder = make_folder(tmp_path, outputs=2, manifest={"positive_logit": positive, "activation": "sigmoid"})
    texts = sentences(8)
    logits = np.array([oracle(folder, "tea", text) for text in texts])
    probability = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = probability[:, 1 if positive is None else positive]
    np.testing.assert_allclose(load(folder).score("tea", texts), expected, atol=1e-5)


def test_three_logits_are_no_cross_encoder(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match="no output of one or two numbers a pair"):
        load(make_folder(tmp_path, outputs=3))


def test_embedder_is_no_cross_encoder(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match="use a model that scores pairs"):
        load(make_folder(tmp_path))


def test_template_of_another_family(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, outputs=1, tokenizer=unigram(), token_types=False)
    scores = load(folder).score("where is the cat?", ["the cat\nsat", "the cat sat", "redis"])
    assert scores[0] == scores[1] != scores[2]


def test_fp32_does_not_depend_on_the_batch(folder: Path) -> None:
    texts = [*sentences(40), "cat " * 400]
    together = load(folder).score("my cat", texts)
    alone = [float(load(folder, cache_pairs=0).score("my cat", [text])[0]) for text in texts]
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_int8_does_not_depend_on_the_batch_at_all(quantized: Path) -> None:
    texts = [*sentences(40), "cat " * 400]
    model = load(quantized, cache_pairs=0, threads=2)
    together = model.score("my cat", texts)
    assert np.array_equal(together, np.concatenate([model.score("my cat", [text]) for text in texts]))
    assert np.array_equal(together, model.score("my cat", texts[::-1])[::-1])


def test_across_queries_as_query_by_query(folder: Path) -> None:
    texts = sentences(12)
    queries = ["tea", "where does the dog live?", "what do i love"]
    pairs = [(query, text) for text in texts for query in queries]
    scores = load(folder).score_pairs(pairs).reshape(12, 3)
    for i, query in enumerate(queries):
        np.testing.assert_allclose(scores[:, i], load(folder).score(query, texts), atol=1e-4)


def test_chunks_change_nothing(folder: Path, model: OnnxCrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    from jiyi.models import onnx_cross_encoder

    expected = model.score("tea", sentences(30))
    monkeypatch.setattr(onnx_cross_encoder, "CHUNK", 7)
    np.testing.assert_allclose(load(folder).score("tea", sentences(30)), expected, atol=1e-4)


def test_on_a_gpu_batches_are_large_and_scores_the_same(
    folder: Path, quantized: Path, model: OnnxCrossEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the provider switch: onnxruntime is asked for CUDA, and what it is asked to run runs on the CPU."""
    expected = model.score("tea", sentences(40))
    monkeypatch.setattr(onnx_session, "_runtime", FakeRuntime)
    on_gpu = OnnxCrossEncoder(folder, device="cuda:1", cache_pairs=0)
    assert (on_gpu._session.device, on_gpu.degraded) == ("cuda:1", ())
    rows = Rows(on_gpu, monkeypatch)
    np.testing.assert_allclose(on_gpu.score("tea", sentences(40)), expected, atol=1e-4)
    on_gpu.score("tea", ["the cat sat"] * 3 + [f"the cat {n}" for n in range(300)])
    assert max(map(len, rows.batches)) > 200
    int8 = Rows(model8 := OnnxCrossEncoder(quantized, device="cuda"), monkeypatch)
    model8.score("tea", sentences(20, longest=5))
    assert max(map(len, int8.batches)) > 1


# Long texts


def test_long_text_has_the_score_of_its_best_window(folder: Path, model: OnnxCrossEncoder) -> None:
    query, words = "my cat", " ".join(sentences(12)).split()
    room = SHAPE.positions - 3 - 2
    last = len(words) - room
    windows = [words[start : start + room] for start in [*range(0, last, room // 2), last]]
    assert 3 <= len(windows) <= 8
    scores = [float(oracle(folder, query, " ".join(window))[0]) for window in windows]
    assert model.score(query, [" ".join(words)])[0] == pytest.approx(max(scores), abs=1e-4)


def test_long_query_keeps_its_end(model: OnnxCrossEncoder) -> None:
    tail = "the dog named max moved to paris and the cat sat on the trail when it is morning in the city i love my dog"
    assert len(tail.split()) < 30
    long = "redis " * 500
    first, second, other = (
        model.score(query, ["the dog"])[0] for query in (long + tail, "tea " * 300 + long + tail, long)
    )
    assert first == pytest.approx(second, abs=1e-5)
    assert abs(first - other) > 1e-3


# Without a token


@pytest.mark.parametrize(
    ("activation", "lowest"), [("none", LOWEST_LOGIT), ("sigmoid", 1 / (1 + math.exp(-LOWEST_LOGIT)))]
)
def test_blank_texts_and_queries_score_lowest(folder: Path, activation: str, lowest: float) -> None:
    model = load(folder, activation=activation)
    texts = ["", "  \n", "\x00\u200b", "the cat"]
    scores = model.score("cat", texts)
    assert scores[:3] == pytest.approx([lowest] * 3)
    assert scores[3] > lowest + 1e-3
    for blank in ("", " ", "\x00"):
        assert model.score(blank, ["the cat", ""]) == pytest.approx([lowest] * 2)
    assert np.isfinite(scores).all()


def test_no_pairs(model: OnnxCrossEncoder) -> None:
    assert model.score("cat", []).shape == (0,)
    assert model.score_pairs([]).dtype == np.float32
    assert model.score_pairs([], deadline=0.0).shape == (0,)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_and_queries_have_an_answer(model: OnnxCrossEncoder, text: str) -> None:
    plain = float(model.score("cat", ["the cat"])[0])
    scores = model.score_pairs([("cat", text), (text, "the cat"), (text, text), ("cat", "the cat")])
    assert np.isfinite(scores).all()
    assert scores[3] == pytest.approx(plain, abs=1e-4)


@pytest.mark.parametrize("pairs", [["ab"], [("a",)], [("a", "b", "c")], [("a", None)], [(b"a", "b")], [("a", 1)]])
def test_what_is_not_pairs(model: OnnxCrossEncoder, pairs: Any) -> None:
    with pytest.raises(TypeError, match="pair 0"):
        model.score_pairs(pairs)


def test_one_string_is_not_texts(model: OnnxCrossEncoder) -> None:
    with pytest.raises(TypeError, match="a sequence of strings"):
        model.score("cat", "the cat")


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"activation": "tanh"}, ValueError, "activation is 'tanh'"),
        ({"max_tokens": 8}, ValueError, "max_tokens is 8"),
        ({"max_tokens": 1_000}, ValueError, "16 to 64"),
        ({"cache_pairs": -1}, ValueError, "cache_pairs is -1"),
        ({"cache_pairs": 1.5}, ValueError, "cache_pairs is 1.5"),
        ({"languages": "en"}, TypeError, "languages is one string"),
    ],
)
def test_bad_settings(folder: Path, settings: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load(folder, **settings)


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, outputs=1)
    broken = onnx.load(folder / "model.onnx")
    for weight in broken.graph.initializer:
        if weight.name == "classifier.bias":
            weight.CopyFrom(numpy_helper.from_array(np.array([np.nan], np.float32), weight.name))
    onnx.save(broken, folder / "model.onnx")
    with pytest.raises(FloatingPointError, match="not finite"):
        load(folder).score("cat", ["the cat"])


# Work done once


def test_equal_pairs_are_scored_once(model: OnnxCrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(model, monkeypatch)
    scores = model.score_pairs([("cat", "redis"), ("dog", "redis"), ("cat", "redis"), ("cat", "tea"), ("dog", "redis")])
    assert rows.count == 3
    assert scores[0] == scores[2]
    assert scores[1] == scores[4]


def test_scores_are_remembered(model: OnnxCrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(model, monkeypatch)
    texts = sentences(20)
    first = model.score("cat", texts)
    assert np.array_equal(model.score("cat", texts[5:15]), first[5:15])
    assert rows.count == 20
    model.score("dog", texts)
    assert rows.count == 40


def test_cache_is_bounded_and_can_be_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded, off = load(folder, cache_pairs=5), load(folder, cache_pairs=0)
    for model, expected in ((bounded, 11), (off, 16)):
        rows = Rows(model, monkeypatch)
        model.score("cat", sentences(8))
        model.score("cat", sentences(8)[-3:])
        model.score("cat", sentences(8)[:5])
        assert len(model._cache) == (5 if model is bounded else 0)
        assert rows.count == expected


def test_each_text_and_query_is_cut_once(model: OnnxCrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    encode = model._tokenizer._encode
    monkeypatch.setattr(model._tokenizer, "_encode", lambda text, most: seen.append(text) or encode(text, most))
    texts, queries = sentences(6), ["who", "what", "where"]
    model.score_pairs([(query, text) for query in queries for text in texts])
    assert sorted(seen) == sorted([*texts, *queries])


def test_rows_of_like_length_share_a_batch(model: OnnxCrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(model, monkeypatch)
    model.score("cat", [*sentences(60, longest=12), "cat " * 50])
    for batch in rows.batches:
        lengths = (batch != model._tokenizer.pad_id).sum(1)
        assert all(batch.shape[1] <= max(1.25 * length, length + 4) for length in lengths)
        assert batch.size <= 512


@pytest.mark.parametrize("cache_pairs", [0, 1_000])
def test_threads_share_a_model(folder: Path, cache_pairs: int) -> None:
    model, texts = load(folder, cache_pairs=cache_pairs, threads=2), sentences(20)
    expected = load(folder).score("my dog", texts)
    wrong: list[float] = []

    def work() -> None:
        for _ in range(4):
            difference = float(np.abs(model.score("my dog", texts) - expected).max())
            if not difference <= 1e-4:
                wrong.append(difference)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
