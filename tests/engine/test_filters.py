"""Filters: what SQL answers is what Python answers, and nothing of a filter becomes SQL."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi.filters import compile_where
from jiyi.memory import KINDS, Memory
from jiyi.timestamps import to_datetime

START = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ["", "a", "b", "ab", "B", "é", "猫", "Robert'); DROP TABLE memories;--", '"', "%", "\\", "0", "true"]
NUMBERS: list[int | float] = [0, 1, -1, 2, 1.0, 1.5, -2.5, 2**53 + 1, 2**62, -(2**63) + 1, 2**63 - 1, 1e300, 9.3e18]
KEYS = ["n", "s", "b", "o", "o.n", "o.o.s", 'q"', "$", "d$.x", "'", "missing", "o.missing", "n.x", "l"]


# ------------------------------------------------------------------------------------------ the oracle

_ABSENT = object()


def _value(memory: Memory, field: str) -> Any:
    if field.startswith("metadata."):
        value: Any = memory.metadata
        for key in field.split(".")[1:]:
            value = value.get(key, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        return None if value is _ABSENT else value
    return getattr(memory, field) or None if field == "sources" else getattr(memory, field)


def _sort(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _equal(field: str, value: Any, wanted: Any) -> bool:
    if wanted is None:
        return value is None
    if field == "sources":
        return wanted in (value or ())
    if field in ("timestamp", "expires_at"):
        return value is not None and value == to_datetime(wanted)
    return _sort(value) == _sort(wanted) and bool(value == wanted)


def _compare(field: str, value: Any, operator: str, wanted: Any) -> bool:
    if field in ("timestamp", "expires_at"):
        wanted = to_datetime(wanted)
    if _sort(value) != _sort(wanted) or value is None or isinstance(value, bool):
        return False
    return bool({"gt": value > wanted, "gte": value >= wanted, "lt": value < wanted, "lte": value <= wanted}[operator])


def _field_holds(memory: Memory, field: str, test: Any) -> bool:
    value = _value(memory, field)
    if not isinstance(test, Mapping):
        return _equal(field, value, test)
    results = []
    for operator, operand in test.items():
        if operator == "in":
            results.append(any(_equal(field, value, one) for one in operand))
        elif operator == "exists":
            results.append((value is not None) == operand)
        elif operator == "not":
            results.append(not _field_holds(memory, field, operand))
        else:
            results.append(_compare(field, value, operator, operand))
    return all(results)


def holds(memory: Memory, where: Mapping[str, Any]) -> bool:
    """Whether a filter holds for a memory, by the documentation."""
    results = []
    for name, value in where.items():
        if name == "and":
            results.append(all(holds(memory, part) for part in value))
        elif name == "or":
            results.append(any(holds(memory, part) for part in value))
        elif name == "not":
            results.append(not holds(memory, value))
        else:
            results.append(_field_holds(memory, name, value))
    return all(results)


# --------------------------------------------------------------------------- random stores and filters


def _json(random_: random.Random, depth: int = 0) -> Any:
    kind = random_.randrange(7 if depth < 3 else 4)
    if kind == 0:
        return random_.choice(WORDS)
    if kind == 1:
        return random_.choice(NUMBERS)
    if kind == 2:
        return random_.choice([True, False])
    if kind == 3:
        return None
    if kind == 4:
        return [_json(random_, depth + 1) for _ in range(random_.randrange(3))]
    return {key: _json(random_, depth + 1) for key in random_.sample(["n", "s", "o", 'q"', "x", "$", "'"], 3)}


def _memory(random_: random.Random, i: int) -> Memory:
    maybe = lambda values: random_.choice([None, *values])  # noqa: E731
    return Memory(
        id=f"id{i}" if i % 3 else f"id'{i}\"",
        text=random_.choice(WORDS),
        namespace=random_.choice(["ana", "bo", "o'\"x"]),
        kind=random_.choice(KINDS),
        timestamp=START + timedelta(hours=random_.randrange(6), microseconds=random_.randrange(2)),
        session=maybe(WORDS[1:]),
        speaker=maybe(["Ana", "李雷"]),
        metadata={
            key: _json(random_)
            for key in random_.sample(["n", "s", "b", "o", 'q"', "$", "d$", "'", "l"], random_.randrange(7))
        },
        expires_at=maybe([START + timedelta(hours=h) for h in range(4)]),
        sources=random_.sample(["x", "y", "z'"], random_.randrange(3)),
    )


def _scalar(random_: random.Random) -> Any:
    return random_.choice([random_.choice(WORDS), random_.choice(NUMBERS), True, False, None])


def _test(random_: random.Random, field: str, depth: int) -> Any:
    def value() -> Any:
        if field in ("timestamp", "expires_at"):
            moment = START + timedelta(hours=random_.randrange(6), microseconds=random_.randrange(2))
            return random_.choice([moment, moment.isoformat(), moment.replace(tzinfo=None)])
        if field == "kind":
            return random_.choice(KINDS)
        if field == "sources":
            return random_.choice(["x", "y", "z'", "w"])
        if field == "speaker":
            return random_.choice(["Ana", "李雷", "ana"])
        if field == "namespace":
            return random_.choice(["ana", "bo", "o'\"x"])
        if field == "id":
            return random_.choice(["id1", "id'0\"", "id'3\"", "id40"])
        if field.startswith("metadata."):
            return _scalar(random_)
        return random_.choice(WORDS)

    def ordered() -> Any:
        while isinstance(found := value(), bool) or found is None:
            pass
        return found

    nullable = field in ("session", "speaker", "expires_at", "sources") or field.startswith("metadata.")
    choices = ["equal", "in", "exists", "not"] + (
        [] if field in ("kind", "sources") else ["gt", "gte", "lt", "lte", "range"]
    )
    choice = random_.choice(choices)
    if choice == "equal":
        return None if nullable and random_.random() < 0.2 else value()
    if choice == "in":
        return {
            "in": [value() for _ in range(random_.randrange(4))]
            + ([None] if nullable and random_.random() < 0.2 else [])
        }
    if choice == "exists":
        return {"exists": random_.choice([True, False])}
    if choice == "not":
        return {"not": _test(random_, field, depth + 1) if depth < 2 else value()}
    if choice == "range":
        return {"gte": ordered(), "lt": ordered()}
    return {choice: ordered()}


def _where(random_: random.Random, depth: int = 0) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(random_.choice([0, 1, 1, 1, 2, 3])):
        kind = random_.random()
        if kind < 0.15 and depth < 3:
            made["and"] = [_where(random_, depth + 1) for _ in range(random_.randrange(4))]
        elif kind < 0.3 and depth < 3:
            made["or"] = [_where(random_, depth + 1) for _ in range(random_.randrange(4))]
        elif kind < 0.4 and depth < 3:
            made["not"] = _where(random_, depth + 1)
        else:
            plain = ["id", "namespace", "kind", "timestamp", "session", "speaker", "text", "expires_at", "sources"]
            field = random_.choice(plain) if random_.random() < 0.5 else "metadata." + random_.choice(KEYS)
            made[field] = _test(random_, field, depth)
    return made


@pytest.fixture(scope="module")
def store() -> Iterator[jiyi.Engine]:
    random_ = random.Random(11)
    with jiyi.open(embedder=None) as engine:
        engine.add_many([_memory(random_, i) for i in range(80)])
        yield engine


@pytest.mark.parametrize("seed", range(400))
def test_sql_answers_like_python(store: jiyi.Engine, seed: int) -> None:
    where = _where(random.Random(seed))
    everything = store.list(namespace=None)
    wanted = [memory.id for memory in everything if holds(memory, where)]
    assert [memory.id for memory in store.list(namespace=None, where=where)] == wanted, where
    assert store.count(namespace=None, where=where) == len(wanted)


def test_the_random_filters_are_not_all_trivial(store: jiyi.Engine) -> None:
    sizes = [store.count(namespace=None, where=_where(random.Random(seed))) for seed in range(400)]
    assert sum(0 < size < 80 for size in sizes) > 100


@pytest.mark.parametrize("seed", range(40))
def test_search_returns_what_the_filter_leaves(store: jiyi.Engine, seed: int) -> None:
    where = _where(random.Random(seed + 1000))
    now = START - timedelta(days=1)
    for namespace in ("ana", "o'\"x"):
        wanted = {m.id for m in store.list(namespace=namespace) if holds(m, where) and m.text == "ab"}
        hits = store.search("ab", namespace=namespace, k=100, where=where, now=now, neighbor_share=0)
        assert set(hits.ids) == wanted


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
