"""Running a recorded query again: the same answer, or what changed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jiyi
from jiyi.config import DEFAULT, SearchConfig
from jiyi.query_record import QueryRecord
from jiyi.replay import Replay
from tests.engine.embedders import HashEmbedder, HashTable, PairScorer, PlainScorer, hashed_score

NOW = datetime(2026, 1, 8, tzinfo=UTC)
TEXTS = {"a": "cat on the mat", "b": "dog in the fog", "c": "周末喜欢去徒步", "d": "猫和狗", "e": "a cat and a dog"}


@pytest.fixture
def engine() -> Any:
    with jiyi.open(embedder=HashTable()) as opened:
        fill(opened)
        yield opened


def fill(engine: jiyi.Engine) -> None:
    engine.add_many(
        [
            {"text": text, "id": name, "timestamp": NOW - timedelta(days=10 * i), "session": "s"}
            for i, (name, text) in enumerate(TEXTS.items())
        ]
    )


def same(replay: Replay) -> bool:
    assert replay.same, replay
    assert replay.changes == ()
    assert str(replay) == "the same answer"
    return True


@pytest.mark.parametrize("query", ["cat", "徒步", "the dog 猫", "", "nothing like it"])
@pytest.mark.parametrize("preset", ["fast", "balanced", "keyword", "dense", "late"])
def test_the_same_answer(engine: jiyi.Engine, query: str, preset: str) -> None:
    hits = engine.search(query, now=NOW, preset=preset, k=3)
    replay = engine.replay(hits.query_record)
    assert same(replay)
    assert replay.hits.ids == hits.ids
    assert replay.hits.scores == hits.scores
    assert replay.hits.query_record == replay.record == hits.query_record


@given(
    query=st.lists(st.sampled_from(["cat", "dog", "徒步", "猫", "fog"]), max_size=4).map(" ".join),
    k=st.integers(0, 6),
    where=st.sampled_from([None, {}, {"id": {"in": ["a", "b", "c"]}}, {"timestamp": {"lt": "2025-12-20"}}]),
    settings=st.fixed_dictionaries(
        {
            "fusion": st.sampled_from(["weighted", "rrf"]),
            "recency_weight": st.sampled_from([0, 0.5]),
            "half_life_s": st.sampled_from([60, float("inf")]),
            "rerank": st.sampled_from([(), ("bm25",)]),
            "diversity": st.sampled_from(["jaccard", "cosine", "none"]),
        }
    ),
)
def test_the_same_answer_through_json(query: str, k: int, where: Any, settings: dict[str, Any]) -> None:
    with jiyi.open(embedder=HashTable()) as engine:
        fill(engine)
        record = engine.search(query, now=NOW, k=k, where=where, **settings).query_record
        assert same(engine.replay(json.loads(record.to_json())))


def test_the_same_answer_after_a_reopen_and_in_a_snapshot(folder: Path, tmp_path: Path) -> None:
    with jiyi.open(folder, embedder=HashTable()) as engine:
        fill(engine)
        record = engine.search("cat 徒步", now=NOW).query_record
        engine.snapshot(tmp_path / "copy")
        engine.compact()
        engine.flush()
    for path, read_only in ((folder, False), (folder, True), (tmp_path / "copy", False)):
        with jiyi.open(path, embedder=HashTable(), read_only=read_only) as engine:
            assert same(engine.replay(record))


def test_nothing_is_written(engine: jiyi.Engine) -> None:
    record = engine.search("cat", now=NOW).query_record
    before = engine.stats()["sequence"]
    engine.replay(record)
    assert engine.stats()["sequence"] == before


# ---------------------------------------------------------------------------------------------------- memories


def test_a_memory_that_was_added(engine: jiyi.Engine) -> None:
    record = engine.search("cat", now=NOW, k=2).query_record
    engine.add("cat", id="new", timestamp=NOW)
    replay = engine.replay(record)
    assert not replay.same
    assert "stored since change 5 in 'default': new" in replay.changes
    assert "new is hit 1 and was not among the hits" in replay.changes
    assert any("score" in change or "hit" in change for change in replay.changes)
    assert str(replay).startswith("another answer\n  ")


def test_one_that_does_not_matter_is_told_and_the_answer_is_the_same(engine: jiyi.Engine) -> None:
    record = engine.search("徒步", now=NOW, k=1, preset="keyword", recency_weight=0).query_record
    engine.add("something else altogether", id="new")
    replay = engine.replay(record)
    assert replay.same
    assert replay.changes == ("stored since change 5 in 'default': new",)


def test_another_namespace_does_not_matter(engine: jiyi.Engine) -> None:
    record = engine.search("cat", now=NOW).query_record
    engine.add("cat", namespace="other")
    assert same(engine.replay(record))


def test_several_namespaces(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": "cat", "id": name, "namespace": "team/x"} for name in ("a", "z")])
    hits = engine.search("cat", namespace=["default", "team/*"], now=NOW, diversity="none")
    record = hits.query_record
    assert record.namespace == ("default", "team/*")
    assert set(record.generation) == {"default", "team/x"}
    assert record.ids.count("a") == 2  # one of each
    assert set(record.homes) == {"default", "team/x"}
    assert same(engine.replay(json.loads(record.to_json())))
    engine.delete("a", namespace="team/x")
    engine.add("cat", namespace="team/y", id="new")
    replay = engine.replay(record)
    assert not replay.same
    assert any(change.startswith("a of 'team/x' (hit ") and change.endswith("is gone") for change in replay.changes)
    assert "the namespace 'team/y' is new" in replay.changes
    assert any(change.startswith("new of 'team/y' is hit") for change in replay.changes)


def test_many_that_were_added_are_counted(engine: jiyi.Engine) -> None:
    record = engine.search("cat", now=NOW, k=50).query_record
    engine.add_many([{"text": f"cat {i}", "id": f"n{i:02}"} for i in range(40)])
    replay = engine.replay(record)
    assert "stored since change 5 in 'default': n00, n01, n02, n03, n04 and 35 more" in replay.changes
    assert len(replay.changes) < 40
    assert "more hits" in replay.changes[-1]


def test_a_memory_that_was_deleted(engine: jiyi.Engine) -> None:
    record = engine.search("cat", now=NOW, k=3).query_record
    first = record.ids[0]
    engine.delete(first)
    changes = engine.replay(record).changes
    assert "deleted or replaced since change 5 in 'default': 1" in changes
    assert f"{first} (hit 1 then) is gone" in changes
    assert f"{first} was hit 1 and is not among the hits" in changes


def test_one_that_was_written_again(engine: jiyi.Engine) -> None:
    record = engine.search("cat", now=NOW, k=3).query_record
    engine.update("a", text="nothing of the sort, and long enough to say so")
    changes = engine.replay(record).changes
    assert f"a (hit {record.ids.index('a') + 1} then) was written again since" in changes
    assert "stored since change 5 in 'default': a" in changes
    assert any(change.startswith("a: ") and "score" in change for change in changes)


def test_one_that_was_used(engine: jiyi.Engine) -> None:
    record = engine.search("cat", now=NOW, reinforcement="last_use").query_record
    engine.reinforce("e", now=NOW)
    replay = engine.replay(record)
    assert not replay.same
    assert "used since change 5 in 'default': 1" in replay.changes
    assert any(change.startswith("e: ") for change in replay.changes)


def test_a_namespace_that_was_emptied_and_compacted(engine: jiyi.Engine) -> None:
    record = engine.search("cat", now=NOW).query_record
    engine.forget({})
    engine.compact()
    changes = engine.replay(record).changes
    assert "the namespace 'default' holds nothing any more" in changes
    assert "a (hit " in "\n".join(changes)
    fill(engine)
    [told] = [change for change in engine.replay(record).changes if "compacted" in change]
    assert told == "what ended since change 5 is not known any more: the store was compacted"


def test_a_store_that_is_older_than_the_record(folder: Path, tmp_path: Path) -> None:
    with jiyi.open(folder, embedder=HashTable()) as engine:
        fill(engine)
        engine.snapshot(tmp_path / "old")
        engine.add("cat again", id="later", timestamp=NOW)
        record = engine.search("cat", now=NOW).query_record
    with jiyi.open(tmp_path / "old", embedder=HashTable()) as old:
        replay = old.replay(record)
    assert not replay.same
    assert "the store is older than the answer, which saw change 6: its last is 5" in replay.changes


def test_another_store_is_refused(engine: jiyi.Engine) -> None:
    record = engine.search("cat", now=NOW).query_record
    with jiyi.open(embedder=HashTable()) as other:
        fill(other)
        with pytest.raises(jiyi.StoreError, match=f"{record.store}.*open that store, or a snapshot"):
            other.replay(record)


def test_a_store_that_cannot_be_read(folder: Path) -> None:
    with jiyi.open(folder, embedder=HashTable()) as engine:
        fill(engine)
        record = engine.search("cat", now=NOW).query_record
    with pytest.raises(jiyi.ClosedError):
        engine.replay(record)
    with sqlite3.connect(folder / "ledger.sqlite") as connection:
        connection.execute("DROP TABLE memories")
    connection.close()
    (folder / "ledger.sums").unlink()
    with jiyi.open(folder, embedder=HashTable(), read_only=True) as engine, pytest.raises(jiyi.StoreError):
        engine.replay(record)


# --------------------------------------------------------------------------------------- models, settings, versions


def test_another_embedder(engine: jiyi.Engine) -> None:
    record = engine.search("cat", now=NOW).query_record
    engine.reindex(HashEmbedder(dim=32, name="other"))
    changes = engine.replay(record).changes
    assert "the query's embedder was hash-table and is other now" in changes
    assert "the model of the store's vectors was hash-table and is other now" in changes
    assert "the store was reindexed since" in changes


def test_a_query_vector_of_another_dimension(engine: jiyi.Engine) -> None:
    record = engine.search("cat", now=NOW, query_vector=HashEmbedder().embed_query("cat")).query_record
    assert same(engine.replay(record))
    engine.reindex(HashEmbedder(dim=16, name="small"))
    changes = engine.replay(record).changes
    assert any("a vector of 32 dimensions and the store's have 16 now" in change for change in changes)


def test_versions_and_what_is_skipped(engine: jiyi.Engine) -> None:
    given = engine.search("cat", now=NOW).query_record.to_dict()
    given |= {"jiyi": "0.0.9", "analyzer": "0.1", "degraded": [["dense", "no model"]]}
    replay = engine.replay(given)
    assert replay.same
    assert replay.changes == (
        f"jiyi was 0.0.9 and is {jiyi.__version__} now",
        f"the tokenizer was 0.1 and is {replay.hits.query_record.analyzer} now",
        "then something was skipped: dense: no model",
    )


def test_a_default_that_changed_and_a_setting_that_is_new(engine: jiyi.Engine) -> None:
    given = engine.search("cat", now=NOW, recency_weight=0.3).query_record.to_dict()
    given["config"]["rrf_k"] = 59.0  # the default of that time: it is not among those that were set
    del given["config"]["frequent_share"]
    replay = engine.replay(given)
    assert replay.same
    assert replay.changes == (
        "the setting frequent_share is new since then; its default is used",
        "the default of rrf_k was 59.0 and is 60.0 now; the old one is used",
    )
    assert replay.hits.query_record.config["rrf_k"] == 59.0


def test_the_engines_own_settings_do_not_matter() -> None:
    config = SearchConfig(recency_weight=0.5, diversity="none", half_life_s=60)
    with jiyi.open(embedder=HashTable(), config=config) as engine:
        fill(engine)
        record = engine.search("cat", now=NOW).query_record
        engine.config = DEFAULT
        assert same(engine.replay(record))
        assert record.non_default == ("recency_weight", "half_life_s", "diversity")


def test_a_scorer_that_was_an_object(engine: jiyi.Engine) -> None:
    scorer = PlainScorer()
    record = engine.search("cat", now=NOW, rerank=(scorer, "bm25")).query_record
    replay = engine.replay(record)
    assert any("reranked by the object 'plain', which is not here" in change for change in replay.changes)
    assert same(engine.replay(record, scorers={"plain": scorer}))
    engine.config = SearchConfig(rerank=(PlainScorer(),))
    assert same(engine.replay(record))
    different = PlainScorer(lambda query, text: -hashed_score(query, text))
    replay = engine.replay(record, scorers={"plain": different})
    assert not replay.same
    assert "nothing that a record holds has changed" in replay.changes[0]


def test_a_scorer_without_a_name(engine: jiyi.Engine) -> None:
    class Nameless:
        def score(self, query: str, texts: Sequence[str]) -> Any:
            return np.arange(len(texts), dtype=np.float32)

    replay = engine.replay(engine.search("cat", now=NOW, rerank=Nameless()).query_record)
    assert "it was reranked by an object without a name, which no record can hold; it is left out" in replay.changes
    assert replay.hits.ids


def test_a_model_that_is_not_here(engine: jiyi.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = PairScorer(name="some-model")
    with monkeypatch.context() as patched:
        patched.setattr("jiyi.search.load_cross_encoder", lambda name, *, device: scorer)
        record = engine.search("cat", now=NOW, rerank="some-model").query_record
    assert record.cross_encoders == ("some-model",)
    assert same(engine.replay(record))  # this engine has it loaded
    engine._store.cross_encoders.clear()
    replay = engine.replay(record)
    assert any("it was reranked by 'some-model', and is not now" in change for change in replay.changes)
    assert replay.hits.ids


def test_a_budget_is_the_reason_where_nothing_else_is(engine: jiyi.Engine) -> None:
    scorer = PairScorer(name="slow", most=2)
    record = engine.search("cat", now=NOW, rerank=scorer, budget_ms=1000).query_record
    quicker = PairScorer(name="slow", most=3)
    replay = engine.replay(record, scorers={"slow": quicker})
    assert any("budget spent" in change for change in replay.changes)


@pytest.mark.parametrize("scorers", [5, "plain", ["plain"]])
def test_bad_scorers(engine: jiyi.Engine, scorers: Any) -> None:
    with pytest.raises(TypeError, match="scorers must map names"):
        engine.replay(engine.search("cat").query_record, scorers=scorers)


def test_both_names_are_exported() -> None:
    assert jiyi.QueryRecord is QueryRecord
    assert jiyi.Replay is Replay
