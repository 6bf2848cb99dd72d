"""Files of JSON lines into a store as a job: rejects, resuming, what is read twice, and hostile files."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jiyi
from jiyi.errors import ReadOnlyError
from jiyi.files.ahead import ahead
from jiyi.files.errors import BadFileError
from jiyi.files.known import Known, known
from jiyi.files.rows import shown
from jiyi.files.sources import find_sources, suffixes_of
from jiyi.ingest import IngestJob, IngestStatus, ingest_files
from jiyi.jsonl import BadLineError
from jiyi.memory import Memory
from tests.engine.embedders import HashEmbedder

Record = dict[str, Any]


def lines(records: list[Record]) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def numbered(count: int, start: int = 0) -> list[Record]:
    return [{"id": f"m{i}", "text": f"number {i}"} for i in range(start, start + count)]


def ids(engine: jiyi.Engine) -> list[str]:
    return [memory.id for memory in engine.list(namespace=None)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memories.jsonl"


def broken(kind: int) -> bytes:
    """One line of every kind of wrong."""
    return (
        b'{"text": "cut off',
        b"not JSON at all",
        b'["a", "list"]',
        b'{"text": 5}',
        b'{"text": "a", "kind": "dream"}',
        b'{"text": "a", "timestamp": 1767225600000}',
        b'{"text": "a", "vector": [NaN, 1, 2]}',
        b'{"text": "a", "vector": [1e999, 1, 2]}',
        b'{"text": "a", "vector": [1, 2]}',
        b'{"text": "a", "vector": "abc"}',
        b'{"text": "\xff\xfe"}',
        b'{"text": "a", "text": "b"}',
        b"[" * 100_000,
        b'{"text": "' + b"x" * 10_000_000,
        b'{"text": "a", "metadata": ' + b'{"a":' * 70 + b"1" + b"}" * 70 + b"}",
        b'{"text": "\\ud800"}',
        b'{"txet": "a"}',
        b"\x00\x00",
    )[kind]


BROKEN_KINDS = 18


class TestRejects:
    def test_a_job_with_one_percent_of_broken_lines_keeps_the_rest_and_names_each(
        self, engine: jiyi.Engine, path: Path, tmp_path: Path
    ) -> None:
        rng = random.Random(0)
        count = 100 * BROKEN_KINDS
        wrong = dict(zip(sorted(rng.sample(range(count), BROKEN_KINDS)), range(BROKEN_KINDS), strict=True))
        with path.open("wb") as out:
            for i in range(count):
                good = json.dumps({"id": f"m{i}", "text": f"number {i}", "vector": [i, 1.0, 2.0]}).encode()
                out.write((broken(wrong[i]) if i in wrong else good) + b"\n")
        done = ingest_files(engine, path, rejects=tmp_path / "rejects.jsonl")
        assert (done.state, done.added, done.rejected) == ("done", count - BROKEN_KINDS, BROKEN_KINDS)
        assert ids(engine) == [f"m{i}" for i in range(count) if i not in wrong]
        told = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_bytes().splitlines()]
        assert [each["line"] for each in told] == [i + 1 for i in wrong]
        assert all(each["source"] == str(path) and each["reason"] for each in told)
        assert all(len(each["content"]) <= 80 for each in told)
        assert max(len(each["reason"]) for each in told) < 400
        assert engine.verify() == []

    def test_no_reject_file_without_a_reject(self, engine: jiyi.Engine, path: Path, tmp_path: Path) -> None:
        path.write_bytes(lines(numbered(3)))
        done = ingest_files(engine, path, rejects=tmp_path / "rejects")
        assert done.rejects_file is None
        assert not (tmp_path / "rejects").exists()

    def test_one_of_an_earlier_job_is_written_anew(self, engine: jiyi.Engine, path: Path, tmp_path: Path) -> None:
        path.write_bytes(b"bad\n")
        for _ in range(2):
            ingest_files(engine, path, rejects=tmp_path / "rejects")
            assert (tmp_path / "rejects").read_bytes().count(b"\n") == 1

    def test_strict_raises_at_the_first(self, engine: jiyi.Engine, path: Path, tmp_path: Path) -> None:
        path.write_bytes(lines(numbered(2_500)) + b"bad\n" + lines(numbered(5, 9_000)) + b"bad\n")
        with pytest.raises(BadLineError, match=r"line 2501: is not JSON .*the 2,500 memories before it are stored"):
            ingest_files(engine, path, strict=True, rejects=tmp_path / "rejects")
        assert len(ids(engine)) == 2_500
        assert not (tmp_path / "rejects").exists()

    def test_too_many_stop_it(self, engine: jiyi.Engine, path: Path) -> None:
        path.write_bytes(b"bad\n" * 3_000 + lines(numbered(3)))
        done = ingest_files(engine, path, max_rejects=100)
        assert (done.state, done.stored, done.rejected, done.rows) == ("stopped", 0, 101, 101)
        assert len(done.rejects) == 100
        assert ingest_files(engine, path, max_rejects=3_000).state == "done"

    def test_a_line_over_the_limit_is_passed_over(
        self, engine: jiyi.Engine, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("jiyi.jsonl.LONGEST_LINE_BYTES", 1_000)
        long = b'{"text": "' + b"x" * 300_000 + b'"}\n'
        path.write_bytes(lines(numbered(1)) + long + lines(numbered(1, 1)) + long[:5_000])
        done = ingest_files(engine, path)
        assert ids(engine) == ["m0", "m1"]
        assert [(each.number, each.reason[:12]) for each in done.rejects] == [(2, "is over 0 Mi"), (4, "is over 0 Mi")]

    def test_a_reject_file_that_cannot_be_written(self, engine: jiyi.Engine, path: Path, tmp_path: Path) -> None:
        path.write_bytes(b"bad\n")
        with pytest.raises(jiyi.JiyiError, match="--rejects FILE"):
            ingest_files(engine, path, rejects=tmp_path / "no" / "where")

    def test_what_is_shown_of_a_row(self) -> None:
        assert shown(b"\xff" + "徒步\n".encode() * 99) == ("\ufffd" + "徒步 " * 99)[:80]
        assert shown({"text": "a\nb", "id": 5}) == "text: a b, id: 5"
        assert len(shown({"text": "x" * 10**6})) == 80


class TestReadTwice:
    def test_a_second_time_changes_nothing(self, path: Path, folder: Path) -> None:
        path.write_bytes(
            lines(
                [{"id": "a", "text": "x", "metadata": {"n": 1}}, {"text": "without an id"}, {"text": "without an id"}]
            )
        )
        with jiyi.open(folder, embedder=HashEmbedder()) as engine:
            assert ingest_files(engine, path).added == 3
            before, sequence = engine.list(), engine.stats()["sequence"]
            done = ingest_files(engine, path)
            assert (done.stored, done.unchanged) == (0, 3)
            assert engine.list() == before
            assert engine.stats()["sequence"] == sequence

    def test_ids_of_rows_without_one(self, engine: jiyi.Engine, tmp_path: Path) -> None:
        for name in ("a.jsonl", "b.jsonl"):
            (tmp_path / name).write_bytes(lines([{"text": "same"}, {"text": "same"}]))
        assert ingest_files(engine, tmp_path).added == 4  # other files, other lines: other memories
        (tmp_path / "a.jsonl").write_bytes(lines([{"text": "same"}, {"text": "other"}, {"text": "more"}]))
        done = ingest_files(engine, tmp_path)
        assert (done.added, done.unchanged) == (2, 3)  # what was there is never replaced by what stands in its line

    @pytest.mark.parametrize(
        ("changed", "expected"),
        [
            ({}, Known.SAME),
            ({"text": "b"}, Known.OTHER),
            ({"metadata": {"n": True}}, Known.OTHER),
            ({"metadata": {}}, Known.OTHER),
            ({"timestamp": "2026-01-02"}, Known.OTHER),
            ({"session": "s"}, Known.OTHER),
            ({"id": "new"}, Known.NEW),
            ({"namespace": "other"}, Known.NEW),
            ({"uses": 3}, Known.OTHER),
        ],
    )
    def test_what_is_the_same(self, engine: jiyi.Engine, changed: Record, expected: Known) -> None:
        record: Record = {"id": "i", "text": "a", "timestamp": "2026-01-01", "metadata": {"n": 1}}
        engine.add(record)
        engine.reinforce("i")
        assert known(engine._store, [Memory.from_dict(record | changed)], [None], [True]) == [expected]

    def test_a_time_that_the_row_does_not_tell(self, engine: jiyi.Engine) -> None:
        engine.add("a", id="i", timestamp="2026-01-01")
        given = [Memory(text="a", id="i")]
        assert known(engine._store, given, [None], [False]) == [Known.SAME]
        assert known(engine._store, given, [None], [True]) == [Known.OTHER]

    def test_vectors(self, path: Path, folder: Path) -> None:
        path.write_bytes(lines([{"id": "a", "text": "a", "vector": [1, 2]}]))
        with jiyi.open(folder, embedder=None) as engine:
            ingest_files(engine, path)
            assert ingest_files(engine, path).unchanged == 1
            path.write_bytes(lines([{"id": "a", "text": "a", "vector": [1, 2.5]}]))
            assert ingest_files(engine, path).replaced == 1
            path.write_bytes(lines([{"id": "a", "text": "a"}]))
            assert ingest_files(engine, path).unchanged == 1

    def test_what_has_no_vector_gets_one(self, path: Path, folder: Path) -> None:
        path.write_bytes(lines(numbered(3)))
        with jiyi.open(folder, embedder=None) as engine:
            ingest_files(engine, path)
        with jiyi.open(folder, embedder=HashEmbedder()) as engine:
            assert ingest_files(engine, path).replaced == 3
            assert ingest_files(engine, path).unchanged == 3

    def test_the_later_of_two_lines_stays(self, engine: jiyi.Engine, path: Path) -> None:
        path.write_bytes(lines([{"id": "a", "text": "first"}, {"id": "a", "text": "second"}]))
        done = ingest_files(engine, path)
        assert (done.added, done.replaced) == (1, 1)
        assert engine.get("a").text == "second"
        done = ingest_files(engine, path)
        assert engine.get("a").text == "second"
        assert done.added == 0

    def test_a_memory_that_was_deleted_comes_back(self, engine: jiyi.Engine, path: Path) -> None:
        path.write_bytes(lines(numbered(3)))
        ingest_files(engine, path)
        engine.delete("m1")
        done = ingest_files(engine, path)
        assert (done.added, done.unchanged) == (1, 2)


class TestDryRun:
    def test_counts_and_stores_nothing(self, folder: Path, path: Path) -> None:
        path.write_bytes(lines(numbered(3)) + b"bad\n")
        with jiyi.open(folder, embedder=None) as engine:
            engine.add("number 0", id="m0")
            engine.add("else", id="m1")
        with jiyi.open(folder, embedder=None, read_only=True) as engine:
            done = ingest_files(engine, path, dry_run=True)
            assert (done.added, done.replaced, done.unchanged, done.rejected) == (1, 1, 1, 1)
            assert len(ids(engine)) == 2
            with pytest.raises(ReadOnlyError):
                ingest_files(engine, path)


class TestSources:
    def test_files_patterns_and_folders_sorted_and_once(self, tmp_path: Path) -> None:
        for name in ("b.jsonl", "a.jsonl", "徒步 [1].jsonl", "notes.txt", "in/c.parquet", "in/d.jsonl.gz"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(b"")
        (tmp_path / "link.jsonl").symlink_to(tmp_path / "a.jsonl")

        def names(*given: str) -> list[str]:
            found, _ = find_sources([str(tmp_path / each) for each in given])
            return [Path(source.name).name for source in found]

        assert names("*.jsonl") == ["a.jsonl", "b.jsonl", "徒步 [1].jsonl"]
        assert names("徒步 [1].jsonl") == ["徒步 [1].jsonl"]  # what exists is no pattern
        assert names("**/*.gz") == ["d.jsonl.gz"]
        assert names("") == ["a.jsonl", "b.jsonl", "c.parquet", "d.jsonl.gz", "徒步 [1].jsonl"]
        assert names("notes.txt", "b.jsonl", "*.jsonl", "link.jsonl") == [
            "notes.txt",
            "b.jsonl",
            "a.jsonl",
            "徒步 [1].jsonl",
        ]
        again = find_sources([str(tmp_path / "a.jsonl"), str(tmp_path / "link.jsonl")])[1]
        assert again == [str(tmp_path / "link.jsonl")]

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("none.jsonl", "No such file"),
            ("*.jsonl", "no file matches this pattern"),
            ("empty", "holds no file named .jsonl"),
            ("a\0b", "U\\+0000"),
        ],
    )
    def test_what_is_not_there(self, engine: jiyi.Engine, tmp_path: Path, name: str, reason: str) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(BadFileError, match=reason):
            IngestJob(engine, f"{tmp_path}/{name}")

    def test_suffixes(self) -> None:
        assert suffixes_of("a.jsonl.gz") == ("jsonl", "gzip")
        assert suffixes_of("A.Parquet") == ("parquet", None)
        assert suffixes_of("a.feather.zst") == ("arrow", "zstd")
        assert suffixes_of("a.gz") == (None, "gzip")
        assert suffixes_of("a") == (None, None)

    @pytest.mark.parametrize(
        ("argument", "value", "error"),
        [
            ("format", "csv", ValueError),
            ("max_rejects", -1, ValueError),
            ("max_rejects", True, TypeError),
            ("namespace", "", ValueError),
        ],
    )
    def test_arguments(self, engine: jiyi.Engine, path: Path, argument: str, value: Any, error: type) -> None:
        path.write_bytes(b"")
        with pytest.raises(error, match=argument if argument != "namespace" else "the namespace"):
            IngestJob(engine, path, **{argument: value})


class TestHostileFiles:
    @pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\n\r\n \n", b"\xef\xbb\xbf\r\n"])
    def test_that_hold_nothing(self, engine: jiyi.Engine, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        done = ingest_files(engine, path)
        assert (done.state, done.rows, done.files) == ("done", 0, 1)
        assert done.rejected == (content == b"\xef\xbb\xbf\r\n" and 0)

    def test_with_windows_line_ends_and_a_mark(self, engine: jiyi.Engine, path: Path) -> None:
        path.write_bytes(b"\xef\xbb\xbf" + lines(numbered(3)).replace(b"\n", b"\r\n"))
        assert ingest_files(engine, path).added == 3

    def test_gzip_of_several_members(self, engine: jiyi.Engine, tmp_path: Path) -> None:
        path = tmp_path / "named.wrongly"  # what it holds counts
        path.write_bytes(gzip.compress(lines(numbered(3))) + gzip.compress(lines(numbered(3, 3))))
        assert ingest_files(engine, path).added == 6

    @pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
    def test_gzip_cut_off_keeps_what_was_read(self, engine: jiyi.Engine, tmp_path: Path, kept: float) -> None:
        rng = random.Random(0)
        records = [{"id": f"m{i}", "text": f"{rng.random()}"} for i in range(9_000)]
        whole = gzip.compress(lines(records))
        path = tmp_path / "m.jsonl.gz"
        path.write_bytes(whole[: int(kept * len(whole))])
        (tmp_path / "n.jsonl").write_bytes(lines([{"id": "behind", "text": "x"}]))
        done = ingest_files(engine, [path, tmp_path / "n.jsonl"])
        assert (done.state, done.files, len(done.failed)) == ("done", 1, 1)
        assert "is cut off" in done.failed[0]
        assert f"after line {done.rows - 1:,}" in done.failed[0]
        assert 1_000 < done.added < 9_002
        assert ids(engine) == [f"m{i}" for i in range(done.added - 1)] + ["behind"]
        with pytest.raises(BadFileError, match="is cut off"):
            ingest_files(engine, path, strict=True)

    def test_gzip_that_is_damaged(self, engine: jiyi.Engine, tmp_path: Path) -> None:
        whole = bytearray(gzip.compress(lines(numbered(5_000))))
        whole[len(whole) // 2] ^= 255
        path = tmp_path / "m.jsonl.gz"
        path.write_bytes(whole)
        done = ingest_files(engine, path)
        assert len(done.failed) + done.rejected >= 1
        assert engine.verify() == []

    def test_a_file_that_grows_meanwhile(self, engine: jiyi.Engine, path: Path) -> None:
        path.write_bytes(lines(numbered(5_000)))

        def grow(status: IngestStatus) -> None:
            with path.open("ab") as out:
                out.write(lines(numbered(1, 5_000 + status.rows)))

        done = ingest_files(engine, path, progress=grow)
        assert done.added == 5_000
        assert ingest_files(engine, path).unchanged == 5_000

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
    def test_a_fifo(self, engine: jiyi.Engine, tmp_path: Path) -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        writer = threading.Thread(target=lambda: fifo.write_bytes(lines(numbered(3_000))))
        writer.start()
        done = ingest_files(engine, fifo)
        writer.join()
        assert (done.added, done.total_bytes, done.fraction) == (3_000, None, None)

    def test_a_bomb_of_one_line(self, engine: jiyi.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("jiyi.jsonl.LONGEST_LINE_BYTES", 2**20)
        path = tmp_path / "bomb.gz"
        path.write_bytes(gzip.compress(b'{"text": "' + b"x" * 2**25 + b'"}\n' + lines(numbered(1))))
        done = ingest_files(engine, path)
        assert (done.added, done.rejected) == (1, 1)

    def test_formats_that_need_pyarrow_say_so(
        self, engine: jiyi.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        for name, content in (
            ("a.parquet", b"PAR1xxxxPAR1"),
            ("a.arrow", b"ARROW1\0\0"),
            ("a.zst", b"\x28\xb5\x2f\xfd"),
        ):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(jiyi.JiyiError, match=r"pip install 'jiyi\[files\]'"):
                ingest_files(engine, tmp_path / name)

    def test_feather_of_version_1(self, engine: jiyi.Engine, tmp_path: Path) -> None:
        (tmp_path / "a.feather").write_bytes(b"FEA1....")
        assert "version 1" in ingest_files(engine, tmp_path / "a.feather").failed[0]


class TestJob:
    def test_plan_status_and_dict(self, engine: jiyi.Engine, path: Path) -> None:
        path.write_bytes(lines(numbered(3)))
        job = IngestJob(engine, path)
        assert [(each.name, each.bytes, each.resumes_after) for each in job.plan()] == [
            (str(path), path.stat().st_size, 0)
        ]
        assert job.status().state == "planned"
        done = job.run()
        assert job.status() is done
        assert done.fraction == 1.0
        record = done.to_dict()
        assert (record["stored"], record["state"], record["bytes"]) == (3, "done", path.stat().st_size)
        json.dumps(record)

    def test_namespace_of_rows_that_do_not_say_their_own(self, engine: jiyi.Engine, path: Path) -> None:
        path.write_bytes(lines([{"text": "a"}, {"text": "b", "namespace": "bo"}, {"text": "c", "namespace": None}]))
        ingest_files(engine, path, namespace="ana")
        assert engine.namespaces() == {"ana": 2, "bo": 1}

    def test_cancelled_and_gone_on_with(self, folder: Path, path: Path) -> None:
        path.write_bytes(lines(numbered(7_000)))
        with jiyi.open(folder, embedder=None) as engine:

            def stop(status: IngestStatus) -> None:
                if status.stored >= 2_000:
                    job.cancel()

            job = IngestJob(engine, path, progress=stop)
            done = job.run()
            assert (done.state, done.stored) == ("cancelled", 2_000)
            job = IngestJob(engine, path)
            assert job.plan()[0].resumes_after == 2_000
            done = job.run()
            assert (done.skipped_rows, done.added) == (2_000, 5_000)
            assert IngestJob(engine, path).plan()[0].resumes_after == 0
            assert ids(engine) == [f"m{i}" for i in range(7_000)]

    def test_paused(self, engine: jiyi.Engine, path: Path) -> None:
        path.write_bytes(lines(numbered(4_500)))
        job = IngestJob(engine, path)
        job.pause()
        thread = threading.Thread(target=job.run)
        thread.start()
        while job.status().state != "paused":
            time.sleep(0.01)
        assert job.status().stored == 0
        job.resume()
        thread.join()
        assert (job.status().state, job.status().stored) == ("done", 4_500)

    def test_changed_files_are_read_from_the_beginning(self, folder: Path, path: Path) -> None:
        path.write_bytes(lines(numbered(5_000)))
        with jiyi.open(folder, embedder=None) as engine:
            job = IngestJob(engine, path, progress=lambda status: job.cancel())
            assert job.run().stored == 2_000
            path.write_bytes(lines(numbered(5_000, 1)))
            done = ingest_files(engine, path)
            assert (done.skipped_rows, done.unchanged, done.added) == (0, 1_999, 3_001)

    def test_restart(self, folder: Path, path: Path) -> None:
        path.write_bytes(lines(numbered(5_000)))
        with jiyi.open(folder, embedder=None) as engine:
            job = IngestJob(engine, path, progress=lambda status: job.cancel())
            job.run()
            done = ingest_files(engine, path, restart=True)
            assert (done.skipped_rows, done.unchanged, done.added) == (0, 2_000, 3_000)

    def test_reads_ahead_where_a_model_embeds(self, folder: Path, tmp_path: Path) -> None:
        for i in range(3):
            (tmp_path / f"{i}.jsonl").write_bytes(lines(numbered(2_500, 2_500 * i)) + b"bad\n")
        with jiyi.open(folder, embedder=HashEmbedder()) as engine:
            done = ingest_files(engine, tmp_path)
            assert (done.added, done.rejected, done.files) == (7_500, 3, 3)
            assert ids(engine) == [f"m{i}" for i in range(7_500)]
            assert threading.active_count() == len(threading.enumerate())
            assert not [thread for thread in threading.enumerate() if thread.name.startswith("jiyi-read")]

    def test_what_the_thread_raises_is_raised(self) -> None:
        def items() -> Iterator[int]:
            yield 1
            raise ZeroDivisionError

        with ahead(items(), 1, "test") as taken:
            assert next(taken) == 1
            with pytest.raises(ZeroDivisionError):
                next(taken)

    def test_an_embedder_that_fails_stops_it(self, folder: Path, path: Path) -> None:
        class Broken(HashEmbedder):
            def embed(self, texts: Any) -> Any:
                raise ZeroDivisionError

        path.write_bytes(lines(numbered(3_000)))
        with jiyi.open(folder, embedder=Broken()) as engine:
            with pytest.raises(ZeroDivisionError):
                ingest_files(engine, path)
            assert ids(engine) == []


KILLED = """
import os, sys, jiyi
from jiyi.ingest import IngestJob
folder, path, rejects, after = sys.argv[1:]
with jiyi.open(folder, embedder=None) as engine:
    def die(status):
        if status.rows >= int(after):
            os.kill(os.getpid(), 9)
    IngestJob(engine, [path + "/a.jsonl.gz", path + "/b.jsonl"], rejects=rejects, progress=die).run()
