"""Differences between configurations: the bootstrap, ablation, one store for all, the picture."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import fields
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import jiyi
from jiyi.config import PRESETS, SearchConfig
from jiyi.evaluation import (
    INGREDIENTS,
    METRICS,
    EvalRun,
    EvalSet,
    Evaluator,
    Question,
    ablations,
    changed,
    compare,
    configured,
    draw_frontier,
    evaluate,
    read_eval_set,
    score,
    write_run,
)
from jiyi.evaluation.scoring import groups_of, values_of
from jiyi.memory import Memory
from jiyi.pictures import PlotError
from tests.engine.embedders import HashTable, PairScorer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_ROOT = Path(__file__).parents[2]
SHARED = next((folder for folder in (_ROOT / "shared", _ROOT.parent / "shared") if folder.is_dir()), _ROOT / "shared")

TEXTS = ["I love hiking on the trail", "Redis is the database", "green tea in the morning", "周末喜欢去徒步"]
EVAL = EvalSet(
    [Memory(text=text, id=f"t{i}", timestamp=NOW) for i, text in enumerate(TEXTS)],
    [
        Question("q1", "default", "hiking trail", ("t0",), "one"),
        Question("q2", "default", "徒步", ("t3",), "two"),
        Question("q3", "default", "tea or coffee", ("t1",), "adversarial"),
    ],
)

# ---------------------------------------------------------------------------------------------------- differences


def two_runs(n: int, seed: int) -> tuple[list[Question], dict[str, list[str]], dict[str, list[str]]]:
    rng = random.Random(seed)
    ids = [f"m{i}" for i in range(60)]
    questions = [
        Question(
            f"q{i}", "default", "q", tuple(rng.sample(ids, rng.randint(1, 3))), rng.choice(["a", "b", "adversarial"])
        )
        for i in range(n)
    ]
    return questions, *({q.qid: rng.sample(ids, 50) for q in questions} for _ in range(2))  # type: ignore[return-value]


def plain_bootstrap(
    questions: list[Question], ranked: dict[str, list[str]], other: dict[str, list[str]], columns: list[str]
) -> dict[str, tuple[float, float, float]]:
    rng = random.Random(0)
    found = {}
    these, others = values_of(questions, ranked), values_of(questions, other)
    for column in columns:
        d = [b - a for a, b in zip(these[column], others[column], strict=True)]
        boot = sorted(sum(rng.choices(d, k=len(d))) / len(d) for _ in range(2000))
        found[column] = (sum(d) / len(d), boot[50], boot[1949])
    return found


def test_intervals_are_those_of_a_plain_loop() -> None:
    questions, ranked, other = two_runs(40, seed=1)
    found = compare(questions, ranked, other)
    assert list(found) == ["all", "a", "adversarial", "b"]
    columns = ["recall@5", "recall@10", "ndcg@10", "recall@1", "recall@20", "recall@50", "mrr@10"]
    for group, members in groups_of(questions).items():
        assert list(found[group]) == list(METRICS)
        for column, expected in plain_bootstrap(members, ranked, other, columns).items():
            d = found[group][column]
            assert (d.mean, d.low, d.high) == pytest.approx(expected, abs=1e-12)
            means = score(questions, other)[group][column] - score(questions, ranked)[group][column]
            assert d.mean == pytest.approx(means, abs=1e-12)


def test_a_run_against_itself_differs_by_nothing_and_the_sign_turns() -> None:
    questions, ranked, other = two_runs(30, seed=2)
    for row in compare(questions, ranked, ranked).values():
        assert all((d.mean, d.low, d.high, d.clear) == (0, 0, 0, False) for d in row.values())
    there, back = compare(questions, ranked, other), compare(questions, other, ranked)
    assert there["all"]["ndcg@10"].mean == pytest.approx(-back["all"]["ndcg@10"].mean, abs=1e-15)
    assert compare(questions, ranked, other) == there  # and the same on every call


def test_a_clear_difference_is_told_from_none() -> None:
    questions = [Question(f"q{i}", "default", "q", ("a",), "c") for i in range(20)]
    best, worst = {q.qid: ["a"] for q in questions}, {q.qid: ["b"] for q in questions}
    d = compare(questions, best, worst)["all"]["recall@1"]
    assert (d.mean, d.low, d.high, d.clear) == (-1, -1, -1, True)
    one = compare(questions, best, {**best, "q3": ["b"]})["all"]["recall@1"]
    assert (one.mean, one.high, one.clear) == (pytest.approx(-0.05), 0, False)


def test_changed_counts_questions_whose_ranking_is_another() -> None:
    assert changed({"1": ["a", "b"], "2": ["a"], "3": []}, {"1": ["b", "a"], "2": ["a"]}) == 1
    assert compare([], {}, {}) == {}


@pytest.mark.skipif(not (SHARED / "eval/score.py").exists(), reason="the shared scorer and eval sets are not here")
def test_agrees_with_the_shared_scorers_comparison(tmp_path: Path) -> None:
    folder = SHARED / "data/zh-memory-dev"
    eval_set = read_eval_set(folder)
    with Evaluator(eval_set, embedder=None) as evaluator:
        runs = [evaluator.run(configured(**settings)) for settings in ({}, {"neighbor_share": 0, "recency_weight": 0})]
    for name, run in zip("ab", runs, strict=True):
        write_run(tmp_path / name, run.ranked)
    scorer = [sys.executable, SHARED / "eval/score.py", tmp_path / "a", folder / "queries.jsonl", "--compare"]
    printed = subprocess.run([*scorer, tmp_path / "b"], capture_output=True, check=True, text=True).stdout
    row = compare(eval_set.questions, runs[0].ranked, runs[1].ranked)["all"]
    for column in ("recall@5", "recall@10", "ndcg@10"):
        d = row[column]
        line = f"difference {column:10s}{100 * d.mean:+7.2f}  95 % [{100 * d.low:+.2f}, {100 * d.high:+.2f}]"
        assert line in printed.splitlines()
    assert row["ndcg@10"].mean != 0


# ------------------------------------------------------------------------------------------------------- ablation

#: Settings that say how an ingredient works, not whether it does.
HOW = set(
    "pool_min dense_plan keyword_plan bm25_k1 bm25_b normalization fusion rrf_k fact_share recency_curve half_life_s "
    "ageless_kinds aging reinforcement reinforcement_growth rerank_candidates rerank_fusion rerank_weight mmr_window "
    "mmr_lambda".split()
)


def test_every_setting_of_a_search_is_an_ingredient_or_says_how_one_works() -> None:
    switches = {setting for settings in INGREDIENTS.values() for setting in settings}
    named = {setting.name for setting in fields(SearchConfig)}
    assert named - HOW - switches == set(), "put a new setting into INGREDIENTS, or into HOW above"
    assert switches <= named
    assert not switches & HOW


def test_ablations_switch_one_ingredient_off() -> None:
    best = ablations(configured(preset="best"))
    assert list(best) == list(INGREDIENTS)
    for name, configuration in best.items():
        assert configuration.config == PRESETS["best"].with_overrides(dict(INGREDIENTS[name]))
        assert (configuration.name, configuration.preset) == (f"without {name}", "best")
    assert "rerank" not in ablations(configured(preset="fast"))
    assert {"keyword", "dense", "late"} & ablations(configured(preset="keyword")).keys() == set()
    assert "recency" not in ablations(configured(recency_weight=0))


# ------------------------------------------------------------------------------------------------------ one store


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many memories each call to `add_many` got."""
    counts: list[int] = []
    add_many = jiyi.Engine.add_many

    def spied(self: jiyi.Engine, memories: Any, **settings: Any) -> list[str]:
        memories = list(memories)
        counts.append(len(memories))
        return add_many(self, memories, **settings)

    monkeypatch.setattr(jiyi.Engine, "add_many", spied)
    return counts


