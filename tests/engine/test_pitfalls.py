"""Ten ways in which the libraries underneath fail, each with the input that shows it and the right answer.

The comments name the public reports by repository and number.
"""

from __future__ import annotations

import math
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import jiyi
import jiyi.kernels.decay
import jiyi.kernels.fusion
from jiyi.pipeline.recency import recency_of
from tests.engine.conftest import Child

EVERY_PLAN = pytest.mark.parametrize(
    "config", [jiyi.IndexConfig(), jiyi.IndexConfig(dense_rows=1, keyword_rows=1)], ids=["exact", "indexed"]
)
LEXICAL: dict[str, Any] = {"preset": "keyword", "recency_weight": 0.0, "neighbor_share": 0.0}
DENSE: dict[str, Any] = {"preset": "dense", "recency_weight": 0.0, "diversity": "none", "neighbor_share": 0.0}


def _vectors(count: int, dim: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def _built(engine: jiyi.Engine, **settings: Any) -> None:
    """Let every index that is due be there."""
    engine.search("load", **settings)
    engine.flush()
    assert engine.stats()["index_error"] is None


# F01: k larger than what is alive. nmslib/hnswlib #608, #465; chroma-core/chroma #606
@EVERY_PLAN
@pytest.mark.parametrize("where", ["memory", "folder"])
def test_f01_k_beyond_the_living(config: jiyi.IndexConfig, where: str, folder: Path) -> None:
    path = None if where == "memory" else folder
    with jiyi.open(path, embedder=None, index_config=config) as engine:
        vectors = _vectors(5, 8)
        ids = engine.add_many([f"memory {i}" for i in range(5)], namespace="ana", vectors=vectors)
        _built(engine, namespace="ana")
        query = _vectors(1, 8, seed=1)[0]
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        best_first = [ids[i] for i in np.argsort(-(unit @ query))]

        def recall(k: int, **settings: Any) -> list[str]:
            return engine.search("zzz", namespace="ana", k=k, query_vector=query, **DENSE, **settings).ids

        for plan in ("auto", "exact", "indexed"):
            assert recall(50, dense_plan=plan) == best_first
        assert engine.delete(ids[:2], namespace="ana") == 2
        for plan in ("auto", "exact", "indexed"):
            for k in (5, 50):
                assert recall(k, dense_plan=plan) == [i for i in best_first if i not in ids[:2]]
        assert len(engine.search("memory", namespace="ana", k=50, query_vector=query)) == 3
    if path is not None:
        with jiyi.open(path, embedder=None, index_config=config) as engine:
            assert recall(50) == [i for i in best_first if i not in ids[:2]]


@EVERY_PLAN
def test_f01_nearly_all_deleted(config: jiyi.IndexConfig) -> None:
    with jiyi.open(embedder=None, index_config=config) as engine:
        ids = engine.add_many([f"memory {i}" for i in range(1000)], vectors=_vectors(1000, 8))
        _built(engine)
        engine.delete(ids[:995])
        for k in (5, 6, 50):
            hits = engine.search("zzz", k=k, query_vector=_vectors(1, 8, seed=2)[0], **DENSE)
            assert sorted(hits.ids) == sorted(ids[995:])
            assert len(engine.search("memory", k=k, **LEXICAL)) == 5


# F08: one NaN spoils the index. chroma-core/chroma PR #7420; langchain-ai/langchain PR #31822
@EVERY_PLAN
def test_f08_vectors_that_are_not_finite(config: jiyi.IndexConfig) -> None:
    good = _vectors(300, 16)
    with jiyi.open(embedder=None, index_config=config) as engine:
        ids = engine.add_many([f"good {i}" for i in range(300)], vectors=good)
        _built(engine)
        nan, infinite, huge = (_vectors(100, 16, seed=s).astype(np.float64) for s in (3, 4, 5))
        nan[37, 5], infinite[37, 0], huge[37, 15] = math.nan, math.inf, 1e300
        for batch in (nan, infinite, huge, -infinite):
            with pytest.raises(ValueError, match="37"):
                engine.add_many([f"bad {i}" for i in range(100)], vectors=batch)
            with pytest.raises(ValueError, match="37"):
                engine.add_many([f"bad {i}" for i in range(100)], vectors=[list(row) for row in batch])
            assert engine.count() == 300
            assert engine.search("bad", **LEXICAL).ids == []
        for bad in (math.nan, math.inf, 1e300):
            with pytest.raises(ValueError, match="NaN or infinity"):
                engine.search("good", query_vector=[bad] + [0.0] * 15)
        unit = good / np.linalg.norm(good, axis=1, keepdims=True)
        for query in _vectors(30, 16, seed=6):
            brute = np.argsort(-(unit @ query))[:10]
            found = engine.search("zzz", k=10, query_vector=query, **DENSE)
            assert len(set(found.ids) & {ids[i] for i in brute}) >= 9
            assert all(math.isfinite(score) for score in found.scores)


# F10: a query or an index of another dimension. openclaw/openclaw #32277; spotify/annoy #394
@EVERY_PLAN
def test_f10_dimensions(config: jiyi.IndexConfig, folder: Path) -> None:
    vectors = _vectors(20, 16)

    def works(engine: jiyi.Engine) -> bool:
        return all(engine.search("zzz", k=1, query_vector=vectors[i], **DENSE).ids == [f"i{i}"] for i in range(20))

    with jiyi.open(folder, embedder=None, index_config=config) as engine:
        engine.add_many([{"text": f"memory number{i}", "id": f"i{i}"} for i in range(20)], vectors=vectors)
        _built(engine)
        for dim in (8, 64):
            with pytest.raises(jiyi.DimensionError, match=f"{dim} dimensions.* 16"):
                engine.search("number3", query_vector=[1.0] * dim)
            assert engine.search("number3", **LEXICAL).ids[0] == "i3"
        batch = [list(vector) for vector in _vectors(5, 16, seed=1)]
        batch[3] = [1.0] * 8
        with pytest.raises(jiyi.DimensionError, match=r"vector 3 .*8 dimensions.* 16"):
            engine.add_many([f"more {i}" for i in range(5)], vectors=batch)
        assert engine.count() == 20
        assert engine.search("more", **LEXICAL).ids == []
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "writer.lock"}
    for dim in (8, 64):
        with pytest.raises(jiyi.DimensionError, match=f"{dim} .*16"):
            jiyi.open(folder, embedder=None, dim=dim, index_config=config)
        with jiyi.open(folder, embedder=None, read_only=True, index_config=config) as engine:
            with pytest.raises(jiyi.DimensionError):
                engine.search("x", query_vector=[0.5] * dim)
            assert engine.search("number3", **LEXICAL).ids[0] == "i3"
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "writer.lock"}
    assert {path: content for path, content in after.items() if not path.name.endswith(("-shm", "-wal"))} == {
        path: content for path, content in before.items() if not path.name.endswith(("-shm", "-wal"))
    }
    with jiyi.open(folder, embedder=None, dim=16, index_config=config) as engine:
        assert works(engine)
        engine.flush()
        assert works(engine)


