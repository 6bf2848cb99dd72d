"""What is known of every memory while several threads write: a model in plain Python, without the engine's locks.

Each memory belongs to the thread that made it, and only that one changes it. A shared clock counts up; a memory *may*
be seen from the tick before the call that writes it, *must* be seen from the tick after that call, and likewise for
its end. What a call that ran from tick a to tick b returned is right if everything in it may have been there at some
tick between, and everything that must have been there all the time is in it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

NEVER: Final = 1 << 62

Place = tuple[str, str]
"""Namespace and id."""


@dataclass(slots=True)
class Span:
    """From when to when something may be seen, and must be."""

    may_from: int
    must_from: int = NEVER
    must_until: int = NEVER
    may_until: int = NEVER

    def is_possible(self, began: int, ended: int) -> bool:
        return self.may_from <= ended and self.may_until >= began

    def is_certain(self, began: int, ended: int) -> bool:
        return self.must_from <= began and self.must_until >= ended


@dataclass(slots=True)
class Life:
    """A memory from when it is added until it is deleted; updates are versions of its text."""

    owner: int
    span: Span
    versions: list[tuple[str, Span]] = field(default_factory=list)


class History:
    """All lives of all memories. Safe to share between threads."""

    def __init__(self) -> None:
        self._clock = itertools.count()
        self._lock = threading.Lock()
        self._lives: dict[Place, list[Life]] = {}

    def tick(self) -> int:
        """Return the next moment."""
        return next(self._clock)

    # ------------------------------------------------------------------------------------------------- writing

    def writing(self, texts: dict[Place, str], owner: int) -> None:
        """Memories are about to be added, or their texts to be replaced."""
        with self._lock:
            now = self.tick()
            for place, text in texts.items():
                lives = self._lives.setdefault(place, [])
                if not lives or lives[-1].span.must_until != NEVER:
                    lives.append(Life(owner, Span(now)))
                versions = lives[-1].versions
                if versions:
                    versions[-1][1].must_until = now
                versions.append((text, Span(now)))

    def written(self, places: Iterable[Place]) -> None:
        """The call that wrote them has returned."""
        with self._lock:
            now = self.tick()
            for place in places:
                life = self._lives[place][-1]
                life.span.must_from = min(life.span.must_from, now)
                life.versions[-1][1].must_from = now
                if len(life.versions) > 1:
                    life.versions[-2][1].may_until = now

    def ending(self, places: Iterable[Place]) -> None:
        """Memories are about to be deleted."""
        with self._lock:
            now = self.tick()
            for place in places:
                life = self._lives[place][-1]
                life.span.must_until = life.versions[-1][1].must_until = now

    def ended(self, places: Iterable[Place]) -> None:
        """The call that deleted them has returned."""
        with self._lock:
            now = self.tick()
            for place in places:
                life = self._lives[place][-1]
                life.span.may_until = life.versions[-1][1].may_until = now

    def forget_before(self, tick: int) -> None:
        """Drop what nobody who began at a tick or later can have seen, but for the last life of each place."""
        with self._lock:
            for lives in self._lives.values():
                lives[:-1] = [life for life in lives[:-1] if life.span.may_until >= tick]
                for life in lives:
                    life.versions[:-1] = [version for version in life.versions[:-1] if version[1].may_until >= tick]

    # ------------------------------------------------------------------------------------------------- checking

    def owned(self, owner: int, namespace: str) -> dict[str, str]:
        """Return id and text of what a thread has in a namespace now. Only that thread may ask."""
        with self._lock:
            return {
                place[1]: lives[-1].versions[-1][0]
                for place, lives in self._lives.items()
                if place[0] == namespace and lives[-1].owner == owner and lives[-1].span.must_until == NEVER
            }

    def living(self) -> dict[Place, str]:
        """Return every memory that is there, with its text. Nobody may be writing."""
        with self._lock:
            return {
                place: lives[-1].versions[-1][0]
                for place, lives in self._lives.items()
                if lives[-1].span.may_until == NEVER
            }

    def impossible(self, seen: Iterable[tuple[Place, str]], began: int, ended: int) -> list[str]:
        """Return what a call from one tick to another cannot have seen, one line each."""
        wrong = []
        with self._lock:
            for place, text in seen:
                versions = [version for life in self._lives.get(place, ()) for version in life.versions]
                if not any(known == text and span.is_possible(began, ended) for known, span in versions):
                    wrong.append(f"{place} {text!r} was not there between {began} and {ended}: {versions[-3:]}")
        return wrong

    def missing(
        self, seen: Iterable[Place], began: int, ended: int, namespace: str, owner: int | None = None
    ) -> list[str]:
        """Return what a call that returns everything in a namespace (of one owner) has left out, one line each."""
        there = set(seen)
        with self._lock:
            return [
                f"{place} was there from {began} to {ended} and is missing: {life}"
                for place, lives in self._lives.items()
                if place[0] == namespace and place not in there
                for life in lives
                if owner in (None, life.owner) and life.span.is_certain(began, ended)
            ]

    def miscounted(self, count: int, began: int, ended: int, namespace: str, but: Collection[Place] = ()) -> list[str]:
        """Return what is wrong with a count of a namespace's memories, some of which are not counted."""
        with self._lock:
            lives = [of for place, of in self._lives.items() if place[0] == namespace and place not in but]
            least = sum(any(life.span.is_certain(began, ended) for life in of_place) for of_place in lives)
            most = sum(any(life.span.is_possible(began, ended) for life in of_place) for of_place in lives)
        if least <= count <= most:
            return []
        return [f"{count} memories were counted in {namespace!r}; there were {least} to {most}"]
