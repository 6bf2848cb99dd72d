"""What a graph gives up and what it saves: recall and time beside the exact scan, for queries of the token table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from corpus import queries, texts

import jiyi

MEMORIES = 20_000
QUERIES = 200


@pytest.fixture(scope="module")
def engine() -> Any:
    with jiyi.open(index_config=jiyi.IndexConfig(dense_rows=MEMORIES)) as engine:
        engine.add_many(list(texts(MEMORIES)))
        engine.search("warm")
        engine.flush()
        yield engine


def found(engine: Any, plan: str) -> list[set[str]]:
    settings = {"preset": "dense", "recency_weight": 0, "diversity": "none", "neighbor_share": 0, "pool_min": 50}
    return [set(engine.search(query, k=10, dense_plan=plan, **settings).ids) for query in queries(QUERIES)]


@pytest.mark.parametrize("plan", ["exact", "indexed"])
def test_ten_nearest(engine: Any, benchmark: Any, plan: str) -> None:
    hits = benchmark.pedantic(found, (engine, plan), rounds=3, warmup_rounds=1)
    exact = found(engine, "exact")
    recall = np.mean([len(a & b) / len(b) for a, b in zip(hits, exact, strict=True) if b])
    benchmark.extra_info["recall@10"] = round(float(recall), 4)
    print(f"\n{plan}: recall@10 {recall:.3f}, {benchmark.stats.stats.median / QUERIES * 1000:.2f} ms a query")
