"""`where` filters: a mapping over memory fields, compiled to an SQL condition with bound parameters.

Nothing of a filter ever becomes SQL text: field names are looked up in a fixed table, metadata keys and values
are bound. A filter over metadata walks the JSON with `json_each`, one level a key.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from jiyi.memory import KINDS
from jiyi.timestamps import to_datetime, to_microseconds

Where = Mapping[str, Any]

OPERATORS: Final = ("in", "gt", "gte", "lt", "lte", "exists", "not")
_COMPARISONS: Final = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_TEXT_COLUMNS: Final = {
    "id": "m.id",
    "namespace": "n.name",
    "session": "m.session",
    "speaker": "m.speaker",
    "text": "m.text",
}
_TIME_COLUMNS: Final = {"timestamp": "m.timestamp_us", "expires_at": "m.expires_us"}
_FIELDS: Final = (
    "id",
    "namespace",
    "kind",
    "timestamp",
    "session",
    "speaker",
    "text",
    "expires_at",
    "sources",
    "metadata.<key>",
)
_DEEPEST: Final = 32
_LARGEST_INT: Final = 2**63 - 1
# Half of what SQLite takes by default.
_MOST_VALUES: Final = 16_000
_LONGEST_SQL: Final = 500_000


@dataclass(frozen=True, slots=True)
class Condition:
    """An SQL condition over `memories m JOIN namespaces n`, and what its question marks stand for."""

    sql: str
    parameters: tuple[Any, ...] = ()


_ALWAYS: Final = Condition("1")
_NEVER: Final = Condition("0")


def compile_where(where: Where | None) -> Condition:
    """Compile a filter.

    Args:
        where: `{field: value}` for equality; `{field: {operator: value, …}}` with `in`, `gt`, `gte`, `lt`,
            `lte`, `exists`, `not`; several fields must all hold; `{"and": […]}`, `{"or": […]}` and `{"not":
            {…}}` combine. Fields are those of a memory, and `metadata.<key>`, `metadata.<key>.<key>` … A
            field that is absent satisfies only `{"exists": False}`, `None` and `not`.

    Raises:
        TypeError, ValueError: For a field or operator that does not exist (the message lists those that do),
            or a value that cannot be compared with the field.
    """
    if where is None:
        return _ALWAYS
    condition = _mapping(where, 0)
    if len(condition.parameters) > _MOST_VALUES or len(condition.sql) > _LONGEST_SQL:
        raise ValueError(
            f"the filter is too large: {len(condition.parameters)} values in separate tests, at most {_MOST_VALUES} "
            "are allowed; test one field against many values with 'in'"
        )
    return condition


def _mapping(where: object, depth: int) -> Condition:
    if not isinstance(where, Mapping):
        raise TypeError(f"a filter must be a mapping such as {{'kind': 'archival'}}, got {type(where).__name__}")
    if depth > _DEEPEST:
        raise ValueError(f"the filter is nested deeper than {_DEEPEST} levels; write it flatter")
    return _joined([_entry(name, value, depth) for name, value in where.items()], "AND")


def _entry(name: object, value: object, depth: int) -> Condition:
    if not isinstance(name, str):
        raise TypeError(f"a filter's keys must be text, got {name!r:.80}")
    if name in ("and", "or"):
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise TypeError(f"{name!r} takes a list of filters, got {type(value).__name__}")
        return _joined([_mapping(part, depth + 1) for part in value], name.upper())
    if name == "not":
        return _negated(_mapping(value, depth + 1))
    return _field(name, value, depth)


def _field(name: str, value: object, depth: int) -> Condition:
    if name.startswith("metadata.") and len(name) > len("metadata."):
        field: _Field = _Metadata(name)
    elif name == "kind":
        field = _Kind()
    elif name in _TEXT_COLUMNS:
        field = _Text(name)
    elif name in _TIME_COLUMNS:
        field = _Time(name)
    elif name == "sources":
        field = _Sources()
    else:
        raise ValueError(
            f"unknown field {name[:80]!r} in the filter; it can be one of {', '.join(_FIELDS)}, and, or, not"
        )
    return _test(field, value, depth)


def _test(field: _Field, value: object, depth: int) -> Condition:
    if depth > _DEEPEST:
        raise ValueError(f"the filter is nested deeper than {_DEEPEST} levels; write it flatter")
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, Mapping):
        return field.equals(value)
    if not value:
        raise ValueError(f"the filter on {field.name} is empty; give it a value or one of {', '.join(OPERATORS)}")
    tests: list[Condition] = []
    for operator, operand in value.items():
        if operator == "in":
            if not isinstance(operand, Sequence | set | frozenset) or isinstance(operand, str):
                raise TypeError(f"'in' on {field.name} takes a list of values, got {type(operand).__name__}")
            tests.append(field.among(list(operand)))
        elif operator in _COMPARISONS:
            plain = operand.item() if isinstance(operand, np.generic) else operand
            tests.append(field.compared(_COMPARISONS[operator], plain))
        elif operator == "exists":
            if not isinstance(operand, bool):
                raise TypeError(f"'exists' on {field.name} takes True or False, got {operand!r:.80}")
            tests.append(field.exists() if operand else _negated(field.exists()))
        elif operator == "not":
            tests.append(_negated(_test(field, operand, depth + 1)))
        else:
            raise ValueError(
                f"unknown operator {operator!r:.80} on {field.name}; it can be one of {', '.join(OPERATORS)} "
                "(equality is the bare value)"
            )
    return _joined(tests, "AND")


def _joined(parts: Sequence[Condition], word: str) -> Condition:
    if not parts:
        return _ALWAYS if word == "AND" else _NEVER
    if len(parts) == 1:
        return parts[0]
    # As a balanced tree: SQLite limits how deep an expression may be, not how wide.
    middle = len(parts) // 2
    left, right = _joined(parts[:middle], word), _joined(parts[middle:], word)
    return Condition(f"({left.sql}) {word} ({right.sql})", left.parameters + right.parameters)


def _negated(part: Condition) -> Condition:
    # IS NOT TRUE, so that a comparison with an absent field (NULL) counts as false and its negation as true.
    return Condition(f"({part.sql}) IS NOT TRUE", part.parameters)


class _Field(ABC):
    """One field's way of being tested."""

    name: str

    @abstractmethod
    def equals(self, value: object) -> Condition:
        """Return the test for one value."""

    def among(self, values: list[object]) -> Condition:
        """Return the test for any of several values."""
        return _joined([self.equals(value) for value in values], "OR")

    @abstractmethod
    def compared(self, operator: str, value: object) -> Condition:
        """Return the test for an SQL comparison with a value."""

    @abstractmethod
    def exists(self) -> Condition:
        """Return the test for being there at all."""


