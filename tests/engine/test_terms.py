"""Terms: what a text, its date and its speaker are counted as, against a plain count."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from datetime import UTC, datetime
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi import term_batches, terms
from jiyi.kernels.csr import count_sorted_rows
from jiyi.memory import Memory
from jiyi.models.simplified import simplified
from jiyi.terms import (
    BIGRAM,
    DATE,
    SPEAKER,
    WORD,
    TermColumns,
    content_words,
    date_terms,
    is_sort,
    memory_terms,
    query_terms,
    speaker_terms,
    stem,
    text_terms,
    word_term,
)
from tests.engine.conftest import Child


def _term(text: str, sort: int) -> int:
    """The definition: 64 bits of BLAKE2b, the lowest two replaced by the sort."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") // 4 * 4 + sort


def test_words_characters_and_bigrams() -> None:
    assert text_terms("徒步路 GPU") == [
        *(_term(c, WORD) for c in "徒步路"),
        _term("徒步", BIGRAM),
        _term("步路", BIGRAM),
        _term("gpu", WORD),
    ]
    assert text_terms("!?") == []


@pytest.mark.parametrize(
    ("word", "root"),
    [
        ("running", "run"),
        ("hiked", "hike"),
        ("hikes", "hike"),
        ("happily", "happili"),
        ("is", "is"),
        ("徒", "徒"),
        ("straßen", "straßen"),
        ("cats", "cat"),
    ],
)
def test_stems_are_snowballs_for_english_only(word: str, root: str) -> None:
    assert stem(word) == root


def test_inflections_share_a_term() -> None:
    assert word_term("hiking") == word_term("hiked") == word_term("hikes")
    assert word_term("hike") != word_term("bike")


def test_sorts_are_told_apart() -> None:
    terms = np.array([*text_terms("京都"), *date_terms(datetime(1970, 1, 1)), *speaker_terms("Ana")], np.uint64)
    assert [int(is_sort(terms, sort).sum()) for sort in (WORD, BIGRAM, DATE, SPEAKER)] == [2, 1, 3, 1]
    assert word_term("ana") not in speaker_terms("Ana")


def test_date_terms_are_utc_year_month_day() -> None:
    assert date_terms(datetime(2023, 5, 8, 23, 59, tzinfo=UTC)) == tuple(_term(p, DATE) for p in ("y2023", "m5", "d8"))
    assert date_terms(datetime.min) == tuple(_term(p, DATE) for p in ("y1", "m1", "d1"))


DATES = {
    "what happened on 8 May 2023?": {"y2023", "m5", "d8"},
    "May 8th, 2023": {"y2023", "m5", "d8"},
    "the 8th of may": {"m5", "d8"},
    "2023-05-08": {"y2023", "m5", "d8"},
    "2023/5": {"y2023", "m5"},
    "2023年5月8日去了哪里": {"y2023", "m5", "d8"},
    "5月8号": {"m5", "d8"},
    "二〇二三年": set(),
    "in 2023": {"y2023"},
    "2023年": {"y2023"},
    "September": {"m9"},
    "sept 30": {"m9", "d30"},
    "2023-13-45": {"y2023"},
    "room 12345": set(),
    "1850 people": set(),
    "maybe marching": set(),
    "２０２３年５月": {"y2023", "m5"},
}


@pytest.mark.parametrize("text", DATES)
def test_dates_named_in_a_query(text: str) -> None:
    found = query_terms(text).terms
    assert set(found[is_sort(found, DATE)].tolist()) == {_term(part, DATE) for part in DATES[text]}


def test_function_words_leave_unless_nothing_else_is_there() -> None:
    assert content_words("what is the name of my cat") == ["name", "cat"]
    assert content_words("what is the") == ["what", "is", "the"]
    assert content_words("猫叫什么名字") == ["猫叫", "名字"]
    assert content_words("") == []


def test_a_query_is_distinct_ascending_terms() -> None:
    terms = query_terms("cat cats CAT's 猫猫猫").terms
    assert terms.dtype == np.uint64
    assert np.all(np.diff(terms.astype(object)) > 0)
    wanted = {_term("cat", WORD), _term("猫", WORD), _term("猫猫", BIGRAM), *speaker_terms("cat")}
    assert wanted <= set(terms.tolist())
    assert len(query_terms("!!! ??? -- *").terms) == 0


@given(
    st.lists(
        st.builds(
            Memory,
            text=st.text(alphabet="ab 猫京1'.", max_size=30),
            timestamp=st.datetimes(),
            speaker=st.none() | st.sampled_from(["Ana", "李 雷", "!"]),
        ),
        max_size=6,
    )
)
def test_memory_terms_are_a_plain_count(memories: list[Memory]) -> None:
    columns = memory_terms(memories)
    assert columns.indptr.tolist()[0] == 0
    assert len(columns.indptr) == len(memories) + 1
    for i, memory in enumerate(memories):
        start, end = columns.indptr[i : i + 2]
        speaker = speaker_terms(memory.speaker) if memory.speaker else []
        counts = Counter([*text_terms(memory.text), *date_terms(memory.timestamp), *speaker])
        assert columns.terms[start:end].tolist() == sorted(counts)
        assert dict(zip(columns.terms[start:end].tolist(), columns.freqs[start:end].tolist(), strict=True)) == counts


