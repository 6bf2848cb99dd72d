"""The answer to a search: memories in order, and every number behind every rank."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from jiyi.around import Around
from jiyi.candidates import Candidates, Degraded, Ints, Query, Signal
from jiyi.contributions import contributions
from jiyi.memory import Memory
from jiyi.query_record import Asked, QueryRecord, record_of
from jiyi.quoted import quoted


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
    memory before it in its session), `led` (its relevance by the fact that leads to it, and that fact's id),
    `recency`, `age_s`, `used` (uses, last_used_s, successes, failures, and the change of a procedure's score for
    them), `reranked` by name (a signal's numbers, and the share of the score), `rerank` (the score before, its share,
    whether every scorer looked at it, and if not what the score was multiplied by), `mmr` (score, penalty,
    because_of), and `contributions`: what each part adds to the score."""
    before: tuple[Memory, ...] = ()
    """With `search(neighbors=n)`: the turns before it in its session, oldest first. They were not scored."""
    after: tuple[Memory, ...] = ()
    """The turns after it, likewise."""


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
        asked: Asked,
        around: Sequence[Around] = (),
    ) -> None:
        self._query = query
        self._candidates = candidates
        self._memories = memories
        self._positions = positions
        self._ids_of_blockers = ids_of_blockers
        self._ranks: dict[int, Ints] = {}
        self._asked = asked
        self._around = around
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
        return f"Hits({len(self)} of {len(self._candidates)} candidates for {quoted(self.text)})"

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
        around = self._around[i] if self._around else ((), ())
        score, factors = float(self._candidates.score[position]), self._factors(position)
        return Hit(self._memories[i], score, i + 1, factors, *around)

    def _factors(self, position: int) -> dict[str, Any]:
        candidates = self._candidates
        factors: dict[str, Any] = {
            "signals": {signal.name: self._of(signal, position) for signal in candidates.signals},
            "relevance": float(candidates.relevance[position]),
            "lent": _number(candidates.lent[position]),
        }
        if len(candidates.led_by) and (lender := int(candidates.led_by[position])) >= 0:
            factors["led"] = {"relevance": float(candidates.led[position]), "by": self._ids_of_blockers.get(lender)}
        if len(candidates.recency):
            factors["recency"] = float(candidates.recency[position])
            factors["age_s"] = float(candidates.age_s[position])
        if candidates.used is not None:
            used = candidates.used
            factors["used"] = {
                "uses": int(used.uses[position]),
                "last_used_s": _number(used.last_used_s[position]),
                "successes": int(used.successes[position]),
                "failures": int(used.failures[position]),
                "change": float(candidates.outcome[position]),
            }
        if (reranking := candidates.reranking) is not None:
            first, *shares = reranking.shares[:, position].tolist()
            factors["reranked"] = {
                signal.name: {**self._of(signal, position), "share": share}
                for signal, share in zip(candidates.reranked, shares, strict=True)
            }
            looked_at = bool(reranking.looked_at[position])
            factors["rerank"] = {
                "before": float(reranking.first[position]),
                "looked_at": looked_at,
                "scale": 1.0 if looked_at else reranking.scale,
                "before_share": first,
            }
        for choice in np.flatnonzero(candidates.chosen == position).tolist():  # one, or none
            factors["mmr"] = {
                "score": float(candidates.mmr[choice]),
                "penalty": float(candidates.penalty[choice]),
                "because_of": self._ids_of_blockers.get(int(candidates.blocker[choice])),
            }
        if self._query is not None:
            factors["contributions"] = contributions(factors, self._query.config)
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
        """Return the whole answer as a JSON object; with `search(neighbors=n)` hits have `before` and `after`."""
        return {
            "query": self.text,
            "hits": [
                {"rank": hit.rank, "score": hit.score, "memory": hit.memory.to_dict(), "factors": dict(hit.factors)}
                | self._turns(hit)
                for hit in self
            ],
            "timings_ms": self.timings_ms,
            "degraded": [degraded._asdict() for degraded in self.degraded],
            "plans": self.plans,
        }

    def _turns(self, hit: Hit) -> dict[str, Any]:
        if not self._around:
            return {}
        return {side: [turn.to_dict() for turn in getattr(hit, side)] for side in ("before", "after")}

    @property
    def query_record(self) -> QueryRecord:
        """What was asked and answered, as JSON can hold it: `Engine.replay` runs it again. Made when asked for."""
        return record_of(self._asked, self.text, self._memories, self.scores, self.degraded)

    def explain(self, format: str = "table") -> str:
        """Return every number behind every rank.

        Args:
            format: "table" for a fixed-width terminal, or "json": `to_dict` as text.

        In the table a signal's cell reads `raw #rank → what its weight is multiplied by`; its column's head names the
        weight. A reranked hit's first score reads `→ its share` of the final one, or `×` what it was multiplied by
        where a scorer did not look at it. MMR's cell is the largest similarity to a hit above, and that hit's id.

        Raises:
            ValueError: there is no such format.
        """
        from jiyi.explain import explain

        if format == "json":
            return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=2)
        if format != "table":
            raise ValueError(f"format is {quoted(format)}; it must be 'table' or 'json' (a picture: hits.plot(path))")
        return explain(self, None if self._query is None else self._query.config)

    def plot(self, path: str | os.PathLike[str], *, max_hits: int = 40) -> Path:
        """Draw what each part of the pipeline adds to the hits' scores, and return the picture's path.

        A hit's bars add up to its score (`factors["contributions"]`); what lowers it stands left of zero. Beside them
        stands what diversification held against it: its likeness to a hit above.

        Args:
            path: a file that ends in .png, .svg or .pdf; one that exists is overwritten.
            max_hits: of more, the first so many are drawn, from 1.

        Raises:
            PlotError: Matplotlib is missing; the message says how to install it.
            ValueError, TypeError: another ending, or a number out of range.
            OSError: the file cannot be written.
        """
        from jiyi.plot import plot

        return plot(self, path, max_hits=max_hits)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
