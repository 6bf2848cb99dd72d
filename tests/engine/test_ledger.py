"""The ledger: what was acknowledged is there whatever happened since, and only that."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi import originals
from jiyi.analysis import analyse
from jiyi.ledger import FILE_NAME, LABEL_BITS, LABEL_MASK, Ledger
from jiyi.memory import Memory
from jiyi.originals import Original
from jiyi.schema import FORMAT_VERSION
from tests.engine.conftest import Child

VECTORS = np.random.default_rng(0).normal(size=(10, 4))


def _put(ledger: Ledger, *memories: Memory) -> list[int]:
    return ledger.put(memories, analyse(memories, [None] * len(memories), None, None), {}).keys


def _labels(ledger: Ledger) -> list[int]:
    return [key & LABEL_MASK for key in ledger.select_keys("1", ())]


# ------------------------------------------------------------------------------------------- numbering


def test_labels_grow_and_are_never_given_twice(folder: Path) -> None:
    folder.mkdir()
    seen: set[int] = set()
    for _ in range(3):
        ledger = Ledger(folder)
        keys = _put(ledger, *[Memory(text=f"m{i}") for i in range(4)])
        labels = [key & LABEL_MASK for key in keys]
        assert labels == sorted(labels)
        assert not seen & set(labels)
        assert min(labels) > max(seen, default=0)
        seen |= set(labels)
        ledger.delete(keys[2:])  # the last label is free, and stays unused
        ledger.compact(0)
        ledger.close()


def test_a_replaced_memory_gets_a_new_label(folder: Path) -> None:
    folder.mkdir()
    ledger = Ledger(folder)
    first = _put(ledger, Memory(text="old", id="a"))
    written = ledger.put([Memory(text="new", id="a")], analyse([Memory(text="new", id="a")], [None], None, None), {})
    assert written.ended == first
    assert written.keys[0] > first[0]
    assert [memory.text for _, memory in ledger.select("1", ())] == ["new"]
    ledger.close()


def test_the_same_id_in_two_namespaces_is_two_memories(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("ana's", id="a", namespace="ana")
        engine.add("bo's", id="a", namespace="bo")
        assert engine.delete("a", namespace="ana") == 1
        assert engine.get("a", namespace="bo").text == "bo's"


def test_sequence_counts_every_change(folder: Path) -> None:
    folder.mkdir()
    ledger = Ledger(folder)
    keys = _put(ledger, Memory(text="a"), Memory(text="b"))
    assert ledger.manifest()["sequence"] == 2
    assert ledger.delete([*keys, 12345]).ended == keys
    assert ledger.manifest()["sequence"] == 4

    def ended(after: int) -> list[int] | None:
        with ledger.changes(1, 0, after) as changes:
            assert changes.rows == []
            assert changes.sequence == ledger.manifest()["sequence"]
            return changes.ended

    assert ended(0) == keys
    assert ended(3) == keys[1:]
    assert ended(4) == []
    ledger.compact(0)
    assert ended(0) is None
    assert ended(int(ledger.manifest()["sequence"])) == []
    ledger.close()


def test_what_the_writer_remembers_is_what_the_file_says(folder: Path) -> None:
    """It asks for none of it again at each write, so whatever else changes it has to make it forget."""
    folder.mkdir()
    ledger = Ledger(folder)

    def fail(connection: sqlite3.Connection) -> None:
        raise OSError("no")

    a, b = Memory(text="a", namespace="ana"), Memory(text="b", namespace="bo")
    _put(ledger, a)
    with pytest.raises(OSError, match="no"):
        ledger.put([b], analyse([b], [None], None, None), {}, then=fail)
    assert ledger.namespace_number("bo") is None  # and its number is remembered by nobody
    assert ledger.manifest()["sequence"] == 1
    (key,) = _put(ledger, b)
    assert key == ledger.namespace_number("bo") << LABEL_BITS | 2
    with ledger.changing() as connection:
        connection.execute("UPDATE manifest SET value = 70 WHERE key = 'sequence'")
        assert _put(ledger, Memory(text="c", namespace="ana")) == [ledger.namespace_number("ana") << LABEL_BITS | 71]
        connection.execute("UPDATE manifest SET value = 80 WHERE key = 'sequence'")
        assert _put(ledger, Memory(text="d", namespace="ana"))[0] & LABEL_MASK == 81
    ledger.delete([key])
    ledger.compact(0)  # the name goes with its last memory
    assert ledger.namespace_number("bo") is None
    _put(ledger, b)
    assert [name for name, _ in ledger.namespaces()] == ["ana", "bo"]
    assert not ledger.has_merged
    with ledger.changing() as connection:
        originals.keep(connection, 1, "x", [Original(a, None, "none")])
    assert ledger.has_merged
    _put(ledger, Memory(text="c", id=a.id, namespace="ana"))  # it takes the place of the hidden one
    ledger.close()
    with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as file:
        assert file.execute("SELECT count(*) FROM merged").fetchone() == (0,)


# -------------------------------------------------------------------------------------- all or nothing


@pytest.mark.parametrize(
    "bad", [Memory, 5, {"txt": "x"}, {"text": "x", "kind": "odd"}, {"text": "x", "timestamp": "soon"}]
)
def test_a_batch_with_a_bad_memory_leaves_nothing(folder: Path, bad: object) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("before", id="0")
        with pytest.raises((TypeError, ValueError), match=r"memory 2 of the batch.*nothing of the batch was stored"):
            engine.add_many(["a", "b", bad])  # type: ignore[list-item]
        assert [memory.id for memory in engine.list()] == ["0"]
        assert len(engine.search("a b", k=9)) == 0


def test_a_failing_write_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("cat before", id="0")
        sequence = engine.stats()["sequence"]

        def fail(*_: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "_finish", staticmethod(fail))
            with pytest.raises(jiyi.StoreError, match="disk I/O error"):
                engine.add_many(["cat one", {"text": "cat replaced", "id": "0"}])
            with pytest.raises(jiyi.StoreError):
                engine.delete("0")
        assert [memory.text for memory in engine.list()] == ["cat before"]
        assert engine.search("cat").memories[0].text == "cat before"
        assert engine.stats()["sequence"] == sequence
        engine.add("cat after")
        assert len(engine.search("cat")) == 2
    with jiyi.open(folder, embedder=None) as engine:
        assert [memory.text for memory in engine.list()] == ["cat before", "cat after"]


def test_of_two_with_one_id_in_a_batch_the_later_stays(engine: jiyi.Engine) -> None:
    ids = engine.add_many([{"text": "first", "id": "a"}, "between", {"text": "second", "id": "a"}])
    assert ids[0] == ids[2] == "a"
    assert [memory.text for memory in engine.list()] == ["between", "second"]


def test_a_memory_comes_back_as_it_went_in(folder: Path) -> None:
    memory = Memory(
        text="a\0b 猫 \U0001f44d\n",
        id="i/d '\"",
        namespace="n s",
        kind="procedural",
        timestamp="0001-01-01T00:00:00.000001",
        session="s",
        speaker="李雷",
        metadata={"n": 2**53 + 1, "f": 0.1, "z": -0.0, "t": [True, None, {"k.k": "v"}]},
        expires_at="9999-12-31T23:59:59.999999",
        sources=["x", "y"],
    )
    with jiyi.open(folder, embedder=None) as engine:
        engine.add(memory)
        assert engine.get(memory.id, namespace="n s") == memory
        assert engine.search("猫", namespace="n s")[0].memory == memory
    with jiyi.open(folder, embedder=None) as engine:
        assert engine.list(namespace=None) == [memory]
        assert engine.verify() == []


# ------------------------------------------------------------------------------------------ durability


_WRITER = """
import jiyi
engine = jiyi.open(sys.argv[1], embedder=None)
engine.search("warm")
print("ready", flush=True)
i = 0
while True:
    engine.add(f"memory {i}", id=f"i{i}")
    if i % 3 == 2:
        engine.delete(f"i{i - 1}")
    print(i, flush=True)
    i += 1
