"""Merges memories that say the same: one stays, with a count and all sources, and the others can be given back.

A group is a memory and those that are near-copies *of it*: by the words that they share (Jaccard), by their vectors
(cosine), and with the shared words in the same order. Members are never compared with each other, so A and C are not
merged because both are like B. What is never merged, however alike:

- memories of different kinds, speakers or expiry;
- texts of which one has a number, a weekday, a month or a negation that the other has not: "at 9" is not "at 10";
- facts of different subjects, predicates or objects, or with another fact between them that superseded the first;
- procedures of different titles or steps.

The latest memory of a group stays, as it is the wording that was chosen last, together with when and by whom that was
said. Only a fact keeps the earliest time: it has held since then, so that `as_of` answers as before.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi import originals
from jiyi.filter_fields import Condition
from jiyi.kernels.csr import number_values, sort_rows
from jiyi.kernels.near_copies import near_copies
from jiyi.ledger import LABEL_BITS, LABEL_MASK
from jiyi.memory import Memory, entity_key
from jiyi.originals import Original
from jiyi.store import Store
from jiyi.terms import word_term
from jiyi.text import is_run, segments

#: Where a merged memory says how many it was made of.
COUNT: Final = "merged"

_GROUPS_A_TRANSACTION: Final = 200

_TELLING_WORDS: Final = frozenset(
    "not no never none neither nor without cannot "
    "zero one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred thousand "
    "million first second third half monday tuesday wednesday thursday friday saturday sunday january february march "
    "april may june july august september october november december".split()
)
_TELLING_CHARACTERS: Final = frozenset("不没沒无無未别別非勿莫零〇一二两兩三四五六七八九十百千万萬亿半")
_DIGIT: Final = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Merge:
    """One memory that (would) stand for several."""

    memory: Memory
    """It, with the count in `metadata["merged"]`."""
    originals: tuple[Memory, ...]
    """What was merged, as it was, latest first: the first stays, with its id."""


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What `Engine.consolidate` did, or would do."""

    merges: tuple[Merge, ...]
    """Latest first."""
    dry_run: bool

    @property
    def ids(self) -> list[str]:
        """Of the memories that stand for several: what `unconsolidate` takes."""
        return [merge.memory.id for merge in self.merges]

    @property
    def removed(self) -> int:
        """How many memories there are fewer."""
        return sum(len(merge.originals) - 1 for merge in self.merges)


Held = tuple[int, Memory]
"""Key and memory."""


def consolidate(
    store: Store,
    namespace: str,
    condition: Condition,
    *,
    min_jaccard: float,
    min_cosine: float,
    now: datetime,
    dry_run: bool,
) -> Consolidated:
    """Merge near-identical memories that a condition (which names the namespace) holds for; see `Engine.consolidate`.

    Memories that change while they are compared are left as they are. What was merged when a later transaction fails
    stays merged.
    """
    held = [
        item
        for item in store.ledger.select(condition.sql, condition.parameters)
        if item[1].expires_at is None or item[1].expires_at > now
    ]
    held.sort(key=lambda item: (item[1].timestamp, item[0] & LABEL_MASK), reverse=True)
    groups = _groups(store, namespace, held, min_jaccard, min_cosine)
    if dry_run:
        return Consolidated(tuple(_merge([memory for _, memory in group]) for group in groups), True)
    done: list[Merge] = []
    for start in range(0, len(groups), _GROUPS_A_TRANSACTION):
        done.extend(_write(store, namespace, groups[start : start + _GROUPS_A_TRANSACTION]))
    return Consolidated(tuple(done), False)


