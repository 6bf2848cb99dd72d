"""The stages after recall, each against numbers worked out by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import jiyi
from jiyi.hits import Hits
from tests.engine.conftest import Child
from tests.engine.embedders import HashEmbedder, HashTable
from tests.oracles import late_interaction

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
#: Only fusion: no recency, no neighbours, no diversity.
FUSION: dict[str, Any] = {"recency_weight": 0.0, "diversity": "none", "neighbor_share": 0.0, "now": NOW}


def _at(cosine: float) -> list[float]:
    """A vector at this cosine to [1, 0]."""
    return [cosine, math.sqrt(1 - cosine * cosine)]


def _relevance(hits: Hits) -> dict[str, float]:
    return {hit.memory.id: hit.factors["relevance"] for hit in hits}


def _add(engine: jiyi.Engine, records: Sequence[tuple[str, str, float | None]], **fields: Any) -> None:
    """Store (id, text, cosine) in this order."""
    engine.add_many(
        [{"text": text, "id": i, "timestamp": NOW, **fields} for i, text, _ in records],
        vectors=[None if cosine is None else _at(cosine) for _, _, cosine in records],
    )


# ---------------------------------------------------------------------------------------------- fusion


@pytest.fixture
def three(engine: jiyi.Engine) -> jiyi.Engine:
    """Cosines 1, ½, 0 for a, b, c; the word cat only in b and c."""
    _add(engine, [("a", "dog", 1.0), ("b", "cat", 0.5), ("c", "cat", 0.0)])
    return engine


def _weights(hits: Hits) -> dict[str, float]:
    return {name: signal["weight"] for name, signal in hits[0].factors["signals"].items()}


def test_weights_are_scaled_and_a_leg_with_nothing_gives_its_own_away(three: jiyi.Engine) -> None:
    both = three.search("cat", query_vector=[1, 0], dense_weight=3, keyword_weight=1, **FUSION)
    assert _weights(both) == {"dense": 0.75, "keyword": 0.25}
    # b and c score alike by BM25 and a has nothing: 1, 1 and 0 after min-max.
    assert _relevance(both) == pytest.approx({"a": 0.75, "b": 0.75 * 0.5 + 0.25, "c": 0.25}, abs=1e-6)
    assert both.ids == ["a", "b", "c"]
    no_words = three.search("zebra", query_vector=[1, 0], **FUSION)
    assert _weights(no_words).get("dense") == 1.0
    assert sum(_weights(no_words).values()) == 1.0
    assert _relevance(no_words) == pytest.approx({"a": 1.0, "b": 0.5, "c": 0.0}, abs=1e-6)
    no_vector = three.search("cat", **FUSION)
    assert _weights(no_vector) == {"keyword": 1.0}
    assert _relevance(no_vector) == {"b": 1.0, "c": 1.0}


def test_every_candidate_gets_both_scores(three: jiyi.Engine) -> None:
    """Recalled by words, b and c are scored by vector too, though the dense pool would not have had them."""
    hits = three.search("cat", query_vector=[1, 0], pool_min=1, k=3, **FUSION)
    raw = {hit.memory.id: hit.factors["signals"]["dense"]["raw"] for hit in hits}
    assert raw == pytest.approx({"a": 1.0, "b": 0.5, "c": 0.0}, abs=1e-6)


def test_normalizations_by_hand(engine: jiyi.Engine) -> None:
    cosines = {"a": 1.0, "b": 0.5, "c": -0.2, "d": -0.9}
    _add(engine, [(i, f"text{i}", cosine) for i, cosine in cosines.items()])
    values = np.array(list(cosines.values()))
    expected = {
        "none": values,
        "minmax": (values - values.min()) / (values.max() - values.min()),
        "zscore": (values - values.mean()) / values.std(),
        "rank": np.array([1.0, 0.75, 0.5, 0.25]),
    }
    for name, wanted in expected.items():
        for share in (0.0, 0.8):
            hits = engine.search("zzz", query_vector=[1, 0], normalization=name, **{**FUSION, "neighbor_share": share})
            assert _relevance(hits) == pytest.approx(dict(zip(cosines, wanted, strict=True)), abs=1e-5), name
            assert hits.ids == ["a", "b", "c", "d"]


@pytest.mark.parametrize("normalization", ["minmax", "rank"])
def test_one_candidate_or_equal_ones_have_relevance_1(engine: jiyi.Engine, normalization: str) -> None:
    engine.add("cat", id="a", timestamp=NOW)
    assert _relevance(engine.search("cat", normalization=normalization, **FUSION)) == {"a": 1.0}
    engine.add_many([{"text": "cat", "id": i, "timestamp": NOW} for i in "bc"])
    hits = engine.search("cat", normalization=normalization, **FUSION)
    assert _relevance(hits) == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert hits.ids == ["a", "b", "c"]


@pytest.mark.parametrize("k", [1.0, 60.0])
def test_rrf_by_hand(three: jiyi.Engine, k: float) -> None:
    hits = three.search("cat", query_vector=[1, 0], fusion="rrf", rrf_k=k, dense_weight=1, keyword_weight=1, **FUSION)
    scale = (k + 1) / 2  # first in both would be 1
    assert _relevance(hits) == pytest.approx(
        {"a": scale / (k + 1), "b": scale * (1 / (k + 2) + 1 / (k + 1)), "c": scale * (1 / (k + 3) + 1 / (k + 2))}
    )
    assert hits.ids[0] == "b"


def test_a_missing_vector_is_worst_and_not_zero(engine: jiyi.Engine) -> None:
    _add(engine, [("a", "cat", -0.5), ("b", "cat", -1.0), ("n", "cat", None)])
    signals = {
        hit.memory.id: hit.factors["signals"]["dense"] for hit in engine.search("cat", query_vector=[1, 0], **FUSION)
    }
    assert signals["n"]["raw"] is None
    assert signals["n"]["rank"] is None
    assert {i: signal["normalized"] for i, signal in signals.items()} == {"a": 1.0, "b": 0.0, "n": 0.0}


def test_large_weights_count_by_their_ratio(three: jiyi.Engine) -> None:
    small = three.search("cat", query_vector=[1, 0], dense_weight=3, keyword_weight=1, **FUSION)
    try:
        large = three.search("cat", query_vector=[1, 0], dense_weight=3e300, keyword_weight=1e300, **FUSION)
    except ValueError:
        return
    assert _relevance(large) == pytest.approx(_relevance(small))


def test_late_interaction_is_max_sim_weighted_by_idf() -> None:
    table = HashTable(16)
    texts = ["cat sat", "dog ran", "cat dog bird", "fish"]
    with jiyi.open(embedder=table) as engine:
        ids = engine.add_many([{"text": text, "timestamp": NOW} for text in texts])
        hits = engine.search("cat bird", k=9, **FUSION)
        assert set(_weights(hits)) == {"dense", "keyword", "late"}
        assert sum(_weights(hits).values()) == pytest.approx(1.0)
    _, rows = table.token_rows(["cat bird"])
    tokens = [table.token_rows([text])[1].tolist() for text in texts]
    weights = [
        math.log(1 + (4 - df + 0.5) / (df + 0.5)) for df in (sum(row in text for text in tokens) for row in rows)
    ]
    weights = [weight * float(table.weights[row]) for weight, row in zip(weights, rows, strict=True)]
    vectors = (table.table[rows].astype(np.float64) * table.inverse_norms[rows, None]).tolist()
    for i, own in zip(ids, tokens, strict=True):
        wanted = late_interaction.max_sim(vectors, weights, table.table.tolist(), table.inverse_norms.tolist(), own)
        [hit] = [hit for hit in hits if hit.memory.id == i] or [None]
        assert hit is not None
        assert (hit.factors["signals"]["late"]["raw"] or 0.0) == pytest.approx(wanted, abs=1e-4)


# ------------------------------------------------------------------------------------------ neighbours


def test_a_turn_lends_a_share_to_the_next_of_its_session(engine: jiyi.Engine) -> None:
    def turn(i: str, text: str, minute: int, session: str | None = "s") -> dict[str, Any]:
        return {"id": i, "text": text, "session": session, "timestamp": NOW + timedelta(minutes=minute)}

    answer = "berlin since last spring with her sister and a dog"
    engine.add_many(
        [
            turn("q", "where does ana live", 0),
            turn("x", answer, 1, "other"),
            turn("a", answer, 1),
            turn("b", answer, 2),  # two turns on: nothing is lent twice
            turn("n", answer, 3, None),
            turn("q2", "where does ana live", 0, "short"),
            turn("ok", "hm ok", 1, "short"),
        ]
    )
    lending = {**FUSION, "neighbor_share": 0.5, "k": 9}
    hits = engine.search("where ana live", **lending)
    # A turn of two words borrows 2/8 of the share: it can hardly be an answer.
    assert _relevance(hits) == {"q": 1.0, "q2": 1.0, "a": 0.5, "ok": 0.5 * 2 / 8}
    assert {hit.memory.id: hit.factors["lent"] for hit in hits if hit.factors["lent"]} == {"a": 0.5, "ok": 0.125}
    assert _relevance(engine.search("where ana live", **FUSION)) == {"q": 1.0, "q2": 1.0}
    # A filter holds for the one that is lent to as for any other.
    assert "a" not in engine.search("where ana live", where={"id": {"not": "a"}}, **lending).ids
    engine.delete("a")
    assert engine.search("where ana live", **lending).ids == ["q", "q2", "b", "ok"]  # b is next to q now


# --------------------------------------------------------------------------------------------- recency


def _recency(engine: jiyi.Engine, **settings: Any) -> dict[str, float]:
    hits = engine.search("cat", k=20, now=NOW, diversity="none", **settings)
    return {hit.memory.id: hit.factors["recency"] for hit in hits}


@pytest.mark.parametrize("curve", ["exponential", "linear", "logarithmic"])
def test_every_curve_is_one_half_at_the_half_life(engine: jiyi.Engine, curve: str) -> None:
    ages = {"future": -400, "now": 0, "half": 30, "two": 60, "old": 3000}
    engine.add_many([{"text": "cat", "id": i, "timestamp": NOW - age * DAY} for i, age in ages.items()])
    found = _recency(engine, recency_curve=curve, half_life_s=30 * 86400.0)
    assert found["half"] == pytest.approx(0.5, abs=1e-12)
    assert found["future"] == found["now"] == 1.0
    unit = 30 / (math.e**2 - math.e)
    assert found["two"] == pytest.approx(
        {"exponential": 0.25, "linear": 0.0, "logarithmic": 1 / math.log(math.e + 60 / unit)}[curve]
    )
    assert 0 <= found["old"] < found["two"] or (curve == "linear" and found["old"] == 0)


def test_ageless_kinds(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": "cat", "id": kind, "kind": kind, "timestamp": NOW - 7 * DAY} for kind in jiyi.KINDS])
    assert _recency(engine) == {"episodic": 0.5, "semantic": 0.5, "archival": 1.0, "procedural": 1.0}
    assert set(_recency(engine, ageless_kinds=()).values()) == {0.5}
    assert _recency(engine, ageless_kinds=("semantic",))["semantic"] == 1.0
    assert set(_recency(engine, half_life_s=math.inf).values()) == {1.0}


def test_blending_by_hand(three: jiyi.Engine) -> None:
    three.update("b", timestamp=NOW - 7 * DAY)
    for weight in (0.0, 0.1, 0.5, 1.0):
        hits = three.search("zzz", query_vector=[1, 0], **{**FUSION, "recency_weight": weight})
        scores = dict(zip(hits.ids, hits.scores, strict=True))
        assert scores == pytest.approx({"a": 1.0, "b": 0.5 * (1 - weight) + 0.5 * weight, "c": weight}, abs=1e-6)
        assert list(scores.values()) == sorted(scores.values(), reverse=True)


def test_an_answer_can_be_replayed(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": f"cat {i}", "timestamp": NOW - i * DAY} for i in range(9)])
    first, again = (engine.search("cat", now=NOW) for _ in range(2))
    assert (first.ids, first.scores) == (again.ids, again.scores)
    assert engine.search("cat", now=NOW + 300 * DAY).scores != first.scores


# ---------------------------------------------------------------------------------------------- rerank


class Scorer:
    """A cross-encoder that answers from a table, and remembers what it was asked."""

    name = "fake"

    def __init__(self, by_text: dict[str, float] | Any) -> None:
        self.by_text = by_text
        self.asked: list[list[str]] = []

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.append(list(texts))
        if not isinstance(self.by_text, dict):
            return self.by_text(texts)  # type: ignore[no-any-return]
        return np.array([self.by_text[text] for text in texts], np.float32)


@pytest.fixture
def five(engine: jiyi.Engine) -> jiyi.Engine:
    _add(engine, [(f"i{i}", f"text{i}", cosine) for i, cosine in enumerate((1.0, 0.75, 0.5, 0.25, 0.0))])
    return engine


def _rerank(engine: jiyi.Engine, scorer: Any, **settings: Any) -> Hits:
    return engine.search("zzz", query_vector=[1, 0], rerank=scorer, **{**FUSION, **settings})


def test_rerank_by_hand(five: jiyi.Engine) -> None:
    scorer = Scorer({f"text{i}": float(i) for i in range(5)})
    hits = _rerank(five, scorer, rerank_weight=0.7)
    first = np.array([1, 0.75, 0.5, 0.25, 0])
    wanted = 0.3 * first + 0.7 * first[::-1]
    assert hits.ids == ["i4", "i3", "i2", "i1", "i0"]
    assert hits.scores == pytest.approx(sorted(wanted, reverse=True), abs=1e-6)
    assert [hit.factors["reranked"]["fake"]["raw"] for hit in hits] == [4, 3, 2, 1, 0]
    assert hits.degraded == ()
    assert scorer.asked == [[f"text{i}" for i in range(5)]]


def test_rerank_weight_0_and_1_and_rrf(five: jiyi.Engine) -> None:
    scorer = Scorer({f"text{i}": float(i) for i in range(5)})
    assert _rerank(five, scorer, rerank_weight=0.0).ids == [f"i{i}" for i in range(5)]
    assert _rerank(five, scorer, rerank_weight=1.0).ids == [f"i{i}" for i in reversed(range(5))]
    hits = _rerank(five, scorer, rerank_fusion="rrf", rrf_k=1)
    wanted = {f"i{i}": (1 / (2 + i) + 1 / (6 - i)) for i in range(5)}  # ends first, in the order stored
    assert hits.ids == sorted(wanted, key=lambda i: -wanted[i])
    assert hits.scores == pytest.approx(sorted(wanted.values(), reverse=True))


def test_only_the_first_candidates_are_scored_and_they_come_first(five: jiyi.Engine) -> None:
    scorer = Scorer({"text0": 0.0, "text1": 1.0})
    hits = _rerank(five, scorer, rerank_candidates=2, rerank_weight=1.0)
    assert hits.ids == ["i1", "i0", "i2", "i3", "i4"]
    assert hits.scores == sorted(hits.scores, reverse=True)
    assert all(0 <= score <= 1 for score in hits.scores)
    assert scorer.asked == [["text0", "text1"]]
    assert _rerank(five, scorer, rerank_candidates=0).ids == [f"i{i}" for i in range(5)]


def test_several_scorers_and_bm25(engine: jiyi.Engine) -> None:
    _add(engine, [("a", "cat", 1.0), ("b", "cat cat cat", 0.5), ("c", "dog", 0.0)])
    hits = engine.search(
        "cat",
        query_vector=[1, 0],
        rerank=("bm25", Scorer({"cat": 0, "cat cat cat": 0, "dog": 9})),
        rerank_weight=1.0,
        **FUSION,
    )
    assert set(hits[0].factors["reranked"]) == {"bm25", "fake"}
    scores = dict(zip(hits.ids, hits.scores, strict=True))
    assert scores["c"] == pytest.approx(0.5)
    assert scores["b"] == pytest.approx(0.5)
    assert scores["a"] < 0.5


BROKEN = {
    "raises": lambda texts: 1 / 0,
    "NaN": lambda texts: np.full(len(texts), np.nan),
    "one infinity": lambda texts: np.array([np.inf] + [0.0] * (len(texts) - 1)),
    "too few": lambda texts: np.zeros(len(texts) - 1),
    "too many": lambda texts: np.zeros(len(texts) + 1),
    "a column": lambda texts: np.zeros((len(texts), 1)),
    "one number": lambda texts: 0.5,
    "None": lambda texts: None,
    "text": lambda texts: ["a"] * len(texts),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_scorer_degrades(five: jiyi.Engine, how: str) -> None:
    hits = _rerank(five, Scorer(BROKEN[how]))
    plain = _rerank(five, ())
    assert (hits.ids, hits.scores) == (plain.ids, plain.scores)
    [degraded] = hits.degraded
    assert degraded.stage == "rerank"
    assert "fake" in degraded.reason
    assert "degraded: rerank" in hits.explain()
    # A sound one beside it still counts.
    both = _rerank(five, (Scorer(BROKEN[how]), Scorer({f"text{i}": float(i) for i in range(5)})), rerank_weight=1.0)
    assert both.ids[0] == "i4"
    assert len(both.degraded) == 1


def test_a_spent_budget_leaves_the_rest_and_says_so(engine: jiyi.Engine) -> None:
    _add(engine, [(f"i{i}", f"text{i}", 1 - i / 40) for i in range(40)])
    scorer = Scorer({f"text{i}": float(i) for i in range(40)})
    none = _rerank(engine, scorer, budget_ms=0, k=40)
    assert none.ids == [f"i{i}" for i in range(40)]
    assert [degraded.stage for degraded in none.degraded] == ["rerank"]
    assert "30 of 30" in none.degraded[0].reason
    assert scorer.asked == []

    class Slow(Scorer):
        def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
            import time

            time.sleep(0.2)
            return super().score(query, texts)

    slow = Slow(scorer.by_text)
    hits = _rerank(engine, slow, budget_ms=300, k=40, rerank_weight=1.0)
    scored = [text for batch in slow.asked for text in batch]
    assert 0 < len(scored) < 30
    assert scored == [f"text{i}" for i in range(len(scored))]  # best first
    assert hits.ids == [f"i{i}" for i in [*reversed(range(len(scored))), *range(len(scored), 40)]]
    assert f"{30 - len(scored)} of 30" in hits.degraded[0].reason
    assert _rerank(engine, scorer, budget_ms=1e9, k=40).degraded == ()


# ------------------------------------------------------------------------------------------- diversify


def _mmr(engine: jiyi.Engine, k: int, **settings: Any) -> list[str]:
    settings = {"recency_weight": 0.0, "neighbor_share": 0.0, "now": NOW, **settings}
    return engine.search("zzz", query_vector=[1, 0], k=k, **settings).ids


def _jaccard(a: str, b: str) -> float:
    left, right = set(a.split()), set(b.split())
    return len(left & right) / len(left | right) if left | right else 0.0


TEXTS = ["alpha beta", "alpha beta", "alpha beta gamma", "delta", "alpha delta", "epsilon zeta eta", "delta", "theta"]


@pytest.fixture
def varied(engine: jiyi.Engine) -> jiyi.Engine:
    _add(engine, [(f"i{i}", text, 1 - i / 10) for i, text in enumerate(TEXTS)])
    return engine


def _greedy(k: int, lambda_: float, window: int = 20) -> list[str]:
    cosines = [1 - i / 10 for i in range(len(TEXTS))][:window]
    relevance = [(c - cosines[-1]) / (cosines[0] - cosines[-1]) if len(cosines) > 1 else 1.0 for c in cosines]
    chosen: list[int] = []
    while len(chosen) < min(k, len(cosines)):
        scores = {
            i: lambda_ * relevance[i] - (1 - lambda_) * max([_jaccard(TEXTS[i], TEXTS[j]) for j in chosen], default=0.0)
            for i in range(len(cosines))
            if i not in chosen
        }
        chosen.append(max(scores, key=lambda i: (round(scores[i], 6), -i)))
    return [f"i{i}" for i in [*chosen, *(i for i in range(len(TEXTS)) if i not in chosen)]][:k]


@pytest.mark.parametrize(
    ("k", "lambda_", "window"), list(itertools.product((1, 3, 8, 20), (0.0, 0.3, 0.65, 1.0), (2, 5, 20)))
)
def test_mmr_is_the_greedy_choice(varied: jiyi.Engine, k: int, lambda_: float, window: int) -> None:
    assert _mmr(varied, k, mmr_lambda=lambda_, mmr_window=window) == _greedy(k, lambda_, window)


def test_lambda_1_is_top_k(varied: jiyi.Engine) -> None:
    for k in range(9):
        assert (
            _mmr(varied, k, mmr_lambda=1.0) == _mmr(varied, k, diversity="none") == [f"i{i}" for i in range(min(k, 8))]
        )


def test_at_lambda_0_a_copy_never_beats_a_distinct_item(varied: jiyi.Engine) -> None:
    ids = _mmr(varied, 8, mmr_lambda=0.0)
    copies = {"i1", "i6"}  # of i0 and i3
    first_copy = min(ids.index(copy) for copy in copies)
    assert {"i0", "i3", "i5", "i7"} <= set(ids[:first_copy])


def test_windows(varied: jiyi.Engine) -> None:
    for window in (0, 1):
        assert _mmr(varied, 5, mmr_window=window, mmr_lambda=0.0) == [f"i{i}" for i in range(5)]
    # What is outside the window keeps its place, also where k is larger than the window.
    assert _mmr(varied, 8, mmr_window=3, mmr_lambda=0.1)[3:] == [f"i{i}" for i in range(3, 8)]


def test_cosine_diversity(engine: jiyi.Engine) -> None:
    engine.add_many(
        [{"text": f"t{i}", "id": f"i{i}", "timestamp": NOW} for i in range(3)],
        vectors=[[1, 0.1, 0], [1, 0.11, 0], [0.6, 0, 0.8]],
    )
    found = engine.search("zzz", query_vector=[1, 0, 0], k=2, diversity="cosine", mmr_lambda=0.2, now=NOW).ids
    assert found == ["i0", "i2"]
    assert engine.search("zzz", query_vector=[1, 0, 0], k=2, diversity="none", now=NOW).ids == ["i0", "i1"]


def test_cosine_diversity_without_vectors_degrades(engine: jiyi.Engine) -> None:
    engine.add_many(["cat one", "cat two"])
    hits = engine.search("cat", diversity="cosine")
    assert len(hits) == 2
    assert [degraded.stage for degraded in hits.degraded] == ["diversify"]


def test_dates_speakers_and_bigrams_make_nothing_alike(engine: jiyi.Engine) -> None:
    engine.add_many(
        [{"text": text, "id": text, "timestamp": NOW, "speaker": "Ana"} for text in ("猫狗", "狗鸟", "鱼")],
        vectors=[_at(c) for c in (1.0, 0.5, 0.4)],
    )
    hits = engine.search("zzz", query_vector=[1, 0], mmr_lambda=0.5, neighbor_share=0, recency_weight=0)
    mmr = {hit.memory.id: hit.factors["mmr"]["penalty"] for hit in hits}
    assert mmr == pytest.approx({"猫狗": 0.0, "狗鸟": 1 / 3, "鱼": 0.0})


# --------------------------------------------------------------------------------- cut and determinism


def test_nothing_is_cut_to_k_before_the_end(engine: jiyi.Engine) -> None:
    """With k = 1 the reranker still sees 30 candidates, and what it likes best wins from place 30."""
    _add(engine, [(f"i{i}", f"text{i}", 1 - i / 60) for i in range(60)])
    scorer = Scorer({f"text{i}": float(i == 29) for i in range(60)})
    assert _rerank(engine, scorer, k=1, rerank_weight=1.0).ids == ["i29"]
    assert len(scorer.asked[0]) == 30


def test_ties_are_in_the_order_stored(engine: jiyi.Engine) -> None:
    ids = engine.add_many([{"text": "cat", "timestamp": NOW} for _ in range(30)])
    for settings in (
        {"diversity": "none"},
        {"mmr_lambda": 1.0},
        {"mmr_lambda": 0.5},
        {"fusion": "weighted", "normalization": "zscore"},
        {"rerank": "bm25"},
    ):
        assert engine.search("cat", k=30, now=NOW, **settings).ids == ids, settings


_ANSWERS = """
import jiyi, json, random
from tests.engine.embedders import HashTable
random_ = random.Random(3)
words = [f"w{i}" for i in range(60)] + ["猫狗", "京都", "don't"]
with jiyi.open(embedder=HashTable()) as engine:
    engine.add_many([
        {"text": " ".join(random_.choices(words, k=8)), "id": f"i{i}", "timestamp": 86400.0 * (i % 9),
         "session": f"s{i % 7}", "metadata": {"b": i, "a": [1, {"z": 1, "y": 2}]},
         "kind": jiyi.KINDS[i % 4]} for i in range(300)])
    for query in ("w1 w2 猫狗", "w5", "京都 don't w7 w8 w9"):
        for settings in ({}, {"fusion": "rrf"}, {"normalization": "zscore", "diversity": "cosine"}, {"rerank": "bm25"}):
            hits = engine.search(query, now=1e6, k=20, **settings)
            print(json.dumps([hits.ids, hits.scores, [dict(hit.factors) for hit in hits]]))
