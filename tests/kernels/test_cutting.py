"""Cutting, numbering and the longest match, each against its oracle in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels import cutting
from jiyi.kernels.cutting import CODE_POINTS, Cut, cut
from jiyi.kernels.interning import Pairs, Words
from jiyi.kernels.longest_match import build_trie, match_rows
from tests.oracles import cutting as oracle

LETTERS, RUNS, ALONE = "stdmlrevabö", "猫京都\U00020000", "\U0001f600☀"


def classes() -> np.ndarray:
    of = np.full(CODE_POINTS, cutting.SEPARATOR, np.uint8)
    for characters, kind in ((LETTERS, cutting.LETTER), (RUNS, cutting.RUN), (ALONE, cutting.ALONE)):
        of[[ord(character) for character in characters]] = kind
    return of


CLASSES = classes()


def encoded(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    return codes, np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)


def segments_of(texts: list[str]) -> tuple[np.ndarray, Cut]:
    codes, bounds = encoded(texts)
    found = cut(codes, bounds, CLASSES)
    assert isinstance(found, Cut)
    return codes, found


hostile = st.text(alphabet=LETTERS + RUNS + ALONE + "''' .\ud800", max_size=40)


@given(st.lists(hostile, max_size=6))
def test_cut_agrees_with_the_oracle(texts: list[str]) -> None:
    _, found = segments_of(texts)
    whole = "".join(texts)
    got = [
        [(whole[s:e], kind) for s, e, kind in zip(*(part[a:b].tolist() for part in found[1:]), strict=True)]
        for a, b in zip(found.indptr[:-1].tolist(), found.indptr[1:].tolist(), strict=True)
    ]
    assert got == [oracle.cut(text, LETTERS, RUNS, ALONE) for text in texts]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a's", ["a's"]),
        ("a'sb", ["a", "sb"]),
        ("a'll", ["a'll"]),
        ("a'l", ["a", "l"]),
        ("a'", ["a"]),
        ("a's's", ["a's", "s"]),
        ("a've're", ["a've", "re"]),
        ("猫's", ["猫", "s"]),
    ],
)
def test_apostrophes(text: str, words: list[str]) -> None:
    _, found = segments_of([text])
    assert [text[s:e] for s, e in zip(found.starts.tolist(), found.ends.tolist(), strict=True)] == words


def test_runs_and_contractions_end_with_their_text() -> None:
    _, found = segments_of(["猫京", "都", "a", "'s", "a'", "s"])
    assert found.kinds.tolist() == [1, 2, 1, 0, 0, 0, 0]
    assert (found.ends - found.starts).tolist() == [1] * 7


def test_an_unclassified_code_point_is_named() -> None:
    of = CLASSES.copy()
    of[ord("京")] = cutting.UNKNOWN
    codes, bounds = encoded(["a 京"])
    assert cut(codes, bounds, of) == ord("京")


def test_bad_arguments_of_cut() -> None:
    codes, bounds = encoded(["ab"])
    with pytest.raises(ValueError, match="bounds must run from 0 to 2"):
        cut(codes, bounds[:1], CLASSES)
    with pytest.raises(ValueError, match="classes has length 5"):
        cut(codes, bounds, CLASSES[:5])
    with pytest.raises(TypeError, match="codes has dtype int64"):
        cut(codes.astype(np.int64), bounds, CLASSES)
    with pytest.raises(ValueError, match=r"codes\[0\] is 4294967295, allowed is 0 to 1114111"):
        cut(np.array([2**32 - 1, 0], np.uint32), bounds, CLASSES)


@given(st.lists(st.lists(hostile, max_size=4), max_size=5))
def test_words_keep_their_numbers(batches: list[list[str]]) -> None:
    words, known = Words(), {}
    for texts in batches:
        codes, found = segments_of(texts)
        numbers = words.number(codes, found.starts, found.ends, found.kinds)
        whole = "".join(texts)
        segments = [whole[s:e] for s, e in zip(found.starts.tolist(), found.ends.tolist(), strict=True)]
        assert numbers.tolist() == oracle.number(segments, known)
    assert words.texts(0) == list(known)
    assert [words.text(i) for i in range(words.size)] == list(known)
    assert [chr(code) for code in words.first_letters(np.arange(words.size))] == [word[0] for word in known]
    assert words.letters == sum(map(len, known))


def test_words_by_the_thousand_grow_the_tables() -> None:
    words = Words()
    texts = [format(i, "b").replace("0", "a").replace("1", "b") for i in range(1, 6_000)]
    for part in (texts[:10], texts[:3_000], texts):
        codes, found = segments_of(part)
        assert words.number(codes, found.starts, found.ends, found.kinds).tolist() == list(range(len(part)))
    assert words.texts(0) == texts


def test_kinds_above_the_most_have_no_number() -> None:
    codes, found = segments_of(["a猫京b"])
    numbers = Words().number(codes, found.starts, found.ends, found.kinds, most_kind=cutting.WORD)
    assert numbers.tolist() == [0, -1, -1, 1]


def test_segments_outside_the_codes() -> None:
    codes, found = segments_of(["ab"])
    for starts, ends in (([0], [3]), ([1], [0]), ([-1], [1])):
        with pytest.raises(ValueError, match="segment 0 is"):
            Words().number(codes, np.array(starts), np.array(ends), np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="ends has length 0, allowed is 1"):
        Words().number(codes, found.starts, found.ends[:0], found.kinds)


@given(st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 9), max_size=30), max_size=5))
def test_pairs_keep_their_numbers(batches: list[list[int]]) -> None:
    pairs, known = Pairs(), {}
    for keys in batches:
        assert pairs.number(np.array(keys, np.uint64)).tolist() == oracle.number(keys, known)
    assert pairs.keys(0).tolist() == list(known)
    assert pairs.size == len(known)


def test_pairs_by_the_thousand() -> None:
    pairs = Pairs()
    keys = np.arange(5_000, dtype=np.uint64) << np.uint64(32)
    for part in (keys[:10], keys):
        assert np.array_equal(pairs.number(part), np.arange(len(part)))


@given(
    st.lists(hostile, max_size=5),
    st.sets(st.text(alphabet=RUNS, min_size=1, max_size=4), max_size=12),
    st.integers(0, 3),
)
def test_the_longest_match_agrees_with_the_oracle(texts: list[str], keys: set[str], most: int) -> None:
    ordered = sorted(keys)
    codes, found = segments_of(texts)
    words = Words()
    numbers = words.number(codes, found.starts, found.ends, found.kinds, most_kind=cutting.WORD)
    rows = {word: list(range(i % (most + 1))) for i, word in enumerate(words.texts(0))}
    ends = np.concatenate([[0], np.cumsum([len(of) for of in rows.values()])]).astype(np.int64)
    flat = np.array([row for of in rows.values() for row in of], np.uint32)
    indptr, got = match_rows(codes, found, numbers, ends, flat, build_trie(ordered, range(100, 100 + len(keys))))
    expected = [
        oracle.match(oracle.cut(text, LETTERS, RUNS, ALONE), rows, {key: 100 + i for i, key in enumerate(ordered)})
        for text in texts
    ]
    spans = zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)
    assert [got[start:end].tolist() for start, end in spans] == expected


def test_numbers_that_belong_to_other_words() -> None:
    codes, found = segments_of(["a b"])
    with pytest.raises(ValueError, match="numbers must be 0 to 0"):
        match_rows(
            codes, found, np.array([0, 1], np.int32), np.zeros(2, np.int64), np.empty(0, np.uint32), build_trie([], [])
        )
