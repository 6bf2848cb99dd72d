"""The dense leg: the exact plan against brute force, the graph against the exact plan, and graphs on disk."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import jiyi
import jiyi.recall.dense
from jiyi.hits import Hits
from jiyi.recall import helpers
from jiyi.recall.graph import Graph

DIM = 16
SMALL = jiyi.IndexConfig(dense_rows=300)
PLAIN: dict[str, Any] = {"preset": "dense", "recency_weight": 0.0, "diversity": "none", "neighbor_share": 0.0}


def _random(count: int, seed: int = 0, dim: int = DIM) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def _fill(engine: jiyi.Engine, vectors: NDArray[np.float32], prefix: str = "i", **fields: Any) -> list[str]:
    records = [{"text": f"memory {prefix}{i}", "id": f"{prefix}{i}", **fields} for i in range(len(vectors))]
    return engine.add_many(records, vectors=vectors)


def _ask(engine: jiyi.Engine, vector: NDArray[Any], k: int = 10, **settings: Any) -> Hits:
    return engine.search("zzz", query_vector=vector, k=k, **{**PLAIN, **settings})


def _brute(vectors: NDArray[np.float32], query: NDArray[np.float32], k: int) -> list[int]:
    unit = vectors.astype(np.float64) / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return np.argsort(-(unit @ (query / np.linalg.norm(query))), kind="stable")[:k].tolist()


def _built(engine: jiyi.Engine, namespace: str = "default") -> Graph:
    engine.search("load", namespace=namespace)
    engine.flush()
    partition = engine._store.partition(namespace)
    assert partition is not None
    graph = engine._store.indexes(partition).graph
    assert graph is not None, engine.stats()["index_error"]
    return graph


# ------------------------------------------------------------------------------------------ exact plan


@pytest.mark.parametrize("quantized", [False, True])
def test_exact_is_brute_force(engine: jiyi.Engine, monkeypatch: pytest.MonkeyPatch, quantized: bool) -> None:
    monkeypatch.setattr(jiyi.recall.dense, "_QUANTIZED_ROWS", 0 if quantized else 10**9)
    vectors = _random(700)
    vectors[5] *= 1e20
    vectors[6] *= 1e-20
    _fill(engine, vectors)
    for query in _random(30, seed=1):
        hits = _ask(engine, query)
        assert hits.plans == {"dense": "exact"}
        assert hits.ids == [f"i{row}" for row in _brute(vectors, query, 10)]


@pytest.mark.parametrize("quantized", [False, True])
def test_exact_with_near_copies_and_ties(engine: jiyi.Engine, monkeypatch: pytest.MonkeyPatch, quantized: bool) -> None:
    """Scores that int8 cannot tell apart, and equal ones: the order is by the floats, then as stored."""
    monkeypatch.setattr(jiyi.recall.dense, "_QUANTIZED_ROWS", 0 if quantized else 10**9)
    base = _random(1)[0]
    vectors = np.stack([base + 1e-3 * noise for noise in _random(300, seed=2)]).astype(np.float32)
    vectors[200:250] = vectors[100]
    _fill(engine, vectors)
    for query in (base, vectors[3], vectors[100]):
        wanted = _brute(vectors, query, 60)
        ids = [int(i[1:]) for i in _ask(engine, query, k=60).ids]
        unit = vectors.astype(np.float64) / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        scores = unit @ (query.astype(np.float64) / np.linalg.norm(query.astype(np.float64)))
        np.testing.assert_allclose(scores[ids], scores[wanted], atol=2e-7)
    copies = [int(i[1:]) for i in _ask(engine, vectors[100], k=51).ids]
    assert copies == [100, *range(200, 250)]


def test_cosine_is_the_raw_score(engine: jiyi.Engine) -> None:
    engine.add_many(["a", "b", "c"], vectors=[[2, 0], [0, 3], [-1, 0]])
    factors = {hit.memory.text: hit.factors["signals"]["dense"] for hit in _ask(engine, np.array([3.0, 4.0]))}
    assert {text: factor["raw"] for text, factor in factors.items()} == pytest.approx(
        {"a": 0.6, "b": 0.8, "c": -0.6}, abs=1e-6
    )
    assert {text: factor["rank"] for text, factor in factors.items()} == {"b": 1, "a": 2, "c": 3}


def test_zero_vectors_are_stored_and_never_recalled(engine: jiyi.Engine) -> None:
    engine.add("zero", id="z", vector=[0, 0, 0])
    engine.add("none", id="n")
    engine.add("opposite", id="o", vector=[-1, 0, 0])
    hits = _ask(engine, np.array([1.0, 0, 0]))
    assert hits.ids == ["o"]
    # By words they are found, and their missing cosine is not a made-up zero that beats a negative one.
    hits = engine.search("zero none opposite", query_vector=[1, 0, 0])
    assert set(hits.ids) == {"z", "n", "o"}
    assert {hit.memory.id: hit.factors["signals"]["dense"]["raw"] for hit in hits} == {
        "z": None,
        "n": None,
        "o": pytest.approx(-1),
    }


def test_a_zero_query_vector_degrades(engine: jiyi.Engine) -> None:
    engine.add("cat", vector=[1, 0])
    hits = engine.search("cat", query_vector=[0, 0])
    assert len(hits) == 1
    assert [degraded.stage for degraded in hits.degraded] == ["dense"]
    assert engine.search("zzz", query_vector=[0, 0]).ids == []


# ------------------------------------------------------------------------------------------- the graph


@pytest.fixture(scope="module")
def clustered() -> NDArray[np.float32]:
    centres = _random(40, seed=3)
    return (centres[np.arange(2000) % 40] + 0.5 * _random(2000, seed=4)).astype(np.float32)


@pytest.fixture(scope="module")
def indexed(clustered: NDArray[np.float32]) -> Iterator[jiyi.Engine]:
    with jiyi.open(embedder=None, index_config=SMALL) as engine:
        records = [
            {"text": f"m{i}", "id": f"i{i}", "kind": jiyi.KINDS[i % 4], "metadata": {"n": i}} for i in range(2000)
        ]
        engine.add_many(records, vectors=clustered)
        _built(engine)
        yield engine


def _recall(engine: jiyi.Engine, queries: NDArray[np.float32], **settings: Any) -> float:
    found = wanted = 0
    for query in queries:
        exact = set(_ask(engine, query, dense_plan="exact", **settings).ids)
        hits = _ask(engine, query, dense_plan="indexed", **settings)
        assert hits.plans["dense"] == "indexed"
        found += len(exact & set(hits.ids))
        wanted += len(exact)
    return found / wanted


def test_graph_finds_what_the_scan_finds(indexed: jiyi.Engine, clustered: NDArray[np.float32]) -> None:
    assert _recall(indexed, np.concatenate((clustered[:60], _random(60, seed=5)))) >= 0.98


@pytest.mark.parametrize("where", [{"kind": "semantic"}, {"metadata.n": {"lt": 1000}}, {"metadata.n": {"gte": 5}}])
def test_graph_under_a_filter(indexed: jiyi.Engine, clustered: NDArray[np.float32], where: dict[str, Any]) -> None:
    assert _recall(indexed, clustered[:40], where=where) >= 0.98


def test_scores_and_order_are_the_same_in_both_plans(indexed: jiyi.Engine, clustered: NDArray[np.float32]) -> None:
    for query in clustered[100:110]:
        exact, graph = (_ask(indexed, query, dense_plan=plan) for plan in ("exact", "indexed"))
        if exact.ids == graph.ids:
            assert exact.scores == graph.scores
        assert graph.scores == sorted(graph.scores, reverse=True)


def test_the_plan_is_chosen_by_what_the_filter_leaves(indexed: jiyi.Engine, clustered: NDArray[np.float32]) -> None:
    def plan(**settings: Any) -> str:
        return _ask(indexed, clustered[0], **settings).plans["dense"]

    assert plan() == "indexed"
    assert plan(where={"metadata.n": {"lt": 299}}) == "exact"
    assert plan(where={"metadata.n": {"lt": 300}}) == "indexed"
    assert plan(dense_plan="exact") == "exact"


@pytest.mark.parametrize("few", [0, 1, 7, 299])
def test_a_narrow_filter_is_answered_whole(indexed: jiyi.Engine, clustered: NDArray[np.float32], few: int) -> None:
    for plan in ("auto", "indexed"):
        hits = _ask(indexed, clustered[0], k=1000, where={"metadata.n": {"gte": 2000 - few}}, dense_plan=plan)
        assert len(hits) == few


def test_k_beyond_everything(indexed: jiyi.Engine, clustered: NDArray[np.float32]) -> None:
    hits = _ask(indexed, clustered[0], k=5000, dense_plan="indexed")
    assert len(set(hits.ids)) == len(hits) == 2000


def test_graph_is_the_same_on_every_run(clustered: NDArray[np.float32]) -> None:
    answers = []
    for _ in range(2):
        with jiyi.open(embedder=None, index_config=jiyi.IndexConfig(dense_rows=300, graph_search_width=10)) as engine:
            _fill(engine, clustered)
            _built(engine)
            answers.append(
                [_ask(engine, query, pool_min=10, k=2, dense_plan="indexed").ids for query in clustered[:50]]
            )
    assert answers[0] == answers[1]


def test_writes_are_seen_at_once_beside_the_graph() -> None:
    vectors = _random(600)
    with jiyi.open(embedder=None, index_config=SMALL) as engine:
        _fill(engine, vectors[:500])
        _built(engine)
        new = _random(1, seed=9)[0]
        engine.add("new", id="new", vector=new)
        hits = _ask(engine, new)
        assert (hits.plans["dense"], hits.ids[0]) == ("indexed", "new")
        engine.add("moved", id="i7", vector=new)  # replaced: the old vector is gone, the new one counts
        assert set(_ask(engine, new, k=2).ids) == {"new", "i7"}
        assert "i7" not in _ask(engine, vectors[7], k=20, where={"text": {"not": "moved"}}).ids
        assert _ask(engine, vectors[7], k=1).ids != ["i7"]
        engine.delete(["new", "i8"])
        assert "i8" not in _ask(engine, vectors[8], k=20).ids
        assert _ask(engine, new, k=1).ids == ["i7"]


def test_most_of_the_graph_deleted() -> None:
    vectors = _random(600)
    # Never rebuilt: the graph stays as it is, full of the dead.
    with jiyi.open(embedder=None, index_config=jiyi.IndexConfig(dense_rows=300, rebuild_fraction=100.0)) as engine:
        _fill(engine, vectors)
        _built(engine)
        engine.delete([f"i{i}" for i in range(600) if i % 20])
        for query in _random(20, seed=8):
            hits = _ask(engine, query, k=10, dense_plan="indexed")
            wanted = [row * 20 for row in _brute(vectors[::20], query, 10)]
            assert hits.ids == [f"i{row}" for row in wanted]
        engine.delete([f"i{i}" for i in range(0, 600, 20)])
        assert _ask(engine, vectors[0], dense_plan="indexed").ids == []


def test_a_stale_graph_is_built_again() -> None:
    vectors = _random(900)
    with jiyi.open(embedder=None, index_config=SMALL) as engine:
        _fill(engine, vectors[:400])
        first = _built(engine)
        _fill(engine, vectors[400:430], "j")
        engine.flush()
        assert _built(engine) is first  # 7 % is not worth it
        _fill(engine, vectors[430:], "l")
        engine.flush()
        second = _built(engine)
        assert second is not first
        assert second.last_label > first.last_label
        engine.delete([f"l{i}" for i in range(300)])
        engine.flush()
        assert _built(engine) is not second


def test_no_graph_for_memories_without_vectors() -> None:
    with jiyi.open(embedder=None, index_config=SMALL) as engine:
        engine.add("one", id="v", vector=[1.0, 0.0])
        engine.add_many([f"word {i}" for i in range(500)])
        engine.search("word")
        engine.flush()
        assert _ask(engine, np.array([1.0, 0.0])).ids == ["v"]
        engine.delete("v")
        engine.flush()
        assert _ask(engine, np.array([1.0, 0.0])).ids == []
        assert engine.stats()["index_error"] is None


def test_flush_returns_when_a_namespace_is_unloaded_during_its_build(monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on = threading.Event(), threading.Event()
    builds: list[int] = []
    build = Graph.build.__func__  # type: ignore[attr-defined]

    def slow(cls: type[Graph], *arguments: Any) -> Graph | None:
        builds.append(1)
        started.set()
        go_on.wait(20)
        return build(cls, *arguments)  # type: ignore[no-any-return]

    monkeypatch.setattr(Graph, "build", classmethod(slow))
    with jiyi.open(embedder=None, index_config=SMALL) as engine:
        _fill(engine, _random(400))
        engine.search("load")
        assert started.wait(20)
        engine.compact()  # unloads every namespace
        go_on.set()
        done = threading.Event()
        waiting = threading.Thread(target=lambda: (engine.flush(), done.set()), daemon=True)
        waiting.start()
        assert done.wait(30)
        assert len(builds) <= 3
        assert _ask(engine, _random(400)[5], k=1).ids == ["i5"]


def test_close_does_not_wait_for_a_build_to_end() -> None:
    engine = jiyi.open(embedder=None, index_config=SMALL)
    _fill(engine, _random(8_000))
    engine.search("load")
    engine.close()
    engine.close()


# --------------------------------------------------------------------------------------------- on disk


@pytest.fixture
def saved(folder: Path) -> tuple[Path, NDArray[np.float32]]:
    vectors = _random(350)
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        _fill(engine, vectors)
        _built(engine)
        other = _random(310, seed=20)
        _fill(engine, other, "o", namespace="other")
        engine.flush()
    assert len(_generations(folder)) == 2
    return folder, vectors


def _generations(folder: Path) -> list[Path]:
    return sorted((folder / "indexes").glob("graph-*"))


def _finds(
    engine: jiyi.Engine, vectors: NDArray[np.float32], prefix: str = "i", step: int = 10, **settings: Any
) -> float:
    """The share of memories that their own vector finds, of every `step`-th."""
    found = [_ask(engine, vectors[i], k=1, **settings).ids == [f"{prefix}{i}"] for i in range(0, len(vectors), step)]
    return sum(found) / len(found)


def _loads(folder: Path, monkeypatch: pytest.MonkeyPatch, vectors: NDArray[np.float32]) -> tuple[int, int]:
    """Open, search everything; return how many graphs were read and how many were built."""
    counts = {"load": 0, "build": 0}
    for name in counts:
        real = getattr(Graph, name).__func__

        def counted(cls: type[Graph], *arguments: Any, _real: Any = real, _name: str = name, **settings: Any) -> Any:
            made = _real(cls, *arguments, **settings)
            counts[_name] += 1
            return made

        monkeypatch.setattr(Graph, name, classmethod(counted))
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        assert _finds(engine, vectors) == 1
        engine.flush()
        assert _finds(engine, vectors) == 1
        assert engine.stats()["index_error"] is None
    monkeypatch.undo()
    return counts["load"], counts["build"]


def test_reopened_graphs_are_read_and_not_built(
    saved: tuple[Path, NDArray[np.float32]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, vectors = saved
    loaded, built = _loads(folder, monkeypatch, vectors)
    assert built == 0
    assert loaded >= 1
    with jiyi.open(folder, embedder=None, index_config=SMALL, read_only=True) as reader:
        hits = _ask(reader, vectors[3])
        assert (hits.plans["dense"], hits.ids[0]) == ("indexed", "i3")


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 3, len(content) // 3 + 8):
        content[at] ^= 0x55
    path.write_bytes(content)


DAMAGE = {
    "flipped graph": lambda g: _flip(g / "graph.bin"),
    "flipped members": lambda g: _flip(g / "members.npz"),
    "truncated graph": lambda g: (g / "graph.bin").write_bytes((g / "graph.bin").read_bytes()[:-100]),
    "grown graph": lambda g: (g / "graph.bin").write_bytes((g / "graph.bin").read_bytes() + b"x"),
    "empty graph": lambda g: (g / "graph.bin").write_bytes(b""),
    "no graph": lambda g: (g / "graph.bin").unlink(),
    "no members": lambda g: (g / "members.npz").unlink(),
    "no manifest": lambda g: (g / "manifest.json").unlink(),
    "garbage manifest": lambda g: (g / "manifest.json").write_bytes(b"\xff\x00{"),
    "manifest of another kind": lambda g: (g / "manifest.json").write_text("[1]"),
    "manifest without files": lambda g: (g / "manifest.json").write_text(
        json.dumps({**json.loads((g / "manifest.json").read_text()), "files": {}})
    ),
    "everything gone": lambda g: shutil.rmtree(g),
    "a file in its place": lambda g: (shutil.rmtree(g), g.write_text("x")),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_graphs_are_built_again(
    saved: tuple[Path, NDArray[np.float32]], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    folder, vectors = saved
    for generation in _generations(folder):
        DAMAGE[how](generation)
    loaded, built = _loads(folder, monkeypatch, vectors)
    assert loaded == 0
    assert built >= 1
    # and what was built is on disk and good again
    assert _loads(folder, monkeypatch, vectors)[1] == 0


def test_a_graph_of_another_namespace_dimension_or_model_is_not_read(
    saved: tuple[Path, NDArray[np.float32]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, vectors = saved
    one, other = _generations(folder)
    swapped = folder / "indexes" / "swap"
    one.rename(swapped)
    other.rename(one)
    swapped.rename(other)
    assert _loads(folder, monkeypatch, vectors)[0] == 0


def test_a_graph_that_lags_is_read_and_the_rest_is_scanned(
    saved: tuple[Path, NDArray[np.float32]], tmp_path: Path
) -> None:
    folder, vectors = saved
    shutil.copytree(folder / "indexes", tmp_path / "old")
    more = _random(60, seed=30)
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        _fill(engine, more, "m")
        engine.delete([f"i{i}" for i in range(20)])
    shutil.rmtree(folder / "indexes")
    shutil.copytree(tmp_path / "old", folder / "indexes")
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        hits = _ask(engine, more[0])
        assert (hits.plans["dense"], hits.ids[0]) == ("indexed", "m0")
        assert _finds(engine, more, "m", step=3) == 1
        for i in range(20):
            assert f"i{i}" not in _ask(engine, vectors[i], k=50).ids


@pytest.mark.parametrize("search_first", [True, False])
def test_a_graph_newer_than_the_ledger_is_not_trusted(folder: Path, tmp_path: Path, search_first: bool) -> None:
    """An older ledger put back (a snapshot, a power cut) gives the lost labels to other memories."""
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        _fill(engine, _random(100))
        engine.snapshot(tmp_path / "snapshot")
        _fill(engine, _random(500, seed=1), "lost")
        _built(engine)
    for name in ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"):
        (folder / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "snapshot" / "ledger.sqlite", folder)
    vectors = _random(500, seed=2)
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        if search_first:
            engine.search("load")
        _fill(engine, vectors, "new")
        assert _finds(engine, vectors, "new", step=5) == 1
        engine.flush()
        assert _finds(engine, vectors, "new", step=5) >= 0.99


def test_other_graph_settings_are_built_anew(saved: tuple[Path, NDArray[np.float32]]) -> None:
    folder, vectors = saved
    with jiyi.open(folder, embedder=None, index_config=jiyi.IndexConfig(dense_rows=300, graph_links=8)) as engine:
        assert _built(engine).settings("s", "n", "e")["links"] == 8
        assert _finds(engine, vectors) == 1


def test_left_overs_of_a_killed_writer_are_removed(saved: tuple[Path, NDArray[np.float32]]) -> None:
    folder, vectors = saved
    partial = folder / "indexes" / "partial-0123"
    partial.mkdir()
    (partial / "graph.bin").write_bytes(b"x")
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        assert not partial.exists()
        assert _finds(engine, vectors) == 1


def test_a_graph_that_cannot_be_saved_costs_no_answer(folder: Path) -> None:
    vectors = _random(400)
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        (folder / "indexes").write_text("a file where the folder should be")
        _fill(engine, vectors)
        engine.search("load")
        with pytest.raises(jiyi.StoreError) as caught:
            engine.flush()
        assert isinstance(caught.value.os_error, OSError)
        assert _finds(engine, vectors) == 1
        assert engine.stats()["index_error"]
        (folder / "indexes").unlink()
        engine.flush()
        assert _finds(engine, vectors) == 1
        assert engine.stats()["index_error"] is None
        assert [path.name.split("-")[0] for path in _generations(folder)] == ["graph"]


def test_removed_namespaces_take_their_graphs_along(saved: tuple[Path, NDArray[np.float32]]) -> None:
    folder, _ = saved
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        engine.forget({}, namespace="other")
        engine.compact()
        assert [path.name.split("-")[1] for path in _generations(folder)] == ["1"]


# ------------------------------------------------------------------------------------------ namespaces


def test_namespaces_are_walls() -> None:
    vectors = _random(700)
    with jiyi.open(embedder=None, index_config=SMALL) as engine:
        _fill(engine, vectors[:350], namespace="ana")
        _fill(engine, vectors[350:], namespace="bo")  # the same ids
        _built(engine, "ana")
        _built(engine, "bo")
        for i in range(0, 350, 25):
            mine = _ask(engine, vectors[i], k=1, namespace="ana")
            assert mine.memories[0].namespace == "ana"
            assert mine.scores[0] == pytest.approx(1.0)
            raw = _ask(engine, vectors[i], k=1, namespace="bo")[0].factors["signals"]["dense"]["raw"]
            assert raw < 0.99
        engine.forget({}, namespace="ana")
        assert _ask(engine, vectors[0], namespace="ana").ids == []
        assert _finds(engine, vectors[350:], namespace="bo") == 1


def test_a_container_s_quota_counts_and_not_the_machine_s_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "usable_cores", lambda: 3)
    helpers.cores.cache_clear()
    try:
        assert helpers.cores() == 3
        with jiyi.open(embedder=None) as engine:
            assert engine._store.turns._free == 3
    finally:
        helpers.cores.cache_clear()
