"""Searches from several threads, beside a writer, and under an event loop. Prints a table, or JSON.

    python benches/concurrency.py [--memories 10000] [--seconds 3] [--json]

One process, one engine with the shipped table. The ratios count: throughput by threads against one thread, p95 while
1,000 memories a second are added against p95 idle. The longest block of an event loop is measured by a timer that asks
to be woken every half millisecond: how much later than that it ever was, with nothing else on the loop (what the
machine does by itself) and while searches are awaited.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

_PER_SECOND = 1_000
_TICK_S = 0.0005


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    import jiyi

    jiyi.warmup()
    with tempfile.TemporaryDirectory() as parent:
        from corpus import queries, texts

        with jiyi.open(Path(parent) / "store") as engine:
            engine.add_many(list(texts(arguments.memories)))
            asked = list(queries(200))
            for query in asked[:50]:
                engine.search(query)
            report = {
                "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
                "memories": arguments.memories,
                "threads": {str(n): _searches(engine, asked, n, arguments.seconds) for n in (1, 2, 4, 8)},
                "writer": _beside_a_writer(engine, asked, arguments.seconds),
                "event_loop": {str(n): asyncio.run(_loop(engine, asked, n, arguments.seconds)) for n in (0, 1, 8)},
            }
    if arguments.json:
        json.dump(report, sys.stdout, indent=1)
        print()
        return
    one = report["threads"]["1"]["per_second"]
    print(f"{arguments.memories:,} memories, {report['cores']} cores\n")
    print(f"{'threads':>8} {'searches/s':>11} {'× one':>6} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8}")
    for threads, row in report["threads"].items():
        print(
            f"{threads:>8} {row['per_second']:11,.0f} {row['per_second'] / one:6.2f} "
            f"{row['p50_ms']:8.2f} {row['p95_ms']:8.2f} {row['p99_ms']:8.2f}"
        )
    writer = report["writer"]
    print(
        f"\np95 {writer['idle']['p95_ms']:.2f} ms idle, {writer['writing']['p95_ms']:.2f} ms beside a writer of "
        f"{writer['added_per_second']:,.0f} memories a second: {writer['ratio']:.2f} times"
    )
    for searches, row in report["event_loop"].items():
        what = "nothing else" if searches == "0" else f"{searches} searches awaited at a time"
        print(
            f"the loop was late by at most {row['longest_ms']:.2f} ms, p99.9 {row['p999_ms']:.2f} ms, with {what} "
            f"({row['searches_per_second']:,.0f} a second)"
        )


def _percentiles(seconds: list[float]) -> dict[str, float]:
    import numpy as np

    p50, p95, p99 = np.percentile(np.array(seconds) * 1000, (50, 95, 99)).tolist()
    return {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99}


def _searches(engine: Any, asked: list[str], threads: int, seconds: float) -> dict[str, float]:
    taken: list[list[float]] = [[] for _ in range(threads)]
    until = time.perf_counter() + seconds

    def work(number: int) -> None:
        times, i = taken[number], number
        while (started := time.perf_counter()) < until:
            engine.search(asked[i % len(asked)], k=5)
            times.append(time.perf_counter() - started)
            i += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    every = [time for times in taken for time in times]
    return {"per_second": len(every) / (time.perf_counter() - started), **_percentiles(every)}


def _beside_a_writer(engine: Any, asked: list[str], seconds: float) -> dict[str, Any]:
    """One thread searches while another adds memories one by one, at an even pace."""
    from corpus import texts

    idle = _searches(engine, asked, 1, seconds)
    more = list(texts(int(_PER_SECOND * seconds * 2)))
    stop = threading.Event()
    added = 0

    def write() -> None:
        nonlocal added
        began = time.perf_counter()
        while not stop.is_set() and added < len(more):
            wait = began + added / _PER_SECOND - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            engine.add(more[added], session="beside")
            added += 1

    writer = threading.Thread(target=write)
    started = time.perf_counter()
    writer.start()
    writing = _searches(engine, asked, 1, seconds)
    stop.set()
    writer.join()
    rate = added / (time.perf_counter() - started)
    return {
        "idle": idle,
        "writing": writing,
        "added_per_second": rate,
        "ratio": writing["p95_ms"] / idle["p95_ms"],
    }


async def _loop(engine: Any, asked: list[str], searches: int, seconds: float) -> dict[str, float]:
    import numpy as np

    until = time.perf_counter() + seconds
    late: list[float] = []
    done = 0

    async def watch() -> None:
        while (before := time.perf_counter()) < until:
            await asyncio.sleep(_TICK_S)
            late.append(time.perf_counter() - before - _TICK_S)

    async def ask(number: int) -> None:
        nonlocal done
        i = number
        while time.perf_counter() < until:
            await engine.asearch(asked[i % len(asked)], k=5)
            done += 1
            i += 1

    await asyncio.gather(watch(), *(ask(number) for number in range(searches)))
    late_ms = np.array(late) * 1000
    return {
        "longest_ms": float(late_ms.max()),
        "p999_ms": float(np.percentile(late_ms, 99.9)),
        "p99_ms": float(np.percentile(late_ms, 99)),
        "over_5_ms": float(np.count_nonzero(late_ms > 5)),
        "ticks": float(len(late)),
        "searches_per_second": done / seconds,
    }


if __name__ == "__main__":
    main()
