"""Filters: what SQL answers is what Python answers, and nothing of a filter becomes SQL."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi.filters import compile_where
from tests.engine.filter_oracle import START, holds, random_memory, random_where


@pytest.fixture(scope="module")
def store() -> Iterator[jiyi.Engine]:
    random_ = random.Random(11)
    with jiyi.open(embedder=None) as engine:
        engine.add_many([random_memory(random_, i) for i in range(80)])
        yield engine


@pytest.mark.parametrize("seed", range(400))
def test_sql_answers_like_python(store: jiyi.Engine, seed: int) -> None:
    where = random_where(random.Random(seed))
    everything = store.list(namespace=None)
    wanted = [memory.id for memory in everything if holds(memory, where)]
    assert [memory.id for memory in store.list(namespace=None, where=where)] == wanted, where
    assert store.count(namespace=None, where=where) == len(wanted)


def test_the_random_filters_are_not_all_trivial(store: jiyi.Engine) -> None:
    sizes = [store.count(namespace=None, where=random_where(random.Random(seed))) for seed in range(400)]
    assert sum(0 < size < 80 for size in sizes) > 100


@pytest.mark.parametrize("seed", range(40))
def test_search_returns_what_the_filter_leaves(store: jiyi.Engine, seed: int) -> None:
    where = random_where(random.Random(seed + 1000))
    now = START - timedelta(days=1)
    for namespace in ("ana", "o'\"x"):
        settings = {"namespace": namespace, "k": 100, "now": now}
        wanted = {hit.memory.id for hit in store.search("note", **settings) if holds(hit.memory, where)}
        assert set(store.search("note", where=where, **settings).ids) == wanted


# ------------------------------------------------------------------------------------- what is refused

UNKNOWN = [
    "",
    "Kind",
    "metadata",
    "metadata.",
    "m.kind",
    "key",
    "1=1; --",
    "kind' OR '1'='1",
    "score",
    "metadatum.x",
    "\ud800",
]


@pytest.mark.parametrize("field", UNKNOWN, ids=ascii)
def test_unknown_fields_are_refused_with_a_list(field: str) -> None:
    with pytest.raises(ValueError, match=r"unknown field .* id, namespace, kind, timestamp, .*metadata\.<key>"):
        compile_where({field: 1})


@pytest.mark.parametrize("operator", ["$in", "eq", "ne", "like", "IN", "", "or", 5, None, "or 1=1"], ids=repr)
@pytest.mark.parametrize("field", ["kind", "text", "timestamp", "sources", "metadata.x"])
def test_unknown_operators_are_refused_with_a_list(field: str, operator: Any) -> None:
    with pytest.raises(ValueError, match="in, gt, gte, lt, lte, exists, not"):
        compile_where({field: {operator: "x"}})


WRONG: list[tuple[Any, type[Exception]]] = [
    ("kind = 1", TypeError),
    ([("kind", "x")], TypeError),
    (5, TypeError),
    ({5: "x"}, TypeError),
    ({None: 1}, TypeError),
    ({"kind": "x"}, ValueError),
    ({"kind": 0}, ValueError),
    ({"kind": {"gt": "episodic"}}, ValueError),
    ({"text": 5}, TypeError),
    ({"id": b"x"}, TypeError),
    ({"id": ["a"]}, TypeError),
    ({"session": True}, TypeError),
    ({"timestamp": "soon"}, ValueError),
    ({"timestamp": 1e12}, ValueError),
    ({"timestamp": float("nan")}, ValueError),
    ({"timestamp": []}, TypeError),
    ({"sources": {"gt": "a"}}, ValueError),
    ({"sources": 5}, TypeError),
    ({"id": {}}, ValueError),
    ({"metadata.x": {}}, ValueError),
    ({"id": {"in": "abc"}}, TypeError),
    ({"id": {"in": 5}}, TypeError),
    ({"id": {"in": {"a": 1}}}, TypeError),
    ({"id": {"exists": 1}}, TypeError),
    ({"id": {"exists": "yes"}}, TypeError),
    ({"and": {"kind": "x"}}, TypeError),
    ({"or": "kind"}, TypeError),
    ({"and": ["kind"]}, TypeError),
    ({"not": "kind"}, TypeError),
    ({"not": None}, TypeError),
    ({"metadata.x": float("nan")}, ValueError),
    ({"metadata.x": {"lt": float("inf")}}, ValueError),
    ({"metadata.x": {"gt": True}}, TypeError),
    ({"metadata.x": {"gt": None}}, TypeError),
    ({"metadata.x": b"x"}, TypeError),
    ({"metadata.x": [1]}, TypeError),
    ({"metadata.x": {"in": [[1]]}}, TypeError),
    ({"metadata.x..y": 1}, ValueError),
    ({"metadata." + ".".join("a" * 33): 1}, ValueError),
    ({"metadata.x": "\ud800"}, ValueError),
    ({"metadata.\ud800": 1}, ValueError),
    ({"id": {"in": ["\udfff"]}}, ValueError),
    ({"text": {"gt": "\ud800"}}, ValueError),
    ({"metadata.x": np.array([1])}, TypeError),
    ({"id": {"gt": None}}, TypeError),
    ({"timestamp": {"lt": None}}, TypeError),
]


@pytest.mark.parametrize(("where", "error"), WRONG, ids=lambda value: ascii(value)[:60])
def test_what_makes_no_filter(engine: jiyi.Engine, where: Any, error: type[Exception]) -> None:
    engine.add("x")
    for call in (
        engine.count,
        engine.list,
        lambda where: engine.search("x", where=where),
        lambda where: engine.forget(where),
    ):
        with pytest.raises(error):
            call(where=where)
    assert engine.count() == 1


def test_nesting_ends_at_32() -> None:
    where: dict[str, Any] = {"id": "x"}
    for _ in range(31):
        where = {"not": where}
    compile_where(where)
    for _ in range(1000):
        where = {"not": where}
    with pytest.raises(ValueError, match="32 levels"):
        compile_where(where)
    value: Any = "x"
    for _ in range(1000):
        value = {"not": value}
    with pytest.raises(ValueError, match="32 levels"):
        compile_where({"id": value})


# --------------------------------------------------------------------------------------- hostile input


def test_nothing_of_a_filter_becomes_sql(engine: jiyi.Engine) -> None:
    evil = "x') OR 1=1; DROP TABLE memories; --"
    key = "k'\") OR 1=1 --"
    engine.add("one", id=evil, metadata={key: evil})
    engine.add("two")
    assert engine.count(where={"id": evil}) == 1
    assert engine.count(where={f"metadata.{key}": evil}) == 1
    assert engine.count(where={f"metadata.{key}": {"in": [evil]}}) == 1
    assert engine.count(where={"text": evil}) == 0
    for field in (
        "metadata.$",
        "metadata.$[0]",
        "metadata.?",
        "metadata.{j}",
        "metadata.{0}",
        "metadata.%s",
        "metadata.:a",
        "metadata.*",
    ):
        assert engine.count(where={field: {"exists": True}}) == 0
        assert engine.count(where={field: {"exists": False}}) == 2


@pytest.mark.parametrize("field", ["id", "text", "session", "sources", "metadata.k"])
def test_ten_thousand_values(engine: jiyi.Engine, field: str) -> None:
    engine.add("v42", id="v42", session="v42", metadata={"k": "v42"}, sources=["v42"])
    engine.add("other")
    values = [f"v{i}" for i in range(10_000)]
    assert engine.count(where={field: {"in": values}}) == 1
    assert engine.count(where={field: {"not": {"in": values}}}) == 1


@pytest.mark.parametrize("word", ["or", "and"])
def test_long_or(engine: jiyi.Engine, word: str) -> None:
    engine.add("x", id="i7")
    parts = [{"id": {"in": [f"i{i}", "i7"]} if word == "and" else f"i{i}"} for i in range(1_500)]
    assert engine.count(where={word: parts}) == 1


def test_what_is_too_large_for_sqlite_is_a_value_error(engine: jiyi.Engine) -> None:
    engine.add("x", id="i7")
    try:
        found = engine.count(where={"or": [{"metadata.a.b.c": i} for i in range(100_000)] + [{"id": "i7"}]})
    except ValueError:
        found = 1
    assert found == 1


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63) + 1, 2**53 + 1])
def test_the_largest_integers_are_exact(engine: jiyi.Engine, value: int) -> None:
    engine.add("x", metadata={"n": value})
    engine.add("y", metadata={"n": value - 1 if value > 0 else value + 1})
    assert engine.list()[0].metadata == {"n": value}
    assert engine.count(where={"metadata.n": value}) == 1
    assert engine.count(where={"metadata.n": {"in": [value]}}) == 1
    assert engine.count(where={"metadata.n": {"gte": value}}) == (1 if value > 0 else 2)


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, 10**30, 10**400, 10**5000], ids=lambda value: f"{value.bit_length()} bits"
)
def test_integers_beyond_64_bits_are_refused(engine: jiyi.Engine, value: int) -> None:
    with pytest.raises(ValueError, match=r"metadata\.n .*64 bits"):
        engine.add("x", metadata={"n": value})
    for test in (value, {"gt": value}, {"lte": value}, {"in": [1, value]}, {"not": value}):
        with pytest.raises(ValueError, match=r"metadata\.n .*64 bits"):
            engine.count(where={"metadata.n": test})


def test_nul_characters(engine: jiyi.Engine) -> None:
    for field in (
        {"id": "i\0d"},
        {"session": "s\0"},
        {"speaker": "\0"},
        {"metadata": {"k": ["v\0"]}},
        {"metadata": {"k\0": 1}},
    ):
        with pytest.raises(ValueError, match=r"U\+0000"):
            engine.add("x", **field)
    engine.add("a\0b", id="nul", session="s", metadata={"k": "v"})
    engine.add("a", id="short")
    assert engine.get("nul").text == "a\0b"
    assert [memory.id for memory in engine.list(where={"text": "a\0b"})] == ["nul"]
    assert [memory.id for memory in engine.list(where={"text": "a"})] == ["short"]
    assert [memory.id for memory in engine.list(where={"text": {"gt": "a"}})] == ["nul"]
    # What could not be compared rightly is refused, not answered wrongly.
    for where in (
        {"text": {"in": ["a\0b"]}},
        {"text": {"in": ["a\0x"]}},
        {"metadata.k": "v\0"},
        {"metadata.k": {"in": ["v\0"]}},
        {"sources": "x\0"},
    ):
        found = None
        with contextlib.suppress(ValueError):
            found = [memory.id for memory in engine.list(where=where)]
        assert found in (None, ["nul"] if where == {"text": {"in": ["a\0b"]}} else [])


def test_a_filter_cannot_reach_another_namespace(engine: jiyi.Engine) -> None:
    engine.add("mine cat", namespace="ana")
    engine.add("theirs cat", namespace="bo")
    for where in ({"namespace": "bo"}, {"or": [{"namespace": "bo"}]}, {"not": {"namespace": "ana"}}):
        assert engine.count(namespace="ana", where=where) == 0
        assert engine.search("cat", namespace="ana", where=where).ids == []
    assert engine.forget({"or": [{"namespace": "bo"}, {"kind": "episodic"}]}, namespace="ana") == 1
    assert engine.count(namespace="bo") == 1
