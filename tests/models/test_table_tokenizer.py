from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
