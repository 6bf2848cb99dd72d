"""Read-only engines follow the process that writes, whatever it does, also where they can write nothing at all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jiyi
import jiyi.store
from tests.engine.conftest import Child
from tests.engine.embedders import HashEmbedder, HashTable
from tests.nursery import Nursery

ROOT = Path(__file__).parent.parent.parent
SMALL = jiyi.IndexConfig(dense_rows=20, keyword_rows=20)

# Answers one line for each line it is asked.
_READER = """
import json, jiyi
engine = None
for line in sys.stdin:
    call, *words = line.split()
    try:
        if call == "open":
            engine = jiyi.open(sys.argv[1], embedder=None, read_only=True)
            answer = engine.count(namespace=None)
        elif call == "close":
            engine.close()
            answer = None
        elif call == "search":
            answer = sorted(engine.search(" ".join(words), k=50, diversity="none", preset="keyword").ids)
        elif call == "refresh":
            answer = engine.refresh()
        elif call == "list":
            answer = sorted(memory.id for memory in engine.list())
        else:
            answer = getattr(engine, call)()
    except jiyi.JiyiError as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
"""

_WRITER = """
import jiyi, os, signal
engine = jiyi.open(sys.argv[1], embedder=None)
engine.add("cat killed", id="killed")
os.kill(os.getpid(), signal.SIGKILL)
"""


class Reader:
    """A process that reads a folder and does as it is told."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ask(self, line: str) -> Any:
        import json

        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            pytest.fail(self._process.stderr.read())
        return json.loads(answer)

    def end(self) -> None:
        self._process.communicate(timeout=60)


def _python(code: str, *arguments: object) -> list[str]:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"
    return [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]


def _mounted(folder: Path, at: Path, command: list[str]) -> list[str]:
    """A command that has a folder mounted read-only, where only it sees that."""
    script = 'mount --bind "$1" "$2" && mount -o remount,ro,bind "$2" && shift 2 && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(folder), str(at), *command]


@pytest.fixture
def on_read_only_mount(folder: Path, tmp_path: Path) -> Iterator[Callable[[], Reader]]:
    """Starts readers to which the store's folder is mounted read-only."""
    at = tmp_path / "mounted"
    at.mkdir()
    folder.mkdir()
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here to mount a folder read-only with")
    probe = _mounted(folder, at, ["sh", "-c", '! touch "$1/x" 2>/dev/null', "sh", str(at)])
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode != 0 or (folder / "x").exists():
        pytest.skip(f"a folder cannot be mounted read-only here: {done.stderr.strip()}")
    readers: list[Reader] = []

    def start() -> Reader:
        readers.append(Reader(_mounted(folder, at, _python(_READER, at))))
        return readers[-1]

    yield start
    for reader in readers:
        reader.end()


def test_on_a_read_only_mount(folder: Path, on_read_only_mount: Callable[[], Reader], child: Child) -> None:
    """It sees what is written while it looks: begun before the writer, beside it, and after it was killed."""
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("cat one", id="one")
    reader = on_read_only_mount()
    assert reader.ask("open") == 1  # nobody writes: there is no log, and no room to make one
    assert reader.ask("search cat") == ["one"]
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("cat two", id="two")
        assert reader.ask("search cat") == ["one", "two"]
        assert reader.ask("list") == ["one", "two"]
        engine.flush()
        engine.add_many([{"text": f"dog {i}", "id": f"dog{i}"} for i in range(300)])
        assert reader.ask("count") == 302
        engine.forget({"id": {"in": [f"dog{i}" for i in range(1, 300)]}})
        engine.compact()
        assert reader.ask("search dog") == ["dog0"]
        engine.erase("dog0", wait_s=10)
        assert reader.ask("search dog") == []
        assert reader.ask("verify") == []
        late = on_read_only_mount()
        assert late.ask("open") == 2
    for each in (reader, late):
        assert each.ask("search cat") == ["one", "two"]
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("cat three", id="three")
        for each in (reader, late):
            assert each.ask("refresh") is None
            assert each.ask("search cat") == ["one", "three", "two"]
    assert child(_WRITER, folder).returncode == -signal.SIGKILL
    for each in (reader, late, on_read_only_mount()):
        each.ask("open")
        assert each.ask("search cat") == ["killed", "one", "three", "two"]
        assert each.ask("verify") == []
    with jiyi.open(folder, embedder=None) as engine:
        assert engine.delete(["killed", "three"]) == 2
        assert reader.ask("search cat") == ["one", "two"]


def test_opening_on_a_read_only_mount_again_and_again(folder: Path, on_read_only_mount: Callable[[], Reader]) -> None:
    """Each time there is no writer, one that opens, and one that closes, in turn."""
    reader = on_read_only_mount()
    ids: list[str] = []
    for i in range(4):
        with jiyi.open(folder, embedder=None) as engine:
            ids.append(engine.add(f"cat {i}", id=f"cat{i}"))
            if i == 0:
                reader.ask("open")
            assert reader.ask("search cat") == sorted(ids)
            if i == 2:
                engine.flush()
                reader.ask("close")
        if i == 2:
            assert reader.ask("open") == len(ids)
        assert reader.ask("search cat") == sorted(ids)


