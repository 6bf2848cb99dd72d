"""Everything that a user calls: as meant, wrongly, and with malice."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
import jiyi.store
from jiyi.memory import Memory
from jiyi.partition import Partition
from tests.engine.conftest import Child
from tests.engine.embedders import HashEmbedder, HashTable

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["memory", "folder"])
def anywhere(request: pytest.FixtureRequest, folder: Path) -> Iterator[jiyi.Engine]:
    """An empty engine, in memory and in a folder."""
    with jiyi.open(None if request.param == "memory" else folder, embedder=None) as engine:
        yield engine


def _texts(hits: jiyi.Hits) -> list[str]:
    return [memory.text for memory in hits.memories]


# --------------------------------------------------------------------------------------------- opening


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"durability": "none"}, ValueError),
        ({"durability": None}, ValueError),
        ({"dim": 0}, ValueError),
        ({"dim": -1}, ValueError),
        ({"dim": True}, ValueError),
        ({"dim": 2.5}, (TypeError, ValueError)),
        ({"memory_budget_mb": 0}, ValueError),
        ({"memory_budget_mb": -1}, ValueError),
        ({"memory_budget_mb": float("nan")}, ValueError),
        ({"memory_budget_mb": "1"}, TypeError),
        ({"config": {"k": 1}}, TypeError),
        ({"embedder": 5}, TypeError),
        ({"embedder": ...}, TypeError),
        ({"index_config": {"dense_rows": 1}}, TypeError),
    ],
    ids=str,
)
def test_wrong_arguments_to_open(folder: Path, settings: dict[str, Any], error: Any) -> None:
    with pytest.raises(error):
        jiyi.open(folder, **{"embedder": None, **settings})
    assert not (folder / "ledger.sqlite").exists()


def test_an_unknown_embedder_is_refused_with_a_list() -> None:
    with pytest.raises(ValueError, match="no embedder 'nonsense'; there are"):
        jiyi.open(embedder="nonsense")


def test_no_limit_of_memory(folder: Path) -> None:
    with jiyi.open(folder, embedder=None, memory_budget_mb=float("inf")) as engine:
        engine.add("cat")
        assert len(engine.search("cat")) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"graph_links": 0},
        {"graph_links": 1},
        {"graph_links": -1},
        {"graph_links": 10**7},
        {"graph_build_width": 0},
        {"graph_search_width": 0},
        {"graph_search_width": -5},
        {"dense_rows": 0},
        {"keyword_rows": -1},
        {"dense_rows": "x"},
        {"dense_rows": 1.5},
        {"dense_rows": True},
        {"rebuild_fraction": 0.0},
        {"rebuild_fraction": -1.0},
        {"rebuild_fraction": float("nan")},
        {"rebuild_fraction": float("inf")},
        {"rebuild_fraction": "x"},
    ],
    ids=str,
)
def test_index_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(settings))):
        jiyi.IndexConfig(**settings)


def test_a_store_is_reopened_with_what_it_holds(folder: Path) -> None:
    with jiyi.open(folder, embedder=HashTable()) as engine:
        engine.add("the cat sat", id="a", kind="semantic", metadata={"x": 1})
        engine.add("周末去徒步", id="b", namespace="ana")
        before = [
            engine.search(q, namespace=n, now=NOW).to_dict()["hits"] for q, n in (("cat", "default"), ("徒步", "ana"))
        ]
    with jiyi.open(folder, embedder=HashTable()) as engine:
        after = [
            engine.search(q, namespace=n, now=NOW).to_dict()["hits"] for q, n in (("cat", "default"), ("徒步", "ana"))
        ]
        assert after == before
        assert engine.namespaces() == {"ana": 1, "default": 1}


def test_another_embedder_than_the_stores(folder: Path) -> None:
    with jiyi.open(folder, embedder=HashEmbedder(16, "one")) as engine:
        engine.add("cat", id="a")
    for other in (HashEmbedder(16, "two"), HashEmbedder(8, "one")):
        with jiyi.open(folder, embedder=other) as engine:
            hits = engine.search("cat")
            assert hits.ids == ["a"]
            [degraded] = hits.degraded
            assert degraded.stage == "dense"
            for word in ("'one'", "16", repr(other.name), str(other.dim)):
                assert word in degraded.reason
            with pytest.raises(jiyi.ModelMismatchError, match="'one'"):
                engine.add("dog")
            assert engine.count() == 1
            engine.add("dog", id="d", vector=np.ones(16))
            assert engine.stats()["mismatch"]
            assert engine.delete("d") == 1
    with jiyi.open(folder, embedder=HashEmbedder(16, "one")) as engine:
        assert engine.search("cat").degraded == ()
        engine.add("dog")


def test_a_store_begun_without_vectors_takes_them_later(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("cat one", id="a")
        assert engine.search("cat").ids == ["a"]
        engine.add("cat two", id="b", vector=[1.0, 0.0])
        assert engine.search("zzz", query_vector=[1, 0]).ids == ["b"]
        assert engine.search("cat", query_vector=[1, 0], k=5).ids[0] == "b"
        assert set(engine.search("cat").ids) == {"a", "b"}
    with jiyi.open(folder, embedder=None) as engine:
        assert engine.stats()["dim"] == 2
        assert engine.search("zzz", query_vector=[1, 0]).ids == ["b"]


# ---------------------------------------------------------------------------------------------- adding


def test_add_takes_texts_memories_and_mappings(anywhere: jiyi.Engine) -> None:
    ids = [
        anywhere.add(
            "cat",
            kind="archival",
            namespace="ana",
            session="s",
            speaker="Ana",
            metadata={"a": 1},
            sources=["x"],
            timestamp=5,
            expires_at="9999-01-01",
        ),
        anywhere.add(Memory(text="dog", id="d"), namespace="bo"),
        anywhere.add({"text": "bird", "kind": "semantic"}, metadata={"b": 2}),
    ]
    memory = anywhere.get(ids[0], namespace="ana")
    assert (memory.kind, memory.session, memory.speaker, memory.metadata, memory.sources) == (
        "archival",
        "s",
        "Ana",
        {"a": 1},
        ("x",),
    )
    assert memory.timestamp == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert anywhere.get("d", namespace="bo").text == "dog"
    assert anywhere.get(ids[2]).metadata == {"b": 2}
    assert anywhere.add_many([]) == []
    assert anywhere.add_many(f"m{i}" for i in range(3)) == [memory.id for memory in anywhere.list()[1:]]


def test_adding_an_id_that_exists_replaces(anywhere: jiyi.Engine) -> None:
    anywhere.add("old cat", id="a", vector=[1, 0], metadata={"x": 1})
    anywhere.search("cat")
    anywhere.add("new dog", id="a", vector=[0, 1])
    assert anywhere.count() == 1
    assert anywhere.get("a").metadata == {}
    assert anywhere.search("cat").ids == []
    assert anywhere.search("dog").ids == ["a"]
    assert anywhere.search("zzz", query_vector=[0, 1])[0].factors["signals"]["dense"]["raw"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda e: e.add(5), TypeError),
        (lambda e: e.add(None), TypeError),
        (lambda e: e.add(b"x"), TypeError),
        (lambda e: e.add(["x"]), TypeError),
        (lambda e: e.add("x", kind="odd"), ValueError),
        (lambda e: e.add("x", namespace=""), ValueError),
        (lambda e: e.add("x", id=5), TypeError),
        (lambda e: e.add("x", colour="red"), TypeError),
        (lambda e: e.add({"text": "x", "colour": "red"}), ValueError),
        (lambda e: e.add("x", vector=[]), ValueError),
        (lambda e: e.add("x", vector=[[1, 2]]), ValueError),
        (lambda e: e.add("x", vector="abc"), (TypeError, ValueError)),
        (lambda e: e.add("x", vector=5.0), (TypeError, ValueError)),
        (lambda e: e.add("x", vector=[1j, 2]), TypeError),
        (lambda e: e.add("x", vector=["1", "2"]), (TypeError, ValueError)),
        (lambda e: e.add("x", vector=[None, 1]), (TypeError, ValueError)),
        (lambda e: e.add("x", vector={1: 2}), TypeError),
        (lambda e: e.add("x", vector=[[1], [2, 3]]), (TypeError, ValueError)),
        (lambda e: e.add("x", vector=[float("nan"), 1]), ValueError),
        (lambda e: e.add("x", vector=[1e300, 1]), ValueError),
        (lambda e: e.add_many("abc"), TypeError),
        (lambda e: e.add_many({"text": "x"}), TypeError),
        (lambda e: e.add_many(Memory(text="x")), TypeError),
        (lambda e: e.add_many(5), TypeError),
        (lambda e: e.add_many(None), TypeError),
        (lambda e: e.add_many(["x"], vectors=[]), ValueError),
        (lambda e: e.add_many(["x"], vectors=[[1, 2], [3, 4]]), ValueError),
        (lambda e: e.add_many(["x", "y"], vectors=[[1, 2], [3, 4, 5]]), ValueError),
        (lambda e: e.add_many(["x"], vectors=5), TypeError),
        (lambda e: e.add_many(["x"], kind="odd"), ValueError),
        (lambda e: e.add_many(["x"], namespace=""), ValueError),
    ],
    ids=range(31),
)
def test_wrong_memories_leave_nothing(anywhere: jiyi.Engine, call: Callable[[jiyi.Engine], Any], error: Any) -> None:
    with pytest.raises(error):
        call(anywhere)
    assert anywhere.count(namespace=None) == 0
    assert anywhere.search("x").ids == []
    anywhere.add("x", vector=[1, 2, 3])  # no dimension was left behind either
    assert anywhere.search("x").ids != []


def test_vectors_may_be_missing_for_some(anywhere: jiyi.Engine) -> None:
    anywhere.add_many([{"text": "a", "id": "a"}, {"text": "b", "id": "b"}], vectors=[None, [1, 0]])
    assert anywhere.search("zzz", query_vector=[1, 0]).ids == ["b"]
    assert anywhere.search("a").ids == ["a"]


def test_two_first_writes_of_different_dimensions(anywhere: jiyi.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)
    analyse = jiyi.store.analyse

    def together(*arguments: Any) -> Any:
        made = analyse(*arguments)
        both.wait(20)
        return made

    monkeypatch.setattr(jiyi.store, "analyse", together)
    answers: list[Any] = []

    def write(dim: int) -> None:
        try:
            answers.append(anywhere.add(f"cat {dim}", vector=[1.0] * dim))
        except jiyi.DimensionError as error:
            answers.append(error)

    threads = [threading.Thread(target=write, args=(dim,)) for dim in (8, 16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    assert sorted(type(answer).__name__ for answer in answers) == ["DimensionError", "str"]
    assert anywhere.count() == 1
    assert len(anywhere.search("cat", query_vector=[1.0] * anywhere.stats()["dim"])) == 1


class Embedding(HashEmbedder):
    """Returns what it is told to."""

    def __init__(self, how: Callable[[int], Any]) -> None:
        super().__init__(4, "told")
        self.how = how

    def embed(self, texts: Any) -> Any:
        return self.how(len(texts))


@pytest.mark.parametrize(
    "how",
    [
        lambda n: np.full((n, 4), np.nan, np.float32),
        lambda n: np.ones((n, 5), np.float32),
        lambda n: np.ones((n + 1, 4), np.float32),
        lambda n: np.ones(4 * n, np.float32),
        lambda n: np.full((n, 4), 1e300),
        lambda n: None,
        lambda n: 1 / 0,
    ],
)
def test_an_embedder_that_fails_on_memories_leaves_nothing(how: Callable[[int], Any]) -> None:
    with jiyi.open(embedder=Embedding(how)) as engine:
        with pytest.raises((ValueError, TypeError, ArithmeticError)):  # jiyi's own, or the embedder's
            engine.add_many(["cat", "dog"])
        assert engine.count() == 0
        engine.add("cat", vector=[1, 0, 0, 0])
        assert engine.count() == 1


# ----------------------------------------------------------------------- getting, updating, forgetting


def test_get_what_is_not_there(anywhere: jiyi.Engine) -> None:
    anywhere.add("x", id="a", namespace="ana")
    for i, namespace in (("a", "default"), ("b", "ana"), ("a", "nobody")):
        with pytest.raises(jiyi.NotFoundError, match=f"no memory '{i}' in namespace '{namespace}'") as caught:
            anywhere.get(i, namespace=namespace)
        assert isinstance(caught.value, KeyError)
    for bad, error in ((5, TypeError), ("", ValueError), (None, TypeError), ("\ud800", ValueError)):
        with pytest.raises(error):
            anywhere.get(bad)  # type: ignore[arg-type]


def test_update(anywhere: jiyi.Engine) -> None:
    anywhere.add("cat", id="a", kind="semantic", timestamp=5, session="s", metadata={"x": 1}, vector=[1, 0])
    changed = anywhere.update("a", text="dog", metadata={"y": 2})
    assert changed == anywhere.get("a")
    assert (changed.text, changed.kind, changed.session, changed.metadata) == ("dog", "semantic", "s", {"y": 2})
    assert anywhere.search("cat").ids == []
    assert anywhere.search("dog").ids == ["a"]
    assert anywhere.update("a", session=None, sources=[], expires_at=None).session is None
    with pytest.raises(jiyi.NotFoundError):
        anywhere.update("b", text="x")
    for fields, error in (
        ({"id_": "b"}, TypeError),
        ({"colour": 1}, TypeError),
        ({"text": 5}, TypeError),
        ({"kind": "odd"}, ValueError),
        ({"metadata": None}, TypeError),
        ({"text": None}, TypeError),
    ):
        with pytest.raises(error):
            anywhere.update("a", **fields)
    with pytest.raises(jiyi.NotFoundError):
        anywhere.update("a", namespace="other", text="x")
    assert anywhere.get("a").text == "dog"
    assert anywhere.count() == 1


def test_update_of_metadata_keeps_the_vector(anywhere: jiyi.Engine) -> None:
    anywhere.add("cat", id="a", vector=[3, 4])
    anywhere.add("dog", id="b", vector=[0, 1])
    anywhere.update("a", metadata={"seen": True})
    hit = anywhere.search("zzz", query_vector=[3, 4], where={"id": "a"})[0]
    assert hit.factors["signals"]["dense"]["raw"] == pytest.approx(1.0)
    anywhere.update("a", vector=[-3, -4])
    hit = anywhere.search("zzz", query_vector=[3, 4], where={"id": "a"})[0]
    assert hit.factors["signals"]["dense"]["raw"] == pytest.approx(-1.0)


def test_update_of_the_text_embeds_it_again() -> None:
    with jiyi.open(embedder=HashEmbedder()) as engine:
        engine.add("cat", id="a")
        engine.update("a", text="dog")
        assert engine.search("dog")[0].factors["signals"]["dense"]["raw"] == pytest.approx(1.0, abs=1e-5)


def test_delete(anywhere: jiyi.Engine) -> None:
    ids = anywhere.add_many([f"cat {i}" for i in range(6)])
    anywhere.search("cat")
    assert anywhere.delete(ids[0]) == 1
    assert anywhere.delete(ids[0]) == 0
    assert anywhere.delete([ids[1], "unknown", ids[1], ids[2]]) == 2
    assert anywhere.delete(iter([ids[3]])) == 1
    assert anywhere.delete([]) == 0
    assert anywhere.delete(ids, namespace="other") == 0
    assert [memory.id for memory in anywhere.list()] == ids[4:]
    assert sorted(anywhere.search("cat").ids) == ids[4:]
    for bad in ([5], 5, None, [None], [""]):
        with pytest.raises((TypeError, ValueError)):
            anywhere.delete(bad)  # type: ignore[arg-type]
    assert anywhere.count() == 2


def test_an_id_given_twice_to_delete_counts_once(anywhere: jiyi.Engine) -> None:
    texts = [f"cat number{i} and some more" for i in range(6)]
    ids = anywhere.add_many(texts)
    anywhere.search("load")
    anywhere.delete([ids[0], ids[0], ids[1], ids[0]])
    with jiyi.open(embedder=None) as fresh:
        fresh.add_many(texts[2:])
        hits, wanted = (engine.search("cat more", now=NOW) for engine in (anywhere, fresh))
        raw = [[hit.factors["signals"]["keyword"]["raw"] for hit in one] for one in (hits, wanted)]
        assert raw[0] == raw[1]


def test_forget(anywhere: jiyi.Engine) -> None:
    anywhere.add_many(
        [{"text": f"cat {i}", "kind": jiyi.KINDS[i % 4], "namespace": f"n{i % 2}", "id": f"i{i}"} for i in range(8)]
    )
    anywhere.search("cat", namespace="n0")
    assert anywhere.forget({"kind": "episodic"}, namespace="n0", dry_run=True) == 2
    assert anywhere.count(namespace=None) == 8
    assert anywhere.forget({"kind": "episodic"}, namespace="n0") == 2
    assert anywhere.forget({"kind": "episodic"}, namespace="n1") == 0
    assert anywhere.search("cat", namespace="n0").ids == ["i2", "i6"]
    assert anywhere.forget({}, namespace="n0") == 2
    assert anywhere.namespaces() == {"n1": 4}
    assert anywhere.search("cat", namespace="n0").ids == []


@pytest.mark.parametrize("dry_run", [True, False])
def test_forget_takes_no_none(anywhere: jiyi.Engine, dry_run: bool) -> None:
    anywhere.add("x", namespace="a")
    anywhere.add("x")
    for where, namespace in ((None, "default"), ({}, None), (None, None)):
        with pytest.raises(TypeError):
            anywhere.forget(where, namespace=namespace, dry_run=dry_run)  # type: ignore[arg-type]
    assert anywhere.count(namespace=None) == 2


def test_list_and_count(anywhere: jiyi.Engine) -> None:
    times = [5, 1, 9, 1]
    anywhere.add_many(
        [{"text": "x", "id": f"i{i}", "timestamp": t, "namespace": f"n{i % 2}"} for i, t in enumerate(times)]
    )
    ids = lambda **s: [memory.id for memory in anywhere.list(**s)]  # noqa: E731
    assert ids(namespace=None) == ["i0", "i1", "i2", "i3"]
    assert ids(namespace=None, order="newest") == ["i2", "i0", "i1", "i3"]
    assert ids(namespace=None, order="oldest") == ["i1", "i3", "i0", "i2"]
    assert ids(namespace="n1") == ["i1", "i3"]
    assert ids(namespace=None, limit=2) == ["i0", "i1"]
    assert ids(namespace=None, limit=0) == []
    assert len(ids(namespace=None, limit=10**30)) == 4
    assert ids() == []
    assert (anywhere.count(), anywhere.count(namespace="n0"), anywhere.count(namespace=None)) == (0, 2, 4)
    for settings, error in (
        ({"order": "best"}, ValueError),
        ({"order": "stored; DROP"}, ValueError),
        ({"order": None}, ValueError),
        ({"limit": -1}, ValueError),
        ({"limit": 1.5}, TypeError),
        ({"limit": True}, TypeError),
        ({"namespace": ""}, ValueError),
        ({"namespace": 5}, TypeError),
    ):
        with pytest.raises(error):
            anywhere.list(**settings)


# ---------------------------------------------------------------------------------------------- search


def test_an_empty_store(anywhere: jiyi.Engine) -> None:
    for settings in (
        {},
        {"query_vector": [1, 2]},
        {"k": 0},
        {"namespace": "nobody"},
        {"where": {"kind": "semantic"}},
        {"preset": "keyword"},
    ):
        hits = anywhere.search("cat", **settings)
        assert (len(hits), hits.ids, hits.scores, list(hits)) == (0, [], [], [])
        assert "nothing found" in hits.explain()
        hits.to_dict()
    assert anywhere.list(namespace=None) == []
    assert (anywhere.count(namespace=None), anywhere.namespaces(), anywhere.verify(), anywhere.compact()) == (
        0,
        {},
        [],
        0,
    )
    anywhere.flush()
    assert anywhere.stats()["memories"] == 0


def test_k(anywhere: jiyi.Engine) -> None:
    ids = anywhere.add_many([f"cat {i}" for i in range(7)], vectors=np.random.default_rng(0).normal(size=(7, 3)))
    for k in (0, 1, 6, 7, 8, 1000, 2**40, 10**30, np.int64(3)):
        hits = anywhere.search("cat", query_vector=[1, 0, 0], k=k)
        assert len(hits) == min(int(k), 7)
        assert len(set(hits.ids)) == len(hits)
        assert set(hits.ids) <= set(ids)
    for bad, error in (
        (-1, ValueError),
        (True, TypeError),
        (False, TypeError),
        (2.0, TypeError),
        ("3", TypeError),
        (None, TypeError),
        (float("nan"), TypeError),
    ):
        with pytest.raises(error, match="k "):
            anywhere.search("cat", k=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("query", ["", " ", "\n\t", "?!...", "。、", "\ud800", "\x00", "-", "the of and", "🫠"])
def test_queries_of_nothing(anywhere: jiyi.Engine, query: str) -> None:
    anywhere.add_many(["cat", "dog"], vectors=[[1, 0], [0, 1]])
    assert anywhere.search(query).ids == []
    assert len(anywhere.search(query, query_vector=[1, 0])) == 2


HOSTILE = [
    "cat\ud800dog",
    "\x00cat\x00",
    "🧠 cat 👨‍👩‍👧",
    "שלום cat",
    "\u202ecat\u202c",
    "CAT" * 50,
    "'; DROP TABLE memories; --",
    "{{cat}} %s %n ${x}",
    "<script>cat</script>",
    "cat\r\n\x1b[0m",
    "ﷺ cat",
    "c̷a̷t̷ cat",
    "İstanbul cat",
    "１２３ cat",
    "\ufeffcat",
    "a" * 10_000 + " cat",
    "(" * 5_000 + "cat",
    "cat:" * 2_000,
]


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_queries(anywhere: jiyi.Engine, query: str) -> None:
    anywhere.add_many(["cat", "dog"], vectors=[[1, 0], [0, 1]])
    hits = anywhere.search(query, query_vector=[1, 0], rerank="bm25")
    assert _texts(hits)[0] == "cat"
    hits.explain()
    hits.to_dict()
    text = query.encode("utf-8", "replace").decode()
    i = anywhere.add(text, vector=[1, 0.1])
    assert anywhere.get(i).text == text
    assert i in anywhere.search(query, k=9, query_vector=[1, 0]).ids


def test_a_megabyte_of_text(anywhere: jiyi.Engine) -> None:
    english = " ".join(f"word{i % 5_000}" for i in range(110_000))
    chinese = "周末喜欢去徒步" * 50_000
    for i, text in (("en", english), ("zh", chinese), ("one", "x" * 1_000_000)):
        anywhere.add(text, id=i)
    assert anywhere.search("word77").ids == ["en"]
    assert anywhere.search("徒步").ids == ["zh"]
    assert anywhere.search(english).ids[0] == "en"
    assert anywhere.search(chinese).ids[0] == "zh"
    assert anywhere.search("x" * 1_000_000).ids[0] == "one"
    assert anywhere.get("en").text == english


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"query": 5}, TypeError),
        ({"query": None}, TypeError),
        ({"query": b"cat"}, TypeError),
        ({"query": ["cat"]}, TypeError),
        ({"namespace": 5}, TypeError),
        ({"namespace": None}, TypeError),
        ({"namespace": ""}, ValueError),
        ({"namespace": "\ud800"}, ValueError),
        ({"namespace": "x" * 513}, ValueError),
        ({"now": "soon"}, ValueError),
        ({"now": 1e12}, ValueError),
        ({"now": True}, TypeError),
        ({"now": float("nan")}, ValueError),
        ({"query_vector": []}, ValueError),
        ({"query_vector": [1]}, ValueError),
        ({"query_vector": [1, 2, 3]}, ValueError),
        ({"query_vector": "ab"}, (TypeError, ValueError)),
        ({"query_vector": [[1, 2]]}, ValueError),
        ({"query_vector": [float("nan"), 1]}, ValueError),
        ({"query_vector": [float("inf"), 1]}, ValueError),
        ({"query_vector": 5}, (TypeError, ValueError)),
        ({"budget_ms": -1}, ValueError),
        ({"budget_ms": float("nan")}, ValueError),
        ({"budget_ms": "5"}, (TypeError, ValueError)),
        ({"budget_ms": True}, (TypeError, ValueError)),
        ({"preset": "finest"}, ValueError),
        ({"preset": 5}, (TypeError, ValueError)),
        ({"preset": []}, (TypeError, ValueError)),
        ({"preset": "fast", "config": jiyi.SearchConfig()}, ValueError),
        ({"config": {}}, TypeError),
        ({"config": "fast"}, TypeError),
        ({"colour": 1}, TypeError),
        ({"top_k": 1}, TypeError),
        ({"fusion": "best"}, ValueError),
        ({"fusion": None}, ValueError),
        ({"normalization": []}, ValueError),
        ({"diversity": "mmr"}, ValueError),
        ({"dense_plan": "graph"}, ValueError),
        ({"recency_curve": "step"}, ValueError),
        ({"recency_weight": 1.1}, ValueError),
        ({"recency_weight": -0.1}, ValueError),
        ({"recency_weight": float("nan")}, ValueError),
        ({"recency_weight": "0.1"}, TypeError),
        ({"recency_weight": True}, TypeError),
        ({"half_life_s": 0}, ValueError),
        ({"half_life_s": -1}, ValueError),
        ({"half_life_s": float("nan")}, ValueError),
        ({"mmr_lambda": 2}, ValueError),
        ({"mmr_window": -1}, ValueError),
        ({"mmr_window": 2.5}, TypeError),
        ({"rrf_k": -1}, ValueError),
        ({"rrf_k": float("inf")}, ValueError),
        ({"bm25_b": 1.5}, ValueError),
        ({"bm25_k1": -1}, ValueError),
        ({"pool_min": 0}, ValueError),
        ({"pool_min": True}, TypeError),
        ({"rerank_candidates": -1}, ValueError),
        ({"rerank_weight": 7}, ValueError),
        ({"dense_weight": -1}, ValueError),
        ({"dense_weight": float("inf")}, ValueError),
        ({"dense_weight": 0, "keyword_weight": 0, "late_weight": 0}, ValueError),
        ({"neighbor_share": -0.5}, ValueError),
        ({"rerank": "cross-encoder"}, (TypeError, ValueError)),
        ({"rerank": 5}, TypeError),
        ({"rerank": (...,)}, TypeError),
        ({"ageless_kinds": "archival"}, (TypeError, ValueError)),
        ({"ageless_kinds": ("odd",)}, ValueError),
        ({"ageless_kinds": 5}, (TypeError, ValueError)),
        ({"ageless_kinds": ([],)}, (TypeError, ValueError)),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_wrong_arguments_to_search(engine: jiyi.Engine, settings: dict[str, Any], error: Any) -> None:
    engine.add("cat", vector=[1, 0])
    with pytest.raises(error) as caught:
        engine.search(**{"query": "cat", **settings})
    assert str(caught.value)
    assert len(engine.search("cat")) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"half_life_s": 1e15, "recency_curve": "linear"},
        {"half_life_s": 1e-3, "recency_curve": "logarithmic"},
        {"half_life_s": 1e-3, "recency_curve": "linear"},
        {"half_life_s": 1e-3},
        {"half_life_s": float("inf"), "recency_curve": "linear"},
        {"rrf_k": 0, "fusion": "rrf"},
        {"pool_min": 2**40},
        {"mmr_window": 2**40},
        {"rerank_candidates": 2**40, "rerank": "bm25"},
        {"bm25_k1": 0},
        {"bm25_b": 0},
        {"bm25_b": 1, "bm25_k1": 1000.0},
        {"mmr_lambda": 0},
        {"recency_weight": 1},
        {"now": datetime.min},
        {"now": datetime.max},
    ],
    ids=str,
)
def test_extreme_settings_that_are_allowed(engine: jiyi.Engine, settings: dict[str, Any]) -> None:
    engine.add_many(
        [
            {"text": "cat dog", "timestamp": NOW},
            {"text": "cat", "timestamp": datetime.max},
            {"text": "cat", "timestamp": datetime.min},
        ],
        vectors=[[1, 0], [0, 1], [1, 1]],
    )
    hits = engine.search("cat", query_vector=[1, 0], **settings)
    assert len(hits) == 3
    assert all(0 <= score <= 1 for score in hits.scores)


def test_presets_configs_and_overrides(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": "cat", "id": "word"}, {"text": "dog", "id": "vector"}], vectors=[[0, 1], [1, 0]])
    ask = lambda **s: engine.search("cat", query_vector=[1, 0], neighbor_share=0, **s).ids  # noqa: E731
    assert ask(preset="keyword") == ["word"]
    assert ask(preset="dense") == ["vector", "word"]
    assert ask(config=jiyi.SearchConfig(keyword_weight=0.0)) == ["vector", "word"]
    assert ask(preset="dense", keyword_weight=100.0) == ["word", "vector"]
    assert ask(dense_weight=0.0, late_weight=0.0) == ["word"]
    with jiyi.open(embedder=None, config=jiyi.SearchConfig(recency_weight=1.0)) as other:
        other.add("cat", timestamp=NOW)
        assert other.search("cat", now=NOW + timedelta(days=7)).scores == [pytest.approx(0.5)]


def test_search_many(engine: jiyi.Engine) -> None:
    engine.add_many(["cat", "dog"])
    answers = engine.search_many(["cat", "dog", "zzz"], k=1)
    assert [_texts(hits) for hits in answers] == [["cat"], ["dog"], []]
    assert engine.search_many([]) == []
    assert [hits.scores for hits in engine.search_many(iter(["cat"]), now=NOW)] == [
        engine.search("cat", now=NOW).scores
    ]
    with pytest.raises(TypeError, match="list of queries"):
        engine.search_many("cat")
    with pytest.raises(TypeError):
        engine.search_many(["cat", 5])  # type: ignore[list-item]


def test_writes_are_visible_to_the_next_search(anywhere: jiyi.Engine) -> None:
    for i in range(30):
        anywhere.add(f"unique{i} word", id=f"i{i}", vector=[1.0, float(i)])
        assert anywhere.search(f"unique{i}").ids == [f"i{i}"]
        assert anywhere.search("zzz", query_vector=[1.0, float(i)], k=1, recency_weight=0).ids == [f"i{i}"]
        if i % 3 == 0:
            anywhere.delete(f"i{i}")
            assert anywhere.search(f"unique{i}").ids == []


def test_namespaces_with_the_same_ids_are_walls(anywhere: jiyi.Engine) -> None:
    for name in ("ana", "bo", "an", "ana ", "ANA", "a%", "ana\n", "ана"):
        anywhere.add(f"cat of {name!r}", id="same", namespace=name)
    for name in anywhere.namespaces():
        assert _texts(anywhere.search("cat", namespace=name)) == [f"cat of {name!r}"]
        assert anywhere.get("same", namespace=name).text == f"cat of {name!r}"
    assert len(anywhere.namespaces()) == 8
    anywhere.update("same", namespace="bo", text="dog")
    assert anywhere.delete("same", namespace="ana") == 1
    assert anywhere.search("cat", namespace="ana").ids == []
    assert anywhere.search("dog", namespace="bo").ids == ["same"]
    assert len(anywhere.namespaces()) == 7


def test_expiry_at_the_instant(anywhere: jiyi.Engine) -> None:
    moments = [NOW + timedelta(microseconds=us) for us in (0, 1, 333_333, 999_999)] + [
        datetime(2026, 7, 14, 3, 25, 45, 123_457, tzinfo=UTC)
    ]
    for n, moment in enumerate(moments):
        anywhere.add("cat", id=f"i{n}", namespace=f"n{n}", expires_at=moment, timestamp=0)
        tick = timedelta(microseconds=1)
        assert anywhere.search("cat", namespace=f"n{n}", now=moment - tick).ids == [f"i{n}"]
        assert anywhere.search("cat", namespace=f"n{n}", now=moment).ids == []
        assert anywhere.search("cat", namespace=f"n{n}", now=moment + tick).ids == []
        assert anywhere.count(namespace=f"n{n}") == 1
        assert anywhere.compact(now=moment - tick) == 0
        assert anywhere.compact(now=moment) == 1
        assert anywhere.count(namespace=f"n{n}") == 0


def test_expired_memories_take_no_place_in_the_pool(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": "cat cat", "expires_at": NOW} for _ in range(300)])
    engine.add("cat and many other words", id="alive")
    assert engine.search("cat", k=1, now=NOW, pool_min=1).ids == ["alive"]


def test_answers_do_not_change_when_the_store_is_opened_again(folder: Path) -> None:
    random_ = random.Random(2)
    words = [f"w{i}" for i in range(40)]

    def record(i: int) -> dict[str, Any]:
        return {
            "text": " ".join(random_.choices(words, k=6)),
            "id": f"i{i}",
            "session": f"s{i % 3}",
            "timestamp": NOW + timedelta(minutes=random_.randrange(90)),
        }

    settings: dict[str, Any] = {"embedder": HashTable(), "index_config": jiyi.IndexConfig(dense_rows=10**6)}
    for round_ in range(4):
        with jiyi.open(folder, **settings) as engine:
            engine.search("load")
            engine.add_many([record(i) for i in random_.sample(range(60), 20)])
            engine.update(engine.list()[0].id, metadata={"round": round_})
            engine.delete([f"i{i}" for i in random_.sample(range(60), 5)])
            before = [engine.search(f"w{i} w{i + 1}", now=NOW, k=8) for i in range(30)]
        with jiyi.open(folder, **settings) as engine:
            after = [engine.search(f"w{i} w{i + 1}", now=NOW, k=8) for i in range(30)]
        assert [hits.ids for hits in after] == [hits.ids for hits in before]
        for one, other in zip(after, before, strict=True):
            assert one.scores == pytest.approx(other.scores, abs=1e-9)


# ---------------------------------------------------------------------------------------------- upkeep


def test_snapshot(folder: Path, tmp_path: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many([f"cat {i}" for i in range(50)], vectors=np.random.default_rng(0).normal(size=(50, 4)))
        copy = engine.snapshot(tmp_path / "deep" / "copy")
        engine.add("later")
        with jiyi.open(copy, embedder=None) as other:
            assert other.list() == engine.list()[:50]
            assert (
                other.search("cat", now=NOW).scores
                == jiyi.open(copy, embedder=None, read_only=True).search("cat", now=NOW).scores
            )
            assert other.verify() == []
            other.add("apart")
        assert engine.count() == 51
        with pytest.raises(ValueError, match="not empty"):
            engine.snapshot(copy)
        (tmp_path / "file").write_text("x")
        with pytest.raises(ValueError, match="not empty"):
            engine.snapshot(tmp_path / "file")
        with pytest.raises(jiyi.StoreError):
            engine.snapshot(tmp_path / "file" / "below")
        (tmp_path / "empty").mkdir()
        assert engine.snapshot(str(tmp_path / "empty")) == tmp_path / "empty"
        assert not list(tmp_path.rglob("*.partial"))
    with jiyi.open(embedder=None) as engine:
        engine.add("cat")
        engine.snapshot(tmp_path / "from-memory")
    with jiyi.open(tmp_path / "from-memory", embedder=None, read_only=True) as engine:
        assert _texts(engine.search("cat")) == ["cat"]


def test_snapshots_while_writing_are_consistent(folder: Path, tmp_path: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        stop = threading.Event()

        def write() -> None:
            i = 0
            while not stop.is_set():
                engine.add_many([{"text": f"pair {i}", "id": f"{i}{side}"} for side in "ab"])
                i += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            copies = [engine.snapshot(tmp_path / f"copy{n}") for n in range(4)]
        finally:
            stop.set()
            thread.join()
    for copy in copies:
        with jiyi.open(copy, embedder=None) as other:
            assert other.verify() == []
            ids = {memory.id for memory in other.list()}
            assert {i[:-1] + "a" for i in ids} | {i[:-1] + "b" for i in ids} == ids


def test_compact_gives_space_back(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        ids = engine.add_many(["long text " * 200 + str(i) for i in range(300)])
        engine.flush()
        before = engine.stats()["disk_bytes"]
        engine.delete(ids[1:])
        assert engine.compact() == 0
        assert engine.stats()["disk_bytes"] < before / 3
        assert [memory.id for memory in engine.list()] == ids[:1]
        assert engine.search("long", k=5).ids == ids[:1]
        engine.add("long again")
        assert len(engine.search("long")) == 2


def test_stats(folder: Path) -> None:
    with jiyi.open(folder, embedder=HashEmbedder(8, "eight")) as engine:
        engine.add_many([{"text": "cat", "kind": kind, "namespace": kind[0]} for kind in jiyi.KINDS])
        stats = engine.stats()
        assert (stats["memories"], stats["namespaces"], stats["embedder"], stats["dim"]) == (4, 4, "eight", 8)
        assert stats["kinds"] == dict.fromkeys(jiyi.KINDS, 1)
        assert stats["path"] == str(folder)
        assert stats["disk_bytes"] > 0
        assert stats["loaded_namespaces"] == 0
        engine.search("cat", namespace="e")
        assert engine.stats()["loaded_namespaces"] == 1
        assert engine.stats()["loaded_bytes"] > 0


def test_a_small_memory_budget_still_answers_right(folder: Path) -> None:
    with jiyi.open(folder, embedder=None, memory_budget_mb=0.004) as engine:
        for round_ in range(3):
            for n in range(12):
                engine.add(f"cat {n} round{round_}", namespace=f"n{n}", vector=[1.0, n])
        random_ = random.Random(0)
        for _ in range(60):
            n = random_.randrange(12)
            assert len(engine.search("cat", namespace=f"n{n}", k=99)) == 3
            assert len(engine.search(f"{n}", namespace=f"n{n}")) == 3
        assert engine.stats()["loaded_namespaces"] < 12
        engine.add("cat late", namespace="n3")
        assert len(engine.search("cat", namespace="n3", k=99)) == 4


def test_verify_of_a_sound_store(anywhere: jiyi.Engine) -> None:
    anywhere.add_many(
        [{"text": f"m{i}", "metadata": {"f": 0.1 * i}, "expires_at": NOW} for i in range(20)], vectors=np.eye(20)
    )
    anywhere.update(anywhere.list()[0].id, text="changed")
    anywhere.delete(anywhere.list()[1].id)
    assert anywhere.verify() == []


# ---------------------------------------------------------------------------------- life and processes


CALLS: dict[str, Callable[[jiyi.Engine], Any]] = {
    "add": lambda e: e.add("x"),
    "add_many": lambda e: e.add_many(["x"]),
    "get": lambda e: e.get("a"),
    "update": lambda e: e.update("a", text="y"),
    "delete": lambda e: e.delete("a"),
    "forget": lambda e: e.forget({}),
    "forget dry": lambda e: e.forget({}, dry_run=True),
    "count": lambda e: e.count(),
    "list": lambda e: e.list(),
    "namespaces": lambda e: e.namespaces(),
    "search": lambda e: e.search("x"),
    "search k=0": lambda e: e.search("x", k=0),
    "search_many": lambda e: e.search_many(["x"]),
    "build_context": lambda e: e.build_context(["x"]),
    "flush": lambda e: e.flush(),
    "compact": lambda e: e.compact(),
    "snapshot": lambda e: e.snapshot("/nowhere/x"),
    "verify": lambda e: e.verify(),
    "stats": lambda e: e.stats(),
    "aadd": lambda e: asyncio.run(e.aadd("x")),
    "asearch": lambda e: asyncio.run(e.asearch("x")),
    "aadd_many": lambda e: asyncio.run(e.aadd_many(["x"])),
    "abuild_context": lambda e: asyncio.run(e.abuild_context(["x"])),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_engine_says_so(call: str) -> None:
    engine = jiyi.open(embedder=None)
    engine.add("x", id="a")
    engine.close()
    engine.close()
    with pytest.raises(jiyi.ClosedError, match="closed"):
        CALLS[call](engine)
    assert "jiyi.Engine" in repr(engine)


def test_an_engine_in_a_forked_child_says_so(folder: Path, child: Child) -> None:
    code = """
