"""Which namespaces a reading call means: one, several by name, or all whose names begin alike.

A name that ends in `*` stands for every namespace whose name begins with what is before it; `*` alone for all. The
namespace that is itself called `a*` is written `a\\*`, which `exact_namespace` does for any name. Nothing else in a
name has a meaning: no other wildcards, no case folding, no separator.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from jiyi.filter_fields import Condition
from jiyi.memory import checked_name

if TYPE_CHECKING:
    from jiyi.ledger import Ledger

#: What a call was asked for, checked: one name or prefix, or several.
Namespaces = str | tuple[str, ...]

_STAR: Final = "*"
_ESCAPE: Final = "\\"


def exact_namespace(name: str) -> str:
    """Return what names this very namespace in a call that also takes prefixes.

    For names that come from outside: a user who calls himself "*" is then no more than that.

    >>> exact_namespace("ana"), exact_namespace("a*")
    ('ana', 'a\\\\*')

    Raises:
        TypeError, ValueError: it cannot be a namespace's name.
    """
    checked_name(name, "namespace")
    if not name.endswith(_STAR):
        return name
    stem, escapes = _without_escapes(name[:-1])
    return stem + _ESCAPE * (2 * escapes + 1) + _STAR


def checked_namespaces(value: object) -> Namespaces:
    """Return what a reading call was asked for: a name or prefix, or a tuple of distinct ones.

    Raises:
        TypeError, ValueError: it is neither text nor a list of texts, the list is empty, or a name cannot be one.
    """
    if isinstance(value, str):
        _parsed(value)
        return value
    if not isinstance(value, list | tuple):
        raise TypeError(
            f"namespace must be a name, a prefix such as 'team/*', or a list of them, got {type(value).__name__}"
        )
    if not value:
        raise ValueError("namespace is an empty list; name at least one, or '*' for all")
    for name in value:
        if not isinstance(name, str):
            raise TypeError(f"namespace must be a list of texts, got {type(name).__name__} in it")
        _parsed(name)
    return tuple(dict.fromkeys(value))


def only_name(asked: Namespaces) -> str | None:
    """Return the name when exactly one was asked for, and no prefix; None otherwise."""
    wanted = (asked,) if isinstance(asked, str) else asked
    if len(wanted) > 1:
        return None
    name, is_prefix = _parsed(wanted[0])
    return None if is_prefix else name


def names_in(ledger: Ledger, asked: Namespaces) -> list[str]:
    """Return the distinct names asked for: those of a prefix as the ledger has them now, others whether or not."""
    names: dict[str, None] = {}
    for each in (asked,) if isinstance(asked, str) else asked:
        name, is_prefix = _parsed(each)
        names.update(dict.fromkeys(ledger.names_from(name) if is_prefix else (name,)))
    return list(names)


def condition_in(asked: Namespaces) -> Condition:
    """Return the SQL condition over `m` (memories) for those of the namespaces asked for."""
    tests: list[str] = []
    bound: list[str] = []
    for each in (asked,) if isinstance(asked, str) else asked:
        name, is_prefix = _parsed(each)
        if is_prefix:
            tests.append("s.name >= ? AND substr(s.name, 1, length(?)) = ?")
            bound += [name, name, name]
    names = [name for name, is_prefix in map(_parsed, (asked,) if isinstance(asked, str) else asked) if not is_prefix]
    if names:
        # One bound JSON list, so that a thousand names are no more SQL than two.
        tests.append("s.name IN (SELECT value FROM json_each(?))")
        bound.append(json.dumps(names))
    chosen = f"SELECT s.namespace FROM namespaces s WHERE {' OR '.join(f'({test})' for test in tests)}"
    return Condition(f"m.namespace IN ({chosen})", tuple(bound))


def _parsed(text: str) -> tuple[str, bool]:
    """A name, or a prefix and True."""
    if not text.endswith(_STAR):
        return checked_name(text, "namespace"), False
    stem, escapes = _without_escapes(text[:-1])
    name = stem + _ESCAPE * (escapes // 2)
    if escapes % 2:
        return checked_name(name + _STAR, "namespace"), False
    if name:
        checked_name(name, "namespace")
    return name, True


def _without_escapes(text: str) -> tuple[str, int]:
    stem = text.rstrip(_ESCAPE)
    return stem, len(text) - len(stem)
