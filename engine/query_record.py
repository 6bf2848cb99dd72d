"""What a query was asked, of what, with which settings and models, and what it answered: enough to ask it again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

import jiyi
from jiyi.config import DEFAULT, SearchConfig
from jiyi.quoted import quoted
from jiyi.record_fields import FIELDS
from jiyi.terms import ANALYZER_VERSION
from jiyi.timestamps import from_microseconds, to_datetime, to_microseconds, to_text

if TYPE_CHECKING:
    from jiyi.candidates import Degraded
    from jiyi.memory import Memory
    from jiyi.models.protocols import CrossEncoder
    from jiyi.search import Settings
    from jiyi.store import Store

_FORMAT: Final = 1
_DEEPEST: Final = 32
# As epoch seconds in a float the last microseconds of the year 9999 are the year 10000.
_LAST_US: Final = to_microseconds(datetime.max.replace(tzinfo=UTC))
_JOINED: Final = ("and", "or")
_CONFIG_FIELDS: Final = {field.name: field for field in fields(SearchConfig)}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a record is made from, held until somebody asks for one: taking it costs a search next to nothing."""

    settings: Settings
    generation: Mapping[str, int]
    store: str
    embedder: str | None
    vectors: str | None
    vectors_version: int


def asked_of(store: Store, settings: Settings, generation: Mapping[str, int]) -> Asked:
    """Return what identifies a search, safe from later changes by the caller.

    Args:
        store: where it runs.
        settings: checked.
        generation: by namespace searched, the number of the last change that the answer saw.
    """
    if settings.where is not None or settings.query_vector is not None:
        vector = settings.query_vector
        where = None if settings.where is None else _copied(settings.where)
        settings = replace(settings, where=where, query_vector=None if vector is None else vector.copy())
    embedder = None if store.embedder is None else store.embedder.name
    return Asked(settings, generation, store.id, embedder, store.model, store.vectors_version)


