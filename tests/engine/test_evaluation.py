import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from jiyi.evaluation import METRICS, Question, evaluate, read_eval_set, score, write_run
from jiyi.jsonl import BadLineError
from jiyi.metrics import ndcg_at, recall_at, reciprocal_rank_at

# The shared eval sets and their scorer lie beside the checkout, or in it.
_ROOT = Path(__file__).parents[2]
SHARED = next((folder for folder in (_ROOT / "shared", _ROOT.parent / "shared") if folder.is_dir()), _ROOT / "shared")


def question(qid: str, relevant: tuple[str, ...], category: str = "single") -> Question:
    return Question(qid=qid, namespace="default", query="q", relevant=relevant, category=category)


def write_set(folder: Path, memories: list[dict], queries: list[dict]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, records in (("memories.jsonl", memories), ("queries.jsonl", queries)):
        (folder / name).write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return folder


class TestMetrics:
    def test_by_hand(self) -> None:
        ranked = ["x", "a", "y", "b", "z"]
        relevant = ["a", "b", "c"]
        assert recall_at(1, relevant, ranked) == 0
        assert recall_at(2, relevant, ranked) == 1 / 3
        assert recall_at(5, relevant, ranked) == 2 / 3
        gain = 1 / math.log2(2 + 1) + 1 / math.log2(4 + 1)
        best = 1 / math.log2(1 + 1) + 1 / math.log2(2 + 1) + 1 / math.log2(3 + 1)
        assert ndcg_at(10, relevant, ranked) == gain / best
        assert reciprocal_rank_at(10, relevant, ranked) == 1 / 2

    def test_cut_off(self) -> None:
        ranked = [f"x{i}" for i in range(10)] + ["a"]
        assert ndcg_at(10, ["a"], ranked) == 0
        assert reciprocal_rank_at(10, ["a"], ranked) == 0
        assert ndcg_at(11, ["a"], ranked) == 1 / math.log2(12)
        assert reciprocal_rank_at(11, ["a"], ranked) == 1 / 11

    def test_more_relevant_than_places(self) -> None:
        relevant = [f"m{i}" for i in range(12)]
        assert ndcg_at(10, relevant, relevant) == 1
        assert recall_at(10, relevant, relevant) == 10 / 12

    def test_an_id_repeated_counts_once(self) -> None:
        assert recall_at(2, ["a", "b"], ["x", "x", "a", "b"]) == 0.5  # x a b
        assert reciprocal_rank_at(10, ["a"], ["x", "x", "a"]) == 1 / 2
        assert recall_at(5, ["a", "a"], ["a"]) == 1

    @pytest.mark.parametrize("metric", list(METRICS.values()), ids=list(METRICS))
    def test_nothing_ranked_is_zero_and_the_best_order_one(self, metric: Callable[..., float]) -> None:
        assert metric(["a"], []) == 0
        assert metric(["a"], ["a", "b"]) == 1

    def test_without_relevant_ids_there_is_nothing_to_measure(self) -> None:
        with pytest.raises(ValueError, match="no relevant ids"):
            recall_at(1, [], ["a"])


class TestScore:
    def test_groups(self) -> None:
        questions = [
            question("q1", ("a",)),
            question("q2", ("b",), "multi"),
            question("q3", ("c",), "adversarial"),
            question("q4", ()),  # nothing to find: in no group
            question("q5", ("d",), "multi"),  # never answered: 0
        ]
        scores = score(questions, {"q1": ["a"], "q2": ["x", "b"], "q3": ["x"], "q4": ["a"]})
        assert list(scores) == ["all", "adversarial", "multi", "single"]
        assert {group: row["n"] for group, row in scores.items()} == {
            "all": 3,
            "adversarial": 1,
            "multi": 2,
            "single": 1,
        }
        assert scores["all"]["recall@5"] == 2 / 3
        assert scores["all"]["mrr@10"] == 1.5 / 3
        assert scores["multi"]["mrr@10"] == 0.25
        assert scores["adversarial"]["recall@50"] == 0

    def test_only_adversarial_questions_leave_all_out(self) -> None:
        assert list(score([question("q", ("a",), "adversarial")], {})) == ["adversarial"]

    def test_no_questions(self) -> None:
        assert score([], {}) == {}


class TestReading:
    MEMORY: ClassVar = {"id": "m", "text": "hello"}
    QUERY: ClassVar = {"qid": "q", "namespace": "default", "query": "hello", "relevant": ["m"], "category": "c"}

    def test_reads(self, tmp_path: Path) -> None:
        found = read_eval_set(write_set(tmp_path, [self.MEMORY], [self.QUERY]))
        assert [memory.id for memory in found.memories] == ["m"]
        assert found.questions == [Question("q", "default", "hello", ("m",), "c")]
        assert found.unknown_relevant() == 0

    def test_counts_relevant_ids_that_cannot_be_found(self, tmp_path: Path) -> None:
        elsewhere = {**self.QUERY, "namespace": "other"}
        assert read_eval_set(write_set(tmp_path, [self.MEMORY], [elsewhere])).unknown_relevant() == 1

    @pytest.mark.parametrize(
        ("record", "reason"),
        [
            ({"query": "x", "relevant": [], "category": "c"}, "qid is missing"),
            ({"qid": "q", "query": 5, "relevant": [], "category": "c"}, "query must be text, got int"),
            ({"qid": "q", "query": "x", "relevant": "m", "category": "c"}, "relevant must be a list of ids, got str"),
            ({"qid": "q", "query": "x", "relevant": [5], "category": "c"}, "an id in relevant must be text"),
            ({"qid": "", "query": "x", "relevant": [], "category": "c"}, "qid is empty"),
            ({"qid": "q", "query": "x", "relevant": [], "category": None}, "category must be text"),
        ],
    )
    def test_bad_questions_name_the_line(self, tmp_path: Path, record: dict, reason: str) -> None:
        with pytest.raises(BadLineError, match=rf"queries\.jsonl, line 2: .*{reason}"):
            read_eval_set(write_set(tmp_path, [self.MEMORY], [{**self.QUERY, "qid": "first"}, record]))

    def test_a_qid_twice(self, tmp_path: Path) -> None:
        with pytest.raises(BadLineError, match="line 2: the qid 'q' was used before"):
            read_eval_set(write_set(tmp_path, [self.MEMORY], [self.QUERY, self.QUERY]))

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            read_eval_set(tmp_path)


class TestEvaluate:
    def test_answers_each_question_in_its_namespace(self, tmp_path: Path) -> None:
        memories = [
            {"id": f"{name}-{i}", "namespace": name, "text": text, "timestamp": f"2026-01-0{i + 1}"}
            for name in ("ana", "bo")
            for i, text in enumerate(["likes tea", "rides a bicycle", "plays chess"])
        ]
        queries = [
            {"qid": f"{n}?", "namespace": n, "query": "bicycle", "relevant": [f"{n}-1"], "category": "c"}
            for n in ("ana", "bo")
        ]
        found = read_eval_set(write_set(tmp_path, memories, queries))
        run = evaluate(found, k=2, embedder=None)
        assert {qid: ids[0] for qid, ids in run.ranked.items()} == {"ana?": "ana-1", "bo?": "bo-1"}
        assert all(len(ids) <= 2 for ids in run.ranked.values())
        assert run.scores["all"]["recall@1"] == 1
        assert len(run.latencies_s) == 2
        assert run.latency_ms(50) <= run.latency_ms(95)

    def test_asks_as_of_the_newest_memory(self, tmp_path: Path) -> None:
        # Were it asked as of today, the newest would not be young and the memory that has expired since not there.
        memories = [
            {"id": "old", "text": "tea in the morning", "timestamp": "2020-01-01"},
            {"id": "new", "text": "tea in the morning", "timestamp": "2020-06-01", "expires_at": "2020-06-02"},
        ]
        query = {"qid": "q", "query": "tea", "relevant": ["new"], "category": "c"}
        found = read_eval_set(write_set(tmp_path, memories, [query]))
        assert evaluate(found, embedder=None).ranked["q"] == ["new", "old"]
        assert evaluate(found, embedder=None, now="2021-01-01").ranked["q"] == ["old"]
        assert evaluate(found, embedder=None, recency_weight=0.0).ranked["q"] == ["old", "new"]

    def test_a_namespace_without_memories_scores_zero(self, tmp_path: Path) -> None:
        query = {"qid": "q", "namespace": "nobody", "query": "tea", "relevant": ["m"], "category": "c"}
        run = evaluate(read_eval_set(write_set(tmp_path, [{"text": "tea"}], [query])), embedder=None)
        assert run.ranked == {"q": []}
        assert run.scores["all"]["recall@50"] == 0

    def test_unknown_settings_are_told_before_the_work(self, tmp_path: Path) -> None:
        found = read_eval_set(write_set(tmp_path, [TestReading.MEMORY], [TestReading.QUERY]))
        with pytest.raises(TypeError, match="unknown search setting 'speed'"):
            evaluate(found, embedder=None, speed=9)


@pytest.mark.skipif(not (SHARED / "eval/score.py").exists(), reason="the shared scorer and eval sets are not here")
def test_agrees_digit_for_digit_with_the_shared_scorer(tmp_path: Path) -> None:
    folder = SHARED / "data/zh-memory-dev"
    run = evaluate(read_eval_set(folder), embedder=None)
    write_run(tmp_path / "run.jsonl", run.ranked)
    scorer = [sys.executable, SHARED / "eval/score.py", tmp_path / "run.jsonl", folder / "queries.jsonl", "--json"]
    printed = subprocess.run(scorer, capture_output=True, check=True, text=True).stdout
    assert json.loads(printed) == run.scores
