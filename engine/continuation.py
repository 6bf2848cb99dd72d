"""What of a conversation that is given again is new, and when it was said.

What was given is laid over what is stored of the session: a list that goes on where the stored one ends, a window of
the last turns, or the whole after its end. So a turn that says what an earlier one said is told from the earlier one
itself. An id holds the digests of the session and of what was said, and how often it had been said before: what is
stored of a session is found and compared by ids alone, also after its texts were changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

from jiyi.memory import Memory
from jiyi.store import Store
from jiyi.timestamps import from_microseconds, to_datetime, to_microseconds

_FIRST_US: Final = to_microseconds(datetime.min.replace(tzinfo=UTC))
_LAST_US: Final = to_microseconds(datetime.max.replace(tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation, given or stored."""

    content: str
    """A digest of what was said by whom (and when, if that was given)."""
    number: int
    """Which of the turns of this content it is, from 1."""
    time_us: int | None
    """None: the message did not say."""


def content_digest(said: str) -> str:
    """Return the digest by which turns are compared."""
    return blake2b(said.encode(), digest_size=12).hexdigest()


def turn_id(session: str, content: str, number: int) -> str:
    """Return the id of a turn's memory."""
    return f"{_prefix(session)}{content}-{number}"


def _prefix(session: str) -> str:
    return blake2b(session.encode(), digest_size=8).hexdigest() + "-"


def add_new(
    store: Store, memories: Sequence[Memory], given: Sequence[Turn], *, session: str, namespace: str, now: datetime
) -> list[str]:
    """Store those memories of a conversation that are not there, in one transaction; return their ids.

    One that was merged into another (`consolidate`) is there.

    Args:
        store: where to.
        memories: one for each turn; of those that are new, id and timestamp are set here.
        given: the turns, oldest first.
        session, namespace: theirs.
        now: when what has no time was said.
    """
    with store.writing():
        stored = _stored(store, session, namespace)
        where = _aligned(given, stored)
        times = _times(given, where, stored, to_microseconds(now))
        taken = {(turn.content, turn.number) for turn in stored}
        number: Counter[str] = Counter()
        new: list[Memory] = []
        for memory, turn, place, time_us in zip(memories, given, where, times, strict=True):
            if place is not None:
                continue
            number[turn.content] += 1
            while (turn.content, number[turn.content]) in taken:
                number[turn.content] += 1
            memory_id = turn_id(session, turn.content, number[turn.content])
            new.append(replace(memory, id=memory_id, timestamp=from_microseconds(time_us)))
        store.write(new, [None] * len(new))
    return [memory.id for memory in new]


def _stored(store: Store, session: str, namespace: str) -> list[Turn]:
    """The turns that are there, in the order of their session. Every one has a time."""
    number = store.ledger.namespace_number(namespace)
    if number is None:
        return []
    prefix = _prefix(session)
    within = (number, prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1))
    with store.ledger.reading() as connection:
        hidden = connection.execute(
            "SELECT id, json_extract(memory, '$.timestamp') FROM merged WHERE namespace = ? AND id >= ? AND id < ?",
            within,
        ).fetchall()
        shown = connection.execute(
            "SELECT id, timestamp_us, key FROM memories WHERE namespace = ? AND id >= ? AND id < ?", within
        ).fetchall()
    found = {memory_id: (to_microseconds(to_datetime(time)), 0) for memory_id, time in hidden}
    found |= {memory_id: (time_us, key) for memory_id, time_us, key in shown}
    turns: list[tuple[int, int, int, str]] = []
    for memory_id, (time_us, key) in found.items():
        content, _, occurrence = memory_id.removeprefix(prefix).partition("-")
        if occurrence.isdecimal():  # one can give a memory of one's own an id that begins like this
            turns.append((time_us, key, int(occurrence), content))
    return [Turn(content, occurrence, time_us) for time_us, _, occurrence, content in sorted(turns)]


def _aligned(given: Sequence[Turn], stored: Sequence[Turn]) -> list[int | None]:
    """For each turn that was given which of the stored ones it is, None for a new one."""
    where: list[int | None] = [None] * len(given)
    offset = _offset([turn.content for turn in given], [turn.content for turn in stored])
    if offset is not None:
        for i in range(max(0, offset), min(len(given), offset + len(stored))):
            where[i] = i - offset
    # What was deleted leaves a gap over which nothing can be laid: then turns are counted. Turns with a time always
    # are: they say themselves which they are, and need not stand in the order of their times.
    by_number = {(turn.content, turn.number): i for i, turn in enumerate(stored)}
    for i, turn in enumerate(given):
        if where[i] is None and (offset is None or turn.time_us is not None):
            where[i] = by_number.get((turn.content, turn.number))
    return where


def _offset(given: Sequence[str], stored: Sequence[str]) -> int | None:
    """Where in the given list the stored one begins (before it: negative), by the largest overlap; None without one.

    Either the end of the stored list is the beginning of the given one, or the given list holds the whole stored one
    (at the last place of several).
    """
    overlap = _matches(given, stored)[-1] if stored and given else 0
    if len(stored) > overlap:
        ends = [i for i, length in enumerate(_matches(stored, given), start=1) if length == len(stored)]
        if ends:
            return ends[-1] - len(stored)
        rest = iter(given)
        if all(content in rest for content in stored):  # the whole, of which something was deleted
            return None
    return overlap - len(stored) if overlap else None


def _matches(pattern: Sequence[str], text: Sequence[str]) -> list[int]:
    """For each place of a text how much of the pattern's beginning ends there (Knuth, Morris and Pratt 1977)."""
    joined = [*pattern, None, *text]
    lengths = [0] * len(joined)
    for i in range(1, len(joined)):
        length = lengths[i - 1]
        while length and joined[i] != joined[length]:
            length = lengths[length - 1]
        lengths[i] = length + (joined[i] == joined[length])
    return lengths[len(pattern) + 1 :]


def _times(given: Sequence[Turn], where: Sequence[int | None], stored: Sequence[Turn], now_us: int) -> list[int]:
    """When each turn was said, in microseconds.

    Turns without a time lie one microsecond apart, so that each has its own place: the last one now, those before a
    turn whose time is known before that, those after one after it, and those after the last that is stored after
    whatever is stored. Where two times leave no room between them, what stands between takes the earlier.
    """
    known = [turn.time_us if place is None else stored[place].time_us for turn, place in zip(given, where, strict=True)]
    times: list[int] = []
    limits: list[int] = []  # the latest that what is known behind leaves room for
    latest, limit = now_us, _LAST_US
    for time_us in reversed(known):
        times.append(latest if time_us is None else time_us)
        limits.append(limit)
        latest = min(latest, times[-1]) - 1
        limit = (limit if time_us is None else min(limit, time_us)) - 1
    times.reverse()
    limits.reverse()
    last_stored = max((i for i, place in enumerate(where) if place is not None), default=-1)
    end = stored[-1].time_us if stored else None
    for i, time_us in enumerate(known):
        if time_us is not None:
            continue
        before = [times[i - 1]] if i else []
        if i > last_stored and end is not None and end < limits[i]:
            before.append(end)
        if before:
            floor = max(before)
            times[i] = max(times[i], floor + 1 if floor < limits[i] else floor)
        times[i] = min(max(times[i], _FIRST_US), _LAST_US)
    return times
