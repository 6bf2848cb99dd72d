"""Measures one namespace: percentiles by stage, throughput by threads, memory by part."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from jiyi.engine import Engine
from jiyi.store import store_of

PERCENTILES: Final = (50, 95, 99)
# The first searches compile kernels, load the namespace and fill caches.
_WARM: Final = 20
#: The stage that is the whole search.
TOTAL: Final = "total"

#: Told while a part is measured: how much of it is done, 0 to 1.
Report = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Throughput:
    """Searches of so many threads at once."""

    threads: int
    per_second: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of one namespace."""

    memories: int
    queries: int
    stages: dict[str, dict[str, float]]
    """By stage, and for "total": milliseconds by percentile ("p50", "p95", "p99")."""
    first_ms: float
    """The first search: it loads the namespace, and compiles what is not in the cache."""
    plans: dict[str, int]
    """By leg and plan ("dense exact"): how many queries went by it."""
    throughput: list[Throughput]
    memory_bytes: dict[str, int]
    """By part of the namespace in memory."""
    disk_bytes: int
    """Of the whole store; 0 for one in memory."""
    ingest_per_second: float | None = None
    """Memories a second, durable and searchable; None for a store that was there."""
    notes: list[str] = field(default_factory=list)
    """What was skipped, and why, as the searches said."""

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a JSON object."""
        per_memory = {part: size / max(self.memories, 1) for part, size in self.memory_bytes.items()}
        return {
            "memories": self.memories,
            "queries": self.queries,
            "ms": self.stages,
            "first_ms": self.first_ms,
            "plans": self.plans,
            "throughput": [
                {"threads": one.threads, "per_second": one.per_second, "p99_ms": one.p99_ms} for one in self.throughput
            ],
            "memory_bytes": self.memory_bytes,
            "bytes_per_memory": per_memory,
            "disk_bytes": self.disk_bytes,
            "ingest_per_second": self.ingest_per_second,
            "notes": self.notes,
        }


def measure(
    engine: Engine,
    queries: Sequence[str],
    *,
    namespace: str = "default",
    k: int = 5,
    settings: Mapping[str, Any] | None = None,
    threads: Sequence[int] = (1, 2, 4),
    ingest_per_second: float | None = None,
    report: Report | None = None,
) -> Figures:
    """Search for every query, one by one and then in threads, and return the figures.

    Args:
        engine: open; it is only read.
        queries: at least one.
        namespace: whose memories.
        k: how many hits.
        settings: more keywords of `Engine.search`.
        threads: how many search at once, one figure for each; empty leaves it out.
        ingest_per_second: goes into the figures.
        report: told how far this has come.

    Raises:
        ValueError: no queries; or what `Engine.search` refuses.
    """
    if not queries:
        raise ValueError("there are no queries to measure with; pass at least one")
    chosen = dict(settings or {})

    def search(query: str) -> Any:
        return engine.search(query, namespace=namespace, k=k, **chosen)

    start = time.perf_counter()
    search(queries[0])
    first_ms = (time.perf_counter() - start) * 1000
    for i in range(_WARM):
        search(queries[i % len(queries)])
    times: dict[str, list[float]] = {}
    plans: dict[str, int] = {}
    notes: dict[str, None] = {}
    for done, query in enumerate(queries):
        hits = search(query)
        for stage, ms in hits.timings_ms.items():
            times.setdefault(stage, []).append(ms)
        for leg, plan in hits.plans.items():
            plans[f"{leg} {plan}"] = plans.get(f"{leg} {plan}", 0) + 1
        notes.update(dict.fromkeys(map(str, hits.degraded)))
        if report is not None:
            report((done + 1) / (len(queries) * (1 + len(threads))))
    throughput = []
    for number, count in enumerate(threads):
        throughput.append(_throughput(search, queries, count))
        if report is not None:
            report((2 + number) / (1 + len(threads)))
    return Figures(
        memories=engine.count(namespace=namespace),
        queries=len(queries),
        stages={stage: _percentiles(values) for stage, values in times.items()},
        first_ms=first_ms,
        plans=plans,
        throughput=throughput,
        memory_bytes=store_of(engine).memory_of(namespace),
        disk_bytes=engine.stats()["disk_bytes"],
        ingest_per_second=ingest_per_second,
        notes=list(notes),
    )


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    return {f"p{percent}": float(np.percentile(values, percent)) for percent in PERCENTILES}


def _throughput(search: Callable[[str], Any], queries: Sequence[str], threads: int) -> Throughput:
    """Let threads share the queries among them, all at once."""
    times: list[float] = []
    errors: list[BaseException] = []
    barrier = threading.Barrier(threads + 1)

    def work(share: Sequence[str]) -> None:
        own = []
        try:
            barrier.wait()
            for query in share:
                start = time.perf_counter()
                search(query)
                own.append((time.perf_counter() - start) * 1000)
        except BaseException as error:
            errors.append(error)
        times.extend(own)

    # Each thread has as many to do as there are, so that a short list does not end before the threads have begun.
    workers = [threading.Thread(target=work, args=([*queries[i:], *queries[:i]],), daemon=True) for i in range(threads)]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    elapsed_s = time.perf_counter() - start
    if errors:
        raise errors[0]
    return Throughput(threads, len(times) / elapsed_s, float(np.percentile(times, 99)))