def unconsolidate(store: Store, namespace: str, ids: Iterable[str]) -> int:
    """Give back what was merged into memories; see `Engine.unconsolidate`."""
    model = _model(store)
    with store.writing():
        number = store.ledger.namespace_number(namespace)
        if number is None:
            return 0
        restored: list[Memory] = []
        vectors: list[NDArray[np.float32] | None] = []
        merged: list[str] = []
        for memory_id in ids:
            with store.ledger.reading() as connection:
                found = originals.of(connection, number, memory_id)
            if found:
                merged.append(memory_id)
            for original in found:
                restored.append(original.memory)
                usable = original.vector is not None and original.model == model
                vectors.append(np.frombuffer(original.vector or b"", np.float32) if usable else None)

        def forget(connection: sqlite3.Connection) -> None:
            for memory_id in merged:
                originals.drop(connection, number, memory_id)

        if restored:
            store.write(restored, vectors, inherit_usage=False, then=forget)
    return len(restored)


# ------------------------------------------------------------------------------------------------------- finding


def _groups(
    store: Store, namespace: str, held: Sequence[Held], min_jaccard: float, min_cosine: float
) -> list[list[Held]]:
    """Groups of two and more, the one that stays first."""
    partition = store.partition(namespace)
    if partition is None or len(held) < 2:
        return []
    view = partition.view
    labels = np.array([key & LABEL_MASK for key, _ in held], dtype=np.int64)
    rows = np.searchsorted(view.labels, labels)
    known = rows < len(view.labels)
    known[known] = (view.labels[rows[known]] == labels[known]) & (view.live[rows[known]] == 1)
    if not known.all():  # changed since they were read
        held = [item for item, here in zip(held, known.tolist(), strict=True) if here]
        rows = rows[known]

    blocks = _blocks(store, namespace, held)
    flat: list[int] = []
    numbers: dict[tuple[object, ...], int] = {}
    of_row = np.empty(len(held), dtype=np.uint64)
    indptr = np.zeros(len(held) + 1, dtype=np.int64)
    for i, (_, memory) in enumerate(held):
        words, telling = _words(memory.text)
        flat.extend(words)
        indptr[i + 1] = len(flat)
        of_row[i] = numbers.setdefault((*blocks[i], telling), len(numbers))
    # Words of different blocks are different words, so nothing is compared across blocks.
    spread = np.repeat(of_row * np.uint64(0x9E3779B97F4A7C15), np.diff(indptr))
    numbered, distinct = number_values(np.array(flat, dtype=np.uint64) ^ spread)
    by_rarity = np.argsort(np.bincount(numbered, minlength=len(distinct)), kind="stable")
    rank = np.empty(len(distinct), dtype=np.uint32)
    rank[by_rarity] = np.arange(len(distinct), dtype=np.uint32)
    order = rank[numbered]
    ids, _ = sort_rows(indptr, order, np.ones(len(order), dtype=np.uint16))
    if view.vectors is None:
        vectors, has_vector = np.zeros((len(held), 0), np.float32), np.zeros(len(held), np.int64)
    else:
        vectors, has_vector = view.vectors[rows], view.has_vector[rows].astype(np.int64)
    leaders = near_copies(indptr, ids, order, vectors, has_vector, min_jaccard, min_cosine)

    members: dict[int, list[Held]] = {}
    for row in np.flatnonzero(leaders != np.arange(len(leaders))).tolist():
        leader = int(leaders[row])
        members.setdefault(leader, [held[leader]]).append(held[row])
    return [members[leader] for leader in sorted(members)]


def _words(text: str) -> tuple[list[int], tuple[str, ...]]:
    """The distinct words and characters of a text as they first stand in it, and those that make all the difference."""
    words: dict[int, None] = {}
    telling: set[str] = set()
    for segment in segments(text):
        if is_run(segment):
            words.update(dict.fromkeys(map(word_term, segment)))
            telling.update(_TELLING_CHARACTERS.intersection(segment))
        else:
            words[word_term(segment)] = None
            if segment in _TELLING_WORDS or segment.endswith("n't") or _DIGIT.search(segment):
                telling.add(segment)
    return list(words), tuple(sorted(telling))