"""


class TestKilled:
    def test_goes_on_where_it_was(self, tmp_path: Path, folder: Path, child: Any) -> None:
        """Killed again and again, with rejects on the way: the same store and the same reject file as in one go."""
        data = tmp_path / "data"
        data.mkdir()

        def content(start: int) -> bytes:
            every = lines([{"text": f"number {i}"} for i in range(start, start + 5_000)]).splitlines(keepends=True)
            every[100::500] = [b"bad %d\n" % i for i in range(10)]
            return b"".join(every)

        (data / "a.jsonl.gz").write_bytes(gzip.compress(content(0)))
        (data / "b.jsonl").write_bytes(content(5_000))
        rejects = tmp_path / "rejects.jsonl"
        for after in (1, 4_000):
            assert child(KILLED, folder, data, rejects, after).returncode == -signal.SIGKILL
        with jiyi.open(folder, embedder=None) as engine:
            before = len(ids(engine))
            assert 5_000 < before < 9_980
            job = IngestJob(engine, [data / "a.jsonl.gz", data / "b.jsonl"], rejects=rejects)
            assert [(each.ended, each.resumes_after > 0) for each in job.plan()] == [(True, True), (False, True)]
            done = job.run()
            assert done.skipped_rows >= 6_000
            assert done.added == 9_980 - before
            whole = [(memory.id, memory.text) for memory in engine.list()]
        with jiyi.open(embedder=None) as engine:
            ingest_files(engine, [data / "a.jsonl.gz", data / "b.jsonl"], rejects=tmp_path / "at once")
            assert [(memory.id, memory.text) for memory in engine.list()] == whole
        assert rejects.read_bytes() == (tmp_path / "at once").read_bytes()

    @pytest.mark.slow
    def test_at_any_moment(self, tmp_path: Path, folder: Path) -> None:
        rng = random.Random(0)
        path = tmp_path / "m.jsonl"
        path.write_bytes(lines([{"text": f"number {i}"} for i in range(40_000)]))
        argv = [sys.executable, "-m", "jiyi", "ingest", path, "--store", folder, "--embedder", "none", "--no-index"]
        for _ in range(12):
            process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.6, 2.5))
            process.kill()
            process.wait()
        assert subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
        with jiyi.open(folder, embedder=None) as engine:
            assert [memory.text for memory in engine.list()] == [f"number {i}" for i in range(40_000)]
            assert engine.verify() == []


def test_a_file_with_an_id_twice_changes_nothing_when_it_is_read_again(engine: jiyi.Engine, tmp_path: Path) -> None:
    file = tmp_path / "twice.jsonl"
    file.write_text('{"text": "one", "id": "b"}\n{"text": "two", "id": "b"}\n{"text": "three", "id": "c"}\n')
    first = jiyi.ingest_files(engine, file)
    assert (first.stored, first.added, first.replaced, first.unchanged) == (3, 2, 1, 0)
    again = jiyi.ingest_files(engine, file, restart=True)
    assert (again.stored, again.unchanged) == (0, 3)
    memory = engine.get("b")
    assert memory is not None
    assert memory.text == "two"


@pytest.mark.parametrize("paths", [5, None, {"a": 1}])
def test_paths_and_engines_of_another_type(engine: jiyi.Engine, paths: Any) -> None:
    with pytest.raises(TypeError, match="paths must be a file's name or a list of them"):
        jiyi.ingest_files(engine, paths)
    for job in (lambda: jiyi.IngestJob("x", []), lambda: jiyi.ReindexJob(engine.scoped("a"))):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"engine must be a jiyi\.Engine, as jiyi\.open returns it, got "):
            job()
