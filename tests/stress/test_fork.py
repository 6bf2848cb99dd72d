"""A forked child that touches an engine gets a clear error or a working handle, and never hangs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine.conftest import Child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

# In the child: what it can do with the parent's engine, and with one of its own. Whatever hangs is killed by an alarm.
_COMMON = """
import gc, jiyi, multiprocessing, os, signal, threading, time, warnings
warnings.filterwarnings("ignore", message=".*multi-threaded.*fork.*")  # that is the point
folder = sys.argv[1]

def forked(work):
    "Run work() in a forked child that has 60 seconds; return how it ended."
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            signal.alarm(60)
            work()
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitpid(pid, 0)[1]

def in_child():
    try:
        engine.search("cat")
    except jiyi.ForkedError as error:
        assert error.pid == os.getpid() and not error.busy
    else:
        raise AssertionError("the parent's engine works in the child")
    engine.close()
    with jiyi.open(folder, embedder=None, read_only=True) as own:
        assert "cat" in own.search("cat")[0].memory.text
        assert own.count() > 0
    try:
        jiyi.open(folder, embedder=None)
    except jiyi.StoreLockedError as error:
        assert str(os.getppid()) in error.holder
    else:
        raise AssertionError("two writers")
"""


def _run(child: Child, code: str, folder: Path) -> str:
    done = child(_COMMON + code, folder, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_while_other_threads_are_in_native_code(folder: Path, child: Child) -> None:
    """Locks that another thread holds when the process forks are held for ever in the child."""
    code = """
engine = jiyi.open(folder, embedder=None, index_config=jiyi.IndexConfig(dense_rows=40, keyword_rows=40))
engine.add_many([f"cat number {i}" for i in range(100)])
engine.search("cat")
stop = threading.Event()
wrong = []

def work(call):
    try:
        while not stop.is_set():
            call()
    except BaseException as error:
        wrong.append(error)

calls = [
    lambda: engine.search("cat number 7"),
    lambda: engine.list(limit=5),
    lambda: (engine.add("cat more", id=f"m{time.time_ns() % 50}"), engine.delete("m7")),
    lambda: (engine.stats(), engine.verify(), time.sleep(0.01)),
]
threads = [threading.Thread(target=work, args=(call,)) for call in calls]
for thread in threads:
    thread.start()
ended = [forked(in_child) for _ in range(12)]
stop.set()
for thread in threads:
    thread.join()
assert not wrong, wrong
assert ended == [0] * 12, ended
assert engine.verify() == []
assert engine.count() in (100 + i for i in range(51))
engine.close()
print("ok")
"""
    assert _run(child, code, folder) == "ok\n"


def test_a_child_takes_locks_of_its_own(folder: Path, child: Child) -> None:
    """What SQLite remembers of the parent's locks is no lock of the child's."""
    if not Path("/proc/locks").exists():
        pytest.skip("there is no /proc/locks here that shows who holds what")
    code = """
engine = jiyi.open(folder, embedder=None)
engine.add("cat")
engine.search("cat")
ledger = os.stat(os.path.join(folder, "ledger.sqlite")).st_ino

def locks():
    me, lines = str(os.getpid()), open("/proc/locks").read().splitlines()
    fields = [line.split() for line in lines]
    return [f for f in fields if me in f and f[-3].endswith(f":{ledger}")]

def look():
    assert locks() == []
    with jiyi.open(folder, embedder=None, read_only=True) as own:
        own.search("cat")
        assert locks(), "the child reads without a lock"
    assert locks() == []

held = len(locks())
assert held
assert forked(look) == 0
assert len(locks()) == held, "the child has let go of the parent's locks"
engine.add("cat two")
engine.close()
print("ok")
"""
    assert _run(child, code, folder) == "ok\n"


def test_a_child_that_ends_normally_leaves_the_store_alone(folder: Path, child: Child) -> None:
    """Neither exit handlers nor the garbage collector of the child close, roll back or delete what is the parent's."""
    code = """
engine = jiyi.open(folder, embedder=None, index_config=jiyi.IndexConfig(dense_rows=10, keyword_rows=10))
engine.add_many([f"cat {i}" for i in range(30)])
engine.search("cat")
engine.flush()
before = sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    engine.close()
    del engine
    gc.collect()
    sys.exit(0)  # through the exit handlers
assert os.waitpid(pid, 0)[1] == 0
process = multiprocessing.get_context("fork").Process(target=engine.close)
process.start()
process.join(60)
assert process.exitcode == 0, process.exitcode
assert sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names) == before
assert len(engine.search("cat", k=50)) == 30
engine.add("cat more")
assert engine.verify() == []
engine.close()
with jiyi.open(folder, embedder=None) as engine:
    assert engine.count() == 31
print("ok")
"""
    assert _run(child, code, folder) == "ok\n"


