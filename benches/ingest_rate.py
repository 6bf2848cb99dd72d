"""Files into a store: memories a second by stage and for the whole, from JSON lines and Parquet, and how it answers.

    python benches/ingest_rate.py [--memories 100000] [--namespaces 1] [--format parquet] [--index] [--json]

Stages are timed one by one, in one thread, over the first 20,000 rows; the whole is `IngestJob`, in a process of its
own, so that its peak memory is its own, until every memory is durable and the last one is found. Then the same file
again (nothing changes), and searches, before indexes are built unless --index. Texts are made up (benches/corpus.py).
Needs pyarrow: the extra `files`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

STAGED_ROWS = 20_000
QUERIES = 200
WARM = 40


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _records(memories: int, namespaces: int) -> Iterator[dict[str, Any]]:
    from corpus import texts

    for i, text in enumerate(texts(memories)):
        yield {
            "id": f"m{i:08d}",
            "namespace": f"user/{i % namespaces}",
            "timestamp": 1.7e9 + i,
            "text": text,
            "session": f"s{i // 20}",
            "metadata": {"turn": i % 20},
        }


def make(path: Path, memories: int, namespaces: int) -> None:
    """Write the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    records = _records(memories, namespaces)
    if path.suffix == ".jsonl":
        with path.open("w", encoding="utf-8") as out:
            for record in records:
                out.write(json.dumps(record, ensure_ascii=False) + "\n")
        return
    text = pa.string()
    fields = {"id": text, "namespace": text, "timestamp": pa.timestamp("us", "UTC"), "text": text, "session": text}
    schema = pa.schema([*fields.items(), ("metadata", text)])
    with pq.ParquetWriter(path, schema) as out:
        while part := list(islice(records, 50_000)):
            columns: list[Any] = [[record[name] for record in part] for name in schema.names]
            columns[2] = [round(each * 1e6) for each in columns[2]]
            columns[5] = [json.dumps(each) for each in columns[5]]
            out.write_table(pa.table(columns, schema=schema))


def stages(path: Path, store: Path) -> dict[str, float]:
    """Time each stage over the first rows, µs a row."""
    import jiyi
    from jiyi.files.checkpoints import Position
    from jiyi.files.columnar import columnar_batches
    from jiyi.files.known import known
    from jiyi.files.lines import line_batches
    from jiyi.files.rows import Intake
    from jiyi.files.sources import find_sources
    from jiyi.files.streams import opened

    jiyi.warmup()
    figures: dict[str, float] = {}
    rows = 0

    def timed(stage: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        made = work()
        figures[f"{stage}_us"] = (time.perf_counter() - start) / max(rows, 1) * 1e6
        return made

    source = find_sources([path])[0][0]

    def read() -> list[Any]:
        with opened(source, None) as file:
            batches = (line_batches if file.format == "jsonl" else columnar_batches)(
                source, file, Intake(None, None), Position()
            )
            return list(islice(batches, STAGED_ROWS // 2_000))

    rows = sum(len(batch.memories) for batch in read())
    with jiyi.open(store) as engine:
        held = engine._store
        held.analysed([], [])
        batches = timed("read_and_parse", read)
        timed("known", lambda: [known(held, b.memories, b.vectors, b.dated) for b in batches])
        [held.analysed(b.memories, b.vectors) for b in batches[:1]]
        made = timed("analyse", lambda: [held.analysed(b.memories, b.vectors) for b in batches])
        timed(
            "write",
            lambda: [held.write(b.memories, b.vectors, analysed=a) for b, a in zip(batches, made, strict=True)],
        )
    return figures


def whole(path: Path, store: Path, namespaces: int, *, index: bool) -> dict[str, float]:
    """Ingest the file, search, ingest it again."""
    import numpy as np
    from corpus import queries

    import jiyi
    from jiyi.ingest import ingest_files

    jiyi.warmup()
    start = time.perf_counter()
    with jiyi.open(store, memory_budget_mb=4_096) as engine:
        done = ingest_files(engine, path)
        durable_s = time.perf_counter() - start
        figures = {"memories": float(done.stored), "durable_s": durable_s, "per_second": done.stored / durable_s}
        figures["ingest_peak_mb"] = _peak_mb()
        last = engine.get(f"m{done.stored - 1:08d}", namespace=f"user/{(done.stored - 1) % namespaces}")
        start = time.perf_counter()
        found = last.id in engine.search(last.text, namespace=last.namespace, k=5).ids
        figures["first_search_s"] = time.perf_counter() - start
        figures["last_found"] = float(found)
        figures["searchable_per_second"] = done.stored / (durable_s + figures["first_search_s"])
        if index:
            start = time.perf_counter()
            engine.flush()
            figures["index_s"] = time.perf_counter() - start
        asked = list(queries(QUERIES + WARM))
        took = []
        for i, query in enumerate(asked):
            namespace = f"user/{i % min(namespaces, WARM)}"  # those that are in memory after the first round
            start = time.perf_counter()
            engine.search(query, namespace=namespace, k=5)
            took.append((time.perf_counter() - start) * 1e3)
        for share in (50, 95):
            figures[f"search_p{share}_ms"] = float(np.quantile(took[WARM:], share / 100))
        figures["peak_mb"] = _peak_mb()
    return figures


def again(path: Path, store: Path) -> dict[str, float]:
    """Ingest the same file a second time."""
    import jiyi
    from jiyi.ingest import ingest_files

    with jiyi.open(store) as engine:
        start = time.perf_counter()
        done = ingest_files(engine, path)
        return {"again_per_second": done.unchanged / (time.perf_counter() - start), "again_peak_mb": _peak_mb()}


def main() -> None:
    """Run every part in a process of its own and print what it measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--namespaces", type=int, default=1)
    parser.add_argument("--format", choices=("parquet", "jsonl"), default="parquet")
    parser.add_argument("--index", action="store_true", help="build the indexes before the searches")
    parser.add_argument("--no-again", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        part, folder = args.part[0], Path(args.part[1])
        path = folder / f"m.{args.format}"
        if part == "make":
            make(path, args.memories, args.namespaces)
            figures: dict[str, float] = {}
        elif part == "stages":
            figures = stages(path, folder / "staged")
        elif part == "whole":
            figures = whole(path, folder / "store", args.namespaces, index=args.index)
        else:
            figures = again(path, folder / "store")
        print(json.dumps(figures))
        return
    figures = {}
    with tempfile.TemporaryDirectory() as folder_name:
        for part in ("make", "stages", "whole", *(() if args.no_again else ("again",))):
            command = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--part", part, folder_name]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            figures |= json.loads(done.stdout)
    if args.json:
        print(json.dumps(figures, indent=1))
    else:
        for name, value in figures.items():
            print(f"{name:26s}{value:14.2f}")


if __name__ == "__main__":
    main()
