"""`where` filters: a mapping over memory fields, read into a tree of tests.

A tree becomes an SQL condition with bound parameters, for what reads the ledger (`list`, `count`, `forget`), and is
evaluated over columns in memory for searches (`filter_columns`). Both say the same of every memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from jiyi.filter_fields import (
    COMPARISONS,
    DEEPEST,
    NAMES,
    Bounds,
    Condition,
    Field,
    Value,
    field_named,
    joined,
    negated,
)
from jiyi.memory import Memory
from jiyi.quoted import quoted

__all__ = ["COMPARE", "OPERATORS", "All", "Among", "Between", "Condition", "Exists", "Filter", "Leaf", "Not", "Some"]
__all__ += ["Test", "Where", "compile_where", "holds", "leaves", "parse_where"]

Where = Mapping[str, Any]

OPERATORS: Final = ("in", *COMPARISONS, "exists", "not")
# Half of what SQLite takes by default.
_MOST_VALUES: Final = 16_000
_LONGEST_SQL: Final = 500_000
_MOST_TESTS: Final = 16_000
COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


@dataclass(frozen=True, slots=True)
class Among:
    """The field is one of some values; True and 1 are two values, 1 and 1.0 are one."""

    field: Field
    absent: bool
    """Whether being absent counts."""
    true: bool
    false: bool
    values: frozenset[int | float | str]
    """The texts and numbers; no booleans."""

    def holds_for(self, value: Value) -> bool:
        """Return whether a value of the field passes."""
        if value is None:
            return self.absent
        if isinstance(value, tuple):
            return any(self.holds_for(element) for element in value)
        if isinstance(value, bool):
            return self.true if value else self.false
        return value in self.values

    def condition(self) -> Condition:
        """Return the test in SQL."""
        flags = ((None, self.absent), (True, self.true), (False, self.false))
        # Sorted, so that equal filters are equal SQL and equal parameters.
        values = sorted(self.values, key=lambda value: (isinstance(value, str), value))
        return self.field.among([*values, *(value for value, wanted in flags if wanted)])


@dataclass(frozen=True, slots=True)
class Between:
    """The field is a text above or below some text, or a number above or below some number, and all at once."""

    field: Field
    bounds: Bounds

    @property
    def texts(self) -> bool:
        """Whether the bounds are texts."""
        return isinstance(self.bounds[0][1], str)

    @property
    def mixed(self) -> bool:
        """Whether the bounds are texts and numbers, which nothing lies between."""
        return any(isinstance(bound, str) != self.texts for _, bound in self.bounds)

    def holds_for(self, value: Value) -> bool:
        """Return whether a value of the field passes."""
        if isinstance(value, tuple):
            return any(self.holds_for(element) for element in value)
        if value is None or isinstance(value, bool) or self.mixed or isinstance(value, str) != self.texts:
            return False
        return all(COMPARE[name](value, bound) for name, bound in self.bounds)

    def condition(self) -> Condition:
        """Return the test in SQL."""
        return Condition("0") if self.mixed else self.field.between(self.bounds)


@dataclass(frozen=True, slots=True)
class Exists:
    """The field is there."""

    field: Field

    def holds_for(self, value: Value) -> bool:
        """Return whether a value of the field passes."""
        return value is not None

    def condition(self) -> Condition:
        """Return the test in SQL."""
        return self.field.exists()


Leaf = Among | Between | Exists


@dataclass(frozen=True, slots=True)
class All:
    """Every part holds."""

    parts: tuple[Test, ...]

    def condition(self) -> Condition:
        """Return the test in SQL."""
        return joined([part.condition() for part in self.parts], "AND")


@dataclass(frozen=True, slots=True)
class Some:
    """Some part holds."""

    parts: tuple[Test, ...]

    def condition(self) -> Condition:
        """Return the test in SQL."""
        return joined([part.condition() for part in self.parts], "OR")


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Test

    def condition(self) -> Condition:
        """Return the test in SQL."""
        return negated(self.part.condition())


Test = Leaf | All | Some | Not


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter, checked: as a tree of tests and as SQL."""

    test: Test
    condition: Condition


def parse_where(where: Where) -> Filter:
    """Read a filter.

    Args:
        where: `{field: value}` for equality; `{field: {operator: value, …}}` with `in`, `gt`, `gte`, `lt`,
            `lte`, `exists`, `not`; several fields must all hold; `{"and": […]}`, `{"or": […]}` and `{"not":
            {…}}` combine. Fields are those of a memory, and `metadata.<key>`, `metadata.<key>.<key>` … A
            field that is absent satisfies only `{"exists": False}`, `None` and `not`. A list (`sources`, `steps`,
            one in the metadata) passes equality, `in`, and the comparisons of one field together, if one of its
            elements does; it exists even when it is empty. Texts compare with texts, by code point, and numbers with
            numbers.

    Raises:
        TypeError, ValueError: For a field or operator that does not exist (the message lists those that do),
            or a value that cannot be compared with the field.
    """
    test = _mapping(where, 0)
    _check_size(sum(1 for _ in leaves(test)) <= _MOST_TESTS)
    condition = test.condition()
    _check_size(len(condition.parameters) <= _MOST_VALUES and len(condition.sql) <= _LONGEST_SQL)
    return Filter(test, condition)


