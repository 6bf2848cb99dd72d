"""Stores into files and back: every field, in every format, the same file in the end."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
import jiyi.memory
from jiyi.cli import main
from jiyi.errors import StoreError
from jiyi.export import export_file, export_stream
from jiyi.ingest import ingest_files, read_memories

FULL: list[dict[str, Any]] = [
    {"id": "1", "namespace": "ana", "text": 'all: \u2028 \\ " \x00 😀', "timestamp": "0001-01-01T00:00:00.000001Z"},
    {
        "id": "2",
        "namespace": "中文 空间",
        "text": "procedure",
        "kind": "procedural",
        "speaker": "林",
        "metadata": {"深": [1, 1.5, None, True, {"x": "é"}], "big": 2**60, "a": -0.0, "e": 1e-300},
        "expires_at": "9999-12-31T23:59:59.999999Z",
        "sources": ["a", "b"],
        "title": "t",
        "steps": ["one", "two"],
        "use_when": "w",
    },
    {
        "id": "3",
        "namespace": "ana",
        "kind": "semantic",
        "subject": "s",
        "predicate": "p",
        "object": "o",
        "multivalued": True,
        "uses": 3,
        "successes": 1,
        "failures": 2,
        "last_used": "2026-01-01T00:00:00.5Z",
    },
    {
        "id": "4",
        "namespace": "ana",
        "kind": "semantic",
        "subject": "s",
        "predicate": "p",
        "object": "o",
        "session": "x",
    },
    {"id": "5", "text": "", "metadata": {}},
]
VECTORS = [[0.1, 1e-30], None, [3.4e38, -0.0], [1 / 3, 2], [0, 0]]


@pytest.fixture
def full() -> jiyi.Engine:
    engine = jiyi.open(embedder=None, dim=2)
    engine.add_many(FULL, vectors=VECTORS)
    engine.add_many([{"text": f"number {i}", "namespace": f"n{i % 3}"} for i in range(600)])
    return engine


FORMATS = ["jsonl", "jsonl.gz", "parquet", "arrow", "jsonl.zst"]


def test_there_and_back_is_the_same_file(full: jiyi.Engine, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="writing Parquet and Arrow needs the extra `files`")
    for vectors in (False, True):
        first = tmp_path / f"{vectors}.jsonl"
        assert export_file(full, first, vectors=vectors) == 605
        last = first
        for number, suffix in enumerate([*FORMATS, "jsonl"]):
            with jiyi.open(tmp_path / f"{vectors}{number}", embedder=None) as engine:
                done = ingest_files(engine, last)
                assert (done.added, done.rejected, done.failed) == (605, 0, ())
                last = tmp_path / f"{vectors}{number}.{suffix}"
                assert export_file(engine, last, vectors=vectors) == 605
                assert sorted(engine.list(namespace=None), key=lambda m: m.id) == sorted(
                    full.list(namespace=None), key=lambda m: m.id
                )
        assert last.read_bytes() == first.read_bytes()
    full.close()


def test_the_canonical_form(full: jiyi.Engine, tmp_path: Path) -> None:
    export_file(full, tmp_path / "m.jsonl", vectors=True, namespace="ana")
    lines = (tmp_path / "m.jsonl").read_text(encoding="utf-8").split("\n")
    assert lines[1] == (
        '{"id": "3", "namespace": "ana", "kind": "semantic", "timestamp": '
        f'{json.dumps(json.loads(lines[1])["timestamp"])}, "text": "s p o", "subject": "s", "predicate": "p", '
        '"object": "o", "multivalued": true, "uses": 3, "successes": 1, "failures": 2, '
        '"last_used": "2026-01-01T00:00:00.500000Z", "vector": [3.3999999521443642e+38, -0.0]}'
    )
    full.close()


def test_choices(full: jiyi.Engine, tmp_path: Path) -> None:
    assert export_file(full, tmp_path / "a.jsonl", where={"kind": "semantic"}) == 2
    assert export_file(full, tmp_path / "b.jsonl", namespace=["n0", "n1"]) == 400
    assert export_file(full, tmp_path / "c.jsonl", namespace="n*") == 600
    assert export_file(full, tmp_path / "d.jsonl", namespace="nobody") == 0
    assert (tmp_path / "d.jsonl").read_bytes() == b""
    told: list[int] = []
    export_file(full, tmp_path / "e.jsonl", namespace="n*", progress=told.append)
    assert told == [200, 400, 600]
    full.close()


def test_the_same_memories_make_the_same_gzip(full: jiyi.Engine, tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        export_file(full, tmp_path / name)
    content = (tmp_path / "a.jsonl.gz").read_bytes()
    assert content == (tmp_path / "b.jsonl.gz").read_bytes()
    assert gzip.decompress(content).count(b"\n") == 605
    full.close()


def test_what_is_refused(full: jiyi.Engine, tmp_path: Path) -> None:
    (tmp_path / "there.jsonl").write_bytes(b"mine")
    with pytest.raises(ValueError, match="exists; name a new file"):
        export_file(full, tmp_path / "there.jsonl")
    assert (tmp_path / "there.jsonl").read_bytes() == b"mine"
    with pytest.raises(ValueError, match="says no format"):
        export_file(full, tmp_path / "m.txt")
    with pytest.raises(ValueError, match="compresses itself"):
        export_file(full, tmp_path / "m.parquet.gz")
    with pytest.raises(ValueError, match="format is 'csv'"):
        export_file(full, tmp_path / "m", format="csv")  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="nothing is left of it"):
        export_file(full, tmp_path / "no" / "m.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["there.jsonl"]
    full.close()


def test_a_failure_leaves_nothing(full: jiyi.Engine, tmp_path: Path) -> None:
    def fail(count: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        export_file(full, tmp_path / "m.jsonl", progress=fail)
    assert list(tmp_path.iterdir()) == []
    full.close()


def test_one_moment_while_writing_goes_on(tmp_path: Path, folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many([{"id": f"{i}", "text": "x", "namespace": f"n{i % 2}"} for i in range(4_000)])
        added: list[str] = []

        def write(count: int) -> None:
            added.append(engine.add("late", namespace="n1"))
            engine.delete("3999", namespace="n1")

        assert export_file(engine, tmp_path / "m.jsonl", progress=write) == 4_000
        assert added
        assert export_file(engine, tmp_path / "n.jsonl") == 3_999 + len(added)


def test_an_id_of_nothing_and_a_name_of_no_format_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, out = str(tmp_path / "store"), tmp_path / "x.csv"
    with jiyi.open(store, embedder=None) as engine:
        engine.add("茶", id="编0😀")
    assert main(["export", "--store", store, "编0😀", "编nope"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "jiyi: there is no memory '编nope'; nothing was written\n")
    assert main(["export", "--store", store, "--out", str(out)]) == 2
    assert "says no format; end it in .jsonl, .parquet or .arrow" in capsys.readouterr().err
    assert not out.exists()
    assert main(["export", "--store", store, "编0😀", "--out", str(tmp_path / "plain")]) == 0


# ------------------------------------------------------------------------------------------- everything there is

ODD_IDS = [
    "a/b\\..",
    "../x",
    " spaced ",
    "'; DROP TABLE memories; --",
    "%s{}*?",
    "编号·1",
    "😀👩‍👩‍👧",
    "é",
    "e\u0301",
    "x" * 512,
]


def everything_in(engine: jiyi.Engine) -> None:
    """Memories of every kind with every field, as their namespaces' life has left them."""
    rng = np.random.default_rng(7)
    records: list[dict[str, Any]] = [
        {
            "text": f'note {i}: 第{i}次徒步 with \u2028 \x00 \\ " 😀, tea and kettle {i}',
            "id": odd,
            "namespace": ("ana", "小明 空间/..", "😀")[i % 3],
            "kind": jiyi.memory.KINDS[i % 4],
            "timestamp": f"20{i + 10}-03-05T06:07:08.{i + 1:06d}Z",
            "session": f"会话 {i % 2}/😀",
            "speaker": "林 Ana",
            "metadata": {
                "text": "é😀",
                "int": 2**62,
                "negative": -i,
                "float": [0.1, 1e-300, -0.0, 1e300],
                "yes": True,
                "no": False,
                "null": None,
                "object": {"深": {"b": [], "a": {}}, "": "empty key"},
                "1": [1, 1.0, "1"],
            },
            "expires_at": "9999-12-31T23:59:59.999999Z" if i % 2 else None,
            "sources": ["elsewhere", odd],
            "uses": i,
            "successes": i // 2,
            "failures": 1 if i == 3 else 0,
            "last_used": f"2026-01-01T00:00:00.{i + 1:06d}Z" if i else None,
        }
        for i, odd in enumerate(ODD_IDS)
    ]
    records.append({"text": "", "id": "empty", "namespace": "ana", "timestamp": 0})
    records.append({"text": "no vector", "id": "bare", "namespace": "ana", "timestamp": 1, "uses": 2})
    vectors: list[Any] = [*rng.normal(size=(len(ODD_IDS), 8)), [3.4e38, 1e-40, -0.0, 1, 1 / 3, 0, 0, 0], None]
    engine.add_many(records, vectors=vectors)
    for number, place in enumerate(["Lyon", "Oslo", "上海"]):  # a history
        engine.add(jiyi.Memory.fact("Ana", "lives in", place, id=place, namespace="ana", timestamp=100 + number))
    for drink in ("tea", "coffee"):
        fact = jiyi.Memory.fact("Ana", "likes", drink, multivalued=True, id=drink, namespace="ana", timestamp=50)
        engine.add(fact, metadata={"说": "她说的"})
    steps = ["heat 水", "pour", "wait 3 min"]
    brew = jiyi.Memory.procedure("Brew 茶", steps, use_when="a guest comes", id="brew", namespace="ana", timestamp=3)
    engine.add(brew)
    engine.outcome("brew", success=True, namespace="ana", now=1_770_000_000.000001)
    engine.outcome("brew", success=False, namespace="ana", now=1_770_000_001)
    engine.reinforce(["Oslo", "bare"], namespace="ana", now=1_770_000_002)
    for name in ("ana", "小明 空间/.."):
        twice = [
            {"text": "green tea each morning", "id": f"t{i}", "namespace": name, "timestamp": i, "metadata": {"i": i}}
            for i in (5, 6, 7)
        ]
        engine.add_many(twice, vectors=[[1.0] * 8] * 3)
        engine.reinforce("t5", namespace=name, now=1_770_000_003)
        assert engine.consolidate(namespace=name).removed == 2


