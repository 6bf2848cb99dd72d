"""Files, threads and memory are bounded, closing closes, and what a dead process has left goes away."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import jiyi
from tests.engine.conftest import Child

_PROC = Path("/proc/self/fd")
needs_proc = pytest.mark.skipif(not _PROC.exists(), reason="there is no /proc/self/fd here that lists open files")

SMALL = jiyi.IndexConfig(dense_rows=20, keyword_rows=20)


def open_files(folder: Path) -> list[str]:
    """Return what this process has open below a folder, mapped files too."""
    found = []
    for entry in _PROC.iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith(str(folder)):
            found.append(target)
    maps = Path("/proc/self/maps").read_text().splitlines()
    return found + [line.split(maxsplit=5)[-1] for line in maps if str(folder) in line]


def jiyi_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("jiyi")]


@needs_proc
def test_a_thousand_namespaces_in_turn(folder: Path) -> None:
    """Neither files nor threads grow with the namespaces that were opened, and memory keeps to the budget."""
    budget_mb = 0.5
    with jiyi.open(folder, embedder=None, memory_budget_mb=budget_mb) as engine:
        engine.add_many([{"text": f"cat {i} of {i}", "namespace": f"user{i:04}"} for i in range(1_000)])
        engine.search("cat", namespace="user0000")
        files, threads = len(list(_PROC.iterdir())), threading.active_count()
        largest = 0
        for i in range(1_000):
            assert len(engine.search("cat", namespace=f"user{i:04}")) == 1
            if i % 100 == 0:
                largest = max(largest, engine.stats()["loaded_bytes"])
                assert len(list(_PROC.iterdir())) <= files + 3
                assert threading.active_count() <= threads + 1
        assert 0 < largest <= budget_mb * 2**20
        assert engine.stats()["loaded_namespaces"] < 1_000
        assert len(engine.search("cat", namespace="user*", k=5)) == 5
        assert engine.stats()["loaded_bytes"] <= budget_mb * 2**20


@needs_proc
def test_namespaces_with_indexes_in_turn(folder: Path) -> None:
    """What an unloaded namespace's indexes had open is closed."""
    with jiyi.open(folder, embedder=None, memory_budget_mb=0.1, index_config=SMALL) as engine:
        for i in range(12):
            engine.add_many(
                [f"cat {j}" for j in range(40)], namespace=f"user{i}", vectors=[[1.0, j] for j in range(40)]
            )
        engine.flush()
        most = 0
        for _ in range(2):
            for i in range(12):
                hits = engine.search("cat", namespace=f"user{i}", k=3, query_vector=[1.0, 2.0])
                assert len(hits) == 3
                most = max(most, len(open_files(folder)))
        assert engine.stats()["loaded_namespaces"] < 12
        assert most < 12 * 7 + 12, most  # a Tantivy index has seven files mapped
        assert len(jiyi_threads()) <= 1
    assert open_files(folder) == []
    assert jiyi_threads() == []