import jiyi, os
from tests.engine.test_engine import CALLS
for path in (None, sys.argv[1]):
    engine = jiyi.open(path, embedder=None)
    engine.add("x", id="a")
    engine.search("x")
    pid = os.fork()
    if pid == 0:
        try:
            for name, call in CALLS.items():
                try:
                    call(engine)
                    os._exit(1)
                except jiyi.ForkedError as error:
                    assert str(os.getpid()) in str(error) and str(os.getppid()) in str(error)
            engine.close()  # nothing of the parent's is closed
            if path:
                with jiyi.open(path, embedder=None, read_only=True) as own:
                    assert own.search("x").ids == ["a"]
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(2)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert engine.search("x").ids == ["a"]
    engine.add("y")
    engine.close()
print("ok")
"""
    answer = child(code, folder, env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert answer.stdout == "ok\n", answer.stderr


def test_closing_while_others_search(anywhere: jiyi.Engine) -> None:
    anywhere.add_many([f"cat {i}" for i in range(200)])
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                anywhere.search("cat")
                anywhere.list(limit=3)
                anywhere.add("cat more")
        except jiyi.ClosedError:
            pass
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    anywhere.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert wrong == []


def test_asyncio(engine: jiyi.Engine) -> None:
    async def main() -> None:
        i = await engine.aadd("cat", id="a")
        assert i == "a"
        assert await engine.aadd_many(["dog", {"text": "bird", "id": "b"}]) == [engine.list()[1].id, "b"]
        hits, more = await asyncio.gather(engine.asearch("cat"), engine.asearch("bird", k=1))
        assert (hits.ids, more.ids) == (["a"], ["b"])
        with pytest.raises(TypeError):
            await engine.asearch(5)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await engine.aadd("x", colour=1)
        assert (await engine.abuild_context(["tell me of the cat"])).text

    asyncio.run(main())


def test_asyncio_does_not_block_the_loop(monkeypatch: pytest.MonkeyPatch, engine: jiyi.Engine) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(jiyi.Engine, "search", lambda *_, **__: go_on.wait(20))

    async def main() -> None:
        waiting = asyncio.create_task(engine.asearch("cat"))
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        go_on.set()  # would never be reached by a loop that is blocked
        assert await waiting

    asyncio.run(main())


def test_build_context_takes_the_same_namespace_and_filter(engine: jiyi.Engine) -> None:
    engine.add("loves hiking", kind="archival", namespace="ana")
    engine.add("redis runs on port 6379", namespace="ana")
    engine.add("redis of somebody else", namespace="bo")
    context = engine.build_context([{"role": "user", "content": "which port has redis?"}], namespace="ana", now=NOW)
    assert "6379" in context.text
    assert "loves hiking" in context.text
    assert "somebody else" not in context.text
    only = engine.build_context(["which port has redis?"], namespace="ana", where={"kind": "episodic"})
    assert "loves hiking" not in only.text


def test_a_follower_sees_what_the_writer_writes(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as writer:
        writer.add("cat one", id="a")
        with jiyi.open(folder, embedder=None, read_only=True) as reader:
            look = lambda q="cat", **s: sorted(reader.search(q, k=99, **s).ids)  # noqa: E731
            assert look() == ["a"]
            writer.add("cat two", id="b")
            assert look() == ["a", "b"]
            writer.update("a", text="dog now")
            assert look() == ["b"]
            assert look("dog") == ["a"]
            writer.delete("b")
            assert look() == []
            writer.add("cat new", namespace="other", id="o")
            assert look(namespace="other") == ["o"]
            writer.add("cat vector", id="v", vector=[1.0, 0.0])
            assert look("zzz", query_vector=[1.0, 0.0]) == ["v"]
            writer.add("cat gone", id="g", expires_at=1)
            writer.compact()
            writer.add("cat last", id="l")
            assert look() == ["l", "v"]
            writer.forget({}, namespace="other")
            writer.compact()
            assert look(namespace="other") == []
            writer.add("cat again", namespace="other", id="o2")
            assert look(namespace="other") == ["o2"]
            assert reader.count(namespace=None) == writer.count(namespace=None)


def test_a_follower_misses_nothing_that_happens_while_it_catches_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with jiyi.open(folder, embedder=None) as writer, jiyi.open(folder, embedder=None, read_only=True) as reader:
        writer.add_many([{"text": f"cat {i}", "id": f"i{i}"} for i in range(8)])
        reader.search("cat")
        ledger = reader._store.ledger
        changes = iter(
            [
                lambda: writer.delete(["i0", "i1"]),
                lambda: writer.add("cat replaced", id="i2"),
                lambda: writer.delete("i3"),
                lambda: writer.add("cat new", id="n"),
            ]
        )
        # Between any two reads of the follower, the writer gets its turn.
        for name in ("manifest", "column_rows", "ended_keys"):
            if hasattr(ledger, name):
                real = getattr(ledger, name)

                def with_a_change(*arguments: Any, _real: Any = real, **settings: Any) -> Any:
                    answer = _real(*arguments, **settings)
                    next(changes, lambda: None)()
                    return answer

                monkeypatch.setattr(ledger, name, with_a_change)
        writer.add("dog")
        for _ in range(5):
            reader.search("cat")
        monkeypatch.undo()
        for change in changes:
            change()
        assert sorted(reader.search("cat", k=99).ids) == sorted(writer.search("cat", k=99).ids)
        for partition in (reader._store.partition("default"), writer._store.partition("default")):
            assert partition is not None
            assert partition.view.n_live == writer.count()


def test_two_processes(folder: Path, child: Child) -> None:
    code = """
