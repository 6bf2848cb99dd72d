"""Whatever a call is given, it answers rightly or says clearly what is wrong; it never raises anything else."""

from __future__ import annotations

import datetime as dt
import decimal
import inspect
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi.cli import main
from jiyi.config import SETTINGS
from jiyi.context import ContextConfig
from jiyi.ingest import ingest_files, read_memories
from jiyi.jsonl import BadLineError
from jiyi.models.files import ModelFilesError
from jiyi.quoted import quoted
from jiyi.rerank import RerankerConfig

CLEAR = (ValueError, TypeError, jiyi.JiyiError, ModelFilesError)


def nested(levels: int, kind: type = list) -> Any:
    value: Any = [] if kind is list else {}
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


def circle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class Unspeakable(str):
    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError("no")


VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**5000, -(10**5000), float("inf"), float("nan"), -0.5,
    "", "x", "x" * 600, "\0", "a\0b", "\ud800", "../../etc", "\u202eabc", "e\u0301", "👩‍👩‍👧‍👦", "\u200b", "*", "a*",
    b"bytes", bytearray(b"x"), np.int64(3), np.float32(1.5), np.bool_(True), np.str_("x"), np.float64("nan"),
    np.array([1, 2]), np.array("x"), np.array([[1.0]]), np.datetime64("2020-01-01"), dt.datetime.max, dt.datetime.min,
    dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-14))),
    dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))), dt.date.max, dt.timedelta(1),
    [], {}, (), set(), [None], ["a", 1], {"a": 1}, {1: 2}, {"in": [1]}, {"gte": None}, {"and": []}, {"or": {}},
    nested(3000), nested(900), nested(3000, dict), circle(), Unspeakable("x"), object(), type, len,
    decimal.Decimal("1.5"), 1j, range(3), {"kind": nested(900)}, {"metadata.a": nested(3000)}, {"kind": circle()},
    {"metadata.x": {"in": [nested(900)]}}, {"metadata.x": 10**5000}, {"uses": -(10**5000)}, {"timestamp": 10**5000},
    [["a"]], "1" * 5000, {"metadata." + "a." * 40 + "b": 1}, {"not": {"not": {"not": 1}}},
]  # fmt: skip

GIVEN: dict[str, dict[str, Any]] = {
    "add": {"memory": "t"}, "add_many": {"memories": ["t"]}, "add_messages": {"messages": ["t"], "session": "s"},
    "update": {"id": "x"}, "delete": {"ids": "zz"}, "forget": {"where": {"id": "zz"}}, "reinforce": {"ids": "x"},
    "outcome": {"ids": "zz", "success": True}, "distill": {"extractor": lambda memories: []},
    "unconsolidate": {"ids": "x"}, "consolidate": {}, "get": {"id": "x"}, "neighbors": {"entity": "a"}, "facts": {},
    "search": {"query": "tea"}, "search_many": {"queries": ["tea"]}, "build_context": {"messages": ["tea"]},
    "replay": {"record": {}}, "scoped": {"namespace": "a"}, "count": {}, "list": {}, "namespaces": {}, "retain": {},
    "compact": {"dry_run": True}, "delete_namespace": {"namespace": "zz"}, "erase": {"ids": "zz"},
}  # fmt: skip
BESIDE = {
    "search": [*SETTINGS],
    "search_many": ["k", "where", "namespace", "now"],
    "build_context": [setting.name for setting in fields(ContextConfig)],
    "update": ["text", "kind", "timestamp", "metadata", "sources", "session", "expires_at", "uses", "steps", "title"],
}


def check(call: Callable[[Any], object], value: Any, what: str) -> None:
    try:
        call(value)
    except CLEAR as error:
        said = str(error)
        assert len(said) < 1_300, f"{what}: {said[:300]}"
        assert "Exceeds the limit" not in said, what  # Python's own words on long numbers
    except RecursionError as error:
        raise AssertionError(f"{what} of {type(value).__name__}: {error}") from error


@pytest.fixture
def small(engine: jiyi.Engine) -> jiyi.Engine:
    with jiyi.open(embedder=None, dim=4) as opened:
        opened.add("tea", id="x", vector=[1, 0, 0, 0], metadata={"a": 1})
        yield opened


