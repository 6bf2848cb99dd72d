"""A handle to one namespace: all that an engine does there, and nothing of what it does elsewhere."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import jiyi
from jiyi.scoped import ScopedEngine

NOW = "2026-06-01"

# What concerns the whole store, or names namespaces.
STORE_WIDE = {
    "open", "close", "compact", "flush", "snapshot", "verify", "reindex", "areindex", "reindexes", "namespaces",
    "delete_namespace", "scoped", "refresh", "restore", "export", "ingest",
}  # fmt: skip


@pytest.fixture
def both(engine: jiyi.Engine) -> tuple[ScopedEngine, jiyi.Engine]:
    engine.add("Bob drinks black coffee", id="b1", namespace="bob", timestamp=NOW)
    engine.add(jiyi.Memory.fact("Ana", "lives in", "Lyon", namespace="bob", id="bf"))
    return engine.scoped("ana"), engine


def test_every_call_of_an_engine_is_here_or_left_out_on_purpose() -> None:
    def public(kind: type) -> dict[str, Any]:
        return {name: value for name, value in inspect.getmembers(kind, callable) if not name.startswith("_")}

    calls, here = public(jiyi.Engine), public(ScopedEngine)
    assert here.keys() <= calls.keys()
    store_wide = calls.keys() - here.keys()
    # Whoever adds a call to the engine decides which of the two it is.
    unknown = {name for name in store_wide - STORE_WIDE if "namespace" in inspect.signature(calls[name]).parameters}
    assert not unknown, "calls of a namespace that the handle lacks"
    assert not here.keys() & STORE_WIDE
    for name, call in here.items():
        parameters = inspect.signature(call).parameters
        assert not {"namespace", "among"} & parameters.keys(), name
        theirs = inspect.signature(calls[name]).parameters
        kept = [parameter for parameter in theirs if parameter != "namespace"]
        if name != "stats":
            assert list(parameters) == kept, name
            for parameter in kept:
                assert parameters[parameter].default == theirs[parameter].default, (name, parameter)
        assert call.__doc__


def test_it_writes_and_reads_its_namespace_alone(both: tuple[ScopedEngine, jiyi.Engine]) -> None:
    ana, engine = both
    assert ana.add("Ana drinks green tea", id="a1", kind="archival", timestamp=NOW) == "a1"
    assert ana.add_many(["one", {"text": "two", "id": "a2"}, jiyi.Memory(text="three", id="a3")])[1:] == ["a2", "a3"]
    ana.add(jiyi.Memory.fact("Ana", "lives in", "Paris", id="af"))
    ana.add_messages(["hello there, I am hungry"], session="s1", now=NOW)
    assert {memory.namespace for memory in ana.list()} == {"ana"}
    assert ana.count() == 6 == engine.count(namespace="ana")
    assert ana.stats() == {
        "namespace": "ana",
        "memories": 6,
        "kinds": {"episodic": 4, "semantic": 1, "archival": 1, "procedural": 0},
    }
    assert ana.search("drinks", now=NOW).ids == ["a1"] == ana.search_many(["drinks"], now=NOW)[0].ids
    assert [fact.id for fact in ana.facts(subject="Ana")] == ["af"]
    assert [found.entity for found in ana.neighbors("Ana")] == ["Paris"]
    assert "green tea" in ana.build_context(["what does Ana drink?"], now=NOW).text
    assert "coffee" not in ana.build_context(["who drinks black coffee?"], now=NOW).text
    assert ana.get("a1").text == "Ana drinks green tea"
    assert ana.update("a1", text="Ana drinks tea").text == engine.get("a1", namespace="ana").text
    assert ana.reinforce(["a1", "b1"]) == 1
    assert ana.consolidate(dry_run=True).merges == ()
    assert ana.distill(extractor=lambda memories: ["something"], name="x").ids
    assert ana.retain({"episodic": {"max_count": 1}}, dry_run=True)["episodic"] == 3
    assert ana.forget({"id": "a2"}) == 1
    assert ana.delete(["a3", "b1", "bf"]) == 1
    assert ana.erase(where={}) == 6
    assert engine.namespaces() == {"bob": 2}


CALLS: dict[str, Callable[[ScopedEngine], object]] = {
    "get": lambda ana: ana.get("b1"),
    "update": lambda ana: ana.update("b1", text="x"),
    "add a mapping": lambda ana: ana.add({"text": "x", "namespace": "bob"}),
    "add a memory": lambda ana: ana.add(jiyi.Memory(text="x", namespace="bob")),
    "add many": lambda ana: ana.add_many(["fine", {"text": "x", "namespace": "bob"}]),
    "add default": lambda ana: ana.add({"text": "x", "namespace": "default"}),
    "update the namespace": lambda ana: ana.update("a1", namespace="bob"),
    "search": lambda ana: ana.search("coffee", namespace="bob"),
    "search everywhere": lambda ana: ana.search("coffee", namespace=None),
    "search many": lambda ana: ana.search_many(["coffee"], namespace=["bob", "ana"]),
    "context": lambda ana: ana.build_context(["coffee"], namespace="*"),
    "count": lambda ana: ana.count(namespace="bob"),  # type: ignore[call-arg]
    "list": lambda ana: ana.list(namespace=None),  # type: ignore[call-arg]
    "delete": lambda ana: ana.delete("b1", namespace="bob"),  # type: ignore[call-arg]
    "aadd": lambda ana: asyncio.run(ana.aadd({"text": "x", "namespace": "bob"})),
    "asearch": lambda ana: asyncio.run(ana.asearch("coffee", namespace="bob")),
}


@pytest.mark.parametrize("call", CALLS)
def test_nothing_reaches_another(both: tuple[ScopedEngine, jiyi.Engine], call: str) -> None:
    ana, engine = both
    ana.add("mine", id="a1")
    with pytest.raises((TypeError, ValueError, jiyi.NotFoundError)) as refused:
        CALLS[call](ana)
    if "add" in call:
        assert "'default'" in str(refused.value) if "default" in call else "'bob'" in str(refused.value)
        assert "'ana'" in str(refused.value)
    assert engine.count(namespace="bob") == 2
    assert ana.count() == 1


def test_filters_on_the_namespace_find_nothing_elsewhere(both: tuple[ScopedEngine, jiyi.Engine]) -> None:
    ana, _ = both
    ana.add("mine", id="a1")
    for where in ({"namespace": "bob"}, {"or": [{"namespace": "bob"}, {"id": "b1"}]}, {"not": {"namespace": "ana"}}):
        assert ana.count(where=where) == len(ana.list(where=where)) == ana.forget(where) == 0
        assert ana.search("coffee", where=where).ids == []
        assert ana.erase(where=where) == 0


def test_a_name_that_looks_like_a_prefix_is_a_name(engine: jiyi.Engine) -> None:
    engine.add("tea", id="b1", namespace="team/bob")
    for name in ("*", "team/*", "team/\\*", "team/\\\\*"):
        handle = engine.scoped(name)
        assert (handle.count(), handle.list(), handle.search("tea").ids) == (0, [], [])
        assert handle.build_context(["tea?"]).memories == ()
        handle.add("tea", id="own")
        assert handle.search("tea").ids == ["own"]
        assert handle.search("tea")[0].memory.namespace == name
        assert handle.forget({}) == 1
    assert engine.count(namespace="team/bob") == 1


def test_a_replay_is_of_its_own_queries(both: tuple[ScopedEngine, jiyi.Engine]) -> None:
    ana, engine = both
    ana.add("tea", id="a1")
    own = ana.search("tea", now=NOW).query_record
    assert ana.replay(own).same
    assert ana.replay(own.to_dict()).same
    theirs = engine.search("coffee", namespace="bob").query_record
    several = engine.search("coffee", namespace=["ana", "bob"]).query_record
    for record in (theirs, several, {**own.to_dict(), "namespace": "bob"}, {**own.to_dict(), "generation": {"bob": 0}}):
        with pytest.raises(ValueError, match="'ana' alone"):
            ana.replay(record)


def test_names_are_checked_and_the_handle_says_what_it_is(engine: jiyi.Engine) -> None:
    for bad in ("", "x" * 513, "a\0b", 3, None, ["a"]):
        with pytest.raises((TypeError, ValueError)):
            engine.scoped(bad)  # type: ignore[arg-type]
    ana = engine.scoped("ana")
    assert ana.namespace == "ana"
    assert repr(ana) == "<jiyi.ScopedEngine of 'ana'>"
    assert ana == engine.scoped("ana") != engine.scoped("bob")
    assert len({ana, engine.scoped("ana")}) == 1
    assert jiyi.ScopedEngine is ScopedEngine


def test_without_blocking_the_event_loop(engine: jiyi.Engine) -> None:
    async def work() -> None:
        ana = engine.scoped("ana")
        assert await ana.aadd("green tea", id="1") == "1"
        assert len(await ana.aadd_many(["a", "b"])) == 2
        assert len(await ana.aadd_messages(["I like tea"], session="s")) == 1
        assert (await ana.asearch("green tea")).ids[0] == "1"
        assert "green tea" in (await ana.abuild_context(["green tea?"])).text
        assert (await ana.adistill(extractor=lambda memories: [], name="x")).batches

    asyncio.run(work())


def test_it_ends_with_its_engine() -> None:
    with jiyi.open(embedder=None) as engine:
        ana = engine.scoped("ana")
    with pytest.raises(jiyi.ClosedError):
        ana.search("x")
