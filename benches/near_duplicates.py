"""How many distinct facts reach the top 5 when each is stored one to five times, with and without diversification.

`python benches/near_duplicates.py [preset …]` prints, by language, how many distinct facts that answer the question
stand among the first five, and how many memories that answer it do, over `near_duplicates/`: forty facts in 120
paraphrases among forty other memories, written for this, with twelve questions a language that five facts answer.
"both" is the larger of the two similarities, which the engine does not offer (with a token table it is the cosine for
nearly every pair): it is worked out here from the engine's own scores.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

import jiyi
from jiyi.evaluation import EvalSet, Question, read_eval_set
from jiyi.kernels.jaccard import jaccard_matrix
from jiyi.kernels.mmr import mmr_from_matrix
from jiyi.kernels.normalize import minmax
from jiyi.memory import Memory
from jiyi.models import load_embedder
from jiyi.terms import WORD, is_sort, memory_terms

FOLDER = Path(__file__).parent / "near_duplicates"
K = 5
_WINDOWS = (20, 50)
_LAMBDAS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
# So that a search for a whole window sees the same pool as one for five.
_POOL = 4 * max(_WINDOWS)


class Bench:
    """A store of the set, asked in different ways."""

    def __init__(self, preset: str) -> None:
        self.eval_set: EvalSet = read_eval_set(FOLDER)
        self.now: datetime = max(memory.timestamp for memory in self.eval_set.memories)
        self._fact = {memory.id: memory.metadata.get("fact") for memory in self.eval_set.memories}
        self._engine = jiyi.open(preset=preset)
        self._engine.add_many(self.eval_set.memories)

    def asked(self, question: Question, diversity: str, window: int, lambda_: float) -> list[str]:
        """Return the ids of the first five."""
        settings = {"namespace": question.namespace, "now": self.now, "pool_min": _POOL}
        if diversity != "both":
            hits = self._engine.search(
                question.query, k=K, diversity=diversity, mmr_window=window, mmr_lambda=lambda_, **settings
            )
            return hits.ids
        hits = self._engine.search(question.query, k=window, diversity="none", **settings)
        relevance = minmax(np.array(hits.scores))
        chosen = mmr_from_matrix(relevance, np.maximum(*self.similarities(hits.memories)), K, lambda_)
        return [hits.ids[place] for place in chosen.order.tolist()]

    def similarities(self, memories: Sequence[Memory]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return Jaccard and cosine of every pair."""
        columns = memory_terms(memories)
        words = is_sort(columns.terms, WORD)
        indptr = np.concatenate(([0], np.cumsum(words)))[columns.indptr]
        _, ids = np.unique(columns.terms[words], return_inverse=True)
        vectors = load_embedder(self._engine.stats()["embedder"]).embed([memory.text for memory in memories])
        unit = vectors.astype(np.float64) / np.linalg.norm(vectors, axis=1, keepdims=True)
        return jaccard_matrix(indptr.astype(np.int64), ids.astype(np.uint32)), unit @ unit.T

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    def measured(self, diversity: str, window: int = 20, lambda_: float = 0.7) -> dict[str, tuple[float, float]]:
        """Return by category the means over its questions: distinct facts, and memories, that answer."""
        counts: dict[str, list[tuple[int, int]]] = {}
        for question in self.eval_set.questions:
            answers = [one for one in self.asked(question, diversity, window, lambda_) if one in set(question.relevant)]
            counts.setdefault(question.category, []).append((len({self._fact[one] for one in answers}), len(answers)))
        return {
            category: (sum(facts for facts, _ in rows) / len(rows), sum(answers for _, answers in rows) / len(rows))
            for category, rows in counts.items()
        }


def _settings() -> Iterator[tuple[str, int, float]]:
    yield "none", 0, 1.0
    for diversity in ("jaccard", "cosine", "both"):
        for window in _WINDOWS:
            for lambda_ in _LAMBDAS:
                yield diversity, window, lambda_


def main() -> None:
    for preset in sys.argv[1:] or ["fast"]:
        with Bench(preset) as bench:
            print(f"{preset}: distinct facts / answers among the first {K}")
            for diversity, window, lambda_ in _settings():
                measured = bench.measured(diversity, window, lambda_)
                cells = (f"{name} {facts:.2f} / {answers:.2f}" for name, (facts, answers) in measured.items())
                print(f"  {diversity:8s} window {window:2d}  λ {lambda_:.1f}  ", "   ".join(cells))


if __name__ == "__main__":
    main()
