"""Numbers, identifiers and spellings: what stays whole, what is found by part, and what means the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jiyi
from jiyi.compounds import compounds, joined
from jiyi.text import fold


def found(text: str) -> tuple[set[str], set[str], set[str]]:
    result = compounds(text, fold(text))
    return set(result.numbers), set(result.wholes), set(result.words)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Python 3.11", {"3.11"}),
        ("v2.1 and 10.0.0.1", {"v2.1", "10.0.0.1"}),
        ("at 9:30pm, 12:30:45.", {"9:30", "12:30:45"}),
        ("2023-05-08 or 2023/05/08", {"2023-05-08"}),
        ("1,000,000 dollars", {"1000000"}),
        ("3.14.", {"3.14"}),
        ("版本3.11", set()),  # glued to a word of another script: by its parts
        ("5,5 and 12", set()),
    ],
)
def test_numbers_stay_whole(text: str, numbers: set[str]) -> None:
    assert found(text)[0] == numbers


@pytest.mark.parametrize(
    ("text", "wholes"),
    [
        ("set cache_key to None", {"cache_key"}),
        ("__init__", {"__init__"}),
        ("mail ana.li@example.com,", {"ana.li@example.com", "ana.li", "example.com"}),
        ("https://example.com/a?b=c", {"https://example.com/a?b=c", "example.com"}),
        ("in src/utils/io.py.", {"src/utils/io.py", "io.py"}),
        ("C++, C# or F#", {"c++", "c#", "f#"}),
        ("a well-known thing", {"well-known"}),
        ("v2.1-beta", {"v2.1-beta"}),
        ("Hello, world. How/why?", {"how/why"}),
        ("nothing here", set()),
    ],
)
def test_wholes(text: str, wholes: set[str]) -> None:
    assert found(text)[1] == wholes


@pytest.mark.parametrize(
    ("text", "humps"),
    [
        ("call getUser", {"get", "user"}),
        ("Node.js, GPT-4o or 138-0013-8000", {"nodejs", "gpt4o", "13800138000"}),
        ("XMLHttpRequest", {"xml", "http", "request"}),
        ("UserService", {"user", "service"}),
        ("TypeScript, JavaScript, GitHub, iPhone", set()),  # names, not identifiers
        ("HTTP and USA", set()),
    ],
)
def test_words_of_identifiers(text: str, humps: set[str]) -> None:
    assert found(text)[2] == humps


def test_words_that_are_written_together_or_apart() -> None:
    assert joined(["use", "type", "script", "for", "the", "back", "end"]) == ["typescript", "backend"]
    assert joined(["in", "to", "the"]) == []


@given(st.text("aB1_./@:-+#, 中", max_size=60))
def test_any_text(text: str) -> None:
    result = compounds(text, fold(text))
    assert all((*result.wholes, *result.numbers))
    assert all(len(word) > 1 for word in result.words)


@pytest.mark.parametrize(
    ("stored", "query"),
    [
        ("I rewrite this in TypeScript", "type script"),
        ("I rewrite this in Type Script", "TypeScript"),
        ("I rewrite this in Type Script", "typescript"),
        ("the back-end is slow", "backend"),
        ("后端API很慢", "后端 API"),
        ("后端 API 很慢", "后端API"),
        ("ＡＰＩ　很慢", "api"),
        ("我們週末去爬山，喜歡徒步", "周末徒步"),
        ("我们周末喜欢徒步", "週末 喜歡"),
        ("Python 3.11 is out", "which python 3.11"),
        ("meet at 9:30", "9:30"),
        ("rename cache_key everywhere", "cache_key"),
        ("rename cache_key everywhere", "the cache key"),
        ("getUser fails", "get user"),
        ("we run Node.js", "nodejs"),
        ("call 13800138000", "138-0013-8000"),
        ("getUser fails", "getuser"),
        ("see https://example.com/a", "example.com"),
        ("write to ana@example.com", "ana@example.com"),
        ("fix src/utils/io.py", "io.py"),
        ("she hiked and bought shoes", "hiking shoe"),
        ("the dentist on 2023-05-08", "8 May 2023"),
        ("牙医约在5月8日", "May 8"),
    ],
)
def test_other_writing_finds_it(engine: jiyi.Engine, stored: str, query: str) -> None:
    engine.add(stored, id="it")
    engine.add_many([f"nothing of the kind {i} 别的事情" for i in range(5)])
    assert engine.search(query, k=1).ids == ["it"]
    assert engine.search(query, k=1)[0].factors["signals"]["keyword"]["raw"] > 0


def test_whole_numbers_are_not_found_by_their_parts(engine: jiyi.Engine) -> None:
    engine.add("Python 3.11 is out", id="it")
    engine.add("11 cats and 3 dogs", id="animals")
    assert engine.search("3.11", k=2)[0].memory.id == "it"
    assert engine.search("11", preset="keyword", k=1).ids == ["animals"]
    hits = engine.search("3.11", preset="keyword", k=2)
    assert [hit.memory.id for hit in hits if hit.factors["signals"]["keyword"]["raw"]] == ["it"]


def test_a_whole_identifier_stands_above_its_words(engine: jiyi.Engine) -> None:
    engine.add("the key of the cache, a cache for every key", id="words")
    engine.add("cache_key is None", id="whole")
    assert engine.search("where is cache_key set", preset="keyword", k=1).ids == ["whole"]
