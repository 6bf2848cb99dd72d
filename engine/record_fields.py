"""What each field of a query record must be, so that a damaged one is told by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from jiyi.timestamps import to_datetime


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond what a float holds
        return False


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_moment(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        to_datetime(value)
    except ValueError:
        return False
    return True


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _is_config(value: object) -> bool:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        return False
    rerank = value.get("rerank", [])
    return isinstance(rerank, list | tuple) and all(
        isinstance(scorer, str)
        or (isinstance(scorer, Mapping) and set(scorer) == {"object"} and _is_text_or_none(scorer["object"]))
        for scorer in rerank
    )


_TEXTS: Final = ("a list of texts", lambda v: _is_list(v) and all(map(_is_text, v)))
_NAME: Final = ("text, or null", _is_text_or_none)

#: By field: what it must be, and whether a value is.
FIELDS: Final[dict[str, Any]] = {
    "text": ("text", _is_text),
    "namespace": ("text, or a list of texts", lambda v: _is_text(v) or (_is_list(v) and all(map(_is_text, v)))),
    "k": ("a whole number from 0", _is_count),
    "where": ("an object, or null", lambda v: v is None or isinstance(v, Mapping)),
    "now": ("an ISO 8601 time", _is_moment),
    "as_of": ("an ISO 8601 time, or null", lambda v: v is None or _is_moment(v)),
    "budget_ms": ("milliseconds from 0, or null", lambda v: v is None or (_is_number(v) and v >= 0)),
    "neighbors": ("a whole number from 0", _is_count),
    "query_vector": ("a list of numbers, or null", lambda v: v is None or (_is_list(v) and all(map(_is_number, v)))),
    "config": ('an object of settings, "rerank" a list of names', _is_config),
    "non_default": _TEXTS,
    "store": ("text", _is_text),
    "generation": (
        "an object of whole numbers",
        lambda v: isinstance(v, Mapping) and all(_is_text(name) and _is_count(n) for name, n in v.items()),
    ),
    "embedder": _NAME,
    "vectors": _NAME,
    "vectors_version": ("a whole number from 0", _is_count),
    "analyzer": ("text", _is_text),
    "jiyi": ("text", _is_text),
    "ids": _TEXTS,
    "homes": _TEXTS,
    "scores": ("a list of numbers", lambda v: _is_list(v) and all(map(_is_number, v))),
    "degraded": (
        "a list of [stage, reason]",
        lambda v: _is_list(v) and all(_is_list(each) and len(each) == 2 and all(map(_is_text, each)) for each in v),
    ),
}