def test_whatever_the_writer_does_is_seen_at_once(folder: Path) -> None:
    with (
        jiyi.open(folder, embedder=HashTable(), index_config=SMALL) as writer,
        jiyi.open(folder, embedder=None, read_only=True, index_config=SMALL) as reader,
    ):

        def same() -> None:
            reader.refresh()
            assert reader.list(namespace=None) == writer.list(namespace=None)
            for name in ("default", "other"):
                of = {"namespace": name, "k": 100, "preset": "keyword", "now": "2030-01-01T00:00:00Z"}
                mine, theirs = writer.search("cat", **of), reader.search("cat", **of)
                assert theirs.ids == mine.ids
                assert theirs.scores == pytest.approx(mine.scores)
            assert reader.count(namespace=None) == writer.count(namespace=None)

        writer.add_many([{"text": f"cat {i}", "id": f"c{i}"} for i in range(50)])
        same()
        writer.add_many([f"cat {i}" for i in range(5)], namespace="other")
        same()
        writer.flush()
        writer.update("c3", text="a cat that is another")
        writer.delete("c4")
        same()
        writer.reinforce("c5")
        assert reader.get("c5").uses == 1
        writer.compact()
        same()
        writer.reindex(HashEmbedder(16, "another"))
        same()
        writer.erase(["c6", "c7"])
        same()
        writer.erase(where={}, namespace="other")
        same()
        assert reader.search("cat", namespace="other").ids == []
        writer.add("cat again", namespace="other")
        same()
        assert reader.stats()["embedder"] == "another"


def test_only_what_is_looked_at_is_caught_up(folder: Path) -> None:
    """A reader of many namespaces pays for the one that it searches; `refresh` catches up everywhere."""
    names = [f"user{i}" for i in range(20)]
    with (
        jiyi.open(folder, embedder=None) as writer,
        jiyi.open(folder, embedder=None, read_only=True) as reader,
    ):
        for name in names:
            writer.add("cat", namespace=name)
            assert len(reader.search("cat", namespace=name)) == 1
        for name in names:
            writer.add("cat two", namespace=name)
        store = reader._store
        sizes = {name: store._partitions[name].view.n for name in names}
        assert len(reader.search("cat", namespace="user3", diversity="none")) == 2
        assert {name: store._partitions[name].view.n for name in names} == {**sizes, "user3": 2}
        reader.refresh()
        assert {store._partitions[name].view.n for name in names} == {2}


def test_threads_of_a_reader_do_not_wait_for_one_that_catches_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown meanwhile is hardly older than it."""
    monkeypatch.setattr(jiyi.store, "_MOST_BEHIND_S", 3600.0)  # however slow this machine is
    with (
        jiyi.open(folder, embedder=None) as writer,
        jiyi.open(folder, embedder=None, read_only=True) as reader,
    ):
        writer.add("cat", id="a")
        assert reader.search("cat").ids == ["a"]
        found: list[list[str]] = []
        with reader._store.writing():  # as a thread that catches up with much would
            thread = threading.Thread(target=lambda: found.append(reader.search("cat").ids))
            thread.start()
            thread.join(60)
            assert found == [["a"]]
        writer.add("cat two", id="b")
        assert sorted(reader.search("cat").ids) == ["a", "b"]


def test_many_readers_open_while_the_writer_moves_its_log(folder: Path) -> None:
    wrong: list[BaseException] = []
    stop = threading.Event()
    with jiyi.open(folder, embedder=None) as writer:
        writer.add("cat")

        def read() -> None:
            try:
                while not stop.is_set():
                    with jiyi.open(folder, embedder=None, read_only=True) as reader:
                        before = reader.count()
                        assert len(reader.search("cat", k=5)) == min(5, before) or before < 5
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for i in range(60):
            writer.add(f"cat {i}")
            if i % 3 == 0:
                writer.flush()
            if i % 20 == 0:
                writer.compact()
        stop.set()
        for thread in threads:
            thread.join(60)
        assert wrong == []
        assert writer.count() == 61


# ---------------------------------------------------------------------------------------------------- lock


@pytest.mark.skipif(sys.platform == "win32", reason="locks are made in another way there")
@pytest.mark.parametrize("name", ["ENOLCK", "EOPNOTSUPP", "ENOSYS", "EINVAL"])
def test_a_file_system_without_locks_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It is no other process that is in the way, and nobody must look for one."""
    import errno
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(jiyi.StoreError, match=r"cannot be locked .*NFS") as caught:
        jiyi.open(folder, embedder=None)
    assert not isinstance(caught.value, jiyi.StoreLockedError)
    assert isinstance(caught.value.__cause__, OSError)
    monkeypatch.undo()
    jiyi.open(folder, embedder=None).close()


@pytest.mark.parametrize(
    "left",
    [f"process {os.getpid()} on here (python)\n".encode(), b"\xff\xfe\0 no text", b""],
    ids=["this process", "no text", "empty"],
)
def test_what_stands_in_the_lock_file_is_no_lock(folder: Path, left: bytes) -> None:
    """A process id may be in use again, by another process or in another container."""
    folder.mkdir()
    (folder / "writer.lock").write_bytes(left)
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("cat")
        with pytest.raises(jiyi.StoreLockedError, match=f"process {os.getpid()} "):
            jiyi.open(folder, embedder=None)


def test_a_holder_that_says_nothing(folder: Path) -> None:
    with jiyi.open(folder, embedder=None):
        (folder / "writer.lock").write_bytes(b"\xff\xfe\0")
        with pytest.raises(jiyi.StoreLockedError, match="another process"):
            jiyi.open(folder, embedder=None)


# ---------------------------------------------------------------------------------------------- all together


def test_a_writer_that_is_killed_and_readers_that_go_on(folder: Path, nursery: Nursery | None) -> None:
    from tests.stress.processes import Processes

    run = Processes(folder, 3, nursery)
    run.run(5.0, kill_every_s=1.0, readers=1, kills=2)
    assert run.wrong == []
    assert run.kills >= 2
    assert run.board["added"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_processes_at_full_length(folder: Path, seed: int) -> None:
    from tests.stress.processes import Processes

    run = Processes(folder, seed)
    run.run(120.0)
    assert run.wrong == []
    assert run.done["reader"]["found"] > 100
    assert run.done["contender"]["refused"] > 10
