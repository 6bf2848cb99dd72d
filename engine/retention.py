"""Which memories a store should let go of: those that a policy finds too old or too many, and what expired takes along.

Nothing here deletes: `Store` does, when it is asked to. A policy is configuration and is not kept in the store.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.config import SearchConfig
from jiyi.ledger import Ledger, key_range
from jiyi.memory import KINDS
from jiyi.pipeline.recency import outcomes, recency_of
from jiyi.quoted import quoted
from jiyi.usage import Usage

_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long, and how many, memories of one kind are kept in each namespace. None is no limit.

    max_age_s: seconds since they happened, 0 to infinity (since they were used last, where the engine's settings have
    reinforcement="last_use"); what is older goes. max_count: whole number from 0; of more, the least useful go
    (`usefulness`), those that expired first, then superseded facts.

    >>> Retention(max_age_s=90 * 86400, max_count=10_000)
    Retention(max_age_s=7776000, max_count=10000)
    """

    max_age_s: float | None = None
    max_count: int | None = None

    def __post_init__(self) -> None:
        age_s, count = self.max_age_s, self.max_count
        if age_s is not None:
            if isinstance(age_s, bool) or not isinstance(age_s, int | float):
                raise TypeError(f"max_age_s must be a number of seconds or None, got {quoted(age_s)}")
            if not age_s >= 0:
                raise ValueError(f"max_age_s is {quoted(age_s)}; it must be seconds from 0, or None for no limit")
        if count is not None:
            if isinstance(count, bool) or not isinstance(count, int):
                raise TypeError(f"max_count must be a whole number or None, got {quoted(count)}")
            if count < 0:
                raise ValueError(f"max_count is {quoted(count)}; it must be at least 0, or None for no limit")


#: By kind, a `Retention` or a mapping of its fields.
Policy = Mapping[str, Retention | Mapping[str, Any]]

_SETTINGS: Final = tuple(setting.name for setting in fields(Retention))


def checked_policy(policy: object) -> dict[str, Retention]:
    """Return a policy with nothing but `Retention`s in it.

    Raises:
        TypeError, ValueError: it names a kind or a setting that does not exist, or a limit is none.
    """
    if not isinstance(policy, Mapping):
        raise TypeError(f"retention must map kinds to Retention, got {type(policy).__name__}")
    checked: dict[str, Retention] = {}
    for kind, value in policy.items():
        if kind not in KINDS:
            raise ValueError(f"retention names the kind {quoted(kind)}; kinds are {', '.join(KINDS)}")
        if isinstance(value, Mapping):
            unknown = [str(name) for name in value if name not in _SETTINGS]
            if unknown:
                raise ValueError(f"retention of {kind} has {quoted(unknown[0])}; it can have {', '.join(_SETTINGS)}")
            value = Retention(**value)
        if not isinstance(value, Retention):
            raise TypeError(
                f"retention of {kind} must be a Retention or a mapping of its fields, got {type(value).__name__}"
            )
        checked[kind] = value
    return checked


def due(
    ledger: Ledger, policy: Mapping[str, Retention], config: SearchConfig, now_s: float, namespace: str | None = None
) -> dict[str, list[int]]:
    """Return the keys of the memories that a policy lets go of at a moment, by kind, for every kind that it names.

    Args:
        ledger: the store's.
        policy: by kind.
        config: how memories age (curves, half-lives, floors, reinforcement, outcomes).
        now_s: epoch seconds.
        namespace: one, or None for each of all. Limits count in each namespace by itself.
    """
    keys: dict[str, list[int]] = {kind: [] for kind in policy}
    kinds = [KINDS.index(kind) for kind in policy]
    for number in _numbers(ledger, namespace) if policy else ():
        rows = _read(ledger, number, kinds)
        if rows is None:
            continue
        goes = _goes(rows, policy, config, now_s)
        for kind in policy:
            keys[kind].extend(rows.keys[goes & (rows.kinds == KINDS.index(kind))].tolist())
    return keys


