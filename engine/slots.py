"""The memories that have slots of their own in a context: who the user is, and how to do what is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jiyi.filters import Filter, Where, parse_where
from jiyi.ledger import LABEL_BITS, LABEL_MASK
from jiyi.memory import KINDS, Memory
from jiyi.partition import Partition, View
from jiyi.store import Store
from jiyi.topic import Related, in_common_with

# A procedure that has to do with the query may stand behind some that only sound like it.
_MORE_PROCEDURES: Final = 5
# More than there are slots, for those that do not fit the token budget.
_SPARE: Final = 1


class Slots(NamedTuple):
    """What may fill the slots, best first; no more archival memories than slots, but more procedures."""

    archival: list[Memory]
    procedures: list[Memory]


# Damaged memories are found one read after the other.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotQuery:
    """What the slots are filled for."""

    text: str
    namespaces: Sequence[str]
    where: Where | None
    now_s: float
    as_of_s: float | None
    archival_slots: int
    procedure_slots: int
    related: Related | None


def fill_slots(
    store: Store, query: SlotQuery, hits: Sequence[Memory], all_found: bool, search: Callable[..., Sequence[Memory]]
) -> Slots:
    """Choose archival memories and procedures for a query.

    Archival memories are taken in turn from those nearest to the query and those learnt last. Procedures are those
    nearest to the query that have something in common with it: a word of their title or of when to use them (of their
    text, without these), and not by chance.

    Args:
        store: where they are.
        query: what for.
        hits: what a search of all kinds has found, best first.
        all_found: whether it found everything that there is to find, so that no search of some kinds finds more.
        search: returns memories for `where` and `k`, best first. Called once at most, and not where the namespace has
            no more memories of a kind than slots.
    """
    archival = _Kind(store, query, "archival", query.archival_slots)
    procedures = _Kind(store, query, "procedural", query.procedure_slots)
    latest = archival.newest()
    nearest = hits
    kinds = [kind.name for kind in (archival, procedures) if kind.slots and kind.exists]
    if len(latest) <= archival.slots:
        kinds = [name for name in kinds if name != archival.name]  # all of them fit: no need to find the nearest
    if kinds and not all_found:
        only: dict[str, Any] = {"kind": {"in": kinds}}
        wanted = sum(query.archival_slots if name == archival.name else query.procedure_slots for name in kinds)
        nearest = search(
            where=only if query.where is None else {"and": [only, query.where]}, k=wanted + _MORE_PROCEDURES
        )
    to_follow = in_common_with(query.text, query.related)
    matching = (memory for memory in nearest if memory.kind == procedures.name and to_follow(_heading(memory)))
    return Slots(
        _in_turn([memory for memory in nearest if memory.kind == archival.name], latest)[: archival.slots],
        list(islice(matching, procedures.slots and procedures.slots + _SPARE)),
    )


def _heading(memory: Memory) -> str:
    """What says whether a procedure is the one to follow."""
    parts = [part for part in (memory.title, memory.use_when) if part is not None]
    return "\n".join(parts) or memory.text


def _in_turn(nearest: Sequence[Memory], latest: Sequence[Memory]) -> list[Memory]:
    in_turn = [memory for pair in zip(nearest, latest, strict=False) for memory in pair]
    return list({(memory.namespace, memory.id): memory for memory in [*in_turn, *nearest, *latest]}.values())


def _seen(
    store: Store, namespace: str, where: Filter | None
) -> tuple[Partition, View, NDArray[np.uint8] | None] | None:
    if where is not None:
        return store.filtered(namespace, where)
    partition = store.partition(namespace)
    return None if partition is None else (partition, partition.view, None)


class _Kind:
    """The memories of one kind that a search may return."""

    def __init__(self, store: Store, query: SlotQuery, name: str, slots: int) -> None:
        self.name = name
        self.slots = slots
        self._store = store
        self._names: dict[int, str] = {}
        where = None if query.where is None else parse_where(query.where)
        keys, times_s = [np.empty(0, dtype=np.int64)], [np.empty(0)]
        for namespace in query.namespaces if slots else ():
            seen = _seen(store, namespace, where)
            if seen is None:
                continue
            partition, view, passing = seen
            self._names[partition.namespace] = namespace
            view = view if query.as_of_s is None else view.as_of(query.as_of_s)
            eligible = view.recallable(query.now_s) if passing is None else view.recallable(query.now_s) & passing
            rows = np.flatnonzero(eligible.view(np.bool_) & (view.kinds == KINDS.index(name)))
            keys.append(view.labels[rows] | partition.namespace << LABEL_BITS)
            times_s.append(view.timestamps_s[rows])
        every = np.concatenate(keys)
        self._keys = every[np.lexsort((every & LABEL_MASK, -np.concatenate(times_s)))]

    @property
    def exists(self) -> bool:
        """Whether there are any."""
        return len(self._keys) > 0

    def newest(self) -> list[Memory]:
        """One more than there are slots, if there are so many; the last to happen first."""
        found: dict[int, Memory] = {}
        keys: list[int] = []
        start, wanted = 0, self.slots + 1
        for _ in range(_ATTEMPTS):  # those that are damaged, or gone by now, leave their places to the next
            more = self._keys[start : start + wanted - len(found)].tolist()
            start += len(more)
            for number in dict.fromkeys(key >> LABEL_BITS for key in more):
                here = [key for key in more if key >> LABEL_BITS == number]
                found |= self._store.memories(here, self._names[number])
            keys.extend(more)
            if not more or len(found) >= wanted:
                break
        return [found[key] for key in keys if key in found]