"""


def test_the_same_answer_in_every_process_and_with_every_hash_seed(child: Child) -> None:
    answers = [child(_ANSWERS, fresh=True, env={"PYTHONHASHSEED": seed}) for seed in ("0", "4711")]
    assert answers[0].stdout.count("\n") == 12, answers[0].stderr
    assert answers[0].stdout == answers[1].stdout


# ------------------------------------------------------------------------------------------- embedders


class Broken(HashEmbedder):
    def __init__(self, how: Any) -> None:
        super().__init__(8, "broken")
        self.how = how

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self.how()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "how",
    [
        lambda: 1 / 0,
        lambda: np.full(8, np.nan, np.float32),
        lambda: np.zeros(7, np.float32),
        lambda: np.zeros(8, np.float32),
        lambda: None,
        lambda: "x",
    ],
)
def test_an_embedder_that_fails_on_the_query_degrades(how: Any) -> None:
    with jiyi.open(embedder=HashEmbedder(8, "broken")) as good:
        assert good.search("cat").degraded == ()
    with jiyi.open(embedder=Broken(how)) as engine:
        engine._store.embedder.embed = HashEmbedder(8).embed  # type: ignore[union-attr, method-assign]
        engine.add_many(["cat", "dog"])
        hits = engine.search("cat")
        assert [memory.text for memory in hits.memories] == ["cat"]
        assert [degraded.stage for degraded in hits.degraded] == ["dense"]
        assert "broken" in hits.degraded[0].reason


def test_an_embedder_with_nothing_on_the_query_degrades(hash_embedder: HashEmbedder, hash_table: HashTable) -> None:
    for embedder in (hash_embedder, hash_table):
        with jiyi.open(embedder=embedder) as engine:
            engine.add("cat")
            hits = engine.search("?!")
            assert hits.ids == []
            assert [degraded.stage for degraded in hits.degraded] == ["dense"]


@pytest.mark.parametrize("kind", [HashEmbedder, HashTable])
def test_embedders_find_by_meaning(kind: type[HashEmbedder]) -> None:
    with jiyi.open(embedder=kind()) as engine:
        engine.add_many(["the cat sat on the mat", "dogs run fast", "周末去徒步"])
        hits = engine.search("a cat on a mat", k=3)
        assert hits[0].memory.text == "the cat sat on the mat"
        assert hits[0].factors["signals"]["dense"]["rank"] == 1
        assert hits.degraded == ()