def test_a_frequency_stops_at_65535() -> None:
    assert memory_terms([Memory(text="cat " * 70_000)]).freqs.max() == 65_535


def test_terms_are_the_same_in_every_process(child: Child) -> None:
    code = "from jiyi.terms import text_terms\nprint(text_terms('Running 周末徒步 👍'))"
    answers = {child(code, fresh=True, env={"PYTHONHASHSEED": seed}).stdout for seed in ("0", "1")}
    assert answers == {f"{text_terms('Running 周末徒步 👍')}\n"}


def test_any_text_can_be_analysed() -> None:
    for text in ("\ud800", "a\x00b", "'s 's", "’", "\u0301"):
        assert query_terms(text).terms.dtype == np.uint64
        text_terms(text)


HOSTILE = st.text(
    alphabet="abAB1920 's.t'-_/@:,月日京都猫ｱサン\u0301\u1000กຂខ😀☀ßﬁ臺灣后‘’\t\n𠮷मि한",
    max_size=60,
) | st.sampled_from(
    [
        "type script and Node.js v3.11 on 2023-05-08 at 9:30am",
        "any ai rport day time",
        "back up the work place, play ground",
        "snake_case getUser src/io.py a@b.c C++ #tag 1,000,000",
        "二〇二三年五月八日 去年3月",
        "don't we'll l'eau rock'n'roll",
        "\ufdfa" * 30,
        "sound" + " track" * 3,
    ]
)


@given(
    st.lists(
        st.builds(
            Memory,
            text=HOSTILE,
            timestamp=st.datetimes(),
            speaker=st.none() | st.sampled_from(["Ana", "李 雷", "!"]),
        ),
        max_size=12,
    )
)
def test_many_texts_at_once_have_the_terms_of_each(memories: list[Memory]) -> None:
    one_by_one = TermColumns(*count_sorted_rows(*terms._one_by_one(memories)))
    at_once = TermColumns(*count_sorted_rows(*terms._at_once(memories)))
    for one, other in zip(astuple(one_by_one), astuple(at_once), strict=True):
        assert np.array_equal(one, other)
        assert one.dtype == other.dtype


def test_large_batches_are_cut_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the cat sat", "x" * 900, "猫" * 700, "", "work place", "long " * 2_000, "京都に行く", "last"]
    memories = [Memory(text=text, timestamp="2026-03-02") for text in texts]
    expected = [TermColumns(*count_sorted_rows(*terms._one_by_one([memory]))) for memory in memories]
    for few, long, many in ((0, 500, 1_000), (0, 5, 10), (10**9, 5, 10), (0, 10**9, 10**9)):
        monkeypatch.setattr(terms, "_FEW", few)
        monkeypatch.setattr(terms, "_LONG", long)
        monkeypatch.setattr(terms, "_MANY", many)
        columns = memory_terms(memories)
        bounds = columns.indptr.tolist()
        assert len(bounds) == len(memories) + 1
        for i, one in enumerate(expected):
            assert columns.terms[bounds[i] : bounds[i + 1]].tolist() == one.terms.tolist()
            assert columns.freqs[bounds[i] : bounds[i + 1]].tolist() == one.freqs.tolist()
    assert memory_terms([]).indptr.tolist() == [0]


def test_what_is_known_of_words_is_forgotten_when_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    cutter = term_batches.TermCutter()
    monkeypatch.setattr(term_batches, "_MOST_WORDS", 50)
    monkeypatch.setattr(term_batches, "_MOST_PAIRS", 50)
    for start in range(0, 300, 60):
        texts = [f"w{i} {chr(0x4E00 + i)}{chr(0x4E01 + i)}" for i in range(start, start + 60)]
        indptr, found = cutter.terms(list(map(simplified, texts)), [()] * len(texts))
        for i, text in enumerate(texts):
            assert sorted(found[indptr[i] : indptr[i + 1]].tolist()) == sorted(text_terms(text))
        assert cutter._words.size <= 200


def test_threads_share_what_is_known() -> None:
    memories = [Memory(text=f"thread {i % 97} 京都{chr(0x4E00 + i % 89)} work place {i}") for i in range(400)]
    expected = TermColumns(*count_sorted_rows(*terms._one_by_one(memories)))

    def same(_: int) -> bool:
        found = TermColumns(*count_sorted_rows(*terms._at_once(memories)))
        return np.array_equal(found.terms, expected.terms) and np.array_equal(found.freqs, expected.freqs)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(same, range(12)))
