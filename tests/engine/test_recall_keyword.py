"""The keyword leg: BM25 by hand, the indexed plan against the exact one, and inverted indexes on disk."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import jiyi
from jiyi.hits import Hits
from jiyi.recall import keeper
from jiyi.recall.inverted import InvertedIndex
from jiyi.terms import date_terms, query_terms, text_terms

SMALL = jiyi.IndexConfig(keyword_rows=200)
PLAIN: dict[str, Any] = {"preset": "keyword", "recency_weight": 0.0, "diversity": "none", "neighbor_share": 0.0}
WORDS = [f"w{i}" for i in range(120)] + ["猫狗", "京都", "东京塔", "running", "cats", "don't"]


def _corpus(count: int, seed: int = 0) -> list[dict[str, Any]]:
    random_ = random.Random(seed)
    # A few words are frequent and most are rare, as in any language.
    weights = [1 / (i + 1) for i in range(len(WORDS))]
    return [
        {
            "id": f"i{i}",
            "text": " ".join(random_.choices(WORDS, weights, k=random_.randrange(1, 25))),
            "timestamp": 86400.0 * (i % 50),
            "metadata": {"n": i},
        }
        for i in range(count)
    ]


def _ask(engine: jiyi.Engine, query: str, k: int = 10, **settings: Any) -> Hits:
    return engine.search(query, k=k, now=0, **{**PLAIN, **settings})


def _index(engine: jiyi.Engine, namespace: str = "default") -> InvertedIndex | None:
    engine.search("load", namespace=namespace)
    engine.flush()
    partition = engine._store.partition(namespace)
    assert partition is not None
    assert engine.stats()["index_error"] is None
    return engine._store.indexes(partition).inverted


def _queries(count: int, seed: int = 1) -> list[str]:
    random_ = random.Random(seed)
    return [" ".join(random_.choices(WORDS, k=random_.randrange(1, 6))) for _ in range(count)]


def _top(hits: Hits) -> list[tuple[str, float]]:
    return [(hit.memory.id, hit.factors["signals"]["keyword"]["raw"]) for hit in hits]


# ---------------------------------------------------------------------------------------- BM25 by hand


def _bm25(query: str, documents: list[dict[str, Any]], k1: float = 0.9, b: float = 0.4) -> dict[str, float]:
    """Lucene's BM25 in plain Python; lengths count words, characters and bigrams."""
    from datetime import UTC, datetime

    bags = [
        Counter([*text_terms(d["text"]), *date_terms(datetime.fromtimestamp(d["timestamp"], UTC))]) for d in documents
    ]
    lengths = [len(text_terms(d["text"])) for d in documents]
    average = sum(lengths) / len(lengths)
    scores = {}
    for document, bag, length in zip(documents, bags, lengths, strict=True):
        score = 0.0
        for term in query_terms(query).terms.tolist():
            df = sum(term in other for other in bags)
            idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
            score += idf * bag[term] / (bag[term] + k1 * (1 - b + b * length / average))
        scores[document["id"]] = score
    return scores


def test_scores_are_bm25_over_the_namespace(engine: jiyi.Engine) -> None:
    documents = _corpus(60)
    engine.add_many(documents)
    engine.add_many(_corpus(50, seed=9), namespace="other")  # moves nothing
    for query in _queries(15):
        wanted = {i: score for i, score in _bm25(query, documents).items() if score > 0}
        found = dict(_top(_ask(engine, query, k=100)))
        assert found.keys() == wanted.keys()
        scale = {found[i] / wanted[i] for i in found}
        assert max(scale) - min(scale) < 1e-5  # (k1 + 1) is a constant factor that some leave out
        assert list(found.values()) == sorted(found.values(), reverse=True)


def test_deletes_and_other_tenants_do_not_drift_the_scores(engine: jiyi.Engine) -> None:
    documents = _corpus(80)
    engine.add_many(documents)
    engine.delete([f"i{i}" for i in range(0, 80, 2)])
    engine.add_many([{**documents[1], "text": "w0"}], namespace="other")
    engine.add({**documents[3], "text": "replaced w1 w1"})
    with jiyi.open(embedder=None) as fresh:
        fresh.add_many([*(documents[i] for i in range(1, 80, 2) if i != 3), {**documents[3], "text": "replaced w1 w1"}])
        for query in [*_queries(20), "w0 w1", "replaced"]:
            assert _top(_ask(engine, query, k=100)) == _top(_ask(fresh, query, k=100))


