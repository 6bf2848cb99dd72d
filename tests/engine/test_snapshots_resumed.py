"""A snapshot that was stopped goes on with what it had copied, and is of the moment of the call that ends it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi import copying
from jiyi.copying import copy_ledger
from jiyi.ledger import FILE_NAME
from tests.engine import corruption

COUNT = 400


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of so few rows that a small store takes many."""
    monkeypatch.setattr(copying, "_ROWS", 20)
    monkeypatch.setattr(copying, "_TRANSACTION_ROWS", 40)


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    with jiyi.open(tmp_path / "store", embedder=None, dim=8) as engine:
        rng = np.random.default_rng(0)
        records = [{"text": f"note {i} on tea", "id": f"i{i}", "namespace": f"n{i % 3}"} for i in range(COUNT)]
        engine.add_many(records, vectors=rng.normal(size=(COUNT, 8)))
        corruption.fill(engine)
        yield engine


def everything(folder: Path) -> dict[str, Any]:
    """What a store holds: every row of every table, but for what names its session."""
    with jiyi.open(folder, embedder=None) as engine:
        assert engine.verify() == []
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        tables = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        found: dict[str, Any] = {
            name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name, _ in tables
        }
        found["indexes"] = sorted(
            connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index'"), key=repr
        )
    found["manifest"] = [row for row in found["manifest"] if row[0] != "session"]
    return found


class Stopped(BaseException):
    """As an interrupt: nothing catches it."""


