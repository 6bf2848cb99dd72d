"""What a reindex says of itself: its plan, its state, what happens on the way, its report. Plain data, JSON-ready."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, Literal

State = Literal[
    "new",
    "building",
    "paused",
    "catching up",
    "comparing",
    "switching",
    "dropping",
    "done",
    "refused",
    "failed",
    "interrupted",
    "cancelled",
]


@dataclass(frozen=True, slots=True)
class ReindexPlan:
    """What a reindex would do, from a measured sample."""

    memories: int
    """How many there are."""
    done: int
    """How many of them an earlier run, which was stopped, has done."""
    embedder: str | None
    """Name of the model of the vectors afterwards; None where there are none."""
    dim: int | None
    embeds: bool
    """Whether memories are embedded; otherwise their vectors are taken over as they are."""
    recuts: bool
    """Whether texts are cut into terms anew."""
    seconds: float | None
    """About how long it takes, at full speed or the limit; None when there was nothing to measure."""
    rate: float | None
    """Memories a second, likewise."""
    disk_bytes: int
    """About how much the store grows until the old generation is dropped (or for good, if it is kept)."""
    free_bytes: int | None
    """How much there is: free on the disk and in the store's file; None for a store in memory."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the answers of the new generation differ from those of the old one, over a sample of queries."""

    queries: int
    """How many were asked of both."""
    source: Literal["given", "stored"]
    """Queries that were given, or what stored memories begin with (which are then left out of their own answers)."""
    overlap_at_10: float
    """Mean share of the ten best that both have, of the longer list, in [0, 1]."""
    same_first: float
    """Share of queries that both answer with the same memory first, in [0, 1]."""
    score_shift: float
    """Mean of new minus old score of those that both have among the ten best."""
    score_shift_abs: float
    """Mean of the same without its sign."""
    least: tuple[tuple[str, float], ...]
    """The five queries that overlap least, cut to 80 characters, each with its overlap."""


@dataclass(frozen=True, slots=True)
class ReindexReport:
    """What a reindex (or rollback) did."""

    memories: int
    """How many there are."""
    embedded: int
    """How many this run embedded, or took over; less than `memories` when it went on with an earlier one."""
    switched: bool
    """Whether the new generation serves. If not, `refused` says why, and it stays ready for a forced run."""
    refused: str | None
    comparison: Comparison | None
    """None when there was nothing to compare; `not_compared` says why."""
    not_compared: str | None
    embedder: str | None
    """Name of the model of the vectors that serve now."""
    kept: bool
    """Whether the generation that served before is kept, for `rollback`."""
    seconds: float


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Where a job stands."""

    state: State
    done: int
    total: int
    rate: float | None
    """Memories a second in this run; None before the first."""
    seconds_left: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Started:
    """The job builds, from the start or where an earlier run was stopped."""

    memories: int
    done: int
    embedder: str | None
    resumed: bool


@dataclass(frozen=True, slots=True)
class Progressed:
    """A batch is in the new generation, durably."""

    done: int
    total: int
    rate: float
    """Memories a second in this run."""
    seconds_left: float


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Everything is in the new generation, what was written meanwhile too."""

    written_meanwhile: int


@dataclass(frozen=True, slots=True)
class Compared:
    """Both generations have answered the sample."""

    comparison: Comparison | None
    not_compared: str | None


@dataclass(frozen=True, slots=True)
class Switched:
    """The new generation serves."""

    embedder: str | None
    waited_ms: float
    """How long writers were kept waiting."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The job ended without a switch; what is built stays for a forced run."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ended with an error (or was interrupted or cancelled); unless it was cancelled, it can be resumed."""

    error: str
    state: State


@dataclass(frozen=True, slots=True)
class Done:
    """The job has ended, and the old generation is dropped or kept."""

    report: ReindexReport


Event = Started | Progressed | CaughtUp | Compared | Switched | Refused | Failed | Done


def as_record(event: Event | ReindexReport | ReindexPlan) -> dict[str, Any]:
    """Return an event as what JSON can hold: its name (`event`, such as "caught_up") and its fields."""
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(event).__name__).lstrip("_")
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    return {"event": name} | {k: asdict(v) if is_dataclass(v) else v for k, v in values.items()}  # type: ignore[arg-type]
