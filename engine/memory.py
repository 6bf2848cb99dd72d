"""One memory: what is remembered, whose it is, of what kind, and when it happened."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from typing import Any, Final

import numpy as np

from jiyi.ids import new_id
from jiyi.quoted import quoted
from jiyi.text import fold, is_unspaced
from jiyi.timestamps import to_datetime, to_text, utc_now

#: episodic: what happened. semantic: facts. archival: who the user is. procedural: how to do a task.
KINDS: Final = ("episodic", "semantic", "archival", "procedural")

_LONGEST_NAME: Final = 512
_MOST_STEPS: Final = 1_000
_DEEPEST_METADATA: Final = 64
_LARGEST_INTEGER: Final = 2**63 - 1

_FACT: Final = ("subject", "predicate", "object")
_COUNTS: Final = ("uses", "successes", "failures")
#: What changes by using a memory, and not by writing it.
USAGE: Final = ("uses", "last_used", "successes", "failures")


def checked_name(value: object, what: str) -> str:
    """Return an id, namespace, session or speaker as it is, or say what is wrong with it."""
    if type(value) is str and 0 < len(value) <= _LONGEST_NAME and value.isascii() and "\0" not in value:
        return value
    if not isinstance(value, str):
        advice = "give exactly one" if isinstance(value, list | tuple | set) else "str() it first"
        raise TypeError(f"{what} must be text, got {type(value).__name__}; {advice}")
    if not value:
        raise ValueError(f"{what} is empty; give it at least one character, or leave it out")
    if len(value) > _LONGEST_NAME:
        raise ValueError(f"{what} is {len(value)} characters long; at most {_LONGEST_NAME} are allowed")
    _check_encodable(value, what)
    _check_no_nul(value, what)
    return value


def _check_no_nul(value: str, what: str) -> None:
    if "\0" in value:  # SQLite's JSON functions, which filters use, end a text there
        raise ValueError(f"{what} holds the character U+0000, which filters cannot compare; take it out")


def _check_encodable(value: str, what: str) -> None:
    if value.isascii():
        return
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} holds half a surrogate pair (U+{ord(value[error.start]):04X} at position {error.start}), which is "
            'no character; clean it with text.encode("utf-8", "replace").decode()'
        ) from None


def _checked_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, got {type(value).__name__}")
    _check_encodable(value, what)
    _check_no_nul(value, what)
    if not value.strip():
        raise ValueError(f"{what} is empty; say something, or leave it out")
    return value


def _checked_metadata(value: object) -> dict[str, Any]:
    if type(value) is dict and not value:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"metadata must be a mapping with text keys, got {type(value).__name__}")
    if not value:
        return {}

    if type(value) is dict and all(map(_is_flat, value, value.values())):
        return dict(value)

    def copied(item: object, depth: int, path: str) -> Any:
        if depth > _DEEPEST_METADATA:
            raise ValueError(f"metadata is nested deeper than {_DEEPEST_METADATA} levels; flatten it")
        if isinstance(item, np.generic):
            item = item.item()
        if item is None or isinstance(item, bool):
            return item
        if isinstance(item, str):
            _check_encodable(item, path)
            _check_no_nul(item, path)
            return item
        if isinstance(item, int):
            if abs(item) > _LARGEST_INTEGER:
                raise ValueError(f"{path} is a whole number of more than 64 bits; store it as text")
            return int(item)
        if isinstance(item, float):
            if not math.isfinite(item):
                raise ValueError(f"{path} is {item}, which JSON cannot hold; leave it out or use null")
            return float(item)
        if isinstance(item, Mapping):
            for key in item:
                if not isinstance(key, str):
                    raise TypeError(f"{path} has the key {quoted(key)}; keys must be text")
                _check_encodable(key, f"a key of {path}")
                _check_no_nul(key, f"a key of {path}")
            return {key: copied(part, depth + 1, f"{path}.{key[:80]}") for key, part in item.items()}
        if isinstance(item, list | tuple):
            return [copied(part, depth + 1, path) for part in item]
        raise TypeError(
            f"{path} is {type(item).__name__}; metadata holds text, numbers, true, false, null, lists, objects"
        )

    result: dict[str, Any] = copied(value, 0, "metadata")
    return result


def _is_flat(key: object, item: object) -> bool:
    """Whether an entry of metadata is one that needs neither a copy nor a second look."""
    if type(key) is not str or not key.isascii() or "\0" in key:
        return False
    kind = type(item)
    if kind is str:
        return str.isascii(item) and "\0" not in item  # type: ignore[arg-type, operator]
    return item is None or kind is bool or (kind is int and -_LARGEST_INTEGER <= item <= _LARGEST_INTEGER)  # type: ignore[operator]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One memory. Its fields cannot be set; each is checked and brought to one form when it is made.

    Args:
        text: What is remembered. The only field without a default.
        id: Unique within the namespace; a memory added with an id that exists replaces that memory. A new
            time-ordered UUIDv7 when left out.
        namespace: Whose memory it is ("default"). Namespaces are walls: nothing crosses them.
        kind: What happened; a fact; who the user is; how to do a task.
        timestamp: When it happened (not when it was stored): a datetime (naive is UTC), ISO 8601 text or
            epoch seconds. Now, when left out.
        session, speaker: The conversation it belongs to, and who said it.
        metadata: Anything JSON can hold, for filters.
        expires_at: Not recalled from this instant on.
        sources: Ids of the memories that this one was distilled from.
        subject, predicate, object: Of a semantic memory, all three or none: the fact it states. A later fact (by
            timestamp) of the same subject and predicate supersedes it: it stays as history, and is not recalled.
        multivalued: The predicate may hold several objects at once ("likes"): only the same fact supersedes it.
        title, steps, use_when: Of a procedural memory: what it does, its steps in order, and when it is the one to
            follow.
        uses, last_used, successes, failures: How often and when it was used last, and how using it went. They are
            kept up by `Engine.reinforce` and `Engine.outcome`, and stay when a memory is written again without them.

    Raises:
        TypeError, ValueError: Naming the field, what was got and what is allowed.

    >>> Memory(text="周末喜欢去徒步", kind="archival", timestamp="2026-03-02").timestamp.year
    2026
    """

    text: str
    id: str = field(default_factory=new_id)
    namespace: str = "default"
    kind: str = "episodic"
    timestamp: datetime = field(default_factory=utc_now)
    session: str | None = None
    speaker: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    expires_at: datetime | None = None
    sources: tuple[str, ...] = ()
    subject: str | None = None
    predicate: str | None = None
    object: str | None = None
    multivalued: bool = False
    title: str | None = None
    steps: tuple[str, ...] = ()
    use_when: str | None = None
    uses: int = 0
    last_used: datetime | None = None
    successes: int = 0
    failures: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"text must be text, got {type(self.text).__name__}")
        _check_encodable(self.text, "text")
        checked_name(self.id, "id")
        checked_name(self.namespace, "namespace")
        if self.kind not in KINDS:
            raise ValueError(f"kind is {quoted(self.kind)}; it must be one of {', '.join(KINDS)}")
        put = _put
        put(self, "timestamp", to_datetime(self.timestamp))
        if self.session is not None:
            checked_name(self.session, "session")
        if self.speaker is not None:
            checked_name(self.speaker, "speaker")
        put(self, "metadata", _checked_metadata(self.metadata))
        if self.expires_at is not None:
            put(self, "expires_at", to_datetime(self.expires_at, "expires_at"))
        if self.sources:
            if isinstance(self.sources, str) or not isinstance(self.sources, Iterable):
                raise TypeError(f"sources must be a list of ids, got {type(self.sources).__name__}")
            put(self, "sources", tuple(checked_name(source, "an id in sources") for source in self.sources))
        else:
            put(self, "sources", ())
        if (self.subject, self.predicate, self.object, self.multivalued) != (None, None, None, False):
            self._check_fact()
        if (self.title, self.use_when, self.steps) != (None, None, ()):
            self._check_procedure()
        if (self.uses, self.successes, self.failures, self.last_used) != (0, 0, 0, None):
            self._check_usage()

    def _check_fact(self) -> None:
        given = [name for name in _FACT if getattr(self, name) is not None]
        if not isinstance(self.multivalued, bool):
            raise TypeError(f"multivalued must be True or False, got {quoted(self.multivalued)}")
        if (given or self.multivalued) and self.kind != "semantic":
            name = (given or ["multivalued"])[0]
            raise ValueError(f"{name} is given for a memory of kind {self.kind!r}; only semantic memories state facts")
        if (given or self.multivalued) and len(given) < len(_FACT):
            missing = [name for name in _FACT if name not in given]
            raise ValueError(f"the fact has no {' and no '.join(missing)}; give subject, predicate and object, or none")
        for name in given:
            checked_name(getattr(self, name), name)
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is nothing but white space; give it at least one character")

    def _check_procedure(self) -> None:
        given = [name for name in ("title", "steps", "use_when") if getattr(self, name) not in (None, ())]
        if not given:
            _put(self, "steps", ())
            return
        if self.kind != "procedural":
            raise ValueError(
                f"{given[0]} is given for a memory of kind {self.kind!r}; only procedural memories have steps"
            )
        if self.title is not None:
            _checked_text(self.title, "title")
        if self.use_when is not None:
            _checked_text(self.use_when, "use_when")
        if isinstance(self.steps, str) or not isinstance(self.steps, Iterable):
            raise TypeError(f"steps must be a list of texts, got {type(self.steps).__name__}")
        steps = tuple(_checked_text(step, f"step {i}") for i, step in enumerate(self.steps, start=1))
        if len(steps) > _MOST_STEPS:
            raise ValueError(f"the procedure has {len(steps)} steps; at most {_MOST_STEPS} are allowed")
        _put(self, "steps", steps)

    def _check_usage(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be a whole number, got {quoted(value)}")
            if not 0 <= value < 2**31:
                raise ValueError(f"{name} is {quoted(value)}; it must be from 0 to {2**31 - 1}")
        if self.last_used is not None:
            _put(self, "last_used", to_datetime(self.last_used, "last_used"))

    @classmethod
    def fact(cls, subject: str, predicate: str, object: str, *, text: str | None = None, **fields: Any) -> Memory:
        """Make a semantic memory that states a fact.

        Args:
            subject, predicate, object: see `Memory`.
            text: how the fact is said; the three in a row when left out.
            **fields: any other field of a memory.

        >>> Memory.fact("Ana", "lives in", "Lyon", timestamp="2026-03-02").text
        'Ana lives in Lyon'
        >>> Memory.fact("小明", "住在", "上海").text
        '小明住在上海'
        """
        fields = {"kind": "semantic", "subject": subject, "predicate": predicate, "object": object, **fields}
        return cls(text=composed_text(fields) if text is None else text, **fields)

    @classmethod
    def procedure(
        cls,
        title: str,
        steps: Iterable[str],
        *,
        use_when: str | None = None,
        text: str | None = None,
        **fields: Any,
    ) -> Memory:
        """Make a procedural memory: how to do a task.

        Args:
            title, steps, use_when: see `Memory`.
            text: how it is said; title, use_when and the numbered steps when left out.
            **fields: any other field of a memory.

        >>> print(Memory.procedure("Deploy", ["run the tests", "push the tag"], use_when="a release is due").text)
        Deploy (a release is due): 1. run the tests 2. push the tag
        """
        steps = steps if isinstance(steps, str) or not isinstance(steps, Iterable) else tuple(steps)
        fields = {"kind": "procedural", "title": title, "steps": steps, "use_when": use_when, **fields}
        return cls(text=composed_text(fields) if text is None else text, **fields)

    @property
    def fact_key(self) -> str | None:
        """What facts that supersede each other share; None for a memory that states none.

        Subject and predicate (and, for a multivalued one, the object) without regard to case, width and spaces.
        """
        if self.subject is None:
            return None
        parts = (self.subject, self.predicate, self.object) if self.multivalued else (self.subject, self.predicate)
        return "\0".join(entity_key(str(part)) for part in parts)

    @classmethod
    def of_text(cls, text: str) -> Memory:
        """Make what `Memory(text=text)` makes, without looking at fields that were not given."""
        if not isinstance(text, str):
            return cls(text=text)
        _check_encodable(text, "text")
        memory = object.__new__(cls)
        for put, value in _UNSET:
            put(memory, value)
        _SETTERS["text"](memory, text)
        _SETTERS["id"](memory, new_id())
        _SETTERS["timestamp"](memory, utc_now())
        _SETTERS["metadata"](memory, {})
        return memory

    @classmethod
    def restored(cls, **fields: Any) -> Memory:
        """Make a memory of fields that were checked when they were stored, all of them, without checking them again."""
        memory = object.__new__(cls)
        # The slots' own setters: what a frozen dataclass closes off for others costs twice as much.
        for name, value in fields.items():
            _SETTERS[name](memory, value)
        return memory

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Memory:
        """Make a memory from a JSON object. Null fields count as left out; an unknown field is a ValueError."""
        if not isinstance(record, Mapping):
            raise TypeError(f"a memory must be an object with the field text, got {type(record).__name__}")
        if not _FIELD_NAMES.issuperset(record):
            unknown = [str(key) for key in record if key not in FIELDS]
            raise ValueError(
                f"unknown field {quoted(unknown[0])}; a memory has {', '.join(FIELDS)} (put your own under metadata)"
            )
        given = {key: value for key, value in record.items() if value is not None}
        if "text" not in given:
            text = composed_text(given)
            if not text:
                raise ValueError("the field text is missing; it is the only one that is required")
            given["text"] = text
        return cls(**given)

    def to_dict(self, *, usage: bool = True) -> dict[str, Any]:
        """Return the memory as a JSON object; fields that are empty are left out, and with usage=False its usage."""
        record: dict[str, Any] = {
            "id": self.id,
            "namespace": self.namespace,
            "kind": self.kind,
            "timestamp": to_text(self.timestamp),
            "text": self.text,
        }
        if self.session is not None:
            record["session"] = self.session
        if self.speaker is not None:
            record["speaker"] = self.speaker
        if self.metadata:
            record["metadata"] = dict(self.metadata)
        if self.expires_at is not None:
            record["expires_at"] = to_text(self.expires_at)
        if self.sources:
            record["sources"] = list(self.sources)
        if self.subject is not None:
            record.update((name, getattr(self, name)) for name in _FACT)
            if self.multivalued:
                record["multivalued"] = True
        if self.kind == "procedural":
            record.update((name, value) for name in ("title", "use_when") if (value := getattr(self, name)) is not None)
            if self.steps:
                record["steps"] = list(self.steps)
        if usage:
            record.update((name, value) for name in _COUNTS if (value := getattr(self, name)))
            if self.last_used is not None:
                record["last_used"] = to_text(self.last_used)
        return record

    def to_json(self, *, usage: bool = True) -> str:
        """Return the memory as one line of JSON."""
        return json.dumps(self.to_dict(usage=usage), ensure_ascii=False)


_put: Final = object.__setattr__
_SETTERS: Final = {each.name: getattr(Memory, each.name).__set__ for each in fields(Memory)}
_UNSET: Final = [(_SETTERS[each.name], each.default) for each in fields(Memory) if each.default is not MISSING]


def entity_key(name: str) -> str:
    """Return the form in which names of entities and predicates are compared: folded, single spaces."""
    return " ".join(fold(name).split())


def _said(part: object) -> str:
    """A text as it is; what is none is shown, and refused by the check of its field."""
    return part if isinstance(part, str) else quoted(part)


def composed_text(fields: Mapping[str, Any]) -> str:
    """Return the text of a fact or a procedure that came without one; empty when the fields are neither."""
    if all(isinstance(fields.get(name), str) for name in _FACT):
        text = ""
        for part in (str(fields[name]) for name in _FACT):
            # Words of scripts without spaces stand side by side.
            space = " " if text and part and not (is_unspaced(text[-1]) and is_unspaced(part[0])) else ""
            text += space + part
        return text
    title, steps, use_when = fields.get("title"), fields.get("steps") or (), fields.get("use_when")
    if title is None and not steps:
        return ""
    said = "" if title is None else _said(title)
    if use_when is not None:
        said += f" ({_said(use_when)})"
    if isinstance(steps, str) or not isinstance(steps, Iterable):
        return said  # the check of the fields says what is wrong
    numbered = " ".join(f"{i}. {_said(step)}" for i, step in enumerate(steps, start=1))
    return ": ".join(part for part in (said, numbered) if part)


FIELDS: Final = tuple(f.name for f in fields(Memory))
_FIELD_NAMES: Final = frozenset(FIELDS)


#: What `add` takes: a memory, its text, or its fields.
MemoryLike = Memory | str | Mapping[str, Any]


def as_memory(item: MemoryLike, *, namespace: str | None = None, kind: str | None = None) -> Memory:
    """Return a Memory for anything that `add_many` takes: a Memory, its text, or its fields as a mapping."""
    if isinstance(item, Memory):
        return item
    defaults: dict[str, Any] = {
        key: value for key, value in (("namespace", namespace), ("kind", kind)) if value is not None
    }
    if isinstance(item, str):
        return Memory(text=item, **defaults) if defaults else Memory.of_text(item)
    if type(item) is dict or isinstance(item, Mapping):
        return Memory.from_dict(defaults | {key: value for key, value in item.items() if value is not None})
    raise TypeError(f"a memory must be a Memory, a text or a mapping of its fields, got {type(item).__name__}")


__all__ = ["FIELDS", "KINDS", "USAGE", "Memory", "as_memory", "checked_name", "composed_text", "entity_key"]
