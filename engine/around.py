"""The turns around memories: what was said right before and after them in their sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jiyi.ledger import LABEL_BITS, LABEL_MASK
from jiyi.memory import Memory
from jiyi.quoted import quoted

if TYPE_CHECKING:
    from jiyi.candidates import Ints
    from jiyi.partition import View
    from jiyi.pipeline.several import Home
    from jiyi.store import Store

_MOST_TURNS: Final = 20


class Around(NamedTuple):
    """What stands around one hit, oldest first."""

    before: tuple[Memory, ...] = ()
    after: tuple[Memory, ...] = ()


def checked_neighbors(value: object) -> int:
    """Return how many turns are wanted on each side, or say what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"neighbors must be a whole number from 0 to {_MOST_TURNS}, got {type(value).__name__}")
    if not 0 <= value <= _MOST_TURNS:
        raise ValueError(f"neighbors is {quoted(int(value))}; it must be from 0 (none) to {_MOST_TURNS}")
    return value


def turns_around(
    store: Store,
    hits: Sequence[tuple[Home, int]],
    view_of: Callable[[str], View | None],
    *,
    count: int,
    now_s: float,
    besides: Collection[int] = (),
) -> list[Around]:
    """Return the turns around each hit, each memory once.

    A hit is not repeated around another, and a turn between two hits goes to the better.

    Args:
        store: that holds them.
        hits: namespace and label of each, best first.
        view_of: returns a namespace as the search sees it; None for one that is gone.
        count: how many live, current and unexpired turns to look at on each side, from 1. Those that stand somewhere
            else in the answer count among them.
        now_s: the moment that expiry counts from.
        besides: keys of other memories that are in the answer, and are not repeated either.

    One read a namespace, of at most 2 · count · hits memories.
    """
    taken = {number << LABEL_BITS | label for (number, _), label in hits}.union(besides)
    keys: list[tuple[list[int], list[int]]] = []
    wanted: dict[str, list[int]] = {}
    seen: dict[str, tuple[View, NDArray[np.uint8]] | None] = {}
    for (number, name), label in hits:
        if name not in seen:
            view = view_of(name)
            seen[name] = None if view is None else (view, view.recallable(now_s))
        here = seen[name]
        rows = np.empty(0, dtype=np.int64) if here is None else here[0].rows_of_labels(np.array([label]))
        if here is None or len(rows) == 0:  # deleted since
            keys.append(([], []))
            continue
        view, recallable = here
        sides: list[list[int]] = []
        for links in (view.previous, view.next):
            found = view.labels[_walk(links, int(rows[0]), recallable, count)] | number << LABEL_BITS
            sides.append([key for key in found.tolist() if key not in taken])
            taken.update(sides[-1])
        keys.append((sides[0][::-1], sides[1]))
        wanted.setdefault(name, []).extend(sides[0] + sides[1])
    memories: dict[int, Memory] = {}
    for name, of_name in wanted.items():
        memories |= store.memories(of_name, name)
    return [
        Around(
            tuple(memories[key] for key in before if key in memories),
            tuple(memories[key] for key in after if key in memories),
        )
        for before, after in keys
    ]


def views_of(store: Store, as_of_s: float | None) -> Callable[[str], View | None]:
    """Return what looks a namespace up as it is by now, or as it stood at a moment."""

    def view_of(name: str) -> View | None:
        partition = store.partition(name)
        if partition is None:
            return None
        return partition.view if as_of_s is None else partition.view.as_of(as_of_s)

    return view_of


def turns_around_memories(
    store: Store,
    memories: Sequence[Memory],
    others: Sequence[Memory],
    *,
    count: int,
    now_s: float,
    as_of_s: float | None,
) -> list[Around]:
    """Return the turns around each memory, without those that are among the memories or the others themselves."""
    keys: dict[tuple[str, str], int] = {}
    for memory in (*memories, *others):
        found = store.ledger.find(memory.namespace, memory.id)
        if found is not None:
            keys[memory.namespace, memory.id] = found[0]
    known = [memory for memory in memories if (memory.namespace, memory.id) in keys]
    hits: list[tuple[Home, int]] = []
    for memory in known:
        key = keys[memory.namespace, memory.id]
        hits.append(((key >> LABEL_BITS, memory.namespace), key & LABEL_MASK))
    around = turns_around(store, hits, views_of(store, as_of_s), count=count, now_s=now_s, besides=keys.values())
    by_memory = {(memory.namespace, memory.id): turns for memory, turns in zip(known, around, strict=True)}
    return [by_memory.get((memory.namespace, memory.id), Around()) for memory in memories]


def _walk(links: Ints, row: int, recallable: NDArray[np.uint8], count: int) -> list[int]:
    """Rows that a search may return, from a row on along the links of its session, nearest first."""
    found: list[int] = []
    row = int(links[row])
    # Only the ends of a session are ever linked in place: a row that this view does not have ends it.
    while 0 <= row < len(links) and len(found) < count:
        if recallable[row]:
            found.append(row)
        row = int(links[row])
    return found