def test_what_shares_no_word_is_not_recalled(engine: jiyi.Engine) -> None:
    engine.add_many(["alpha beta", "gamma"])
    assert [m.text for m in _ask(engine, "beta").memories] == ["alpha beta"]
    assert _ask(engine, "delta").ids == []
    assert _ask(engine, "").ids == []
    assert _ask(engine, "?! *").ids == []


def test_ties_are_in_the_order_stored(engine: jiyi.Engine) -> None:
    ids = engine.add_many(["same words"] * 12)
    assert _ask(engine, "words", k=12).ids == ids
    engine.add({"text": "same words", "id": ids[0]})  # stored anew: now the last
    assert _ask(engine, "words", k=12).ids == [*ids[1:], ids[0]]


# ------------------------------------------------------------------------------------ the indexed plan


@pytest.fixture(scope="module")
def indexed() -> Any:
    with jiyi.open(embedder=None, index_config=SMALL) as engine:
        engine.add_many(_corpus(1500))
        assert _index(engine) is not None
        yield engine


def _same(engine: jiyi.Engine, query: str, k: int = 10, **settings: Any) -> str:
    exact = _ask(engine, query, k, keyword_plan="exact", **settings)
    indexed = _ask(engine, query, k, keyword_plan="indexed", **settings)
    assert [score for _, score in _top(indexed)] == pytest.approx([score for _, score in _top(exact)], rel=1e-6)
    assert indexed.ids == exact.ids
    return indexed.plans.get("keyword", "")


def test_both_plans_give_the_same_top(indexed: jiyi.Engine) -> None:
    plans = [_same(indexed, query) for query in _queries(60)]
    assert plans.count("indexed") > 50


@pytest.mark.parametrize(
    "where", [{"metadata.n": {"lt": 700}}, {"metadata.n": {"lt": 20}}, {"metadata.n": {"gte": 1499}}, {"id": "nobody"}]
)
def test_both_plans_under_a_filter(indexed: jiyi.Engine, where: dict[str, Any]) -> None:
    for query in _queries(15, seed=4):
        _same(indexed, query, where=where)


def test_both_plans_for_odd_queries(indexed: jiyi.Engine) -> None:
    for query in ("", "zzz", "w0 " * 300, " ".join(WORDS), "猫狗 京", "AND OR NOT", "*", "january 1970", "\ud800 w3"):
        _same(indexed, query)


def test_k_beyond_everything(indexed: jiyi.Engine) -> None:
    _same(indexed, "w0 w1", k=5000)


def test_the_plan_is_chosen_by_what_the_filter_leaves(indexed: jiyi.Engine) -> None:
    def plan(**settings: Any) -> str:
        return _ask(indexed, "w0", **settings).plans["keyword"]

    assert plan() == "indexed"
    assert plan(where={"metadata.n": {"lt": 199}}) == "exact"
    assert plan(keyword_plan="exact") == "exact"


def test_writes_are_seen_at_once_beside_the_index() -> None:
    with jiyi.open(embedder=None, index_config=SMALL) as engine:
        documents = _corpus(400)
        engine.add_many(documents)
        _index(engine)
        engine.add("brandnew w0", id="new")
        assert _ask(engine, "brandnew").ids == ["new"]
        assert _ask(engine, "brandnew").plans["keyword"] == "indexed"
        engine.add({**documents[0], "text": "rewritten"})
        engine.delete([f"i{i}" for i in range(1, 40)])
        for query in [*_queries(20), "rewritten"]:
            assert _same(engine, query) == "indexed"
        with jiyi.open(embedder=None) as fresh:
            fresh.add_many(
                [*documents[40:], {"text": "brandnew w0", "id": "new"}, {**documents[0], "text": "rewritten"}]
            )
            for query in ("w0 w1", "rewritten", "brandnew w5"):
                fresh_top = dict(_top(_ask(fresh, query)))
                found = dict(_top(_ask(engine, query, where={"id": {"in": list(fresh_top)}}, keyword_plan="indexed")))
                assert found == pytest.approx(fresh_top)


