"""Runs a recorded query again, and says what changed since if the answer is another one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jiyi.config import SearchConfig
from jiyi.errors import StoreError
from jiyi.ledger import LABEL_BITS, LABEL_MASK, key_range
from jiyi.models.files import ModelFilesError
from jiyi.models.registry import load_cross_encoder
from jiyi.query_record import QueryRecord, config_of
from jiyi.quoted import quoted
from jiyi.search import Settings, search
from jiyi.spaces import names_in

if TYPE_CHECKING:
    from jiyi.hits import Hits
    from jiyi.models.protocols import CrossEncoder
    from jiyi.store import Store

# Two processors may round differently; that is no other answer.
_TOLERANCE: Final = 1e-9
_MOST_TOLD: Final = 20


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of running a recorded query again."""

    record: QueryRecord
    hits: Hits
    same: bool
    """Whether the answer has the same ids in the same order with the same scores (to 1e-9)."""
    changes: tuple[str, ...]
    """What is not as it was: versions, models, settings, memories, and then ranks and scores. Empty if all is."""

    def __str__(self) -> str:
        head = "the same answer" if self.same else "another answer"
        return "\n".join([head, *(f"  {change}" for change in self.changes)])


def replay(
    store: Store,
    record: QueryRecord | Mapping[str, Any],
    settings_of: Callable[..., Settings],
    config: SearchConfig,
    scorers: Mapping[str, CrossEncoder],
) -> Replay:
    """Run a recorded query again; see `Engine.replay`.

    Args:
        store: that it was asked of, or a copy.
        record: of it.
        settings_of: checks the arguments of a search.
        config: the engine's own, whose scorers are known by their names.
        scorers: others, by name.
    """
    if isinstance(record, Mapping):
        record = QueryRecord.from_dict(record)
    if not isinstance(record, QueryRecord):
        raise TypeError(f"replay takes a QueryRecord or its mapping, got {type(record).__name__}")
    if record.store != store.id:
        raise StoreError(
            f"the query was asked of the store {quoted(record.store)}, and this is {store.id!r}; open that store, "
            "or a snapshot of it"
        )
    known, missing = _known_scorers(record, store, config, scorers)
    wanted, told = config_of(record, known, missing)
    vector = record.query_vector
    if vector is not None and store.dim is not None and len(vector) != store.dim:
        told.append(
            f"the query came with a vector of {len(vector)} dimensions and the store's have {store.dim} now; "
            "it is left out"
        )
        vector = None
    settings = settings_of(
        namespace=record.namespace,
        k=record.k,
        where=record.where,
        now=record.now,
        as_of=record.as_of,
        query_vector=vector,
        budget_ms=record.budget_ms,
        neighbors=record.neighbors,
        config=wanted,
    )
    hits = search(store, record.text, settings)
    differences = list(_differences(record, hits))
    again = hits.query_record
    same = (again.homes, again.ids) == (record.homes, record.ids) and all(map(_close, again.scores, record.scores))
    told += [*_versions(record, again), *_memories(store, record)]
    told += [f"the namespace {quoted(name)} is new" for name in again.generation if name not in record.generation]
    if not same and not told:
        told.append(_unexplained(record))
    shown = differences[:_MOST_TOLD]
    if len(differences) > len(shown):
        shown.append(f"and {len(differences) - len(shown)} more hits")
    return Replay(record, hits, same, (*told, *shown))


def _known_scorers(
    record: QueryRecord, store: Store, config: SearchConfig, given: Mapping[str, CrossEncoder]
) -> tuple[dict[str, CrossEncoder], dict[str, str]]:
    """The scorers of a record that were objects, by name, as far as they can be had; and why a model cannot."""
    if not isinstance(given, Mapping):
        raise TypeError(f"scorers must map names to objects with score(query, texts), got {type(given).__name__}")
    known = {str(getattr(scorer, "name", "")): scorer for scorer in config.rerank if not isinstance(scorer, str)}
    known.update(given)
    missing: dict[str, str] = {}
    for scorer in record.config.get("rerank", ()):
        by_name = isinstance(scorer, str)
        name = scorer if by_name else scorer["object"]
        if name is None or name == "bm25" or name in store.cross_encoders or (not by_name and name in known):
            continue
        try:
            model = load_cross_encoder(name, device=store.device)
        except ValueError as error:  # a name of no model
            missing[name] = str(error)
        except ModelFilesError as error:
            if not by_name:  # else the search goes on without it, and says why
                missing[name] = str(error)
        else:
            known.setdefault(name, model)
    return known, missing


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _versions(then: QueryRecord, now: QueryRecord) -> Iterator[str]:
    """What else than memories is not as it was."""
    for name, what in (
        ("jiyi", "jiyi"),
        ("analyzer", "the tokenizer"),
        ("embedder", "the query's embedder"),
        ("vectors", "the model of the store's vectors"),
    ):
        old, new = getattr(then, name), getattr(now, name)
        if old != new:
            yield f"{what} was {old or 'none'} and is {new or 'none'} now"
    if then.vectors_version != now.vectors_version:
        yield "the store was reindexed since"
    for reasons, when in (
        (set(then.degraded) - set(now.degraded), "then"),
        (set(now.degraded) - set(then.degraded), "now"),
    ):
        for stage, reason in sorted(reasons):
            yield f"{when} something was skipped: {stage}: {reason}"


