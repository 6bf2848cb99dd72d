"""Erasing leaves no byte in any file: proved by reading every file of the folder."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi import IndexConfig, Memory
from jiyi.analysis import analyse
from jiyi.connections import Connections
from jiyi.erase import NOTE
from jiyi.ledger import FILE_NAME
from jiyi.recall.graph import Graph
from jiyi.recall.inverted import InvertedIndex
from tests.engine.conftest import Child
from tests.engine.embedders import HashEmbedder

TINY = IndexConfig(dense_rows=8, keyword_rows=8)

ENGLISH = "The vault code of the harbour office is seventeen-owls"
CHINESE = "港口办公室保险柜的密码是十七只猫头鹰"
SECRETS = (ENGLISH, CHINESE)


@pytest.fixture(autouse=True)
def _no_secure_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some builds of SQLite overwrite what is deleted by themselves; most do not, and nothing may depend on it."""
    connect = Connections._open

    def plain(self: Connections) -> sqlite3.Connection:
        connection = connect(self)
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    monkeypatch.setattr(Connections, "_open", plain)


def parts(text: str | bytes) -> list[bytes]:
    """Every run of eight bytes of a text (for Chinese: of three characters), and of numbers those that begin one."""
    if isinstance(text, bytes):
        return [text[i : i + 8] for i in range(0, len(text) - 7, 4)]
    step = 8 if text.isascii() else 3
    return [text[i : i + step].encode() for i in range(len(text) - step + 1)]


def holding(folder: Path, *needles: str | bytes) -> list[str]:
    """Names of the files that hold eight bytes in a row of something."""
    wanted = [part for needle in needles for part in parts(needle)]
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            if any(part in content for part in wanted):
                found.append(path.name)
    return found


def marks(*memories: Memory) -> list[bytes]:
    """What derived data of memories would look like: vectors, terms as numbers, terms in hexadecimal."""
    rows = analyse(memories, [None] * len(memories), HashEmbedder(), None)
    terms = np.unique(np.frombuffer(b"".join(row.terms for row in rows), dtype=np.uint64))
    hexadecimal = [f"{term:016x}".encode() for term in terms.tolist()]
    return [*(row.vector or b"" for row in rows), *map(bytes, terms.view(np.uint8).reshape(-1, 8)), *hexadecimal]


def walks(count: int, **fields: Any) -> list[Memory]:
    return [
        Memory(text=f"walk number {i} on a plain day 平常的一天散步{i}", id=f"w{i}", **fields) for i in range(count)
    ]


def fill(engine: jiyi.Engine, count: int, **fields: Any) -> None:
    engine.add_many(walks(count, **fields))


@contextlib.contextmanager
def opened(folder: Path, config: IndexConfig = TINY, **settings: Any) -> Iterator[jiyi.Engine]:
    with jiyi.open(folder, embedder=HashEmbedder(), index_config=config, **settings) as engine:
        yield engine


# ------------------------------------------------------------------------------------------------- no byte


