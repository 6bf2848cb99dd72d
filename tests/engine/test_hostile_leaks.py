"""Error messages, warnings and what the command line says hold no more than 80 characters of anybody's memory."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi.cli import main
from jiyi.ingest import read_memories
from tests.engine.embedders import HashEmbedder

# No stretch of it stands in it twice, so that whatever of it is told is found.
DIARY = "".join(f"secret{i}" for i in range(60))
ID = DIARY[:300]
MOST = 80


class Telltale(HashEmbedder):
    """Fails with the text that it was given in what it says."""

    def embed(self, texts: Any) -> Any:
        if any(DIARY in text for text in texts):
            raise RuntimeError(f"too long: {texts!r}")
        return super().embed(texts)

    def embed_query(self, text: str) -> Any:
        raise RuntimeError(f"too long: {text}")


class Scorer:
    name = "telltale"

    def score(self, query: str, texts: Any) -> Any:
        raise RuntimeError(f"{query} {texts}")


def longest_told(said: str) -> int:
    """The longest stretch of the diary that stands in a text."""
    longest = 0
    for start in range(0, len(DIARY) - MOST):
        size = MOST + 1
        if DIARY[start : start + size] in said:
            while start + size < len(DIARY) and DIARY[start : start + size + 1] in said:
                size += 1
            longest = max(longest, size)
    return longest


def told(error: BaseException) -> Iterator[str]:
    """All that a traceback prints of an error and of those behind it."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        yield str(one)
        yield from getattr(one, "__notes__", ())
        waiting += [one.__cause__, None if one.__suppress_context__ else one.__context__]


@pytest.fixture
def store() -> Iterator[jiyi.Engine]:
    with jiyi.open(embedder=None, dim=4) as engine:
        engine.add("tea", id="1", vector=[1, 0, 0, 0])
        engine.add(DIARY, id=ID, namespace=ID, session=ID, speaker=ID, metadata={ID: DIARY}, sources=[ID])
        engine.add("hidden", id="h1", namespace="m")
        yield engine


