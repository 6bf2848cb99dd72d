"""Distils what happened into what is to be remembered of it: the user's extractor reads, the store keeps.

Each batch that an extractor was given is remembered by what its memories said, under the extractor's name, with what it
made of them. A batch in which nothing is new is not given again; one that grew or changed is, and what comes of it
takes the place of what had come of it before. The ids of results follow from what they say and where it came from, so
the same answer to the same memories is the same memory.

No lock is held while an extractor works. All results of a batch are stored in one transaction, or none.
"""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

from jiyi import distilled, originals
from jiyi.distilled import DistilledBatch, state_of
from jiyi.errors import JiyiError
from jiyi.filter_fields import Condition
from jiyi.ledger import LABEL_BITS, LABEL_MASK
from jiyi.memory import Memory, entity_key
from jiyi.quoted import quoted
from jiyi.store import Store

#: From memories to what is to be remembered of them: memories, texts, or mappings of a memory's fields.
Extractor = Callable[[list[Memory]], Any]
#: Told after each batch: batches done, batches in all.
Report = Callable[[int, int], None]

_PROCEDURE: Final = ("title", "steps", "use_when")
# How far the clock of an id that a memory was given by itself may be from its timestamp, if it has that by itself too.
_MADE_WITHIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class FailedBatch:
    """A batch of which nothing was stored; the next run tries it again."""

    ids: tuple[str, ...]
    """Of the memories in it."""
    session: str | None
    reason: str
    """What was wrong, as one line."""


