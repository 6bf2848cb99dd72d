from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels.late_interaction import max_sim
from jiyi.models import Embedder, StaticEmbedder, TokenTable, available_embedders, load_embedder
from jiyi.models.static import SHIPPED_FOLDER, decode

HOSTILE = {
    "empty": "",
    "white space": " \n\t\u3000",
    "surrogate": "\ud800 hiking \udfff",
    "NUL": "\0hiking\0徒步\0",
    "punctuation": "…!?()[]{}'\"\\",
    "emoji": "😀👨‍👩‍👧‍👦",
    "long word": "a" * 1_000_000,
    "long run": "记" * 1_000_000,
    "long text": "I like hiking. " * 70_000,
    "combining": "e" + "\u0301" * 10_000,
    "control": "".join(map(chr, range(32))),
    "right to left": "\u202ehiking\u202c",
}
TEXTS = [
    "I went hiking in the mountains",
    "周末喜欢去徒步",
    "",
    "用 TypeScript 写后端 API",
    "привет",
    "LGBTQ café 2023",
    "the",
]

# Text, its keys, and the first coordinates of its vector.
GOLDEN: list[tuple[str, list[str], list[float]]] = [
    (
        "I went hiking in the mountains",
        ["▁i", "▁went", "▁hiking", "▁in", "▁the", "▁mountains"],
        [-0.0087, 0.1428, -0.0086, 0.0805, 0.0445, -0.0600],
    ),
    (
        "周末喜欢去徒步，特别是越野路线",
        ["周末", "喜欢", "去", "徒步", "特别", "是", "越野", "路线"],
        [0.0050, -0.0042, 0.0169, 0.1059, 0.0402, 0.0519],
    ),
    (
        "週末喜歡去徒步",
        ["周末", "喜欢", "去", "徒步"],
        [0.0040, 0.0741, 0.0278, 0.0612, 0.0934, 0.0068],
    ),
    (
        "用户用 TypeScript 写后端 API",
        ["用户", "用", "▁typescript", "写", "后", "端", "▁api"],
        [-0.0611, 0.0385, -0.0666, -0.0251, 0.0491, 0.1302],
    ),
    (
        "Kubernetes",
        ["▁ku", "bern", "etes"],
        [0.0110, 0.0639, -0.0767, -0.0417, -0.0333, -0.0389],
    ),
    (
        "My favorite color's gray",
        ["▁my", "▁favorite", "▁color", "▁gray"],
        [-0.0762, -0.1253, -0.0614, -0.0706, -0.0785, -0.0348],
    ),
    (
        "café",
        ["▁cafe"],
        [0.0420, -0.0081, -0.0081, -0.1722, -0.0597, -0.0244],
    ),
]


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder.load()


def similarity(embedder: StaticEmbedder, a: str, b: str) -> float:
    x, y = embedder.embed([a, b])
    return float(x @ y)


def test_it_is_what_the_engine_asks_for(embedder: StaticEmbedder) -> None:
    assert isinstance(embedder, Embedder)
    assert isinstance(embedder, TokenTable)
    assert available_embedders()[0] == embedder.name == "e5-static-256"  # before what the user has
    assert load_embedder("e5-static-256") is embedder is StaticEmbedder.load()
    with pytest.raises(ValueError, match="there is no embedder 'other'; there are: e5-static-256"):
        load_embedder("other")