def told_by(engine: jiyi.Engine) -> dict[str, Any]:
    """Everything that a store tells of what `everything_in` has stored."""
    now = 1_780_000_000
    told: dict[str, Any] = {"verify": engine.verify(), "namespaces": engine.namespaces()}
    for name in engine.namespaces():
        told[f"{name} list"] = [memory.to_dict() for memory in engine.list(namespace=name)]
        told[f"{name} facts"] = [m.id for m in engine.facts(namespace=name, history=True)]
        told[f"{name} current"] = [m.id for m in engine.facts(namespace=name)]
        told[f"{name} then"] = [m.id for m in engine.facts(namespace=name, as_of=101)]
        for query, vector in (("green tea", None), ("徒步", [1.0] * 8), ("Ana lives", [0.5, 1, 0, 0, 0, 0, 0, 1])):
            hits = engine.search(query, namespace=name, k=50, now=now, query_vector=vector)
            told[f"{name} {query}"] = [(hit.memory.to_dict(), hit.score) for hit in hits]
    told["neighbours"] = [(n.entity, n.distance) for n in engine.neighbors("ana", namespace="ana", hops=3)]
    vector_of = engine._store.ledger.vector
    keys = engine._store.ledger.select_keys("1", ())
    told["vectors"] = sorted(
        (engine._store.ledger.memories([k], n)[k].id, n, vector_of(k)) for k, n in named(engine, keys)
    )
    return told


