"""Namespaces are walls: nothing that one tenant is told depends on what another stores or does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jiyi
from tests.engine.embedders import HashEmbedder, HashTable

NOW = "2026-06-01T12:00:00Z"
WORDS = ["tea", "green", "hike", "redis", "index", "paris", "moved", "茶", "京都", "会议", "cat", "index redis", "42"]
QUERIES = ["green tea", "京都 会议", "who moved to paris", "redis index 42", "cat in May 2026"]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"k": 3, "diversity": "cosine", "normalization": "zscore", "neighbors": 1},
    {"fusion": "rrf", "rerank": "bm25", "where": {"metadata.n": {"gte": 2}}},
    {"as_of": "2026-05-10T00:00:00Z", "preset": "keyword"},
    {"preset": "dense"},
]

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
small = st.integers(0, 11)

# What a tenant does: the same steps for both, on ids that both use.
steps = st.one_of(
    st.tuples(st.just("add"), small, texts, st.integers(1, 28)),
    st.tuples(st.just("many"), st.lists(st.tuples(small, texts), min_size=1, max_size=12)),
    st.tuples(st.just("fact"), small, st.sampled_from(["Ana", "Bob"]), st.sampled_from(["Paris", "Lyon", "Ana"])),
    st.tuples(st.just("update"), small, texts),
    st.tuples(st.just("delete"), small),
    st.tuples(st.just("forget"), st.integers(0, 5)),
    st.tuples(st.just("reinforce"), small),
    st.tuples(st.just("search"), st.sampled_from(QUERIES)),
    st.tuples(st.just("consolidate")),
    st.tuples(st.just("distill")),
)
# What the other one does besides: it may erase, and whoever runs the store compacts, saves and embeds anew.
others = st.one_of(
    steps,
    st.tuples(st.just("erase"), small),
    st.tuples(st.just("delete_namespace")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("flush")),
)


def vector_of(text: str) -> np.ndarray[Any, Any]:
    return HashEmbedder(8).embed_query(text)


class Tenant:
    """Does steps in one namespace of an engine."""

    def __init__(self, engine: jiyi.Engine, namespace: str, *, vectors: bool = False) -> None:
        self.engine, self.namespace, self.vectors = engine, namespace, vectors

    def do(self, step: tuple[Any, ...]) -> None:
        name, *rest = step
        getattr(self, f"_{name}")(*rest)

    def _memory(self, number: int, text: str, day: int = 3) -> dict[str, Any]:
        return {
            "id": f"m{number}",
            "text": text,
            "timestamp": f"2026-05-{day:02}T0{number % 10}:00:00Z",
            "session": f"s{number % 3}",
            "speaker": ("Ana", "Bob", None)[number % 3],
            "metadata": {"n": number},
            "namespace": self.namespace,
        }

    def _given(self, texts: list[str]) -> dict[str, Any]:
        return {"vectors": [vector_of(text) for text in texts]} if self.vectors else {}

    def _add(self, number: int, text: str, day: int) -> None:
        self.engine.add_many([self._memory(number, text, day)], **self._given([text]))

    def _many(self, items: list[tuple[int, str]]) -> None:
        self.engine.add_many([self._memory(n, t) for n, t in items], **self._given([t for _, t in items]))

    def _fact(self, number: int, subject: str, place: str) -> None:
        fact = jiyi.Memory.fact(
            subject, "lives in", place, id=f"f{number}", namespace=self.namespace, timestamp=f"2026-05-{number + 1:02}"
        )
        self.engine.add_many([fact], **self._given([fact.text]))

    def _update(self, number: int, text: str) -> None:
        try:
            vector = vector_of(text) if self.vectors else None
            self.engine.update(f"m{number}", namespace=self.namespace, text=text, vector=vector)
        except jiyi.NotFoundError:
            pass

    def _delete(self, number: int) -> None:
        self.engine.delete([f"m{number}", f"f{number}"], namespace=self.namespace)

    def _forget(self, number: int) -> None:
        self.engine.forget({"metadata.n": number}, namespace=self.namespace)

    def _reinforce(self, number: int) -> None:
        self.engine.reinforce(f"m{number}", namespace=self.namespace, now=NOW)

    def _search(self, query: str) -> None:
        self.engine.search(query, namespace=self.namespace, now=NOW, query_vector=self._query(query))

    def _query(self, query: str) -> Any:
        return vector_of(query) if self.vectors else None

    def _consolidate(self) -> None:
        self.engine.consolidate(namespace=self.namespace, jaccard=0.5, cosine=0.0)

    def _distill(self) -> None:
        self.engine.distill(
            namespace=self.namespace,
            extractor=lambda memories: [f"about {memory.text}" for memory in memories][:2],
            name="x",
        )

    def _erase(self, number: int) -> None:
        try:
            self.engine.erase(f"m{number}", namespace=self.namespace)
        except ValueError as error:
            assert "merged" in str(error)  # noqa: PT017

    def _delete_namespace(self) -> None:
        self.engine.delete_namespace(self.namespace)

    def _compact(self) -> None:
        self.engine.compact()

    def _flush(self) -> None:
        self.engine.flush()

    def told(self) -> str:
        """Everything that the tenant can be told, as text in which every bit of every number shows."""
        engine, name = self.engine, self.namespace
        said: dict[str, Any] = {}
        for i, setting in enumerate(SETTINGS):
            for query in QUERIES if not i else QUERIES[:2]:
                hits = engine.search(query, namespace=name, now=NOW, query_vector=self._query(query), **setting)
                said[f"{i} {query}"] = answer(hits)
        many = engine.search_many(QUERIES, namespace=name, now=NOW, query_vector=self._query(QUERIES[0]))
        said["many"] = [answer(hits) for hits in many]
        said["count"] = [engine.count(namespace=name), engine.count(namespace=name, where={"kind": "semantic"})]
        for order in ("stored", "newest", "oldest"):
            said[order] = [memory.to_dict() for memory in engine.list(namespace=name, order=order)]
        said["facts"] = [memory.to_dict() for memory in engine.facts(namespace=name, history=True, now=NOW)]
        said["neighbors"] = [
            (n.entity, n.distance, [m.id for m in n.facts])
            for n in engine.neighbors("Ana", namespace=name, hops=2, now=NOW)
        ]
        context = engine.build_context(
            ["I drink green tea", "where did Ana move to?"],
            namespace=name,
            now=NOW,
            **({"query_vector": self._query("tea")} if self.vectors else {}),
        )
        said["context"] = [context.text, [memory.id for memory in context.memories]]
        said["namespaces"] = engine.namespaces(among=jiyi.exact_namespace(name))
        said["dry"] = [
            engine.forget({"metadata.n": {"lt": 4}}, namespace=name, dry_run=True),
            str(engine.consolidate(namespace=name, dry_run=True, jaccard=0.5, cosine=0.0)),
            engine.retain({"episodic": {"max_count": 2}}, namespace=name, now=NOW, dry_run=True),
        ]
        said["errors"] = [
            refusal(lambda: engine.get("nobody", namespace=name)),
            refusal(lambda: engine.get("b-only", namespace=name)),
            refusal(lambda: engine.update("b-only", namespace=name, text="x")),
            refusal(lambda: engine.search("x", namespace=name, where={"nonsense": 1})),
            refusal(lambda: engine.add({"text": "x", "namespace": name, "kind": "other"})),
            refusal(lambda: engine.outcome("m1", success=True, namespace=name)),
            refusal(lambda: engine.retain({"episodic": {"max_count": -2}}, namespace=name)),
        ]
        return json.dumps(said, ensure_ascii=False, indent=1)


def answer(hits: jiyi.Hits) -> dict[str, Any]:
    """All of an answer but how long it took."""
    said = hits.to_dict()
    del said["timings_ms"]
    record = hits.query_record.to_dict()
    # The store's own: its id, how far its counter of changes is, the model that first gave it vectors.
    del record["store"], record["generation"], record["vectors"], record["vectors_version"]
    explained = [line for line in hits.explain().splitlines() if not line.endswith(" ms")]
    return {"hits": said, "ids": hits.ids, "explained": explained, "record": record}


def refusal(call: Callable[[], object]) -> str:
    try:
        return f"no error: {call()}"
    except (jiyi.JiyiError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


EMBEDDERS: dict[str, Callable[[], Any]] = {
    "table": lambda: HashTable(8),
    "transformer": lambda: HashEmbedder(8),
    "external": lambda: None,
    "words": lambda: None,
}


@contextmanager
def two_stores(path: Path | None, kind: str, **arguments: Any) -> Iterator[tuple[jiyi.Engine, jiyi.Engine]]:
    def opened(name: str) -> jiyi.Engine:
        where = None if path is None else path / name
        return jiyi.open(where, embedder=EMBEDDERS[kind](), dim=8 if kind == "external" else None, **arguments)

    with opened("alone") as alone, opened("shared") as shared:
        yield alone, shared


def check_wall(
    alone: jiyi.Engine,
    shared: jiyi.Engine,
    mine: list[tuple[Any, ...]],
    theirs: list[tuple[Any, ...]],
    *,
    vectors: bool,
    their_vectors: bool,
    settle: bool = False,
) -> None:
    a, also_a = Tenant(alone, "a", vectors=vectors), Tenant(shared, "a", vectors=vectors)
    b = Tenant(shared, "b", vectors=their_vectors)
    shared.add("what b keeps for herself: tea, redis, 京都", id="b-only", namespace="b", **b_vector(b))
    for i in range(max(len(mine), len(theirs))):
        if i < len(theirs):
            b.do(theirs[i])
        if i < len(mine):
            a.do(mine[i])
            also_a.do(mine[i])
        if settle:
            alone.flush()
            shared.flush()
    assert also_a.told() == a.told()


def b_vector(b: Tenant) -> dict[str, Any]:
    return {"vector": vector_of("b")} if b.vectors else {}


@pytest.mark.parametrize("kind", list(EMBEDDERS))
@settings(max_examples=12)
@given(mine=st.lists(steps, min_size=1, max_size=8), theirs=st.lists(others, max_size=8))
def test_what_a_tenant_is_told_does_not_depend_on_another(
    kind: str, mine: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]
) -> None:
    vectors = kind == "external"
    with two_stores(None, kind) as (alone, shared):
        # Of a store of words alone, the other tenant may be the one who brings vectors.
        check_wall(alone, shared, mine, theirs, vectors=vectors, their_vectors=kind in ("external", "words"))


@pytest.mark.parametrize("kind", ["table", "external"])
@settings(max_examples=5)
@given(mine=st.lists(steps, min_size=2, max_size=6), theirs=st.lists(others, min_size=2, max_size=8))
def test_nor_on_indexes_and_on_who_is_unloaded_to_make_room(
    tmp_path_factory: pytest.TempPathFactory, kind: str, mine: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]
) -> None:
    small = jiyi.IndexConfig(dense_rows=4, keyword_rows=4)
    folder = tmp_path_factory.mktemp("stores")
    vectors = kind == "external"
    with two_stores(folder, kind, index_config=small, memory_budget_mb=0.001) as (alone, shared):
        check_wall(alone, shared, mine, theirs, vectors=vectors, their_vectors=vectors, settle=True)


def test_a_namespace_that_was_unloaded_and_loaded_again_answers_to_the_last_bit_as_one_that_stayed(
    tmp_path: Path,
) -> None:
    """Loaded anew, words are numbered anew, and sums of many terms must not be taken in another order."""
    rng = np.random.default_rng(3)
    words = [f"word{i}" for i in range(40)]
    told = []
    for name, budget in (("stays", 1024.0), ("goes", 0.001)):
        rng = np.random.default_rng(3)
        with jiyi.open(tmp_path / name, embedder=HashTable(8), memory_budget_mb=budget) as engine:
            for i in range(120):
                text = " ".join(rng.choice(words, int(rng.integers(5, 40))))
                engine.add(text, id=f"m{i}", namespace="a", timestamp="2026-05-01")
                if i == 0:
                    engine.search("word1", namespace="a", now=NOW)  # loaded from here on
                if i % 2 and i > 5:
                    engine.delete(f"m{i - 4}", namespace="a")
            engine.add("tea", namespace="b")
            engine.search("tea", namespace="b", now=NOW)
            queries = [" ".join(rng.choice(words, 14)) for _ in range(25)]
            told.append([answer(engine.search(query, namespace="a", k=20, now=NOW)) for query in queries])
    assert told[0] == told[1]


def test_words_are_as_rare_as_they_are_in_the_namespace_alone(engine: jiyi.Engine) -> None:
    for i in range(3):
        engine.add(f"tea number {i}" if i else "redis", id=f"a{i}", namespace="a")
    before = engine.search("redis tea", namespace="a", now=NOW)[0].factors["signals"]["keyword"]["raw"]
    engine.add_many([f"redis {i}" for i in range(500)], namespace="b")
    assert engine.search("redis tea", namespace="a", now=NOW)[0].factors["signals"]["keyword"]["raw"] == before


def test_another_namespace_is_searched_only_when_it_is_named(engine: jiyi.Engine) -> None:
    engine.add("green tea", id="mine", namespace="a")
    engine.add("green tea", id="theirs", namespace="ab")
    engine.add("green tea", id="star", namespace="a*")
    assert engine.search("tea", namespace="a").ids == ["mine"]
    assert set(engine.search("tea", namespace=["a", "ab"]).ids) == {"mine", "theirs"}
    assert set(engine.search("tea", namespace="a*").ids) == {"mine", "theirs", "star"}
    assert engine.search("tea", namespace=jiyi.exact_namespace("a*")).ids == ["star"]
    assert engine.search("tea").ids == []


def test_the_cross_encoders_memory_of_scores_is_each_tenants_own(engine: jiyi.Engine) -> None:
    """Who has no time left is told what is remembered: that must not be what another asked."""
    query, texts = "where did Ana move", ["Ana moved to Paris", "the cat is grey", "tea"]
    for name in ("a", "b"):
        engine.add_many(
            [{"id": str(i), "text": text, "timestamp": NOW} for i, text in enumerate(texts)], namespace=name
        )
    preset = {"preset": "best", "now": NOW}
    engine.search(query, namespace="b", **preset)
    first = engine.search(query, namespace="a", budget_ms=0, **preset)
    assert any("budget" in reason for _, reason in first.degraded)
    engine.search(query, namespace="a", **preset)
    assert not engine.search(query, namespace="a", budget_ms=0, **preset).degraded


def test_a_deleted_namespace_is_gone_from_every_file(folder: Path) -> None:
    secret = "zanzibar-sultanate"
    small = jiyi.IndexConfig(dense_rows=2, keyword_rows=2)
    with jiyi.open(folder, embedder=HashTable(8), index_config=small) as engine:
        engine.add_many([f"{secret} {i}" for i in range(5)], namespace=f"ns-{secret}", kind="semantic")
        engine.add("stays", namespace="other")
        engine.flush()
        assert engine.delete_namespace(f"ns-{secret}") == 5
        assert engine.delete_namespace(f"ns-{secret}") == 0
        assert engine.namespaces() == {"other": 1}
        for path in folder.rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path
        with pytest.raises(ValueError, match="takes no prefix"):
            engine.delete_namespace("oth*")
        assert engine.count(namespace="other") == 1