"""


def _killed(code: str, folder: Path, after: int) -> list[str]:
    """Run a writer, kill it after so many lines, return all that it said it had done."""
    root = str(Path(__file__).parent.parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{code}", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        lines = [process.stdout.readline() for _ in range(after)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    assert process.wait() == -signal.SIGKILL
    return [line.strip() for line in lines if line.endswith("\n")]


@pytest.mark.parametrize("after", [5, 40])
def test_what_was_acknowledged_survives_kill_9(folder: Path, after: int) -> None:
    done = int(_killed(_WRITER, folder, after)[-1])
    with jiyi.open(folder, embedder=None) as engine:
        found = {memory.id for memory in engine.list()}
        wanted = {f"i{i}" for i in range(done + 1)} - {f"i{i - 1}" for i in range(2, done + 1, 3)}
        # One more change may have been made and not yet told of.
        assert wanted <= found | {f"i{done}"}
        assert found - wanted <= {f"i{done + 1}", f"i{done}"}
        assert engine.verify() == []
        assert len(engine.search("memory", k=1000)) == len(found)
        engine.add("goes on")


def test_a_batch_killed_half_way_is_not_there(folder: Path) -> None:
    code = """
import jiyi, os
from jiyi.ledger import Ledger
engine = jiyi.open(sys.argv[1], embedder=None)
engine.add("before")
Ledger._finish = staticmethod(lambda *_: (print("dying", flush=True), os.kill(os.getpid(), 9)))
engine.add_many([f"lost {i}" for i in range(5000)])
"""
    _killed(code, folder, 1)
    with jiyi.open(folder, embedder=None) as engine:
        assert [memory.text for memory in engine.list()] == ["before"]
        assert engine.verify() == []


def test_making_a_store_is_one_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is on disk when its maker dies can be opened."""
    states: list[Path] = []
    real = sqlite3.Connection

    class Watched(real):  # type: ignore[misc, valid-type]
        def execute(self, *arguments: object) -> sqlite3.Cursor:
            keep()
            return super().execute(*arguments)  # type: ignore[arg-type]

        def executescript(self, *arguments: object) -> sqlite3.Cursor:
            answer = super().executescript(*arguments)  # type: ignore[arg-type]
            keep()
            return answer

    def keep() -> None:
        copy = folder.with_name(f"state{len(states)}")
        shutil.copytree(folder, copy)
        states.append(copy)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **{**k, "factory": Watched}))
    jiyi.open(folder, embedder=None).close()
    monkeypatch.undo()
    assert len(states) > 3
    for state in states:
        with jiyi.open(state, embedder=None) as engine:
            assert engine.count() == 0


