"""What flows through the pipeline: a query, and the candidates that stages score, order and cut."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jiyi.config import SearchConfig
from jiyi.kernels.order import best_first
from jiyi.partition import View
from jiyi.terms import QueryTerms
from jiyi.usage import Usage

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


_NOTHING: Final = np.empty(0)
_NO_ROWS: Final = np.empty(0, dtype=np.int64)


class Degraded(NamedTuple):
    """A stage that could not do all that was asked, and why."""

    stage: str
    reason: str

    def __str__(self) -> str:
        return f"{self.stage}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Query:
    """One query against one view of a namespace."""

    text: str
    k: int
    now_s: float
    config: SearchConfig
    view: View
    terms: QueryTerms
    term_ids: NDArray[np.uint32]
    """Ids of the query's terms that the namespace knows, ascending."""
    term_weights: Floats
    """idf of each of them over the namespace's live memories."""
    average_length: float
    """Of those memories: the view's own, unless several namespaces are searched."""
    speaker_ids: NDArray[np.uint32]
    """Ids of the terms of speakers that the query names, ascending."""
    vector: NDArray[np.float32] | None
    """Unit, or None when there is none to search with."""
    tokens: NDArray[np.uint32]
    """Rows of the token table, ascending and distinct; empty without a table."""
    token_weights: Floats
    eligible: NDArray[np.uint8]
    """1 for rows that are live, pass the filter and have not expired."""
    n_eligible: int

    @property
    def pool_size(self) -> int:
        """How many candidates each leg recalls."""
        return max(4 * self.k, self.config.pool_min)


@dataclass(slots=True)
class Signal:
    """What one scorer says of every candidate. Recall scores, fusion weighs: `normalized` and `weight` come late."""

    name: str
    raw: Floats
    """Shape (m,); 0 for candidates that it has nothing on."""
    scored: NDArray[np.bool_]
    """Which candidates it has something on."""
    plan: str = ""
    """How the leg recalled: "exact" or "indexed"; empty for a signal that only scores."""
    normalized: Floats = field(default_factory=lambda: _NOTHING)
    weight: float = 0.0
    """Its share of the relevance; 0 when it has nothing on any candidate."""

    def ranks(self) -> Ints:
        """Return 1 for its best candidate and so on, equal scores in the order they were stored; 0 where not scored."""
        return ranks(self.raw, self.scored)


@dataclass(frozen=True, slots=True)
class Reranking:
    """What reranking made of the first stage's scores."""

    first: Floats
    """Shape (m,): the score before it."""
    looked_at: NDArray[np.bool_]
    """Which candidates have a place by every scorer; the others follow them in their old order."""
    shares: Floats
    """Shape (1 + scorers, m): what the first stage and each scorer add; a candidate's column adds up to its score."""
    scale: float
    """What the scores of the others were multiplied by, so that none is above those that were looked at."""


@dataclass(frozen=True, slots=True)
class Leads:
    """Facts that lead from what the query names to others, and those."""

    rows: Ints
    """All of them, ascending, each once."""
    reached: Ints
    """Shape (p,): by pair, the row of a fact that is reached."""
    leading: Ints
    """Shape (p,): by pair, the row of a fact that leads there."""


@dataclass(slots=True)
class Candidates:
    """The pool. Arrays are by candidate (rows ascending: the order they were stored); `order` ranks them.

    Each stage of the pipeline fills in its part: one object goes through all of them, as a copy at each would take
    longer than many a stage does.
    """

    rows: Ints
    order: Ints = field(default_factory=lambda: _NO_ROWS)
    """Candidate positions, best first."""
    signals: tuple[Signal, ...] = ()
    relevance: Floats = field(default_factory=lambda: _NOTHING)
    lent: Floats = field(default_factory=lambda: _NOTHING)
    """What the memory before it in its session lends, NaN for nothing; relevance is at least that."""
    leads: Leads | None = None
    """None where the query names nothing that facts are about."""
    led: Floats = field(default_factory=lambda: _NOTHING)
    """What it has by the fact that leads to it, NaN for nothing; relevance is at least that."""
    led_by: Ints = field(default_factory=lambda: _NO_ROWS)
    """The position of that fact, -1 for none."""
    recency: Floats = field(default_factory=lambda: _NOTHING)
    age_s: Floats = field(default_factory=lambda: _NOTHING)
    used: Usage | None = None
    """How they were used; None when no memory of the namespace was."""
    outcome: Floats = field(default_factory=lambda: _NOTHING)
    """What the score of a procedure got, or lost, for how using it went."""
    score: Floats = field(default_factory=lambda: _NOTHING)
    """Calibrated relevance: what the order, and then diversification, starts from."""
    reranked: tuple[Signal, ...] = ()
    reranking: Reranking | None = None
    """None when no scorer scored anything."""
    chosen: Ints = field(default_factory=lambda: _NO_ROWS)
    """The positions that MMR chose, first choice first; the next three are by choice."""
    mmr: Floats = field(default_factory=lambda: _NOTHING)
    """The MMR score at the moment of choice."""
    penalty: Floats = field(default_factory=lambda: _NOTHING)
    """Similarity to the most similar candidate chosen before."""
    blocker: Ints = field(default_factory=lambda: _NO_ROWS)
    """The position of that candidate, -1 for none."""
    degraded: tuple[Degraded, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def note(self, stage: str, reason: str) -> None:
        """Note a stage that could not do all that was asked."""
        self.degraded = (*self.degraded, Degraded(stage, reason))


def ranks(raw: Floats, scored: NDArray[np.bool_]) -> Ints:
    """Return each candidate's place (from 1) among those that were scored, 0 for the others."""
    places = np.zeros(len(raw), dtype=np.int64)
    positions = np.flatnonzero(scored)
    places[positions[best_first(raw[positions])]] = np.arange(1, len(positions) + 1)
    return places