CALLS: dict[str, Callable[[jiyi.Engine], object]] = {
    "get": lambda e: e.get(ID),
    "get in": lambda e: e.get("x", namespace=ID),
    "update": lambda e: e.update(ID, text="x"),
    "update field": lambda e: e.update("1", **{DIARY: 1}),
    "update vector": lambda e: e.update(ID, namespace=ID, vector=[1]),
    "long id": lambda e: e.get(DIARY * 2),
    "add id": lambda e: e.add("x", id=DIARY * 2),
    "add kind": lambda e: e.add(DIARY, kind=DIARY),
    "add time": lambda e: e.add(DIARY, timestamp=DIARY),
    "add metadata": lambda e: e.add(DIARY, metadata={DIARY: {DIARY: object()}}),
    "add metadata key": lambda e: e.add(DIARY, metadata={DIARY: {(DIARY,): 1}}),
    "add metadata number": lambda e: e.add(DIARY, metadata={DIARY: float("nan")}),
    "add surrogate": lambda e: e.add(DIARY + "\ud800"),
    "add surrogate key": lambda e: e.add("x", metadata={DIARY + "\ud800": 1}),
    "add field": lambda e: e.add({"text": DIARY, DIARY: 1}),
    "add vector": lambda e: e.add(DIARY, id=ID, vector=[float("nan")] * 4),
    "add vector text": lambda e: e.add(DIARY, vector=[DIARY] * 4),
    "add many": lambda e: e.add_many([DIARY, {"text": DIARY, "kind": DIARY}]),
    "add many mapping": lambda e: e.add_many({"text": DIARY}),
    "add sources": lambda e: e.add(DIARY, sources=[DIARY * 2]),
    "fact": lambda e: e.add(jiyi.Memory(text=DIARY, kind="episodic", subject=DIARY)),
    "steps": lambda e: e.add(jiyi.Memory(text=DIARY, kind="procedural", steps=[DIARY, 3])),
    "messages": lambda e: e.add_messages([{"role": "user", "content": DIARY, "created_at": DIARY}], session="s"),
    "messages role": lambda e: e.add_messages([{"role": [DIARY], "content": DIARY}], session="s"),
    "messages roles": lambda e: e.add_messages([DIARY], session="s", roles=[DIARY, 3]),
    "filter field": lambda e: e.search("x", where={DIARY: 1}),
    "filter operator": lambda e: e.search("x", where={"kind": {DIARY: 1}}),
    "filter kind": lambda e: e.search("x", where={"kind": DIARY}),
    "filter time": lambda e: e.count(where={"timestamp": {"gte": DIARY}}),
    "filter metadata": lambda e: e.count(where={"metadata." + DIARY: {"gt": [DIARY]}}),
    "filter metadata key": lambda e: e.count(where={"metadata." + DIARY + "..": 1}),
    "filter list": lambda e: e.count(where={"id": [DIARY]}),
    "filter surrogate": lambda e: e.count(where={"text": DIARY + "\ud800"}),
    "filter in": lambda e: e.count(where={"metadata.a": {"in": DIARY}}),
    "search type": lambda e: e.search([DIARY]),  # type: ignore[arg-type]
    "search now": lambda e: e.search("x", now=DIARY),
    "search setting": lambda e: e.search("x", **{DIARY: 1}),
    "search value": lambda e: e.search("x", diversity=DIARY),
    "search preset": lambda e: e.search("x", preset=DIARY),
    "search rerank": lambda e: e.search("x", rerank=DIARY),
    "search vector": lambda e: e.search("x", query_vector=DIARY),
    "search namespace": lambda e: e.search("x", namespace=[DIARY * 2]),
    "context": lambda e: e.build_context([{"role": "user", "content": {DIARY: DIARY}}]),
    "context setting": lambda e: e.build_context([DIARY], format=DIARY),
    "context tokens": lambda e: e.build_context([DIARY], namespace=ID, count_tokens=DIARY),
    "list order": lambda e: e.list(order=DIARY),
    "facts": lambda e: e.facts(subject=DIARY * 2),
    "neighbors": lambda e: e.neighbors(DIARY * 2),
    "forget": lambda e: e.forget(DIARY),  # type: ignore[arg-type]
    "forget prefix": lambda e: e.forget({}, namespace=ID + "*"),
    "erase": lambda e: e.erase(where={DIARY: 1}),
    "outcome": lambda e: e.outcome(ID, success=True, namespace=ID),
    "retain": lambda e: e.retain({DIARY: {"max_count": 1}}),  # type: ignore[dict-item]
    "retain value": lambda e: e.retain({"episodic": {DIARY: 1}}),  # type: ignore[dict-item]
    "replay": lambda e: e.replay({"query_record": 1, DIARY: 1}),
    "replay version": lambda e: e.replay({"query_record": DIARY}),
    "scoped": lambda e: e.scoped("a").add({"text": DIARY, "namespace": ID}),
    "scoped replay": lambda e: e.scoped("a").replay(e.search(DIARY, namespace=ID).query_record),
    "open embedder": lambda e: jiyi.open(embedder=DIARY),
    "open preset": lambda e: jiyi.open(preset=DIARY),
    "open device": lambda e: jiyi.open(device=DIARY),
    "open durability": lambda e: jiyi.open(durability=DIARY),  # type: ignore[arg-type]
    "query": lambda e: jiyi.build_query([{"role": "user", "content": 3, DIARY: DIARY}]),
    "injector": lambda e: jiyi.MemoryInjector(lambda q: [], **{DIARY: 1}),
    "line": lambda e: list(read_memories(io.BytesIO(b'{"text": "' + DIARY.encode()), "f")),
    "line field": lambda e: list(read_memories(io.BytesIO(b'{"' + DIARY.encode() + b'": 1}'), "f")),
    "line twice": lambda e: list(read_memories(io.BytesIO(b'{"%b": 1, "%b": 2}' % ((DIARY.encode(),) * 2)), "f")),
    "line kind": lambda e: list(read_memories(io.BytesIO(b'{"text":"x","kind":"%b"}' % DIARY.encode()), "f")),
    "line vector": lambda e: list(read_memories(io.BytesIO(b'{"text":"x","vector":"%b"}' % DIARY.encode()), "f")),
}