# F12: text read as a query language. quickwit-oss/tantivy #2637; lancedb/lancedb #1617, #769
F12_MEMORIES = [
    "don't stop",
    "standup at 9:30",
    "deploy to https://example.org/a?b=c",
    "C:\\work\\notes",
    "C++ and c# tips",
    "salt AND pepper",
    "the cat sat",
]
F12_QUERIES = [
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    '"',
    "'",
    "\\",
    "/",
    "^",
    "~",
    "*",
    "+",
    "-",
    "-cat",
    '"cat',
    "sat (unclosed)",
    "cat)",
    "a:b:c",
    "AND",
    "cat OR",
    "NOT cat",
    "IN [a]",
    ">5",
    "body:",
    "*:*",
    "cat^",
    "99%",
    "#12",
    "$x",
]


@EVERY_PLAN
def test_f12_text_is_never_a_query_language(config: jiyi.IndexConfig) -> None:
    with jiyi.open(embedder=None, index_config=config) as engine:
        ids = engine.add_many(F12_MEMORIES)
        _built(engine)
        for plan in ("auto", "indexed"):
            settings = {**LEXICAL, "keyword_plan": plan}
            for text, i in zip(F12_MEMORIES, ids, strict=True):
                assert engine.search(text, **settings).ids[0] == i, text
            for query in F12_QUERIES:
                hits = engine.search(query, **settings)
                if "cat" in query:
                    assert hits.ids[0] == ids[6], query
                if not any(character.isalnum() for character in query):
                    assert hits.ids == [], query
            assert engine.search("*", **settings).ids == []
            assert engine.search("-cat", **settings).ids == engine.search("NOT cat", **settings).ids == [ids[6]]