@pytest.mark.parametrize("count", [0, 3, 60, 800])
@pytest.mark.parametrize("config", [IndexConfig(), TINY], ids=["without-indexes", "with-indexes"])
@pytest.mark.parametrize("secret", SECRETS, ids=["en", "zh"])
def test_no_file_holds_a_byte_of_what_was_erased(folder: Path, count: int, config: IndexConfig, secret: str) -> None:
    memory = Memory(
        text=secret,
        id="secret",
        session="session-of-" + secret,
        speaker="speaker-of-" + secret,
        metadata={"where-" + secret: ["deep-" + secret]},
    )
    before, later = walks(count // 2), [Memory(text=f"later {i} 后来{i}", id=f"l{i}") for i in range(count // 2)]
    others = set(marks(*before, *later)) if count else set()
    unique = [mark for mark in marks(memory) if mark not in others]
    with opened(folder, config) as engine:
        engine.add_many(before)
        engine.add(memory)
        engine.add_many(later)
        engine.flush()
        assert holding(folder, secret)  # what is looked for would be found
        assert holding(folder, unique[0])
        assert engine.erase("secret") == 1
        engine.flush()  # indexes that were dropped are there again
        assert holding(folder, secret, *unique) == []
        assert engine.count() == count // 2 * 2
        assert "secret" not in engine.search(secret, k=50).ids
        assert engine.verify() == []
    assert holding(folder, secret, *unique) == []
    with opened(folder, config) as engine:
        engine.flush()
        assert holding(folder, secret, *unique) == []
        assert engine.count() == count // 2 * 2


@pytest.mark.parametrize("config", [IndexConfig(), TINY], ids=["without-indexes", "with-indexes"])
def test_earlier_versions_go_too(folder: Path, config: IndexConfig) -> None:
    earlier = [f"{word} edition of the rendezvous" for word in ("first", "second", "third")] + [
        "碰头地点的旧版本在灯塔"
    ]
    with opened(folder, config) as engine:
        fill(engine, 300)
        engine.add(earlier[0], id="a", session="wednesday-at-the-pier", metadata={"colour-of-the-hat": "vermilion-red"})
        engine.flush()
        engine.add(earlier[1], id="a")  # an id that exists is replaced
        engine.flush()
        engine.update("a", text=earlier[2], speaker="Marguerite-Blanchard")
        engine.update("a", text=earlier[3])
        engine.flush()
        assert holding(folder, *earlier)
        assert engine.erase(["a", "unknown"]) == 1
        engine.flush()
        assert (
            holding(
                folder, *earlier, "wednesday-at-the-pier", "colour-of-the-hat", "vermilion-red", "Marguerite-Blanchard"
            )
            == []
        )


def test_what_was_deleted_or_expired_before_goes_with_the_next_erase(folder: Path) -> None:
    with opened(folder) as engine:
        fill(engine, 50)
        engine.add(ENGLISH, id="a")
        engine.add(CHINESE, id="b", expires_at="2026-01-01")
        engine.flush()
        engine.delete("a")
        engine.forget({"id": "b"})
        assert holding(folder, *SECRETS)
        assert engine.erase("a") == 0
        engine.flush()
        assert holding(folder, *SECRETS) == []
        assert engine.erase([]) == 0


@pytest.mark.parametrize("secret", SECRETS, ids=["en", "zh"])
def test_facts_and_procedures_go_with_their_fields(folder: Path, secret: str) -> None:
    with opened(folder) as engine:
        fill(engine, 30)
        engine.add(Memory.fact("subject " + secret, "predicate " + secret, "object " + secret, id="f"))
        engine.add(
            Memory.procedure("title " + secret, ["step one " + secret, "step two"], use_when="when " + secret, id="p")
        )
        engine.outcome("p", success=True)
        engine.flush()
        assert holding(folder, secret)
        assert engine.erase(where={"kind": {"in": ["semantic", "procedural"]}}) == 2
        engine.flush()
        assert holding(folder, secret) == []
        assert engine.verify() == []


def test_a_namespace_goes_with_its_name(folder: Path) -> None:
    name = "org/the-secret-client-of-the-harbour"
    with opened(folder) as engine:
        fill(engine, 40)
        fill(engine, 40, namespace=name)
        engine.flush()
        assert engine.search("walk number 7", namespace=name).ids
        assert holding(folder, name)
        assert engine.erase(where={}, namespace=name) == 40
        assert holding(folder, name) == []
        assert engine.namespaces() == {"default": 40}
        assert list(engine.search("walk number 7", namespace=name)) == []
        # The name can be given again, and then stands for another namespace.
        engine.add("a new start", id="n", namespace=name)
        assert engine.search("new start", namespace=name).ids == ["n"]
        assert engine.get("w7").text.startswith("walk number 7")


def test_a_reader_follows_when_a_namespace_was_erased_and_made_anew(folder: Path) -> None:
    with opened(folder) as engine, jiyi.open(folder, embedder=HashEmbedder(), read_only=True) as reader:
        engine.add(ENGLISH, id="a", namespace="ana")
        engine.delete("a", namespace="ana")
        assert list(reader.search("vault", namespace="ana")) == []
        engine.erase(where={}, namespace="ana")
        engine.add("the vault is empty", id="b", namespace="ana")
        assert reader.search("vault", namespace="ana").ids == ["b"]
        engine.delete("b", namespace="ana")
        assert list(reader.search("vault", namespace="ana")) == []
        engine.compact()
        engine.add("the vault is full", id="c", namespace="ana")
        assert reader.search("vault", namespace="ana").ids == ["c"]


def test_only_what_was_meant_goes(folder: Path) -> None:
    with opened(folder) as engine:
        engine.add("at home", id="same", namespace="ana")
        engine.add("at sea", id="same", namespace="bo")
        engine.add("at work", id="other", namespace="ana", speaker="Bo")
        assert engine.erase("same", namespace="ana") == 1
        assert engine.erase(where={"speaker": "nobody"}, namespace="ana") == 0
        assert [memory.text for memory in engine.list(namespace=None)] == ["at sea", "at work"]
        assert engine.erase(where={"speaker": "Bo"}, namespace="ana") == 1
        assert engine.erase("same", namespace="never-heard-of") == 0


def test_what_a_stopped_reindex_staged_goes(folder: Path) -> None:
    class Failing(HashEmbedder):
        calls = 0

        def embed(self, texts: Any) -> Any:
            Failing.calls += 1
            if Failing.calls > 1:
                raise KeyboardInterrupt
            return super().embed(texts)

    other = HashEmbedder(dim=16, name="other")
    [row] = analyse([Memory(text=ENGLISH)], [None], other, None)
    with opened(folder) as engine:
        engine.add(ENGLISH, id="a")
        engine.add(CHINESE, id="b")
        fill(engine, 400)
        with pytest.raises(KeyboardInterrupt):
            engine.reindex(Failing(dim=16, name="other"), batch_size=256)
        assert holding(folder, row.vector or b"")
        engine.update("a", text="said anew")  # what was staged is of the version before
        assert engine.erase(["a", "b"]) == 2
        assert holding(folder, row.vector or b"") == []
        assert engine.reindex(other).memories == 400


def test_a_memory_that_is_erased_during_a_reindex_is_not_staged_again(folder: Path) -> None:
    class Slow(HashEmbedder):
        def embed(self, texts: Any) -> Any:
            if any("vault" in text for text in texts):
                assert engine.erase("a") == 1
            return super().embed(texts)

    slow = Slow(dim=16, name="other")
    vector = HashEmbedder.embed_query(slow, ENGLISH).tobytes()
    with opened(folder) as engine:
        engine.add(ENGLISH, id="a")
        fill(engine, 20)
        stopped = threading.Event()

        def stop(done: int, _: int) -> None:
            stopped.set()
            assert holding(folder, vector) == []

        assert engine.reindex(slow, progress=stop).memories == 20
        assert stopped.is_set()
        engine.flush()
        assert holding(folder, ENGLISH, vector) == []


@pytest.mark.parametrize("words", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_what_was_merged_into_a_memory_goes_with_it(folder: Path, words: str) -> None:
    near = f"{words} {words} {words} {words}"
    with opened(folder) as engine:
        fill(engine, 20)
        for i in range(3):
            engine.add(near, id=f"m{i}", timestamp=f"2026-01-0{i + 1}", speaker="Marguerite-Blanchard")
        [merge] = engine.consolidate(where={"speaker": "Marguerite-Blanchard"}).merges
        into = merge.memory.id
        hidden = next(f"m{i}" for i in range(3) if f"m{i}" != into)
        with pytest.raises(ValueError, match=f"'{hidden}' is merged into '{into}'"):
            engine.erase(hidden)
        assert engine.count() == 21
        engine.flush()
        assert holding(folder, words, "Marguerite-Blanchard")
        assert engine.erase([hidden, into]) == 1
        engine.flush()
        assert holding(folder, words, "Marguerite-Blanchard") == []
        assert engine.unconsolidate(into) == 0
        assert engine.verify() == []


def test_a_filter_that_holds_for_what_is_hidden_alone_erases_nothing(engine: jiyi.Engine) -> None:
    for i, name in enumerate(("Ana", "Bob")):
        engine.add(ENGLISH, id=name, timestamp=i, session=name, namespace="n")
    engine.add("apart", id="apart", session="Ana", namespace="n")
    engine.add(ENGLISH, session="Ana")
    assert engine.consolidate(namespace="n").ids == ["Bob"]
    with pytest.raises(ValueError, match="'Ana' as it was before it was merged into 'Bob'"):
        engine.erase(where={"session": "Ana"}, namespace="n")
    assert engine.count(namespace="n") == 2
    engine.update("Bob", text="something else", namespace="n")
    with pytest.raises(ValueError, match="merged into 'Bob'"):
        engine.erase(where={"text": ENGLISH}, namespace="n")
    assert engine.erase(where={"session": "Ana"}) == 1  # in another namespace
    assert engine.erase(where={"session": {"in": ["Ana", "Bob"]}}, namespace="n") == 2
    assert engine.unconsolidate("Bob", namespace="n") == 0
    assert engine.count(namespace=None) == 0


def test_no_trace_of_what_was_distilled(folder: Path) -> None:
    with opened(folder) as engine:
        engine.add(ENGLISH, id="a", session="wednesday-at-the-pier")
        fill(engine, 5, session="monday")
        distilled = engine.distill(extractor=lambda batch: ["the code is " + batch[0].text[-14:]], name="x")
        assert len(distilled.ids) == 2
        assert engine.erase(["a", *distilled.ids]) == 3
        assert holding(folder, ENGLISH, "wednesday-at-the-pier") == []
        assert engine.verify() == []


def test_an_index_that_is_being_built_is_dropped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()
    build = Graph.build.__func__  # type: ignore[attr-defined]
    built: list[bool] = []

    def slowly(cls: type[Graph], view: Any, config: Any, cancelled: Callable[[], bool]) -> Graph | None:
        began.set()
        deadline = time.monotonic() + 20
        while not built and not cancelled() and time.monotonic() < deadline:
            time.sleep(0.001)
        graph: Graph | None = build(cls, view, config, lambda: False)  # as if it did not look
        built.append(True)
        return graph

    monkeypatch.setattr(Graph, "build", classmethod(slowly))
    [row] = analyse([Memory(text=ENGLISH)], [None], HashEmbedder(), None)
    vector = np.frombuffer(row.vector or b"", dtype=np.float32)
    with opened(folder) as engine:
        fill(engine, 20)
        engine.add(ENGLISH, id="a")
        engine.search("walk")  # loading the namespace makes its indexes due
        assert began.wait(20)
        assert engine.erase("a") == 1
        assert built  # it was waited for
        engine.flush()
        assert len(built) == 2  # and built again
        assert holding(folder, vector.tobytes()) == []
        assert engine.search("walk number 3", dense_plan="indexed").ids
        assert sum(path.name.startswith("graph-") for path in (folder / "indexes").iterdir()) == 1


def test_an_inverted_index_that_is_being_built_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, done = threading.Event(), threading.Event()
    build = InvertedIndex.build.__func__  # type: ignore[attr-defined]

    def slowly(cls: type[InvertedIndex], view: Any, terms: Any, at: Any, cancelled: Callable[[], bool]) -> Any:
        if not began.is_set():
            began.set()
            deadline = time.monotonic() + 20
            while not cancelled() and time.monotonic() < deadline:
                time.sleep(0.001)
            done.set()
        return build(cls, view, terms, at, cancelled)

    monkeypatch.setattr(InvertedIndex, "build", classmethod(slowly))
    with jiyi.open(folder, embedder=None, index_config=TINY) as engine:
        fill(engine, 20)
        engine.add(CHINESE, id="a")
        engine.search("walk")
        assert began.wait(20)
        assert engine.erase("a") == 1
        assert done.is_set()
        engine.flush()
        assert not list((folder / "indexes").glob("partial-*"))
        unique = {*marks(Memory(text=CHINESE))} - {*marks(*walks(20))}
        assert holding(folder, CHINESE, *unique) == []
        assert engine.search("walk number 3", keyword_plan="indexed").ids
        assert engine.stats()["index_error"] is None


# ------------------------------------------------------------------------------ plain delete, compact


def test_delete_leaves_bytes_and_compact_takes_them_out_of_the_ledger(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        fill(engine, 200)
        engine.add(ENGLISH, id="a")
        engine.add(CHINESE, id="b", expires_at="2026-01-01")
        engine.delete("a")
        engine.flush()
        assert holding(folder, *SECRETS)
        assert engine.compact(now="2026-02-01") == 1
        assert holding(folder, *SECRETS) == []


# --------------------------------------------------------------------------------------------- readers


def test_a_reader_that_does_not_end_is_named(folder: Path) -> None:
    with opened(folder) as engine:
        fill(engine, 30)
        engine.add(ENGLISH, id="a")
        other = sqlite3.connect(folder / FILE_NAME, isolation_level=None)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM memories").fetchone()
        with pytest.raises(
            jiyi.StoreError, match=r"the memories are deleted.*another process has been reading for 0.2"
        ):
            engine.erase("a", wait_s=0.2)
        assert engine.count() == 30
        assert list(engine.list(where={"id": "a"})) == []
        assert engine.stats()["erasing"] is True
        assert holding(folder, ENGLISH)
        engine.add("life goes on", id="n")
        other.execute("COMMIT")
        assert engine.erase("a") == 0
        assert engine.stats()["erasing"] is False
        assert holding(folder, ENGLISH) == []
        other.close()


def test_a_thread_that_reads_is_named(folder: Path) -> None:
    with opened(folder) as engine:
        engine.add(CHINESE, id="a")
        with engine._store.ledger.changes(1) as changes:
            assert len(changes.rows) == 1
            with pytest.raises(jiyi.StoreError, match="a thread of this process has been reading"):
                engine.erase("a", wait_s=0)
        assert engine.compact() == 0  # goes on with it
        assert holding(folder, CHINESE) == []
        assert engine.stats()["erasing"] is False


def test_opening_goes_on_with_what_a_reader_was_in_the_way_of(folder: Path) -> None:
    other = None
    with opened(folder) as engine:
        fill(engine, 10)
        engine.add(ENGLISH, id="a")
        other = sqlite3.connect(folder / FILE_NAME, isolation_level=None)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM memories").fetchone()
        with pytest.raises(jiyi.StoreError):
            engine.erase("a", wait_s=0)
    with jiyi.open(folder, embedder=HashEmbedder(), read_only=True) as reader:
        assert reader.stats()["erasing"] is True  # reading works, and erases nothing
        assert "a" not in reader.search(ENGLISH).ids
    with opened(folder) as engine:  # it opens all the same
        assert engine.stats()["erasing"] is True
    other.close()
    with opened(folder) as engine:
        assert engine.stats()["erasing"] is False
        assert holding(folder, ENGLISH) == []


def test_readers_that_come_and_go_are_not_in_the_way(folder: Path) -> None:
    ends, errors = threading.Event(), []
    with opened(folder) as engine, jiyi.open(folder, embedder=HashEmbedder(), read_only=True) as reader:
        fill(engine, 200)
        engine.add_many([Memory(text=f"{ENGLISH} {i} {CHINESE}", id=f"s{i}", namespace="ana") for i in range(40)])
        engine.flush()

        def search(of: jiyi.Engine, namespace: str, query: str) -> None:
            while not ends.is_set():
                try:
                    hits = of.search(query, namespace=namespace, k=5)
                    assert len(hits) == len(set(hits.ids))
                    of.count(namespace=namespace)
                except Exception as error:  # told below
                    errors.append(error)
                    return

        threads = [
            threading.Thread(target=search, args=arguments)
            for arguments in [
                (engine, "default", "walk number 5"),
                (engine, "ana", "猫头鹰 vault"),
                (reader, "ana", "vault 密码"),
                (reader, "default", "散步"),
            ]
        ]
        for thread in threads:
            thread.start()
        for i in range(8):
            assert engine.erase(f"s{i}", namespace="ana") == 1
            engine.add(f"{ENGLISH} again", id=f"t{i}", namespace="ana")
        assert engine.erase(where={}, namespace="ana") == 40
        ends.set()
        for thread in threads:
            thread.join()
        assert errors == []
        engine.flush()
        assert holding(folder, *SECRETS) == []
        assert engine.verify() == []


# --------------------------------------------------------------------------------------------- crashes

_CRASH = """
import os, signal
import jiyi
from jiyi.connections import Connections
from jiyi.ledger import Ledger
from jiyi.recall.keeper import IndexKeeper
from jiyi import IndexConfig, Memory
from tests.engine.embedders import HashEmbedder

folder, point, english, chinese = sys.argv[1:5]
connect = Connections._open
def plain(self):
    connection = connect(self)
    connection.execute("PRAGMA secure_delete = OFF")
    return connection
Connections._open = plain
engine = jiyi.open(folder, embedder=HashEmbedder(), index_config=IndexConfig(dense_rows=8, keyword_rows=8))
engine.add_many([Memory(text=f"walk {i} 散步", id=f"w{i}") for i in range(60)])
engine.add(english, id="a", metadata={"note": chinese})
engine.add(chinese, id="b", namespace="harbour-pilots-guild")
engine.flush()

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

class Dying:
    def __init__(self, connection):
        self.connection = connection
    def __getattr__(self, name):
        return getattr(self.connection, name)
    def execute(self, statement, *arguments):
        if point == "before vacuum" and statement == "VACUUM":
            die()
        if point == "before checkpoint" and "wal_checkpoint" in statement:
            die()
        answer = self.connection.execute(statement, *arguments)
        if point == "after checkpoint" and "wal_checkpoint" in statement:
            die()
        return answer

if point == "before indexes":
    IndexKeeper.erase = die
engine._store.ledger._connections.writer = Dying(engine._store.ledger._writer)
engine.erase(["a"]) if point != "namespace" else None
if point == "namespace":
    Ledger.scrub = die
    engine.erase(where={}, namespace="harbour-pilots-guild")
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
@pytest.mark.parametrize(
    "point", ["before indexes", "before vacuum", "before checkpoint", "after checkpoint", "namespace"]
)
def test_a_process_that_dies_on_the_way_leaves_the_rest_to_the_next(folder: Path, child: Child, point: str) -> None:
    done = child(_CRASH, folder, point, ENGLISH, CHINESE)
    assert done.returncode == -signal.SIGKILL, done.stderr
    gone = "harbour-pilots-guild" if point == "namespace" else ENGLISH
    if point != "after checkpoint":
        assert holding(folder, gone)
    with jiyi.open(folder, embedder=HashEmbedder(), read_only=True) as reader:
        assert reader.stats()["erasing"] is True
        assert reader.count(namespace=None) == 61  # it was deleted, whatever else
    with opened(folder) as engine:
        assert engine.stats()["erasing"] is False
        assert holding(folder, gone) == []
        engine.flush()
        assert holding(folder, gone) == []
        assert engine.verify() == []
        assert engine.search("walk 7").ids


def test_a_failing_disk_leaves_the_rest_to_the_next_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(folder) as engine:
        engine.add(ENGLISH, id="a")
        writer = engine._store.ledger._writer

        class Full:
            def __getattr__(self, name: str) -> Any:
                return getattr(writer, name)

            def execute(self, statement: str, *arguments: Any) -> Any:
                if statement == "VACUUM":
                    raise sqlite3.OperationalError("database or disk is full")
                return writer.execute(statement, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(engine._store.ledger._connections, "writer", Full())
            with pytest.raises(jiyi.StoreError, match="disk is full"):
                engine.erase("a")
            assert engine._store.ledger.manifest()[NOTE] == "[1]"
        assert engine.erase([]) == 0
        assert holding(folder, ENGLISH) == []


# ------------------------------------------------------------------------------------------- arguments


def test_a_store_in_memory_forgets_as_well(engine: jiyi.Engine) -> None:
    engine.add(CHINESE, id="a")
    assert engine.erase("a") == 1
    assert list(engine.search(CHINESE)) == []
    assert engine.namespaces() == {}
    assert engine.stats()["erasing"] is False


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ((), {}),
        (("a",), {"where": {}}),
        ((5,), {}),
        ((["a", ""],), {}),
        ((), {"where": "all"}),
        ((), {"where": {"colour": "red"}}),
        (("a",), {"namespace": ""}),
        (("a",), {"namespace": None}),
        ((), {"where": {}, "namespace": "def*"}),
        (("a",), {"wait_s": -1}),
        (("a",), {"wait_s": float("nan")}),
        (("a",), {"wait_s": "long"}),
        (("a",), {"wait_s": True}),
    ],
)
def test_wrong_arguments_erase_nothing(
    engine: jiyi.Engine, arguments: tuple[Any, ...], settings: dict[str, Any]
) -> None:
    engine.add("still here", id="a")
    with pytest.raises((TypeError, ValueError)):
        engine.erase(*arguments, **settings)
    assert engine.count() == 1


def test_a_reader_cannot_erase(folder: Path) -> None:
    with opened(folder) as engine:
        engine.add("still here", id="a")
    with (
        jiyi.open(folder, embedder=HashEmbedder(), read_only=True) as reader,
        pytest.raises(jiyi.StoreError, match=r"erase\(\) writes"),
    ):
        reader.erase("a")