class _Column(_Field):
    """A field that is one SQL column."""

    column: str

    @abstractmethod
    def stored(self, value: object) -> object:
        """Return a value as the column holds it."""

    def equals(self, value: object) -> Condition:
        if value is None:
            return Condition(f"{self.column} IS NULL")
        return Condition(f"{self.column} = ?", (self.stored(value),))

    def among(self, values: list[object]) -> Condition:
        if any(isinstance(value, str) and "\0" in value for value in values):
            return super().among(values)  # SQLite's JSON ends a text at U+0000
        # One bound JSON list, so that ten thousand values are no more SQL than two.
        stored = [self.stored(value) for value in values if value is not None]
        listed = Condition(
            f"{self.column} IN (SELECT value FROM json_each(?))", (json.dumps(stored, ensure_ascii=False),)
        )
        return _joined([listed, self.equals(None)], "OR") if None in values else listed

    def compared(self, operator: str, value: object) -> Condition:
        return Condition(f"{self.column} {operator} ?", (self.stored(value),))

    def exists(self) -> Condition:
        return Condition(f"{self.column} IS NOT NULL")


class _Text(_Column):
    def __init__(self, name: str) -> None:
        self.name = name
        self.column = _TEXT_COLUMNS[name]

    def stored(self, value: object) -> object:
        if not isinstance(value, str):
            raise TypeError(f"the filter on {self.name} compares text, got {value!r:.80}")
        return _encodable(value, self.name)


class _Time(_Column):
    def __init__(self, name: str) -> None:
        self.name = name
        self.column = _TIME_COLUMNS[name]

    def stored(self, value: object) -> object:
        return to_microseconds(to_datetime(value, f"the filter on {self.name}"))


class _Kind(_Column):
    name = "kind"
    column = "m.kind"

    def stored(self, value: object) -> object:
        if value not in KINDS:
            raise ValueError(f"the filter on kind compares with {value!r:.80}; kinds are {', '.join(KINDS)}")
        return KINDS.index(value)

    def compared(self, operator: str, value: object) -> Condition:
        raise ValueError("kinds have no order; filter them by equality, in or not")