def test_the_memories_are_stored_once_for_all_configurations(filled: list[int]) -> None:
    told: list[tuple[str, int, int]] = []
    with Evaluator(EVAL, k=4, embedder=HashTable(), told=lambda *what: told.append(what)) as evaluator:
        base = configured()
        runs = {name: evaluator.run(one) for name, one in {"fast": base, **ablations(base)}.items()}
        late = evaluator.run(configured(preset="balanced"))  # the same embedder, so the same store
    assert filled == [4]
    assert told[:4] == [("memories", 0, 4)] + [("questions: fast", i, 3) for i in (1, 2, 3)]
    for name, settings in {"fast": {}, **{name: INGREDIENTS[name] for name in runs if name != "fast"}}.items():
        alone = evaluate(EVAL, k=4, embedder=HashTable(), **settings)
        assert alone.ranked == runs[name].ranked
        assert alone.scores == runs[name].scores
    assert late.embedder == runs["fast"].embedder == HashTable().name
    with pytest.raises(jiyi.ClosedError):
        evaluator.run(base)


def test_each_model_has_a_store_of_its_own(filled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    other = HashTable(dim=16, name="another")
    opened = jiyi.open

    def by_preset(path: Any, *, embedder: Any, preset: str | None) -> jiyi.Engine:
        return opened(path, embedder=other if preset == "balanced" else HashTable(), preset=preset)

    monkeypatch.setattr(jiyi, "open", by_preset)
    with Evaluator(EVAL, k=4) as evaluator:
        fast, balanced, keyword = (evaluator.run(configured(preset=name)) for name in ("fast", "balanced", "keyword"))
    assert filled == [4, 4]
    assert fast.embedder == keyword.embedder != balanced.embedder == other.name


def test_times_are_not_told_where_a_model_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = PairScorer(name="rerank-en")
    monkeypatch.setattr("jiyi.search.load_cross_encoder", lambda name, device: scorer)
    with Evaluator(EVAL, k=4, embedder=HashTable()) as evaluator:
        fast, best, again, bm25 = (
            evaluator.run(one)
            for one in (
                configured(),
                configured(preset="best"),
                configured(preset="best", mmr_lambda=1),
                configured(rerank="bm25"),
            )
        )
    assert [run.timed for run in (fast, best, again, bm25)] == [True, True, False, True]
    assert best.to_dict()["p99_ms"] >= best.to_dict()["p50_ms"] > 0
    assert again.to_dict()["p50_ms"] is None
    json.dumps([run.to_dict() for run in (fast, best, again)], allow_nan=False)


def test_what_is_wrong_is_told_before_the_work(filled: list[int]) -> None:
    with Evaluator(EVAL, k=-1, embedder=None) as evaluator, pytest.raises(ValueError, match="k is -1"):
        evaluator.check(configured())
    with Evaluator(EVAL, embedder=None) as evaluator, pytest.raises(ValueError, match="no-such-model"):
        evaluator.check(configured(rerank="no-such-model"))
    assert filled == []


# -------------------------------------------------------------------------------------------------------- picture


def made(name: str, ms: float, **changes: Any) -> EvalRun:
    run: dict[str, Any] = {
        "name": name,
        "k": 50,
        "ranked": {},
        "scores": {"all": {"recall@10": 0.5, "ndcg@10": 0.4, "n": 3}},
        "memories": 3,
        "embedder": None,
        "ingest_s": 0.1,
        "warmup_s": 0.1,
        "latencies_s": [ms / 1000] * 3,
        "timed": True,
        "degraded": {},
    }
    return EvalRun(**{**run, **changes})


def test_percentiles_are_by_nearest_rank() -> None:
    run = made("x", 1, latencies_s=[i / 1000 for i in range(1, 101)])
    assert [run.latency_ms(percentile) for percentile in (50, 95, 99, 100)] == pytest.approx([50, 95, 99, 100])
    assert made("x", 1, latencies_s=[]).latency_ms(99) == 0


def test_a_picture_needs_an_ending_and_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"must end in \.png, \.svg, \.pdf"):
        draw_frontier([made("fast", 1)], tmp_path / "picture.bmp")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PlotError, match=r"jiyi\[plot\]"):
        draw_frontier([made("fast", 1)], tmp_path / "picture.png")


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs the extra plot")
def test_the_picture_names_what_was_timed_and_scored(tmp_path: Path) -> None:
    runs = [made("fast", 1), made("a $b$ <c>", 30), made("unseen", 5, timed=False), made("empty", 5, scores={})]
    path = draw_frontier(runs, tmp_path / "picture.svg", "my set")
    shown = path.read_text(encoding="utf-8")
    ElementTree.fromstring(shown)
    assert "<!-- fast -->" in shown
    assert "a $b$" in shown
    assert "unseen" not in shown
    assert "<!-- my set (all, 3 questions) -->" in shown
    only = made("x", 1, scores={"adversarial": runs[0].scores["all"]})
    assert draw_frontier([only], tmp_path / "picture.PNG").stat().st_size > 0
    with pytest.raises(ValueError, match="nothing to draw"):
        draw_frontier(runs[2:], tmp_path / "nothing.png")
