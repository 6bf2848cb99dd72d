"""The first seed's reranker, for lists from anywhere: Jaccard, recency, window, MMR.

It needs no engine and no store: items from Redis, another vector store or a plain list are reranked as they are.
`Engine.search` has its own pipeline with the same parts; see there.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from jiyi.fields import ID_FIELDS, MISSING, TEXT_FIELDS, TIMESTAMP_FIELDS, Field, FieldReader
from jiyi.kernels.decay import exponential
from jiyi.kernels.jaccard import jaccard_one_to_many
from jiyi.kernels.mmr import mmr_jaccard
from jiyi.quoted import quoted
from jiyi.text import tokenize
from jiyi.timestamps import TimeLike, to_datetime, to_seconds, utc_now

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RerankerConfig:
    """The first seed's settings, with its defaults.

    Args:
        recency_weight: Share of recency in the blend, 0 (relevance only) to 1 (time only).
        half_life_s: Age in seconds at which recency is one half, above 0. Seven days.
        mmr_lambda: 0 (only diversity) to 1 (only the blended score).
        mmr_candidate_window: How many of the best MMR chooses from, from 1. No more than these ever come
            back.
        max_results: How many come back, from 1.

    Raises:
        TypeError, ValueError: Naming the setting, what was got and what is allowed.
    """

    recency_weight: float = 0.1
    half_life_s: float = 7 * 86400.0
    mmr_lambda: float = 0.7
    mmr_candidate_window: int = 20
    max_results: int = 5

    def __post_init__(self) -> None:
        for name in ("recency_weight", "mmr_lambda"):
            share = _number(getattr(self, name), name, "a number from 0 to 1")
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"{name} is {share}; it must be a number from 0 to 1")
        half_life_s = _number(self.half_life_s, "half_life_s", "a number of seconds above 0")
        if not (half_life_s > 0.0 and math.isfinite(half_life_s)):
            raise ValueError(f"half_life_s is {half_life_s}; it must be a finite number of seconds above 0")
        for name in ("mmr_candidate_window", "max_results"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int):
                raise TypeError(
                    f"{name} is {quoted(count)} ({type(count).__name__}); it must be a whole number from 1 on"
                )
            if count < 1:
                raise ValueError(f"{name} is {quoted(count)}; it must be a whole number from 1 on")


@dataclass(frozen=True, slots=True)
class RerankedItem(Generic[T]):
    """One item that came back, and every number behind its rank."""

    item: T
    """The caller's own object."""
    id: Hashable
    """Its id, or its place in the input (from 0) if it has none."""
    rank: int
    """From 1."""
    jaccard: float
    """Similarity of its tokens with the query's, 0 to 1, as it is (no min-max)."""
    recency: float
    """2^(−age / half-life), 0 to 1; 0 if its time is unknown."""
    age_s: float | None
    """Seconds before `now`, 0 for the future; None if its time is unknown."""
    blended: float
    """jaccard·(1−w) + recency·w."""
    mmr_score: float
    """λ·blended − (1−λ)·penalty when it was chosen."""
    penalty: float
    """Its highest Jaccard similarity with an item chosen before it; 0 for the first."""
    because_of: Hashable | None
    """The id of that item; None without a penalty."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """Items as flat arrays, each id once."""

    places: list[int]
    """Places in the input, ascending."""
    ids: list[Hashable]
    ages_s: NDArray[np.float64]
    """Infinite where unknown."""
    query_tokens: NDArray[np.uint32]
    indptr: NDArray[np.int64]
    tokens: NDArray[np.uint32]


class DefaultReranker:
    """Rerank items by Jaccard similarity with the query, blended with recency, then diversified by MMR.

    The first seed's `DefaultReranker`: raw Jaccard over token sets; blended = jaccard·(1−w) + recency·w if w > 0; a
    stable sort; the best `mmr_candidate_window`; greedy MMR over these with pairwise Jaccard; `max_results`.

    Args:
        config: The settings; the first seed's when left out.
        text, timestamp, id: Where an item keeps these: the name of a key or attribute, with dots for nested
            ones ("metadata.created"), or a function that takes the item. Left out: `text` or `content`;
            `timestamp`, also under `metadata`; `id`. Of a search `Hit`, those of its memory. An item that is
            a text is its own text.

    - A time is a datetime (naive is UTC), ISO 8601 text or epoch *seconds*; a number over 1e11 is refused as
      milliseconds. A time in the future counts as now. An item without a time (or with None) is as old as can be: its
      recency is 0, so that freshness never speaks for it.
    - Two items with the same id are one: the first counts, the others do not come back. Items without an id (or with
      None) are all different.
    - Ties go to the earlier item. Nothing is modified; the same objects come back.

    >>> reranker = DefaultReranker(RerankerConfig(recency_weight=0.0, mmr_lambda=0.6, max_results=2))
    >>> items = [
    ...     {"id": "ts2", "text": "building TypeScript backend API using Express framework"},
    ...     {"id": "ts3", "text": "creating TypeScript REST API service with Express"},
    ...     {"id": "py", "text": "analyzing data with Python TypeScript integration pipeline"},
    ... ]
    >>> [item["id"] for item in reranker.rerank("TypeScript", items)]
    ['ts2', 'py']
    """

    def __init__(
        self,
        config: RerankerConfig | None = None,
        *,
        text: Field | None = None,
        timestamp: Field | None = None,
        id: Field | None = None,
    ) -> None:
        self.config = RerankerConfig() if config is None else config
        if not isinstance(self.config, RerankerConfig):
            raise TypeError(f"config is {type(config).__name__}; pass a RerankerConfig")
        self._text = FieldReader("text", text, TEXT_FIELDS)
        self._timestamp = FieldReader("timestamp", timestamp, TIMESTAMP_FIELDS)
        self._id = FieldReader("id", id, ID_FIELDS)

    def rerank(self, query: str, items: Iterable[T], *, now: TimeLike | None = None) -> list[T]:
        """Return the best items in their new order, the caller's own objects. None or one come back as they are.

        Args:
            query: What the items are ranked for.
            items: Memories, mappings, or objects, best first where that matters (ties go to the earlier).
            now: What ages are counted from.

        Raises:
            TypeError, ValueError: For an item without a text, or a time that is none, naming the item.
        """
        given = _listed(query, items)
        if len(given) <= 1:
            return given
        return [row.item for row in self._rows(query, given, now)]

    def explain(self, query: str, items: Iterable[T], *, now: TimeLike | None = None) -> list[RerankedItem[T]]:
        """Return what `rerank` returns, with every number behind each rank."""
        return self._rows(query, _listed(query, items), now)

    def _rows(self, query: str, items: list[T], now: TimeLike | None) -> list[RerankedItem[T]]:
        columns = self._columns(query, items, to_seconds(utc_now() if now is None else to_datetime(now, "now")))
        config = self.config
        jaccard = jaccard_one_to_many(columns.query_tokens, columns.indptr, columns.tokens)
        recency = exponential(columns.ages_s, config.half_life_s)
        weight = config.recency_weight
        blended = jaccard * (1.0 - weight) + recency * weight if weight > 0.0 else jaccard
        window = np.argsort(-blended, kind="stable")[: config.mmr_candidate_window]
        choice = mmr_jaccard(
            np.ascontiguousarray(blended[window]),
            *_rows_of(columns.indptr, columns.tokens, window),
            config.max_results,
            config.mmr_lambda,
        )
        rows = []
        for rank, place in enumerate(choice.order):
            i = int(window[place])
            blocker = int(choice.blocker[rank])
            age_s = float(columns.ages_s[i])
            rows.append(
                RerankedItem(
                    item=items[columns.places[i]],
                    id=columns.ids[i],
                    rank=rank + 1,
                    jaccard=float(jaccard[i]),
                    recency=float(recency[i]),
                    age_s=age_s if math.isfinite(age_s) else None,
                    blended=float(blended[i]),
                    mmr_score=float(choice.score[rank]),
                    penalty=float(choice.penalty[rank]),
                    because_of=columns.ids[int(window[blocker])] if blocker >= 0 else None,
                )
            )
        return rows

    def _columns(self, query: str, items: Sequence[Any], now_s: float) -> _Columns:
        number_of: dict[str, int] = {}

        def numbers(text: str) -> list[int]:
            return sorted({number_of.setdefault(token, len(number_of)) for token in tokenize(text)})

        query_tokens = numbers(query)
        places: list[int] = []
        ids: list[Hashable] = []
        ages_s: list[float] = []
        flat: list[int] = []
        indptr = [0]
        seen: set[Hashable] = set()
        for place, item in enumerate(items):
            given_id = self._id.read(item)
            if given_id is not MISSING and given_id is not None:
                if _hashable(given_id, place) in seen:
                    continue
                seen.add(given_id)
            text = item if isinstance(item, str) and self._text.is_default else self._text.read(item)
            if not isinstance(text, str):
                raise self._no_text(text, item, place)
            places.append(place)
            ids.append(place if given_id is MISSING or given_id is None else given_id)
            ages_s.append(self._age_s(item, place, now_s))
            flat.extend(numbers(text))
            indptr.append(len(flat))
        self._id.check_found(items)
        self._timestamp.check_found(items)
        return _Columns(
            places,
            ids,
            np.array(ages_s, dtype=np.float64),
            np.array(query_tokens, dtype=np.uint32),
            np.array(indptr, dtype=np.int64),
            np.array(flat, dtype=np.uint32),
        )

    def _age_s(self, item: Any, place: int, now_s: float) -> float:
        value = self._timestamp.read(item)
        if value is MISSING or value is None:
            return math.inf
        return max(now_s - to_seconds(to_datetime(value, f"the timestamp of item {place}")), 0.0)

    def _no_text(self, text: Any, item: Any, place: int) -> TypeError | ValueError:
        how = "say where it is with DefaultReranker(text='your field') or a function that takes the item"
        if text is MISSING:
            return ValueError(f"item {place} ({type(item).__name__}) has no {self._text.where}; {how}")
        return TypeError(
            f"the text of item {place} is {type(text).__name__}; it must be text (decode bytes first), or {how}"
        )


def _rows_of(
    indptr: NDArray[np.int64], tokens: NDArray[np.uint32], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """The chosen rows of a CSR, in the chosen order."""
    parts = [tokens[indptr[row] : indptr[row + 1]] for row in rows]
    chosen = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=chosen[1:])
    return chosen, np.concatenate(parts) if parts else tokens[:0]


def _listed(query: object, items: Iterable[T]) -> list[T]:
    if not isinstance(query, str):
        raise TypeError(f"query is {type(query).__name__}; it must be text")
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise TypeError(f"items is {type(items).__name__}; it must be a list of items")
    return list(items)


def _hashable(value: Any, place: int) -> Hashable:
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"the id of item {place} is {type(value).__name__}; it must be text, a number or the like"
        ) from None
    return value  # type: ignore[no-any-return]


def _number(value: Any, name: str, allowed: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} is {quoted(value)} ({type(value).__name__}); it must be {allowed}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is {quoted(value)}; it must be {allowed}") from None