def named(engine: jiyi.Engine, keys: list[int]) -> list[tuple[int, str]]:
    numbers = {engine._store.ledger.namespace_number(name): name for name in engine.namespaces()}
    return [(key, numbers[key >> 40]) for key in keys]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "parquet", "arrow"])
@pytest.mark.parametrize("where", ["folder", "memory"])
def test_every_field_survives_and_so_does_what_was_merged(tmp_path: Path, suffix: str, where: str) -> None:
    if suffix in ("parquet", "arrow"):
        pytest.importorskip("pyarrow", reason="writing Parquet and Arrow needs the extra `files`")
    out = tmp_path / f"all.{suffix}"
    with jiyi.open(tmp_path / "store", embedder=None, dim=8) as engine:
        everything_in(engine)
        before = told_by(engine)
        assert before["verify"] == []
        count = export_file(engine, out, vectors=True)
        assert count == engine.count(namespace=None) + 6
        assert engine.unconsolidate(["t7"], namespace="ana") == 3
        given_back = told_by(engine)
    with jiyi.open(tmp_path / "again" if where == "folder" else None, embedder=None, dim=8) as engine:
        done = ingest_files(engine, out)
        assert (done.added, done.rejected, done.failed) == (count, 0, ())
        assert told_by(engine) == before
        done = ingest_files(engine, out)  # nothing changes
        assert (done.stored, done.unchanged) == (0, count)
        export_file(engine, tmp_path / f"second.{suffix}", vectors=True)
        if "gz" not in suffix:
            assert (tmp_path / f"second.{suffix}").read_bytes() == out.read_bytes()
        assert engine.unconsolidate(["t7"], namespace="ana") == 3
        assert told_by(engine) == given_back
        assert engine.unconsolidate(["t7"], namespace="小明 空间/..") == 3


