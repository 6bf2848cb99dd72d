"""The one tokenizer: golden cuts by hand, and what must hold for any text."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.text import fold, is_run, segments, tokenize

CUTS = {
    "用户用 TypeScript 写后端 API": ["用", "户", "用", "typescript", "写", "后", "端", "api"],
    "I don't like Ana's code": ["i", "don't", "like", "ana's", "code"],
    "we'll they're I'd I'm it'd I've": ["we'll", "they're", "i'd", "i'm", "it'd", "i've"],
    "l'eau d'accord": ["l", "eau", "d", "accord"],
    "'quoted' rock'n'roll": ["quoted", "rock", "n", "roll"],
    "don’t": ["don't"],
    "snake_case kebab-case a.b": ["snake", "case", "kebab", "case", "a", "b"],
    "C++ and c# v2.0": ["c", "and", "c", "v2", "0"],
    "ＴｙｐｅＳｃｒｉｐｔ ２０２６": ["typescript", "2026"],
    "ﬁne Straße": ["fine", "strasse"],
    "人々は京都で": ["人", "々", "は", "京", "都", "で"],
    "サーバー": ["サ", "ー", "バ", "ー"],
    "ｻｰﾊﾞｰ": ["サ", "ー", "バ", "ー"],
    "한국어 메모리": ["한국어", "메모리"],
    "हिन्दी भाषा": ["हिन्दी", "भाषा"],
    "שָׁלוֹם": ["שָׁלוֹם"],
    "مرحبا بالعالم": ["مرحبا", "بالعالم"],
    "Привет, МИР": ["привет", "мир"],
    "สวัสดี": list("สวัสดี"),
    "ສະບາຍ": list("ສະບາຍ"),
    "សួស្តី": list("សួស្តី"),
    "မင်္ဂလာ": list("မင်္ဂလာ"),
    "👍👍 ok🎉": ["👍", "👍", "ok", "🎉"],
    "今天部署GPU服务器": ["今", "天", "部", "署", "gpu", "服", "务", "器"],
    "a\x00b\ud800c\u200bd": ["a", "b", "c", "d"],
    "𠮷野家": ["𠮷", "野", "家"],
    "café": ["café"],
    "cafe\u0301": ["café"],
    "": [],
    "  \t\n": [],
    "!?。，、·…—“”()[]{}*^~:;<>/\\|@#$%&+=-_": [],
}


@pytest.mark.parametrize("text", CUTS, ids=range(len(CUTS)))
def test_golden_cuts(text: str) -> None:
    assert tokenize(text) == CUTS[text]


def test_a_run_is_cut_only_at_script_borders() -> None:
    assert segments("明日は京都で会議、来週") == ["明日は京都で会議", "来週"]
    assert [is_run(segment) for segment in segments("猫 cat 👍 한국")] == [True, False, False, False]


@given(st.text())
def test_any_text_gives_tokens_that_are_folded_and_not_blank(text: str) -> None:
    for token in tokenize(text):
        assert token.strip() == token
        assert token
        assert fold(token) == token


@given(st.text(alphabet=string.printable))
def test_the_quick_way_for_ascii_cuts_like_the_general_one(text: str) -> None:
    assert tokenize(text + " 猫") == [*tokenize(text), "猫"]


@given(st.text(alphabet=string.ascii_letters + string.digits + " '.,"))
def test_case_does_not_matter(text: str) -> None:
    assert tokenize(text.upper()) == tokenize(text.lower()) == tokenize(text)


@given(st.lists(st.text(alphabet="abc猫京é1", min_size=1), max_size=5))
def test_separators_only_separate(words: list[str]) -> None:
    assert tokenize("。 ".join(words)) == [token for word in words for token in tokenize(word)]


def test_a_megabyte_is_cut_whole() -> None:
    assert len(tokenize("猫" * 300_000)) == 300_000
    assert tokenize("a" * 1_000_000) == ["a" * 1_000_000]
