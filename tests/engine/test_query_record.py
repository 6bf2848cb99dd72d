"""The record of a query: all that is needed to ask again, as JSON, taken at no cost and safe from later changes."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi.config import SearchConfig
from jiyi.query_record import QueryRecord, config_of
from tests.engine.embedders import HashEmbedder, HashTable, PlainScorer

NOW = datetime(2026, 1, 8, 9, 30, 0, 123456, tzinfo=UTC)


@pytest.fixture
def filled() -> Any:
    with jiyi.open(embedder=HashTable()) as engine:
        engine.add_many(
            [
                {"text": "cat on the mat", "id": "a", "timestamp": NOW - timedelta(days=7), "session": "s"},
                {"text": "周末喜欢去徒步", "id": "b", "kind": "archival", "metadata": {"tags": ["山"], "n": 3}},
                {"text": "cat and dog", "id": "c", "timestamp": NOW - timedelta(days=1)},
            ]
        )
        yield engine


def through_json(record: QueryRecord) -> QueryRecord:
    text = record.to_json()
    assert "\n" not in text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    return QueryRecord.from_json(text)


def test_it_holds_everything(filled: jiyi.Engine) -> None:
    where = {"or": [{"kind": "archival"}, {"timestamp": {"gte": NOW - timedelta(days=30)}}]}
    hits = filled.search("cat 徒步", k=2, where=where, now=NOW, budget_ms=50, recency_weight=0.3, rerank="bm25")
    record = hits.query_record
    assert (record.text, record.namespace, record.k, record.budget_ms) == ("cat 徒步", "default", 2, 50)
    assert record.where == {"or": [{"kind": "archival"}, {"timestamp": {"gte": "2025-12-09T09:30:00.123456Z"}}]}
    assert (record.now, record.as_of, record.query_vector) == ("2026-01-08T09:30:00.123456Z", None, None)
    assert set(record.config) == {field.name for field in fields(SearchConfig)}
    assert record.non_default == ("recency_weight", "rerank")
    assert record.cross_encoders == ()
    assert record.config["rerank"] == ["bm25"]
    assert record.generation == {"default": 3}
    assert record.embedder == record.vectors == "hash-table"
    assert record.jiyi == jiyi.__version__
    assert record.analyzer
    assert len(record.store) == 32
    assert list(record.ids) == hits.ids
    assert list(record.scores) == hits.scores
    assert record.homes == ("default", "default")
    assert record.degraded == ()
    assert through_json(record) == record
    with pytest.raises(FrozenInstanceError):
        record.k = 5  # type: ignore[misc]


def test_scores_and_vectors_survive_json_to_the_last_bit(filled: jiyi.Engine) -> None:
    vector = HashEmbedder().embed_query("cat")
    hits = filled.search("cat", query_vector=vector, now=NOW)
    record = through_json(hits.query_record)
    assert list(record.scores) == hits.scores
    assert np.array_equal(np.array(record.query_vector, np.float32), vector)


@pytest.mark.parametrize(
    "text", ["猫 \n\x00\x1b[2J", "\ud800 lone", "", '"quotes" \\ {"query_record": 2}', "é" * 10_000]
)
def test_any_text_survives(filled: jiyi.Engine, text: str) -> None:
    record = filled.search(text, now=NOW).query_record
    assert record.text == text
    assert through_json(record) == record
    record.to_json().encode()


def test_readable_chinese(filled: jiyi.Engine) -> None:
    assert "徒步" in filled.search("徒步", now=NOW).query_record.to_json()


def test_infinity_and_mappings_in_the_settings_survive(filled: jiyi.Engine) -> None:
    config = SearchConfig(half_life_s=float("inf"), aging={"episodic": {"half_life_s": float("inf"), "floor": 0.2}})
    record = through_json(filled.search("cat", now=NOW, config=config).query_record)
    assert config_of(record, {}, {}) == (config, [])


@pytest.mark.parametrize("now", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", 0, 1_767_864_600.5])
def test_moments_at_the_edges(filled: jiyi.Engine, now: Any) -> None:
    hits = filled.search("cat", now=now)
    record = through_json(hits.query_record)
    assert filled.replay(record).same
    if now == 0:
        assert record.now == "1970-01-01T00:00:00Z"


def test_as_of(filled: jiyi.Engine) -> None:
    record = filled.search("cat", as_of=NOW - timedelta(days=3)).query_record
    assert record.as_of == "2026-01-05T09:30:00.123456Z"
    assert record.now == record.as_of
    assert record.ids == ("a",)
    replay = filled.replay(through_json(record))
    assert (replay.same, replay.changes) == (True, ())


def test_filters_of_every_kind_of_value(filled: jiyi.Engine) -> None:
    for where, kept in (
        ({"timestamp": {"lt": date(2026, 1, 8)}}, {"timestamp": {"lt": "2026-01-08T00:00:00Z"}}),
        ({"kind": {"in": {"archival"}}}, {"kind": {"in": ["archival"]}}),
        ({"metadata.n": np.int64(3)}, {"metadata.n": 3}),
        ({"id": {"in": ("a", "b")}}, {"id": {"in": ["a", "b"]}}),
        ({"not": {"expires_at": None}}, {"not": {"expires_at": None}}),
        ({}, {}),
    ):
        record = through_json(filled.search("cat 徒步", where=where, now=NOW).query_record)
        assert record.where == kept
        assert filled.replay(record).same


def test_what_the_caller_changes_afterwards_is_not_recorded(filled: jiyi.Engine) -> None:
    where: dict[str, Any] = {"or": [{"id": {"in": ["a", "c"]}}, {"kind": "semantic"}]}
    vector = np.asarray(HashEmbedder().embed_query("cat"))
    was = vector.copy()
    hits = filled.search("cat", where=where, query_vector=vector, now=NOW)
    where["or"][0]["id"]["in"].append("b")
    where["or"].append({"kind": "archival"})
    vector[:] = 0
    record = hits.query_record
    assert record.where == {"or": [{"id": {"in": ["a", "c"]}}, {"kind": "semantic"}]}
    assert record.query_vector == tuple(was.tolist())


def test_what_happens_to_the_store_afterwards_is_not_recorded() -> None:
    engine = jiyi.open(embedder=HashTable())
    engine.add("cat", id="a")
    hits = engine.search("cat", now=NOW)
    engine.add("cat two", id="b")
    engine.reindex(HashEmbedder(name="other"))
    engine.close()
    record = hits.query_record
    assert (record.ids, record.generation) == (("a",), {"default": 1})
    assert (record.embedder, record.vectors, record.vectors_version) == ("hash-table", "hash-table", 0)


def test_nothing_found_has_a_record_too(filled: jiyi.Engine) -> None:
    for hits in (filled.search("cat", namespace="nobody", now=NOW), filled.search("cat", k=0, now=NOW)):
        record = through_json(hits.query_record)
        assert record.ids == ()
        assert filled.replay(record).same
    assert filled.search("cat", namespace="nobody", now=NOW).query_record.generation == {"nobody": 0}


def test_each_answer_of_search_many_has_its_own(filled: jiyi.Engine) -> None:
    for rerank in (None, "bm25"):
        cat, hiking = filled.search_many(["cat", "徒步"], now=NOW, rerank=rerank)
        assert (cat.query_record.text, hiking.query_record.text) == ("cat", "徒步")
        assert cat.query_record.ids == tuple(cat.ids)
        assert filled.replay(hiking.query_record).same


def test_scorers_are_names(filled: jiyi.Engine) -> None:
    class Nameless:
        def score(self, query: str, texts: Any) -> Any:
            return [float(len(text)) for text in texts]

    class Broken(Nameless):
        @property
        def name(self) -> str:
            raise RuntimeError

    record = filled.search("cat", now=NOW, rerank=("bm25", PlainScorer(), Nameless(), Broken())).query_record
    assert record.config["rerank"] == ["bm25", {"object": "plain"}, {"object": None}, {"object": None}]
    assert record.cross_encoders == ("plain", "an object without a name", "an object without a name")
    assert through_json(record) == record


# ------------------------------------------------------------------------------------------------------ damaged


def damaged(record: QueryRecord) -> list[tuple[dict[str, Any], str]]:
    good = record.to_dict()
    return [
        ({**good, "query_record": 2}, "known format"),
        ({**good, "query_record": True}, "known format"),
        ({name: value for name, value in good.items() if name != "query_record"}, "known format"),
        ({**good, "surprise": 1}, "unknown field 'surprise'; it has text, namespace"),
        ({name: value for name, value in good.items() if name != "k"}, "has no 'k'"),
        ({**good, "k": -1}, "k is -1; it must be a whole number from 0"),
        ({**good, "k": True}, "k is True"),
        ({**good, "text": None}, "text is None"),
        ({**good, "namespace": [1]}, "namespace is"),
        ({**good, "now": "yesterday"}, "ISO 8601"),
        ({**good, "as_of": 5}, "ISO 8601"),
        ({**good, "budget_ms": -1}, "budget_ms is -1"),
        ({**good, "budget_ms": float("nan")}, "budget_ms is nan"),
        ({**good, "query_vector": ["x"]}, "query_vector is"),
        ({**good, "where": []}, "where is"),
        ({**good, "config": None}, "config is None"),
        ({**good, "config": {**good["config"], "rerank": [{"name": "x"}]}}, "config is"),
        ({**good, "config": {**good["config"], "surprise": 1}}, "setting 'surprise'"),
        ({**good, "config": {**good["config"], "recency_weight": 7}}, "recency_weight is 7"),
        ({**good, "config": {**good["config"], "fusion": {}}}, "fusion is"),
        ({**good, "generation": {"default": "x"}}, "generation is"),
        ({**good, "ids": "abc"}, "ids is"),
        ({**good, "scores": [*good["scores"], 1.0]}, "3 ids and 4 scores|2 ids and 3 scores"),
        ({**good, "scores": ["x"]}, "scores is"),
        ({**good, "homes": []}, "and 0 homes"),
        ({**good, "degraded": [["rerank"]]}, "degraded is"),
        ({**good, "embedder": 5}, "embedder is 5"),
        ({**good, "store": None}, "store is None"),
    ]


def test_damaged_records_are_told_apart(filled: jiyi.Engine) -> None:
    for record, message in damaged(filled.search("cat", now=NOW).query_record):
        with pytest.raises(ValueError, match=message):
            QueryRecord.from_dict(record)
        with pytest.raises(ValueError, match=message):
            filled.replay(record)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "5", "[" * 100_000, b"\xff\xfe", "NaN"])
def test_what_is_no_record_at_all(text: str | bytes) -> None:
    with pytest.raises((ValueError, TypeError), match="query record"):
        QueryRecord.from_json(text)


@pytest.mark.parametrize("value", [None, 5, "text", [], ("a",)])
def test_replay_takes_records(filled: jiyi.Engine, value: Any) -> None:
    with pytest.raises(TypeError, match="QueryRecord"):
        filled.replay(value)


def test_a_plain_search_makes_no_record(filled: jiyi.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jiyi.hits.record_of", lambda *_: pytest.fail("it is made when it is asked for"))
    hits = filled.search("cat", now=NOW)
    assert hits.ids
    assert hits.explain()
    assert hits.to_dict()


def test_a_file_of_it_opens_without_jiyi(filled: jiyi.Engine, tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_text(filled.search("徒步", now=NOW).query_record.to_json(), encoding="utf-8")
    assert json.loads(file.read_text(encoding="utf-8"))["text"] == "徒步"
