"""Stores into files and back: every field, in every format, the same file in the end."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import jiyi
from jiyi.cli import main
from jiyi.errors import StoreError
from jiyi.export import export_file
from jiyi.ingest import ingest_files

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
