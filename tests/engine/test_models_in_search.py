"""Cross-encoders and transformers in a search: what they are shown, what they change, what they cannot break."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi.hits import Hits
from jiyi.models import ModelFilesError, adding, records
from tests.engine.embedders import (
    HashEmbedder,
    HashTable,
    PairScorer,
    PlainScorer,
    SpyEmbedder,
    hashed_score,
    reads_latin,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
#: Only fusion and reranking: no recency, no neighbours, no diversity.
PLAIN: dict[str, Any] = {"recency_weight": 0.0, "diversity": "none", "neighbor_share": 0.0, "now": NOW}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no model of an installed package."""
    monkeypatch.setenv("JIYI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "minilm_installed", lambda: False)
    return tmp_path / "cache"


def fill(engine: jiyi.Engine, texts: Sequence[str], **fields: Any) -> jiyi.Engine:
    """Store texts as i0, i1, … so that the vector [1, 0] finds them in this order."""
    cosines = np.linspace(1, 0, len(texts))
    engine.add_many(
        [{"text": text, "id": f"i{i}", "timestamp": NOW, **fields} for i, text in enumerate(texts)],
        vectors=[[cosine, math.sqrt(1 - cosine * cosine)] for cosine in cosines],
    )
    return engine


@pytest.fixture
def ten(engine: jiyi.Engine) -> jiyi.Engine:
    return fill(engine, [f"text{i}" for i in range(10)])


IN_ORDER = [f"i{i}" for i in range(10)]


def ask(engine: jiyi.Engine, scorer: Any, query: str = "zzz", **settings: Any) -> Hits:
    return engine.search(query, query_vector=[1, 0], rerank=scorer, **{"k": 10, **PLAIN, **settings})


def notes(hits: Hits) -> list[str]:
    return [str(degraded) for degraded in hits.degraded]


def number(query: str, text: str) -> float:
    """The number at a text's end: the pool the other way round."""
    return float(text.rpartition("text")[2])


def checked(hits: Hits) -> dict[str, Any]:
    """An answer without its times; what is shown of it can be shown, and is JSON."""
    assert hits.explain()
    answer = hits.to_dict()
    json.dumps(answer, allow_nan=False)
    del answer["timings_ms"]
    return answer


# ------------------------------------------------------------------------------------------- what rerank takes


@pytest.fixture(scope="module")
def tiny_rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder of two layers with random weights."""
    pytest.importorskip("onnx", reason="needs the extra test")
    from tests.models.tiny_onnx import make_folder

    return make_folder(tmp_path_factory.mktemp("models") / "rank", outputs=1, manifest={"name": "tiny-rank"})


#: Words that the tiny models know.
KNOWN = [
    "love hiking",
    "green tea in the morning",
    "the dog is named max",
    "Redis is the database",
    "we moved to Paris",
]


def test_a_cross_encoder_by_name_an_object_and_bm25_together(engine: jiyi.Engine, tiny_rank: Path) -> None:
    adding.add("tiny-rank", tiny_rank)
    fill(engine, KNOWN)
    hits = ask(engine, ("bm25", "tiny-rank", PlainScorer()), query="green dog")
    assert hits.degraded == ()
    assert sorted(hits.ids) == IN_ORDER[:5]
    assert list(hits[0].factors["reranked"]) == ["bm25", "tiny-rank", "plain"]
    from jiyi.models import load_cross_encoder

    alone = load_cross_encoder("tiny-rank").score("green dog", [hit.memory.text for hit in hits])
    raw = [hit.factors["reranked"]["tiny-rank"]["raw"] for hit in hits]
    assert raw == pytest.approx(alone.tolist(), abs=1e-4)
    assert len(set(raw)) > 1
    checked(hits)


@pytest.mark.parametrize("scorer", ["bm25", ("bm25",), "tiny-rank", ("tiny-rank", "bm25")])
def test_names_alone_or_in_a_tuple(engine: jiyi.Engine, tiny_rank: Path, scorer: Any) -> None:
    adding.add("tiny-rank", tiny_rank)
    fill(engine, KNOWN)
    names = [scorer] if isinstance(scorer, str) else list(scorer)
    assert list(ask(engine, scorer, query="dog")[0].factors["reranked"]) == names


@pytest.mark.parametrize("filled", [False, True])
def test_an_unknown_name_is_an_error_that_lists_what_there_is(
    engine: jiyi.Engine, tiny_rank: Path, filled: bool
) -> None:
    adding.add("tiny-rank", tiny_rank)
    if filled:
        engine.add("tea")
    for search in (engine.search, lambda text, **settings: engine.search_many([text], **settings)):
        with pytest.raises(ValueError, match=r"no cross-encoder 'nonsense'; there are: .*tiny-rank"):
            search("tea", rerank="nonsense")
        with pytest.raises(ValueError, match="no cross-encoder 'nonsense'"):
            search("tea", rerank=("bm25", "nonsense"), k=0)
        with pytest.raises(ValueError, match=r"e5-static-256.*embedder"):
            search("tea", rerank="e5-static-256")
        assert search("tea", rerank="tiny-rank") is not None


@pytest.mark.parametrize("scorer", [5, "", ("bm25", None), object(), b"bm25", ["bm25", 3]])
def test_what_is_no_scorer_is_refused(engine: jiyi.Engine, scorer: Any) -> None:
    with pytest.raises(TypeError, match="rerank takes 'bm25', a cross-encoder's name, or objects with score"):
        engine.search("tea", rerank=scorer)


def _no_model(folder: Path) -> None:
    (folder / "model.onnx").unlink()


def _truncated(folder: Path) -> None:
    content = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(content[: len(content) // 2])


def _garbage(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"\x00\xff" * 500)


def _tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")


def _manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("[]")


def _checksum(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {"model.onnx": {"sha256": "0" * 64}}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("damage", [_no_model, _truncated, _garbage, _tokenizer, _manifest, _checksum])
def test_a_damaged_model_leaves_the_order_without_it(
    ten: jiyi.Engine, tiny_rank: Path, cache: Path, damage: Callable[[Path], None]
) -> None:
    folder = cache / "models" / "broken"
    shutil.copytree(tiny_rank, folder)
    damage(folder)
    hits = ask(ten, "broken")
    assert hits.ids == IN_ORDER
    assert hits[0].factors.get("reranked") is None
    (note,) = notes(hits)
    assert note.startswith("rerank: broken cannot be loaded: ")
    assert "fetch" in note or "broken" in note
    assert ask(ten, ("broken", PlainScorer(number)), rerank_weight=1.0).ids == IN_ORDER[::-1]
    (many,) = ten.search_many(["zzz"], query_vector=[1, 0], rerank="broken", k=10, **PLAIN)
    assert checked(many) == checked(hits)


def test_a_damaged_model_is_tried_again_and_a_good_one_kept(ten: jiyi.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [ModelFilesError(Path("model.onnx"), "is missing"), PairScorer(number, name="mended")]

    def load(name: str, *, device: str) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("jiyi.search.load_cross_encoder", load)
    assert "cannot be loaded" in notes(ask(ten, "mended"))[0]
    for _ in range(3):
        assert ask(ten, "mended", rerank_weight=1.0).ids == IN_ORDER[::-1]
    assert len(ten.search_many(["zzz"] * 3, query_vector=[1, 0], rerank="mended")) == 3
    assert answers == []


def test_what_a_model_says_of_itself_is_told(ten: jiyi.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = PairScorer(number, name="odd")
    scorer.degraded = ("device 'cuda' was asked for",)  # type: ignore[attr-defined]
    monkeypatch.setattr("jiyi.search.load_cross_encoder", lambda name, device: scorer)
    hits = ask(ten, "odd", rerank_weight=1.0)
    assert notes(hits) == ["rerank: device 'cuda' was asked for"]
    assert hits.ids == IN_ORDER[::-1]


def test_two_scorers_of_one_name_and_one_with_a_legs_name_are_all_explained(ten: jiyi.Engine) -> None:
    up, down = PlainScorer(number, "same"), PlainScorer(lambda query, text: -number(query, text), "same")
    legs = PlainScorer(number, "dense")
    hits = ask(ten, (up, down, legs), rerank_weight=1.0)
    assert hits.ids == IN_ORDER[::-1]
    first = hits[0].factors
    assert {name: factor["rank"] for name, factor in first["reranked"].items()} == {
        "same": 1,
        "same (2)": 10,
        "dense": 1,
    }
    assert first["signals"]["dense"]["rank"] == 10
    assert "same (2) (rerank)" in hits.explain()


# ------------------------------------------------------------------------------------------ scores and deadlines


def test_what_a_scorer_could_not_read_is_explained_and_adds_up(engine: jiyi.Engine) -> None:
    fill(engine, ["text3", "text1", "徒步旅行", "text2"])
    hits = ask(engine, PairScorer(number, knows=reads_latin))
    (unread,) = (hit for hit in hits if hit.memory.id == "i2")
    factors = unread.factors
    assert factors["reranked"]["pairs"]["raw"] is None
    assert factors["rerank"]["looked_at"]
    shares = [factors["rerank"]["before_share"], factors["reranked"]["pairs"]["share"]]
    assert sum(shares) == pytest.approx(unread.score)
    assert shares[1] / shares[0] == pytest.approx(0.7 / 0.3)  # both are the first stage's
    line = "– where a scorer could not read it: it counts there as before rerank does"
    assert line in hits.explain()
    assert line not in ask(engine, PairScorer()).explain()


def test_a_model_sees_who_speaks(engine: jiyi.Engine) -> None:
    engine.add("I love hiking", speaker="Ana")
    engine.add("and so do you hiking")
    engine.add("京都很美", speaker="小明")
    scorer, plain = PairScorer(), PlainScorer()
    engine.search("love hiking and 京都", rerank=(scorer, plain))
    assert {text for _, text in scorer.calls[0]} == {"Ana: I love hiking", "and so do you hiking", "小明: 京都很美"}
    assert {query for query, _ in scorer.calls[0]} == {"love hiking and 京都"}
    assert plain.asked == [("love hiking and 京都", [text for _, text in scorer.calls[0]])]


def test_scores_of_pairs_decide_and_come_best_candidates_first(ten: jiyi.Engine) -> None:
    scorer = PairScorer(number)
    hits = ask(ten, scorer, rerank_weight=1.0)
    assert [text for _, text in scorer.calls[0]] == [f"text{i}" for i in range(10)]
    assert scorer.deadlines == [None]
    assert hits.ids == IN_ORDER[::-1]
    assert hits.degraded == ()
    assert [hit.factors["reranked"]["pairs"]["raw"] for hit in hits] == [9.0, 8, 7, 6, 5, 4, 3, 2, 1, 0]


def test_a_budget_is_a_deadline_for_the_scorer(ten: jiyi.Engine) -> None:
    scorer = PairScorer(number)
    before = time.perf_counter()
    ask(ten, scorer, budget_ms=5_000)
    after = time.perf_counter()
    (deadline,) = scorer.deadlines
    assert deadline is not None
    assert before + 5 <= deadline <= after + 5


@pytest.mark.parametrize("fusion", ["weighted", "rrf"])
@pytest.mark.parametrize("budget_ms", [None, 1000.0])
def test_those_left_come_after_those_scored_in_their_order(
    ten: jiyi.Engine, budget_ms: float | None, fusion: str
) -> None:
    scorer = PairScorer(number, most=4)
    hits = ask(ten, scorer, budget_ms=budget_ms, rerank_weight=1.0, rerank_fusion=fusion, rerank_candidates=8)
    if fusion == "weighted":
        assert hits.ids[:4] == ["i3", "i2", "i1", "i0"]
    assert sorted(hits.ids[:4]) == IN_ORDER[:4]
    assert hits.ids[4:] == IN_ORDER[4:]
    assert notes(hits) == ["rerank: pairs left 4 of 8 candidates: budget spent"]
    assert [hit.factors["reranked"]["pairs"]["raw"] is None for hit in hits] == [False] * 4 + [True] * 6
    assert [hit.factors["reranked"]["pairs"]["rank"] for hit in hits][4:] == [None] * 6
    assert hits.scores == sorted(hits.scores, reverse=True)
    checked(hits)


def test_nan_in_the_middle_is_left_too(ten: jiyi.Engine) -> None:
    scorer = PairScorer(lambda query, text: math.nan if text in ("text0", "text5") else number(query, text))
    hits = ask(ten, scorer, rerank_weight=1.0)
    assert hits.ids == ["i9", "i8", "i7", "i6", "i4", "i3", "i2", "i1", "i0", "i5"]
    assert notes(hits) == ["rerank: pairs left 2 of 10 candidates: budget spent"]
    checked(hits)


@pytest.mark.parametrize("scorer", [PairScorer(number, most=0), PlainScorer(number)])
def test_no_time_at_all_leaves_the_order(ten: jiyi.Engine, scorer: Any) -> None:
    hits = ask(ten, scorer, budget_ms=0)
    assert hits.ids == IN_ORDER
    assert notes(hits) == [f"rerank: {scorer.name} left 10 of 10 candidates: budget spent"]
    assert "reranked" not in hits[0].factors
    assert checked(hits)["hits"] == checked(ask(ten, ()))["hits"]


def test_a_real_model_without_time_leaves_the_order(engine: jiyi.Engine, tiny_rank: Path) -> None:
    adding.add("tiny-rank", tiny_rank)
    fill(engine, KNOWN)
    hits = ask(engine, "tiny-rank", budget_ms=0, query="a query that no other test has")
    assert hits.ids == IN_ORDER[:5]
    assert notes(hits) == ["rerank: tiny-rank left 5 of 5 candidates: budget spent"]


def _raise(pairs: Any) -> Any:
    raise RuntimeError("out of memory")


BROKEN: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "raises": (_raise, "RuntimeError: out of memory"),
    "one too many": (lambda pairs: np.zeros(len(pairs) + 1), r"scores of shape \(11,\) for 10"),
    "one too few": (lambda pairs: np.zeros(len(pairs) - 1), r"scores of shape \(9,\) for 10"),
    "a column": (lambda pairs: np.zeros((len(pairs), 1)), r"scores of shape \(10, 1\) for 10"),
    "none": (lambda pairs: np.zeros(0), r"scores of shape \(0,\) for 10"),
    "a number": (lambda pairs: 0.5, r"scores of shape \(\) for 10"),
    "nothing": (lambda pairs: None, "failed: "),
    "text": (lambda pairs: "relevant", "failed: ValueError"),
    "ragged": (lambda pairs: [[1.0], *[1.0] * (len(pairs) - 1)], "failed: ValueError"),
    "infinity": (lambda pairs: np.array([np.inf, *np.zeros(len(pairs) - 1)]), "NaN or infinity"),
    "minus infinity": (lambda pairs: np.full(len(pairs), -np.inf), "NaN or infinity"),
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("budget_ms", [None, 1000.0])
def test_a_model_that_fails_leaves_the_order(ten: jiyi.Engine, how: str, budget_ms: float | None) -> None:
    answer, said = BROKEN[how]
    hits = ask(ten, PairScorer(answer=answer), budget_ms=budget_ms)
    assert hits.ids == IN_ORDER
    (note,) = notes(hits)
    assert note.startswith("rerank: pairs failed: ")
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(note)
    assert checked(hits)["hits"] == checked(ask(ten, ()))["hits"]
    both = ask(ten, (PairScorer(answer=answer), PairScorer(number, name="good")), rerank_weight=1.0)
    assert both.ids == IN_ORDER[::-1]
    (many,) = ten.search_many(["zzz"], query_vector=[1, 0], rerank=PairScorer(answer=answer), k=10, **PLAIN)
    assert many.ids == IN_ORDER
    assert len(many.degraded) == 1


def test_a_scorer_of_pairs_that_takes_no_deadline_degrades(ten: jiyi.Engine) -> None:
    class Old(PairScorer):
        def score_pairs(self, pairs: Any) -> Any:  # type: ignore[override]
            return np.zeros(len(pairs))

    hits = ask(ten, Old())
    assert hits.ids == IN_ORDER
    assert "TypeError" in notes(hits)[0]


def test_scores_as_large_as_they_get_stay_apart(ten: jiyi.Engine) -> None:
    scorer = PairScorer(answer=lambda pairs: 1.7e308 * np.linspace(-1, 1, len(pairs)))
    hits = ask(ten, scorer, rerank_weight=1.0)
    assert hits.ids == IN_ORDER[::-1]
    assert all(0 <= score <= 1 for score in hits.scores)
    checked(hits)


def test_a_scorer_without_a_usable_name_is_known_by_its_class(ten: jiyi.Engine) -> None:
    class Nameless:
        @property
        def name(self) -> str:
            raise RuntimeError("no name")

        def score(self, query: str, texts: Sequence[str]) -> Any:
            return np.arange(len(texts), dtype=np.float32)

    hits = ask(ten, Nameless(), rerank_weight=1.0)
    assert hits.ids == IN_ORDER[::-1]
    assert list(hits[0].factors["reranked"]) == ["Nameless"]


def test_equal_scores_leave_the_order(ten: jiyi.Engine) -> None:
    hits = ask(ten, PairScorer(lambda query, text: 0.25), rerank_weight=1.0)
    assert hits.ids == IN_ORDER
    assert hits.degraded == ()


# ---------------------------------------------------------------------------------------------- unreadable texts

MIXED = ["text0", "京都很美", "text2", "今天部署", "text4"]


@pytest.fixture
def mixed(engine: jiyi.Engine) -> jiyi.Engine:
    return fill(engine, MIXED)


def english(**settings: Any) -> PairScorer:
    return PairScorer(number, name="english", knows=reads_latin, **settings)


@pytest.mark.parametrize("query", ["京都在哪里", "where 京都在哪里哪里"])
def test_a_query_that_the_model_cannot_read_skips_it(ten: jiyi.Engine, query: str) -> None:
    scorer = english()
    hits = ask(ten, scorer, query=query)
    assert scorer.calls == []
    assert hits.ids == IN_ORDER
    assert notes(hits) == ["rerank: english cannot read the language of this query"]
    assert checked(hits)["hits"] == checked(ask(ten, (), query=query))["hits"]


@pytest.mark.parametrize(
    ("share", "asked"),
    [(0.0, 0), (0.499, 0), (0.5, 1), (1.0, 1), (True, 1)],
    ids=["none", "less", "half", "all", "yes"],
)
def test_half_of_a_query_is_enough(ten: jiyi.Engine, share: float, asked: int) -> None:
    scorer = PairScorer(number, knows=lambda text: 1.0 if text.startswith("text") else share)
    hits = ask(ten, scorer)
    assert len(scorer.calls) == asked
    assert len(hits.degraded) == 1 - asked


def test_a_query_without_letters_can_be_read(ten: jiyi.Engine) -> None:
    assert ask(ten, english(), query="42?").degraded == ()


def test_texts_that_the_model_cannot_read_keep_their_score(mixed: jiyi.Engine) -> None:
    scorer = english()
    hits = ask(mixed, scorer)
    assert [text for _, text in scorer.calls[0]] == ["text0", "text2", "text4"]
    assert notes(hits) == ["rerank: english cannot read 2 of 5 candidates; they count by their first-stage score"]
    before = {hit.memory.id: hit.score for hit in ask(mixed, ())}
    after = {hit.memory.id: hit.score for hit in hits}
    assert {i: after[i] for i in ("i1", "i3")} == pytest.approx({i: before[i] for i in ("i1", "i3")}, abs=1e-9)
    # 0.3 × first stage + 0.7 × reranked, both min-maxed: i0 0.3 + 0, i2 0.15 + 0.35, i4 0 + 0.7.
    assert after == pytest.approx({"i0": 0.3, "i1": 0.75, "i2": 0.5, "i3": 0.25, "i4": 0.7}, abs=1e-6)
    assert hits.ids == ["i1", "i4", "i2", "i0", "i3"]
    raw = {hit.memory.id: hit.factors["reranked"]["english"]["raw"] for hit in hits}
    assert raw == {"i0": 0.0, "i1": None, "i2": 2.0, "i3": None, "i4": 4.0}
    ranks = {hit.memory.id: hit.factors["reranked"]["english"]["rank"] for hit in hits}
    assert ranks == {"i0": 3, "i1": None, "i2": 2, "i3": None, "i4": 1}
    lines = {i: line for line in hits.explain().splitlines() for i in MIXED if line.endswith(i)}
    assert all("–" in lines[text] for text in ("京都很美", "今天部署"))
    checked(hits)


@pytest.mark.parametrize("fusion", ["weighted", "rrf"])
def test_unread_texts_are_not_thrown_behind_those_left(mixed: jiyi.Engine, fusion: str) -> None:
    hits = ask(mixed, english(most=1), rerank_fusion=fusion)
    assert set(hits.ids[:3]) == {"i0", "i1", "i3"}
    assert hits.ids[3:] == ["i2", "i4"]
    assert notes(hits) == [
        "rerank: english cannot read 2 of 5 candidates; they count by their first-stage score",
        "rerank: english left 2 of 5 candidates: budget spent",
    ]
    checked(hits)


def test_rrf_of_a_mixed_pool(mixed: jiyi.Engine) -> None:
    hits = ask(mixed, english(), rerank_fusion="rrf", rrf_k=1)
    # By the first stage 1, 2, 3, 4, 5. By the model, the unread at their own place: 0, 0.75, 0.5, 0.25, 1 → 5 … 1.
    places = {"i0": (1, 5), "i1": (2, 2), "i2": (3, 3), "i3": (4, 4), "i4": (5, 1)}
    expected = {i: (1 / (1 + a) + 1 / (1 + b)) * 2 / 2 for i, (a, b) in places.items()}
    assert {hit.memory.id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-9)
    assert hits[0].memory.id == "i0"
    checked(hits)


def test_nothing_that_the_model_can_read_leaves_the_order(engine: jiyi.Engine) -> None:
    fill(engine, ["京都很美", "今天部署", "喝龙井茶"])
    scorer = english()
    hits = ask(engine, scorer)
    assert scorer.calls == []
    assert hits.ids == ["i0", "i1", "i2"]
    assert notes(hits) == ["rerank: english cannot read any of 3 candidates"]
    checked(hits)


def test_two_models_that_read_different_halves(mixed: jiyi.Engine) -> None:
    chinese = PairScorer(
        lambda query, text: 1.0 if text == "今天部署" else 0.0,
        name="chinese",
        knows=lambda text: 1.0 if text == "zzz" else 1 - reads_latin(text),
    )
    hits = ask(mixed, (english(), chinese))
    assert [text for _, text in chinese.calls[0]] == ["京都很美", "今天部署"]
    raw = {hit.memory.id: [hit.factors["reranked"][name]["raw"] for name in ("english", "chinese")] for hit in hits}
    assert raw == {"i0": [0, None], "i1": [None, 0], "i2": [2, None], "i3": [None, 1], "i4": [4, None]}
    # Each model speaks for 0.35; where it cannot read, the first stage does.
    assert {hit.memory.id: hit.score for hit in hits} == pytest.approx(
        {
            "i0": 0.3 + 0.35 * 0 + 0.35 * 1,
            "i1": 0.3 * 0.75 + 0.35 * 0.75 + 0.35 * 0,
            "i2": 0.3 * 0.5 + 0.35 * 0.5 + 0.35 * 0.5,
            "i3": 0.3 * 0.25 + 0.35 * 0.25 + 0.35 * 1,
            "i4": 0.3 * 0 + 0.35 * 1 + 0.35 * 0,
        },
        abs=1e-6,
    )
    checked(hits)


def test_a_real_model_of_english_in_a_mixed_pool(engine: jiyi.Engine, tiny_rank: Path) -> None:
    adding.add("tiny-rank", tiny_rank)
    fill(engine, ["I love hiking", "京都很美", "green tea in the morning"])
    hits = ask(engine, "tiny-rank", query="where does the dog live")
    assert notes(hits) == ["rerank: tiny-rank cannot read 1 of 3 candidates; they count by their first-stage score"]
    raw = {hit.memory.id: hit.factors["reranked"]["tiny-rank"]["raw"] for hit in hits}
    assert [i for i, value in raw.items() if value is None] == ["i1"]
    skipped = ask(engine, "tiny-rank", query="京都在哪里")
    assert skipped.ids == ["i1", "i0", "i2"] or skipped.ids == ask(engine, (), query="京都在哪里").ids
    assert notes(skipped) == ["rerank: tiny-rank cannot read the language of this query"]
    checked(hits)


@pytest.mark.parametrize("knows", [_raise, lambda text: "most", lambda text: None], ids=["raises", "text", "none"])
def test_a_model_that_cannot_say_what_it_reads_degrades(ten: jiyi.Engine, knows: Any) -> None:
    hits = ask(ten, PairScorer(number, knows=knows))
    assert hits.ids == IN_ORDER
    assert notes(hits)[0].startswith("rerank: pairs failed: ")


# -------------------------------------------------------------------------------------------------- search_many

WORDS = "redis cache tea hiking paris dog python 徒步 京都 龙井茶".split()


@pytest.fixture
def many() -> Iterator[jiyi.Engine]:
    """Sixty memories in two sessions, found by words, vectors and late interaction."""
    with jiyi.open(embedder=HashTable()) as opened:
        opened.add_many(
            {
                "text": " ".join(WORDS[(i * step) % len(WORDS)] for step in (1, 3, 7)) + f" note {i}",
                "id": f"m{i}",
                "timestamp": datetime(2025, 12, 1 + i % 28, tzinfo=UTC),
                "session": f"s{i % 2}",
                "speaker": ("Ana", "小明")[i % 2],
                "metadata": {"i": i},
            }
            for i in range(60)
        )
        yield opened


QUERIES = [
    "redis cache",
    "tea in paris",
    "龙井茶 京都",
    "",
    "！？",
    "what did Ana say of python",
    "redis cache",
    "徒步",
]


def same_as_one_by_one(engine: jiyi.Engine, queries: Sequence[str], **settings: Any) -> list[Hits]:
    settings = {"now": NOW, **settings}
    together = engine.search_many(queries, **settings)
    alone = [engine.search(query, **settings) for query in queries]
    assert [checked(hits) for hits in together] == [checked(hits) for hits in alone]
    assert [hits.ids for hits in together] == [hits.ids for hits in alone]
    assert [hits.scores for hits in together] == [hits.scores for hits in alone]
    assert [hits.text for hits in together] == list(queries)
    return together


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"where": {"metadata.i": {"lt": 20}}},
        {"where": {"metadata.i": -1}},
        {"namespace": "nobody"},
        {"k": 0},
        {"k": 40, "rerank_candidates": 5},
        {"rerank_candidates": 0},
        {"rerank_fusion": "rrf", "diversity": "cosine"},
        {"fusion": "rrf", "normalization": "rank"},
    ],
    ids=str,
)
def test_many_at_once_equal_one_by_one(many: jiyi.Engine, settings: dict[str, Any]) -> None:
    for scorer in (
        (PairScorer(),),
        (PlainScorer(),),
        (PairScorer(knows=reads_latin), "bm25", PlainScorer()),
        ("bm25",),
    ):
        same_as_one_by_one(many, QUERIES, rerank=scorer, **settings)


def test_all_queries_go_to_a_scorer_of_pairs_in_one_call(many: jiyi.Engine) -> None:
    scorer, other, plain = PairScorer(), PairScorer(name="other"), PlainScorer()
    answers = many.search_many(QUERIES, rerank=(scorer, plain, other), now=NOW)
    asked = [query for query, hits in zip(QUERIES, answers, strict=True) if len(hits)]
    assert len(asked) >= 6
    assert len(scorer.calls) == len(other.calls) == 1
    assert list(dict.fromkeys(query for query, _ in scorer.calls[0])) == list(dict.fromkeys(asked))
    assert [query for query, _ in plain.asked] == asked
    assert scorer.deadlines == [None]


def test_queries_with_candidates_of_different_number_get_their_own_scores(engine: jiyi.Engine) -> None:
    counts = {"redis": 1, "tea": 7, "paris": 3, "dog": 0, "python": 12}
    engine.add_many(
        {"text": f"{word} note {i}", "id": f"{word}{i}", "timestamp": NOW}
        for word, count in counts.items()
        for i in range(count)
    )
    scorer = PairScorer()
    answers = same_as_one_by_one(engine, list(counts), rerank=scorer, k=20, **PLAIN)
    assert [len(hits) for hits in answers] == list(counts.values())
    for hits in answers:
        for hit in hits:
            raw = hit.factors["reranked"]["pairs"]["raw"]
            assert raw == np.float32(hashed_score(hits.text, hit.memory.text))


def test_a_query_that_cannot_be_read_keeps_the_others_together(many: jiyi.Engine) -> None:
    scorer = PairScorer(knows=reads_latin)
    answers = many.search_many(["redis cache", "龙井茶", "tea"], rerank=scorer, now=NOW)
    assert {query for query, _ in scorer.calls[0]} == {"redis cache", "tea"}
    assert [len(scorer.calls)] == [1]
    assert notes(answers[1]) == ["rerank: pairs cannot read the language of this query"]


def test_150_queries_go_in_chunks_of_64(many: jiyi.Engine) -> None:
    scorer = PairScorer()
    queries = [f"{WORDS[i % len(WORDS)]} note {i}" for i in range(150)]
    together = many.search_many(queries, rerank=scorer, rerank_candidates=4, now=NOW)
    assert [len({query for query, _ in call}) for call in scorer.calls] == [64, 64, 22]
    alone = [many.search(query, rerank=scorer, rerank_candidates=4, now=NOW) for query in queries]
    assert [checked(hits) for hits in together] == [checked(hits) for hits in alone]


def test_no_queries_ask_nobody(many: jiyi.Engine) -> None:
    scorer = PairScorer()
    assert many.search_many([], rerank=scorer) == []
    assert many.search_many(iter(()), rerank=scorer, budget_ms=5) == []
    assert scorer.calls == []


def test_with_a_budget_each_query_has_its_own(many: jiyi.Engine) -> None:
    scorer = PairScorer()
    answers = many.search_many(["redis", "tea", "python"], rerank=scorer, budget_ms=60_000, now=NOW)
    assert [{query for query, _ in call} for call in scorer.calls] == [{"redis"}, {"tea"}, {"python"}]
    deadlines = [deadline for deadline in scorer.deadlines if deadline is not None]
    assert len(deadlines) == 3
    assert deadlines == sorted(set(deadlines))
    alone = [many.search(query, rerank=scorer, now=NOW) for query in ("redis", "tea", "python")]
    assert [checked(hits) for hits in answers] == [checked(hits) for hits in alone]
    spent = many.search_many(["redis", "tea"], rerank=PlainScorer(), budget_ms=0, now=NOW)
    assert all("budget spent" in notes(hits)[0] for hits in spent)


@pytest.mark.parametrize("how", BROKEN)
def test_a_batch_that_fails_degrades_every_query_and_loses_none(many: jiyi.Engine, how: str) -> None:
    queries = ["redis", "tea", "python"]
    answers = many.search_many(queries, rerank=PairScorer(answer=BROKEN[how][0]), now=NOW)
    without = many.search_many(queries, now=NOW)
    assert [hits.ids for hits in answers] == [hits.ids for hits in without]
    assert all(len(hits) == 5 for hits in answers)
    failed = [hits for hits in answers if hits.degraded]
    # One infinite score is of one query; everything else spoils the whole call.
    assert len(failed) == (1 if how == "infinity" else 3)
    assert all(notes(hits)[0].startswith("rerank: pairs failed: ") for hits in failed)


def test_a_scorer_that_fails_for_one_query_spoils_no_other(many: jiyi.Engine) -> None:
    def score_of(query: str, text: str) -> float:
        if query == "tea":
            raise ZeroDivisionError
        return hashed_score(query, text)

    answers = same_as_one_by_one(many, ["redis", "tea", "python"], rerank=PlainScorer(score_of))
    assert [len(hits.degraded) for hits in answers] == [0, 1, 0]


class Deleting(PairScorer):
    """Has another thread delete a memory while it scores for the first time."""

    def __init__(self, engine: jiyi.Engine, victim: str) -> None:
        super().__init__()
        self.engine, self.victim = engine, victim

    def score_pairs(self, pairs: Sequence[tuple[str, str]], *, deadline: float | None = None) -> Any:
        if not self.calls:
            thread = threading.Thread(target=self.engine.delete, args=(self.victim,))
            thread.start()
            thread.join(30)
            assert not thread.is_alive()
        return super().score_pairs(pairs, deadline=deadline)


@pytest.mark.parametrize("scored", [30, 2])
def test_a_memory_that_is_deleted_while_others_are_scored(many: jiyi.Engine, scored: int) -> None:
    """One that was read before may be shown; one that was not is gone, and another takes its place."""
    queries = ["redis", "tea", "note 7"]
    settings: dict[str, Any] = {"rerank_candidates": scored, "now": NOW}
    before = many.search("redis", rerank=PairScorer(), **settings)
    victim = before.ids[3]
    scorer = Deleting(many, victim)
    answers = many.search_many(queries, rerank=scorer, **settings)
    after = [many.search(query, rerank=PairScorer(), **settings) for query in queries]
    assert all(len(set(hits.ids)) == 5 for hits in answers)
    assert all(hits.degraded == () for hits in answers)
    if scored == 2:
        assert len(scorer.calls) == 2  # asked again for the query whose hit had vanished
        assert [hits.ids for hits in answers if victim in hits.ids] == []
        assert (answers[0].ids, answers[0].scores) == (after[0].ids, after[0].scores)
    else:
        assert answers[0].ids == before.ids
    assert all(victim not in hits.ids for hits in after)
    for hits in answers:
        checked(hits)
    victim = after[0].ids[3]
    one = many.search("redis", rerank=Deleting(many, victim), **settings)
    assert len(set(one.ids)) == 5
    assert (victim in one.ids) == (scored == 30)


def test_everything_deleted_while_it_is_scored(many: jiyi.Engine) -> None:
    class All(PairScorer):
        def score_pairs(self, pairs: Sequence[tuple[str, str]], *, deadline: float | None = None) -> Any:
            many.forget({})
            return super().score_pairs(pairs, deadline=deadline)

    answers = many.search_many(["redis", "tea"], rerank=All(), rerank_candidates=2, now=NOW)
    assert [list(hits) for hits in answers] == [[], []]
    assert many.search("redis", rerank=All()).ids == []


def test_many_threads_with_one_scorer(many: jiyi.Engine) -> None:
    scorer = PairScorer()
    expected = [checked(many.search(query, rerank=scorer, now=NOW)) for query in QUERIES]
    answers: list[list[dict[str, Any]]] = []

    def work() -> None:
        answers.append([checked(hits) for hits in many.search_many(QUERIES, rerank=scorer, now=NOW)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 4


# --------------------------------------------------------------------------------------- transformers by name

TEXTS = ["I love hiking on the trail", "Redis is the database", "green tea in the morning", "the dog is named max"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedder of two layers with random weights, 32 wide."""
    pytest.importorskip("onnx", reason="needs the extra test")
    from tests.models.tiny_onnx import make_folder

    prefixes = {"query_prefix": "query: ", "passage_prefix": "word: "}
    return make_folder(tmp_path_factory.mktemp("models") / "tiny", manifest={"name": "tiny", "dim": 32, **prefixes})


@pytest.fixture
def made(folder: Path, tiny: Path) -> Path:
    """A store made with the added model "tiny"."""
    adding.add("tiny", tiny)
    with jiyi.open(folder, embedder="tiny") as engine:
        engine.add_many([{"text": text, "id": f"t{i}"} for i, text in enumerate(TEXTS)])
    return folder


def signals(engine: jiyi.Engine, query: str = "hiking") -> list[str]:
    hits = engine.search(query)
    assert len(hits)
    checked(hits)
    return list(hits[0].factors["signals"])


def manifest(folder: Path) -> dict[str, Any]:
    ledger = sqlite3.connect(folder / "ledger.sqlite")
    try:
        return dict(ledger.execute("SELECT key, value FROM manifest"))
    finally:
        ledger.close()


def forget_models(cache: Path) -> None:
    (cache / "added.json").unlink()


def test_a_transformer_by_name_has_late_interaction_beside_it(made: Path) -> None:
    with jiyi.open(made, embedder="tiny") as engine:
        hits = engine.search("hiking trail", k=4)
        assert list(hits[0].factors["signals"]) == ["dense", "keyword", "late"]
        assert hits[0].memory.id == "t0"
        assert hits.degraded == ()
        assert all(signal["weight"] > 0 for signal in hits[0].factors["signals"].values())
        head = hits.explain().splitlines()[1]
        assert all(name in head for name in ("dense·0.30", "keyword·0.35", "late·0.35"))
        assert (engine.stats()["embedder"], engine.stats()["dim"]) == ("tiny", 32)
        from jiyi.models import load_embedder

        model = load_embedder("tiny")
        vectors = model.embed([hit.memory.text for hit in hits])
        raw = [hit.factors["signals"]["dense"]["raw"] for hit in hits]
        assert raw == pytest.approx((vectors @ model.embed_query("hiking trail")).tolist(), abs=1e-4)
        static = _late(engine.search("hiking trail", k=4))
    assert manifest(made)["table"] == "e5-static-256"
    with jiyi.open(config=jiyi.SearchConfig(dense_weight=0)) as plain:
        plain.add_many([{"text": text, "id": f"t{i}"} for i, text in enumerate(TEXTS)])
        assert _late(plain.search("hiking trail", k=4)) == static


def _late(hits: Hits) -> dict[str, Any]:
    return {hit.memory.id: hit.factors["signals"]["late"]["raw"] for hit in hits}


def test_a_store_in_memory_has_it_too(tiny: Path) -> None:
    adding.add("tiny", tiny)
    with jiyi.open(embedder="tiny") as engine:
        engine.add(TEXTS[0])
        assert signals(engine) == ["dense", "keyword", "late"]


@pytest.mark.parametrize("settings", [{}, {"preset": "fast"}, {"preset": "balanced"}, {"read_only": True}], ids=str)
def test_reopened_without_a_name_it_finds_the_model(made: Path, settings: dict[str, Any]) -> None:
    with jiyi.open(made, embedder="tiny") as engine:
        before = checked(engine.search("hiking trail", now=NOW))
    with jiyi.open(made, **{"preset": None, **settings}) as engine:
        if settings.get("preset") != "balanced":
            assert checked(engine.search("hiking trail", now=NOW)) == before
        assert signals(engine) == ["dense", "keyword", "late"]
        assert engine.search("hiking").degraded == ()
        assert engine.stats()["mismatch"] is None
        if not settings.get("read_only"):
            engine.add("a hiking note", id="new")
            assert engine.search("a hiking note").ids[0] == "new"
            late = engine.search("a hiking note")[0].factors["signals"]["late"]
            assert late["raw"] is not None


def test_a_model_added_under_another_name_is_found(folder: Path, tiny: Path) -> None:
    adding.add("mine", tiny)  # its manifest says "tiny"
    with jiyi.open(folder, embedder="mine") as engine:
        engine.add_many(TEXTS)
    assert manifest(folder)["embedder"] == "tiny"
    with jiyi.open(folder) as engine:
        assert engine.stats()["mismatch"] is None
        assert signals(engine) == ["dense", "keyword", "late"]
        engine.add("more")


def test_another_model_under_the_old_name_is_not_taken(made: Path, tiny: Path, tmp_path: Path) -> None:
    from tests.models.tiny_onnx import make_folder

    other = make_folder(tmp_path / "other", manifest={"name": "other", "dim": 32}, seed=5)
    adding.add("tiny", other)
    with jiyi.open(made) as engine:
        hits = engine.search("hiking")
        assert hits.ids[0] == "t0"
        assert list(hits[0].factors["signals"]) == ["keyword"]
        assert "'tiny'" in notes(hits)[0]
    adding.add("mine", tiny)
    with jiyi.open(made) as engine:
        assert engine.search("hiking").degraded == ()


def test_a_model_that_is_gone_leaves_words_and_loses_nothing(made: Path, cache: Path, tiny: Path) -> None:
    forget_models(cache)
    with jiyi.open(made) as engine:
        hits = engine.search("hiking trail")
        assert hits.ids == ["t0"]
        assert list(hits[0].factors["signals"]) == ["keyword"]
        (note,) = notes(hits)
        assert note.startswith("dense: the store's vectors come from 'tiny' (32 dimensions)")
        checked(hits)
        with pytest.raises(jiyi.ModelMismatchError, match="'tiny'"):
            engine.add("more")
        with pytest.raises(jiyi.ModelMismatchError):
            engine.add_many(["more", "and more"])
        assert engine.count() == 4
        engine.add("given its vector", id="given", vector=np.ones(32))
        assert engine.search("given vector").ids == ["given"]
        assert engine.verify() == []
    with pytest.raises(ValueError, match="no embedder 'tiny'; there are: e5-static-256"):
        jiyi.open(made, embedder="tiny")
    adding.add("tiny", tiny)
    with jiyi.open(made) as engine:
        assert engine.stats()["mismatch"] is None
        assert set(engine.search("hiking trail", k=10).ids) == {"t0", "t1", "t2", "t3", "given"}
        engine.add("more")


def test_a_model_whose_folder_is_gone(folder: Path, tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "moved")
    adding.add("tiny", tmp_path / "moved")
    with jiyi.open(folder, embedder="tiny") as engine:
        engine.add_many(TEXTS)
    shutil.rmtree(tmp_path / "moved")
    with jiyi.open(folder) as engine:
        assert engine.search("hiking")[0].memory.text == TEXTS[0]
        with pytest.raises(jiyi.ModelMismatchError):
            engine.add("more")
    with pytest.raises(jiyi.ModelError, match="'tiny' cannot be used"):
        jiyi.open(folder, embedder="tiny")


def test_a_store_of_an_object_has_no_late_signal(folder: Path) -> None:
    with jiyi.open(folder, embedder=HashEmbedder()) as engine:
        engine.add_many(TEXTS)
        assert signals(engine) == ["dense", "keyword"]
    assert "table" not in manifest(folder)
    with jiyi.open(folder, embedder=HashEmbedder()) as engine:
        assert signals(engine) == ["dense", "keyword"]
        assert engine.search("hiking").degraded == ()


def test_a_store_from_before_the_table_was_named_has_no_late_signal(made: Path) -> None:
    with sqlite3.connect(made / "ledger.sqlite") as ledger:
        ledger.execute("DELETE FROM manifest WHERE key = 'table'")
    ledger.close()
    (made / "ledger.sums").unlink()
    for embedder in ("tiny", "default"):
        with jiyi.open(made, embedder=embedder) as engine:
            assert signals(engine) == ["dense", "keyword"]
            assert engine.search("hiking").degraded == ()
            engine.add("more of it")
            assert engine.verify() == []


def test_a_store_beside_another_table_has_no_late_signal(made: Path) -> None:
    with sqlite3.connect(made / "ledger.sqlite") as ledger:
        ledger.execute("UPDATE manifest SET value = 'another-table' WHERE key = 'table'")
    ledger.close()
    (made / "ledger.sums").unlink()
    with jiyi.open(made) as engine:
        assert signals(engine) == ["dense", "keyword"]


@pytest.mark.parametrize("dim", [16, 256])
def test_a_reader_sees_that_a_new_store_got_another_model(folder: Path, dim: int) -> None:
    with jiyi.open(folder, embedder=HashEmbedder(dim, "theirs")) as writer, jiyi.open(folder, read_only=True) as reader:
        assert reader.search("redis").degraded == ()
        writer.add("redis cache", id="r")
        hits = reader.search("redis")
        assert hits.ids == ["r"]
        assert list(hits[0].factors["signals"]) == ["keyword"]
        assert "come from 'theirs'" in notes(hits)[0]
        assert "theirs" in str(reader.stats()["mismatch"])


def test_a_reader_of_a_new_store_follows_its_transformer(folder: Path, tiny: Path) -> None:
    adding.add("tiny", tiny)
    with jiyi.open(folder, embedder="tiny") as writer, jiyi.open(folder, embedder="tiny", read_only=True) as reader:
        assert list(reader.search("hiking")) == []
        writer.add_many(TEXTS)
        assert signals(reader) == ["dense", "keyword", "late"]
        assert answers_alike(writer, reader)


def answers_alike(one: jiyi.Engine, other: jiyi.Engine) -> bool:
    return checked(one.search("hiking trail", now=NOW)) == checked(other.search("hiking trail", now=NOW))


def test_tokens_of_a_larger_table_are_no_damage(folder: Path) -> None:
    with jiyi.open(folder) as engine:
        engine.add_many(TEXTS, kind="archival")
    with jiyi.open(folder, embedder=HashTable()) as engine:
        hits = engine.search("hiking trail")
        assert list(hits[0].factors["signals"]) == ["keyword"]
        assert "come from 'e5-static-256'" in notes(hits)[0]
        assert engine.verify() == []


def test_a_transformer_that_fails_on_a_query_leaves_words(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jiyi.models.onnx_embedder import OnnxEmbedder

    monkeypatch.setattr(OnnxEmbedder, "embed_query", lambda self, text: _raise(text))
    with jiyi.open(made) as engine:
        hits = engine.search("hiking")
        assert hits.ids[0] == "t0"
        assert notes(hits) == ["dense: the embedder 'tiny' failed: RuntimeError: out of memory"]


def test_blank_texts_have_no_direction_and_do_no_harm(made: Path) -> None:
    with jiyi.open(made) as engine:
        engine.add("👍", id="thumb")
        engine.add("\u200b", id="nothing")
        assert engine.search("hiking").ids[0] == "t0"
        for query in ("", " ", "\u200b", "\x00", "\ud800"):
            checked(engine.search(query))
        assert "knows nothing of this query" in notes(engine.search(" "))[0]


# ---------------------------------------------------------------------------------------------- frequent words


def chat(count: int = 30) -> Iterator[jiyi.Engine]:
    """A talk in which Ana stands in every turn, "tea" in a fifth, "hiking" in one."""
    embedder = SpyEmbedder()
    with jiyi.open(embedder=embedder) as opened:
        opened.add_many(
            f"Ana 小明 turn{i}"
            + (" tea" if i % 5 == 0 else "")
            + (" more" if i % 3 == 0 else "")
            + (" hiking 小明茶" * (i == 7))
            for i in range(count)
        )
        yield opened


def embedded(engine: jiyi.Engine, query: str, **settings: Any) -> str:
    """What the embedder was given for a query."""
    spy = engine._store.embedder
    assert isinstance(spy, SpyEmbedder)
    spy.queries.clear()
    engine.search(query, **settings)
    (given,) = spy.queries
    return given


@pytest.fixture
def talk() -> Iterator[jiyi.Engine]:
    yield from chat()


@pytest.mark.parametrize(
    ("query", "given"),
    [
        ("Ana hiking", "hiking"),
        ("ANA, hiking!", "hiking!"),
        ("does Ana's dog hike?", "does dog hike?"),
        ("what tea", "what tea"),  # exactly a fifth is not more than a fifth
        ("more tea", "tea"),  # a third is
        ("小明 hiking", "hiking"),
        ("小明喜欢什么", "小明喜欢什么"),  # a run with anything rare in it is kept whole
        ("Ana 小明喜欢什么", "小明喜欢什么"),
        ("Ana 小明茶", "小明茶"),  # all of it is known, and one character is rare
        ("明小 hiking", "明小 hiking"),  # both characters are everywhere, the pair is not
        ("unheard of", "unheard of"),
        ("Ana", "Ana"),
        ("Ana more 小明", "Ana more 小明"),
        ("Ana ?", "Ana ?"),  # a question mark is no question
        ("Ana 👍 ！", "👍 ！"),  # an emoji is a word
        ("", ""),
        ("  spaced   out ", "  spaced   out "),
        ("？！", "？！"),
    ],
)
def test_words_that_are_everywhere_are_cut_and_never_all(talk: jiyi.Engine, query: str, given: str) -> None:
    assert embedded(talk, query) == given


def test_a_share_of_one_cuts_nothing_and_of_zero_everything_known(talk: jiyi.Engine) -> None:
    assert embedded(talk, "Ana more hiking", frequent_share=1) == "Ana more hiking"
    assert embedded(talk, "Ana more hiking", frequent_share=1.0) == "Ana more hiking"
    assert embedded(talk, "Ana more hiking", frequent_share=0.5) == "more hiking"
    assert embedded(talk, "Ana more hiking unheard", frequent_share=0) == "unheard"
    assert embedded(talk, "Ana more hiking", frequent_share=0) == "Ana more hiking"
    with pytest.raises(ValueError, match=r"frequent_share is 1\.5"):
        talk.search("Ana", frequent_share=1.5)


@pytest.mark.parametrize(("count", "given"), [(19, "Ana hiking"), (20, "hiking")])
def test_fewer_than_20_memories_cut_nothing(count: int, given: str) -> None:
    for engine in chat(count):
        assert embedded(engine, "Ana hiking") == given


def test_deleted_memories_do_not_count(talk: jiyi.Engine) -> None:
    talk.delete([memory.id for memory in talk.list()[:11]])
    assert embedded(talk, "Ana hiking") == "Ana hiking"


def test_each_namespace_has_its_own_frequent_words(talk: jiyi.Engine) -> None:
    talk.add_many([f"hiking {i}" for i in range(30)], namespace="other")
    assert embedded(talk, "Ana hiking", namespace="other") == "Ana"
    assert embedded(talk, "Ana hiking") == "hiking"


def test_only_the_embedders_query_is_cut(talk: jiyi.Engine) -> None:
    scorer = PairScorer()
    hits = talk.search("Ana hiking", rerank=scorer)
    assert {query for query, _ in scorer.calls[0]} == {"Ana hiking"}
    assert hits.text == "Ana hiking"
    keyword = {hit.memory.text: hit.factors["signals"]["keyword"]["raw"] for hit in talk.search("Ana hiking", k=30)}
    assert all(raw is not None for raw in keyword.values())


def test_a_given_vector_asks_no_embedder(talk: jiyi.Engine) -> None:
    spy = talk._store.embedder
    assert isinstance(spy, SpyEmbedder)
    spy.queries.clear()
    talk.search("Ana hiking", query_vector=[1.0] * 32)
    talk.search("Ana hiking", dense_weight=0, late_weight=0)
    assert spy.queries == []


def test_token_tables_weigh_instead() -> None:
    class Table(HashTable):
        def embed_query(self, text: str) -> Any:
            raise NotImplementedError("a table's query is weighted by rarity")

    with jiyi.open(embedder=Table()) as engine:
        engine.add_many(f"Ana turn{i}" for i in range(30))
        cut, whole = (checked(engine.search("Ana turn7", now=NOW, frequent_share=share)) for share in (0.0, 1.0))
        assert cut == whole
        assert cut["degraded"] == []


# -------------------------------------------------------------------------------------------------------- device


@pytest.mark.parametrize("device", ["nonsense", "", "cuda:", "cuda:x", "CPU", "gpu", 0, None])
@pytest.mark.parametrize("embedder", ["default", None])
def test_a_device_that_is_none_is_refused_at_opening(folder: Path, device: Any, embedder: Any) -> None:
    with pytest.raises(ValueError, match=r"device is .*'auto', 'cpu', 'cuda'"):
        jiyi.open(folder, embedder=embedder, device=device)
    assert not folder.exists()


def test_the_device_is_passed_to_models(ten: jiyi.Engine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str, str]] = []

    def loader(role: str, model: Any) -> Callable[..., Any]:
        def load(name: Any, *, device: str = "auto") -> Any:
            seen.append((role, str(name), device))
            return model

        return load

    monkeypatch.setattr("jiyi.opening.load_embedder", loader("engine", HashEmbedder(name="far")))
    monkeypatch.setattr("jiyi.search.load_cross_encoder", loader("search", PairScorer(number, name="ranker")))
    with jiyi.open(folder, embedder="far", device="cuda:1") as engine:
        engine.add("tea")
        engine.search("tea", rerank="ranker")
        engine.search_many(["tea"], rerank=("ranker", "bm25"))
    assert ("engine", "far", "cuda:1") in seen
    assert [call for call in seen if call[0] == "search"] == [("search", "ranker", "cuda:1")]  # kept
    seen.clear()
    monkeypatch.setattr("jiyi.opening.load_embedder", loader("engine", HashTable()))
    monkeypatch.setattr("jiyi.store.load_embedder", loader("store", HashEmbedder(name="far")))
    with jiyi.open(folder, device="cpu") as engine:
        assert engine.search("tea").degraded == ()
    assert ("store", "far", "cpu") in seen
    seen.clear()
    ask(ten, "ranker")
    assert seen == [("search", "ranker", "auto")]


def test_an_embedder_that_does_not_run_where_it_should_says_so() -> None:
    embedder = HashEmbedder(8)
    embedder.degraded = ("CUDA was asked for and cannot be had; it runs on the CPU",)  # type: ignore[attr-defined]
    with jiyi.open(None, embedder=embedder) as engine:
        engine.add("tea")
        assert [str(reason) for reason in engine.search("tea").degraded] == [
            "dense: CUDA was asked for and cannot be had; it runs on the CPU"
        ]