def test_columns_have_the_promised_types(embedder: StaticEmbedder) -> None:
    n = len(embedder.table)
    assert embedder.table.shape == (n, embedder.dim)
    assert embedder.table.dtype == np.int8
    assert embedder.table.flags.c_contiguous
    for column in (embedder.scales, embedder.inverse_norms, embedder.weights):
        assert column.shape == (n,)
        assert column.dtype == np.float32
        assert np.isfinite(column).all()
        assert (column > 0).all()
    assert embedder.weights.max() <= 1
    units = embedder.table[::997].astype(np.float64) * embedder.inverse_norms[::997, None]
    np.testing.assert_allclose(np.linalg.norm(units, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(("text", "keys", "vector"), GOLDEN)
def test_golden(embedder: StaticEmbedder, text: str, keys: list[str], vector: list[float]) -> None:
    names = (SHIPPED_FOLDER / "keys.txt").read_text(encoding="utf-8").split("\n")
    _, rows = embedder.token_rows([text])
    assert [names[row] for row in rows] == keys
    np.testing.assert_allclose(embedder.embed_query(text)[: len(vector)], vector, atol=1e-3)


@pytest.mark.parametrize(
    ("anchor", "near", "far"),
    [
        ("hiking", "mountain trail", "tax return"),
        ("徒步", "登山", "发票"),
        ("hiking", "徒步", "发票"),
        ("我喜欢狗", "my puppy", "database index"),
        ("neighbor", "neighbour", "banana"),
        ("喜歡徒步旅行", "喜欢徒步旅行", "数据库"),
    ],
)
def test_near_in_meaning_is_near(embedder: StaticEmbedder, anchor: str, near: str, far: str) -> None:
    assert similarity(embedder, anchor, near) > similarity(embedder, anchor, far) + 0.1


def test_embed_is_embed_rows_of_token_rows(embedder: StaticEmbedder) -> None:
    indptr, rows = embedder.token_rows(TEXTS)
    assert indptr.dtype == np.int64
    assert rows.dtype == np.uint32
    assert len(indptr) == len(TEXTS) + 1
    np.testing.assert_array_equal(embedder.embed(TEXTS), embedder.embed_rows(indptr, rows))


def test_a_batch_changes_nothing(embedder: StaticEmbedder) -> None:
    together = embedder.embed(TEXTS)
    assert together.dtype == np.float32
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_array_equal(embedder.embed([text])[0], vector)
        np.testing.assert_array_equal(embedder.embed_query(text), vector)
    assert embedder.embed([]).shape == (0, embedder.dim)


def test_rows_are_unit_or_zero(embedder: StaticEmbedder) -> None:
    norms = np.linalg.norm(embedder.embed(TEXTS), axis=1)
    np.testing.assert_allclose(norms, [1, 1, 0, 1, 0, 1, 1], atol=1e-6)


def test_embed_is_the_weighted_mean_of_rows(embedder: StaticEmbedder) -> None:
    _, rows = embedder.token_rows([TEXTS[0]])
    expected = np.zeros(embedder.dim)
    for row in rows.tolist():
        expected += float(embedder.weights[row]) * float(embedder.scales[row]) * embedder.table[row].astype(np.float64)
    np.testing.assert_allclose(embedder.embed_query(TEXTS[0]), expected / np.linalg.norm(expected), atol=1e-6)


def test_embed_weighted_takes_the_callers_weights(embedder: StaticEmbedder) -> None:
    _, rows = embedder.token_rows(["hiking 发票 mountains"])
    only_last = embedder.embed_weighted(rows, np.array([0.0, 0.0, 2.5]))
    np.testing.assert_allclose(only_last, embedder.embed_query("mountains"), atol=1e-6)
    fixed = embedder.embed_weighted(rows, embedder.weights[rows].astype(np.float64))
    np.testing.assert_allclose(fixed, embedder.embed_query("hiking 发票 mountains"), atol=1e-6)
    assert not embedder.embed_weighted(rows, np.zeros(3)).any()
    assert embedder.embed_weighted(np.empty(0, np.uint32), np.empty(0)).shape == (embedder.dim,)
    with pytest.raises(ValueError, match="one length"):
        embedder.embed_weighted(rows, np.zeros(2))


def test_table_serves_late_interaction(embedder: StaticEmbedder) -> None:
    indptr, rows = embedder.token_rows(["I walked along a mountain trail", "please send me the invoice", ""])
    _, query = embedder.token_rows(["hiking"])
    vectors = embedder.table[query].astype(np.float32) * embedder.inverse_norms[query, None]
    scores = max_sim(vectors, np.ones(1), embedder.table, embedder.inverse_norms, indptr, rows, np.arange(3))
    assert scores[0] > scores[1] > scores[2] == 0


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text(embedder: StaticEmbedder, text: str) -> None:
    vector = embedder.embed_query(text)
    assert np.isfinite(vector).all()
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6) or not vector.any()
    assert 0 <= embedder.coverage(text) <= 1


@given(st.text(alphabet=st.characters(exclude_categories=[])))
def test_any_text_has_a_unit_or_zero_vector(embedder: StaticEmbedder, text: str) -> None:
    vector = embedder.embed_query(text)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6) or not vector.any()


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("When did Ana go hiking?", 1, 1),
        ("周末喜欢去徒步吗？", 1, 1),
        ("週末喜歡去徒步嗎？", 1, 1),
        ("Kubernetes 集群", 0.9, 1),
        ("สวัสดีครับ", 0, 0),
        ("Привет, как дела", 0, 0),
        ("こんにちは", 0, 0),
        ("مرحبا", 0, 0),
    ],
)
def test_coverage(embedder: StaticEmbedder, text: str, least: float, most: float) -> None:
    assert least <= embedder.coverage(text) <= most


def test_arguments_are_checked(embedder: StaticEmbedder) -> None:
    with pytest.raises(TypeError, match="one str"):
        embedder.embed("one text")
    with pytest.raises(TypeError, match=r"texts\[1\] must be a str, got NoneType"):
        embedder.embed(["a", None])  # type: ignore[list-item]


def test_threads_agree(embedder: StaticEmbedder) -> None:
    texts = [f"{text} v{i}" for i in range(60) for text in TEXTS]
    expected = embedder.embed(texts)
    fresh = StaticEmbedder(SHIPPED_FOLDER)  # an empty word cache, filled by all at once
    with ThreadPoolExecutor(4) as threads:
        for vectors in threads.map(fresh.embed, [texts] * 8):
            np.testing.assert_array_equal(vectors, expected)


def test_codes_are_two_coordinates_a_byte() -> None:
    levels = np.arange(-8, 8, dtype=np.int8)
    np.testing.assert_array_equal(decode(np.array([[0x10, 0xF2]], np.uint8), levels), [[-8, -7, -6, 7]])


def test_import_leaves_the_tokenizer_alone() -> None:
    code = "import jiyi.models, sys; sys.exit('tokenizers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
