"""The answer to a search: memories in order, and every number behind every rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from jiyi.candidates import Candidates, Degraded, Ints, Query, Signal
from jiyi.memory import Memory


@dataclass(frozen=True, slots=True)
class Hit:
    """One memory that was found."""

    memory: Memory
    score: float
    """Calibrated relevance, 0 to 1 with the default fusion: what diversification started from."""
    rank: int
    """From 1."""
    factors: Mapping[str, Any]
    """Where the score comes from: `signals` by name (raw, rank, normalized, weight), `relevance`, `lent` (by the
    memory before it in its session), `recency`, `age_s`,
    `reranked` by name, `mmr` (score, penalty, because_of)."""


class Hits(Sequence[Hit]):
    """The hits of one search, best first. Columns inside; a `Hit` is made when it is asked for.

    Attributes:
        timings_ms: milliseconds by stage, and "total".
        degraded: what was skipped, and why; empty when everything asked for was done.
        plans: how each leg recalled ("exact" or "indexed").
    """

    def __init__(
        self,
        query: Query | None,
        candidates: Candidates,
        memories: Sequence[Memory],
        positions: Sequence[int],
        ids_of_blockers: Mapping[int, str],
        timings_ms: Mapping[str, float],
        text: str,
    ) -> None:
        self._query = query
        self._candidates = candidates
        self._memories = memories
        self._positions = positions
        self._ids_of_blockers = ids_of_blockers
        self._ranks: dict[int, Ints] = {}
        self.text = text
        self.timings_ms = dict(timings_ms)
        self.degraded: tuple[Degraded, ...] = candidates.degraded
        self.plans = {signal.name: signal.plan for signal in candidates.signals if signal.plan}

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> list[Hit]: ...
    def __getitem__(self, index: int | slice) -> Hit | list[Hit]:
        if isinstance(index, slice):
            return [self._hit(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"hit {index} of {len(self)}")
        return self._hit(index % len(self))

    def __iter__(self) -> Iterator[Hit]:
        return (self._hit(i) for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Hits({len(self)} of {len(self._candidates)} candidates for {self.text[:80]!r})"

    @property
    def ids(self) -> list[str]:
        """Ids of the memories, best first."""
        return [memory.id for memory in self._memories]

    @property
    def memories(self) -> list[Memory]:
        """The memories, best first."""
        return list(self._memories)

    @property
    def scores(self) -> list[float]:
        """Their calibrated relevance."""
        return [float(self._candidates.score[position]) for position in self._positions]

    def _hit(self, i: int) -> Hit:
        position = self._positions[i]
        return Hit(self._memories[i], float(self._candidates.score[position]), i + 1, self._factors(position))

    def _factors(self, position: int) -> dict[str, Any]:
        candidates = self._candidates
        factors: dict[str, Any] = {
            "signals": {signal.name: self._of(signal, position) for signal in candidates.signals},
            "relevance": float(candidates.relevance[position]),
            "lent": _number(candidates.lent[position]),
        }
        if len(candidates.recency):
            factors["recency"] = float(candidates.recency[position])
            factors["age_s"] = float(candidates.age_s[position])
        if candidates.reranked:
            factors["reranked"] = {signal.name: self._of(signal, position) for signal in candidates.reranked}
        if len(candidates.mmr) and candidates.mmr[position] == candidates.mmr[position]:
            blocker = int(candidates.blocker[position])
            factors["mmr"] = {
                "score": float(candidates.mmr[position]),
                "penalty": float(candidates.penalty[position]),
                "because_of": self._ids_of_blockers.get(blocker),
            }
        return factors

    def _of(self, signal: Signal, position: int) -> dict[str, Any]:
        # By identity: a scorer may have the name of a leg.
        ranks = self._ranks.get(id(signal))
        if ranks is None:  # sorted once for all hits, and only when somebody asks
            ranks = self._ranks[id(signal)] = signal.ranks()
        return {
            "raw": float(signal.raw[position]) if signal.scored[position] else None,
            "rank": int(ranks[position]) or None,
            "normalized": float(signal.normalized[position]),
            "weight": signal.weight,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the whole answer as a JSON object."""
        return {
            "query": self.text,
            "hits": [
                {"rank": hit.rank, "score": hit.score, "memory": hit.memory.to_dict(), "factors": dict(hit.factors)}
                for hit in self
            ],
            "timings_ms": self.timings_ms,
            "degraded": [degraded._asdict() for degraded in self.degraded],
            "plans": self.plans,
        }

    def explain(self) -> str:
        """Return a table of every number behind every rank, for a fixed-width terminal.

        A signal's cell reads `raw #rank → normalised`; its column's head names its weight. MMR's cell is the largest
        similarity to a hit above, and that hit's id.
        """
        from jiyi.explain import explain

        return explain(self, None if self._query is None else self._query.config)


def _number(value: float) -> float | None:
    return None if value != value else float(value)
