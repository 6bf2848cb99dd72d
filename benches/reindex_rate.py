"""How long a reindex takes against embedding alone, and how searches and adds fare meanwhile.

    python benches/reindex_rate.py [--memories 3000] [--embedder e5-small] [--part rate|live]

First the embedder alone, over the same texts in the best of a few batch sizes. Then a reindex of a store of the static
table, with nobody else there: the ratio of the two. Then another one, while one thread searches 20 times a
second and one adds twice a second: their p50 and p95, idle and during the job, the switch included.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from corpus import texts as made_up

import jiyi
from jiyi.models.protocols import Embedder
from jiyi.models.registry import load_embedder
from jiyi.reindex_events import CaughtUp, Compared, Done, Started

_PACES_S = {"search": 0.05, "add": 0.5}


class Load:
    """Searches and adds at an even pace, and how long each took."""

    def __init__(self, engine: jiyi.Engine, queries: list[str]) -> None:
        self._engine, self._queries = engine, queries
        self._done = threading.Event()
        self.took_ms: dict[str, list[float]] = {"search": [], "add": []}
        self._threads = [threading.Thread(target=self._loop, args=(name,)) for name in self.took_ms]

    def _loop(self, name: str) -> None:
        i = 0
        while not self._done.wait(_PACES_S[name]):
            text = self._queries[i % len(self._queries)]
            started = time.perf_counter()
            if name == "search":
                self._engine.search(text, namespace="n0", k=5)
            else:
                self._engine.add(f"{text} {i}", namespace="n1")
            self.took_ms[name].append(1000 * (time.perf_counter() - started))
            i += 1

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--memories", type=int, default=3_000)
    parser.add_argument("--embedder", default="e5-small")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--part", choices=("both", "rate", "live"), default="both")
    parser.add_argument("--idle-s", type=float, default=10.0)
    args = parser.parse_args()
    embedder = load_embedder(args.embedder)
    texts = list(made_up(args.memories))
    embedder.embed(texts[:64])
    if args.part != "live":
        rate(args, embedder, texts)
    if args.part != "rate":
        live(args, embedder, texts)


def rate(args: argparse.Namespace, embedder: Embedder, texts: list[str]) -> None:
    """A reindex against embedding alone."""
    alone: dict[int, float] = {}
    for size in sorted({256, 1_024, args.memories}):
        started = time.perf_counter()
        for start in range(0, len(texts), size):
            embedder.embed(texts[start : start + size])
        alone[size] = time.perf_counter() - started
    best = min(alone, key=lambda size: alone[size])
    print("embedding alone: " + ", ".join(f"{alone[size]:.1f} s in batches of {size}" for size in alone))
    with tempfile.TemporaryDirectory() as folder, jiyi.open(Path(folder) / "quiet") as engine:
        engine.add_many([{"text": text, "namespace": f"n{i % 2}"} for i, text in enumerate(texts)])
        engine.search(texts[0], namespace="n0")
        at: dict[type, float] = {}
        job = jiyi.ReindexJob(
            engine,
            embedder,
            batch_size=args.batch_size,
            on_event=lambda event: at.update({type(event): time.perf_counter()}),
        )
        report = job.run()
        built_s, compared_s = at[CaughtUp] - at[Started], at[Compared] - at[CaughtUp]
        print(
            f"built in {built_s:.1f} s, {built_s / alone[best]:.2f} times embedding alone in batches of {best}; "
            f"compared in {compared_s:.1f} s, switched and dropped in {at[Done] - at[Compared]:.1f} s"
        )
        print(
            f"reindex of {args.memories:,} memories: {report.seconds:.1f} s, {args.memories / report.seconds:,.0f}/s, "
            f"{report.seconds / alone[best]:.2f} times embedding alone"
        )


def live(args: argparse.Namespace, embedder: Embedder, texts: list[str]) -> None:
    """Searches and adds beside a reindex."""
    with tempfile.TemporaryDirectory() as folder, jiyi.open(Path(folder) / "live") as engine:
        engine.add_many([{"text": text, "namespace": f"n{i % 2}"} for i, text in enumerate(texts)])
        for text in texts[:50]:
            engine.search(text, namespace="n0")
        with Load(engine, texts[:200]) as idle:
            time.sleep(args.idle_s)
        with Load(engine, texts[:200]) as busy:
            report = engine.reindex(embedder, batch_size=args.batch_size)
        print(f"with searches and adds: {report.seconds:.1f} s, {report.embedded:,} embedded")
        for name in ("search", "add"):
            (p50, p95), (b50, b95) = (np.percentile(each.took_ms[name], (50, 95)) for each in (idle, busy))
            print(
                f"{name}: idle p50 {p50:.2f} ms, p95 {p95:.2f} ms; during p50 {b50:.2f} ms, p95 {b95:.2f} ms "
                f"({b95 / p95:.1f} times), longest {max(busy.took_ms[name]):.0f} ms, {len(busy.took_ms[name])} of them"
            )


if __name__ == "__main__":
    main()