@pytest.mark.parametrize("call", list(GIVEN))
def test_any_argument_is_answered_or_refused_clearly(small: jiyi.Engine, call: str) -> None:
    bound = getattr(small, call)
    named = [name for name in inspect.signature(bound).parameters if name not in ("overrides", "fields", "settings")]
    for name in [*named, *BESIDE.get(call, [])]:
        for value in VALUES:
            given = dict(GIVEN[call])
            if call == "erase" and name == "where":
                given = {}
            if call in ("forget", "erase") and name == "where" and isinstance(value, dict) and not value:
                continue  # that stands for everything
            check(lambda value, given=given, name=name: bound(**{**given, name: value}), value, f"{call}({name})")
    if call not in ("update", "add", "add_many", "delete", "forget", "erase"):
        assert small.search("tea").ids[:1] == ["x"]


MADE: dict[str, tuple[Callable[..., object], dict[str, Any], list[str]]] = {
    "Memory": (jiyi.Memory, {"text": "x"}, [f.name for f in fields(jiyi.Memory)]),
    "from_dict": (lambda **given: jiyi.Memory.from_dict(given), {"text": "x"}, [f.name for f in fields(jiyi.Memory)]),
    "procedure": (jiyi.Memory.procedure, {"title": "t", "steps": ["a"]}, ["title", "steps", "use_when"]),
    "fact": (
        jiyi.Memory.fact,
        {"subject": "a", "predicate": "b", "object": "c"},
        ["subject", "predicate", "object", "multivalued"],
    ),
    "SearchConfig": (jiyi.SearchConfig, {}, [f.name for f in fields(jiyi.SearchConfig)]),
    "ContextConfig": (ContextConfig, {}, [f.name for f in fields(ContextConfig)]),
    "IndexConfig": (jiyi.IndexConfig, {}, [f.name for f in fields(jiyi.IndexConfig)]),
    "RerankerConfig": (RerankerConfig, {}, [f.name for f in fields(RerankerConfig)]),
    "Retention": (jiyi.Retention, {}, [f.name for f in fields(jiyi.Retention)]),
    "Aging": (jiyi.Aging, {}, [f.name for f in fields(jiyi.Aging)]),
    "QueryRecord": (lambda **given: jiyi.QueryRecord.from_dict(given["record"]), {}, ["record"]),
    "build_query": (lambda **given: jiyi.build_query(given["messages"]), {}, ["messages"]),
    "exact_namespace": (lambda **given: jiyi.exact_namespace(given["name"]), {}, ["name"]),
}


@pytest.mark.parametrize("kind", list(MADE))
def test_any_field_is_taken_or_refused_clearly(kind: str) -> None:
    make, given, names = MADE[kind]
    for name in names:
        for value in VALUES:
            check(lambda value, name=name: make(**{**given, name: value}), value, f"{kind}({name})")


def test_any_field_of_a_query_record_is_taken_or_refused_clearly(small: jiyi.Engine) -> None:
    record = small.search("tea").query_record.to_dict()
    for name in record:
        for value in VALUES:
            check(lambda value, name=name: small.replay({**record, name: value}), value, f"QueryRecord({name})")
    for name, had in record["config"].items():
        for value in VALUES:
            changed = {**record, "config": {**record["config"], name: value}}
            check(lambda _, changed=changed: small.replay(changed), value, f"QueryRecord(config.{name}, was {had})")


def test_any_argument_of_open_is_taken_or_refused_clearly() -> None:
    for name in ("embedder", "dim", "config", "read_only", "durability", "memory_budget_mb", "index_config", "preset",
                 "device", "retention"):  # fmt: skip
        for value in VALUES:
            if name == "embedder" and value is None:
                continue
            check(lambda value, name=name: jiyi.open(**{"embedder": None, name: value}).close(), value, f"open({name})")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 500, "'" + "x" * 79),
        (10**5000, "a whole number of 16610 bits"),
        (nested(3000), "something of the type list"),
        (circle(), "[[...]]"),
        (Unspeakable("tea"), "'tea'"),
        ([10**5000], "something of the type list"),
        (1.5, "1.5"),
    ],
    ids=range(7),
)
def test_messages_show_a_value_in_few_characters_whatever_it_is(value: object, shown: str) -> None:
    assert quoted(value) == shown


# ----------------------------------------------------------------------------------------------------------- files

