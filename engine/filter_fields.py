"""The fields that a filter can name: what they may be compared with, and how they are tested in SQL.

Nothing of a filter ever becomes SQL text: fields are looked up in fixed tables, metadata keys and values are bound.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jiyi.memory import FIELDS, KINDS, Memory
from jiyi.quoted import quoted
from jiyi.timestamps import to_datetime, to_microseconds

#: What a field of a memory holds, in the form that tests compare: None when it is absent, a tuple for a list (what
#: its elements are, as far as they are no lists or objects themselves) and an empty tuple for an object.
Value = None | bool | int | float | str | tuple[bool | int | float | str, ...]

#: Comparisons that must all hold: (gt, gte, lt or lte; a checked value).
Bounds = tuple[tuple[str, Any], ...]

COMPARISONS: Final = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
DEEPEST: Final = 32
_LARGEST_INT: Final = 2**63 - 1

_TEXTS: Final = {
    "id": "m.id",
    "namespace": "n.name",
    "session": "m.session",
    "speaker": "m.speaker",
    "text": "m.text",
    "subject": "m.subject",
    "predicate": "m.predicate",
    "object": "m.object",
    "title": "m.title",
    "use_when": "m.use_when",
}
_TIMES: Final = {"timestamp": "m.timestamp_us", "expires_at": "m.expires_us", "last_used": "u.last_used_us"}
_LISTS: Final = {"sources": "m.sources", "steps": "m.steps"}
_COUNTS: Final = {"uses": "u.uses", "successes": "u.successes", "failures": "u.failures"}

#: Every field, as error messages list them.
NAMES: Final = (*(name for name in FIELDS if name != "metadata"), "metadata.<key>")


@dataclass(frozen=True, slots=True)
class Condition:
    """An SQL condition over `memories m JOIN namespaces n LEFT JOIN usage u`, and what its question marks stand for."""

    sql: str
    parameters: tuple[Any, ...] = ()


def joined(parts: Sequence[Condition], word: str) -> Condition:
    """Return conditions joined by AND or OR."""
    if not parts:
        return Condition("1" if word == "AND" else "0")
    if len(parts) == 1:
        return parts[0]
    # As a balanced tree: SQLite limits how deep an expression may be, not how wide.
    middle = len(parts) // 2
    left, right = joined(parts[:middle], word), joined(parts[middle:], word)
    return Condition(f"({left.sql}) {word} ({right.sql})", left.parameters + right.parameters)


def negated(part: Condition) -> Condition:
    """Return the opposite: true also where the condition is NULL, because the field is absent."""
    return Condition(f"({part.sql}) IS NOT TRUE", part.parameters)


def field_named(name: str) -> Field | None:
    """Return the field of that name, or None when there is none such."""
    if name.startswith("metadata.") and len(name) > len("metadata."):
        return _MetadataField(name)
    return _FIELDS.get(name)


class Field(ABC):
    """One field: its checks, its SQL, and its value of a memory."""

    name: str
    """As messages say it."""
    key: str
    """In full."""
    cells: tuple[Condition, ...]
    """What SQL reads its value of a memory from (`values`)."""

    def values(self, *cells: Sequence[Any]) -> Sequence[Value]:
        """Return the values of several memories from what SQL read: a sequence a cell."""
        return cells[0]

    @abstractmethod
    def checked(self, value: object) -> Any:
        """Return a value to compare with (never None) as it is stored, or say what is wrong with it."""

    @abstractmethod
    def among(self, values: Sequence[Any]) -> Condition:
        """Return the SQL test for being any of some checked values, None among them for being absent."""

    def between(self, bounds: Bounds) -> Condition:
        """Return the SQL test for comparisons with checked values of one sort; a ValueError where none has order."""
        raise ValueError(f"the field {self.name} has no order; filter it by equality, in, exists or not")

    @abstractmethod
    def exists(self) -> Condition:
        """Return the SQL test for being there at all."""

    @abstractmethod
    def of(self, memory: Memory) -> Value:
        """Return its value of a memory."""


class _Column(Field):
    """A field that is one SQL column."""

    def __init__(self, name: str, column: str) -> None:
        self.name = self.key = name
        self.column = column
        self.cells = (Condition(column),)

    def among(self, values: Sequence[Any]) -> Condition:
        absent = [Condition(f"{self.column} IS NULL")] if None in values else []
        stored = [value for value in values if value is not None]
        if len(stored) <= 1 or any(isinstance(value, str) and "\0" in value for value in stored):
            # SQLite's JSON ends a text at U+0000.
            equal = [Condition(f"{self.column} = ?", (value,)) for value in stored]
        else:
            # One bound JSON list, so that ten thousand values are no more SQL than two.
            listed = json.dumps(stored, ensure_ascii=False)
            equal = [Condition(f"{self.column} IN (SELECT value FROM json_each(?))", (listed,))]
        return joined(equal + absent, "OR")

    def between(self, bounds: Bounds) -> Condition:
        sql = " AND ".join(f"{self.column} {COMPARISONS[operator]} ?" for operator, _ in bounds)
        return Condition(sql, tuple(bound for _, bound in bounds))

    def exists(self) -> Condition:
        return Condition(f"{self.column} IS NOT NULL")


class _TextField(_Column):
    """Text, or absent."""

    def checked(self, value: object) -> str:
        if not isinstance(value, str):
            raise TypeError(f"the filter on {self.name} compares text, got {quoted(value)}")
        return _encodable(value, self.name)

    def of(self, memory: Memory) -> Value:
        value: str | None = getattr(memory, self.name)
        return value


class _TimeField(_Column):
    """A moment, in whole microseconds since the epoch; it may be absent."""

    def checked(self, value: object) -> int:
        return to_microseconds(to_datetime(value, f"the filter on {self.name}"))

    def of(self, memory: Memory) -> Value:
        value = getattr(memory, self.name)
        return None if value is None else to_microseconds(value)


class _CountField(_Column):
    """A whole number from 0; a memory that was never used has 0."""

    def __init__(self, name: str, column: str) -> None:
        super().__init__(name, f"COALESCE({column}, 0)")

    def checked(self, value: object) -> int | float:
        return _number(value, self.name, "numbers")

    def of(self, memory: Memory) -> Value:
        value: int = getattr(memory, self.name)
        return value


class _KindField(_Column):
    """One of KINDS, stored as its place among them."""

    def checked(self, value: object) -> int:
        if value not in KINDS:
            raise ValueError(f"the filter on kind compares with {quoted(value)}; kinds are {', '.join(KINDS)}")
        return KINDS.index(value)

    def between(self, bounds: Bounds) -> Condition:
        raise ValueError("kinds have no order; filter them by equality, in or not")

    def of(self, memory: Memory) -> Value:
        return KINDS.index(memory.kind)


class _FlagField(Field):
    """True or False, never absent; stored as 1 or NULL."""

    def __init__(self, name: str, column: str) -> None:
        self.name = self.key = name
        self.column = column
        self.cells = (Condition(column),)

    def values(self, *cells: Sequence[Any]) -> Sequence[Value]:
        return [cell is not None for cell in cells[0]]

    def checked(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise TypeError(f"the filter on {self.name} compares with True or False, got {quoted(value)}")
        return value

    def among(self, values: Sequence[Any]) -> Condition:
        tests = {True: Condition(f"{self.column} IS NOT NULL"), False: Condition(f"{self.column} IS NULL")}
        return joined([test for value, test in tests.items() if value in values], "OR")

    def exists(self) -> Condition:
        return Condition("1")

    def of(self, memory: Memory) -> Value:
        value: bool = getattr(memory, self.name)
        return value


class _ListField(Field):
    """A list of texts, stored as JSON; absent when it is empty. Equality means that one of them is the value."""

    def __init__(self, name: str, column: str) -> None:
        self.name = self.key = name
        self.column = column
        self.cells = (Condition(column),)

    def values(self, *cells: Sequence[Any]) -> Sequence[Value]:
        return [None if cell is None else comparable(json.loads(cell)) for cell in cells[0]]

    def checked(self, value: object) -> str:
        if not isinstance(value, str):
            raise TypeError(f"the filter on {self.name} compares with text, one of the list, got {quoted(value)}")
        return _encodable(value, self.name)

    def among(self, values: Sequence[Any]) -> Condition:
        # None of them holds U+0000, and SQLite's JSON would end a text there.
        texts = [value for value in values if value is not None and "\0" not in value]
        tests = [Condition(f"{self.column} IS NULL")] if None in values else []
        if len(texts) == 1:
            tests.append(Condition(f"EXISTS (SELECT 1 FROM json_each({self.column}) WHERE value = ?)", (texts[0],)))
        elif texts:
            wanted = "value IN (SELECT value FROM json_each(?))"
            sql = f"EXISTS (SELECT 1 FROM json_each({self.column}) WHERE {wanted})"
            tests.append(Condition(sql, (json.dumps(texts, ensure_ascii=False),)))
        return joined(tests, "OR")

    def exists(self) -> Condition:
        return Condition(f"{self.column} IS NOT NULL")

    def of(self, memory: Memory) -> Value:
        return tuple(getattr(memory, self.name)) or None


class _MetadataField(Field):
    """A value inside the metadata, by its path of keys. A test holds for a list if it holds for one of its elements."""

    def __init__(self, name: str) -> None:
        self.key = name
        self.name = name if len(name) <= 80 else name[:80] + "…"
        self.keys: Final = name.split(".")[1:]
        if "" in self.keys:
            raise ValueError(f"the filter field {quoted(name)} has an empty key; write metadata.<key>.<key>")
        if len(self.keys) > DEEPEST:
            raise ValueError(f"the filter field {self.name!r} goes deeper than {DEEPEST} keys")
        for key in self.keys:
            _encodable(key, "a metadata key")
        # A key stands in JSON as it is, and in a path of SQLite's between quotes, unless JSON escapes some of it.
        plain = all(character not in '"\\' and character >= " " for key in self.keys for character in key)
        self.json_path: Final = "$" + "".join(f'."{key}"' for key in self.keys) if plain else None
        if self.json_path is None:
            self.cells = (Condition("m.metadata"),)
        else:
            path = (self.json_path,)
            self.cells = (
                Condition("json_type(m.metadata, ?)", path),
                Condition("json_extract(m.metadata, ?)", path),
            )

    def values(self, *cells: Sequence[Any]) -> Sequence[Value]:
        if self.json_path is None:
            return [None if cell is None else self.within(json.loads(cell)) for cell in cells[0]]
        sorts, found = cells
        if _TYPED.isdisjoint(sorts):
            return found
        lists = {value for sort, value in zip(sorts, found, strict=True) if sort == "array"}
        read = {value: comparable(json.loads(value)) for value in lists}
        known: dict[str, Value] = {"true": True, "false": False, "object": ()}
        return [
            read[value] if sort == "array" else known.get(sort, value) for sort, value in zip(sorts, found, strict=True)
        ]

    def checked(self, value: object) -> bool | int | float | str:
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _encodable(value, self.name)
        return _number(value, self.name, "text, numbers, True, False or None")

    def of(self, memory: Memory) -> Value:
        return self.within(memory.metadata)

    def within(self, metadata: object) -> Value:
        """Return its value of some metadata."""
        for key in self.keys:
            metadata = metadata.get(key) if isinstance(metadata, Mapping) else None
        return comparable(metadata)

    def among(self, values: Sequence[Any]) -> Condition:
        # No metadata holds U+0000, and SQLite's JSON would end a text there.
        texts = [value for value in values if isinstance(value, str) and "\0" not in value]
        numbers = [value for value in values if value is not None and not isinstance(value, str | bool)]
        tests = [negated(self.exists())] if None in values else []
        for value in (True, False):
            if any(value is wanted for wanted in values):
                tests.append(self._found("true" if value else "false", ()))
        if texts:
            tests.append(self._listed("text", texts))
        if numbers:
            tests.append(self._listed("number", numbers))
        return joined(tests, "OR")

    def _listed(self, sort: str, values: Sequence[Any]) -> Condition:
        if len(values) == 1:
            return self._found(sort, (("= ?", values[0]),))
        return self._found(sort, (("IN (SELECT value FROM json_each(?))", json.dumps(values, ensure_ascii=False)),))

    def between(self, bounds: Bounds) -> Condition:
        sort = "text" if isinstance(bounds[0][1], str) else "number"
        return self._found(sort, tuple((f"{COMPARISONS[operator]} ?", bound) for operator, bound in bounds))

    def exists(self) -> Condition:
        if self.json_path is not None:
            return Condition("json_type(m.metadata, ?) <> 'null'", (self.json_path,))
        return self._walked("{j}.type <> 'null'", ())

    def _found(self, sort: str, tests: Sequence[tuple[str, Any]]) -> Condition:
        """The condition for a value of a sort that passes tests, or a list with an element that does."""
        types = ("integer", "real") if sort == "number" else (sort,)
        walked = self.json_path is None
        value = "{j}.value" if walked else "json_extract(m.metadata, ?)"
        path = () if walked else (self.json_path,)
        scalar = " AND ".join(f"{value} {test}" for test, _ in tests) or "1"
        element = " AND ".join(
            (f"e.type IN ({', '.join(map(repr, types))})", *(f"e.value {test}" for test, _ in tests))
        )
        branches = " ".join(f"WHEN '{name}' THEN {scalar}" for name in types)
        type_of, listed = ("{j}.type", "{j}.value") if walked else ("json_type(m.metadata, ?)", "m.metadata, ?")
        exists = f"EXISTS (SELECT 1 FROM json_each({listed}) AS e WHERE {element})"
        sql = f"CASE {type_of} {branches} WHEN 'array' THEN {exists} END"
        bound = tuple(value for _, value in tests)
        scalar_bound = tuple(part for value in bound for part in (*path, value))
        parameters = (*path, *scalar_bound * len(types), *path, *bound)
        return self._walked(sql, parameters) if walked else Condition(sql, parameters)

    def _walked(self, test: str, parameters: tuple[Any, ...]) -> Condition:
        """The test for the value that a walk through the JSON finds, one level a key."""
        tables = ["json_each(m.metadata) AS j0"]
        for level in range(1, len(self.keys)):
            above = f"j{level - 1}"
            tables.append(f"json_each(CASE {above}.type WHEN 'object' THEN {above}.value ELSE '{{}}' END) AS j{level}")
        keys = " AND ".join(f"j{level}.key = ?" for level in range(len(self.keys)))
        last = f"j{len(self.keys) - 1}"
        sql = f"EXISTS (SELECT 1 FROM {', '.join(tables)} WHERE {keys} AND {test.format(j=last)})"
        return Condition(sql, (*self.keys, *parameters))


#: What SQLite says of JSON's values that it does not return as they are.
_TYPED: Final = frozenset(("true", "false", "array", "object"))

_FIELDS: Final[dict[str, Field]] = {
    **{name: _TextField(name, column) for name, column in _TEXTS.items()},
    **{name: _TimeField(name, column) for name, column in _TIMES.items()},
    **{name: _ListField(name, column) for name, column in _LISTS.items()},
    **{name: _CountField(name, column) for name, column in _COUNTS.items()},
    "kind": _KindField("kind", "m.kind"),
    "multivalued": _FlagField("multivalued", "m.multivalued"),
}


def comparable(value: object) -> Value:
    """Return a value of JSON in the form that tests compare."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(part for part in value if isinstance(part, bool | int | float | str))
    return ()


def _number(value: object, name: str, allowed: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"the filter on {name} compares {allowed}, got {quoted(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"the filter on {name} compares with {value}; use a finite number")
    if isinstance(value, int) and abs(value) > _LARGEST_INT:
        raise ValueError(f"the filter on {name} compares with a whole number of more than 64 bits")
    return value


def _encodable(value: str, what: str) -> str:
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(f"the filter on {what} holds half a surrogate pair, which is no character") from None
    return value
