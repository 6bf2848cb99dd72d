"""One search over several namespaces beside one over a single namespace that holds the same memories.

    python benches/namespaces.py [--memories 100000] [--json]

Each line is a process of its own, so that its peak memory is its own. Texts are made up (benches/corpus.py).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

QUERIES = 100
BATCH = 5_000
WAYS = (1, 5, 100, 1_000)


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def fill(store: str, memories: int, namespaces: int) -> None:
    """Store memories in turn in so many namespaces."""
    from corpus import texts

    import jiyi

    made = (
        {"text": text, "namespace": f"user/{i % namespaces}", "timestamp": 1.7e9 + i}
        for i, text in enumerate(texts(memories))
    )
    with jiyi.open(store) as engine:
        while batch := list(islice(made, BATCH)):
            engine.add_many(batch)


def ask(store: str, memory_budget_mb: float) -> dict[str, Any]:
    """Ask questions of all the namespaces together; the first loads them."""
    import numpy as np
    from corpus import queries

    import jiyi

    jiyi.warmup()
    asked = list(queries(QUERIES))
    with jiyi.open(store, read_only=True, memory_budget_mb=memory_budget_mb) as engine:
        settings: dict[str, Any] = {"namespace": "user/*", "now": 1.8e9, "k": 5}
        before_mb, start = _peak_mb(), time.perf_counter()
        first = engine.search(asked[0], **settings)
        first_ms = (time.perf_counter() - start) * 1e3
        took = []
        for query in asked if first_ms < 2_000 or memory_budget_mb > 500 else asked[:3]:
            start = time.perf_counter()
            engine.search(query, **settings)
            took.append((time.perf_counter() - start) * 1e3)
        return {
            "first_ms": first_ms,
            "p50_ms": float(np.median(took)),
            "p95_ms": float(np.percentile(took, 95)),
            "loaded_mb": engine.stats()["loaded_bytes"] / 2**20,
            "grown_mb": _peak_mb() - before_mb,
            "texts": [hit.memory.text for hit in first],
            "scores": first.scores,
        }


def _alone(*arguments: object) -> dict[str, Any]:
    run = subprocess.run([sys.executable, __file__, *map(str, arguments)], capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(run.stdout or "{}")
    return answer


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", nargs=3)
    args = parser.parse_args()
    if args.part:
        what, store, value = args.part
        if what == "fill":
            fill(store, args.memories, int(value))
        else:
            print(json.dumps(ask(store, float(value))))
        return
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for namespaces in WAYS:
            store = str(Path(folder) / str(namespaces))
            _alone("--memories", args.memories, "--part", "fill", store, namespaces)
            figures[str(namespaces)] = _alone("--part", "ask", store, 4_096)
        figures["1000, 64 MB"] = _alone("--part", "ask", str(Path(folder) / str(WAYS[-1])), 64)
    one = figures["1"]
    answers = {name: (each.pop("texts"), each.pop("scores")) for name, each in figures.items()}
    for name, each in figures.items():
        each["same_answer"] = answers[name] == answers["1"]
        each["p50_ratio"] = each["p50_ms"] / one["p50_ms"]
    if args.json:
        print(json.dumps(figures))
        return
    print(f"{args.memories:,} memories, {QUERIES} questions; ratio: p50 beside one namespace of all")
    for name, each in figures.items():
        print(
            f"{name:>12} namespaces: p50 {each['p50_ms']:7.2f} ms (× {each['p50_ratio']:.2f}), "
            f"p95 {each['p95_ms']:7.2f} ms, first {each['first_ms']:7.0f} ms, "
            f"loaded {each['loaded_mb']:5.0f} MB, grown {each['grown_mb']:5.0f} MB, "
            f"same answer {each['same_answer']}"
        )


if __name__ == "__main__":
    main()
