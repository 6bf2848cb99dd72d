"""Where the time of ingesting goes: µs a memory by stage, batches and single adds a second, first search after a load.

    python benches/ingest_stages.py [--memories 20000] [--batch 1000] [--repeats 3] [--json]

Medians over the repeats. Stages are timed one by one, in one thread, on the same made-up texts (benches/corpus.py); the
whole call beside them is `add_many` on a folder of its own. Kernels are compiled before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

SINGLES = 4_000

Figures = dict[str, list[float]]


@contextmanager
def _timed(figures: Figures, stage: str, count: int) -> Iterator[None]:
    start = time.perf_counter()
    yield
    figures.setdefault(stage, []).append((time.perf_counter() - start) / count * 1e6)


def stages(records: list[list[dict[str, Any]]], figures: Figures) -> None:
    """Time what `add_many` does, step by step."""
    from jiyi.analysis import analyse, spoken
    from jiyi.ledger import Ledger, column_row
    from jiyi.memory import as_memory
    from jiyi.models.static import StaticEmbedder
    from jiyi.partition import Partition, rows_of
    from jiyi.terms import memory_terms

    table = StaticEmbedder.load()
    count = sum(map(len, records))
    with _timed(figures, "memories: checked, ids given", count):
        batches = [[as_memory(record) for record in batch] for batch in records]
    with _timed(figures, "terms: cut, stemmed, hashed", count):
        for batch in batches:
            memory_terms(batch)
    with _timed(figures, "tokens: rows of the table", count):
        cut = [table.token_rows([spoken(memory) for memory in batch]) for batch in batches]
    with _timed(figures, "vectors: means of rows", count):
        for indptr, rows in cut:
            table.embed_rows(indptr, rows)
    with _timed(figures, "analysis, whole", count):
        derived = [analyse(batch, [None] * len(batch), table, table) for batch in batches]
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder))
        written = []
        with _timed(figures, "ledger: rows, checksums, SQLite", count):
            for batch, made in zip(batches, derived, strict=True):
                written.append(ledger.put(batch, made, {}))
        partition = Partition(1, table.dim, 0)
        with _timed(figures, "partition: columns, codes, postings", count):
            for batch, made, done in zip(batches, derived, written, strict=True):
                rows = map(column_row, done.keys, batch, made)
                partition.apply(done.sequence, rows=rows_of(list(rows)), vectors=[[row.vector for row in made]])
        ledger.close()


def whole(records: list[list[dict[str, Any]]], figures: Figures, *, loaded: bool) -> None:
    """Time `add_many`, and the first search behind it, where the namespace was searched before (loaded) or not."""
    import jiyi

    count = sum(map(len, records))
    kept = "loaded" if loaded else "not loaded"
    with tempfile.TemporaryDirectory() as folder, jiyi.open(folder) as engine:
        if loaded:
            engine.add("the first one")
            engine.search("first")
        with _timed(figures, f"add_many, durable ({kept})", count):
            for batch in records:
                engine.add_many(batch)
        with _timed(figures, f"first search behind it, ms ({kept})", 1_000):
            engine.search(records[-1][-1]["text"])


def singles(texts: list[str], figures: Figures, *, loaded: bool) -> None:
    """Time durable single adds."""
    import jiyi

    with tempfile.TemporaryDirectory() as folder, jiyi.open(folder) as engine:
        engine.add_many(texts[: len(texts) // 4])
        if loaded:
            engine.search("first")
        rest = texts[len(texts) // 4 :]
        with _timed(figures, f"add, durable ({'loaded' if loaded else 'not loaded'})", len(rest)):
            for text in rest:
                engine.add(text, session="s")


def main() -> None:
    """Print the medians."""
    from corpus import texts

    import jiyi

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    jiyi.warmup()
    every = list(texts(arguments.memories))
    records = [
        [{"text": text, "session": f"s{start}"} for text in every[start : start + arguments.batch]]
        for start in range(0, len(every), arguments.batch)
    ]
    figures: Figures = {}
    parts: list[Callable[[], None]] = [
        lambda: stages(records, figures),
        lambda: whole(records, figures, loaded=False),
        lambda: whole(records, figures, loaded=True),
        lambda: singles(every[:SINGLES], figures, loaded=False),
        lambda: singles(every[:SINGLES], figures, loaded=True),
    ]
    for part in parts:
        part()  # fills the caches of words, as a process that has worked for a while has them
    figures.clear()
    for _ in range(arguments.repeats):
        for part in parts:
            part()
    medians = {stage: statistics.median(times) for stage, times in figures.items()}
    if arguments.json:
        print(json.dumps({stage: float(np.round(time_us, 2)) for stage, time_us in medians.items()}, indent=1))
        return
    print(f"{'µs a memory':44s}{'median':>10s}{'a second':>12s}")
    for stage, time_us in medians.items():
        print(f"{stage:44s}{time_us:10.1f}{'' if ' ms ' in stage else f'{1e6 / time_us:12.0f}'}")


if __name__ == "__main__":
    main()