# ------------------------------------------------------------------------------------------------ lock


def test_a_second_writer_is_told_who_holds_the_folder(folder: Path, child: Child) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("x")
        with pytest.raises(jiyi.StoreLockedError, match=f"process {os.getpid()} .*read_only=True") as caught:
            jiyi.open(folder, embedder=None)
        assert socket.gethostname() in caught.value.holder
        answer = child(
            "import jiyi\ntry: jiyi.open(sys.argv[1], embedder=None)\nexcept jiyi.StoreLockedError as e: print(e)",
            folder,
        )
        assert f"process {os.getpid()} " in answer.stdout
        reader = jiyi.open(folder, embedder=None, read_only=True)
        assert reader.count() == 1
        reader.close()
    jiyi.open(folder, embedder=None).close()


def test_the_lock_dies_with_its_process(folder: Path) -> None:
    _killed(_WRITER, folder, 2)
    jiyi.open(folder, embedder=None).close()


def test_lock_is_released_though_a_forked_child_lives(folder: Path, child: Child) -> None:
    code = """
import jiyi, os, signal
engine = jiyi.open(sys.argv[1], embedder=None)
engine.add("x")
pid = os.fork()
if pid == 0:
    signal.pause()
try:
    engine.close()
    jiyi.open(sys.argv[1], embedder=None).close()
    print("opened")
finally:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
"""
    answer = child(code, folder)
    assert answer.stdout == "opened\n", answer.stderr


def test_lock_dies_with_its_process_though_a_forked_child_lives(folder: Path, tmp_path: Path) -> None:
    code = """
import jiyi, os, signal, time
engine = jiyi.open(sys.argv[1], embedder=None)
pid = os.fork()
if pid == 0:
    os.close(1)
    signal.alarm(60)
    signal.pause()
print(pid, flush=True)
time.sleep(60)
"""
    forked = int(_killed(code, folder, 1)[0])
    try:
        jiyi.open(folder, embedder=None).close()
    finally:
        os.kill(forked, signal.SIGKILL)


def test_a_failed_opening_lets_go_of_the_lock(folder: Path) -> None:
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(os.urandom(20_000))
    for _ in range(2):
        with pytest.raises(jiyi.StoreError, match="not a database"):
            jiyi.open(folder, embedder=None)
    (folder / FILE_NAME).unlink()
    jiyi.open(folder, embedder=None).close()
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("x", vector=[1, 2, 3])
    with pytest.raises(jiyi.DimensionError):  # the store is fine, the argument is not
        jiyi.open(folder, embedder=None, dim=4)
    jiyi.open(folder, embedder=None).close()