def _copied(where: Mapping[str, Any]) -> dict[str, Any]:
    """The mappings and lists of a filter anew; values of an "in" list are never changed in place."""
    copied: dict[str, Any] = {}
    for name, value in where.items():
        if value is None or isinstance(value, str | int | float):  # most are; asking for an abstract type takes longer
            copied[name] = value
        elif isinstance(value, Mapping):
            copied[name] = _copied(value)
        elif isinstance(value, Sequence | set | frozenset):
            copied[name] = (
                [_copied(part) if isinstance(part, Mapping) else part for part in value]
                if name in _JOINED
                else list(value)
            )
        else:
            copied[name] = value
    return copied


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRecord:
    """One query and its answer, as JSON can hold them. Made by `Hits.query_record`, run again by `Engine.replay`.

    Attributes:
        text: the query.
        namespace: whose memories, as it was asked.
        k: how many.
        where: the filter, times as ISO 8601 text; None for none.
        now: the moment that recency and expiry counted from, ISO 8601.
        as_of: the moment that the store was asked about, ISO 8601; None for the present.
        budget_ms: of reranking; None for no limit.
        neighbors: how many turns on each side of a hit came with it.
        query_vector: that was given instead of the embedder's.
        config: every setting of the search. A scorer is its name, one that was given as an object
            `{"object": its name, or None}`.
        non_default: names of the settings that had another value than their default.
        store: id of the store; its snapshots have the same.
        generation: by namespace, the number of the last change to the store that the answer saw.
        embedder: name of the model that embedded the query; None without one.
        vectors: name of the model that the store's vectors came from; None for a store without.
        vectors_version: how often the store had been reindexed.
        analyzer: version of the tokenizer and its word lists.
        jiyi: version of jiyi.
        ids, scores: what was answered, best first.
        homes: the namespace of each of them.
        degraded: (stage, reason) of what was skipped.
    """

    text: str
    namespace: str | tuple[str, ...]
    k: int
    where: Mapping[str, Any] | None
    now: str
    as_of: str | None
    budget_ms: float | None
    neighbors: int
    query_vector: tuple[float, ...] | None
    config: Mapping[str, Any]
    non_default: tuple[str, ...]
    store: str
    generation: Mapping[str, int]
    embedder: str | None
    vectors: str | None
    vectors_version: int
    analyzer: str
    jiyi: str
    ids: tuple[str, ...]
    homes: tuple[str, ...]
    scores: tuple[float, ...]
    degraded: tuple[tuple[str, str], ...]

    @property
    def cross_encoders(self) -> tuple[str, ...]:
        """Names of the models that reranked; an object without a name counts as "an object without a name"."""
        return tuple(scorer_name(scorer) for scorer in self.config["rerank"] if scorer != "bm25")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object that `from_dict` reads back to an equal record."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"query_record": _FORMAT, **{name: _listed(value) for name, value in values.items()}}

    def to_json(self) -> str:
        """Return `to_dict` as one line of JSON, readable Chinese included."""
        record = self.to_dict()
        line = json.dumps(record, ensure_ascii=False, allow_nan=False)
        # A lone surrogate is no UTF-8; escaped, JSON can hold it.
        return line if _is_utf8(line) else json.dumps(record, allow_nan=False)

    @classmethod
    def from_dict(cls, record: object) -> Self:
        """Read a record back.

        Raises:
            TypeError: it is no mapping.
            ValueError: a field is missing, unknown or not as it must be; a setting does not exist or is out of range.
        """
        if not isinstance(record, Mapping):
            raise TypeError(f"a query record must be a mapping, got {type(record).__name__}")
        given = dict(record)
        version = given.pop("query_record", None)
        if version != _FORMAT or isinstance(version, bool):
            raise ValueError(
                f'this is no query record of a known format: "query_record" is {quoted(version)}, it must be {_FORMAT}'
                "; write one with hits.query_record.to_json()"
            )
        names = [field.name for field in fields(cls)]
        unknown = sorted(str(name) for name in given.keys() - set(names))
        missing = [name for name in names if name not in given]
        if unknown:
            raise ValueError(f"the query record has an unknown field {quoted(unknown[0])}; it has {', '.join(names)}")
        if missing:
            raise ValueError(f"the query record has no {missing[0]!r}; a record has {', '.join(names)}")
        for name, value in given.items():
            what, holds = FIELDS[name]
            if not holds(value):
                raise ValueError(f"the query record's {name} is {quoted(value)}; it must be {what}")
            given[name] = _as_tuples(value) if isinstance(value, list | tuple) else value
        for name in ("homes", "scores"):
            if len(given["ids"]) != len(given[name]):
                raise ValueError(
                    f"the query record has {len(given['ids'])} ids and {len(given[name])} {name}; it must have as many"
                )
        made = cls(**given)
        config_of(made, {}, {})  # tells at once what is wrong with a setting
        return made

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a record back from its JSON text.

        Raises:
            ValueError: the text is not JSON, or see `from_dict`.
        """
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the query record is not JSON: {str(error)[:200]}") from None
        return cls.from_dict(record)


def record_of(
    asked: Asked, text: str, memories: Sequence[Memory], scores: Sequence[float], degraded: Iterable[Degraded]
) -> QueryRecord:
    """Return the record of a search and its answer."""
    settings = asked.settings
    config = {name: _setting(name, getattr(settings.config, name)) for name in _CONFIG_FIELDS}
    namespace: Any = settings.namespace
    return QueryRecord(
        text=text,
        namespace=namespace if isinstance(namespace, str) else tuple(namespace),
        k=settings.k,
        where=None if settings.where is None else _plain(settings.where),
        now=_moment(settings.now_s),
        as_of=None if settings.as_of_s is None else _moment(settings.as_of_s),
        budget_ms=settings.budget_ms,
        neighbors=settings.neighbors,
        query_vector=None if settings.query_vector is None else tuple(settings.query_vector.tolist()),
        config=config,
        non_default=tuple(name for name in config if getattr(settings.config, name) != getattr(DEFAULT, name)),
        store=asked.store,
        generation=dict(asked.generation),
        embedder=asked.embedder,
        vectors=asked.vectors,
        vectors_version=asked.vectors_version,
        analyzer=ANALYZER_VERSION,
        jiyi=jiyi.__version__,
        ids=tuple(memory.id for memory in memories),
        homes=tuple(memory.namespace for memory in memories),
        scores=tuple(scores),
        degraded=tuple((each.stage, each.reason) for each in degraded),
    )


def config_of(
    record: QueryRecord, scorers: Mapping[str, CrossEncoder], missing: Mapping[str, str]
) -> tuple[SearchConfig, list[str]]:
    """Return the settings of a record, and what of them could not be had as they were.

    Args:
        record: of a search.
        scorers: by name, those that were given as objects.
        missing: by name, why a model cannot be had.

    Raises:
        ValueError: a setting that does not exist here, or is not as it must be.
    """
    unknown = sorted(set(record.config) - set(_CONFIG_FIELDS))
    if unknown:
        raise ValueError(
            f"the query record has the setting {quoted(unknown[0])}, which jiyi {jiyi.__version__} does not have; "
            f"it was made by jiyi {record.jiyi[:40]}"
        )
    told = [
        f"the setting {name} is new since then; its default is used"
        for name in _CONFIG_FIELDS
        if name not in record.config
    ]
    given = {name: _as_tuples(value) for name, value in record.config.items()}
    rerank: list[Any] = []
    for scorer in given.get("rerank", ()):
        if isinstance(scorer, str) and scorer in missing:
            told.append(f"it was reranked by {quoted(scorer)}, and is not now: {missing[scorer][:300]}")
        elif isinstance(scorer, str):
            rerank.append(scorer)
        elif scorer["object"] in scorers:
            rerank.append(scorers[scorer["object"]])
        elif scorer["object"] is None:
            told.append("it was reranked by an object without a name, which no record can hold; it is left out")
        else:
            told.append(
                f"it was reranked by the object {quoted(scorer['object'])}, which is not here; it is left out. "
                "Give it with scorers={name: object}"
            )
    try:
        config = SearchConfig(**{**given, "rerank": tuple(rerank)})
    except (TypeError, ValueError) as error:
        raise ValueError(f"the query record's config cannot be used: {error}") from None
    for name in [name for name in _CONFIG_FIELDS if name in record.config and name not in record.non_default]:
        default = _setting(name, getattr(DEFAULT, name))
        if _listed(record.config[name]) != default:
            told.append(
                f"the default of {name} was {quoted(record.config[name])} and is {quoted(default)} now; the old "
                "one is used"
            )
    return config, told


def scorer_name(scorer: object) -> str:
    """Return what a recorded scorer is called."""
    name = scorer["object"] if isinstance(scorer, Mapping) else scorer
    return "an object without a name" if name is None else str(name)


# --------------------------------------------------------------------------------------------- to and from JSON


def _moment(seconds: float) -> str:
    return to_text(from_microseconds(min(round(seconds * 1e6), _LAST_US)))


def _setting(name: str, value: Any) -> Any:
    """A setting as JSON can hold it."""
    if name == "rerank":
        return [scorer if isinstance(scorer, str) else {"object": _object_name(scorer)} for scorer in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if is_dataclass(value):
        return {field.name: _setting("", getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _setting("", each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_setting("", each) for each in value]
    return value


def _object_name(scorer: object) -> str | None:
    try:
        name = getattr(scorer, "name", None)
    except Exception:  # a model of the user's
        return None
    return name if isinstance(name, str) and name else None


def _plain(value: Any) -> Any:
    """A filter's value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, date):
        return to_text(to_datetime(value))
    if isinstance(value, set | frozenset):
        return sorted((_plain(each) for each in value), key=repr)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value


def _listed(value: Any) -> Any:
    """Tuples as lists, in new containers."""
    if isinstance(value, Mapping):
        return {name: _listed(each) for name, each in value.items()}
    return [_listed(each) for each in value] if isinstance(value, list | tuple) else value


def _as_tuples(value: Any, depth: int = 0) -> Any:
    """A setting back from JSON."""
    if depth > _DEEPEST:
        raise ValueError(f"the query record has a value that is nested deeper than {_DEEPEST} levels; none is")
    if isinstance(value, Mapping):
        return {name: _as_tuples(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_as_tuples(each, depth + 1) for each in value)
    return math.inf if value == "inf" else value


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
