"""What each part adds to a score: the amounts add up to it, whatever the settings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

import jiyi
from jiyi.config import PRESETS, SearchConfig
from jiyi.hits import Hits
from tests.engine.embedders import HashTable, PairScorer, PlainScorer, reads_latin

NOW = datetime(2026, 1, 8, tzinfo=UTC)
WORDS = [
    "cat",
    "dog",
    "tea",
    "trail",
    "redis",
    "徒步",
    "周末",
    "猫",
    "数据库",
    "a",
    "longer",
    "sentence",
    "berlin",
    "Ana",
    "小明",
    "Ben",
]


def adds_up(hits: Hits) -> None:
    for hit in hits:
        parts = hit.factors["contributions"]
        assert sum(parts.values()) == pytest.approx(hit.score, abs=1e-9), hit.factors
    assert [hit.score for hit in hits] == hits.scores


texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
memories = st.lists(
    st.fixed_dictionaries(
        {
            "text": texts,
            "session": st.sampled_from([None, "s", "t"]),
            "speaker": st.sampled_from([None, "Ana", "小明"]),
            "namespace": st.sampled_from(["default", "other"]),
            "uses": st.sampled_from([0, 0, 3]),
            "kind": st.sampled_from(["episodic", "archival", "procedural"]),
            "timestamp": st.integers(-3, 400).map(lambda days: NOW - timedelta(days=days)),
        }
    ),
    min_size=1,
    max_size=12,
)
scorers = st.sampled_from(
    [
        (),
        ("bm25",),
        (PlainScorer(),),
        (PairScorer(knows=reads_latin),),
        (PairScorer(knows=reads_latin, most=2), "bm25"),
        (PairScorer(most=1),),
        (PairScorer(answer=lambda pairs: 1 / 0),),
    ]
)
facts = st.lists(
    st.tuples(*[st.sampled_from(["Ana", "Ben", "柏林", "hiking"])] * 3).map(lambda fact: jiyi.Memory.fact(*fact)),
    max_size=4,
)
settings = st.fixed_dictionaries(
    {
        "normalization": st.sampled_from(["minmax", "zscore", "rank", "none"]),
        "fusion": st.sampled_from(["weighted", "rrf"]),
        "rrf_k": st.sampled_from([0.0, 1.0, 60.0]),
        "neighbor_share": st.sampled_from([0.0, 0.5, 1.0]),
        "recency_weight": st.sampled_from([0.0, 0.1, 1.0]),
        "reinforcement": st.sampled_from(["none", "last_use", "half_life"]),
        "speaker_bonus": st.sampled_from([0.0, 0.3, 5.0]),
        "fact_share": st.sampled_from([0.0, 0.7]),
        "recency_curve": st.sampled_from(["exponential", "linear", "logarithmic"]),
        "rerank": scorers,
        "rerank_candidates": st.sampled_from([0, 1, 3, 30]),
        "rerank_fusion": st.sampled_from(["weighted", "rrf"]),
        "rerank_weight": st.sampled_from([0.0, 0.7, 1.0]),
        "diversity": st.sampled_from(["jaccard", "cosine", "none"]),
    }
)


@limits(max_examples=30)
@given(
    memories=memories,
    facts=facts,
    query=texts,
    settings=settings,
    weights=st.tuples(*[st.sampled_from([0.0, 0.3, 1.0])] * 3),
)
def test_they_add_up_whatever_the_settings(
    memories: list[dict[str, Any]],
    facts: list[jiyi.Memory],
    query: str,
    settings: dict[str, Any],
    weights: tuple[float, float, float],
) -> None:
    dense, keyword, late = weights if any(weights) else (0.3, 0.35, 0.35)
    with jiyi.open(embedder=HashTable()) as engine:
        ids = engine.add_many([*memories, *facts])
        tried = [i for i, memory in zip(ids, memories, strict=False) if memory["kind"] == "procedural"]
        for namespace in ("default", "other"):
            engine.outcome(tried, success=True, namespace=namespace, now=NOW)
        config = SearchConfig(**settings, dense_weight=dense, keyword_weight=keyword, late_weight=late)
        for namespace in ("default", "other", "*"):
            adds_up(engine.search(query, now=NOW, k=12, config=config, namespace=namespace))


@pytest.fixture
def filled() -> Any:
    with jiyi.open(embedder=HashTable()) as engine:
        engine.add_many(
            [
                {"text": "where does ana live", "id": "question", "session": "s", "timestamp": NOW - timedelta(days=3)},
                {
                    "text": "berlin since last spring with her sister and dog",
                    "id": "answer",
                    "session": "s",
                    "timestamp": NOW - timedelta(days=3) + timedelta(minutes=1),
                },
                {"text": "周末喜欢去徒步，特别是越野路线", "id": "hiking", "kind": "archival"},
                {"text": "live and let live", "id": "old", "timestamp": NOW - timedelta(days=300)},
            ]
        )
        yield engine


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "best"])
def test_they_add_up_in_every_preset(filled: jiyi.Engine, name: str) -> None:
    for query in ("where does ana live", "周末徒步去哪里", "zzz"):
        hits = filled.search(query, now=NOW, preset=name)
        adds_up(hits)
        if len(hits):
            signals = {"dense", "keyword", "late"} & set(hits[0].factors["contributions"])
            assert signals == set(hits[0].factors["signals"])


def test_they_add_up_with_a_cross_encoder_in_best(filled: jiyi.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = PairScorer(name="rerank-en", knows=reads_latin)
    monkeypatch.setattr("jiyi.search.load_cross_encoder", lambda name, *, device: scorer)
    for query in ("where does ana live", "周末徒步去哪里"):
        adds_up(filled.search(query, now=NOW, preset="best"))
    assert scorer.calls


def test_what_the_turn_before_lends_stands_apart(filled: jiyi.Engine) -> None:
    hits = filled.search("where does ana live", now=NOW, neighbor_share=0.8, diversity="none")
    parts = {hit.memory.id: hit.factors["contributions"] for hit in hits}
    factors = {hit.memory.id: hit.factors for hit in hits}
    assert parts["answer"]["lent"] > 0.1
    assert parts["question"]["lent"] == 0.0
    own = sum(signal["normalized"] * signal["weight"] for signal in factors["answer"]["signals"].values())
    assert parts["answer"]["lent"] == pytest.approx(0.9 * (factors["answer"]["lent"] - own), abs=1e-12)
    without = filled.search("where does ana live", now=NOW, neighbor_share=0.0, diversity="none")
    assert all(hit.factors["contributions"]["lent"] == 0 for hit in without)


def test_recency_is_its_weight_times_its_factor(filled: jiyi.Engine) -> None:
    for weight in (0.0, 0.25, 1.0):
        for hit in filled.search("live", now=NOW, recency_weight=weight):
            assert hit.factors["contributions"]["recency"] == pytest.approx(hit.factors["recency"] * weight)


def test_a_text_that_the_cross_encoder_cannot_read_adds_up(filled: jiyi.Engine) -> None:
    """It counts by its first-stage score, on the scale of those that were to be scored."""
    scorer = PairScorer(lambda query, text: len(text) / 100, name="english", knows=reads_latin)
    hits = filled.search("where does ana live 徒步", now=NOW, rerank=scorer, diversity="none")
    by_id = {hit.memory.id: hit for hit in hits}
    hiking = by_id["hiking"].factors
    assert hiking["reranked"]["english"]["raw"] is None
    assert hiking["rerank"]["looked_at"] is True
    assert hiking["reranked"]["english"]["share"] == pytest.approx(0.7 * hiking["reranked"]["english"]["normalized"])
    assert by_id["hiking"].score == pytest.approx(
        hiking["rerank"]["before_share"] + hiking["reranked"]["english"]["share"], abs=1e-12
    )
    adds_up(hits)


def test_what_no_scorer_looked_at_is_scaled_and_says_by_how_much(filled: jiyi.Engine) -> None:
    hits = filled.search("where does ana live", now=NOW, rerank="bm25", rerank_candidates=2, diversity="none")
    assert [hit.factors["rerank"]["looked_at"] for hit in hits] == [True, True, False, False]
    assert [hit.factors["rerank"]["scale"] for hit in hits[:2]] == [1.0, 1.0]
    for hit in hits[2:]:
        rerank = hit.factors["rerank"]
        assert rerank["scale"] <= 1.0
        assert hit.score == pytest.approx(rerank["before"] * rerank["scale"], abs=1e-12)
        assert hit.factors["reranked"]["bm25"]["share"] == 0.0
        assert f"×{rerank['scale']:.2f}" in hits.explain()
    adds_up(hits)


def test_a_failed_scorer_leaves_no_part(filled: jiyi.Engine) -> None:
    hits = filled.search("live", now=NOW, rerank=PairScorer(answer=lambda pairs: None))
    assert "rerank" not in hits[0].factors["contributions"]
    adds_up(hits)


def test_how_a_procedure_went_is_a_part(filled: jiyi.Engine) -> None:
    filled.add("how to live in berlin", id="steps", kind="procedural")
    before = {hit.memory.id: hit.score for hit in filled.search("live", now=NOW, diversity="none")}
    for success in (True, True, True, False):
        filled.outcome("steps", success=success, now=NOW)
    hits = filled.search("live", now=NOW, diversity="none")
    parts = {hit.memory.id: hit.factors["contributions"] for hit in hits}
    assert parts["steps"]["outcome"] > 0
    assert parts["old"]["outcome"] == 0
    after = {hit.memory.id: hit.score for hit in hits}
    assert after["steps"] == pytest.approx(before["steps"] + parts["steps"]["outcome"], abs=1e-12)
    adds_up(hits)
    adds_up(filled.search("live", now=NOW, rerank="bm25"))
    assert "3✓ 1✗" in hits.explain()


def test_who_said_it_and_which_fact_leads_there_are_parts(filled: jiyi.Engine) -> None:
    filled.add("live and work in berlin", id="said", speaker="Ana")
    filled.add(jiyi.Memory.fact("Ana", "works at", "Acme"))
    filled.add(jiyi.Memory.fact("Acme", "is in", "Tallinn"))
    hits = filled.search("where does Ana live", now=NOW, k=10)
    adds_up(hits)
    parts = {hit.memory.id: hit.factors["contributions"] for hit in hits}
    assert parts["said"]["speaker"] > 0
    assert parts["old"]["speaker"] == 0
    assert any(part.get("led", 0) > 0 for part in parts.values())
    adds_up(filled.search("where does Ana live", now=NOW, k=10, fusion="rrf", rerank="bm25"))