def usefulness(
    now_s: float, timestamps_s: NDArray[np.float64], kinds: NDArray[np.uint8], used: Usage, config: SearchConfig
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the age in seconds of memories and how useful they are, from 0; both of shape (n,), float64.

    recency · (1 + ln(1 + max(uses − failures, 0))) · (1 + outcome_weight · b), with the recency that a search would
    count, and b from −1 to 1 how following a procedure went (`SearchConfig`, outcomes); 0 for what was not tried. A use
    that failed is no reason to keep a procedure.
    """
    age_s, recency = recency_of(now_s, timestamps_s, kinds, used, config)
    worked = np.maximum(used.uses - used.failures, 0)
    # Halfway between 0 and 1, an outcome moves a score by half of outcome_weight · b.
    balance = 2.0 * outcomes(np.full(len(kinds), 0.5), kinds, used, config.outcome_weight)
    return age_s, recency * (1.0 + np.log1p(worked)) * (1.0 + balance)


def superseded_by_expired(ledger: Ledger, now_us: int) -> list[int]:
    """Return the keys of facts that the removal of expired facts would make current again.

    A fact that expired still supersedes those before it: what held once is not true again because what replaced it
    ended. Where it goes, they go with it.
    """
    query = (
        "SELECT DISTINCT c.key >> 40 FROM memories m JOIN columns c ON c.key = m.key "
        "WHERE m.expires_us <= ? AND c.fact <> 0"
    )
    with ledger.reading() as connection:
        numbers = [int(number) for (number,) in connection.execute(query, (now_us,))]
    keys: list[int] = []
    for number in numbers:
        rows = _read(ledger, number, [KINDS.index("semantic")])
        if rows is not None:
            expired = rows.expires_us <= now_us
            keys.extend(rows.keys[expired[rows.newest] & ~expired].tolist())
    return keys


def leaving(ledger: Ledger, policy: Mapping[str, Retention], config: SearchConfig, now_s: float) -> list[int]:
    """Return the keys, ascending, of all that `compact` removes: what expired, with what it takes along, and is due."""
    now_us = round(now_s * 1e6)
    expired = ledger.select_keys("m.expires_us <= ?", (now_us,))
    by_kind = due(ledger, policy, config, now_s)
    return sorted(
        {*expired, *superseded_by_expired(ledger, now_us), *(key for keys in by_kind.values() for key in keys)}
    )


# ------------------------------------------------------------------------------------------------------- the rows


@dataclass(frozen=True, slots=True)
class _Rows:
    """Memories of one namespace, as arrays of shape (n,)."""

    keys: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    timestamps_us: NDArray[np.int64]
    expires_us: NDArray[np.int64]
    newest: NDArray[np.int64]
    """The row that states the same fact last, which may be the row itself; the row itself where it states none."""
    used: Usage


def _goes(rows: _Rows, policy: Mapping[str, Retention], config: SearchConfig, now_s: float) -> NDArray[np.bool_]:
    """Which rows a policy lets go of."""
    age_s, worth = usefulness(now_s, rows.timestamps_us / 1e6, rows.kinds, rows.used, config)
    expired = rows.expires_us <= round(now_s * 1e6)
    superseded = rows.newest != np.arange(len(rows.keys))
    standing = np.where(expired, 0, np.where(superseded, 1, 2))
    goes = np.zeros(len(rows.keys), dtype=bool)
    for kind, limit in policy.items():
        of_kind = np.flatnonzero(rows.kinds == KINDS.index(kind))
        if limit.max_age_s is not None:
            goes[of_kind[age_s[of_kind] > limit.max_age_s]] = True
        if limit.max_count is not None:
            kept = of_kind[~goes[of_kind]]
            order = np.lexsort((rows.keys[kept], rows.timestamps_us[kept], worth[kept], standing[kept]))
            goes[kept[order[: max(len(kept) - limit.max_count, 0)]]] = True
    # A fact that goes takes those along that it superseded: they would be current again.
    found: NDArray[np.bool_] = goes | goes[rows.newest]
    return found


def _numbers(ledger: Ledger, namespace: str | None) -> list[int]:
    if namespace is None:
        return sorted(ledger.namespace_numbers())
    number = ledger.namespace_number(namespace)
    return [] if number is None else [number]


def _read(ledger: Ledger, namespace: int, kinds: Sequence[int]) -> _Rows | None:
    first, last = key_range(namespace)
    query = (
        "SELECT c.key, c.kind, c.timestamp_us, c.expires_us, c.fact, u.uses, u.last_used_us, u.successes, u.failures "
        "FROM columns c LEFT JOIN usage u ON u.key = c.key "
        f"WHERE c.key BETWEEN ? AND ? AND c.kind IN ({','.join('?' * len(kinds))}) ORDER BY c.key"
    )
    with ledger.reading() as connection:
        found = connection.execute(query, (first, last, *kinds)).fetchall()
    if not found:
        return None
    columns: Iterator[tuple[Any, ...]] = zip(*found, strict=True)
    keys, kind, timestamps_us = (np.array(next(columns), dtype=np.int64) for _ in range(3))
    expires_us = np.array([_NEVER if us is None else us for us in next(columns)], dtype=np.int64)
    facts = np.array(next(columns), dtype=np.int64)
    uses = _counts(next(columns))
    last_used_s = np.array([-math.inf if us is None else us / 1e6 for us in next(columns)], dtype=np.float64)
    used = Usage(uses, last_used_s, _counts(next(columns)), _counts(next(columns)))
    return _Rows(keys, kind.astype(np.uint8), timestamps_us, expires_us, _newest(facts, timestamps_us), used)


def _counts(column: Sequence[int | None]) -> NDArray[np.int64]:
    return np.array([count or 0 for count in column], dtype=np.int64)


def _newest(facts: NDArray[np.int64], timestamps_us: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row the last, by time and then as stored, that states the same fact. Rows come in the order stored."""
    newest = np.arange(len(facts))
    stated = np.flatnonzero(facts)
    if len(stated) == 0:
        return newest
    order = stated[np.lexsort((stated, timestamps_us[stated], facts[stated]))]
    ends = np.append(facts[order[1:]] != facts[order[:-1]], True)
    groups = np.concatenate(([0], np.cumsum(ends)[:-1]))
    newest[order] = order[ends][groups]
    return newest