# -------------------------------------------------------------------------------- versions and folders


def _set(folder: Path, key: str, value: object) -> None:
    connection = sqlite3.connect(folder / FILE_NAME)
    connection.execute("INSERT OR REPLACE INTO manifest VALUES (?, ?)", (key, value))
    connection.commit()
    connection.close()
    (folder / "ledger.sums").unlink(missing_ok=True)  # on purpose


@pytest.mark.parametrize("version", ["0", "99", "2.0"])
def test_another_format_is_refused_and_left_alone(folder: Path, version: str) -> None:
    jiyi.open(folder, embedder=None).close()
    _set(folder, "format", version)
    before = (folder / FILE_NAME).read_bytes()
    for read_only in (False, True):
        told = f"format {version}.*reads format {FORMAT_VERSION}"
        with pytest.raises(jiyi.StoreVersionError, match=told) as caught:
            jiyi.open(folder, embedder=None, read_only=read_only)
        assert (caught.value.found, caught.value.supported) == (version, FORMAT_VERSION)
    assert (folder / FILE_NAME).read_bytes() == before
    _set(folder, "format", FORMAT_VERSION)
    jiyi.open(folder, embedder=None).close()


def test_somebody_elses_database_is_refused(folder: Path) -> None:
    folder.mkdir()
    connection = sqlite3.connect(folder / FILE_NAME)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    with pytest.raises(jiyi.StoreError):
        jiyi.open(folder, embedder=None)


def test_a_store_cut_by_another_tokenizer_is_cut_again(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many([{"text": f"cat 猫{i}", "namespace": f"n{i % 2}"} for i in range(20)], vectors=np.ones((20, 3)))
        expected = engine.search("cat 猫", namespace="n0", now=0).scores
    connection = sqlite3.connect(folder / FILE_NAME)
    connection.execute("UPDATE columns SET terms = x'', freqs = x''")  # what an older version might have made of it
    connection.commit()
    connection.close()
    _set(folder, "analyzer", "0.0")
    with jiyi.open(folder, embedder=None) as engine:
        assert engine.search("cat 猫", namespace="n0", now=0).scores == expected
        assert engine.verify() == []
        assert len(engine.search("zzz", namespace="n1", query_vector=[1, 1, 1], k=20)) == 10


@pytest.mark.parametrize("name", ["a b", "a?b=c#d%20", "猫", "..x", "x'y\"z"])
def test_folders_of_any_name(tmp_path: Path, name: str) -> None:
    with jiyi.open(tmp_path / name / "deep" / "er", embedder=None) as engine:
        engine.add("x")
    with jiyi.open(str(tmp_path / name / "deep" / "er"), embedder=None, read_only=True) as engine:
        assert engine.count() == 1


def test_what_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for path in (file, file / "below"):
        with pytest.raises(jiyi.StoreError):
            jiyi.open(path, embedder=None)
    with pytest.raises(jiyi.StoreError, match=r"nothing to read|holds no store"):
        jiyi.open(tmp_path / "missing", embedder=None, read_only=True)
    assert not (tmp_path / "missing").exists()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / FILE_NAME).touch()
    with pytest.raises(jiyi.StoreError, match="holds no store"):
        jiyi.open(tmp_path / "empty", embedder=None, read_only=True)


# ------------------------------------------------------------------------------------------- read-only


