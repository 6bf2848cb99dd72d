"""Kills a reindex again and again, by kill -9, and holds what comes of it against an uninterrupted one.

    python -m tests.engine.reindex_kills --store DIR [--memories N] [--kills N] [--embedder NAME] [--at random]

Each try runs in a forked child of this warm process. With `--at steps` (the default) the child kills itself before or
after one of its next few transactions; with `--at random` it is killed after a random time. Before the switch the store
must answer as it did, to the bit, after it as the uninterrupted one; so must it go back, killed as well.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jiyi
from jiyi.ledger import FILE_NAME, Ledger
from jiyi.models.registry import load_embedder
from tests.engine.embedders import HashEmbedder

QUERIES = ("tea and rain", "徒步 记忆", "number 17", "chess in Oslo")
WORDS = ("tea", "chess", "rain", "Oslo", "徒步", "记忆", "night", "train", "apple", "music")
NOW = "2030-01-01"


def text_of(i: int) -> str:
    """The i-th memory's text."""
    words = random.Random(i).choices(WORDS, k=6)
    return f"{' '.join(words)} number {i}"


def answers(folder: Path, embedder: Any) -> list[Any]:
    """What the store answers, from a read-only engine."""
    found = []
    with jiyi.open(folder, embedder=embedder, read_only=True) as engine:
        for namespace in engine.namespaces():
            for query in QUERIES:
                hits = engine.search(query, namespace=namespace, k=10, now=NOW)
                found.append((namespace, hits.ids, hits.scores, [d.stage for d in hits.degraded]))
    return found


def content(folder: Path) -> str:
    """A digest of every memory and of the columns that serve."""
    digest = hashlib.sha256()
    connection = sqlite3.connect(folder / FILE_NAME)
    for table in ("memories", "columns"):
        for row in connection.execute(f"SELECT * FROM {table} ORDER BY key"):
            digest.update(repr(row).encode())
    connection.close()
    return digest.hexdigest()


def generation(folder: Path) -> int:
    """The number of the generation that serves."""
    connection = sqlite3.connect(folder / FILE_NAME)
    found = connection.execute("SELECT value FROM manifest WHERE key = 'generation'").fetchone()
    connection.close()
    return 0 if found is None else int(found[0])


def killed(work: Callable[[], None], steps: int | None, before: bool, seconds: float | None) -> bool:
    """Run work in a child that is killed; return whether it ended before that."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            if steps is not None:
                _kill_at(steps, before)
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(3)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0, "the reindex failed"
    return True


def _kill_at(step: int, before: bool) -> None:
    """Let this process kill itself in its step-th transaction of a reindex, before it is committed or after."""
    changing = Ledger.changing
    count = 0

    @contextmanager
    def counted(self: Ledger) -> Iterator[sqlite3.Connection]:
        nonlocal count
        count += 1
        with changing(self) as connection:
            yield connection
            if count == step and before:
                os.kill(os.getpid(), signal.SIGKILL)
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)

    Ledger.changing = counted  # type: ignore[method-assign]


def main() -> None:
    """Run the kills; exit code 0 if everything held."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--memories", type=int, default=240)
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--embedder", help="by name; small pseudo-random ones when left out")
    parser.add_argument("--at", choices=("steps", "random"), default="steps")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    old: Any = HashEmbedder(16, "old")
    new: Any = HashEmbedder(24, "new") if args.embedder is None else load_embedder(args.embedder)
    folder, whole = args.store / "killed", args.store / "whole"
    if args.embedder is not None:
        old = None  # vectors come with the memories: a quick start
    with jiyi.open(folder, embedder=old) as engine:
        for start in range(0, args.memories, 2_000):
            part = range(start, min(start + 2_000, args.memories))
            records = [{"text": text_of(i), "id": f"m{i}", "namespace": f"n{i % 3}"} for i in part]
            vectors = None if old is not None else [[float(i % 7), 1.0, float(i % 11)] for i in part]
            engine.add_many(records, vectors=vectors)
    before = answers(folder, old), content(folder)
    shutil.copytree(folder, whole)
    started = time.perf_counter()
    with jiyi.open(whole, embedder=old) as engine:
        report = engine.reindex(new, batch_size=args.batch_size, keep=True)
        assert report.switched
        assert report.embedded == args.memories
    seconds = time.perf_counter() - started
    after = answers(whole, new), content(whole)

    def reindex() -> None:
        with jiyi.open(folder, embedder=old) as engine:
            engine.reindex(new, batch_size=args.batch_size, keep=True)

    def go_back() -> None:
        with jiyi.open(folder, embedder=new) as engine:
            engine.rollback(old, keep=True)

    def attempt(work: Callable[[], None]) -> bool:
        at_steps = args.at == "steps"
        steps = rng.randint(1, 5) if at_steps else None
        return killed(work, steps, rng.random() < 0.5, None if at_steps else rng.uniform(0.05, 1.0) * seconds / 4)

    first, kills, at_switch = generation(folder), 0, 0
    while kills < args.kills:
        ended = attempt(reindex)
        kills += not ended
        switched = generation(folder) != first
        got = answers(folder, new if switched else old)
        assert got == (after[0] if switched else before[0]), f"kill {kills}: answers differ (switched: {switched})"
        at_switch += switched
        if switched:
            break
    if generation(folder) == first:
        reindex()
    assert answers(folder, new) == after[0], "the answers differ from an uninterrupted run's"
    assert content(folder) == after[1], "the rows differ from an uninterrupted run's"
    with jiyi.open(folder, embedder=new) as engine:
        assert engine.verify() == []
    while generation(folder) != first:
        kills += not attempt(go_back)
        back = generation(folder) == first
        assert answers(folder, old if back else new) == (before[0] if back else after[0])
    assert (answers(folder, old), content(folder)) == before, "not what was before"
    while kills < args.kills:  # and forth again, until there were enough
        ended = attempt(lambda: _to_and_fro(folder, old, new))
        kills += not ended
        back = generation(folder) == first
        assert answers(folder, old if back else new) == (before[0] if back else after[0])
        assert content(folder) == (before[1] if back else after[1])
    print(f"{kills} kills; {args.memories} memories, {seconds:.1f} s uninterrupted; every answer and row held")


def _to_and_fro(folder: Path, old: Any, new: Any) -> None:
    for _ in range(2):
        at_old = generation(folder) == 0
        with jiyi.open(folder, embedder=old if at_old else new) as engine:
            engine.rollback(new if at_old else old, keep=True)


if __name__ == "__main__":
    main()
