"""Where the time of a search goes, stage by stage: 20, 100 and 1,000 candidates, 1,000 to 100,000 memories.

    pytest benches/test_stages.py

The benchmark is the whole search with its query vector given; the stages are the medians of `Hits.timings_ms` over the
same calls, in µs. The baseline is what one writes in NumPy for the recall alone: a product with all the vectors and a
partition for as many candidates. The ten nearest of the vectors alone must agree with it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from corpus import queries, texts

import jiyi
from jiyi.models import load_embedder

ALONE: dict[str, Any] = {"preset": "dense", "recency_weight": 0, "diversity": "none", "neighbor_share": 0}
_lines: list[str] = []


class Stored:
    """An engine with its vectors, and questions with theirs."""

    def __init__(self, memories: int) -> None:
        embedder = load_embedder("e5-static-256")
        lines, asked = list(texts(memories)), list(queries(40))
        self.vectors = np.ascontiguousarray(embedder.embed(lines), np.float32)
        self.questions = list(zip(asked, np.ascontiguousarray(embedder.embed(asked), np.float32), strict=True))
        self.engine = jiyi.open()
        for start in range(0, memories, 2_000):
            batch = [{"text": text, "id": str(start + i)} for i, text in enumerate(lines[start : start + 2_000])]
            self.engine.add_many(batch, vectors=self.vectors[start : start + 2_000])
        jiyi.warmup()


@pytest.fixture(scope="module", params=[1_000, 10_000, 100_000], ids="{:,} memories".format)
def stored(request: pytest.FixtureRequest) -> Iterator[Stored]:
    made = Stored(request.param)
    yield made
    made.engine.close()


@pytest.fixture(scope="module", autouse=True)
def summary(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if _lines:
        with request.config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
            print("\n\nstages of a search (medians, µs)\n" + "\n".join(_lines))


def nearest(vectors: np.ndarray, query: np.ndarray, count: int) -> np.ndarray:
    """The rows of the largest products, best first."""
    scores = vectors @ query
    best = np.argpartition(-scores, count - 1)[:count]
    return best[np.lexsort((best, -scores[best]))]


@pytest.mark.benchmark(max_time=0.5, min_rounds=10, warmup=False)
@pytest.mark.parametrize("candidates", [20, 100, 1_000], ids="{:,} candidates".format)
def test_stages(stored: Stored, candidates: int, benchmark: Any) -> None:
    engine, vectors = stored.engine, stored.vectors
    for text, vector in stored.questions[:10]:
        got = engine.search(text, k=10, query_vector=vector, dense_plan="exact", **ALONE).ids
        np.testing.assert_allclose(
            vectors[[int(i) for i in got]] @ vector, (vectors @ vector)[nearest(vectors, vector, 10)], atol=1e-5
        )
    sizes = {"k": 5, "pool_min": candidates, "mmr_window": candidates}
    stages: dict[str, list[float]] = {}
    questions = cycle(stored.questions)

    def search() -> None:
        text, vector = next(questions)
        for stage, ms in engine.search(text, query_vector=vector, **sizes).timings_ms.items():
            stages.setdefault(stage, []).append(ms * 1000)

    for _ in stored.questions:
        search()
    stages.clear()
    baseline: list[float] = []
    for _, vector in stored.questions:
        before = time.perf_counter()
        nearest(vectors, vector, candidates)
        baseline.append((time.perf_counter() - before) * 1e6)
    benchmark(search)
    if benchmark.stats is None:  # --benchmark-disable
        return
    medians = {stage: round(statistics.median(us), 1) for stage, us in stages.items()}
    numpy_us = statistics.median(baseline)
    benchmark.group = f"{len(vectors):,} memories"
    benchmark.extra_info.update(
        memories=len(vectors), candidates=candidates, stages_us=medians, baseline="NumPy V @ q", baseline_us=numpy_us
    )
    parts = ", ".join(f"{stage} {us:.0f}" for stage, us in medians.items())
    _lines.append(f"{len(vectors):>8,} memories, {candidates:>5,} candidates: {parts}; NumPy V @ q {numpy_us:.0f}")