def test_a_child_forked_inside_a_transaction(folder: Path, child: Child) -> None:
    """The child neither ends the transaction nor opens the store with what it knows of the parent's locks."""
    code = """
engine = jiyi.open(folder, embedder=None)
engine.add("cat")
store = engine._store

def refused():
    try:
        jiyi.open(folder, embedder=None, read_only=True)
    except jiyi.ForkedError as error:
        assert error.busy and "spawn" in str(error)
    else:
        raise AssertionError("opened")
    with jiyi.open(folder + "-other", embedder=None) as other:  # another file is another matter
        other.add("dog")
        assert len(other.search("dog")) == 1

with store.ledger._writing() as connection:
    connection.execute("INSERT INTO namespaces (name) VALUES ('half')")
    assert forked(refused) == 0
assert store.ledger.namespace_number("half") is not None
assert engine.verify() == []
engine.close()
print("ok")
"""
    assert _run(child, code, folder) == "ok\n"


def test_a_long_call_does_not_hold_up_a_fork_for_ever(folder: Path, child: Child) -> None:
    """A thread that reads and never ends: the fork goes on, and its child is told why it can open nothing."""
    code = """
import jiyi.connections
jiyi.connections._FORK_WAIT_S = 0.3
engine = jiyi.open(folder, embedder=None)
engine.add("cat")
reading, stop = threading.Event(), threading.Event()

def read():
    with engine._store.ledger.reading():
        reading.set()
        stop.wait(60)

thread = threading.Thread(target=read)
thread.start()
reading.wait(60)

def refused():
    for path in (folder, folder + "-other"):
        try:
            jiyi.open(path, embedder=None, read_only=path == folder)
        except jiyi.ForkedError as error:
            assert error.busy
        else:
            raise AssertionError("opened")

assert forked(refused) == 0
stop.set()
thread.join()
assert forked(in_child) == 0
engine.add("cat two")
engine.close()
print("ok")
"""
    assert _run(child, code, folder) == "ok\n"


def test_children_write_when_the_parent_has_closed(folder: Path, child: Child) -> None:
    """A pool of forked workers, each of which opens the store in its turn."""
    code = """
engine = jiyi.open(folder, embedder=None)
engine.add("cat 0")
engine.close()

def write():
    with jiyi.open(folder, embedder=None) as own:
        own.add(f"cat {own.count()}")
        assert len(own.search("cat", k=100, diversity="none")) == own.count()

assert [forked(write) for _ in range(5)] == [0] * 5
with jiyi.open(folder, embedder=None) as engine:
    assert sorted(memory.text for memory in engine.list()) == [f"cat {i}" for i in range(6)]
print("ok")
"""
    assert _run(child, code, folder) == "ok\n"


def test_an_engine_in_memory(child: Child, tmp_path: Path) -> None:
    code = """
engine = jiyi.open(None, embedder=None)
engine.add("cat")

def work():
    try:
        engine.search("cat")
    except jiyi.ForkedError:
        pass
    else:
        raise AssertionError("works")
    engine.close()
    with jiyi.open(None, embedder=None) as own:
        own.add("dog")
        assert len(own.search("dog")) == 1

assert forked(work) == 0
assert len(engine.search("cat")) == 1
print("ok")
"""
    assert _run(child, code, tmp_path) == "ok\n"


def test_models_work_in_the_child(folder: Path, child: Child) -> None:
    """The table that ships, loaded in the parent, and one that another thread is loading."""
    code = """
from jiyi.models.static import StaticEmbedder
StaticEmbedder._lock.acquire()  # as another thread would have it while it loads

def work():
    with jiyi.open(folder) as own:
        own.add("I take my coffee black")
        assert own.search("how do I drink coffee")[0].memory.text == "I take my coffee black"

assert forked(work) == 0
StaticEmbedder._lock.release()
assert forked(lambda: jiyi.open(folder, read_only=True).close()) == 0
print("ok")
"""
    assert _run(child, code, folder) == "ok\n"
