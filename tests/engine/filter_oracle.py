"""What filters mean, in plain Python, and random memories and filters to hold them against."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from jiyi.memory import FIELDS, KINDS, Memory
from jiyi.timestamps import to_datetime

START = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ["", "a", "b", "ab", "B", "é", "猫", "Robert'); DROP TABLE memories;--", '"', "%", "\\", "0", "true"]
NUMBERS: list[int | float] = [0, 1, -1, 2, 1.0, 1.5, -2.5, 2**53 + 1, 2**62, -(2**63) + 1, 2**63 - 1, 1e300, 9.3e18]
TEXTS = [f"{word} note 记忆".strip() for word in WORDS]
# Seconds in float64 do not tell these apart.
FAR = [datetime(2300, 1, 1, 0, 0, 0, microsecond, tzinfo=UTC) for microsecond in (0, 1, 2)]
PLAIN = [field for field in FIELDS if field != "metadata"]
SOME_VALUES = {
    "sources": ["x", "y", "z'", "w"],
    "steps": ["run", "跑测试", "push '", "x"],
    "speaker": ["Ana", "李雷", "ana"],
    "namespace": ["ana", "bo", "o'\"x"],
    "id": ["id1", "id'0\"", "id'3\"", "id40"],
    "text": TEXTS,
    "subject": ["Ana", "小明", "ana"],
    "predicate": ["likes", "住在"],
    "object": ["茶", "Lyon", "o'"],
    "title": ["Deploy", "部署"],
    "use_when": ["a release is due", "x"],
}
KEYS = ["n", "s", "b", "o", "o.n", "o.o.s", 'q"', "$", "d$.x", "'", "missing", "o.missing", "n.x", "l", "\\", "\n"]


# ------------------------------------------------------------------------------------------ the oracle

_ABSENT = object()


TIMES = ("timestamp", "expires_at", "last_used")
COUNTS = ("uses", "successes", "failures")
NULLABLE = ("session", "speaker", "expires_at", "sources", "subject", "object", "title", "steps", "last_used")


def _value(memory: Memory, field: str) -> Any:
    if field.startswith("metadata."):
        value: Any = memory.metadata
        for key in field.split(".")[1:]:
            value = value.get(key, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        return None if value is _ABSENT else value
    return (list(getattr(memory, field)) or None) if field in ("sources", "steps") else getattr(memory, field)


def _sort(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _elements(value: list[Any]) -> list[Any]:
    return [element for element in value if isinstance(element, bool | int | float | str)]


def _equal(field: str, value: Any, wanted: Any) -> bool:
    if wanted is None:
        return value is None
    if isinstance(value, list):
        return any(_equal(field, element, wanted) for element in _elements(value))
    if field in TIMES:
        return value is not None and value == to_datetime(wanted)
    return _sort(value) == _sort(wanted) and bool(value == wanted)


def _compare(field: str, value: Any, tests: Mapping[str, Any]) -> bool:
    if isinstance(value, list):
        return any(_compare(field, element, tests) for element in _elements(value))
    for operator, wanted in tests.items():
        if field in TIMES:
            wanted = to_datetime(wanted)
        if value is None or isinstance(value, bool) or _sort(value) != _sort(wanted):
            return False
        outcomes = {"gt": value > wanted, "gte": value >= wanted, "lt": value < wanted, "lte": value <= wanted}
        if not outcomes[operator]:
            return False
    return True


def _field_holds(memory: Memory, field: str, test: Any) -> bool:
    value = _value(memory, field)
    if not isinstance(test, Mapping):
        return _equal(field, value, test)
    results = []
    for operator, operand in test.items():
        if operator == "in":
            results.append(any(_equal(field, value, one) for one in operand))
        elif operator == "exists":
            results.append((value is not None) == operand)
        elif operator == "not":
            results.append(not _field_holds(memory, field, operand))
    compared = {operator: operand for operator, operand in test.items() if operator in ("gt", "gte", "lt", "lte")}
    return all(results) and (not compared or _compare(field, value, compared))


def holds(memory: Memory, where: Mapping[str, Any]) -> bool:
    """Whether a filter holds for a memory, by the documentation."""
    results = []
    for name, value in where.items():
        if name == "and":
            results.append(all(holds(memory, part) for part in value))
        elif name == "or":
            results.append(any(holds(memory, part) for part in value))
        elif name == "not":
            results.append(not holds(memory, value))
        else:
            results.append(_field_holds(memory, name, value))
    return all(results)


# --------------------------------------------------------------------------- random stores and filters


def _json(random_: random.Random, depth: int = 0) -> Any:
    kind = random_.randrange(7 if depth < 3 else 4)
    if kind == 0:
        return random_.choice(WORDS)
    if kind == 1:
        return random_.choice(NUMBERS)
    if kind == 2:
        return random_.choice([True, False])
    if kind == 3:
        return None
    if kind == 4:
        return [_json(random_, depth + 1) for _ in range(random_.randrange(3))]
    return {key: _json(random_, depth + 1) for key in random_.sample(["n", "s", "o", 'q"', "x", "$", "'"], 3)}


def random_memory(random_: random.Random, i: int, namespace: str | None = None) -> Memory:
    """A memory with something or nothing in every field; all texts share two words."""
    maybe = lambda values: random_.choice([None, *values])  # noqa: E731
    kind = random_.choice(KINDS)
    own: dict[str, Any] = {}
    if kind == "semantic" and random_.random() < 0.7:
        own = {"subject": random_.choice(["Ana", "小明"]), "predicate": random_.choice(["likes", "住在"])}
        own |= {"object": random_.choice(["茶", "Lyon", "o'"]), "multivalued": random_.random() < 0.5}
    if kind == "procedural":
        own = {"title": maybe(["Deploy", "部署"]), "use_when": maybe(["a release is due"])}
        own["steps"] = random_.sample(["run", "跑测试", "push '"], random_.randrange(3))
    if random_.random() < 0.3:
        moment = START + timedelta(hours=random_.randrange(6), microseconds=random_.randrange(2))
        own |= {"uses": random_.randrange(4), "successes": random_.randrange(3), "failures": random_.randrange(2)}
        own["last_used"] = maybe([moment, *FAR])
    return Memory(
        id=f"id{i}" if i % 3 else f"id'{i}\"",
        text=random_.choice(TEXTS),
        namespace=namespace or random_.choice(["ana", "bo", "o'\"x"]),
        kind=kind,
        timestamp=random_.choice(FAR)
        if random_.random() < 0.1
        else START + timedelta(hours=random_.randrange(6), microseconds=random_.randrange(2)),
        session=maybe(WORDS[1:]),
        speaker=maybe(["Ana", "李雷"]),
        metadata={
            key: _json(random_)
            for key in random_.sample(["n", "s", "b", "o", 'q"', "$", "d$", "'", "l", "\\", "\n"], random_.randrange(9))
        },
        expires_at=maybe([*(START + timedelta(hours=h) for h in range(4)), FAR[0]]),
        sources=random_.sample(["x", "y", "z'"], random_.randrange(3)),
        **own,
    )


def _scalar(random_: random.Random) -> Any:
    return random_.choice([random_.choice(WORDS), random_.choice(NUMBERS), True, False, None])


def _test(random_: random.Random, field: str, depth: int) -> Any:
    def value() -> Any:
        if field in COUNTS:
            return random_.choice([0, 1, 2, 3, 1.0, 0.5, 2**62])
        if field == "multivalued":
            return random_.choice([True, False])
        if field in TIMES:
            if random_.random() < 0.1:
                return random_.choice(FAR)
            moment = START + timedelta(hours=random_.randrange(6), microseconds=random_.randrange(2))
            return random_.choice([moment, moment.isoformat(), moment.replace(tzinfo=None)])
        if field == "kind":
            return random_.choice(KINDS)
        if field in SOME_VALUES:
            return random_.choice(SOME_VALUES[field])
        if field.startswith("metadata."):
            return _scalar(random_)
        return random_.choice(WORDS)

    def ordered() -> Any:
        while isinstance(found := value(), bool) or found is None:
            pass
        return found

    nullable = field in NULLABLE or field.startswith("metadata.")
    choices = ["equal", "in", "exists", "not"] + (
        [] if field in ("kind", "sources", "steps", "multivalued") else ["gt", "gte", "lt", "lte", "range"]
    )
    choice = random_.choice(choices)
    if choice == "equal":
        return None if nullable and random_.random() < 0.2 else value()
    if choice == "in":
        return {
            "in": [value() for _ in range(random_.randrange(4))]
            + ([None] if nullable and random_.random() < 0.2 else [])
        }
    if choice == "exists":
        return {"exists": random_.choice([True, False])}
    if choice == "not":
        return {"not": _test(random_, field, depth + 1) if depth < 2 else value()}
    if choice == "range":
        return {"gte": ordered(), "lt": ordered()}
    return {choice: ordered()}


def random_where(random_: random.Random, depth: int = 0) -> dict[str, Any]:
    """A filter on anything, nested up to three levels."""
    made: dict[str, Any] = {}
    for _ in range(random_.choice([0, 1, 1, 1, 2, 3])):
        kind = random_.random()
        if kind < 0.15 and depth < 3:
            made["and"] = [random_where(random_, depth + 1) for _ in range(random_.randrange(4))]
        elif kind < 0.3 and depth < 3:
            made["or"] = [random_where(random_, depth + 1) for _ in range(random_.randrange(4))]
        elif kind < 0.4 and depth < 3:
            made["not"] = random_where(random_, depth + 1)
        else:
            field = random_.choice(PLAIN) if random_.random() < 0.5 else "metadata." + random_.choice(KEYS)
            made[field] = _test(random_, field, depth)
    return made
