"""The first seed's `MemoryInjector`: search, rerank if that is turned on, and write what was found for the prompt.

It works over an `Engine` and over any search function, and changes neither: searching is one thing, reranking another.
`Engine.build_context` does more, with slots for who the user is and for procedures, and with the engine's own pipeline.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, Self

from jiyi.budget import TokenCounter
from jiyi.context import Context, ContextConfig, render_context
from jiyi.engine import Engine
from jiyi.fields import ID_FIELDS, MISSING, TEXT_FIELDS, TIMESTAMP_FIELDS, Field, FieldReader
from jiyi.hits import Hit
from jiyi.memory import KINDS, Memory
from jiyi.query import BuiltQuery, build_query
from jiyi.quoted import quoted
from jiyi.rerank import DefaultReranker, RerankerConfig
from jiyi.timestamps import TimeLike, to_datetime, utc_now

#: Anything that finds items: called with the query and how many, best first. It may be asynchronous.
SearchFunction = Callable[[str, int], Any]

# Over an engine: the same recall and the same fused scores, without what a reranker would do a second time.
_PLAIN: Final[dict[str, Any]] = {"recency_weight": 0.0, "diversity": "none"}

_RERANKER: Final = (
    "enabled",
    "recency_weight",
    "recency_half_life",
    "half_life_s",
    "mmr_lambda",
    "mmr_candidate_window",
)
_OWN: Final = ("max_memories", "reranker")
_TEXT: Final = tuple(
    setting.name
    for setting in fields(ContextConfig)
    if setting.name not in ("max_memories", "archival_slots", "procedure_slots", "neighbors")
)
_UNITS: Final = (
    ("s|sec|secs|second|seconds|秒", 1.0),
    ("min|mins|minute|minutes|分钟", 60.0),
    ("h|hour|hours|小时|个小时", 3600.0),
    ("d|day|days|天|日", 86400.0),
    ("w|week|weeks|周|星期|个星期", 7 * 86400.0),
)
_CAPITAL: Final = re.compile(r"(?<=[a-z])[A-Z]")
_SPAN: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(\D{1,10}?)\s*", re.ASCII)


_LONGEST_ID: Final = 500


class MemoryInjector:
    """Builds what an agent is reminded of from the last messages, over an engine or any search function.

    Off by default means: without `reranker`, `max_memories` are searched for and written as they come. With
    `reranker={"enabled": True}`, max(max_memories, mmr_candidate_window) are searched for, `DefaultReranker` reranks
    them, and max_memories are left.

    Args:
        source: an `Engine`, or a function `search(query, k)` that returns items, best first: texts, mappings or objects
            with text (or content), and with id and timestamp where they have these. It may be asynchronous.
        max_memories: how many memories the text may hold, from 1.
        reranker: a mapping of settings, all optional: enabled (False), recency_weight (0.1), half_life_s (604,800, or
            recency_half_life as a `timedelta` or "7 days"), mmr_lambda (0.7), mmr_candidate_window (20).
        count_tokens: see `Engine.build_context`.
        text, timestamp, id: where items keep these, see `DefaultReranker`.
        **settings: of the text, as in `ContextConfig` (token_budget, order, format, include_dates, last_messages); over
            an engine, those of `Engine.search` too (namespace, where, preset, …). Recency and diversity of the engine's
            own pipeline are off unless set here.

    Raises:
        TypeError, ValueError: a setting that does not exist, or is out of range.

    >>> found = ["用 TypeScript 写后端", "用 TypeScript 写后端 API", "在学 Python 做数据分析"]
    >>> injector = MemoryInjector(lambda query, k: found[:k], max_memories=2, reranker={"enabled": True})
    >>> injector.build_context(["TypeScript 和 Python"]).ids
    ('0', '2')
    """

    def __init__(
        self,
        source: Engine | SearchFunction,
        *,
        max_memories: int = 5,
        reranker: Mapping[str, Any] | None = None,
        count_tokens: TokenCounter = None,
        text: Field | None = None,
        timestamp: Field | None = None,
        id: Field | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(source, Engine) and not callable(source):
            raise TypeError(
                f"source is {type(source).__name__}; pass an Engine, or a function search(query, k) that returns items"
            )
        if isinstance(max_memories, bool) or not isinstance(max_memories, int):
            raise TypeError(f"max_memories is {quoted(max_memories)}; it must be a whole number from 1 on")
        if max_memories < 1:
            raise ValueError(f"max_memories is {max_memories}; it must be a whole number from 1 on")
        self._source = source
        of_text = {name: settings.pop(name) for name in _TEXT if name in settings}
        self._text_config = ContextConfig(max_memories=max_memories, archival_slots=0, procedure_slots=0, **of_text)
        self._check_settings(settings)
        self._settings = _PLAIN | settings
        self._count_tokens = count_tokens
        self._readers = (
            FieldReader("text", text, TEXT_FIELDS),
            FieldReader("timestamp", timestamp, TIMESTAMP_FIELDS),
            FieldReader("id", id, ID_FIELDS),
        )
        self._config = config = _reranker_config(reranker, max_memories)
        self.max_memories = max_memories
        self.search_k = max_memories if config is None else max(max_memories, config.mmr_candidate_window)
        """How many are searched for."""

    @classmethod
    def from_config(cls, source: Engine | SearchFunction, config: Mapping[str, Any], **settings: Any) -> Self:
        """Make one of the first seed's configuration, in its own spelling or in Python's.

        >>> config = {"maxMemories": 5, "reranker": {"enabled": True, "recencyWeight": 0.1, "mmrLambda": 0.7}}
        >>> MemoryInjector.from_config(lambda query, k: [], config).search_k
        20
        """
        if isinstance(config, Mapping) and set(config) == {"memoryInjection"}:
            config = config["memoryInjection"]
        if isinstance(config, Mapping) and set(config) == {"config"}:
            config = config["config"]
        given = _named(config, (*_OWN, *_TEXT), "the configuration")
        return cls(source, **given, **settings)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        if isinstance(self._source, Engine):
            for name in ("k", "now", "archival_slots", "procedure_slots", "neighbors"):
                if name in settings:
                    why = {"k": "max_memories says how many", "now": "give it to build_context"}
                    raise TypeError(f"MemoryInjector takes no {name}; {why.get(name, 'Engine.build_context does')}")
            self._source._settings(**{**_PLAIN, **settings})  # what does not exist is told at once
        elif settings:
            raise TypeError(
                f"unknown setting {quoted(next(iter(settings)))}; over a search function there are "
                f"{', '.join((*_OWN, 'count_tokens', 'text', 'timestamp', 'id', *_TEXT))}"
            )

    # ------------------------------------------------------------------------------------------------- building

    def build_context(self, messages: Iterable[Any], *, now: TimeLike | None = None) -> Context:
        """Return what was remembered as text for a prompt; see `Engine.build_context` for messages and `now`.

        Raises:
            TypeError: the search function is asynchronous (use `abuild_context`), or returns no list of items.
        """
        moment, query = self._asked(messages, now)
        found = self._search(query.text, moment) if query.text else ()
        if inspect.isawaitable(found):
            if inspect.iscoroutine(found):
                found.close()
            raise TypeError("the search function is asynchronous; use `await injector.abuild_context(messages)`")
        return self._written(query, found, moment)

    async def abuild_context(self, messages: Iterable[Any], *, now: TimeLike | None = None) -> Context:
        """`build_context`, without blocking the event loop; an asynchronous search function is awaited in it."""
        moment, query = await asyncio.to_thread(self._asked, messages, now)
        found = await asyncio.to_thread(self._search, query.text, moment) if query.text else ()
        if inspect.isawaitable(found):
            found = await found
        return await asyncio.to_thread(self._written, query, found, moment)

    def _asked(self, messages: Iterable[Any], now: TimeLike | None) -> tuple[datetime, BuiltQuery]:
        moment = utc_now() if now is None else to_datetime(now, "now")
        related = self._source._related() if isinstance(self._source, Engine) else None
        return moment, build_query(messages, last=self._text_config.last_messages, related=related)

    def _search(self, query: str, moment: datetime) -> Any:
        if isinstance(self._source, Engine):
            return self._source.search(query, k=self.search_k, now=moment, **self._settings).memories
        return self._source(query, self.search_k)

    def _written(self, query: BuiltQuery, found: Any, moment: datetime) -> Context:
        if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
            raise TypeError(f"the search function returned {type(found).__name__}; it must return a list of items")
        items = list(found)
        for reader in self._readers:
            reader.check_found(items)
        memories: list[Memory] = []
        undated: set[str] = set()
        taken: set[str] = set()
        for place, item in enumerate(items):
            memory, dated = self._memory(item, place, moment)
            if memory.id in taken:  # another item's; both are items
                memory = replace(memory, id=f"{memory.id[:_LONGEST_ID]}#{place}")
            taken.add(memory.id)
            memories.append(memory)
            if not dated:
                undated.add(memory.id)
        if self._config is not None:
            # What is as old as can be for the reranker has no date, and freshness never speaks for it.
            reranker = DefaultReranker(
                self._config, timestamp=lambda memory: None if memory.id in undated else memory.timestamp
            )
            memories = reranker.rerank(query.text, memories, now=moment)
        context = render_context(
            memories, (), now=moment, config=self._text_config, count_tokens=self._count_tokens, undated=undated
        )
        return replace(context, query=query)

    def _memory(self, item: Any, place: int, moment: datetime) -> tuple[Memory, bool]:
        """An item as a memory, and whether it says when it happened. One without an id is known by its place."""
        if isinstance(item, Memory | Hit):
            return (item.memory if isinstance(item, Hit) else item), True
        text, timestamp, own_id = (reader.read(item) for reader in self._readers)
        if isinstance(item, str) and self._readers[0].is_default:
            text = item
        if not isinstance(text, str):
            what = "has no" if text is MISSING else f"has {type(text).__name__} as"
            raise TypeError(
                f"item {place} ({type(item).__name__}) {what} {self._readers[0].where}; say where its text is with "
                "MemoryInjector(text='your field') or a function that takes the item"
            )
        dated = timestamp is not MISSING and timestamp is not None
        kind, speaker = _optional(item, "kind"), _optional(item, "speaker")
        memory = Memory(
            text=text.encode("utf-8", "replace").decode(),
            id=str(place) if own_id is MISSING or own_id is None else str(own_id),
            kind=kind if kind in KINDS else "episodic",
            timestamp=to_datetime(timestamp, f"the timestamp of item {place}") if dated else moment,
            speaker=speaker or None,
        )
        return memory, dated


def _optional(item: Any, name: str) -> str | None:
    value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
    return value if isinstance(value, str) else None


# -------------------------------------------------------------------------------------------------- configuration


def _reranker_config(given: Mapping[str, Any] | None, max_memories: int) -> RerankerConfig | None:
    """The reranker's settings, or None where it is off."""
    if given is None:
        return None
    named = _named(given, _RERANKER, "reranker")
    enabled = named.pop("enabled", False)
    if not isinstance(enabled, bool):
        raise TypeError(f"reranker: enabled is {quoted(enabled)}; it must be True or False")
    if "recency_half_life" in named:
        if "half_life_s" in named:
            raise ValueError("reranker: half_life_s and recency_half_life are given; give one")
        named["half_life_s"] = _seconds(named.pop("recency_half_life"))
    try:
        config = RerankerConfig(max_results=max_memories, **named)
    except (TypeError, ValueError) as error:
        raise type(error)(f"reranker: {error}") from None
    return config if enabled else None


def _named(given: object, allowed: Sequence[str], what: str) -> dict[str, Any]:
    """The settings of a mapping in Python's spelling: maxMemories is max_memories."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{what} is {type(given).__name__}; it must be a mapping of settings, of which there are "
            f"{', '.join(allowed)}"
        )
    named: dict[str, Any] = {}
    for key, value in given.items():
        name = _CAPITAL.sub(lambda match: f"_{match.group().lower()}", key) if isinstance(key, str) else key
        if name not in allowed:
            raise ValueError(f"{what} has the setting {quoted(key)}; settings are {', '.join(allowed)}")
        if name in named:
            raise ValueError(f"{what} has {name} twice, in both spellings; give one")
        named[name] = value
    return named


def _seconds(half_life: object) -> float:
    if isinstance(half_life, timedelta):
        return half_life.total_seconds()
    if isinstance(half_life, str) and (match := _SPAN.fullmatch(half_life)):
        for names, seconds in _UNITS:
            if match.group(2).lower() in names.split("|"):
                return float(match.group(1)) * seconds
    raise ValueError(
        f"reranker: recency_half_life is {quoted(half_life)}; it must be a timedelta or text with a unit, such as "
        '"7 days" or "7天". For a number of seconds there is half_life_s'
    )
