"""Filters over columns: a search returns what SQL and Python say, whatever is written meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi import filter_columns, value_columns
from jiyi.filters import holds as parsed_holds
from jiyi.filters import parse_where
from tests.engine.embedders import HashEmbedder
from tests.engine.filter_oracle import START, holds, random_memory, random_where

BEFORE = START - timedelta(days=1)
SMALL_INDEXES = jiyi.IndexConfig(dense_rows=20, keyword_rows=20)


def passing(engine: jiyi.Engine, namespace: str, where: dict[str, Any]) -> list[str] | None:
    """Ids of the live rows that the columns let pass, in the order stored."""
    filtered = engine._store.filtered(namespace, parse_where(where))
    if filtered is None:
        return None
    _, view, mask = filtered
    by_label = dict(zip(view.labels.tolist(), mask.tolist(), strict=True))
    labels = [key & (2**40 - 1) for key in engine._store.ledger.select_keys("n.name = ?", (namespace,))]
    assert labels == view.labels[view.live == 1].tolist()
    memories = engine.list(namespace=namespace)
    return [memory.id for label, memory in zip(labels, memories, strict=True) if by_label[label]]


def recalled(engine: jiyi.Engine, namespace: str, where: dict[str, Any] | None, plan: str) -> set[str]:
    plans = {"dense_plan": plan, "keyword_plan": plan}
    return set(engine.search("note 记忆", namespace=namespace, k=200, where=where, now=BEFORE, **plans).ids)


def change(engine: jiyi.Engine, random_: random.Random) -> None:
    """Add, replace, delete and use memories."""
    engine.add_many([random_memory(random_, random_.randrange(120)) for _ in range(random_.randrange(1, 6))])
    if random_.random() < 0.5:
        engine.delete(f"id{random_.randrange(80)}", namespace="ana")
    if random_.random() < 0.5:
        engine.reinforce([f"id{random_.randrange(80)}" for _ in range(3)], namespace="ana", now=START)


def name(value: Any) -> str:
    """A value as the name of a test, the same in every process."""
    return str(sorted(value) if isinstance(value, set) else value)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("most_bytes", [64 << 20, 3_000], ids=["roomy", "tight"])
def test_columns_answer_like_sql_and_python(seed: int, most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_columns, "MOST_BYTES", most_bytes)
    random_ = random.Random(seed)
    with jiyi.open(embedder=HashEmbedder(8), index_config=SMALL_INDEXES) as engine:
        engine.add_many([random_memory(random_, i) for i in range(120)])
        engine.flush()
        everything: dict[tuple[str, str], set[str]] = {}
        for number in range(50):
            where = random_where(random_)
            if number % 10 == 9:
                change(engine, random_)
                everything.clear()
            namespace, plan = random_.choice(["ana", "o'\"x"]), random_.choice(["exact", "indexed"])
            wanted = [memory for memory in engine.list(namespace=namespace) if holds(memory, where)]
            assert all(parsed_holds(parse_where(where).test, memory) for memory in wanted)
            ids = [memory.id for memory in wanted]
            assert [memory.id for memory in engine.list(namespace=namespace, where=where)] == ids, where
            assert passing(engine, namespace, where) == ids, where
            if (namespace, plan) not in everything:
                everything[namespace, plan] = recalled(engine, namespace, None, plan)
            assert recalled(engine, namespace, where, plan) == everything[namespace, plan] & set(ids), where


@contextmanager
def no_reading_but_of_hits(engine: jiyi.Engine) -> Iterator[None]:
    """Forbid what goes over a whole namespace."""
    ledger = engine._store.ledger
    watched: list[str] = []
    with ledger.reading() as connection:
        connection.set_trace_callback(watched.append)
    yield
    with ledger.reading() as connection:
        connection.set_trace_callback(None)
    assert watched, "the search read its hits"
    assert not [sql for sql in watched if "m.key BETWEEN" in sql]


@pytest.mark.parametrize(
    "where",
    [
        lambda i: {"session": f"s{i}"},
        lambda i: {"kind": "episodic", "speaker": {"in": ["Ana", f"x{i}"]}},
        lambda i: {"timestamp": {"gte": START + timedelta(hours=i), "lt": START + timedelta(hours=i + 9)}},
        lambda i: {"metadata.project": f"p{i}"},
        lambda i: {"metadata.importance": {"gte": i / 10}},
        lambda i: {"metadata.tags": {"in": ["红", f"t{i}"]}},
        lambda i: {"id": f"m{i}"},
        lambda i: {"text": f"note {i}"},
        lambda i: {"uses": {"gte": i}},
        lambda i: {"not": {"or": [{"session": f"s{i}"}, {"expires_at": {"exists": True}}]}},
    ],
)
def test_a_filter_whose_values_move_reads_the_ledger_once(engine: jiyi.Engine, where: Any) -> None:
    def memory(i: int) -> dict[str, Any]:
        metadata = {"project": f"p{i}", "importance": i / 10, "tags": ["红", f"t{i}"]}
        moment = START + timedelta(hours=i)
        return {"id": f"m{i}", "text": f"note {i}", "session": f"s{i}", "metadata": metadata, "timestamp": moment}

    engine.add_many([memory(i) for i in range(20)])
    engine.search("note", where=where(0))
    with no_reading_but_of_hits(engine):
        for i in range(1, 5):
            engine.add(memory(19 + i))
            stored = [jiyi.Memory.from_dict(memory(j)) for j in range(20 + i)]
            wanted = {memory.id for memory in stored if holds(memory, where(i + 17))}
            assert set(engine.search("note", k=50, where=where(i + 17)).ids) == wanted
            engine.search("note", k=50)  # so that something is read even where nothing passes


def test_columns_that_are_too_large_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_columns, "MOST_BYTES", 20_000)
    with jiyi.open(embedder=None) as engine:
        engine.add_many([{"text": f"note {i}", "metadata": {"n": i, "m": i % 3}} for i in range(1_000)])
        for field in ("n", "m", "n", "x"):
            where: dict[str, Any] = {f"metadata.{field}": 2}
            wanted = {memory.id for memory in engine.list(where=where)}
            assert set(engine.search("note", k=2_000, where=where).ids) == wanted
        partition = engine._store.partition("default")
        assert partition is not None
        assert 0 < partition.filters.bytes() <= 20_000
        for i in range(40):  # tests without a column: each is kept, and not all of them
            where = {"id": {"gt": f"{i}"}}
            assert len(engine.search("note", k=2_000, where=where)) == engine.count(where=where)
        assert partition.filters.bytes() <= 20_000
        assert partition.bytes() > partition.filters.bytes() > 0


# ------------------------------------------------------------------------------------- under writers

REPLACED = [
    {"session": "s"},
    {"metadata.colour": {"in": ["red", "红"]}},
    {"id": {"gte": "m"}},
    {"id": "m"},
    {"timestamp": {"lt": "2300-01-01"}},
]


@pytest.mark.parametrize("where", REPLACED, ids=str)
@pytest.mark.parametrize("fresh", [False, True], ids=["kept", "built"])
def test_a_memory_that_is_replaced_is_always_found(where: dict[str, Any], fresh: bool, folder: Path) -> None:
    def memory(i: int) -> dict[str, Any]:
        return {"text": f"cat {i}", "id": "m", "session": "s", "metadata": {"colour": "red"}, "timestamp": START}

    with jiyi.open(folder, embedder=None) as engine:
        engine.add(memory(0))
        stop = threading.Event()

        def write() -> None:
            i = 0
            while not stop.is_set():
                i += 1
                engine.add(memory(i))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(60):
                if fresh:
                    engine._store.partition("default").filters._entries = {}  # type: ignore[union-attr]
                assert engine.search("cat", where=where).ids == ["m"]
        finally:
            stop.set()
            writer.join()


@pytest.mark.parametrize("where", REPLACED, ids=str)
def test_a_reader_follows_a_writer(where: dict[str, Any], folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as writer:
        writer.add({"text": "cat 0", "id": "m", "session": "s", "metadata": {"colour": "红"}})
        with jiyi.open(folder, embedder=None, read_only=True) as reader:
            for i in range(1, 6):
                assert reader.search("cat", where=where).ids == ["m"]
                writer.add({"text": f"cat {i}", "id": "m", "session": "s", "metadata": {"colour": "红"}})
                writer.add({"text": f"cat {i}", "id": "a", "session": "t", "timestamp": "2300-01-01"})
                found = reader.search("cat", where=where)
                assert [hit.memory.text for hit in found] == [f"cat {i}"]
            writer.compact()
            assert reader.search("cat", where=where).ids == ["m"]
            writer.delete("m")
            assert reader.search("cat", where=where).ids == []


def test_what_is_used_in_place_is_seen_at_once(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": "cat one", "id": "1"}, {"text": "cat two", "id": "2"}])
    far = datetime(2300, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    for where in ({"uses": 0}, {"last_used": None}, {"last_used": {"exists": False}}):
        assert set(engine.search("cat", where=where).ids) == {"1", "2"}
    engine.reinforce("1", now=START)
    engine.add({"text": "cat two", "id": "2", "uses": 1, "last_used": far})
    assert engine.search("cat", where={"last_used": START}).ids == ["1"]
    assert engine.search("cat", where={"last_used": {"gte": far}}).ids == ["2"]
    assert engine.search("cat", where={"last_used": {"gt": far}}).ids == []
    assert set(engine.search("cat", where={"uses": {"gte": 1}}).ids) == {"1", "2"}
    engine.reinforce("1", now=START)
    assert engine.search("cat", where={"uses": {"gt": 1}}).ids == ["1"]
    assert engine.search("cat", where={"last_used": {"lt": far}}).ids == ["1"]


@pytest.mark.parametrize(("column", "field"), [("metadata", "metadata.k"), ("sources", "sources"), ("steps", "steps")])
def test_what_is_damaged_is_a_store_error(engine: jiyi.Engine, column: str, field: str) -> None:
    engine.add(jiyi.Memory.procedure("Deploy", ["run"], text="note", metadata={"k": 1}, sources=["x"]))
    with engine._store.ledger._writing() as connection:
        connection.execute(f"UPDATE memories SET {column} = '{{\"k'")
    with pytest.raises(jiyi.StoreError, match=r"verify\(\)|failed"):
        engine.search("note", where={field: "x"})


# --------------------------------------------------------------------------------------- what it means


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({"metadata.tags": "red"}, {"one", "scalar"}),
        ({"metadata.tags": {"in": ["蓝", "red"]}}, {"one", "two", "scalar"}),
        ({"metadata.tags": {"not": "red"}}, {"two", "empty", "object", "none"}),
        ({"metadata.tags": {"exists": True}}, {"one", "two", "scalar", "empty", "object"}),
        ({"metadata.tags": None}, {"none"}),
        ({"metadata.tags": {"gte": 3, "lt": 5}}, {"two"}),
        ({"metadata.tags": {"gt": 4, "lt": 9}}, set()),
        ({"metadata.tags": True}, {"two"}),
        ({"metadata.tags": 1}, {"one"}),
        ({"metadata.tags.red": 1}, {"object"}),
        ({"metadata.tags": "deep"}, set()),
    ],
    ids=name,
)
def test_a_list_passes_by_one_of_its_elements(engine: jiyi.Engine, where: Any, wanted: set[str]) -> None:
    tags = {
        "one": ["red", 1, ["deep"]],
        "two": ["蓝", True, 4, 9],
        "scalar": "red",
        "empty": [],
        "object": {"red": 1},
        "none": None,
    }
    engine.add_many([{"id": name, "text": "note", "metadata": {"tags": value}} for name, value in tags.items()])
    assert {memory.id for memory in engine.list(where=where)} == wanted
    assert set(engine.search("note", k=9, where=where).ids) == wanted


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({"subject": "小明"}, {"fact"}),
        ({"subject": "小明", "predicate": {"in": ["住在", "likes"]}, "object": {"exists": True}}, {"fact"}),
        ({"subject": {"exists": False}}, {"procedure", "plain"}),
        ({"multivalued": True}, {"fact"}),
        ({"multivalued": False}, {"procedure", "plain"}),
        ({"title": "Deploy"}, {"procedure"}),
        ({"steps": "run the tests"}, {"procedure"}),
        ({"steps": {"in": ["推标签"]}}, {"procedure"}),
        ({"use_when": {"gte": "a", "lt": "b"}}, {"procedure"}),
        ({"uses": {"gte": 2}, "successes": 1}, {"procedure"}),
        ({"failures": 0}, {"fact", "plain", "procedure"}),
        ({"uses": None}, set()),
        ({"namespace": "default"}, {"fact", "plain", "procedure"}),
        ({"namespace": {"in": ["a", "b"]}}, set()),
    ],
    ids=name,
)
def test_the_fields_of_facts_and_procedures(engine: jiyi.Engine, where: Any, wanted: set[str]) -> None:
    engine.add(jiyi.Memory.fact("小明", "likes", "茶", id="fact", multivalued=True, text="note"))
    steps = ["run the tests", "推标签"]
    engine.add(jiyi.Memory.procedure("Deploy", steps, use_when="a release", id="procedure", text="note"))
    engine.add("note", id="plain")
    engine.outcome("procedure", success=True)
    engine.reinforce("procedure")
    assert {memory.id for memory in engine.list(where=where)} == wanted
    assert set(engine.search("note", where=where).ids) == wanted


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ({"multivalued": 1}, TypeError),
        ({"multivalued": {"gt": True}}, (TypeError, ValueError)),
        ({"uses": "many"}, TypeError),
        ({"uses": True}, TypeError),
        ({"uses": float("nan")}, ValueError),
        ({"steps": {"gt": "a"}}, ValueError),
        ({"last_used": "soon"}, ValueError),
        ({"usage": 1}, ValueError),
    ],
    ids=name,
)
def test_what_the_new_fields_refuse(engine: jiyi.Engine, where: Any, error: Any) -> None:
    for call in (engine.count, lambda where: engine.search("x", where=where)):
        with pytest.raises(error):
            call(where=where)


KEYS = ['a"b', "a\\b", "a\nb", "$", "$[0]", "#", "[0]", "a'b", "%", "键", "\x7f", " ", "*", "0"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("under", ["", "o."])
def test_any_key_is_a_key(engine: jiyi.Engine, key: str, under: str) -> None:
    values: list[Any] = ["x", 1, 1.5, True, ["x", 2], None]
    for i, value in enumerate(values):
        engine.add("note", id=str(i), metadata={"o": {key: value}, "l": [value]} if under else {key: value})
    for test, wanted in (("x", {"0", "4"}), ({"gte": 1}, {"1", "2", "4"}), (True, {"3"}), ({"exists": False}, {"5"})):
        where = {f"metadata.{under}{key}": test}
        assert {memory.id for memory in engine.list(where=where)} == wanted
        assert set(engine.search("note", k=9, where=where).ids) == wanted


@pytest.mark.parametrize("field", ["id", "text", "session", "sources", "metadata.k", "metadata.n", "timestamp"])
def test_ten_thousand_values_in_a_search(engine: jiyi.Engine, field: str) -> None:
    engine.add("note v42", id="v42", session="v42", metadata={"k": "v42", "n": 42}, sources=["v42"], timestamp=42)
    engine.add("note", id="other", timestamp=10**6)
    made = {"text": "note v{}", "metadata.n": None, "timestamp": None}.get(field, "v{}")
    values = [i if made is None else made.format(i) for i in range(10_000)]
    assert engine.search("note", where={field: {"in": values}}).ids == ["v42"]
    assert engine.search("note", where={field: {"not": {"in": values}}}).ids == ["other"]


def test_numbers_are_compared_exactly(engine: jiyi.Engine) -> None:
    numbers = [2**53, 2**53 + 1, 2.0**53, 0.1, 0.1 + 2**-56, 2**63 - 1, -(2**63) + 1, 1e300, 5e-324]
    for i, number in enumerate(numbers):
        engine.add("note", id=str(i), metadata={"n": number})
    for bound in numbers:
        for where in ({"metadata.n": bound}, {"metadata.n": {"gt": bound}}, {"metadata.n": {"in": [bound, "x"]}}):
            ids = {memory.id for memory in engine.list(where=where)}
            assert ids == {memory.id for memory in engine.list() if holds(memory, where)}
            assert set(engine.search("note", k=20, where=where).ids) == ids


def test_texts_with_nul_are_found(engine: jiyi.Engine) -> None:
    engine.add("note a\0b", id="nul")
    engine.add("note a", id="short")
    for _ in range(2):
        assert engine.search("note", where={"text": "note a\0b"}).ids == ["nul"]
        assert engine.search("note", where={"text": "note a"}).ids == ["short"]
        assert engine.search("note", where={"text": {"gt": "note a"}}).ids == ["nul"]
        engine.add("note a\0b", id="nul")


def test_a_column_of_much_more_than_it_was_sorted_with(engine: jiyi.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_columns, "_UNSORTED", 50)
    engine.add_many([{"text": "note", "metadata": {"n": i, "s": f"{i:05}"}} for i in range(10)])
    for size in (30, 300, 60, 20):
        engine.add_many([{"text": "note", "metadata": {"n": i * 7 % 401, "s": f"{i:05}"}} for i in range(size)])
        for where in ({"metadata.n": {"gte": 17, "lt": 120}}, {"metadata.s": {"gt": "00010", "lte": "00200"}}):
            filtered = engine._store.filtered("default", parse_where(where))
            assert filtered is not None
            assert int(np.count_nonzero(filtered[2])) == engine.count(where=where)