@needs_proc
@pytest.mark.parametrize("read_only", [False, True])
def test_close_really_closes(folder: Path, read_only: bool) -> None:
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        engine.add_many([f"cat {i}" for i in range(60)], vectors=[[1.0, i] for i in range(60)])
        engine.flush()
        if read_only:
            engine.close()
            engine = jiyi.open(folder, embedder=None, read_only=True, index_config=SMALL)
        hits = engine.search("cat", query_vector=[1.0, 2.0], keyword_plan="indexed", dense_plan="indexed")
        threads = [threading.Thread(target=engine.search, args=("cat",)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        engine.close()
        engine.close()
        assert len(hits) > 0  # a result outlives its engine
        assert hits.explain()
        assert open_files(folder) == []
        assert jiyi_threads() == []
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:  # at once
        assert engine.count() == 60
    shutil.rmtree(folder)
    with jiyi.open(folder, embedder=None) as engine:
        assert engine.count() == 0


@needs_proc
def test_what_cannot_be_opened_is_not_left_open(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("cat", vector=[1.0, 2.0])
        for _ in range(3):
            with pytest.raises(jiyi.StoreLockedError):
                jiyi.open(folder, embedder=None)
        with pytest.raises(jiyi.DimensionError):
            jiyi.open(folder, embedder=None, dim=3, read_only=True)
    for _ in range(3):
        with pytest.raises(jiyi.DimensionError):
            jiyi.open(folder, embedder=None, dim=3)
    assert open_files(folder) == []
    ledger = folder / "ledger.sqlite"
    ledger.write_bytes(b"no store at all, and long enough to look like one" * 200)
    with pytest.raises(jiyi.StoreError):
        jiyi.open(folder, embedder=None)
    assert open_files(folder) == []
    ledger.write_bytes(b"")
    with pytest.raises(jiyi.StoreError):
        jiyi.open(folder, embedder=None, read_only=True)
    assert open_files(folder) == []


@needs_proc
@pytest.mark.parametrize("call", ["search", "list", "add", "flush", "stats"])
def test_closing_under_calls_of_other_threads(folder: Path, call: str) -> None:
    """They end with ClosedError, and what they had borrowed is closed when they give it back."""
    engine = jiyi.open(folder, embedder=None, index_config=SMALL)
    engine.add_many([f"cat {i}" for i in range(200)], vectors=[[1.0, i] for i in range(200)])
    calls: dict[str, Any] = {
        "search": lambda: engine.search("cat", query_vector=[1.0, 2.0]),
        "list": engine.list,
        "add": lambda: engine.add("cat more"),
        "flush": engine.flush,
        "stats": engine.stats,
    }
    ends: list[BaseException] = []
    begun = threading.Barrier(5)

    def work() -> None:
        begun.wait()
        try:
            while True:
                calls[call]()
        except BaseException as error:
            ends.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    time.sleep(0.05)
    engine.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert [type(error) for error in ends] == [jiyi.ClosedError] * 4, ends
    assert open_files(folder) == []
    with jiyi.open(folder, embedder=None) as engine:
        assert engine.verify() == []


@needs_proc
def test_an_engine_that_is_forgotten_lets_go(folder: Path, child: Child) -> None:
    """Without close(): the garbage collector, and the end of the process, do as well."""
    code = """
import jiyi, gc
engine = jiyi.open(sys.argv[1], embedder=None, index_config=jiyi.IndexConfig(dense_rows=20, keyword_rows=20))
engine.add_many([f"cat {i}" for i in range(60)], vectors=[[1.0, i] for i in range(60)])
engine.search("cat", query_vector=[1.0, 2.0])
print("ok")
"""
    done = child(code, folder)
    assert "ok" in done.stdout, done.stderr
    with jiyi.open(folder, embedder=None) as engine:
        assert engine.count() == 60


def test_the_budget_counts_what_grows(folder: Path) -> None:
    """In the writer and in a reader that follows it."""
    budget_mb = 0.3
    with (
        jiyi.open(folder, embedder=None, memory_budget_mb=budget_mb) as writer,
        jiyi.open(folder, embedder=None, memory_budget_mb=budget_mb, read_only=True) as reader,
    ):
        for round_ in range(3):
            for i in range(12):
                writer.add_many([f"cat {round_} {j}" for j in range(100)], namespace=f"user{i}")
                for engine in (writer, reader):
                    assert len(engine.search("cat", namespace=f"user{i}")) == 5
        for engine in (writer, reader):
            stats = engine.stats()
            assert stats["loaded_bytes"] <= budget_mb * 2**20, stats
            assert 0 < stats["loaded_namespaces"] < 12


_LITTERING = """
import jiyi, os, signal, threading, time
from pathlib import Path
folder = Path(sys.argv[1])
engine = jiyi.open(folder, embedder=None, index_config=jiyi.IndexConfig(dense_rows=20, keyword_rows=20))
engine.add_many([f"cat {i}" for i in range(200)], vectors=[[1.0, i] for i in range(200)])
import jiyi.recall.graph, jiyi.ledger
point = sys.argv[2]

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

if point == "index":
    jiyi.recall.graph.Graph.save = lambda self, target: ((target / "graph.bin").write_bytes(b"x" * 1000), die())
    engine.search("cat", query_vector=[1.0, 2.0])
    engine.flush()
elif point == "snapshot":
    jiyi.ledger.flush_to_disk = die
    engine.snapshot(folder.parent / "copy")
elif point == "vacuum":
    jiyi.ledger.Ledger.checkpoint = die
    engine.compact()
    die()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("point", ["index", "vacuum"])
def test_what_a_killed_process_has_left_is_gone_after_compact(folder: Path, child: Child, point: str) -> None:
    killed = child(_LITTERING, folder, point)
    assert killed.returncode == -9, killed.stderr
    before = sorted(path.name for path in folder.rglob("*"))
    if point == "index":
        assert any("partial" in name for name in before), before
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        assert engine.count() == 200
        engine.compact()
        engine.search("cat", query_vector=[1.0, 2.0])
        engine.flush()
        assert engine.stats()["index_error"] is None
    left = {path.relative_to(folder).parts[0] for path in folder.rglob("*")}
    assert left <= {"ledger.sqlite", "ledger.sums", "writer.lock", "indexes"}, left
    names = sorted(path.name for path in (folder / "indexes").iterdir())
    assert len(names) == 2, names
    assert {name.split("-")[0] for name in names} == {"graph", "keyword"}


def test_memory_is_given_back(tmp_path: Path, child: Child) -> None:
    """Adding, changing and deleting for long ends with the room that it had after the first tenth."""
    code = """
from pathlib import Path
from tests.stress.soak import soak
report = soak(Path(sys.argv[1]), operations=6_000, searches=500, live=400, words=300, seed=0)
assert report.disk_bytes <= 1.2 * report.steady_disk_bytes, report
assert report.rss_bytes <= 1.2 * report.steady_rss_bytes, report
assert report.count == report.expected
print("ok")
"""
    done = child(code, tmp_path / "store", timeout=300, fresh=True)
    assert done.stdout == "ok\n", done.stderr
