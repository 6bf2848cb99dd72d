"""Asks an eval set's questions, under one configuration or several.

Every question is asked in its own namespace. The moment it is asked is that of the namespace's newest memory, unless
another is given: the conversation has just ended.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import jiyi
from jiyi.config import TRANSFORMER_PRESETS
from jiyi.engine import Engine
from jiyi.errors import ClosedError
from jiyi.evaluation.configuration import Configuration, configured
from jiyi.evaluation.scoring import score
from jiyi.evaluation.sets import EvalSet
from jiyi.models.protocols import Embedder
from jiyi.spaces import exact_namespace
from jiyi.timestamps import TimeLike, to_datetime

#: Is told what is done ("memories", "questions", "questions: <configuration>"), how many are, and of how many.
Told = Callable[[str, int, int], None]

_BATCH: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRun:
    """What came out of an evaluation."""

    name: str
    """Of the configuration."""
    k: int
    """How many ids were asked for."""
    ranked: dict[str, list[str]]
    """Ids by qid, best first."""
    scores: dict[str, dict[str, float]]
    """By group ("all", then each category): every metric, and "n", the number of questions."""
    memories: int
    embedder: str | None
    """Model of the store's vectors."""
    ingest_s: float
    warmup_s: float
    latencies_s: list[float]
    """One a question, in order, after each namespace was asked once unmeasured."""
    timed: bool
    """False where a cross-encoder remembered scores of an earlier configuration: the times say little then."""
    degraded: dict[str, int]
    """Why questions were answered with less than was asked for, and how many."""

    def latency_ms(self, percentile: float) -> float:
        """Return a percentile (0 to 100) of the time a question took, by nearest rank; 0 without questions."""
        if not self.latencies_s:
            return 0.0
        ordered = sorted(self.latencies_s)
        return 1000 * ordered[max(0, math.ceil(len(ordered) * percentile / 100) - 1)]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the ranked ids as a JSON object; times are null where they say little."""
        seconds = sum(self.latencies_s)
        times: dict[str, float | None] = {
            "queries_per_s": len(self.latencies_s) / seconds if seconds else 0.0,
            **{f"p{percentile}_ms": self.latency_ms(percentile) for percentile in (50, 95, 99)},
        }
        return {
            "name": self.name,
            "k": self.k,
            "scores": self.scores,
            "memories": self.memories,
            "embedder": self.embedder,
            "questions": len(self.latencies_s),
            "warmup_s": self.warmup_s,
            "ingest_s": self.ingest_s,
            **(times if self.timed else dict.fromkeys(times)),
            "degraded": self.degraded,
        }


@dataclass(slots=True)
class _Stored:
    """A store for the measurement."""

    engine: Engine
    ingest_s: float | None = None


class Evaluator:
    """Stores an eval set once and asks its questions under as many configurations as wanted.

    A context manager: the store, which is temporary, goes at the end. Configurations that need other vectors
    ("balanced" and "best", where a transformer is installed) get a store of their own, shared too.

    Args:
        eval_set: from `read_eval_set`.
        k: how many ids are ranked for each question.
        now: the moment of every question; that of its namespace's newest memory, when left out.
        embedder: see `jiyi.open`.
        told: is told how far it is.
    """

    def __init__(
        self,
        eval_set: EvalSet,
        *,
        k: int = 50,
        now: TimeLike | None = None,
        embedder: Embedder | str | None = "default",
        told: Told | None = None,
    ) -> None:
        self._set = eval_set
        self._k = k
        self._now = None if now is None else to_datetime(now, "now")
        self._embedder = embedder
        self._told = told
        self._newest: dict[str, datetime] = {}
        for memory in eval_set.memories:
            self._newest[memory.namespace] = max(memory.timestamp, self._newest.get(memory.namespace, memory.timestamp))
        self._folder = tempfile.TemporaryDirectory(prefix="jiyi-eval-")
        self._stores: dict[str | None, _Stored] = {}
        self._chosen: dict[str | None, str | None] = {}
        self._reranked: set[object] = set()
        self._closed = False
        started = time.perf_counter()
        jiyi.warmup()
        self._warmup_s = time.perf_counter() - started

    def check(self, configuration: Configuration) -> None:
        """Raise what asking would raise, before the work: an unknown model, a k that is not allowed."""
        self._search(self._store_for(configuration).engine, configuration, "")

    def run(self, configuration: Configuration) -> EvalRun:
        """Ask every question.

        Raises:
            TypeError, ValueError: a setting is not allowed.
            ModelError, StoreError: see `jiyi.open` and `Engine.add_many`.
            ClosedError: the evaluator is closed.
        """
        self.check(configuration)
        store = self._store_for(configuration)
        if store.ingest_s is None:
            store.ingest_s = self._fill(store.engine)
        self._warm(store.engine, configuration)
        scorers = set(map(_identity, configuration.config.rerank)) - {"bm25"}
        timed = not scorers & self._reranked
        self._reranked |= scorers
        questions = self._set.questions
        ranked: dict[str, list[str]] = {}
        latencies_s: list[float] = []
        degraded: Counter[str] = Counter()
        for question in questions:
            moment = self._newest.get(question.namespace) if self._now is None else self._now
            started = time.perf_counter()
            hits = self._search(
                store.engine, configuration, question.query, namespace=exact_namespace(question.namespace), now=moment
            )
            latencies_s.append(time.perf_counter() - started)
            ranked[question.qid] = hits.ids
            degraded.update({str(reason) for reason in hits.degraded})
            if self._told is not None:
                self._told(f"questions: {configuration.name}", len(ranked), len(questions))
        return EvalRun(
            name=configuration.name,
            k=self._k,
            ranked=ranked,
            scores=score(questions, ranked),
            memories=len(self._set.memories),
            embedder=store.engine.stats()["embedder"],
            ingest_s=store.ingest_s,
            warmup_s=self._warmup_s,
            latencies_s=latencies_s,
            timed=timed,
            degraded=dict(degraded),
        )

    def close(self) -> None:
        """Remove the stores; closing twice is fine."""
        self._closed = True
        for store in self._stores.values():
            store.engine.close()
        self._stores.clear()
        self._chosen.clear()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _search(self, engine: Engine, configuration: Configuration, text: str, **settings: Any) -> jiyi.Hits:
        return engine.search(
            text, k=self._k, config=configuration.config, budget_ms=configuration.budget_ms, **settings
        )

    def _store_for(self, configuration: Configuration) -> _Stored:
        """The store whose vectors a new one made for the preset would have."""
        if self._closed:
            raise ClosedError
        preset = configuration.preset if configuration.preset in TRANSFORMER_PRESETS else None
        if preset not in self._chosen:
            folder = Path(self._folder.name) / str(len(self._chosen))
            engine = jiyi.open(folder, embedder=self._embedder, preset=preset)
            model: str | None = engine.stats()["embedder"]
            if model in self._stores:
                engine.close()
            else:
                self._stores[model] = _Stored(engine)
            self._chosen[preset] = model
        return self._stores[self._chosen[preset]]

    def _fill(self, engine: Engine) -> float:
        memories = self._set.memories
        started = time.perf_counter()
        for start in range(0, len(memories), _BATCH):
            if self._told is not None:
                self._told("memories", start, len(memories))
            engine.add_many(memories[start : start + _BATCH])
        return time.perf_counter() - started

    def _warm(self, engine: Engine, configuration: Configuration) -> None:
        """Ask each namespace once, so that no question pays for loading it. No model scores anything."""
        plain = replace(configuration, config=replace(configuration.config, rerank=()))
        asked = {question.namespace: question.query for question in reversed(self._set.questions)}
        for namespace, query in asked.items():
            self._search(engine, plain, query, namespace=exact_namespace(namespace))


def _identity(scorer: object) -> object:
    return scorer if isinstance(scorer, str) else id(scorer)


def evaluate(
    eval_set: EvalSet,
    *,
    k: int = 50,
    now: TimeLike | None = None,
    embedder: Embedder | str | None = "default",
    told: Told | None = None,
    **settings: Any,
) -> EvalRun:
    """Store the memories in a temporary store, ask every question, measure.

    Args:
        eval_set, k, now, embedder, told: see `Evaluator`.
        **settings: see `configured`: preset or config, recency_weight, diversity, budget_ms …

    Raises:
        TypeError, ValueError: an argument is not allowed; it is told before the work.
    """
    configuration = configured(**settings)
    with Evaluator(eval_set, k=k, now=now, embedder=embedder, told=told) as evaluator:
        return evaluator.run(configuration)