@dataclass(frozen=True, slots=True)
class Distilled:
    """What a run of `Engine.distill` did."""

    ids: tuple[str, ...] = ()
    """Of what was stored, in the order of the batches."""
    batches: int = 0
    """How many were given to the extractor and stored."""
    unchanged: int = 0
    """How many were not given to it, as it has had them."""
    removed: int = 0
    """How many earlier results the new ones took the place of, and are no more."""
    failed: tuple[FailedBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class _Held:
    key: int
    id: str
    session: str | None
    day: str
    state: int


@dataclass(frozen=True, slots=True)
class _Batch:
    name: str
    """Tells where results come from, as part of their ids."""
    session: str | None
    held: tuple[_Held, ...]


@dataclass(slots=True)
class Distillation:
    """One run: which batches there are, and what becomes of each.

    Args:
        store: open for writing.
        namespace: whose memories.
        condition: which of them; it names the namespace and the kind.
        extractor: its name.
        batch: "session", or how many memories at a time.
        again: give batches that are unchanged too.
        max_results: of one batch; more are refused.
        now: what has expired by then is not given.
    """

    store: Store
    namespace: str
    condition: Condition
    extractor: str
    batch: str | int
    again: bool
    max_results: int
    now: datetime
    unchanged: int = 0
    _ids: dict[str, None] = field(default_factory=dict)
    _batches: int = 0
    _removed: int = 0
    _failed: list[FailedBatch] = field(default_factory=list)

    def plan(self) -> list[_Batch]:
        """Return the batches that the extractor is to be given, by time."""
        rows = self.store.ledger.select(
            self.condition.sql, self.condition.parameters, order=f"m.timestamp_us, m.key & {LABEL_MASK}"
        )
        held = [
            _Held(key, memory.id, memory.session, memory.timestamp.date().isoformat(), state_of(memory))
            for key, memory in rows
            if memory.expires_at is None or memory.expires_at > self.now
        ]
        number = self.store.ledger.namespace_number(self.namespace)
        if number is None:
            return []
        with self.store.ledger.reading() as connection:
            before = distilled.batches_of(connection, number, self.extractor)
        return self._by_session(held, before) if self.batch == "session" else self._by_count(held, before)

    def _by_session(self, held: Sequence[_Held], before: Sequence[DistilledBatch]) -> list[_Batch]:
        known = {item for batch in before for item in batch.states.items()}
        groups: dict[tuple[str | None, str], list[_Held]] = {}
        for item in held:
            # What belongs to no session is taken a day at a time.
            groups.setdefault((item.session, "" if item.session is not None else item.day), []).append(item)
        batches: list[_Batch] = []
        for (session, day), items in groups.items():
            if not self.again and all((item.id, item.state) in known for item in items):
                self.unchanged += 1
                continue
            name = f"day\0{day}" if session is None else f"session\0{session}"
            batches.append(_Batch(name, session, tuple(items)))
        return batches

    def _by_count(self, held: Sequence[_Held], before: Sequence[DistilledBatch]) -> list[_Batch]:
        by_id = {item.id: item for item in held}
        batches: list[_Batch] = []
        for batch in reversed(before):  # the last that a memory was given in counts
            items = [by_id.pop(memory_id) for memory_id in batch.states if memory_id in by_id]
            if not items:
                continue
            if not self.again and all(batch.states[item.id] == item.state for item in items):
                self.unchanged += 1
                continue
            batches.append(self._numbered(items, held))
        unseen = [item for item in held if item.id in by_id]
        size = int(self.batch)
        batches += [self._numbered(unseen[start : start + size], held) for start in range(0, len(unseen), size)]
        place = {item.id: i for i, item in enumerate(held)}
        return sorted(batches, key=lambda batch: place[batch.held[0].id])

    @staticmethod
    def _numbered(items: Sequence[_Held], held: Sequence[_Held]) -> _Batch:
        chosen = {item.id for item in items}
        in_order = tuple(item for item in held if item.id in chosen)
        sessions = {item.session for item in in_order}
        return _Batch(
            "\0".join(["ids", *(item.id for item in in_order)]),
            sessions.pop() if len(sessions) == 1 else None,
            in_order,
        )

    def take(self, batch: _Batch) -> list[Memory]:
        """Return the memories of a batch that are as they were; empty for nothing to do."""
        found = self.store.ledger.memories([item.key for item in batch.held], self.namespace)
        memories = [found[item.key] for item in batch.held if item.key in found]
        if memories and not self.again:
            with self.store.ledger.reading() as connection:
                number = batch.held[0].key >> LABEL_BITS
                if distilled.known(connection, number, self.extractor, {m.id: state_of(m) for m in memories}):
                    self.unchanged += 1  # another run was here meanwhile
                    return []
        return memories

    def keep(self, batch: _Batch, memories: Sequence[Memory], returned: Iterable[Any]) -> None:
        """Store what an extractor made of a batch, or note why it cannot be."""
        try:
            results = self._checked(batch, memories, returned)
        except Exception as error:
            self.fail(batch, memories, error)
            return
        try:
            self._write(memories, results)
        except JiyiError:
            raise  # the store's own trouble, which the next batch would have too
        except (TypeError, ValueError) as error:
            self.fail(batch, memories, error)

    def fail(self, batch: _Batch, memories: Sequence[Memory], error: Exception) -> None:
        """Note why nothing of a batch is stored."""
        try:
            said = " ".join(str(error).split())
        except Exception:  # the extractor's own kind of error
            said = ""
        reason = f"{type(error).__name__}: {said}" if said else type(error).__name__
        self._failed.append(FailedBatch(tuple(memory.id for memory in memories), batch.session, reason[:1000]))

    def report(self) -> Distilled:
        """Return what was done so far."""
        return Distilled(tuple(self._ids), self._batches, self.unchanged, self._removed, tuple(self._failed))

    # ---------------------------------------------------------------------------------------------- results

    def _checked(self, batch: _Batch, memories: Sequence[Memory], returned: Any) -> list[Memory]:
        given = {memory.id: memory for memory in memories}
        results: dict[str, Memory] = {}
        for i, item in enumerate(_iterated(returned, self.max_results)):
            try:
                result = self._result(item, batch, given)
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError  # some of a kind take more than a text
                raise kind(f"result {i}: {error}") from None
            results.setdefault(result.id, result)
        return list(results.values())

    def _result(self, item: Any, batch: _Batch, given: Mapping[str, Memory]) -> Memory:
        memory, timed = _as_result(item)
        if memory.kind == "episodic":
            raise ValueError("its kind is episodic; an extractor makes semantic, archival or procedural memories")
        if not memory.text.strip():
            raise ValueError("its text is empty; leave it out")
        if memory.namespace not in ("default", self.namespace):
            raise ValueError(
                f"its namespace is {quoted(memory.namespace)}; what is distilled stays in {quoted(self.namespace)}"
            )
        strange = next((source for source in memory.sources if source not in given), None)
        if strange is not None:
            raise ValueError(
                f"its source {quoted(strange)} is not the id of a memory of the batch; leave sources out for all"
            )
        sources = memory.sources or tuple(given)
        said = [memory.kind, *_said(memory)]
        digest = blake2b("\0\0".join([self.namespace, self.extractor, batch.name, *said]).encode(), digest_size=16)
        return replace(
            memory,
            id=digest.hexdigest(),
            namespace=self.namespace,
            sources=sources,
            timestamp=memory.timestamp if timed else max(given[source].timestamp for source in sources),
        )

    def _write(self, memories: Sequence[Memory], results: Sequence[Memory]) -> None:
        states = {memory.id: state_of(memory) for memory in memories}
        made = [result.id for result in results]
        with self.store.writing():
            number = self.store.ledger.namespace_number(self.namespace) or 0
            with self.store.ledger.reading() as connection:
                here = originals.present(connection, number, list(states))
                left = next((memory_id for memory_id in states if memory_id not in here), None)
                if left is not None:  # deleted, and what was said of it should not outlive it
                    raise ValueError(
                        f"{quoted(left)} left while the extractor worked; the next run gives it the others"
                    )
                instead_of = distilled.superseded_by(connection, number, self.extractor, list(states))
                earlier = {memory_id for ids in instead_of.values() for memory_id in ids}
                # What was merged stays merged: its text is there already.
                untouched = originals.concerned(connection, number, [*made, *earlier])
                gone = sorted(earlier - set(made) - untouched)
                ending = distilled.keys_of(connection, number, gone)
            fresh = [result for result in results if result.id not in untouched]
            then = partial(_remember, number, self.extractor, states, made, list(instead_of))
            self.store.write(fresh, [None] * len(fresh), ending=ending, then=then)
        self._ids.update(dict.fromkeys(made))
        self._batches += 1
        self._removed += len(ending)


def _remember(
    number: int,
    extractor: str,
    states: Mapping[str, int],
    made: Sequence[str],
    instead_of: Sequence[int],
    connection: sqlite3.Connection,
) -> None:
    distilled.remember(connection, number, extractor, states, made, instead_of)


def _iterated(returned: Any, most: int) -> Iterator[Any]:
    """Iterate over what an extractor returned, if it is what it should be, and not longer than allowed."""
    advice = "return a list of memories, texts or mappings, [] for none"
    if returned is None or isinstance(returned, str | bytes | Mapping | Memory):
        raise TypeError(
            f"the extractor returned {'None' if returned is None else 'one ' + type(returned).__name__}; {advice}"
        )
    if inspect.isawaitable(returned) or isinstance(returned, AsyncIterable):
        if inspect.iscoroutine(returned):
            returned.close()
        raise TypeError(f"the extractor returned {type(returned).__name__}, which must be awaited; use adistill")
    if not isinstance(returned, Iterable):
        raise TypeError(f"the extractor returned {type(returned).__name__}; {advice}")
    for i, item in enumerate(islice(returned, most + 1)):
        if i == most:
            raise ValueError(
                f"the extractor returned more than {most} results for one batch; allow more by max_results"
            )
        yield item


def _as_result(item: Any) -> tuple[Memory, bool]:
    """A memory, and whether it says itself when it was."""
    if isinstance(item, Memory):
        return item, not _timed_by_itself(item)
    if isinstance(item, str):
        return Memory(text=item, kind="semantic"), False
    if isinstance(item, Mapping):
        # An id of a language model's making says nothing, and one that exists would be replaced.
        fields = {name: value for name, value in item.items() if value is not None and name != "id"}
        kind = "procedural" if any(name in fields for name in _PROCEDURE) else "semantic"
        return Memory.from_dict({"kind": kind, **fields}), "timestamp" in fields
    raise TypeError(f"it is {type(item).__name__}; it must be a Memory, a text or a mapping of a memory's fields")


def _timed_by_itself(memory: Memory) -> bool:
    """Whether nobody gave a memory its timestamp: then it is the moment of an id that nobody gave it either."""
    digits = memory.id.replace("-", "")
    if len(memory.id) != 36 or len(digits) != 32 or digits[12] != "7":
        return False
    try:
        made_s = int(digits[:12], 16) / 1000
    except ValueError:
        return False
    return abs(made_s - memory.timestamp.timestamp()) <= _MADE_WITHIN_S


def _said(memory: Memory) -> list[str]:
    """What a memory says, in the form in which two that say the same are equal."""
    fact = [str(part) for part in (memory.subject, memory.predicate, memory.object) if part is not None]
    procedure = [memory.title or "", *memory.steps]
    return [entity_key(part) for part in (fact or [*procedure, memory.text])]


# ---------------------------------------------------------------------------------------------------------- runs


def extractor_name(extractor: object) -> str:
    """Return what an extractor is remembered by: its module and name, and for a lambda a digest of its code too."""
    function: Any = extractor
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__func__", function)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None) or type(function).__module__
    code = getattr(function, "__code__", None)
    if "<lambda>" in name and code is not None:
        said = repr((code.co_code, [c for c in code.co_consts if not inspect.iscode(c)], code.co_names))
        name += f"-{blake2b(said.encode(), digest_size=8).hexdigest()}"
    return f"{module}.{name}"[:512]


def is_async(extractor: object) -> bool:
    """Whether calling an extractor gives something to be awaited."""
    function: Any = extractor
    while isinstance(function, partial):
        function = function.func
    for part in (function, getattr(function, "__call__", None)):  # noqa: B004
        if inspect.iscoroutinefunction(part) or inspect.isasyncgenfunction(part):
            return True
    return False


def distill(run: Distillation, extractor: Extractor, report: Report | None = None) -> Distilled:
    """Give every batch to an extractor and store what comes of it."""
    batches = run.plan()
    for done, batch in enumerate(batches, start=1):
        memories = run.take(batch)
        if memories:
            try:
                returned = extractor(list(memories))
            except Exception as error:
                run.fail(batch, memories, error)
            else:
                run.keep(batch, memories, returned)
        if report is not None:
            report(done, len(batches))
    return run.report()


async def adistill(run: Distillation, extractor: Extractor, report: Report | None = None) -> Distilled:
    """`distill` with an extractor that may be a coroutine function, without blocking the event loop."""
    batches = await asyncio.to_thread(run.plan)
    for done, batch in enumerate(batches, start=1):
        memories = await asyncio.to_thread(run.take, batch)
        if memories:
            try:
                given = list(memories)
                returned = extractor(given) if is_async(extractor) else await asyncio.to_thread(extractor, given)
                if inspect.isawaitable(returned):
                    returned = await returned
                if isinstance(returned, AsyncIterable):
                    returned = await _collected(returned, run.max_results)
            except Exception as error:
                run.fail(batch, memories, error)
            else:
                await asyncio.to_thread(run.keep, batch, memories, returned)
        if report is not None:
            report(done, len(batches))
    return run.report()


async def _collected(items: AsyncIterable[Any], most: int) -> list[Any]:
    """What an asynchronous iterator gives, up to one more than is allowed."""
    collected: list[Any] = []
    async for item in items:
        collected.append(item)
        if len(collected) > most:
            break
    return collected
