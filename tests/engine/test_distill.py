"""An extractor makes lasting memories of what happened: once, in one piece, and losing nothing whatever it does."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import jiyi
from jiyi import Memory
from jiyi.distill import Distilled, extractor_name
from tests.engine.conftest import Child
from tests.engine.embedders import HashEmbedder

TALK: list[dict[str, Any]] = [
    {"id": name, "text": text, "session": session, "speaker": speaker, "timestamp": day}
    for name, text, session, speaker, day in (
        ("a1", "I moved to Lyon last week", "english", "Ana", "2026-01-01"),
        ("a2", "and I like the rivers there", "english", "Ana", "2026-01-02"),
        ("b1", "我上周搬到了上海", "中文", "小明", "2026-02-01"),
        ("b2", "我很喜欢那里的夜景", "中文", "小明", "2026-02-02"),
    )
]


class Extractor:
    """Says what it was given, and remembers that."""

    def __init__(self, made: Callable[[list[Memory]], Any] | None = None) -> None:
        self.given: list[list[str]] = []
        self.made = made or (lambda memories: [f"learnt: {memory.text}" for memory in memories])

    def __call__(self, memories: list[Memory]) -> Any:
        self.given.append([memory.id for memory in memories])
        return self.made(memories)


@pytest.fixture
def talk(engine: jiyi.Engine) -> jiyi.Engine:
    engine.add_many(TALK)
    return engine


def lasting(engine: jiyi.Engine, **settings: Any) -> list[Memory]:
    return engine.list(where={"not": {"kind": "episodic"}}, **settings)


def texts(engine: jiyi.Engine) -> set[str]:
    return {memory.text for memory in lasting(engine)}


# ---------------------------------------------------------------------------------------------------- what it makes


def test_sessions_are_given_in_order_of_time(talk: jiyi.Engine) -> None:
    talk.add("a fact is no memory of what happened", kind="semantic", session="english", id="s")
    extractor = Extractor()
    done = talk.distill(extractor=extractor)
    assert extractor.given == [["a1", "a2"], ["b1", "b2"]]
    assert (done.batches, done.unchanged, done.removed, done.failed) == (2, 0, 0, ())
    assert [talk.get(each).text for each in done.ids] == [f"learnt: {each['text']}" for each in TALK]
    for each in done.ids:
        memory = talk.get(each)
        assert memory.kind == "semantic"
        assert memory.sources in (("a1", "a2"), ("b1", "b2"))
        assert memory.timestamp == talk.get(memory.sources[-1]).timestamp
        assert memory.session is None


def test_everything_that_an_extractor_may_return(talk: jiyi.Engine) -> None:
    def made(memories: list[Memory]) -> Iterator[Any]:
        if memories[0].id == "a1":
            yield "she has moved"
            yield {"text": "用户住在里昂", "kind": "archival", "metadata": {"confidence": 0.9}}
            yield {"subject": "Ana", "predicate": "lives in", "object": "Lyon", "sources": ["a1"], "text": None}
            yield Memory.fact("Ana", "likes", "rivers", multivalued=True, sources=["a2"], timestamp="2025-12-31")
            yield Memory.procedure("Greet Ana", ["say bonjour", "ask for the rivers"])
            yield {"title": "送别", "steps": ["说再见"], "id": 7}
            yield Memory(text="she is a person of water", kind="archival", id="her", namespace="default")

    done = talk.distill(extractor=Extractor(made))
    moved, lives, fact, likes, greet, farewell, person = [talk.get(each) for each in done.ids]
    assert (moved.kind, moved.text) == ("semantic", "she has moved")
    assert (lives.kind, lives.metadata) == ("archival", {"confidence": 0.9})
    assert (fact.kind, fact.object, fact.text, fact.sources) == ("semantic", "Lyon", "Ana lives in Lyon", ("a1",))
    assert fact.timestamp == talk.get("a1").timestamp
    assert (likes.sources, likes.timestamp.year, likes.multivalued) == (("a2",), 2025, True)
    assert (greet.kind, greet.steps) == ("procedural", ("say bonjour", "ask for the rivers"))
    assert greet.timestamp == talk.get("a2").timestamp  # of its own it has none
    assert (farewell.kind, farewell.title) == ("procedural", "送别")
    assert person.id != "her"
    assert done.batches == 2  # the second gave nothing, and is done too
    assert talk.distill(extractor=Extractor(made)).unchanged == 2


def test_what_belongs_to_no_session_is_taken_a_day_at_a_time(engine: jiyi.Engine) -> None:
    for i, time in enumerate(("2026-01-01T01:00", "2026-01-01T23:59", "2026-01-02T00:00")):
        engine.add(f"m{i}", id=f"m{i}", timestamp=time)
    extractor = Extractor()
    engine.distill(extractor=extractor)
    assert extractor.given == [["m0", "m1"], ["m2"]]


def test_where_and_namespaces(talk: jiyi.Engine) -> None:
    talk.add_many([{**each, "text": f"other {each['text']}"} for each in TALK], namespace="other")
    extractor = Extractor()
    done = talk.distill({"speaker": "小明"}, extractor=extractor, namespace="other")
    assert extractor.given == [["b1", "b2"]]
    assert lasting(talk) == []
    assert [memory.id for memory in lasting(talk, namespace="other")] == list(done.ids)
    assert talk.distill(extractor=extractor).batches == 2


def test_what_expired_is_not_given(talk: jiyi.Engine) -> None:
    talk.add("old news", session="english", id="x", expires_at="2020-01-01")
    extractor = Extractor()
    talk.distill(extractor=extractor)
    assert extractor.given[0] == ["a1", "a2"]


# ------------------------------------------------------------------------------------------------------- once only


def test_an_unchanged_batch_is_not_given_again(folder: Path) -> None:
    extractor = Extractor()
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many(TALK)
        engine.distill(extractor=extractor)
        before = lasting(engine)
        done = engine.distill(extractor=extractor)
        assert done == Distilled(unchanged=2)
    with jiyi.open(folder, embedder=None) as engine:
        engine.compact()
        assert engine.distill(extractor=extractor) == Distilled(unchanged=2)
        engine.update("a1", metadata={"seen": True})  # nothing that is said
        engine.add_many(TALK)  # the same again
        assert engine.distill(extractor=extractor) == Distilled(unchanged=2)
        assert lasting(engine) == before
    assert len(extractor.given) == 2


def test_the_same_answer_is_the_same_memory(talk: jiyi.Engine) -> None:
    first = talk.distill(extractor=Extractor())
    talk.reinforce(first.ids[0])
    talk.add({**TALK[0], "id": "a3", "text": "my flat is small", "timestamp": "2026-01-03"})
    extractor = Extractor()
    second = talk.distill(extractor=extractor)
    assert extractor.given == [["a1", "a2", "a3"]]
    assert second.ids[:2] == first.ids[:2]
    assert (second.batches, second.unchanged, second.removed) == (1, 1, 0)
    assert len(lasting(talk)) == 5
    assert talk.get(first.ids[0]).sources == ("a1", "a2", "a3")
    assert talk.get(first.ids[0]).uses == 1
    with jiyi.open(embedder=None) as other:
        other.add_many(TALK)
        assert other.distill(extractor=Extractor()).ids == first.ids


@pytest.mark.parametrize("how", ["grown", "changed", "again"])
def test_an_extractor_that_words_things_anew_replaces_what_it_said(talk: jiyi.Engine, how: str) -> None:
    number = count()
    extractor = Extractor(lambda memories: [f"说法 {next(number)}: {memories[0].session}"])
    talk.distill(extractor=extractor)
    assert texts(talk) == {"说法 0: english", "说法 1: 中文"}
    if how == "grown":
        talk.add("还有一件事", session="中文", timestamp="2026-02-03")
    elif how == "changed":
        talk.update("b1", text="我上周搬到了北京")
    done = talk.distill({"session": "中文"}, extractor=extractor, again=how == "again")
    assert texts(talk) == {"说法 0: english", "说法 2: 中文"}
    assert done.removed == 1
    assert extractor.given[2][:2] == ["b1", "b2"]


def test_parts_of_a_session_do_not_replace_each_other(talk: jiyi.Engine) -> None:
    talk.add("Salut!", id="c", session="english", speaker="Bo", timestamp="2026-01-05")
    extractor = Extractor(lambda memories: [f"from {' '.join(memory.id for memory in memories)}"])
    talk.distill({"speaker": "Ana"}, extractor=extractor)
    talk.distill({"speaker": "Bo"}, extractor=extractor)
    assert texts(talk) == {"from a1 a2", "from c"}
    talk.distill({"session": "english"}, extractor=extractor)  # all of it was given
    assert texts(talk) == {"from a1 a2", "from c"}
    talk.distill({"session": "english"}, extractor=extractor, again=True)
    assert texts(talk) == {"from a1 a2 c"}
    talk.distill({"speaker": "Bo"}, extractor=extractor, again=True)  # a part does not replace the whole
    assert texts(talk) == {"from a1 a2 c", "from c"}


def test_what_left_a_session_is_not_missed(talk: jiyi.Engine) -> None:
    extractor = Extractor()
    talk.distill(extractor=extractor)
    talk.delete("a1")
    assert talk.distill(extractor=extractor) == Distilled(unchanged=2)
    talk.add(TALK[0])  # it is new again
    talk.distill(extractor=extractor)
    assert extractor.given[2:] == [["a1", "a2"]]


def test_a_result_that_was_deleted_stays_deleted(talk: jiyi.Engine) -> None:
    extractor = Extractor()
    done = talk.distill(extractor=extractor)
    talk.delete(done.ids[0])
    talk.distill(extractor=extractor)
    assert len(lasting(talk)) == 3
    talk.distill(extractor=extractor, again=True)
    assert len(lasting(talk)) == 4


def test_another_name_is_another_extractor(talk: jiyi.Engine) -> None:
    extractor = Extractor()
    talk.distill(extractor=extractor, name="v1")
    talk.distill(extractor=extractor, name="v2")
    assert len(extractor.given) == 4
    assert len(lasting(talk)) == 8


def test_names_of_extractors() -> None:
    one, other = (lambda memories: ["one"]), (lambda memories: ["other"])
    assert extractor_name(one) != extractor_name(other)
    assert extractor_name(one) == extractor_name(one)
    assert extractor_name(texts) == extractor_name(partial(texts)) == f"{__name__}.texts"
    assert extractor_name(Extractor()) == f"{__name__}.Extractor"
    assert extractor_name(Extractor().__call__) == f"{__name__}.Extractor.__call__"


# ---------------------------------------------------------------------------------------------------- n at a time


def test_so_many_at_a_time(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": f"m{i}", "id": f"m{i}", "timestamp": i} for i in range(5)])
    number = count()
    extractor = Extractor(lambda memories: [f"{next(number)}: {' '.join(m.id for m in memories)}"])
    assert engine.distill(extractor=extractor, batch=2).batches == 3
    engine.add_many([{"text": f"m{i}", "id": f"m{i}", "timestamp": i} for i in range(5, 8)])
    assert engine.distill(extractor=extractor, batch=2).unchanged == 3
    assert texts(engine) == {"0: m0 m1", "1: m2 m3", "2: m4", "3: m5 m6", "4: m7"}
    engine.update("m2", text="other")
    engine.delete("m3")
    done = engine.distill(extractor=extractor, batch=2)
    assert texts(engine) == {"0: m0 m1", "5: m2", "2: m4", "3: m5 m6", "4: m7"}
    assert (done.batches, done.unchanged, done.removed) == (1, 4, 1)
    engine.distill(extractor=extractor, batch=2, again=True)
    assert texts(engine) == {"6: m0 m1", "7: m2", "8: m4", "9: m5 m6", "10: m7"}


def test_sessions_after_numbers_and_back(talk: jiyi.Engine) -> None:
    extractor = Extractor()
    talk.distill(extractor=extractor, batch=3)
    assert talk.distill(extractor=extractor).unchanged == 2
    talk.add("one more", session="english", id="c", timestamp="2026-03-01")
    talk.distill(extractor=extractor)
    assert extractor.given[2:] == [["a1", "a2", "c"]]
    assert talk.distill(extractor=extractor, batch=3).batches == 0


# ------------------------------------------------------------------------------------------------ hostile extractors


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words for it")


class Odd:
    def __iter__(self) -> Iterator[Any]:
        raise RecursionError("around and around")


def _raise(error: Exception) -> Any:
    raise error


def _breaks_off(memories: list[Memory]) -> Iterator[str]:
    yield "one thing"
    raise ConnectionError("the model is gone")


def _forever(memories: list[Memory]) -> Iterator[str]:
    for i in count():
        yield f"thing {i}"


HOSTILE: dict[str, tuple[Callable[[list[Memory]], Any], str]] = {
    "raises": (lambda m: _raise(ConnectionError("no route\nto the model")), "ConnectionError: no route to the model"),
    "raises what cannot be said": (lambda m: _raise(Unsayable()), "Unsayable"),
    "None": (lambda m: None, r"returned None; return a list"),
    "a text": (lambda m: '[{"text": "x"}]', "returned one str"),
    "a memory": (lambda m: Memory(text="x", kind="semantic"), "returned one Memory"),
    "a mapping": (lambda m: {"text": "x"}, "returned one dict"),
    "a number": (lambda m: 5, "returned int"),
    "an odd iterable": (lambda m: Odd(), "RecursionError"),
    "breaks off": (_breaks_off, "ConnectionError: the model is gone"),
    "never ends": (_forever, "more than 1000 results"),
    "a huge list": (lambda m: ["x"] * 2_000, "more than 1000 results"),
    "half valid": (lambda m: ["好的事实", {"txt": "x"}], "result 1: unknown field 'txt'"),
    "None among results": (lambda m: ["fine", None], "result 1: it is NoneType"),
    "an empty text": (lambda m: [" \n"], "result 0: its text is empty"),
    "no text": (lambda m: [{}], "result 0: the field text is missing"),
    "another kind": (lambda m: [{"text": "x", "kind": "wisdom"}], "kind is 'wisdom'"),
    "episodic": (lambda m: ["fine", Memory(text="x")], "result 1: its kind is episodic"),
    "the given ones back": (lambda m: m, "result 0: its kind is episodic"),
    "half a fact": (lambda m: [{"text": "x", "subject": "Ana"}], "the fact has no predicate"),
    "sources of others": (lambda m: [{"text": "x", "sources": ["a1", "b1"]}], "its source '[ab]1' is not the id"),
    "another namespace": (lambda m: [Memory(text="x", kind="semantic", namespace="bo")], "its namespace is 'bo'"),
    "a time that is none": (lambda m: [{"text": "x", "timestamp": "soon"}], "not an ISO 8601 time"),
    "a surrogate": (lambda m: ["\ud83d"], "half a surrogate pair"),
    "a coroutine": (lambda m: asyncio.sleep(0), "must be awaited; use adistill"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_extractor_loses_nothing(talk: jiyi.Engine, name: str) -> None:
    made, reason = HOSTILE[name]
    before = talk.list()
    good = Extractor()
    talk.distill({"session": "english"}, extractor=good, name="it")
    kept = lasting(talk)

    done = talk.distill(extractor=Extractor(lambda m: made(m)), name="it")
    (failed,) = done.failed
    assert failed.ids == ("b1", "b2")
    assert failed.session == "中文"
    assert "\n" not in failed.reason
    assert re.search(reason, failed.reason)
    assert (done.ids, done.batches, done.unchanged) == ((), 0, 1)
    # What a batch gave before stays when it is given again and fails.
    assert len(talk.distill(extractor=Extractor(lambda m: made(m)), name="it", again=True).failed) == 2
    assert lasting(talk) == kept
    assert talk.list(where={"kind": "episodic"}) == before
    assert talk.verify() == []

    done = talk.distill(extractor=good, name="it")  # the next run tries again
    assert good.given[-1] == ["b1", "b2"]
    assert len(done.ids) == 2


def test_one_bad_batch_does_not_stop_the_others(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": f"m{i}", "session": f"s{i}", "timestamp": i} for i in range(6)])
    extractor = Extractor(lambda memories: memories[0].text if memories[0].text in ("m1", "m4") else ["learnt"])
    done = engine.distill(extractor=extractor)
    assert [failed.session for failed in done.failed] == ["s1", "s4"]
    assert done.batches == 4
    assert len(set(done.ids)) == 4  # the same words of other sessions are other memories


def test_what_an_extractor_does_to_its_list_is_its_own_affair(talk: jiyi.Engine) -> None:
    def made(memories: list[Memory]) -> list[str]:
        memories.clear()
        return ["nothing left"]

    talk.distill(extractor=Extractor(made))
    assert {memory.sources for memory in lasting(talk)} == {("a1", "a2"), ("b1", "b2")}


def test_results_can_neither_replace_nor_imitate_other_memories(talk: jiyi.Engine) -> None:
    talk.add("precious", id="p", kind="archival")
    talk.distill(
        extractor=Extractor(lambda m: [Memory(text="gotcha", kind="archival", id=each) for each in ("p", "a1")])
    )
    assert talk.get("p").text == "precious"
    assert talk.get("a1").text == TALK[0]["text"]


def test_results_that_cannot_be_embedded_fail_their_batch_only() -> None:
    class Picky(HashEmbedder):
        def embed(self, texts: Any) -> Any:
            made = super().embed(texts)
            made[["夜景" in text for text in texts]] = float("nan")
            return made

    with jiyi.open(embedder=Picky(8)) as engine:
        engine.add_many(TALK[:3])
        done = engine.distill(extractor=Extractor(lambda m: ["rivers", "夜景" if m[0].id == "b1" else "hills"]))
        assert len(done.ids) == 2
        assert "NaN" in done.failed[0].reason


def test_a_store_that_cannot_be_written_is_an_error(talk: jiyi.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from jiyi.store import Store

    def fail(*_: object, **__: object) -> None:
        raise jiyi.StoreError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", fail)
        with pytest.raises(jiyi.StoreError, match="no room"):
            talk.distill(extractor=Extractor())
    assert talk.distill(extractor=Extractor()).batches == 2


def test_all_of_a_batch_or_nothing(talk: jiyi.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    from jiyi import distilled

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(distilled, "remember", fail)
        with pytest.raises(jiyi.StoreError, match="disk I/O error"):
            talk.distill(extractor=Extractor())
    assert lasting(talk) == []
    assert talk.search("learnt", where={"kind": "semantic"}).ids == []


# --------------------------------------------------------------------------------------------------- stopped, meanwhile


def test_an_interrupted_run_keeps_what_was_stored(talk: jiyi.Engine) -> None:
    def made(memories: list[Memory]) -> list[str]:
        if memories[0].id == "b1" and len(extractor.given) == 2:
            raise KeyboardInterrupt
        return ["learnt"]

    extractor = Extractor(made)
    with pytest.raises(KeyboardInterrupt):
        talk.distill(extractor=extractor)
    assert len(lasting(talk)) == 1
    assert talk.distill(extractor=extractor).batches == 1
    assert extractor.given == [["a1", "a2"], ["b1", "b2"], ["b1", "b2"]]
    talk.add("the store can be written")


KILLED = """
import os, signal, sys
import jiyi
with jiyi.open(sys.argv[1], embedder=None) as engine:
    engine.add_many([{"text": f"第{i}次 turn", "id": f"m{i}", "session": f"s{i}", "timestamp": i} for i in range(6)])
    def extractor(memories):
        if memories[0].id == "m3":
            os.kill(os.getpid(), signal.SIGKILL)
        return [f"learnt {memories[0].text}"]
    engine.distill(extractor=extractor, name="it")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_run_goes_on_where_it_was(folder: Path, child: Child) -> None:
    assert child(KILLED, folder).returncode == -signal.SIGKILL
    extractor = Extractor()
    with jiyi.open(folder, embedder=None) as engine:
        assert {memory.text for memory in lasting(engine)} == {f"learnt 第{i}次 turn" for i in range(3)}
        assert engine.distill(extractor=extractor, name="it").unchanged == 3
        assert extractor.given == [["m3"], ["m4"], ["m5"]]
        assert engine.verify() == []


