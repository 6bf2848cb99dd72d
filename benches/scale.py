"""One namespace of many memories, end to end: ingest, search, reopen, memory. Prints what README quotes.

    python benches/scale.py [--memories 100000] [--json]

Each part runs in a process of its own, so that its peak memory is its own. Texts are made up (benches/corpus.py).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH = 1_000
QUERIES = 400


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def ingest(store: str, memories: int) -> dict[str, float]:
    """Ingest in batches, until everything is durable and both legs find the last memory."""
    from corpus import texts

    import jiyi

    jiyi.warmup()
    batches = list(texts(memories))
    batches = [batches[start : start + BATCH] for start in range(0, memories, BATCH)]
    start = time.perf_counter()
    with jiyi.open(store) as engine:
        for number, batch in enumerate(batches):
            engine.add_many([{"text": text, "session": f"s{number}"} for text in batch])
        durable_s = time.perf_counter() - start
        hits = engine.search(batches[-1][-1], k=5)
        searchable_s = time.perf_counter() - start
        found = batches[-1][-1] in [hit.memory.text for hit in hits]
        figures = _search_ms(engine)
    return {
        "ingest_durable_s": durable_s,
        "ingest_searchable_s": searchable_s,
        "last_memory_found": float(found),
        **figures,
        "ingest_peak_mb": _peak_mb(),
    }


def _search_ms(engine: Any) -> dict[str, float]:
    import numpy as np
    from corpus import queries

    times = []
    for query in queries(QUERIES + 50):
        start = time.perf_counter()
        engine.search(query, k=5)
        times.append((time.perf_counter() - start) * 1000)
    warm = times[50:]
    return {f"search_p{share}_ms": float(np.quantile(warm, share / 100)) for share in (50, 95, 99)}


def reopen(store: str, memories: int) -> dict[str, float]:
    """Open the store in a fresh process and answer one query, kernels compiled before."""
    from corpus import queries

    query = next(queries(1))
    start = time.perf_counter()
    import jiyi

    imported_s = time.perf_counter() - start
    with jiyi.open(store) as engine:
        engine.search(query, k=5)
        first_s = time.perf_counter() - start
    return {"import_s": imported_s, "import_reopen_and_first_search_s": first_s, "reopen_peak_mb": _peak_mb()}


PARTS: dict[str, Callable[[str, int], dict[str, float]]] = {"ingest": ingest, "reopen": reopen}


def main() -> None:
    """Run every part in a process of its own and print what it measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(PARTS[arguments.part](arguments.store, arguments.memories)))
        return
    figures: dict[str, float] = {"memories": arguments.memories}
    with tempfile.TemporaryDirectory() as folder:
        for part in PARTS:
            command = [sys.executable, str(Path(__file__).resolve()), "--part", part, "--store", folder]
            command += ["--memories", str(arguments.memories)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            figures |= json.loads(done.stdout)
    if arguments.json:
        print(json.dumps(figures, indent=1))
    else:
        for name, value in figures.items():
            print(f"{name:36s}{value:12.2f}")


if __name__ == "__main__":
    main()