def test_read_only_writes_nothing(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("cat", id="a")
    with jiyi.open(folder, embedder=None, read_only=True) as engine:
        calls = [
            lambda: engine.add("x"),
            lambda: engine.add_many([]),
            lambda: engine.update("a", text="y"),
            lambda: engine.delete("a"),
            lambda: engine.forget({}),
            lambda: engine.compact(),
        ]
        for call in calls:
            with pytest.raises(jiyi.ReadOnlyError, match="read-only"):
                call()
        assert engine.search("cat").ids == ["a"]
        assert engine.forget({}, dry_run=True) == 1
        engine.flush()
        assert engine.verify() == []


@pytest.mark.parametrize("finished", [True, False])
def test_a_read_only_mount_with_an_unfinished_log(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    """Where the log cannot be read along, what it holds is never silently left out."""
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("cat one")
        engine.flush()
        engine.add("cat two")
        copied = tmp_path / "mounted"
        shutil.copytree(folder, copied)  # as a killed writer would have left it
    if finished:
        copied = folder

    class Refused(sqlite3.Connection):
        """What a mount without room for the log's index does to `mode=ro`."""

        def execute(self, *_: object) -> sqlite3.Cursor:
            raise sqlite3.OperationalError("unable to open database file")

    real = sqlite3.connect

    def connect(database: str, **settings: Any) -> sqlite3.Connection:
        return real(database, **settings, **({"factory": Refused} if "mode=ro" in database else {}))

    monkeypatch.setattr(sqlite3, "connect", connect)
    try:
        with jiyi.open(copied, embedder=None, read_only=True) as engine:
            texts = [memory.text for memory in engine.list()]
    except jiyi.StoreError:
        assert not finished
    else:
        assert texts == ["cat one", "cat two"]


# ---------------------------------------------------------------------------------------------- damage


@pytest.fixture
def damaged(folder: Path) -> Path:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many([{"text": f"word{i} other", "id": f"i{i}"} for i in range(10)], vectors=VECTORS)
    return folder


def _sql(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / FILE_NAME)
    connection.execute(statement)
    connection.commit()
    connection.close()


LABEL_3 = "(SELECT key FROM memories WHERE id = 'i3')"


@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE memories SET text = 'tampered' WHERE key = {LABEL_3}",
        f"UPDATE memories SET metadata = '{{\"a\"' WHERE key = {LABEL_3}",
        f"UPDATE memories SET kind = 9 WHERE key = {LABEL_3}",
        f"UPDATE memories SET timestamp_us = timestamp_us + 1 WHERE key = {LABEL_3}",
        f"UPDATE memories SET id = '' WHERE key = {LABEL_3}",
        f"UPDATE columns SET vector = zeroblob(16) WHERE key = {LABEL_3}",
        f"UPDATE columns SET vector = x'00' WHERE key = {LABEL_3}",
        f"UPDATE columns SET vector = NULL WHERE key = {LABEL_3}",
        f"UPDATE columns SET terms = x'00' WHERE key = {LABEL_3}",
        f"UPDATE columns SET freqs = zeroblob(length(freqs)) WHERE key = {LABEL_3}",
        f"UPDATE columns SET timestamp_us = 0 WHERE key = {LABEL_3}",
        f"DELETE FROM columns WHERE key = {LABEL_3}",
        f"DELETE FROM memories WHERE key = {LABEL_3}",
    ],
)
def test_verify_names_what_is_damaged(damaged: Path, change: str) -> None:
    with jiyi.open(damaged, embedder=None) as engine:
        assert engine.verify() == []
    _sql(damaged, change)
    with jiyi.open(damaged, embedder=None) as engine:
        found = engine.verify()
        assert len(found) >= 1
        assert all("\n" not in line for line in found)
        # Using it meanwhile answers or says that the store is damaged, nothing else.
        for call in (lambda: engine.list(), lambda: engine.search("word1", query_vector=[1, 0, 0, 0])):
            with contextlib.suppress(jiyi.StoreError):
                call()


def test_verify_of_damaged_pages_returns_lines(damaged: Path) -> None:
    content = bytearray((damaged / FILE_NAME).read_bytes())
    for page in range(2, len(content) // 8192):
        for at in range(page * 8192 + 8, page * 8192 + 60):
            content[at] ^= 0xFF
    (damaged / FILE_NAME).write_bytes(content)
    try:
        engine = jiyi.open(damaged, embedder=None)
    except jiyi.StoreError:
        return
    with engine:
        found = engine.verify()
        assert found
        assert all(isinstance(line, str) for line in found)


def test_a_truncated_file_is_an_error_and_not_an_empty_store(damaged: Path) -> None:
    path = damaged / FILE_NAME
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.raises(jiyi.StoreError))
        engine = stack.enter_context(jiyi.open(damaged, embedder=None))
        assert engine.verify() != []
        engine.list(namespace=None)


def test_power_durability_syncs_and_works_alike(folder: Path) -> None:
    with jiyi.open(folder, embedder=None, durability="power") as engine:
        engine.add("x")
        assert engine._store.ledger._writer.execute("PRAGMA synchronous").fetchone()[0] == 2
    with jiyi.open(folder, embedder=None) as engine:
        assert engine._store.ledger._writer.execute("PRAGMA synchronous").fetchone()[0] == 1
        assert engine.count() == 1