def test_others_add_and_search_while_an_extractor_works(talk: jiyi.Engine) -> None:
    def made(memories: list[Memory]) -> list[str]:
        other = threading.Thread(target=work)
        other.start()
        other.join(30)
        assert not other.is_alive(), "the store was locked"
        return [f"learnt of {len(memories)}"]

    def work() -> None:
        talk.add("meanwhile", session="中文")
        assert len(talk.search("meanwhile")) > 0

    extractor = Extractor(made)
    done = talk.distill(extractor=extractor)
    assert extractor.given == [["a1", "a2"], ["b1", "b2"]]  # what is new is for the next run
    assert done.failed == ()
    extractor.made = lambda memories: [f"learnt of {len(memories)}"]
    talk.distill(extractor=extractor)
    assert len(extractor.given) == 3
    assert texts(talk) == {"learnt of 2", "learnt of 4"}


def test_many_threads(engine: jiyi.Engine) -> None:
    """Batches are given to one or the other, or to both, and what comes of them is there once."""
    engine.add_many([{"text": f"m{i}", "id": f"m{i}", "session": f"s{i % 10}", "timestamp": i} for i in range(40)])
    extractor = Extractor()
    failures: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    jobs = [partial(engine.distill, extractor=extractor) for _ in range(3)]
    adding = [partial(engine.add, f"more {i}", session=f"t{i}") for i in range(10)]
    threads = [threading.Thread(target=run, args=(job,)) for job in [*jobs, *adding]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    engine.distill(extractor=extractor)
    assert len(lasting(engine)) == 50
    assert engine.distill(extractor=extractor).batches == 0


def test_what_is_deleted_meanwhile_is_not_remembered(talk: jiyi.Engine) -> None:
    def made(memories: list[Memory]) -> list[str]:
        if len(extractor.given) == 1:
            talk.delete(["a2", "b2"])
        return [f"learnt: {memory.text}" for memory in memories]

    extractor = Extractor(made)
    done = talk.distill(extractor=extractor)
    assert "'a2' left while the extractor worked" in done.failed[0].reason
    assert extractor.given == [["a1", "a2"], ["b1"]]  # and is not given to it any more
    talk.distill(extractor=extractor)
    assert texts(talk) == {"learnt: I moved to Lyon last week", "learnt: 我上周搬到了上海"}


def test_what_changes_meanwhile_is_given_again(talk: jiyi.Engine) -> None:
    def made(memories: list[Memory]) -> list[str]:
        if len(extractor.given) == 1:
            talk.update("a2", text="and I like the hills there")
        return [f"learnt: {memory.text}" for memory in memories]

    extractor = Extractor(made)
    talk.distill(extractor=extractor)
    talk.distill(extractor=extractor)
    assert extractor.given == [["a1", "a2"], ["b1", "b2"], ["a1", "a2"]]
    assert "learnt: and I like the hills there" in texts(talk)
    assert "learnt: and I like the rivers there" not in texts(talk)


def test_progress(talk: jiyi.Engine) -> None:
    told: list[tuple[int, int]] = []
    talk.distill(extractor=Extractor(lambda m: None), progress=lambda done, of: told.append((done, of)))
    assert told == [(1, 2), (2, 2)]


# -------------------------------------------------------------------------------------------------------- with others


def test_merged_results_are_left_merged(talk: jiyi.Engine) -> None:
    said = "Ana lives in a small flat by the river with a view of the hills"
    extractor = Extractor(lambda memories: [said])
    first = talk.distill(extractor=extractor)
    assert talk.consolidate().removed == 1
    (left,) = lasting(talk)
    talk.distill(extractor=extractor, again=True)
    assert lasting(talk) == [left]
    talk.distill(extractor=Extractor(lambda memories: []), again=True)
    assert lasting(talk) == [left]
    talk.unconsolidate(left.id)
    assert {memory.id for memory in lasting(talk)} == set(first.ids)


def test_merged_memories_are_not_given_again(engine: jiyi.Engine) -> None:
    turn = {"text": "是的，我周末一直都喜欢去爬山", "session": "s"}
    engine.add_many([{**turn, "id": str(i), "timestamp": i} for i in range(3)])
    extractor = Extractor()
    engine.distill(extractor=extractor)
    engine.consolidate({"kind": "episodic"})
    assert engine.count(where={"kind": "episodic"}) == 1
    engine.distill(extractor=extractor)
    engine.unconsolidate("2")
    engine.distill(extractor=extractor)
    assert len(extractor.given) == 1


def test_erasing_leaves_no_trace_of_what_was_given(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many(TALK)
        engine.distill(extractor=Extractor(lambda m: [f"learnt-{m[0].id}"]))
        engine.erase(where={"session": "中文"})
        engine.erase(where={"sources": "b1"})
        with engine._store.ledger.reading() as connection:
            rows = connection.execute("SELECT id FROM distilled_ids").fetchall()
        assert sorted(row[0] for row in rows if len(row[0]) == 2) == ["a1", "a2"]
        assert len(rows) == 3
        engine.compact()
        with engine._store.ledger.reading() as connection:
            assert connection.execute("SELECT count(*) FROM distilled").fetchone()[0] == 1
    for path in folder.rglob("*"):
        if path.is_file():
            assert "上海".encode() not in path.read_bytes()


# ------------------------------------------------------------------------------------------------------------- asyncio


async def _asking(memories: list[Memory]) -> list[str]:
    await asyncio.sleep(0)
    return [f"学到了 {memories[0].session}"]


async def _streaming(memories: list[Memory]) -> AsyncIterator[str]:
    for memory in memories:
        await asyncio.sleep(0)
        yield f"学到了 {memory.text}"


class _AsyncExtractor:
    async def __call__(self, memories: list[Memory]) -> Iterable[str]:
        return await _asking(memories)


async def _endless(memories: list[Memory]) -> AsyncIterator[str]:
    for i in count():
        yield str(i)


async def _broken(memories: list[Memory]) -> list[str]:
    raise ConnectionError("gone")


@pytest.mark.parametrize(
    ("extractor", "results"),
    [
        (_asking, 2),
        (partial(_asking), 2),
        (_AsyncExtractor(), 2),
        (_streaming, 4),
        (Extractor(), 4),
        (lambda memories: _asking(memories), 2),
    ],
)
def test_adistill(talk: jiyi.Engine, extractor: Any, results: int) -> None:
    done = asyncio.run(talk.adistill(extractor=extractor))
    assert len(done.ids) == len(lasting(talk)) == results
    assert done.failed == ()
    assert asyncio.run(talk.adistill(extractor=extractor)) == Distilled(unchanged=2)


@pytest.mark.parametrize("extractor", [_asking, partial(_asking), _AsyncExtractor(), _streaming])
def test_distill_refuses_what_must_be_awaited(talk: jiyi.Engine, extractor: Any) -> None:
    with pytest.raises(TypeError, match="await adistill instead"):
        talk.distill(extractor=extractor)


def test_hostile_asynchronous_extractors(talk: jiyi.Engine) -> None:
    for extractor, reason in ((_endless, "more than 1000 results"), (_broken, "ConnectionError: gone")):
        done = asyncio.run(talk.adistill(extractor=extractor))
        assert [reason in failed.reason for failed in done.failed] == [True, True]
    assert lasting(talk) == []


def test_a_cancelled_run_keeps_what_was_stored(talk: jiyi.Engine) -> None:
    async def stuck(memories: list[Memory]) -> list[str]:
        if memories[0].id == "b1":
            reached.set()
            await asyncio.sleep(60)
        return ["learnt"]

    async def main() -> None:
        task = asyncio.create_task(talk.adistill(extractor=stuck))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    reached = asyncio.Event()
    asyncio.run(main())
    assert texts(talk) == {"learnt"}


# ------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"extractor": "gpt"}, "extractor must be a function of a list of memories, got str"),
        ({"batch": 0}, "batch is 0; it must be 'session' or how many"),
        ({"batch": "day"}, "batch is 'day'"),
        ({"batch": True}, "batch must be 'session' or how many"),
        ({"batch": 2.5}, "batch must be 'session' or how many"),
        ({"again": "yes"}, "again must be True or False"),
        ({"max_results": 0}, "max_results is 0"),
        ({"max_results": "9"}, "max_results must be a whole number"),
        ({"name": ""}, "name is empty"),
        ({"namespace": None}, "namespace must be text"),
        ({"where": {"colour": 1}}, "colour"),
    ],
)
def test_bad_arguments(talk: jiyi.Engine, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        talk.distill(**{"extractor": Extractor(), **settings})


def test_a_reader_cannot_distill(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many(TALK)
    with jiyi.open(folder, embedder=None, read_only=True) as engine, pytest.raises(jiyi.ReadOnlyError):
        engine.distill(extractor=Extractor())


def test_nothing_to_distill(engine: jiyi.Engine) -> None:
    assert engine.distill(extractor=Extractor()) == Distilled()
    assert engine.stats()["sequence"] == 0
