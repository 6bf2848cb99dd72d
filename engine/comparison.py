"""How the answers of one generation of the columns differ from those of another, over a sample of queries."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from jiyi.config import SearchConfig
from jiyi.hits import Hits
from jiyi.ledger import Ledger, key_range
from jiyi.memory import checked_name
from jiyi.quoted import quoted
from jiyi.reindex_events import Comparison
from jiyi.search import Settings, search
from jiyi.spaces import exact_namespace
from jiyi.store import Store

_K: Final = 10
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")
_LONGEST: Final = 200
_SHOWN: Final = 80
_LEAST: Final = 5


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """A query of the sample."""

    text: str
    namespace: str | None
    """None: the one that holds most memories."""
    own: str | None = None
    """The id of the memory that it is the beginning of."""


def checked_queries(queries: Sequence[str | Mapping[str, Any]] | None) -> tuple[SampleQuery, ...] | None:
    """Return queries that were given, checked.

    Raises:
        TypeError, ValueError: one is neither a text nor a mapping with a query and a namespace, or there are none.
    """
    if queries is None:
        return None
    if isinstance(queries, str | bytes | Mapping):
        raise TypeError(f"queries must be a list of queries, got one {type(queries).__name__}")
    checked: list[SampleQuery] = []
    for i, query in enumerate(queries):
        text: object = query.get("query") if isinstance(query, Mapping) else query
        namespace = query.get("namespace") if isinstance(query, Mapping) else None
        if not isinstance(text, str):
            raise TypeError(
                f'query {i} must be a text, or a mapping such as {{"query": "…", "namespace": "…"}}, got '
                f"{quoted(query)}"
            )
        checked.append(SampleQuery(text, None if namespace is None else checked_name(namespace, "namespace")))
    if not checked:
        raise ValueError("queries is empty; leave it out to ask what stored memories begin with")
    return tuple(checked)


def stored_queries(ledger: Ledger, count: int) -> tuple[SampleQuery, ...]:
    """Return the first sentences of memories, drawn over all namespaces: the same of the same store."""
    spaces = ledger.namespaces()
    if not spaces or count == 0:
        return ()
    drawn = random.Random(0)
    names = drawn.choices([name for name, _ in spaces], weights=[held for _, held in spaces], k=count)
    found: dict[int, SampleQuery] = {}
    for name in names:
        number = ledger.namespace_number(name)
        if number is None:
            continue
        first, last = key_range(number)
        with ledger.reading() as connection:
            query = "SELECT min(key), max(key) FROM memories WHERE key BETWEEN ? AND ?"
            low, high = connection.execute(query, (first, last)).fetchone()
            if low is None:
                continue
            query = "SELECT key, id, text FROM memories WHERE key >= ? ORDER BY key LIMIT 1"
            key, memory_id, text = connection.execute(query, (drawn.randint(low, high),)).fetchone()
        sentence = next((part.strip() for part in _SENTENCE.split(text) if part.strip()), "")[:_LONGEST]
        if sentence:
            found[key] = SampleQuery(sentence, name, memory_id)
    return tuple(sorted(found.values(), key=lambda query: query.namespace or ""))


def compare(
    old: Store, new: Store, queries: Sequence[SampleQuery], config: SearchConfig, now_s: float, *, given: bool
) -> Comparison:
    """Ask two generations the same, without rerankers, and return how their answers differ.

    Args:
        old, new: the stores to ask.
        queries: at least one.
        config: of the searches.
        now_s: their moment, in epoch seconds.
        given: whether the queries were given by the caller.
    """
    config = replace(config, rerank=())
    spaces = new.ledger.namespaces()
    largest = max(spaces, key=lambda space: space[1])[0] if spaces else "default"
    overlaps: list[float] = []
    same_first: list[bool] = []
    shifts: list[float] = []
    for query in queries:
        name = exact_namespace(query.namespace or largest)
        settings = Settings(name, _K + (query.own is not None), None, now_s, None, None, None, config)
        then, now = (_best(search(store, query.text, settings), query.own) for store in (old, new))
        longer = max(len(then), len(now))
        overlaps.append(len(then.keys() & now.keys()) / longer if longer else 1.0)
        same_first.append(next(iter(then), None) == next(iter(now), None))
        shifts.extend(now[each] - then[each] for each in then if each in now)
    order = sorted(range(len(queries)), key=lambda i: (overlaps[i], i))[:_LEAST]
    return Comparison(
        queries=len(queries),
        source="given" if given else "stored",
        overlap_at_10=sum(overlaps) / len(overlaps),
        same_first=sum(same_first) / len(same_first),
        score_shift=sum(shifts) / len(shifts) if shifts else 0.0,
        score_shift_abs=sum(map(abs, shifts)) / len(shifts) if shifts else 0.0,
        least=tuple((queries[i].text[:_SHOWN], overlaps[i]) for i in order),
    )


def _best(hits: Hits, own: str | None) -> dict[str, float]:
    """The score of the ten best by id, best first, without the one that the query is of."""
    scores = {memory_id: score for memory_id, score in zip(hits.ids, hits.scores, strict=True) if memory_id != own}
    return dict(list(scores.items())[:_K])