def stopped_after(steps: int) -> Any:
    left = [steps]

    def progress(done: int, total: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Stopped

    return progress


def stop(engine: jiyi.Engine, dest: Path, steps: int) -> None:
    with pytest.raises(Stopped):
        engine.snapshot(dest, progress=stopped_after(steps))
    assert not dest.exists()


def watched(monkeypatch: pytest.MonkeyPatch) -> list[copying.Copied]:
    """What copies take from here on."""
    taken: list[copying.Copied] = []

    def watch(*arguments: Any) -> copying.Copied:
        taken.append(copy_ledger(*arguments))
        return taken[-1]

    monkeypatch.setattr("jiyi.ledger.copy_ledger", watch)
    return taken


@pytest.mark.parametrize("steps", [1, 3, 8, 15, 20])
def test_what_was_copied_is_not_copied_again(
    engine: jiyi.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    taken = watched(monkeypatch)
    whole = engine.snapshot(tmp_path / "whole")
    stop(engine, tmp_path / "dest", steps)
    engine.snapshot(tmp_path / "dest")
    first, second = taken
    assert first.kept == 0
    assert second.kept >= (steps - 1) * 40
    assert second.rows + second.kept >= first.rows - 20  # small tables are compared as a whole
    assert second.rows <= first.rows - (steps - 1) * 40
    assert everything(tmp_path / "dest") == everything(whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dest", "store", "whole"]


def test_it_is_of_the_moment_of_the_call_that_ends_it(engine: jiyi.Engine, tmp_path: Path) -> None:
    stop(engine, tmp_path / "dest", 15)
    engine.add("after the stop", id="new", namespace="n0")
    engine.update("i3", namespace="n0", text="changed since")
    engine.delete(["i6", "i9"], namespace="n0")
    engine.delete_namespace("n1")
    engine.reinforce("i2", namespace="n2")
    engine.consolidate(namespace="ana")
    engine.unconsolidate("c1", namespace="ana")
    engine.snapshot(tmp_path / "dest")
    assert everything(tmp_path / "dest") == everything(engine.snapshot(tmp_path / "whole"))
    content = (tmp_path / "dest" / FILE_NAME).read_bytes()
    assert b"after the stop" in content
    assert b"note 6 on tea" not in content
    assert b"note 1 on tea" not in content


def test_after_a_reindex_and_a_compaction(engine: jiyi.Engine, tmp_path: Path) -> None:
    from tests.engine.embedders import HashEmbedder

    stop(engine, tmp_path / "dest", 18)
    engine.reindex(HashEmbedder(12), keep=True)
    engine.compact()
    engine.snapshot(tmp_path / "dest")
    assert everything(tmp_path / "dest") == everything(engine.snapshot(tmp_path / "whole"))


def test_it_is_stopped_again_and_again_while_others_write(engine: jiyi.Engine, tmp_path: Path) -> None:
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            engine.add_many([{"text": f"pair {number}", "id": f"{number}-{side}", "namespace": "p"} for side in "ab"])
            if number % 3 == 2:
                engine.delete([f"{number - 2}-{side}" for side in "ab"], namespace="p")
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for steps in (2, 6, 12):
            stop(engine, tmp_path / "dest", steps)
        engine.snapshot(tmp_path / "dest")
    finally:
        ended.set()
        writer.join()
    with jiyi.open(tmp_path / "dest", embedder=None) as copy:
        assert copy.verify() == []
        ids = [memory.id for memory in copy.list(namespace="p")]
        assert ids == [f"{number}-{side}" for number in dict.fromkeys(id.split("-")[0] for id in ids) for side in "ab"]
        assert copy.count(namespace="n0") == len(range(0, COUNT, 3))


_KILLED = """
import os, signal, sys
import jiyi
from jiyi import copying
copying._ROWS, copying._TRANSACTION_ROWS = 20, 40
left = int(sys.argv[3])
def progress(done, total):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
with jiyi.open(sys.argv[1], embedder=None, read_only=True) as engine:
    engine.snapshot(sys.argv[2], progress=progress)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_killed_process_is_gone_on_with_by_another(
    engine: jiyi.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in ("4", "9"):
        arguments = [sys.executable, "-c", _KILLED, str(tmp_path / "store"), str(tmp_path / "dest"), steps]
        assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
        engine.add(f"while killed at {steps}", namespace="n2")
    assert not (tmp_path / "dest").exists()
    taken = watched(monkeypatch)
    engine.snapshot(tmp_path / "dest")
    assert taken[0].kept >= 8 * 40
    assert everything(tmp_path / "dest") == everything(engine.snapshot(tmp_path / "whole"))


def test_what_was_left_is_damaged(engine: jiyi.Engine, tmp_path: Path) -> None:
    growing = tmp_path / ".dest-snapshot"
    whole = everything(engine.snapshot(tmp_path / "whole"))
    for change in ("a row", "a page", "the end", "no store"):
        stop(engine, tmp_path / "dest", 15)
        path = growing / FILE_NAME
        content = path.read_bytes()
        if change == "a row":
            path.write_bytes(content.replace(b"note 7 on tea", b"note 8 on tea", 1))
        elif change == "a page":
            path.write_bytes(content[: 4 * 8192] + bytes(8192) + content[5 * 8192 :])
        elif change == "the end":
            path.write_bytes(content[: len(content) // 2])
        else:
            path.write_bytes(b"no ledger at all" * 1_000)
        engine.snapshot(tmp_path / "dest")
        assert everything(tmp_path / "dest") == whole, change
        shutil.rmtree(tmp_path / "dest")
        assert not growing.exists()


def test_what_was_left_is_of_another_store(engine: jiyi.Engine, tmp_path: Path) -> None:
    stop(engine, tmp_path / "dest", 15)
    with jiyi.open(tmp_path / "other", embedder=None) as other:
        other.add("of the other", id="i1", namespace="n1")
        other.snapshot(tmp_path / "dest")
        assert everything(tmp_path / "dest") == everything(other.snapshot(tmp_path / "whole"))


def test_no_room(engine: jiyi.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(number: int) -> Any:
        def fail(done: int, total: int) -> None:
            raise OSError(number, os.strerror(number))

        return fail

    growing = tmp_path / ".dest-snapshot"
    with pytest.raises(jiyi.StoreError, match="No space left"):  # of the store's own disk: it needs it
        engine.snapshot(tmp_path / "dest", progress=no_room(errno.ENOSPC))
    assert not growing.exists()
    monkeypatch.setattr("jiyi.snapshots._takes_room_of", lambda *_: False)
    with pytest.raises(jiyi.StoreError, match=r"goes on there"):
        engine.snapshot(tmp_path / "dest", progress=no_room(errno.ENOSPC))
    assert growing.exists()
    taken = watched(monkeypatch)
    engine.snapshot(tmp_path / "dest")
    assert taken[0].kept >= 40
    assert not growing.exists()


def test_a_second_to_the_same_place_waits_for_nobody(engine: jiyi.Engine, tmp_path: Path) -> None:
    def second(done: int, total: int) -> None:
        with pytest.raises(jiyi.StoreLockedError):
            engine.snapshot(tmp_path / "dest")

    engine.snapshot(tmp_path / "dest", progress=second)
    with jiyi.open(tmp_path / "dest", embedder=None) as copy:
        assert copy.verify() == []


def test_progress_is_told(engine: jiyi.Engine, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    engine.snapshot(tmp_path / "dest", progress=lambda done, total: told.append((done, total)))
    assert len(told) > 5
    assert told == sorted(told)
    assert all(done <= total for done, total in told)


@pytest.mark.parametrize("given", [5, None, b"x", "", "a\0b"])
def test_what_is_no_folder_is_named(engine: jiyi.Engine, given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="the folder of the snapshot"):
        engine.snapshot(given)
    with pytest.raises((TypeError, ValueError), match="the snapshot's folder"):
        jiyi.restore(given, "x")
    with pytest.raises((TypeError, ValueError), match="the store's folder"):
        jiyi.restore("x", given)
