"""One memory: what is remembered, whose it is, of what kind, and when it happened."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final

import numpy as np

from jiyi.ids import new_id
from jiyi.timestamps import to_datetime, to_text, utc_now

#: episodic: what happened. semantic: facts. archival: who the user is. procedural: how to do a task.
KINDS: Final = ("episodic", "semantic", "archival", "procedural")

_LONGEST_NAME: Final = 512
_DEEPEST_METADATA: Final = 64


_LARGEST_INTEGER: Final = 2**63 - 1


def checked_name(value: object, what: str) -> str:
    """Return an id, namespace, session or speaker as it is, or say what is wrong with it."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, got {type(value).__name__}; str() it first")
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


def _checked_metadata(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"metadata must be a mapping with text keys, got {type(value).__name__}")
    if not value:
        return {}

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
                    raise TypeError(f"{path} has the key {key!r:.80}; keys must be text")
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

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"text must be text, got {type(self.text).__name__}")
        _check_encodable(self.text, "text")
        checked_name(self.id, "id")
        checked_name(self.namespace, "namespace")
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r:.80}; it must be one of {', '.join(KINDS)}")
        put = object.__setattr__
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

    @classmethod
    def restored(cls, **fields: Any) -> Memory:
        """Make a memory of fields that were checked when they were stored, all of them, without checking them again."""
        memory = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(memory, name, value)
        return memory

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Memory:
        """Make a memory from a JSON object. Null fields count as left out; an unknown field is a ValueError."""
        if not isinstance(record, Mapping):
            raise TypeError(f"a memory must be an object with the field text, got {type(record).__name__}")
        unknown = [str(key) for key in record if key not in FIELDS]
        if unknown:
            raise ValueError(
                f"unknown field {unknown[0][:80]!r}; a memory has {', '.join(FIELDS)} (put your own under metadata)"
            )
        given = {key: value for key, value in record.items() if value is not None}
        if "text" not in given:
            raise ValueError("the field text is missing; it is the only one that is required")
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """Return the memory as a JSON object; fields that are empty are left out."""
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
        return record

    def to_json(self) -> str:
        """Return the memory as one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


FIELDS: Final = tuple(f.name for f in fields(Memory))


def as_memory(
    item: Memory | str | Mapping[str, Any], *, namespace: str | None = None, kind: str | None = None
) -> Memory:
    """Return a Memory for anything that `add_many` takes: a Memory, its text, or its fields as a mapping."""
    if isinstance(item, Memory):
        return item
    defaults: dict[str, Any] = {
        key: value for key, value in (("namespace", namespace), ("kind", kind)) if value is not None
    }
    if isinstance(item, str):
        return Memory(text=item, **defaults)
    if isinstance(item, Mapping):
        return Memory.from_dict(defaults | {key: value for key, value in item.items() if value is not None})
    raise TypeError(f"a memory must be a Memory, a text or a mapping of its fields, got {type(item).__name__}")


__all__ = ["FIELDS", "KINDS", "Memory", "as_memory", "checked_name"]