@pytest.mark.parametrize("call", list(CALLS))
def test_an_error_tells_no_more_than_eighty_characters(
    store: jiyi.Engine, call: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises((ValueError, TypeError, jiyi.JiyiError)) as refused:
        CALLS[call](store)
    for said in told(refused.value):
        assert longest_told(said) <= MOST, said
    assert longest_told(caplog.text) <= MOST
    assert capfd.readouterr() == ("", "")


def test_what_a_models_error_says_is_cut_too() -> None:
    with jiyi.open(embedder=Telltale(8)) as engine:
        engine.add("tea", vector=[1.0] * 8)
        hits = engine.search(f"{DIARY} tea", rerank=Scorer())
        assert {stage for stage, _ in hits.degraded} == {"dense", "rerank"}
        for _, reason in hits.degraded:
            assert longest_told(reason) <= MOST
        assert "RuntimeError: too long" in hits.degraded[0].reason


def test_what_is_damaged_is_named_in_few_characters(folder: Path) -> None:
    import sqlite3

    with jiyi.open(folder, embedder=None) as engine:
        engine.add(DIARY, id=ID, namespace=ID)
    with sqlite3.connect(folder / "ledger.sqlite") as connection:
        connection.execute("UPDATE memories SET text = text || '!'")
    connection.close()
    with jiyi.open(folder, embedder=None, read_only=True) as engine:
        lines = engine.verify()
        assert lines
        assert all(longest_told(line) <= MOST for line in lines)
        try:
            engine.get(ID, namespace=ID)
        except jiyi.JiyiError as error:
            said = list(told(error))
        else:
            said = []
        assert all(longest_told(line) <= MOST for line in said)


COMMANDS = [
    ["search", DIARY, DIARY],
    ["search", DIARY, "--preset", DIARY],
    ["search", DIARY, "--set", DIARY],
    ["search", DIARY, "--set", f"{DIARY}=1"],
    ["search", DIARY, f"--set=diversity={DIARY}"],
    ["search", DIARY, "--where", DIARY],
    ["search", DIARY, "--where", f'{{"{DIARY}": 1}}'],
    ["search", DIARY, "-k", DIARY],
    ["search", DIARY, f"--{DIARY}"],
    ["search", DIARY, "--now", DIARY],
    ["search", DIARY, "--namespace", DIARY * 2],
    ["context", DIARY, DIARY],
    ["list", "--order", DIARY],
    ["list", "--kind", DIARY],
    ["delete", DIARY * 2],
    ["compact", "--max-age", DIARY],
    ["export", "--format", DIARY],
    [DIARY],
    ["models", "info", DIARY],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=[str(i) for i in range(len(COMMANDS))])
def test_the_command_line_says_no_more_than_eighty_characters_of_what_is_wrong(
    folder: Path, capfd: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("tea")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code = main(
            arguments if len(arguments) == 1 or arguments[0] == "models" else [*arguments, "--store", str(folder)]
        )
    said = capfd.readouterr().err
    assert longest_told(said) <= MOST, said
    assert said or code == 0


def test_long_vectors_are_not_written_out(store: jiyi.Engine) -> None:
    with pytest.raises(jiyi.DimensionError) as refused:
        store.add("x", vector=np.arange(5_000, dtype=np.float32))
    assert len(str(refused.value)) < 300