def _blocks(store: Store, namespace: str, held: Sequence[Held]) -> list[tuple[object, ...]]:
    """For each memory what those that it may be merged with have in common with it."""
    facts = _fact_runs(store, namespace) if any(memory.subject is not None for _, memory in held) else {}
    blocks: list[tuple[object, ...]] = []
    for key, memory in held:
        steps = (memory.title and entity_key(memory.title), *map(entity_key, memory.steps))
        blocks.append((memory.kind, memory.speaker, memory.expires_at, facts.get(key), steps))
    return blocks


def _fact_runs(store: Store, namespace: str) -> dict[int, tuple[object, ...]]:
    """For each fact, by key, what it has in common with those that state the same with no other fact between."""
    runs: dict[int, tuple[object, ...]] = {}
    last: dict[str, tuple[str, int]] = {}
    every = store.ledger.select(
        "n.name = ? AND m.subject IS NOT NULL", (namespace,), order=f"m.timestamp_us, m.key & {LABEL_MASK}"
    )
    for key, memory in every:
        stated, said = str(memory.fact_key), entity_key(str(memory.object))
        before, run = last.get(stated, (said, 0))
        run += before != said
        last[stated] = (said, run)
        runs[key] = (stated, said, memory.multivalued, run)
    return runs


# ------------------------------------------------------------------------------------------------------- merging


def _merge(group: Sequence[Memory], count: int | None = None) -> Merge:
    """What a group becomes. The first stays; count: of memories that it stands for, if some stood for several."""
    kept = group[0]
    sources = dict.fromkeys(source for memory in group for source in memory.sources)
    sources.update(dict.fromkeys(memory.id for memory in group[1:]))
    sources.pop(kept.id, None)
    used = [memory.last_used for memory in group if memory.last_used is not None]
    merged = replace(
        kept,
        timestamp=kept.timestamp if kept.subject is None else min(memory.timestamp for memory in group),
        metadata={**kept.metadata, COUNT: len(group) if count is None else count},
        sources=tuple(sources),
        uses=sum(memory.uses for memory in group),
        last_used=max(used, default=None),
        successes=sum(memory.successes for memory in group),
        failures=sum(memory.failures for memory in group),
    )
    return Merge(merged, tuple(group))


def _write(store: Store, namespace: str, groups: Sequence[Sequence[Held]]) -> list[Merge]:
    """Merge groups in one transaction, but for those of which a memory has changed since."""
    model = _model(store)
    with store.writing():
        fresh = store.ledger.memories([key for group in groups for key, _ in group], namespace)
        merges: list[Merge] = []
        vectors: list[NDArray[np.float32] | None] = []
        ending: list[int] = []
        hidden: list[tuple[str, list[str], list[Original]]] = []
        for group in groups:
            if not all(key in fresh for key, _ in group):
                continue
            members = [fresh[key] for key, _ in group]
            behind = [original for key, _ in group for original in _originals(store, key, fresh[key], model)]
            merges.append(_merge(members, len(behind)))
            hidden.append((members[0].id, [memory.id for memory in members], behind))
            ending.extend(key for key, _ in group[1:])
            vector = store.ledger.vector(group[0][0])
            vectors.append(None if vector is None else np.frombuffer(vector, np.float32))
        if merges:
            number = groups[0][0][0] >> LABEL_BITS
            then = partial(_hide, number=number, hidden=hidden)
            store.write([merge.memory for merge in merges], vectors, ending=ending, hiding=True, then=then)
    return merges


def _originals(store: Store, key: int, memory: Memory, model: str) -> list[Original]:
    """What was merged into a memory before, or itself."""
    with store.ledger.reading() as connection:
        before = originals.of(connection, key >> LABEL_BITS, memory.id)
    return before or [Original(memory, store.ledger.vector(key), model)]


def _hide(connection: sqlite3.Connection, number: int, hidden: Iterable[tuple[str, list[str], list[Original]]]) -> None:
    for into_id, members, behind in hidden:
        for member in members:
            originals.drop(connection, number, member)
        originals.keep(connection, number, into_id, behind)


def _model(store: Store) -> str:
    """What vectors of the store are of."""
    return f"{store.model}@{store.vectors_version}"