def test_what_was_merged_goes_with_what_stands_for_it(tmp_path: Path) -> None:
    with jiyi.open(tmp_path / "store", embedder=None, dim=8) as engine:
        everything_in(engine)
        assert export_file(engine, tmp_path / "one.jsonl", where={"id": "t7"}, namespace="ana") == 4
        assert export_file(engine, tmp_path / "none.jsonl", where={"id": "brew"}) == 1
        plain = export_file(engine, tmp_path / "plain.jsonl", merged=False)
        assert plain == engine.count(namespace=None)
    lines = [json.loads(line) for line in (tmp_path / "one.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["id"], line.get("merged_into")) for line in lines] == [
        ("t7", None),
        ("t5", "t7"),
        ("t6", "t7"),
        ("t7", "t7"),
    ]
    with (tmp_path / "one.jsonl").open("rb") as stream:
        assert [line.memory.id for line in read_memories(stream, "one")] == ["t7"]


def hidden(tmp_path: Path, lines: list[dict[str, Any]]) -> tuple[jiyi.Engine, Any]:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    engine = jiyi.open(embedder=None)
    return engine, lambda: ingest_files(engine, path, restart=True)


def test_a_row_that_is_merged_into_nothing_is_rejected(tmp_path: Path) -> None:
    lines = [{"id": "a", "text": "a"}, {"id": "b", "text": "b", "merged_into": "c"}, {"id": "c", "text": "c"}]
    engine, ingest = hidden(tmp_path, lines)
    done = ingest()
    assert (done.stored, done.rejected) == (2, 1)
    assert done.rejects[0].reason == (
        "merged_into is 'c', which is not in namespace 'default'; the memory that it is merged into must stand "
        "before it"
    )
    again = ingest()  # by now it is there
    assert (again.added, again.unchanged, again.rejected) == (1, 2, 0)
    assert [memory.id for memory in engine.list()] == ["a", "c"]
    assert engine.unconsolidate("c") == 1
    assert [memory.id for memory in engine.list()] == ["a", "c", "b"]


def test_rows_that_are_merged_take_the_place_of_what_has_their_ids(tmp_path: Path) -> None:
    lines = [
        {"id": "b", "text": "earlier"},
        {"id": "a", "text": "a"},
        {"id": "b", "text": "merged", "merged_into": "a"},
        {"id": "d", "text": "gone", "merged_into": "a"},
        {"id": "d", "text": "d counts"},
    ]
    engine, ingest = hidden(tmp_path, lines)
    engine.add("what was there", id="b")
    assert (ingest().rejected, engine.verify()) == (0, [])
    assert [memory.id for memory in engine.list()] == ["a", "d"]
    assert engine.unconsolidate("a") == 1
    assert engine.get("b").text == "merged"


def test_a_damaged_row_that_is_merged_is_not_written(tmp_path: Path) -> None:
    with jiyi.open(tmp_path / "store", embedder=None, dim=8) as engine:
        everything_in(engine)
        with engine._store.ledger.changing() as connection:
            connection.execute("UPDATE merged SET memory = replace(memory, 'green', 'black') WHERE id = 't5'")
        with pytest.raises(StoreError, match="'t5', which is merged into 't7', is damaged"):
            export_file(engine, tmp_path / "out.jsonl")
        with pytest.raises(StoreError, match="'t5', which is merged into 't7', is damaged"):
            engine.unconsolidate("t7", namespace="ana")
        assert export_file(engine, tmp_path / "out.jsonl", merged=False) > 0


@pytest.mark.parametrize("given", [5, None, b"x", ["x"]])
def test_what_is_no_path_is_named(full: jiyi.Engine, tmp_path: Path, given: Any) -> None:
    said = f"the path to export to must be a path .text or pathlib.Path., got {type(given).__name__}"
    with pytest.raises(TypeError, match=said):
        export_file(full, given)
    with pytest.raises(TypeError, match="engine must be a jiyi"):
        export_file(given, tmp_path / "x.jsonl")
    with pytest.raises(TypeError, match="stream must be opened in binary mode"):
        export_stream(full, 5)  # type: ignore[arg-type]
    full.close()
