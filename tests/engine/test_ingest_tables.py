"""Parquet, Arrow and zstd into a store; what is wrong with rows, columns and files of them."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi.ingest import IngestJob, ingest_files

pa = pytest.importorskip("pyarrow", reason="reading Parquet and Arrow needs the extra `files`")
pq = pytest.importorskip("pyarrow.parquet")

DAY = dt.datetime(2026, 3, 2, 9, 30, 0, 5, tzinfo=dt.UTC)


def written(table: Any, path: Path) -> Path:
    """Write a table as what the name says."""
    name = path.name
    if name.endswith(".parquet"):
        pq.write_table(table, path, row_group_size=700)
    elif name.endswith(".arrows"):
        with pa.ipc.new_stream(path, table.schema) as out:
            out.write_table(table, max_chunksize=900)
    else:
        with pa.ipc.new_file(path, table.schema) as out:
            out.write_table(table, max_chunksize=900)
    return path


@pytest.fixture(params=["m.parquet", "m.arrow", "m.arrows"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def one(engine: jiyi.Engine, path: Path, **columns: Any) -> jiyi.Memory:
    """Ingest one row of these columns; return the memory."""
    table = pa.table({"text": pa.array(["text"]), **columns})
    done = ingest_files(engine, written(table, path))
    assert (done.rejected, done.failed, done.stored) == (0, (), 1), (done.failed, done.rejects)
    return engine.list()[0]


class TestColumns:
    def test_of_every_field(self, engine: jiyi.Engine, path: Path) -> None:
        memory = one(
            engine,
            path,
            id=pa.array(["i"]),
            kind=pa.array(["procedural"]).dictionary_encode(),
            timestamp=pa.array([DAY], pa.timestamp("us", "Asia/Shanghai")),
            expires_at=pa.array(["9999-12-31T23:59:59Z"]),
            session=pa.array(["s"], pa.large_string()),
            metadata=pa.array([{"n": 1, "absent": None, "deep": {"x": [1.5, None]}}]),
            sources=pa.array([["a", "b"]]),
            title=pa.array(["t"]),
            steps=pa.array(['["one", "two"]']),
            uses=pa.array([3], pa.int32()),
            last_used=pa.array([1.7e9]),
            speaker=pa.array([None], pa.string()),
            __index_level_0__=pa.array([7]),
        )
        assert memory == jiyi.Memory(
            text="text",
            id="i",
            kind="procedural",
            timestamp=DAY,
            expires_at="9999-12-31T23:59:59Z",
            session="s",
            metadata={"n": 1, "deep": {"x": [1.5, None]}},
            sources=["a", "b"],
            title="t",
            steps=["one", "two"],
            uses=3,
            last_used=1.7e9,
        )

    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            ([DAY], pa.timestamp("us")),
            ([DAY], pa.timestamp("us", "UTC")),
            ([DAY], pa.timestamp("ns", "America/New_York")),
            ([DAY.isoformat()], pa.string()),
            ([DAY.isoformat()], pa.string_view()),
        ],
    )
    def test_times(self, engine: jiyi.Engine, path: Path, values: list[Any], kind: Any) -> None:
        assert one(engine, path, timestamp=pa.array(values, kind)).timestamp == DAY

    @pytest.mark.parametrize(
        ("values", "kind", "expected"),
        [
            ([DAY.date()], pa.date32(), dt.datetime(2026, 3, 2, tzinfo=dt.UTC)),
            ([DAY], pa.timestamp("s"), DAY.replace(microsecond=0)),
            ([1772443800], pa.int64(), dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)),
            ([-62135596800], pa.timestamp("s"), dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
        ],
    )
    def test_times_of_other_kinds(
        self, engine: jiyi.Engine, path: Path, values: list[Any], kind: Any, expected: dt.datetime
    ) -> None:
        assert one(engine, path, timestamp=pa.array(values, kind)).timestamp == expected

    @pytest.mark.parametrize(
        "column",
        [
            pa.array(['{"n": 1, "s": "x"}']),
            pa.array([{"n": 1, "s": "x"}]),
            pa.array([[("n", "1"), ("s", "x")]], pa.map_(pa.string(), pa.string())),
        ],
    )
    def test_metadata(self, engine: jiyi.Engine, path: Path, column: Any) -> None:
        metadata = one(engine, path, metadata=column).metadata
        assert {key: str(value) for key, value in metadata.items()} == {"n": "1", "s": "x"}

    @pytest.mark.parametrize(
        "kind",
        [
            pa.list_(pa.float32()),
            pa.list_(pa.float64()),
            pa.large_list(pa.float32()),
            pa.list_(pa.float32(), 2),
            pa.list_(pa.float16(), 2),
            pa.list_(pa.int8()),
        ],
    )
    def test_vectors(self, engine: jiyi.Engine, path: Path, kind: Any) -> None:
        number = np.float16 if kind.value_type == pa.float16() else int
        vectors = [[number(1), number(0)], None, [number(3), number(4)], [number(0), number(1)]]
        table = pa.table({"id": list("abcd"), "text": list("abcd"), "vector": pa.array(vectors, kind)})
        sliced = table.slice(1)  # offsets that do not begin at 0
        ingest_files(engine, written(sliced, path))
        held = {key: engine._store.ledger.vector(key) for key, _ in engine._store.ledger.select("1", ())}
        assert [None if v is None else np.frombuffer(v, "f4").tolist() for v in held.values()] == [None, [3, 4], [0, 1]]

    def test_many_rows_in_order_and_again(self, engine: jiyi.Engine, path: Path) -> None:
        table = pa.table({"text": [f"number {i}" for i in range(5_000)]})
        done = ingest_files(engine, written(table, path))
        assert (done.added, done.fraction) == (5_000, 1.0)
        assert [memory.text for memory in engine.list()] == [f"number {i}" for i in range(5_000)]
        assert ingest_files(engine, path).unchanged == 5_000

    def test_resumes(self, folder: Path, path: Path) -> None:
        written(pa.table({"text": [f"number {i}" for i in range(5_000)]}), path)
        with jiyi.open(folder, embedder=None) as engine:
            for _ in range(3):
                job = IngestJob(engine, path, progress=lambda status: job.cancel())  # noqa: B023 - this one
                job.run()
            job = IngestJob(engine, path)
            assert job.plan()[0].resumes_after >= 2_000
            job.run()
            assert [memory.text for memory in engine.list()] == [f"number {i}" for i in range(5_000)]


class TestWrongRows:
    def test_are_named_and_the_others_kept(self, engine: jiyi.Engine, path: Path, tmp_path: Path) -> None:
        texts = pa.array([b"good", b"\xff\xfe", None, b"good", b"good", b"good", b"good"]).view(pa.string())
        far = 400_000 * 366 * 86_400
        table = pa.table(
            {
                "id": list("abcdefg"),
                "text": texts,
                "vector": pa.array([[1.0, 2], [1, 2], [1, 2], [float("nan"), 2], [1, 2, 3], [1, None], [1e300, 2]]),
                "timestamp": pa.array([0, 0, 0, 0, 0, 0, 0], pa.timestamp("s")),
            }
        )
        more = pa.table(
            {
                "id": list("hijklm"),
                "text": ["good", "good", "good", "good", "good", ""],
                "metadata": ["{", '{"a": 1, "a": 2}', "[1]", None, '{"a": NaN}', None],
                "timestamp": pa.array([0, 0, 0, far, 0, 0], pa.timestamp("s")),
            }
        )
        done = ingest_files(engine, written(table, path), rejects=tmp_path / "rejects")
        assert [(each.unit, each.number) for each in done.rejects] == [("row", i) for i in (2, 3, 4, 5, 6, 7)]
        assert [each.reason[:30] for each in done.rejects] == [
            "text is not UTF-8 (byte 0xff a",
            "the field text is missing; it ",
            "vector holds NaN, null or infi",
            "the vector has 3 dimensions an",
            "vector holds NaN, null or infi",
            "vector holds NaN, null or infi",
        ]
        assert json.loads((tmp_path / "rejects").read_text().splitlines()[0])["row"] == 2
        assert [memory.id for memory in engine.list()] == ["a"]
        done = ingest_files(engine, written(more, path))
        assert [each.number for each in done.rejects] == [1, 2, 3, 4, 5]
        assert [memory.id for memory in engine.list()] == ["a", "m"]
        assert engine.verify() == []

    @pytest.mark.parametrize(
        ("column", "reason"),
        [
            ({"text": pa.array([5])}, "text must be text, got int"),
            ({"text": pa.array([b"bytes"])}, "text must be text, got bytes"),
            ({"text": ["a"], "vector": pa.array(["abc"])}, "vector must be a list of numbers"),
            ({"text": ["a"], "vector": pa.array([[]], pa.list_(pa.float32()))}, "the vector is empty"),
            ({"text": ["a"], "metadata": pa.array([5])}, "metadata must be a mapping"),
            ({"text": ["a"], "metadata": pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int8()))}, "twice"),
            ({"text": ["a"], "sources": pa.array(["{}"])}, "sources must be JSON of a list"),
            ({"text": ["a"], "timestamp": pa.array([1767225600000])}, "milliseconds"),
            ({"text": ["a"], "timestamp": pa.array([True])}, "timestamp must be"),
        ],
    )
    def test_of_every_kind(self, engine: jiyi.Engine, path: Path, column: dict[str, Any], reason: str) -> None:
        done = ingest_files(engine, written(pa.table(column), path))
        assert (done.stored, done.rejected) == (0, 1), done
        assert reason in done.rejects[0].reason


class TestWrongFiles:
    def test_columns_that_no_memory_has(self, engine: jiyi.Engine, path: Path) -> None:
        done = ingest_files(engine, written(pa.table({"text": ["a"], "colour": ["b"]}), path))
        assert "has the column 'colour'" in done.failed[0]
        assert engine.count() == 0

    @pytest.mark.parametrize("trials", [8, pytest.param(400, marks=pytest.mark.slow)])
    def test_cut_off_or_damaged(self, engine: jiyi.Engine, path: Path, trials: int) -> None:
        """Whatever is flipped or cut off: a named error or the rows, never a crash, and the store stays sound."""
        texts = [f"number {i}" for i in range(300)]
        vectors = pa.array([[float(i), 1.0] for i in range(300)], pa.list_(pa.float32()))
        table = pa.table({"text": texts, "metadata": ['{"a": 1}'] * 300, "vector": vectors})
        whole = written(table, path).read_bytes()
        rng = np.random.default_rng(0)
        path.write_bytes(whole[: len(whole) // 2])
        done = ingest_files(engine, path)
        assert done.failed or path.suffix == ".arrows"
        for _ in range(trials):
            damaged = bytearray(whole)
            for place in rng.integers(len(whole), size=3):
                damaged[place] ^= int(rng.integers(1, 256))
            path.write_bytes(damaged if rng.random() < 0.7 else damaged[: rng.integers(len(damaged))])
            done = ingest_files(engine, path)
            assert done.state == "done"
            assert all(str(path) in reason for reason in done.failed)
        assert engine.verify() == []

    def test_a_directory_and_a_pipe(self, engine: jiyi.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import io
        import sys

        for name in ("a.parquet", "b.arrow", "c.arrows"):
            written(pa.table({"id": [name], "text": ["x"]}), tmp_path / name)
        assert ingest_files(engine, tmp_path).added == 3
        for name in ("a.parquet", "b.arrow", "c.arrows"):
            given = io.TextIOWrapper(io.BytesIO((tmp_path / name).read_bytes()))
            monkeypatch.setattr(sys, "stdin", given)
            assert ingest_files(engine, "-").unchanged == 1


class TestZstd:
    def test_lines_of_several_frames(self, engine: jiyi.Engine, tmp_path: Path) -> None:
        path = tmp_path / "m.jsonl.zst"
        parts = [b'{"id": "%d", "text": "x"}\n' % i for i in range(2_000)]
        path.write_bytes(b"".join(pa.compress(part, "zstd", asbytes=True) for part in parts))
        assert ingest_files(engine, path).added == 2_000

    def test_cut_off(self, engine: jiyi.Engine, tmp_path: Path) -> None:
        path = tmp_path / "m.jsonl.zst"
        rng = np.random.default_rng(0)
        lines = b"".join(b'{"id": "%d", "text": "%d"}\n' % (i, rng.integers(2**60)) for i in range(40_000))
        whole = pa.compress(lines, "zstd", asbytes=True)
        path.write_bytes(whole[: len(whole) // 2])
        done = ingest_files(engine, path)
        assert "is cut off" in done.failed[0]
        assert done.added > 5_000

    def test_an_arrow_stream_inside(self, engine: jiyi.Engine, tmp_path: Path) -> None:
        plain = written(pa.table({"text": ["a", "b"]}), tmp_path / "m.arrows")
        path = tmp_path / "m.arrows.zst"
        path.write_bytes(pa.compress(plain.read_bytes(), "zstd", asbytes=True))
        assert ingest_files(engine, path).added == 2
        parquet = written(pa.table({"text": ["a", "b"]}), tmp_path / "m.parquet")
        path.write_bytes(pa.compress(parquet.read_bytes(), "zstd", asbytes=True))
        assert "decompress it" in ingest_files(engine, path).failed[0]
