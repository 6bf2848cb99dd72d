from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.models import table_batches, table_tokenizer
from jiyi.models.table_batches import BatchTokenizer
from jiyi.models.table_tokenizer import TableTokenizer, fold

KEYS = [
    "徒步",
    "徒",
    "步",
    "越野",
    "越野车",
    "喜欢",
    "▁hiking",
    "▁hi",
    "king",
    "▁cafe",
    "▁a",
    "b",
    "▁ana",
    "▁do",
    "2",
    "▁v",
]
PIECES = {"▁hi": -2.0, "king": -3.0, "▁a": -1.0, "b": -1.0, "2": -1.0, "▁v": -1.0}


@pytest.fixture(scope="module")
def tokenizer() -> TableTokenizer:
    scores = np.array([PIECES.get(key, np.nan) for key in KEYS], np.float32)
    return TableTokenizer(KEYS, scores, {"歡": "欢"})


def keys_of(tokenizer: TableTokenizer, text: str) -> list[str]:
    return [KEYS[row] for row in tokenizer.rows(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("徒步", ["徒步"]),
        ("越野车", ["越野车"]),
        ("越野徒步", ["越野", "徒步"]),
        ("步徒步", ["步", "徒步"]),
        ("越徒", ["徒"]),  # 越 alone has no row
        ("喜歡徒步", ["喜欢", "徒步"]),  # traditional
        ("Hiking", ["▁hiking"]),
        ("ｈｉｋｉｎｇ", ["▁hiking"]),  # full width
        ("hi king", ["▁hi", "king"]),  # `▁king` has no row
        ("hiking徒步hiking", ["▁hiking", "徒步", "▁hiking"]),
        ("Café", ["▁cafe"]),
        ("CAFE\u0301", ["▁cafe"]),
        ("Ana's", ["▁ana"]),
        ("Ana’s", ["▁ana"]),
        ("v2", ["▁v", "2"]),
        ("ab ab", ["▁a", "b", "▁a", "b"]),
        ("", []),
        ("…!?😀 \n\t", []),
        ("привет สวัสดี こんにちは مرحبا", []),
    ],
)
def test_rows_in_text_order(tokenizer: TableTokenizer, text: str, expected: list[str]) -> None:
    assert keys_of(tokenizer, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("徒步", 1.0),
        ("喜歡 hiking!", 1.0),
        ("徒步привет", 2 / 8),
        ("สวัสดี", 0.0),
        ("越徒", 1 / 2),
        ("ab", 0.0),  # single letters within a word do not make it known
        ("a", 1.0),
        ("", 1.0),
        ("…!? 😀", 1.0),
    ],
)
def test_coverage_is_the_share_of_known_letters(tokenizer: TableTokenizer, text: str, expected: float) -> None:
    assert tokenizer.coverage(text) == pytest.approx(expected)


def test_long_words_have_no_rows_and_are_not_remembered(tokenizer: TableTokenizer) -> None:
    before = len(tokenizer._words)
    assert tokenizer.rows("ab" * 500_000) == []
    assert tokenizer.coverage("ab" * 500_000) == 0.0
    assert len(tokenizer._words) == before


def test_word_cache_is_bounded(monkeypatch: pytest.MonkeyPatch, tokenizer: TableTokenizer) -> None:
    monkeypatch.setattr("jiyi.models.table_tokenizer._CACHE_WORDS", 10)
    text = " ".join(f"v{i}" for i in range(100)) + " ab"
    rows = tokenizer.rows(text)
    assert len(tokenizer._words) <= 10
    assert tokenizer.rows(text) == rows


def test_keys_must_be_distinct() -> None:
    with pytest.raises(ValueError, match="twice"):
        TableTokenizer(["一", "一"], np.full(2, np.nan, np.float32))
    with pytest.raises(ValueError, match="piece scores"):
        TableTokenizer(["一"], np.full(2, np.nan, np.float32))


@given(st.text(alphabet=st.characters(exclude_categories=[])))
def test_any_text_is_cut(tokenizer: TableTokenizer, text: str) -> None:
    assert all(0 <= row < len(KEYS) for row in tokenizer.rows(text))
    assert 0.0 <= tokenizer.coverage(text) <= 1.0
    assert fold(fold(text)) == fold(text)


@given(st.lists(st.text(alphabet="hikng aboé'2v徒步越野车喜欢歡\u0301ø😀ｈ", max_size=40), max_size=8))
def test_many_texts_at_once_have_the_rows_of_each(tokenizer: TableTokenizer, texts: list[str]) -> None:
    indptr, rows = BatchTokenizer(tokenizer, tokenizer._rows, tokenizer._simplified).rows(texts)
    spans = zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)
    assert [rows[start:end].tolist() for start, end in spans] == [tokenizer.rows(text) for text in texts]
    assert (indptr.dtype, rows.dtype) == (np.int64, np.uint32)


def test_large_batches_are_cut_in_parts(tokenizer: TableTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["hiking", "ab " * 50, "", "喜歡徒步", "越野车" * 30, "café", "hi king" * 40, "v2"]
    for few, long, many in ((0, 60, 100), (0, 3, 5), (10**9, 3, 5), (0, 10**9, 10**9)):
        monkeypatch.setattr(table_tokenizer, "_FEW", few)
        monkeypatch.setattr(table_batches, "_LONG", long)
        monkeypatch.setattr(table_batches, "_MANY", many)
        indptr, rows = tokenizer.rows_of_texts(texts)
        spans = zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)
        assert [rows[start:end].tolist() for start, end in spans] == [tokenizer.rows(text) for text in texts]
    indptr, rows = tokenizer.rows_of_texts([])
    assert (indptr.tolist(), rows.tolist()) == ([0], [])


def test_random_words_do_not_grow_what_is_known(tokenizer: TableTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = BatchTokenizer(tokenizer, tokenizer._rows, tokenizer._simplified)
    monkeypatch.setattr(table_batches, "_MOST_WORDS", 20)
    for start in range(0, 200, 40):
        texts = [f"hiking w{i}" for i in range(start, start + 40)]
        indptr, rows = batches.rows(texts)
        spans = zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)
        assert [rows[a:b].tolist() for a, b in spans] == [tokenizer.rows(text) for text in texts]
        assert batches._words.size <= 61