import jiyi
with jiyi.open(sys.argv[1], embedder=None, read_only=True) as engine:
    print(sorted(engine.search("cat", k=99).ids), engine.count())
    try:
        engine.add("x")
    except jiyi.ReadOnlyError:
        print("read-only")
"""
    with jiyi.open(folder, embedder=None) as writer:
        writer.add_many([{"text": "cat", "id": f"i{i}"} for i in range(3)])
        writer.delete("i1")
        answer = child(code, folder)
        assert answer.stdout == "['i0', 'i2'] 2\nread-only\n", answer.stderr
        writer.add("still writing")


def test_a_follower_process_while_a_writer_writes(folder: Path, child: Child) -> None:
    code = """
import jiyi, time
engine = jiyi.open(sys.argv[1], embedder=None, read_only=True)
last, until = 0, time.monotonic() + 1.5
while time.monotonic() < until:
    hits = engine.search("cat", k=10_000)
    assert len(set(hits.ids)) == len(hits)
    numbers = {int(i) for i in hits.ids}
    assert numbers == set(range(len(numbers))), "a gap"
    assert len(numbers) >= last
    last = len(numbers)
print("seen", last)
"""
    with jiyi.open(folder, embedder=None) as writer:
        writer.add("cat", id="0")
        stop = threading.Event()

        def write() -> None:
            i = 1
            while not stop.is_set() and i < 3000:
                writer.add("cat", id=str(i))
                i += 1

        thread = threading.Thread(target=write)
        thread.start()
        answer = child(code, folder)
        stop.set()
        thread.join()
    assert answer.stdout.startswith("seen "), answer.stderr
    assert int(answer.stdout.split()[1]) > 1


# --------------------------------------------------------------------------------------------- threads


@pytest.mark.parametrize("moment", ["committed and not shown", "columns are being made"])
@pytest.mark.parametrize("change", ["add", "update"])
def test_a_replaced_memory_is_never_absent(
    anywhere: jiyi.Engine, monkeypatch: pytest.MonkeyPatch, moment: str, change: str
) -> None:
    """A search at any moment of a replacement finds the old memory or the new one, and exactly one of them."""
    anywhere.add("cat old", id="a", vector=[1, 0])
    anywhere.add("cat other", id="b", vector=[0, 1])
    anywhere.search("load")
    answers: list[list[str]] = []
    threads: list[threading.Thread] = []
    owner, name = (jiyi.store.Store, "_publish") if moment.startswith("committed") else (Partition, "apply")
    real = getattr(owner, name)

    def late(*arguments: Any, **settings: Any) -> Any:
        if not threads:
            threads.append(threading.Thread(target=lambda: answers.append(sorted(anywhere.search("cat").ids))))
            threads[0].start()
            threads[0].join(0.3)
        return real(*arguments, **settings)

    monkeypatch.setattr(owner, name, late)
    if change == "add":
        anywhere.add("cat new", id="a", vector=[1, 0])
    else:
        anywhere.update("a", text="cat new")
    threads[0].join(20)
    assert answers == [["a", "b"]]
    assert sorted(_texts(anywhere.search("cat"))) == ["cat new", "cat other"]


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_four_search_while_one_adds_and_one_deletes(folder: Path, where: str) -> None:
    """Indexes are built and swapped meanwhile; every answer holds only what lived at some time during the call."""
    config = jiyi.IndexConfig(dense_rows=100, keyword_rows=150)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(4000, 8)).astype(np.float32)
    with jiyi.open(None if where == "memory" else folder, embedder=None, index_config=config) as engine:
        engine.add_many([{"text": f"cat number{i}", "id": str(i)} for i in range(200)], vectors=vectors[:200])
        added, deleted = [200], [0]
        stop = threading.Event()
        wrong: list[BaseException] = []

        def guarded(work: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                try:
                    while not stop.is_set():
                        work()
                except BaseException as error:
                    wrong.append(error)
                    stop.set()

            return run

        def search() -> None:
            gone, known = deleted[0], added[0]
            i = random.randrange(gone, known)
            k = random.choice((1, 5, 20))
            hits = engine.search(
                f"cat number{i}", query_vector=vectors[i], k=k, diversity=random.choice(("none", "jaccard"))
            )
            numbers = [int(memory_id) for memory_id in hits.ids]
            assert len(numbers) == len(set(numbers)) <= k
            assert all(gone <= n <= added[0] for n in numbers)
            assert [memory.text for memory in hits.memories] == [f"cat number{n}" for n in numbers]
            if deleted[0] < i:
                assert numbers[0] == i

        def add() -> None:
            i = added[0]
            if i < len(vectors):
                engine.add(f"cat number{i}", id=str(i), vector=vectors[i])
                added[0] = i + 1
            else:
                time.sleep(0.01)

        def delete() -> None:
            if deleted[0] + 150 < added[0]:
                engine.delete(str(deleted[0]))
                deleted[0] += 1
            time.sleep(0.001)

        threads = [threading.Thread(target=guarded(work)) for work in (search, search, search, search, add, delete)]
        for thread in threads:
            thread.start()
        stop.wait(2.0)
        stop.set()
        for thread in threads:
            thread.join(30)
        assert wrong == []
        assert engine.count() == added[0] - deleted[0]
        engine.flush()
        for i in range(deleted[0], added[0], 7):
            hits = engine.search("zzz", query_vector=vectors[i], k=1, preset="dense", recency_weight=0)
            assert hits.ids == [str(i)]
        assert engine.verify() == []
        assert engine.stats()["index_error"] is None


def test_threads_share_namespaces_and_budget(folder: Path) -> None:
    """Loading, evicting and writing at once: no answer is ever of another namespace or of the past."""
    with jiyi.open(folder, embedder=None, memory_budget_mb=0.004) as engine:
        wrong: list[BaseException] = []

        def work(seed: int) -> None:
            random_ = random.Random(seed)
            mine = dict.fromkeys(range(5), 0)
            try:
                for _ in range(60):
                    n = random_.randrange(5)
                    engine.add(f"cat {seed}", namespace=f"n{n}", id=f"{seed}-{mine[n]}")
                    mine[n] += 1
                    found = {i for i in engine.search("cat", namespace=f"n{n}", k=999).ids if i.startswith(f"{seed}-")}
                    assert found == {f"{seed}-{i}" for i in range(mine[n])}
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert engine.count(namespace=None) == 240


@pytest.mark.parametrize("rows", [100, 10**6])
def test_a_process_may_end_without_closing(child: Child, folder: Path, rows: int) -> None:
    """Even while an index is being built: no abort, no hang, nothing printed."""
    code = """
import jiyi, numpy as np
config = jiyi.IndexConfig(dense_rows=int(sys.argv[2]), keyword_rows=int(sys.argv[2]))
engine = jiyi.open(sys.argv[1], embedder=None, index_config=config)
engine.add_many([f"cat {i}" for i in range(6000)], vectors=np.random.default_rng(0).normal(size=(6000, 32)))
engine.search("cat")
"""
    answer = child(code, folder, rows)
    assert (answer.returncode, answer.stdout) == (0, "")
    assert "terminate" not in answer.stderr
    assert "Traceback" not in answer.stderr
    with jiyi.open(folder, embedder=None) as engine:
        assert engine.count() == 6000