def test_long_tokens_and_every_script(engine: jiyi.Engine) -> None:
    texts = ["x" * 5_000, "สวัสดีชาวโลก", "안녕하세요 세계", "👍 ok", "تمرین", "a\x00b"]
    with jiyi.open(embedder=None, index_config=jiyi.IndexConfig(keyword_rows=1)) as engine_:
        ids = engine_.add_many(texts)
        assert _index(engine_) is not None
        for text, i in zip(texts, ids, strict=True):
            hits = _ask(engine_, text, keyword_plan="indexed")
            assert (hits.ids[0], hits.plans["keyword"]) == (i, "indexed")


# --------------------------------------------------------------------------------------------- on disk


@pytest.fixture
def saved(folder: Path) -> Path:
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        engine.add_many(_corpus(300))
        assert _index(engine) is not None
    assert len(_generations(folder)) == 1
    return folder


def _generations(folder: Path) -> list[Path]:
    return sorted((folder / "indexes").glob("keyword-*"))


def _loads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    counts = {"load": 0, "build": 0}
    load, build = keeper.load_inverted, InvertedIndex.build.__func__  # type: ignore[attr-defined]

    def loaded(*arguments: Any) -> InvertedIndex:
        made = load(*arguments)
        counts["load"] += 1
        return made

    def built(cls: type[InvertedIndex], *arguments: Any) -> InvertedIndex | None:
        counts["build"] += 1
        return build(cls, *arguments)  # type: ignore[no-any-return]

    monkeypatch.setattr(keeper, "load_inverted", loaded)
    monkeypatch.setattr(InvertedIndex, "build", classmethod(built))
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        for query in _queries(8):
            _same(engine, query)
        assert _index(engine) is not None
        for query in _queries(8):
            assert _same(engine, query) == "indexed"
    monkeypatch.undo()
    return counts["load"] - counts["build"], counts["build"]