class _Sources(_Field):
    """The ids that a memory was distilled from: equality means that one of them is the value."""

    name = "sources"

    def equals(self, value: object) -> Condition:
        if value is None:
            return _negated(self.exists())
        if not isinstance(value, str):
            raise TypeError(f"the filter on sources compares ids, got {value!r:.80}")
        return Condition("EXISTS (SELECT 1 FROM json_each(m.sources) WHERE value = ?)", (_encodable(value, "sources"),))

    def among(self, values: list[object]) -> Condition:
        ids = [value for value in values if value is not None]
        for value in ids:
            self.equals(value)  # checks it
        test = "EXISTS (SELECT 1 FROM json_each(m.sources) AS s, json_each(?) AS wanted WHERE s.value = wanted.value)"
        listed = Condition(test, (json.dumps(ids, ensure_ascii=False),))
        return _joined([listed, self.equals(None)], "OR") if None in values else listed

    def compared(self, operator: str, value: object) -> Condition:
        raise ValueError("sources have no order; filter them by equality, in or exists")

    def exists(self) -> Condition:
        return Condition("m.sources IS NOT NULL")


class _Metadata(_Field):
    """A value inside the metadata, by its path of keys."""

    def __init__(self, name: str) -> None:
        self.name = name if len(name) <= 80 else name[:80] + "…"
        self._keys = name.split(".")[1:]
        if "" in self._keys:
            raise ValueError(f"the filter field {name[:80]!r} has an empty key; write metadata.<key>.<key>")
        if len(self._keys) > _DEEPEST:
            raise ValueError(f"the filter field {self.name!r} goes deeper than {_DEEPEST} keys")
        for key in self._keys:
            _encodable(key, "a metadata key")

    def _found(self, test: str, parameters: tuple[Any, ...] = ()) -> Condition:
        tables = ["json_each(m.metadata) AS j0"]
        for level in range(1, len(self._keys)):
            above = f"j{level - 1}"
            tables.append(f"json_each(CASE {above}.type WHEN 'object' THEN {above}.value ELSE '{{}}' END) AS j{level}")
        keys = " AND ".join(f"j{level}.key = ?" for level in range(len(self._keys)))
        last = f"j{len(self._keys) - 1}"
        sql = f"EXISTS (SELECT 1 FROM {', '.join(tables)} WHERE {keys} AND {test.format(j=last)})"
        return Condition(sql, (*self._keys, *parameters))

    def equals(self, value: object) -> Condition:
        if value is None:
            return _negated(self.exists())
        if isinstance(value, bool):
            return self._found(f"{{j}}.type = '{'true' if value else 'false'}'")
        if isinstance(value, str):
            return self._found("{j}.type = 'text' AND {j}.value = ?", (_encodable(value, self.name),))
        return self._found("{j}.type IN ('integer', 'real') AND {j}.value = ?", (self._number(value),))

    def among(self, values: list[object]) -> Condition:
        # No metadata holds U+0000, and SQLite's JSON would end a text there.
        texts = [_encodable(value, self.name) for value in values if isinstance(value, str) and "\0" not in value]
        numbers = [self._number(v) for v in values if v is not None and not isinstance(v, str | bool)]
        parts = [self.equals(value) for value in (True, False, None) if any(value is v for v in values)]
        listed = "{j}.value IN (SELECT value FROM json_each(?))"
        if texts:
            parts.append(self._found(f"{{j}}.type = 'text' AND {listed}", (json.dumps(texts, ensure_ascii=False),)))
        if numbers:
            parts.append(self._found(f"{{j}}.type IN ('integer', 'real') AND {listed}", (json.dumps(numbers),)))
        return _joined(parts, "OR")

    def compared(self, operator: str, value: object) -> Condition:
        if isinstance(value, str):
            return self._found(f"{{j}}.type = 'text' AND {{j}}.value {operator} ?", (_encodable(value, self.name),))
        return self._found(f"{{j}}.type IN ('integer', 'real') AND {{j}}.value {operator} ?", (self._number(value),))

    def exists(self) -> Condition:
        return self._found("{j}.type <> 'null'")

    def _number(self, value: object) -> int | float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"the filter on {self.name} compares text, numbers, True, False or None, got {value!r:.80}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"the filter on {self.name} compares with {value}; use a finite number")
        if abs(value) > _LARGEST_INT and isinstance(value, int):
            raise ValueError(f"the filter on {self.name} compares with a whole number of more than 64 bits")
        return value


def _encodable(value: str, what: str) -> str:
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(f"the filter on {what} holds half a surrogate pair, which is no character") from None
    return value
