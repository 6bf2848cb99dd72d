"""What `where` adds to a search, beside the same search without: filters whose values move from call to call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from corpus import queries, texts

import jiyi

START = datetime(2026, 1, 1, tzinfo=UTC)
QUERIES = 40
SESSION = 1_000

FILTERS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "kind, half": lambda i, n: {"kind": "episodic"},
    "not archival, three quarters": lambda i, n: {"not": {"kind": "archival"}},
    "session": lambda i, n: {"session": f"s{i % (n // SESSION)}"},
    "time, half": lambda i, n: {"timestamp": {"gte": minute(i), "lt": minute(i + n // 2)}},
    "time, a thousandth": lambda i, n: {"timestamp": {"gte": minute(i), "lt": minute(i + n // 1000)}},
    "metadata.project, a fiftieth": lambda i, n: {"metadata.project": f"p{i % 50}"},
    "metadata.importance, some": lambda i, n: {"metadata.importance": {"gte": i % 100 / 100}},
    "metadata.tags, a tenth": lambda i, n: {"metadata.tags": "red"},
    "metadata.number, all differ": lambda i, n: {"metadata.number": {"gte": i * 37, "lt": i * 37 + n // 3}},
    "five tests": lambda i, n: {
        "kind": "episodic",
        "speaker": {"in": ["Ana", "李雷"]},
        "timestamp": {"gte": minute(i)},
        "or": [{"metadata.project": f"p{i % 50}"}, {"metadata.tags": "工作"}],
    },
}


def minute(i: int) -> datetime:
    """The time of memory i."""
    return START + timedelta(minutes=i)


def memory(i: int, text: str, importance: float) -> dict[str, Any]:
    """Memory i, of fifty projects, three speakers, sessions of a thousand turns."""
    tags = ["red", "blue"] if i % 10 == 0 else ["工作"]
    return {
        "text": text,
        "kind": ("episodic", "archival", "episodic", "semantic")[i % 4],
        "timestamp": minute(i),
        "session": f"s{i // SESSION}",
        "speaker": ("Ana", "Bo", "李雷")[i % 3],
        "metadata": {"project": f"p{i % 50}", "importance": round(importance, 4), "tags": tags, "number": i},
    }


@pytest.fixture(scope="module", params=[10_000, 100_000])
def engine(request: pytest.FixtureRequest) -> Any:
    rng = np.random.default_rng(0)
    with jiyi.open() as engine:
        memories = [memory(i, text, float(rng.random())) for i, text in enumerate(texts(request.param))]
        for start in range(0, len(memories), 2_000):
            engine.add_many(memories[start : start + 2_000])
        jiyi.warmup()
        yield engine


def median_ms(engine: Any, where: Callable[[int], Any], adding: bool) -> tuple[float, float]:
    """The median search with a filter and without, by turns, so that what else the machine does hits both."""
    with_ms, without_ms = [], []
    for i, query in enumerate(queries(QUERIES)):
        for filtered, times in ((where(i), with_ms), (None, without_ms)):
            if adding:
                engine.add("one more memory", session="s1", metadata={"project": "p1"})
            hits = engine.search(query, where=filtered)
            times.append(hits.timings_ms["total"])
    return float(np.median(with_ms)), float(np.median(without_ms))


@pytest.mark.parametrize("adding", [False, True], ids=["reading", "adding"])
@pytest.mark.parametrize("name", FILTERS)
def test_where(engine: Any, benchmark: Any, name: str, adding: bool) -> None:
    n = engine.count()
    with_ms, without_ms = benchmark.pedantic(
        median_ms, (engine, lambda i: FILTERS[name](i, n), adding), rounds=1, warmup_rounds=1
    )
    benchmark.extra_info.update(with_ms=with_ms, without_ms=without_ms, ratio=with_ms / without_ms)
    meanwhile = "adding" if adding else "reading"
    print(
        f"\n{n:7d} memories, {meanwhile}, {name:30s} {with_ms:6.2f} ms, without {without_ms:6.2f} ms, "
        f"{with_ms - without_ms:+.2f} ms, ratio {with_ms / without_ms:.2f}"
    )
