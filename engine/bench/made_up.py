"""Stores of made-up memories to measure, and queries for a store that is there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

from jiyi.bench.corpus import texts
from jiyi.engine import Engine
from jiyi.text import is_run, segments

_BATCH = 1_000
# As long as questions are.
_QUERY_WORDS = 8
_QUERY_CHARACTERS = 12


def fill(engine: Engine, memories: int) -> float:
    """Add so many made-up memories, in sessions of a thousand; return how many a second were searchable."""
    batches = texts(memories)
    start = time.perf_counter()
    number = 0
    while batch := list(islice(batches, _BATCH)):
        engine.add_many([{"text": text, "session": f"s{number}"} for text in batch])
        number += 1
    engine.search("", k=1)  # the namespace is in memory, whatever was left to do
    return memories / (time.perf_counter() - start)


def queries_from(engine: Engine, namespace: str, count: int) -> list[str]:
    """Return the beginnings of memories, evenly picked, as queries: always the same for the same store."""
    total = engine.count(namespace=namespace)
    step = max(total // max(count, 1), 1)
    picked = islice(iter(engine.list(namespace=namespace)), 0, None, step)
    return [query for query in islice((_beginning(memory.text) for memory in picked), count) if query]


def _beginning(text: str) -> str:
    return " ".join(_words(text))


def _words(text: str) -> Iterator[str]:
    for segment in islice(segments(text), _QUERY_WORDS):
        yield segment[:_QUERY_CHARACTERS] if is_run(segment) else segment
