"""The answer: a sequence, a table for people, a record for programs, and every number behind every rank."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

import jiyi
from jiyi.explain import age, aligned, clipped, width
from jiyi.hits import Hit, Hits
from tests.engine.embedders import PairScorer, reads_latin

NOW = datetime(2026, 1, 8, tzinfo=UTC)


@pytest.fixture
def hits(engine: jiyi.Engine) -> Hits:
    engine.add_many(
        [
            {"text": "cat on the mat", "id": "a", "timestamp": NOW - timedelta(days=7), "kind": "episodic"},
            {"text": "cat on the mat", "id": "copy", "timestamp": NOW - timedelta(hours=5)},
            {"text": "周末喜欢去徒步", "id": "c", "kind": "archival", "timestamp": NOW - timedelta(days=700)},
        ],
        vectors=[[1, 0], [0.9, 0.1], [0, 1]],
    )
    return engine.search("cat", query_vector=[1, 0], now=NOW, k=3)


def test_is_a_sequence(hits: Hits) -> None:
    assert isinstance(hits, Sequence)
    assert len(hits) == len(list(hits)) == 3
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert hits[-1].memory.id == hits[2].memory.id == hits.ids[-1]
    assert [hit.memory.id for hit in hits[1:]] == hits.ids[1:]
    assert [hit.memory.id for hit in hits[::-1]] == hits.ids[::-1]
    assert hits[5:] == []
    assert hits[0] == hits[0]
    assert hits[1] in hits
    assert hits.index(hits[2]) == 2
    assert [m.id for m in hits.memories] == hits.ids
    assert [hit.score for hit in hits] == hits.scores
    for index in (3, -4, 10**9):
        with pytest.raises(IndexError):
            hits[index]
    assert isinstance(hits[0], Hit)


def test_nothing_of_it_can_be_changed_from_outside(hits: Hits) -> None:
    hits.memories.clear()
    hits.scores.clear()
    hits.ids.clear()
    assert len(hits.memories) == len(hits.ids) == len(hits.scores) == 3
    with pytest.raises((AttributeError, TypeError)):
        hits[0].score = 5.0  # type: ignore[misc]


def test_the_score_follows_from_the_factors(hits: Hits) -> None:
    for hit in hits:
        factors = hit.factors
        fused = sum(signal["normalized"] * signal["weight"] for signal in factors["signals"].values())
        assert factors["relevance"] == pytest.approx(max(fused, factors["lent"] or 0.0), abs=1e-12)
        assert hit.score == pytest.approx(factors["relevance"] * 0.9 + factors["recency"] * 0.1, abs=1e-12)
        assert 0 <= hit.score <= 1
    by_id = {hit.memory.id: hit.factors for hit in hits}
    assert by_id["a"]["age_s"] == 7 * 86400
    assert by_id["a"]["recency"] == pytest.approx(0.5)
    assert by_id["c"]["recency"] == 1.0


def test_mmr_tells_who_was_in_the_way(hits: Hits) -> None:
    mmr = {hit.memory.id: hit.factors["mmr"] for hit in hits}
    assert mmr[hits.ids[0]]["because_of"] is None
    assert mmr[hits.ids[0]]["penalty"] == 0
    twin, first = ("a", "copy") if hits.ids[0] == "copy" else ("copy", "a")
    assert mmr[twin] == {"score": pytest.approx(mmr[twin]["score"]), "penalty": 1.0, "because_of": first}


def test_to_dict_is_json(hits: Hits) -> None:
    record = json.loads(json.dumps(hits.to_dict(), allow_nan=False))
    assert set(record) == {"query", "hits", "timings_ms", "degraded", "plans"}
    assert record["query"] == "cat"
    assert [hit["memory"]["id"] for hit in record["hits"]] == hits.ids
    assert [hit["score"] for hit in record["hits"]] == hits.scores
    assert [hit["rank"] for hit in record["hits"]] == [1, 2, 3]
    assert record["hits"][0]["memory"] == hits[0].memory.to_dict()
    assert record["plans"] == {"dense": "exact", "keyword": "exact"}


def test_timings_are_milliseconds_by_stage(hits: Hits) -> None:
    assert {"query", "recall", "fuse", "recency", "diversify", "fetch", "total"} <= set(hits.timings_ms)
    assert all(ms >= 0 for ms in hits.timings_ms.values())
    parts = sum(ms for stage, ms in hits.timings_ms.items() if stage != "total")
    assert parts <= hits.timings_ms["total"] + 1e-6
    assert "rerank" not in hits.timings_ms


def test_explain_is_a_table_with_every_number(hits: Hits) -> None:
    lines = hits.explain().splitlines()
    assert lines[0] == "query: cat"
    head, rule, *rows = lines[1:6]
    for word in ("score", "dense·0.46", "keyword·0.54", "recency·0.10", "like above", "memory"):
        assert word in head
    assert set(rule) == {"─"}
    assert len(rows) == 3
    for hit, row in zip(hits, rows, strict=True):
        assert row.startswith(f"{hit.rank} ")
        assert f"{hit.score:.3f}" in row
        assert hit.memory.text in row
        assert f"{hit.factors['recency']:.2f}" in row
    [archival] = [row for row in rows if "徒步" in row]
    assert "arch" in archival
    assert "2 y" in archival
    assert lines[6].strip() == "score = 0.90 × the sum of weight·→ (or what the turn before lends) + 0.10·recency"
    assert "total" in lines[7]
    # Every column starts at the same place, wide characters counted as two.
    place = head.index("id   ")
    for hit, row in zip(hits, rows, strict=True):
        assert width(row[: row.index(f" {hit.memory.id} ") + 1]) == place


def test_the_numbers_of_the_table_add_up_to_its_scores(engine: jiyi.Engine) -> None:
    """Read back from the text alone: what a person with a pencil would do."""
    engine.add_many(
        [
            {"text": text, "session": "s", "timestamp": NOW - timedelta(days=9 - i)}
            for i, text in enumerate(
                ["cat dog", "a long turn that says nothing at all of it really", "猫 cat", "dog dog"]
            )
        ]
    )
    scorer = PairScorer(lambda query, text: len(text) / 100, name="english", knows=reads_latin)
    for rerank in (None, ("bm25",), (scorer, "bm25")):
        for fusion in ("weighted", "rrf"):
            hits = engine.search(
                "cat dog", now=NOW, rerank=rerank, rerank_candidates=3, fusion=fusion, diversity="none"
            )
            lines = hits.explain().splitlines()
            heads = lines[1].split("  ")
            weights = [float(weight) for weight in re.findall(r"(?:dense|keyword|late)·([\d.]+)", lines[1])]
            assert weights == [1.0], heads
            for hit, line in zip(hits, lines[3:], strict=False):
                applied = [float(number) for number in re.findall(r"→(-?[\d.]+)", line)]
                relevance = applied[0]
                if lends := re.search(r"lends ([\d.]+)", line):
                    relevance = float(lends[1])
                [recency] = re.findall(r"([\d.]+) \(\d+ d\)", line)
                total = 0.9 * relevance + 0.1 * float(recency)
                if rerank is not None:
                    [before] = re.findall(r"\)  +(-?[\d.]+) [→×]", line)
                    assert float(before) == pytest.approx(total, abs=0.011)
                    scale = re.search(r"×([\d.]+)", line)
                    total = float(before) * float(scale[1]) if scale else sum(applied[1:])
                assert hit.score == pytest.approx(total, abs=0.016), line


def test_explain_as_json_has_all_that_to_dict_has(hits: Hits) -> None:
    text = hits.explain(format="json")
    assert json.loads(text) == json.loads(json.dumps(hits.to_dict()))
    assert "周末喜欢去徒步" in text
    assert "NaN" not in text
    for bad in ("xml", "", None, 5, "JSON"):
        with pytest.raises(ValueError, match="'table' or 'json'"):
            hits.explain(format=bad)  # type: ignore[arg-type]


def test_explain_shows_what_a_neighbour_lent(engine: jiyi.Engine) -> None:
    engine.add_many(
        [
            {"text": text, "session": "s", "timestamp": NOW + timedelta(minutes=i)}
            for i, text in enumerate(["where does ana live", "berlin since last spring with her sister and dog"])
        ]
    )
    hits = engine.search("where does ana live", now=NOW)
    assert [hit.factors["lent"] or 0.0 for hit in hits] == [0.0, 0.8]
    row = next(line for line in hits.explain().splitlines() if "berlin" in line)
    assert "0.80" in row


def test_explain_of_nothing_and_of_degraded(engine: jiyi.Engine) -> None:
    assert "nothing found" in engine.search("x").explain()
    engine.add("x", vector=[1.0])
    text = engine.search("x").explain()
    assert "degraded: dense: " in text
    [degraded] = engine.search("x").degraded
    assert (degraded.stage, str(degraded)) == ("dense", f"dense: {degraded.reason}")


def test_explain_of_hostile_text(engine: jiyi.Engine) -> None:
    evil = "cat\n\x1b[31m\x07\u202e\ud83d\ude00"[:-2] + "\x00end" + "猫" * 500
    engine.add(evil, id="i\n\x1b[2J")
    lines = engine.search("cat \ud800 \x1b[31m\n", k=1).explain().splitlines()
    assert len(lines) == 6
    assert not any(character in line for line in lines for character in "\x1b\x07\u202e\x00\ud800")
    assert max(map(width, lines)) < 200


def test_explain_and_factors_hold_rerank(engine: jiyi.Engine) -> None:
    engine.add_many(["cat", "cat dog"])
    hits = engine.search("cat dog", rerank="bm25")
    assert "bm25 (rerank)" in hits.explain()
    assert "rerank" in hits.timings_ms
    assert hits[0].factors["reranked"]["bm25"]["rank"] == 1


def test_hits_outlive_changes_and_the_engine() -> None:
    engine = jiyi.open(embedder=None)
    engine.add("cat one", id="a")
    hits = engine.search("cat")
    engine.update("a", text="changed")
    engine.delete("a")
    engine.close()
    assert hits[0].memory.text == "cat one"
    assert "cat one" in hits.explain()
    assert hits.to_dict()["hits"]


def test_repr(hits: Hits) -> None:
    assert repr(hits) == "Hits(3 of 3 candidates for 'cat')"
    assert len(repr(jiyi.open(embedder=None).search("x" * 10_000))) < 200


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3600, "1 h"), (86400 * 3, "3 d"), (86400 * 365.25 * 2, "2 y")],
)
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_width_and_clipping() -> None:
    assert width("ab猫👍é") == 7
    assert width("e\u0301") == 1
    assert clipped("猫" * 10, 5) == "猫猫…"
    assert clipped("a\n b\tc", 9) == "a b c"
    assert clipped("short", 5) == "short"
    assert clipped("longer", 5) == "long…"
    assert aligned([["a", "猫"], ["bcd", "e"]]) == ["a    猫", "───────", "bcd  e"]