def compile_where(where: Where | None) -> Condition:
    """Return a filter (`parse_where`) as an SQL condition; None holds for everything."""
    return Condition("1") if where is None else parse_where(where).condition


def leaves(test: Test) -> Iterator[Leaf]:
    """Yield the tests of single fields in a tree."""
    if isinstance(test, All | Some):
        for part in test.parts:
            yield from leaves(part)
    elif isinstance(test, Not):
        yield from leaves(test.part)
    else:
        yield test


def holds(test: Test, memory: Memory) -> bool:
    """Return whether a filter holds for a memory: what the SQL condition and the columns must say too."""
    if isinstance(test, All):
        return all(holds(part, memory) for part in test.parts)
    if isinstance(test, Some):
        return any(holds(part, memory) for part in test.parts)
    if isinstance(test, Not):
        return not holds(test.part, memory)
    return test.holds_for(test.field.of(memory))


def _mapping(where: object, depth: int) -> Test:
    if not isinstance(where, Mapping):
        raise TypeError(f"a filter must be a mapping such as {{'kind': 'archival'}}, got {type(where).__name__}")
    _check_depth(depth)
    return _all([_entry(name, value, depth) for name, value in where.items()])


def _check_size(fits: bool) -> None:
    if not fits:
        raise ValueError(
            "the filter is too large: it may make some thousands of tests; test one field against many values with 'in'"
        )


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"the filter is nested deeper than {DEEPEST} levels; write it flatter")


def _all(parts: Sequence[Test]) -> Test:
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _entry(name: object, value: object, depth: int) -> Test:
    if not isinstance(name, str):
        raise TypeError(f"a filter's keys must be text, got {quoted(name)}")
    if name in ("and", "or"):
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise TypeError(f"{name!r} takes a list of filters, got {type(value).__name__}")
        _check_size(len(value) <= _MOST_TESTS)
        parts = [_mapping(part, depth + 1) for part in value]
        return _all(parts) if name == "and" else Some(tuple(parts))
    if name == "not":
        return Not(_mapping(value, depth + 1))
    field = field_named(name)
    if field is None:
        raise ValueError(
            f"unknown field {quoted(name)} in the filter; it can be one of {', '.join(NAMES)}, and, or, not"
        )
    return _test(field, value, depth)


def _test(field: Field, value: object, depth: int) -> Test:
    _check_depth(depth)
    if not isinstance(value, Mapping):
        return _among(field, [value])
    if not value:
        raise ValueError(f"the filter on {field.name} is empty; give it a value or one of {', '.join(OPERATORS)}")
    tests: list[Test] = []
    bounds: list[tuple[str, Any]] = []
    for name, operand in value.items():
        if name == "in":
            if not isinstance(operand, Sequence | set | frozenset) or isinstance(operand, str):
                raise TypeError(f"'in' on {field.name} takes a list of values, got {type(operand).__name__}")
            tests.append(_among(field, operand))
        elif name in COMPARISONS:
            bounds.append((name, field.checked(_plain(operand))))
            if isinstance(bounds[-1][1], bool):
                raise TypeError(f"{name!r} on {field.name} takes what has an order, got {operand}; use equality or not")
        elif name == "exists":
            if not isinstance(operand, bool):
                raise TypeError(f"'exists' on {field.name} takes True or False, got {quoted(operand)}")
            tests.append(Exists(field) if operand else Not(Exists(field)))
        elif name == "not":
            tests.append(Not(_test(field, operand, depth + 1)))
        else:
            raise ValueError(
                f"unknown operator {quoted(name)} on {field.name}; it can be one of {', '.join(OPERATORS)} "
                "(equality is the bare value)"
            )
    if bounds:
        tests.append(Between(field, tuple(bounds)))
    return _all(tests)


def _among(field: Field, given: Sequence[object] | set[object] | frozenset[object]) -> Among:
    values = [None if value is None else field.checked(_plain(value)) for value in given]
    return Among(
        field,
        absent=any(value is None for value in values),
        true=any(value is True for value in values),
        false=any(value is False for value in values),
        values=frozenset(value for value in values if value is not None and not isinstance(value, bool)),
    )


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value