def test_reopened_indexes_are_read_and_not_built(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        assert _loads(saved, monkeypatch) == (1, 0)
    with jiyi.open(saved, embedder=None, index_config=SMALL, read_only=True) as reader:
        assert _ask(reader, "w0").plans == {"keyword": "indexed"}


def test_an_index_whose_files_went_while_it_was_opened_is_not_taken(saved: Path) -> None:
    """Tantivy opens a segment without its positions, and says so only when a query needs them."""
    generation = _generations(saved)[0]
    for path in generation.glob("*.pos"):
        path.unlink()
    with pytest.raises(ValueError, match="positions"):
        keeper.load_inverted(generation, 300, 300)


def test_an_index_that_cannot_be_read_any_more_costs_speed_and_no_answer(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def search(self, *_: Any, **__: Any) -> None:
            raise ValueError("Data corrupted")

    with jiyi.open(saved, embedder=None, index_config=SMALL) as engine:
        before = _ask(engine, "w0")
        index = _index(engine)
        assert index is not None
        assert before.plans["keyword"] == "indexed"
        monkeypatch.setattr(index, "_searcher", Broken())
        after = _ask(engine, "w0")
        assert after.plans["keyword"] == "exact"
        assert after.ids == before.ids
        engine.add("w0 w1")  # a write has it built anew
        engine.flush()
        assert _index(engine) is not index
        assert _ask(engine, "w0").plans["keyword"] == "indexed"


def _largest(generation: Path) -> Path:
    return max(
        (path for path in generation.iterdir() if path.name != "manifest.json"), key=lambda path: path.stat().st_size
    )


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 3, len(content) // 3 + 8):
        content[at % len(content)] ^= 0x55
    path.write_bytes(content)


DAMAGE = {
    "flipped": lambda g: _flip(_largest(g)),
    "truncated": lambda g: _largest(g).write_bytes(_largest(g).read_bytes()[:-10]),
    "a file missing": lambda g: _largest(g).unlink(),
    "meta flipped": lambda g: _flip(g / "meta.json"),
    "coverage flipped": lambda g: _flip(g / "coverage.json"),
    "no manifest": lambda g: (g / "manifest.json").unlink(),
    "manifest without files": lambda g: (g / "manifest.json").write_text(
        json.dumps({**json.loads((g / "manifest.json").read_text()), "files": {}})
    ),
    "everything gone": lambda g: shutil.rmtree(g),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_indexes_are_built_again(saved: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    for generation in _generations(saved):
        DAMAGE[how](generation)
    assert _loads(saved, monkeypatch) == (0, 1)
    assert _loads(saved, monkeypatch) == (1, 0)


def test_an_index_of_another_analyzer_is_not_read(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [generation] = _generations(saved)
    manifest = json.loads((generation / "manifest.json").read_text())
    manifest["settings"]["analyzer"] = "0"
    (generation / "manifest.json").write_text(json.dumps(manifest))
    assert _loads(saved, monkeypatch) == (0, 1)


def test_an_index_that_lags_is_read_and_the_rest_is_scored(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "indexes", tmp_path / "old")
    with jiyi.open(saved, embedder=None, index_config=SMALL) as engine:
        engine.add_many([{"id": f"m{i}", "text": f"w0 later{i}"} for i in range(30)])
        engine.delete([f"i{i}" for i in range(10)])
    shutil.rmtree(saved / "indexes")
    shutil.copytree(tmp_path / "old", saved / "indexes")
    with jiyi.open(saved, embedder=None, index_config=SMALL) as engine:
        assert _ask(engine, "later7").ids == ["m7"]
        for query in _queries(15):
            assert _same(engine, query) == "indexed"


@pytest.mark.parametrize("search_first", [True, False])
def test_an_index_newer_than_the_ledger_is_not_trusted(folder: Path, tmp_path: Path, search_first: bool) -> None:
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        engine.add_many(_corpus(50))
        engine.snapshot(tmp_path / "snapshot")
        engine.add_many([f"lost{i}" for i in range(300)])
        assert _index(engine) is not None
    for name in ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"):
        (folder / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "snapshot" / "ledger.sqlite", folder)
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        if search_first:
            engine.search("load")
        ids = engine.add_many([f"new{i}" for i in range(300)])
        for _ in range(2):
            assert [_ask(engine, f"new{i}").ids for i in range(0, 300, 7)] == [[ids[i]] for i in range(0, 300, 7)]
            engine.flush()


def test_files_of_an_index_hold_no_words(folder: Path) -> None:
    with jiyi.open(folder, embedder=None, index_config=SMALL) as engine:
        engine.add_many([f"topsecret{i} passphrase" for i in range(250)], namespace="hush")
        engine.search("load", namespace="hush")
        engine.flush()
        for generation in _generations(folder):
            for path in generation.iterdir():
                assert b"passphrase" not in path.read_bytes()
                assert b"topsecret" not in path.read_bytes()
        assert _generations(folder)


def test_removed_namespaces_take_their_indexes_along(saved: Path) -> None:
    with jiyi.open(saved, embedder=None, index_config=SMALL) as engine:
        engine.forget({})
        engine.compact()
        assert _generations(saved) == []


# ------------------------------------------------------------------------------------------ namespaces


def test_namespaces_are_walls() -> None:
    with jiyi.open(embedder=None, index_config=SMALL) as engine:
        engine.add_many([f"shared ana{i}" for i in range(250)], namespace="ana")
        engine.add_many([f"shared bo{i}" for i in range(250)], namespace="bo")
        for namespace in ("ana", "bo"):
            assert _index(engine, namespace) is not None
        assert _ask(engine, "bo7", namespace="ana").ids == []
        assert _ask(engine, "bo7", namespace="bo").memories[0].text == "shared bo7"
        assert {m.namespace for m in _ask(engine, "shared", k=250, namespace="ana").memories} == {"ana"}
        before = _top(_ask(engine, "shared ana7", namespace="ana"))
        engine.add_many(["shared ana7"] * 50, namespace="bo")
        assert _top(_ask(engine, "shared ana7", namespace="ana")) == before