# F16: a run of Chinese or Japanese as one token. openclaw/openclaw #20730; mem0ai/mem0 PR #7164
@EVERY_PLAN
def test_f16_chinese_and_japanese(config: jiyi.IndexConfig, folder: Path) -> None:
    texts = ["明日は京都で会議がある", "她喜欢喝龙井茶", "今天部署GPU服务器", "来週は東京に出張する"]
    queries = {"京都": 0, "龙井茶": 1, "服务器": 2, "gpu": 2}
    ids: list[str] = []
    for opened in range(2):
        with jiyi.open(folder, embedder=None, index_config=config) as engine:
            if opened == 0:
                ids = engine.add_many(texts)
            _built(engine)
            for plan in ("auto", "exact", "indexed"):
                for query, place in queries.items():
                    hits = engine.search(query, keyword_plan=plan, **LEXICAL)
                    assert hits.ids[0] == ids[place], query
                    assert hits[0].factors["signals"]["keyword"]["raw"] > 0
                hits = engine.search("京都", keyword_plan=plan, **LEXICAL)
                raw = {hit.memory.id: hit.factors["signals"]["keyword"]["raw"] for hit in hits}
                assert raw[ids[0]] > raw[ids[3]] > 0


# F22: an id repeated in one list. langchain-ai/langchain #37046
def test_f22_repeats_in_one_list() -> None:
    a, b, c = 1, 2, 3
    ids, scores = jiyi.kernels.fusion.rrf([np.array([a, b, b, b]), np.array([c, a])], k=60)
    assert ids.tolist() == [a, c, b]
    assert scores.tolist() == pytest.approx([0.03252247, 0.01639344, 0.01612903], abs=1e-8)
    assert scores.tolist() == pytest.approx([1 / 61 + 1 / 62, 1 / 61, 1 / 62])
    ids, scores = jiyi.kernels.fusion.rrf([np.array([a, b, b, b, c])], k=60)
    assert ids.tolist() == [a, b, c]
    assert scores.tolist() == pytest.approx([0.01639344, 0.01612903, 0.01587302], abs=1e-8)


def test_f22_each_memory_is_ranked_once(engine: jiyi.Engine) -> None:
    """Repeated turns are memories of their own; one memory has one rank in each leg, however often it was written."""
    for _ in range(3):
        engine.add("cat", id="a", vector=[1, 0])
    engine.add("cat dog", id="b", vector=[0.9, 0.1])
    hits = engine.search("cat", query_vector=[1, 0], fusion="rrf", recency_weight=0, neighbor_share=0)
    assert sorted(hits.ids) == ["a", "b"]
    for leg in ("dense", "keyword"):
        assert sorted(hit.factors["signals"][leg]["rank"] for hit in hits) == [1, 2]


