"""The two scenes: what plain top-k makes of a question, and what jiyi makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from jiyi.context import Context
from jiyi.demo.data import NAMESPACE, DemoData
from jiyi.engine import Engine
from jiyi.hits import Hits

#: Plain top-k: the same recall and the same fused scores, without recency and without diversity.
PLAIN: Final[Mapping[str, Any]] = {"recency_weight": 0.0, "diversity": "none"}

#: Questions in both languages, some about memories in the other one, with the id of the memory that answers each.
QUESTIONS: Final[Mapping[str, str]] = {
    "我对什么食物过敏？": "m013",
    "Does she drink coffee in the afternoon?": "a11",
    "Which pet does she have?": "a07",
    "妹妹": "a08",
    "怎么给豆包喂药？": "p10",
    "What are the steps of a safe database migration?": "p07",
}
#: The one whose ranks are explained.
EXPLAINED: Final = "When is Lin's next on-call week?"

#: Is answered by a decision that is stored three times in nearly the same words. Chosen: "TypeScript" and
#: "用 TypeScript 写后端" go as well, "用 TypeScript 写后端 API" does not: there the copies are so much closer
#: that even MMR leaves the Python one out of three.
TYPESCRIPT_QUERY: Final = "用什么语言写后端？"
#: The memory that the copies push out of plain top-3: she is also learning Python.
PYTHON_ID: Final = "m020"
#: Who she is, whatever she asks about: on weekends she hikes.
HIKING_ID: Final = "a15"


@dataclass(frozen=True, slots=True)
class TypescriptScene:
    """Near-copies crowd the first three places, or do not."""

    query: str
    plain: Hits
    jiyi: Hits


@dataclass(frozen=True, slots=True)
class RedisScene:
    """A question about caches: its hits do not know the user, the context does."""

    query: str
    plain: Hits
    context: Context


def typescript_scene(engine: Engine, data: DemoData) -> TypescriptScene:
    """Ask for three memories about TypeScript, twice."""
    asked: dict[str, Any] = {"namespace": NAMESPACE, "k": 3, "now": data.now}
    return TypescriptScene(
        TYPESCRIPT_QUERY,
        engine.search(TYPESCRIPT_QUERY, **asked, **PLAIN),
        engine.search(TYPESCRIPT_QUERY, **asked),
    )


def redis_scene(engine: Engine, data: DemoData) -> RedisScene:
    """Search for the last message as plain top-k does, and build the context for the conversation."""
    query: str = data.messages[-1]["content"]
    return RedisScene(
        query,
        engine.search(query, namespace=NAMESPACE, k=5, now=data.now, **PLAIN),
        engine.build_context(data.messages, namespace=NAMESPACE, now=data.now),
    )