def _memories(store: Store, record: QueryRecord) -> Iterator[str]:
    """What was stored, ended and used in the namespaces that were searched, since the answer."""
    ledger = store.ledger
    last = int(ledger.manifest()["sequence"])
    newest = max(record.generation.values(), default=0)
    if newest > last:
        yield f"the store is older than the answer, which saw change {newest}: its last is {last}"
    asked = record.namespace if isinstance(record.namespace, str) else tuple(record.namespace)
    for name in names_in(ledger, asked):
        if name not in record.generation:
            yield f"the namespace {quoted(name)} is new"
    for name, sequence in record.generation.items():
        number = ledger.namespace_number(name)
        if number is None:
            if record.ids:
                yield f"the namespace {quoted(name)} holds nothing any more"
            continue
        first, end = key_range(number)
        condition, bounds = "m.key > ? AND m.key <= ?", (first + min(sequence, LABEL_MASK), end)
        added = ledger.count(condition, bounds)
        if added:
            ids = [memory.id for _, memory in ledger.select(condition, bounds, order="m.key", limit=5)]
            yield f"stored since change {sequence} in {quoted(name)}: {_listed(ids, added)}"
        with ledger.changes(number, LABEL_MASK, sequence) as changes:
            ended = changes.ended
            used = len(changes.usage)
        if ended is None:
            yield f"what ended since change {sequence} is not known any more: the store was compacted"
        else:
            gone = sum(1 for key in ended if key >> LABEL_BITS == number and key & LABEL_MASK <= sequence)
            if gone:
                yield f"deleted or replaced since change {sequence} in {quoted(name)}: {gone}"
        if used:
            yield f"used since change {sequence} in {quoted(name)}: {used}"
    for rank, (name, memory_id) in enumerate(zip(record.homes, record.ids, strict=True), start=1):
        found = ledger.find(name, memory_id)
        if found is None:
            yield f"{_called(record, name, memory_id)} (hit {rank} then) is gone"
        elif found[0] & LABEL_MASK > record.generation.get(name, 0):
            yield f"{_called(record, name, memory_id)} (hit {rank} then) was written again since"


def _called(record: QueryRecord, name: str, memory_id: str) -> str:
    """An id, with its namespace where several were searched."""
    return memory_id if len(record.generation) < 2 else f"{memory_id} of {quoted(name)}"


def _listed(ids: Iterable[str], count: int) -> str:
    shown = [memory_id[:80] for memory_id in ids]
    return ", ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")


def _differences(record: QueryRecord, hits: Hits) -> Iterator[str]:
    """How the hits differ, those of the recorded answer first."""
    found = zip(hits.memories, hits.scores, strict=True)
    now = {(memory.namespace, memory.id): (rank, score) for rank, (memory, score) in enumerate(found, start=1)}
    then = list(zip(record.homes, record.ids, strict=True))
    for rank, (key, score) in enumerate(zip(then, record.scores, strict=True), start=1):
        name = _called(record, *key)
        if key not in now:
            yield f"{name} was hit {rank} and is not among the hits"
            continue
        new_rank, new_score = now[key]
        parts = []
        if new_rank != rank:
            parts.append(f"hit {rank} → {new_rank}")
        if not _close(score, new_score):
            parts.append(f"score {score:.9g} → {new_score:.9g}")
        if parts:
            yield f"{name}: {', '.join(parts)}"
    before = set(then)
    for key in [key for key in now if key not in before]:
        yield f"{_called(record, *key)} is hit {now[key][0]} and was not among the hits"


def _unexplained(record: QueryRecord) -> str:
    if record.budget_ms is not None:
        return f"with a budget of {record.budget_ms:g} ms the answer depends on how quick the machine is"
    return (
        "nothing that a record holds has changed; a model's files of the same name, or the arithmetic of another "
        "processor, may have"
    )