# F29: times in the future. DeytaHQ/khora PR #1189; scrypster/muninndb PR #493
def test_f29_the_future_is_age_0(engine: jiyi.Engine) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    day = timedelta(days=1)
    created = {
        "+1 d": now + day,
        "+1 y": now + 365 * day,
        "9999": datetime(9999, 12, 31, tzinfo=UTC),
        "max": datetime.max,
        "now": now,
        "-15 d": now - 15 * day,
        "-30 d": now - 30 * day,
        "-90 d": now - 90 * day,
    }
    wanted = {"+1 d": 1, "+1 y": 1, "9999": 1, "max": 1, "now": 1, "-15 d": 0.70710678, "-30 d": 0.5, "-90 d": 0.125}
    engine.add_many(
        [{"text": "same text", "id": i, "timestamp": moment} for i, moment in created.items()],
        vectors=[[1, 0]] * len(created),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hits = engine.search("same text", query_vector=[1, 0], now=now, half_life_s=30 * 86400.0, k=9)
        assert {hit.memory.id: hit.factors["recency"] for hit in hits} == pytest.approx(wanted, abs=1e-8)
        tiny = engine.search("same text", now=now, half_life_s=1.0, k=9)
        assert {hit.memory.id: hit.factors["recency"] for hit in tiny}["+1 y"] == 1
        assert all(0 <= hit.factors["recency"] <= 1 for hit in tiny)
        ages = np.array([(now - moment.replace(tzinfo=UTC)).total_seconds() for moment in created.values()])
        for curve in ("exponential", "linear", "logarithmic"):
            config = jiyi.SearchConfig(recency_curve=curve, half_life_s=1.0)  # type: ignore[arg-type]
            _, factors = recency_of(0.0, -ages, np.zeros(len(ages), np.uint8), None, config)
            assert ((factors >= 0) & (factors <= 1)).all()
        assert jiyi.kernels.decay.exponential(ages, 30 * 86400.0).tolist() == pytest.approx(
            list(wanted.values()), abs=1e-8
        )


# F39: identical vectors tear the graph. nmslib/hnswlib #373
@pytest.mark.parametrize("where", ["memory", "folder"])
def test_f39_identical_memories(folder: Path, where: str) -> None:
    rng = np.random.default_rng(0)
    duplicate, distinct = rng.normal(size=16).astype(np.float32), rng.normal(size=(500, 16)).astype(np.float32)
    path = None if where == "memory" else folder
    config = jiyi.IndexConfig(dense_rows=400)

    def check(engine: jiyi.Engine) -> None:
        found = 0
        for i, vector in enumerate(distinct):
            hits = engine.search("zzz", k=1, query_vector=vector, dense_plan="indexed", **DENSE)
            assert hits.plans == {"dense": "indexed"}
            found += hits.ids == [f"d{i}"]
        assert found >= 495
        everything = engine.search("zzz", k=2500, query_vector=duplicate, **DENSE).ids
        assert len(everything) == len(set(everything)) == 2500
        assert everything[:2000] == [f"c{i}" for i in range(2000)]

    with jiyi.open(path, embedder=None, index_config=config) as engine:
        records = [{"text": "again", "id": f"c{i}"} for i in range(2000)] + [
            {"text": "distinct", "id": f"d{i}"} for i in range(500)
        ]
        engine.add_many(records, vectors=[duplicate] * 2000 + list(distinct))
        _built(engine)
        check(engine)
    if path is not None:
        with jiyi.open(path, embedder=None, index_config=config) as engine:
            check(engine)


# F40: a save that reports success and wrote nothing. spotify/annoy #379; quickwit-oss/tantivy #3079
_F40 = """
import jiyi, numpy as np, os, pathlib, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
config = jiyi.IndexConfig(dense_rows=100, keyword_rows=100)
vectors = np.random.default_rng(0).normal(size=(1000, 32)).astype(np.float32)
engine = jiyi.open(sys.argv[1], embedder=None, index_config=config)
engine.add_many([{"text": f"memory number{i}", "id": f"i{i}"} for i in range(500)], vectors=vectors[:500])
engine.search("load")
engine.flush()
assert engine.stats()["index_error"] is None
store = pathlib.Path(sys.argv[1])
saved = {path: path.read_bytes() for path in (store / "indexes").rglob("*") if path.is_file()}
engine.snapshot(sys.argv[2])
size = max(path.stat().st_size for path in store.iterdir() if path.is_file())
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30_000, resource.RLIM_INFINITY))
acknowledged = set(range(500))
failures = []

def check():
    assert engine.count() == len(acknowledged), (engine.count(), len(acknowledged))
    for i in range(0, 1000, 9):
        found = engine.search(f"number{i}", k=1, preset="keyword", neighbor_share=0).ids
        assert found == ([f"i{i}"] if i in acknowledged else []), (i, found)
        if i in acknowledged:
            found = engine.search("zzz", query_vector=vectors[i], k=1, preset="dense", recency_weight=0).ids
            assert found == [f"i{i}"], (i, found)

for i in range(500, 1000):
    try:
        engine.add(f"memory number{i}", id=f"i{i}", vector=vectors[i])
        acknowledged.add(i)
    except jiyi.StoreError as error:
        assert error.__cause__ is not None
        failures.append(i)
        if len(failures) > 20:
            break
assert failures, "the limit was never reached"
try:
    engine.add_many([f"lot {j} " * 200 for j in range(3000)])
    raise SystemExit("written beyond the limit")
except jiyi.StoreError:
    pass
check()
try:
    engine.flush()
except jiyi.StoreError:
    pass
check()
for path, content in saved.items():
    assert not path.exists() or path.read_bytes() == content, path
print(len(acknowledged), len(failures), flush=True)
if sys.argv[3] == "space":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for i in range(500, 1000):
        if i not in acknowledged:
            engine.add(f"memory number{i}", id=f"i{i}", vector=vectors[i])
            acknowledged.add(i)
    engine.flush()
    check()
    assert engine.verify() == []
    engine.close()
    print("recovered")
else:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("then", ["space", "kill"])
def test_f40_nothing_more_can_be_written(folder: Path, tmp_path: Path, child: Child, then: str) -> None:
    answer = child(_F40, folder, tmp_path / "snapshot", then)
    assert answer.stdout, answer.stderr
    acknowledged = int(answer.stdout.split()[0])
    assert acknowledged >= 500
    assert answer.stdout.endswith("recovered\n") if then == "space" else answer.returncode == -9, answer.stderr
    vectors = np.random.default_rng(0).normal(size=(1000, 32)).astype(np.float32)
    with jiyi.open(folder, embedder=None, index_config=jiyi.IndexConfig(dense_rows=100, keyword_rows=100)) as engine:
        assert engine.verify() == []
        assert engine.count() == (1000 if then == "space" else acknowledged)
        _built(engine)
        for memory in engine.list()[::9]:
            i = int(memory.id[1:])
            assert engine.search(f"number{i}", k=1, **LEXICAL).ids == [memory.id]
            assert engine.search("zzz", k=1, query_vector=vectors[i], **DENSE).ids == [memory.id]
    with jiyi.open(tmp_path / "snapshot", embedder=None) as engine:
        assert engine.count() == 500
        assert engine.verify() == []


def test_f40_folders_that_are_not_there_or_not_writable(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("cat")
        with pytest.raises(jiyi.StoreError) as caught:
            engine.snapshot(tmp_path / "file" / "below")
        assert isinstance(caught.value.__cause__, OSError)
        with pytest.raises(jiyi.StoreError) as caught:
            jiyi.open(tmp_path / "file" / "store", embedder=None)
        assert isinstance(caught.value.__cause__, OSError)
        assert len(engine.search("cat")) == 1


# F46: searching while the graph grows. nmslib/hnswlib #29, #562; spotify/voyager PR #61
_F46 = """
import jiyi, numpy as np, random, threading, time, os
seconds, rows = float(sys.argv[2]), int(sys.argv[3])
config = jiyi.IndexConfig(dense_rows=200, keyword_rows=200)
vectors = np.random.default_rng(0).normal(size=(rows, 16)).astype(np.float32)
engine = jiyi.open(None if sys.argv[1] == "memory" else sys.argv[1], embedder=None, index_config=config)
engine.add_many([{"text": f"memory number{i}", "id": f"i{i}"} for i in range(250)], vectors=vectors[:250])
engine.search("load")
engine.flush()
announced, added, forgotten = 250, 250, 0
stop, wrong, plans, latencies = threading.Event(), [], set(), []

def recall():
    while True:
        first, last = forgotten, added
        i = random.randrange(first, last)
        started = time.perf_counter()
        hits = engine.search(f"number{i}", query_vector=vectors[i], k=10, diversity="none")
        latencies.append(time.perf_counter() - started)
        plans.update(hits.plans.items())
        numbers = [int(memory_id[1:]) for memory_id in hits.ids]
        assert len(numbers) == len(set(numbers)) <= 10
        assert all(first <= n < announced for n in numbers), (first, numbers, announced)
        assert hits.scores == sorted(hits.scores, reverse=True)
        if forgotten <= i - 1:
            assert numbers[0] == i, (numbers, i)
        if stop.is_set():
            return

def add():
    global added, announced
    while added < rows and not stop.is_set():
        size = random.choice((1, 1, 1, 40))
        part = range(added, min(added + size, rows))
        announced = part.stop
        records = [{"text": f"memory number{i}", "id": f"i{i}"} for i in part]
        engine.add_many(records, vectors=vectors[part.start : part.stop])
        added = part.stop

def forget():
    global forgotten
    while not stop.is_set():
        if forgotten + 200 < added:
            engine.delete(f"i{forgotten}")
            forgotten += 1
        time.sleep(0.002)

def guarded(work):
    def run():
        try:
            work()
        except BaseException as error:
            wrong.append(repr(error))
            stop.set()
    return run

threads = [threading.Thread(target=guarded(work)) for work in (recall, recall, recall, recall, add, forget)]
for thread in threads:
    thread.start()
stop.wait(seconds)
stop.set()
for thread in threads:
    thread.join()
assert not wrong, wrong
assert engine.count() == added - forgotten
engine.flush()
alive = range(forgotten, added, max(1, (added - forgotten) // 300))
found = [engine.search("zzz", query_vector=vectors[i], k=1, preset="dense", recency_weight=0) for i in alive]
share = sum(hits.ids == [f"i{i}"] for hits, i in zip(found, alive)) / len(alive)
assert share >= 0.99, share
assert {hits.plans["dense"] for hits in found} == {"indexed"}
assert ("dense", "indexed") in plans and ("keyword", "indexed") in plans, plans
assert engine.verify() == [] and engine.stats()["index_error"] is None
engine.close()
latencies.sort()
p95_ms = 1000 * latencies[int(0.95 * len(latencies))]
print(f"added {added}, forgot {forgotten}, {len(latencies)} searches, p95 {p95_ms:.1f} ms")
"""


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_f46_searching_while_the_graph_grows(folder: Path, child: Child, where: str) -> None:
    answer = child(_F46, "memory" if where == "memory" else folder, 2, 20_000)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("added ")


@pytest.mark.slow
@pytest.mark.parametrize("repeat", range(3))
def test_f46_at_full_size(folder: Path, child: Child, repeat: int) -> None:
    answer = child(_F46, folder, 10, 20_000 + 250, timeout=300)
    assert answer.returncode == 0, answer.stderr
    print(answer.stdout)
