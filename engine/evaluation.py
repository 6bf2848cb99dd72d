"""Measures retrieval on an eval set: `memories.jsonl` beside `queries.jsonl`.

Every question is asked in its own namespace. The moment it is asked is that of the namespace's newest memory, unless
another is given: the conversation has just ended. The formulas are those of `jiyi.metrics`; questions of the category
"adversarial" (their evidence is about somebody else) are measured apart and are in no mean.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import jiyi
from jiyi.engine import Engine
from jiyi.ingest import read_memories
from jiyi.jsonl import BadLineError, read_lines
from jiyi.memory import Memory, checked_name
from jiyi.metrics import ndcg_at, recall_at, reciprocal_rank_at
from jiyi.models.protocols import Embedder
from jiyi.progress import Progress
from jiyi.timestamps import TimeLike, to_datetime

ADVERSARIAL: Final = "adversarial"

#: What is measured, in the order it is shown.
METRICS: Final[Mapping[str, Callable[[Sequence[str], Sequence[str]], float]]] = {
    **{f"recall@{k}": partial(recall_at, k) for k in (1, 5, 10, 20, 50)},
    "ndcg@10": partial(ndcg_at, 10),
    "mrr@10": partial(reciprocal_rank_at, 10),
}

_BATCH: Final = 1_000


@dataclass(frozen=True, slots=True)
class Question:
    """One line of `queries.jsonl`."""

    qid: str
    namespace: str
    query: str
    relevant: tuple[str, ...]
    """Ids of the memories that answer it; a question without any is asked and not scored."""
    category: str


@dataclass(frozen=True, slots=True)
class EvalSet:
    """An eval set, read and checked."""

    memories: list[Memory]
    questions: list[Question]

    def unknown_relevant(self) -> int:
        """Return how many relevant ids are of no memory of the question's namespace, and so can never be found."""
        known = {(memory.namespace, memory.id) for memory in self.memories}
        return sum((question.namespace, one) not in known for question in self.questions for one in question.relevant)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRun:
    """What came out of an evaluation."""

    ranked: dict[str, list[str]]
    """Ids by qid, best first."""
    scores: dict[str, dict[str, float]]
    """By group ("all", then each category): every metric, and "n", the number of questions."""
    memories: int
    ingest_s: float
    warmup_s: float
    latencies_s: list[float]
    """One a question, in order."""
    degraded: dict[str, int]
    """Why questions were answered with less than was asked for, and how many."""

    def latency_ms(self, percentile: float) -> float:
        """Return a percentile (0 to 100) of the time a question took, by nearest rank; 0 without questions."""
        if not self.latencies_s:
            return 0.0
        ordered = sorted(self.latencies_s)
        return 1000 * ordered[max(0, math.ceil(len(ordered) * percentile / 100) - 1)]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the ranked ids as a JSON object."""
        seconds = sum(self.latencies_s)
        return {
            "scores": self.scores,
            "memories": self.memories,
            "questions": len(self.latencies_s),
            "warmup_s": self.warmup_s,
            "ingest_s": self.ingest_s,
            "queries_per_s": len(self.latencies_s) / seconds if seconds else 0.0,
            "p50_ms": self.latency_ms(50),
            "p95_ms": self.latency_ms(95),
            "degraded": self.degraded,
        }


def read_eval_set(folder: str | os.PathLike[str]) -> EvalSet:
    """Read and check an eval set.

    Raises:
        BadLineError: a line of either file is wrong.
        FileNotFoundError: a file is missing.
    """
    memories_path, queries_path = Path(folder) / "memories.jsonl", Path(folder) / "queries.jsonl"
    with memories_path.open("rb") as stream:
        memories = [line.memory for line in read_memories(stream, str(memories_path))]
    questions: dict[str, Question] = {}
    with queries_path.open("rb") as stream:
        for line in read_lines(stream, str(queries_path)):
            try:
                question = _question(line.record)
                if question.qid in questions:
                    raise ValueError(f"the qid {question.qid[:80]!r} was used before; every question needs its own")
            except (TypeError, ValueError) as error:
                raise BadLineError(str(queries_path), line.number, str(error)) from None
            questions[question.qid] = question
    return EvalSet(memories, list(questions.values()))


def _question(record: Mapping[str, Any]) -> Question:
    missing = [name for name in ("qid", "query", "relevant", "category") if name not in record]
    if missing:
        raise ValueError(f"the field {missing[0]} is missing; a question has qid, namespace, query, relevant, category")
    if not isinstance(record["query"], str):
        raise TypeError(f"query must be text, got {type(record['query']).__name__}")
    relevant = record["relevant"]
    if not isinstance(relevant, list):
        raise TypeError(f"relevant must be a list of ids, got {type(relevant).__name__}")
    return Question(
        qid=checked_name(record["qid"], "qid"),
        namespace=checked_name(record.get("namespace", "default"), "namespace"),
        query=record["query"],
        relevant=tuple(checked_name(one, "an id in relevant") for one in relevant),
        category=checked_name(record["category"], "category"),
    )


def evaluate(
    eval_set: EvalSet,
    *,
    k: int = 50,
    now: TimeLike | None = None,
    embedder: Embedder | str | None = "default",
    progress: Progress | None = None,
    **settings: Any,
) -> EvalRun:
    """Store the memories in a temporary store, ask every question, measure.

    Args:
        eval_set: from `read_eval_set`.
        k: how many ids are ranked for each question.
        now: the moment of every question; that of its namespace's newest memory, when left out.
        embedder: see `jiyi.open`.
        progress: shows how far it is.
        **settings: see `Engine.search`: preset, recency_weight, diversity …
    """
    moment = None if now is None else to_datetime(now, "now")
    newest: dict[str, datetime] = {}
    for memory in eval_set.memories:
        newest[memory.namespace] = max(memory.timestamp, newest.get(memory.namespace, memory.timestamp))
    started = time.perf_counter()
    jiyi.warmup()
    warmup_s = time.perf_counter() - started
    ranked: dict[str, list[str]] = {}
    latencies_s: list[float] = []
    degraded: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="jiyi-eval-") as folder, _opened(folder, embedder, settings) as engine:
        engine.search("", k=k, **settings)  # wrong settings are told before the work, not after
        started = time.perf_counter()
        for start in range(0, len(eval_set.memories), _BATCH):
            engine.add_many(eval_set.memories[start : start + _BATCH])
        ingest_s = time.perf_counter() - started
        for question in eval_set.questions:
            asked = newest.get(question.namespace) if moment is None else moment
            started = time.perf_counter()
            hits = engine.search(question.query, namespace=question.namespace, k=k, now=asked, **settings)
            latencies_s.append(time.perf_counter() - started)
            ranked[question.qid] = hits.ids
            degraded.update({str(reason) for reason in hits.degraded})
            if progress is not None:
                progress.update(len(ranked), len(ranked) / len(eval_set.questions))
    return EvalRun(
        ranked=ranked,
        scores=score(eval_set.questions, ranked),
        memories=len(eval_set.memories),
        ingest_s=ingest_s,
        warmup_s=warmup_s,
        latencies_s=latencies_s,
        degraded=dict(degraded),
    )


def _opened(folder: str, embedder: Embedder | str | None, settings: Mapping[str, Any]) -> Engine:
    """A store for the measurement, made for the preset that is measured; the settings go with each search."""
    return jiyi.open(folder, embedder=embedder, preset=settings.get("preset"))


def score(questions: Sequence[Question], ranked: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Return the mean of every metric over all questions but adversarial ones, and over each category.

    A question that was not answered scores 0; one without relevant ids counts nowhere; a group without questions is
    left out. Each group also has "n", its number of questions.
    """
    scored = [question for question in questions if question.relevant]
    groups = {"all": [question for question in scored if question.category != ADVERSARIAL]}
    for category in sorted({question.category for question in scored}):
        groups[category] = [question for question in scored if question.category == category]
    return {
        group: {
            name: sum(metric(q.relevant, ranked.get(q.qid, ())) for q in members) / len(members)
            for name, metric in METRICS.items()
        }
        | {"n": len(members)}
        for group, members in groups.items()
        if members
    }


def write_run(path: str | os.PathLike[str], ranked: Mapping[str, Sequence[str]]) -> None:
    """Write one `{"qid", "ranked"}` object a line."""
    with Path(path).open("w", encoding="utf-8", newline="\n") as out:
        for qid, ids in ranked.items():
            out.write(json.dumps({"qid": qid, "ranked": list(ids)}, ensure_ascii=False) + "\n")
