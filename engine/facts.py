"""The facts of a namespace: looked up by subject, predicate and object, and followed from entity to entity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Degraded
from jiyi.fact_graph import Facts
from jiyi.ledger import LABEL_BITS, LABEL_MASK
from jiyi.memory import Memory, checked_name
from jiyi.partition import Partition, View
from jiyi.quoted import quoted
from jiyi.store import Store

Ints = NDArray[np.int64]
Found = TypeVar("Found")

MOST_HOPS: Final = 3
# Facts between the same two entities that a neighbour shows; `facts(subject=…, object=…)` has them all.
_MOST_BETWEEN: Final = 10
# A memory can vanish between the view and the ledger when another thread deletes it; then it is done again.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Neighbor:
    """An entity that facts lead to."""

    entity: str
    """As the latest fact on the way spells it."""
    distance: int
    """How many steps away, from 1."""
    facts: tuple[Memory, ...]
    """A shortest way there: for each step the facts between its two entities (of many the 10 latest), oldest first."""


class Answer(list[Found]):
    """What was found, as a list; equal to any list of the same.

    Attributes:
        degraded: what is not in it and why: memories that are damaged. Empty when nothing is known to be missing.
    """

    def __init__(self, found: Iterable[Found] = (), degraded: Sequence[Degraded] = ()) -> None:
        super().__init__(found)
        self.degraded: tuple[Degraded, ...] = tuple(degraded)


@dataclass(frozen=True, slots=True)
class FactQuery:
    """Whose facts, and which of them count. Checked already."""

    namespace: str
    now_s: float
    as_of_s: float | None
    history: bool = False
    """Superseded ones too."""

    def counting(self, facts: Facts, view: View) -> NDArray[np.bool_]:
        """Return which facts of the graph count: of the view, live, current and not expired. Shape (f,)."""
        allowed = view.recallable(self.now_s)
        if self.history:
            allowed = view.live & (view.expires_s > self.now_s)
        known = facts.rows < view.n
        known[known] = allowed[facts.rows[known]] == 1
        return known


def checked_entity(value: object, what: str) -> str:
    """Return the name of an entity or a predicate, or say what is wrong with it."""
    name = checked_name(value, what)
    if not name.strip():
        raise ValueError(f"{what} is nothing but white space; give it at least one character")
    return name


def checked_hops(hops: object) -> int:
    """Return how many steps are taken, or say what is allowed."""
    if isinstance(hops, bool) or not isinstance(hops, int | np.integer):
        raise TypeError(f"hops must be a whole number from 1 to {MOST_HOPS}, got {quoted(hops)}")
    if not 1 <= hops <= MOST_HOPS:
        raise ValueError(f"hops is {quoted(int(hops))}; it must be from 1 to {MOST_HOPS}")
    return int(hops)


def graph_of(store: Store, partition: Partition) -> Facts | None:
    """Return the graph of a namespace with every fact of its current view; None when it has none.

    What is new since the last call is read from the ledger.
    """
    view = partition.view
    if view.facts is None:
        return None
    graph = partition.graph
    with graph.lock:
        if graph.n < view.n:
            new = np.flatnonzero((view.facts[graph.n :] != 0) & (view.live[graph.n :] == 1)) + graph.n
            base = partition.namespace << LABEL_BITS
            stated = store.ledger.stated((view.labels[new] | base).tolist())
            labels = np.array([key for key, *_ in stated], dtype=np.int64) & LABEL_MASK
            rows = np.searchsorted(view.labels, labels).tolist()
            graph.extend([(row, s, p, o) for row, (_, s, p, o) in zip(rows, stated, strict=True)], view.n)
        return graph.facts()


def find_facts(
    store: Store, query: FactQuery, subject: str | None, predicate: str | None, object: str | None, limit: int | None
) -> Answer[Memory]:
    """Return facts by what they state; see `Engine.facts`."""

    def pick(facts: Facts, view: View) -> tuple[Ints, _Assemble[Memory]]:
        rows = facts.rows[facts.matching(subject, predicate, object) & query.counting(facts, view)]
        rows = rows[np.lexsort((rows, view.timestamps_s[rows]))][:limit]
        return rows, lambda memories: [memories[row] for row in rows.tolist() if row in memories]

    return _answered(store, query, pick)


def find_neighbors(store: Store, query: FactQuery, entity: str, hops: int, limit: int | None) -> Answer[Neighbor]:
    """Return the entities that facts lead to; see `Engine.neighbors`."""

    def pick(facts: Facts, view: View) -> tuple[Ints, _Assemble[Neighbor]]:
        start = facts.entity(entity)
        steps = {} if start < 0 else _walk(facts, view, query.counting(facts, view), start, hops, limit)
        wanted = sorted({row for step in steps.values() for row in step.rows})
        return np.array(wanted, dtype=np.int64), lambda memories: _neighbors(steps, memories)

    return _answered(store, query, pick)


_Assemble = Callable[[dict[int, Memory]], list[Found]]


def _answered(
    store: Store, query: FactQuery, pick: Callable[[Facts, View], tuple[Ints, _Assemble[Found]]]
) -> Answer[Found]:
    """Pick rows of the graph, fetch their memories, and make the answer of them.

    Those that are damaged are left out, as searches do, and named.
    """
    found: list[Found] = []
    for _ in range(_ATTEMPTS):
        partition = store.partition(query.namespace)
        if partition is None:
            break
        view = partition.view
        facts = graph_of(store, partition)
        if facts is None or view.facts is None:
            break
        if query.as_of_s is not None:
            view = view.as_of(query.as_of_s)
        rows, assemble = pick(facts, view)
        base = partition.namespace << LABEL_BITS
        keys = (view.labels[rows] | base).tolist()
        by_key = store.memories(keys, query.namespace)
        found = assemble({row: by_key[key] for row, key in zip(rows.tolist(), keys, strict=True) if key in by_key})
        if len(by_key) == len(keys):
            break
        store.wait_for_writer()
    return Answer(found, [Degraded("recall", reason) for reason in store.left_out([query.namespace])])


@dataclass(frozen=True, slots=True)
class _Step:
    """How an entity was reached."""

    distance: int
    parent: int
    rows: list[int]
    """Of the facts between it and its parent, oldest first."""
    is_object: bool
    """Whether the latest of them has it as its object."""


def _walk(
    facts: Facts, view: View, counts: NDArray[np.bool_], start: int, hops: int, limit: int | None
) -> dict[int, _Step]:
    """Breadth first, both ways along each fact; of entities equally near first the one whose fact is the latest."""
    rows, subjects, objects = facts.rows[counts], facts.subjects[counts], facts.objects[counts]
    latest_first = np.lexsort((rows, view.timestamps_s[rows]))[::-1]
    rows, subjects, objects = rows[latest_first], subjects[latest_first], objects[latest_first]
    reached = np.zeros(facts.n_entities, dtype=bool)
    reached[start] = True
    frontier = reached.copy()
    steps: dict[int, _Step] = {}
    for distance in range(1, hops + 1):
        forward = frontier[subjects] & ~reached[objects]
        edges = np.flatnonzero(forward | (frontier[objects] & ~reached[subjects]))
        ahead = forward[edges]
        to = np.where(ahead, objects[edges], subjects[edges])
        near = np.where(ahead, subjects[edges], objects[edges])
        entities, first = np.unique(to, return_index=True)
        in_order = np.argsort(first)[: None if limit is None else limit - len(steps)]
        parents = np.full(facts.n_entities, -1, dtype=np.int64)
        parents[entities[in_order]] = near[first[in_order]]
        on_the_way = np.flatnonzero(parents[to] == near)
        between = _grouped(to[on_the_way], rows[edges[on_the_way]])
        for i in in_order.tolist():
            entity = int(entities[i])
            parent, is_object = int(near[first[i]]), bool(ahead[first[i]])
            steps[entity] = _Step(distance, parent, between[entity][::-1], is_object)
        frontier = parents >= 0
        reached |= frontier
        if not frontier.any() or len(steps) == limit:
            break
    return steps


def _grouped(entities: Ints, rows: Ints) -> dict[int, list[int]]:
    """The first rows of each entity, in order."""
    order = np.argsort(entities, kind="stable")
    entities, rows = entities[order], rows[order]
    starts = np.flatnonzero(np.r_[True, entities[1:] != entities[:-1]]) if len(entities) else entities
    ends = [*starts[1:].tolist(), len(entities)]
    return {
        int(entities[start]): rows[start : min(end, start + _MOST_BETWEEN)].tolist()
        for start, end in zip(starts.tolist(), ends, strict=False)
    }


def _neighbors(steps: dict[int, _Step], memories: dict[int, Memory]) -> list[Neighbor]:
    found: list[Neighbor] = []
    for step in steps.values():
        way: list[list[int]] = []
        at: _Step | None = step
        while at is not None:
            way.append(at.rows)
            at = steps.get(at.parent)
        if any(row not in memories for rows in way for row in rows):
            continue  # deleted meanwhile
        told = [[memories[row] for row in rows] for rows in reversed(way)]
        latest = told[-1][-1]
        name = latest.object if step.is_object else latest.subject
        found.append(Neighbor(str(name), step.distance, tuple(memory for part in told for memory in part)))
    return found
