"""A memory: its one form, and every field refused by name when it is wrong."""

from __future__ import annotations

import dataclasses
import json
import re
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.memory import FIELDS, KINDS, Memory, as_memory

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet="k.é\n", max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_only_text_is_needed() -> None:
    before = datetime.now(UTC)
    memory = Memory(text="loves hiking")
    assert (memory.namespace, memory.kind, memory.session, memory.speaker) == ("default", "episodic", None, None)
    assert (memory.metadata, memory.expires_at, memory.sources) == ({}, None, ())
    assert before <= memory.timestamp <= datetime.now(UTC)
    assert uuid.UUID(memory.id).version == 7


def test_fields_are_brought_to_one_form() -> None:
    memory = Memory(text="x", timestamp="2026-03-02", expires_at=0, sources=["a", "b"], metadata={"t": (1, 2)})
    assert memory.timestamp == datetime(2026, 3, 2, tzinfo=UTC)
    assert memory.expires_at == datetime(1970, 1, 1, tzinfo=UTC)
    assert memory.sources == ("a", "b")
    assert memory.metadata == {"t": [1, 2]}


def test_is_frozen_and_does_not_share_the_callers_objects() -> None:
    mine: dict[str, Any] = {"tags": ["a"]}
    memory = Memory(text="x", metadata=mine)
    mine["tags"].append("b")
    assert memory.metadata == {"tags": ["a"]}
    with pytest.raises(dataclasses.FrozenInstanceError):
        memory.text = "y"  # type: ignore[misc]


def test_can_be_put_into_sets() -> None:
    memory = Memory(text="x", metadata={"a": 1})
    assert len({memory, dataclasses.replace(memory)}) == 1


WRONG_TYPES = [
    ("text", 5),
    ("text", None),
    ("text", b"x"),
    ("id", 5),
    ("namespace", 1.5),
    ("session", 5),
    ("speaker", ["Ana"]),
    ("timestamp", [1]),
    ("expires_at", ...),
    ("metadata", "x"),
    ("metadata", [1]),
    ("metadata", {1: "x"}),
    ("metadata", {"a": {2: 1}}),
    ("metadata", {"a": b"x"}),
    ("metadata", {"a": {1, 2}}),
    ("metadata", {"a": ...}),
    ("sources", "abc"),
    ("sources", [1]),
    ("sources", 5),
]
WRONG_VALUES = [
    ("text", "\ud800"),
    ("id", ""),
    ("id", "x" * 513),
    ("id", "a\udfff"),
    ("id", "a\0"),
    ("metadata", {"a": "\0"}),
    ("metadata", {"a": 2**63}),
    ("metadata", {"a": -(2**70)}),
    ("namespace", ""),
    ("namespace", "\ud800"),
    ("kind", "memory"),
    ("kind", None),
    ("kind", 1),
    ("session", ""),
    ("speaker", "y" * 513),
    ("timestamp", 1e12),
    ("timestamp", "soon"),
    ("expires_at", float("nan")),
    ("metadata", {"a": float("nan")}),
    ("metadata", {"a": [float("inf")]}),
    ("metadata", {"a": "\ud800"}),
    ("metadata", {"\ud800": 1}),
    ("sources", [""]),
    ("sources", ["a", "\ud800"]),
]


@pytest.mark.parametrize(("field", "value"), WRONG_TYPES, ids=str)
def test_wrong_types_are_type_errors_that_name_the_field(field: str, value: Any) -> None:
    with pytest.raises(TypeError, match=field):
        Memory(**{"text": "x", field: value})


@pytest.mark.parametrize(("field", "value"), WRONG_VALUES, ids=ascii)
def test_wrong_values_are_value_errors_that_name_the_field(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        Memory(**{"text": "x", field: value})


def test_metadata_that_never_ends_or_goes_too_deep() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(ValueError, match="64 levels"):
        Memory(text="x", metadata=loop)
    deep: Any = 1
    for _ in range(64):
        deep = [deep]
    with pytest.raises(ValueError, match="64 levels"):
        Memory(text="x", metadata={"a": deep})
    Memory(text="x", metadata={"a": deep[0]})


def test_long_names_up_to_512() -> None:
    assert Memory(text="x", id="é" * 512).id == "é" * 512


@given(
    text=st.text(alphabet=st.characters(exclude_categories=("Cs",))),
    kind=st.sampled_from(KINDS),
    moment=st.datetimes(),
    metadata=st.dictionaries(st.text(alphabet="ab.$\"'\\é", max_size=4), _JSON, max_size=3),
)
def test_json_there_and_back(text: str, kind: str, moment: datetime, metadata: dict[str, Any]) -> None:
    memory = Memory(
        text=text, kind=kind, timestamp=moment, metadata=metadata, session="s", sources=["a"], expires_at=moment
    )
    line = memory.to_json()
    assert "\n" not in line
    assert Memory.from_dict(json.loads(line)) == memory


def test_empty_fields_are_left_out_of_the_json() -> None:
    assert set(Memory(text="x").to_dict()) == {"id", "namespace", "kind", "timestamp", "text"}


def test_records_with_nulls_unknown_fields_or_without_text() -> None:
    assert Memory.from_dict({"text": "x", "session": None, "id": None}).session is None
    with pytest.raises(ValueError, match=r"unknown field 'txt'.*text, id, namespace"):
        Memory.from_dict({"txt": "x"})
    with pytest.raises(ValueError, match="text is missing"):
        Memory.from_dict({"kind": "semantic"})
    with pytest.raises(ValueError, match="text is missing"):
        Memory.from_dict({"text": None})
    with pytest.raises(TypeError, match="must be an object"):
        Memory.from_dict(["text"])  # type: ignore[arg-type]


def test_defaults_are_for_those_that_do_not_say_their_own() -> None:
    assert as_memory("x", namespace="ana", kind="archival").kind == "archival"
    assert as_memory({"text": "x", "namespace": "bo"}, namespace="ana").namespace == "bo"
    assert as_memory({"text": "x", "namespace": None}, namespace="ana").namespace == "ana"
    assert as_memory(Memory(text="x", namespace="bo"), namespace="ana").namespace == "bo"
    with pytest.raises(TypeError, match="a Memory, a text or a mapping"):
        as_memory(5)  # type: ignore[arg-type]


def test_fields_are_those_of_the_design() -> None:
    assert set(FIELDS) == {
        "text",
        "id",
        "namespace",
        "kind",
        "timestamp",
        "session",
        "speaker",
        "metadata",
        "expires_at",
        "sources",
        # of facts
        "subject",
        "predicate",
        "object",
        "multivalued",
        # of procedures
        "title",
        "steps",
        "use_when",
        # of using them
        "uses",
        "last_used",
        "successes",
        "failures",
    }


def test_a_memory_of_its_text_is_what_it_is_with_nothing_else_given() -> None:
    for text in ("cat", "徒步 👍", ""):
        quick, plain = Memory.of_text(text), Memory(text=text)
        unlike = [name for name in FIELDS if getattr(quick, name) != getattr(plain, name)]
        assert set(unlike) <= {"id", "timestamp"}
        assert quick.id > "0"
        assert quick.metadata is not Memory.of_text(text).metadata
        assert quick == dataclasses.replace(quick)
        assert quick.timestamp <= Memory.of_text(text).timestamp
    for bad in (5, None, b"cat", "\ud800"):
        with pytest.raises((TypeError, ValueError)) as expected:
            Memory(text=bad)  # type: ignore[arg-type]
        with pytest.raises(type(expected.value), match=re.escape(str(expected.value))):
            Memory.of_text(bad)  # type: ignore[arg-type]