LINES = {
    "no object": b"[]",
    "a number": b"17",
    "no JSON": b"{",
    "no UTF-8": b'{"text": "\xff"}',
    "NaN": b'{"text": "x", "metadata": {"a": NaN}}',
    "infinite": b'{"text": "x", "metadata": {"a": 1e999}}',
    "a surrogate": b'{"text": "\\ud800"}',
    "NUL in the id": b'{"text": "x", "id": "a\\u0000b"}',
    "deep": b'{"text": "x", "metadata": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "deep enough to be read": b'{"text": "x", "metadata": ' + b'{"a":' * 300 + b"1" + b"}" * 301,
    "deep in a kind": b'{"text": "x", "kind": ' + b"[" * 900 + b"]" * 900 + b"}",
    "a long number": b'{"text": "x", "metadata": {"a": ' + b"9" * 5000 + b"}}",
    "more than 64 bits": b'{"text": "x", "metadata": {"a": 9223372036854775808}}',
    "a field twice": b'{"text": "x", "text": "y"}',
    "an unknown field": b'{"text": "x", "' + b"z" * 5000 + b'": 1}',
    "no time": b'{"text": "x", "timestamp": "' + b"9" * 5000 + b'"}',
    "the wrong kind": b'{"text": "x", "kind": "' + b"k" * 5000 + b'"}',
    "a vector of text": b'{"text": "x", "vector": ["a", "b", "c", "d"]}',
    "a ragged vector": b'{"text": "x", "vector": [[1], [1, 2]]}',
    "an infinite vector": b'{"text": "x", "vector": [1e999, 0, 0, 0]}',
    "a deep vector": b'{"text": "x", "vector": ' + b"[" * 200 + b"]" * 200 + b"}",
}


@pytest.mark.parametrize("line", list(LINES))
def test_a_bad_line_is_named_and_the_others_are_stored(tmp_path: Path, line: str) -> None:
    content = b'\n\n{"text": "fine", "id": "1"}\n' + LINES[line] + b'\n{"text": "after", "id": "2"}\n'
    read = read_memories(io.BytesIO(content), "f.jsonl", dim=4)
    assert next(read).memory.id == "1"
    with pytest.raises(BadLineError) as refused:
        next(read)
    assert str(refused.value).startswith("f.jsonl, line 4: ")
    assert len(str(refused.value)) < 600
    path = tmp_path / "f.jsonl"
    path.write_bytes(content)
    with jiyi.open(embedder=None, dim=4) as engine:
        done = ingest_files(engine, path)
        assert (done.stored, done.rejected) == (2, 1)
        assert done.rejects[0].number == 4
        assert [memory.id for memory in engine.list()] == ["1", "2"]


def test_a_field_twice_among_very_many_is_found_in_one_pass() -> None:
    names = [f"f{i}" for i in range(200_000)]
    line = "{" + ",".join(f'"{name}":1' for name in [*names, names[-1]]) + "}"
    with pytest.raises(BadLineError, match=r"the field 'f199999' twice"):
        next(read_memories(io.BytesIO(line.encode()), "f"))


COMMANDS = [
    ["search", "tea", "--where", "[" * 100_000],
    ["search", "tea", "--where", '{"kind": ' + "[" * 900 + "]" * 900 + "}"],
    ["search", "tea", "--where", '{"metadata.a": ' + "9" * 5000 + "}"],
    ["search", "tea", "--set", "recency_weight=" + "9" * 5000],
    ["search", "tea", "--set", "diversity=" + "[" * 900 + "]" * 900],
    ["search", "tea", "--set", "rrf_k=NaN"],
    ["search", "tea", "--set", "rrf_k=-Infinity"],
    ["search", "tea", "--set", "aging=" + '{"a":' * 500 + "1" + "}" * 500],
    ["search", "tea", "--now", "9" * 5000],
    ["search", "tea", "-k", "9" * 5000],
    ["search", "tea", "--namespace", "x" * 5000],
    ["delete", "a" * 5000],
    ["search", "tea", "and" * 100],
    ["x" * 5000],
    ["search", "\udcff\udcfe"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=[str(i) for i in range(len(COMMANDS))])
def test_a_command_line_is_answered_or_refused_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("tea")
    code = main([*arguments, "--store", str(folder)] if len(arguments) > 1 else arguments)
    said = capsys.readouterr().err
    assert code in (0, 1, 2)
    assert "unexpected" not in said
    assert len(said) < 1_500
    if code:
        assert said.count("\n") == 1


# ----------------------------------------------------------------------------------------------- names and values


NAMES = ["a/../../b", "C:\\x", ".", "..", "/", "CON", "a\nb", "\u202egnp.exe", "\u200b", "e\u0301", "é", "ﬁ", "İ", "ß",
         "a" * 512, "𝒳" * 512, " ", "a ", "%s", "{0}", "'; DROP TABLE memories; --", "\x7f", "\uffff"]  # fmt: skip


def test_names_are_told_apart_to_the_last_character_and_make_no_paths(folder: Path) -> None:
    small = jiyi.IndexConfig(dense_rows=1, keyword_rows=1)
    with jiyi.open(folder, embedder=None, index_config=small) as engine:
        for name in NAMES:
            handle = engine.scoped(name)
            handle.add(f"tea of {name}", id=name, session=name, speaker=name, metadata={name: name})
        engine.flush()
    with jiyi.open(folder, embedder=None, index_config=small) as engine:
        assert engine.namespaces() == dict.fromkeys(NAMES, 1)
        for name in NAMES:
            handle = engine.scoped(name)
            assert handle.get(name).text == f"tea of {name}"
            assert handle.search("tea").ids == [name]
            assert [m.id for m in handle.list(where={"id": name, "session": name, "speaker": name})] == [name]
            if "." not in name:
                assert handle.count(where={f"metadata.{name}": name}) == 1
            assert engine.get(name, namespace=name).metadata == {name: name}
        assert engine.verify() == []
    inside = {path.relative_to(folder).parts[0] for path in folder.rglob("*")}
    assert not inside & set(NAMES)
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name]


def test_numbers_and_flags_are_what_they_were(engine: jiyi.Engine) -> None:
    given = {
        "true": True, "one": 1, "real": 1.0, "big": 2**63 - 1, "least": -(2**63) + 1, "tiny": 5e-324, "huge": 1.7e308,
        "minus zero": -0.0, "numpy": np.int32(7), "half": np.float16(0.5), "flag": np.bool_(False), "none": None,
    }  # fmt: skip
    engine.add("x", id="1", metadata=given)
    kept = engine.get("1").metadata
    assert kept == {**given, "numpy": 7, "half": 0.5, "flag": False}
    assert [type(kept[name]) for name in ("true", "one", "real", "numpy", "half", "flag")] == [
        bool, int, float, int, float, bool,
    ]  # fmt: skip
    for where, count in (({"metadata.true": 1}, 0), ({"metadata.one": True}, 0), ({"metadata.one": 1.0}, 1),
                         ({"metadata.real": 1}, 1), ({"metadata.flag": False}, 1), ({"metadata.flag": 0}, 0),
                         ({"metadata.big": 2**63 - 1}, 1), ({"metadata.big": {"gt": 2**63 - 2}}, 1),
                         ({"metadata.least": {"lt": -(2**63) + 2}}, 1)):  # fmt: skip
        assert engine.count(where=where) == count == len(engine.search("x", where=where)), where
    for bad in (float("nan"), float("inf"), 2**63, b"x", {1: 2}, {"a": {1, 2}}, dt.datetime.now(), 1j):
        with pytest.raises((TypeError, ValueError)):
            engine.add("y", metadata={"a": bad})
    assert engine.count() == 1


def test_times_at_both_ends(engine: jiyi.Engine) -> None:
    first, last = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
    engine.add("tea", id="first", timestamp=first)
    engine.add("tea", id="last", timestamp=last, expires_at=last)
    assert [memory.id for memory in engine.list(order="oldest")] == ["first", "last"]
    for now in (first, "2026-01-01", last):
        for curve in ("exponential", "linear", "logarithmic"):
            hits = engine.search("tea", now=now, recency_curve=curve)
            assert set(hits.ids) == ({"first", "last"} if now != last else {"first"})
            assert all(0 <= score <= 1 for score in hits.scores)
            assert jiyi.QueryRecord.from_dict(json.loads(hits.query_record.to_json())).ids == tuple(hits.ids)
    assert engine.search("tea", as_of=first).ids == ["first"]
    assert engine.compact(now=last, dry_run=True) == 1


@pytest.mark.parametrize(
    "vector",
    [[], [[1.0] * 4], [1.0] * 3, [1.0] * 5, ["a"] * 4, [None] * 4, [1.0, float("nan"), 0, 0], [1e39, 0, 0, 0], "1234",
     b"1234", {"a": 1}, 3, [True] * 4, [1j] * 4, nested(500), [[1], [1, 2]], np.zeros((4, 1)), np.array(1.0),
     np.array(["a"] * 4), np.zeros(4, dtype="M8[s]"), np.array([object()] * 4)],
    ids=range(21),
)  # fmt: skip
def test_what_is_no_vector_of_the_store_is_refused(vector: Any) -> None:
    with jiyi.open(embedder=None, dim=4) as engine:
        engine.add("tea", id="1", vector=[1, 0, 0, 0])
        with pytest.raises((TypeError, ValueError)):
            engine.search("tea", query_vector=vector)
        with pytest.raises((TypeError, ValueError)):
            engine.add("tea", vector=vector)
        assert engine.count() == 1
        assert engine.search("x", query_vector=np.array([2, 0, 0, 0], np.float16)).ids == ["1"]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield
