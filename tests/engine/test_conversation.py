"""A conversation as agents hold it is stored once, a memory a message that says something."""

from __future__ import annotations

import asyncio
import base64
import enum
import hashlib
import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jiyi
from jiyi import Memory
from jiyi.conversation import conversation_memories
from jiyi.timestamps import to_microseconds

PIXELS = bytes(range(256)) * 40
ENCODED = base64.b64encode(PIXELS).decode()
S = 1_000_000  # microseconds a second
DIGEST = hashlib.sha256(PIXELS).hexdigest()

TALK = [
    {"role": "system", "content": "You are kind."},
    {"role": "user", "content": "我周末想去徒步", "name": "小明"},
    {"role": "assistant", "content": "好的，要我看看天气吗？"},
    {"role": "user", "content": ""},
    {"role": "user", "content": "Yes, please", "name": "小明"},
]


def said(engine: jiyi.Engine, **settings: Any) -> list[tuple[str | None, str]]:
    return [(memory.speaker, memory.text) for memory in engine.list(**settings)]


def only(engine: jiyi.Engine, messages: list[Any], **settings: Any) -> Memory:
    (new,) = engine.add_messages(messages, session="s", **settings)
    return engine.get(new)


def test_what_is_stored_of_a_conversation(engine: jiyi.Engine) -> None:
    ids = engine.add_messages(TALK, session="s1", now="2026-03-01")
    assert said(engine) == [
        ("小明", "我周末想去徒步"),
        ("assistant", "好的，要我看看天气吗？"),
        ("小明", "Yes, please"),
    ]
    for memory, memory_id in zip(engine.list(), ids, strict=True):
        assert memory.id == memory_id
        assert (memory.kind, memory.session, memory.namespace) == ("episodic", "s1", "default")
    times = [memory.timestamp - datetime(2026, 3, 1, tzinfo=UTC) for memory in engine.list()]
    assert times == [timedelta(microseconds=i) for i in (-2, -1, 0)]
    assert [memory.metadata for memory in engine.list()] == [{"role": role} for role in ("user", "assistant", "user")]
    assert engine.search("徒步").memories[0].speaker == "小明"


def test_a_conversation_that_grew_adds_what_is_new(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        first = engine.add_messages(TALK[:3], session="s1")
        sequence = engine.stats()["sequence"]
        assert engine.add_messages(TALK[:3], session="s1") == []
        assert engine.stats()["sequence"] == sequence
    with jiyi.open(folder, embedder=None) as engine:
        (new,) = engine.add_messages(TALK, session="s1")
        assert [memory.id for memory in engine.list()] == [*first, new]
        assert engine.add_messages(TALK[2:], session="s1") == []  # the end of it
        assert len(engine.add_messages(TALK, session="s2")) == 3
        assert len(engine.add_messages(TALK, session="s1", namespace="bo")) == 3
        assert engine.count() == 6


def test_what_is_said_again_counts_again(engine: jiyi.Engine) -> None:
    talk = ["ok", {"role": "assistant", "content": "ok"}, "ok"]
    assert len(engine.add_messages(talk, session="s")) == 3
    assert len(engine.add_messages([*talk, "ok", "好的"], session="s")) == 2
    timed = [{"role": "user", "content": "ok", "timestamp": i} for i in (1, 2)]
    assert len(engine.add_messages(timed, session="t")) == 2
    assert engine.add_messages(timed[1:], session="t") == []


def test_ids_are_the_same_everywhere(engine: jiyi.Engine) -> None:
    ids = engine.add_messages(TALK, session="s1", now=5)
    with jiyi.open(embedder=None) as other:
        assert other.add_messages(TALK, session="s1", now=6, metadata={"app": 1}) == ids


def test_what_was_merged_is_there(engine: jiyi.Engine) -> None:
    engine.add_messages(["我周末想去城外的山上徒步", "我周末想去城外的山上徒步。", "好"], session="s")
    assert engine.consolidate().removed == 1
    assert engine.add_messages(["我周末想去城外的山上徒步", "我周末想去城外的山上徒步。", "好"], session="s") == []


# ---------------------------------------------------------------------------------------------------------- roles


def test_roles_that_are_asked_for(engine: jiyi.Engine) -> None:
    talk = [
        {"role": "developer", "content": "Be brief."},
        {"role": "human", "content": "hi"},
        {"role": "AI", "content": "hello"},
        {"role": "critic", "content": "too short"},
        {"role": "tool", "name": "weather", "content": "rain", "tool_call_id": "c1"},
    ]
    assert len(engine.add_messages(talk, session="s")) == 2
    assert said(engine) == [("user", "hi"), ("assistant", "hello")]
    roles = ["System", "user", "assistant", "critic", "tool"]
    assert len(engine.add_messages(talk, session="all", roles=roles)) == 5
    stored = engine.list(where={"session": "all"})
    assert [memory.metadata["role"] for memory in stored] == ["system", "user", "assistant", "critic", "tool"]
    assert [memory.speaker for memory in stored] == ["system", "user", "assistant", "critic", "weather"]


def test_objects_and_enums(engine: jiyi.Engine) -> None:
    class Role(enum.Enum):
        USER = "user"

    talk = [
        SimpleNamespace(role=Role.USER, content="来自对象"),
        SimpleNamespace(type="ai", content=[SimpleNamespace(type="text", text="from an object")], name=None),
        "just a text",
    ]
    engine.add_messages(talk, session="s")
    assert said(engine) == [("user", "来自对象"), ("assistant", "from an object"), ("user", "just a text")]


# ---------------------------------------------------------------------------------------------------------- times


def test_times_as_messages_name_them(engine: jiyi.Engine) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    for name, value in (
        ("timestamp", moment),
        ("created_at", moment.isoformat()),
        ("time", "2026-01-02T04:04:05.678901+01:00"),
        ("timestamp", moment.timestamp()),
    ):
        memory = only(engine, [{"role": "user", "content": f"m {name} {value}", name: value}])
        assert abs(memory.timestamp - moment) < timedelta(microseconds=2)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([None, None], [100 * S - 1, 100 * S]),
        ([10, None], [10 * S, 100 * S]),
        ([None, 10], [10 * S - 1, 10 * S]),
        ([None, None, 10, None, 20, None], [10 * S - 2, 10 * S - 1, 10 * S, 20 * S - 1, 20 * S, 100 * S]),
        ([10, None, 500, None, None], [10 * S, 100 * S - 3, 500 * S, 500 * S + 1, 500 * S + 2]),
        ([10, None, 10], [10 * S, 10 * S, 10 * S]),
        ([30, None, 20], [30 * S, 30 * S, 20 * S]),
        ([500, None], [500 * S, 500 * S + 1]),
    ],
)
def test_messages_without_a_time_keep_their_place(
    engine: jiyi.Engine, times: list[int | None], expected: list[int]
) -> None:
    talk = [{"role": "user", "content": f"m{i}", "timestamp": time} for i, time in enumerate(times)]
    engine.add_messages(talk, session="s", now=100)
    assert [to_microseconds(memory.timestamp) for memory in engine.list()] == expected


def test_times_at_the_ends_of_time(engine: jiyi.Engine) -> None:
    first, last = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
    engine.add_messages(["a", {"role": "user", "content": "b", "time": first}], session="s")
    engine.add_messages([{"role": "user", "content": "b", "time": last}, "c", "d"], session="t")
    assert len(engine.list(where={"session": "s"})) == 2
    assert len(engine.list(where={"session": "t"})) == 3


@pytest.mark.parametrize(
    "talk", [["I work at Initech", "since May", "as a cook"], ["我在银行上班", "五月开始的", "当会计"]]
)
def test_a_message_that_is_changed_keeps_its_place(engine: jiyi.Engine, talk: list[str]) -> None:
    ids = engine.add_messages(talk, session="s", now=100)
    engine.update(ids[1], text="…")
    assert in_order(engine, "s") == [talk[0], "…", talk[2]]
    assert engine.add_messages(talk, session="s") == []
    assert engine.add_messages([*talk[1:], "ok"], session="s", now=100) != []
    assert in_order(engine, "s") == [talk[0], "…", talk[2], "ok"]


# ------------------------------------------------------------------------------------------- what is given again


def in_order(engine: jiyi.Engine, session: str) -> list[str]:
    """The texts of a session by time; those of one time by when they were stored."""
    return [m.text for m in sorted(engine.list(where={"session": session}), key=lambda memory: memory.timestamp)]


@pytest.mark.parametrize(("yes", "question"), [("yes", "shall I deploy?"), ("好", "要部署吗？")])
def test_a_window_with_an_answer_that_was_given_before(engine: jiyi.Engine, yes: str, question: str) -> None:
    user, assistant = {"role": "user", "content": yes}, {"role": "assistant", "content": question}
    first = engine.add_messages([user, assistant], session="s")
    second = engine.add_messages([assistant, user], session="s")
    assert (len(first), len(second), len({*first, *second})) == (2, 1, 3)
    assert in_order(engine, "s") == [yes, question, yes]
    assert engine.add_messages([assistant, user], session="s") == []
    assert engine.add_messages([user, assistant, user], session="s") == []


LONG = [["ok", "yes", "嗯", "ok", "要部署吗？"][i * i % 7 % 5] for i in range(30)]


@pytest.mark.parametrize("talk", [LONG, [f"{text} {i}" for i, text in enumerate(LONG)]])
@pytest.mark.parametrize(("width", "step"), [(6, 1), (6, 2), (9, 2), (100, 3)])
def test_a_sliding_window_stores_each_message_once(engine: jiyi.Engine, talk: list[str], width: int, step: int) -> None:
    for end in range(step, len(talk) + 1, step):
        assert len(engine.add_messages(talk[max(0, end - width) : end], session="s", now=100)) == step
    assert in_order(engine, "s") == talk
    assert engine.add_messages(talk, session="s") == []
    assert len({memory.timestamp for memory in engine.list()}) == len(talk)
    assert max(memory.timestamp.timestamp() for memory in engine.list()) < 100.001


@pytest.mark.parametrize("talk", [["ok", "a", "ok", "b", "ok", "c"], ["嗯", "一", "嗯", "嗯", "好", "嗯"]])
@pytest.mark.parametrize("start", [1, 3, 4, 5])
def test_the_end_first_and_the_whole_later(engine: jiyi.Engine, talk: list[str], start: int) -> None:
    assert len(engine.add_messages(talk[start:], session="s", now=100)) == len(talk) - start
    assert len(engine.add_messages([*talk, "new"], session="s", now=200)) == start + 1
    assert in_order(engine, "s") == [*talk, "new"]
    assert engine.add_messages([*talk, "new"], session="s") == []


def test_what_was_deleted_is_new_again_in_its_place(engine: jiyi.Engine) -> None:
    talk = ["ok", "第一", "ok", "second", "ok"]
    ids = engine.add_messages(talk, session="s")
    engine.delete(ids[1])
    assert engine.add_messages(talk, session="s") == [ids[1]]
    assert in_order(engine, "s") == talk
    engine.delete([ids[1], ids[3]])
    assert len(engine.add_messages([*talk, "新"], session="s")) == 3
    assert in_order(engine, "s") == [*talk, "新"]
    engine.delete(ids[0])
    assert engine.add_messages([*talk[2:], "新", "ok"], session="s") == [ids[0]]
    assert in_order(engine, "s") == [*talk[1:], "新", "ok"]


def test_times_that_are_not_in_order(engine: jiyi.Engine) -> None:
    talk = [{"role": "user", "content": text, "time": time} for text, time in (("b", 30), ("a", 20), ("ok", 40))]
    assert len(engine.add_messages(talk[:2], session="s")) == 2
    assert len(engine.add_messages(talk, session="s")) == 1
    assert engine.add_messages(talk, session="s") == []
    assert engine.add_messages(talk[::-1], session="s") == []


def test_merged_messages_are_part_of_their_session(engine: jiyi.Engine) -> None:
    talk = ["我周末想去城外的山上徒步", "好", "我周末想去城外的山上徒步。"]
    engine.add_messages(talk, session="s")
    assert engine.consolidate().removed == 1
    assert len(engine.add_messages([*talk[1:], "好"], session="s")) == 1
    assert engine.add_messages([*talk, "好"], session="s") == []


def test_memories_of_ones_own_in_a_session(engine: jiyi.Engine) -> None:
    (first,) = engine.add_messages(["hi"], session="s")
    engine.add(Memory(text="a note", session="s", speaker="user", metadata={"role": "user"}))
    engine.add(Memory(text="an odd id", session="s", id=first + "x"))
    assert engine.add_messages(["hi"], session="s") == []
    assert len(engine.add_messages(["hi", "a note", "hi"], session="s")) == 2


@given(st.lists(st.sampled_from(["ok", "嗯", "yes"]), min_size=1, max_size=12), st.integers(1, 12))
def test_a_conversation_that_grows_by_any_step(talk: list[str], step: int) -> None:
    with jiyi.open(embedder=None) as engine:
        for end in range(step, len(talk) + step, step):
            engine.add_messages(talk[:end], session="s", now=100)
        assert in_order(engine, "s") == talk


def test_threads_with_the_same_window(engine: jiyi.Engine) -> None:
    engine.add_messages(["ok", "a", "ok"], session="s")
    window = ["a", "ok", "b", "ok", "嗯", "ok"]
    start = threading.Barrier(6)

    def add() -> None:
        start.wait()
        engine.add_messages(window, session="s")

    threads = [threading.Thread(target=add) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert in_order(engine, "s") == ["ok", *window]


# ------------------------------------------------------------------------------------------------ tools and pictures


def test_tool_calls_as_openai_has_them(engine: jiyi.Engine) -> None:
    talk = [
        {"role": "user", "content": "天气怎么样？"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "上海"}'}},
                {"id": "c2", "type": "function", "function": {"name": "clock", "arguments": "not json"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "小雨"},
        {"role": "assistant", "content": "上海今天有小雨。"},
    ]
    engine.add_messages(talk, session="s")
    assert said(engine) == [("user", "天气怎么样？"), ("assistant", "上海今天有小雨。")]
    assert engine.list()[1].metadata == {
        "role": "assistant",
        "tool_calls": [
            {"name": "weather", "id": "c1", "arguments": {"city": "上海"}, "result": "小雨"},
            {"name": "clock", "id": "c2", "arguments": "not json"},
        ],
    }
    engine.add_messages(talk, session="t", roles=["tool"])
    assert said(engine, where={"session": "t"}) == [("tool", "小雨")]


def test_tool_calls_as_anthropic_has_them(engine: jiyi.Engine) -> None:
    talk = [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Lyon"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sun"}]}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "It is sunny."}]},
    ]
    engine.add_messages(talk, session="s")
    assert said(engine) == [("assistant", "Let me see."), ("assistant", "It is sunny.")]
    calls = [{"name": "weather", "id": "t1", "arguments": {"city": "Lyon"}, "result": "sun"}]
    assert engine.list()[0].metadata == {"role": "assistant", "tool_calls": calls}
    assert engine.list()[1].metadata == {"role": "assistant"}
    assert engine.list(where={"metadata.role": "user"}) == []


def test_tool_calls_as_responses_have_them(engine: jiyi.Engine) -> None:
    talk = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "f1", "name": "clock", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "f1", "output": "noon"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is noon."}]},
    ]
    engine.add_messages(talk, session="s")
    assert said(engine) == [("user", "hi"), ("assistant", "It is noon.")]
    assert engine.list()[1].metadata["tool_calls"] == [{"name": "clock", "id": "f1", "arguments": {}, "result": "noon"}]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{ENCODED}"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ENCODED}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXELS}},
    ],
)
def test_of_an_image_type_size_and_digest_are_kept(folder: Path, part: dict[str, Any]) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_messages([{"role": "user", "content": [{"type": "text", "text": "看这张图"}, part]}], session="s")
        (memory,) = engine.list()
        assert memory.text == "看这张图"
        assert memory.metadata["images"] == [{"type": "image/png", "sha256": DIGEST, "bytes": len(PIXELS)}]
        assert engine.list(where={"metadata.role": "user"}) == [memory]
    for path in folder.rglob("*"):
        if path.is_file():
            assert ENCODED[:40].encode() not in path.read_bytes()
            assert PIXELS[:40] not in path.read_bytes()


def test_other_attachments(engine: jiyi.Engine) -> None:
    memory = only(
        engine,
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "files"},
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                    {"type": "image", "source": {"type": "url", "url": "https://example.org/b.png"}},
                    {"type": "image", "source": {"type": "file", "file_id": "f-1"}},
                    {"type": "input_audio", "input_audio": {"data": ENCODED, "format": "wav"}},
                    {"type": "file", "file": {"filename": "报告.pdf", "file_data": f"data:text/html;base64,{ENCODED}"}},
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "no base64?"}},
                    {"type": "image_url", "image_url": {"url": "https://example.org/" + "x" * 9_000}},
                ],
            }
        ],
    )  # fmt: skip
    assert memory.metadata["images"][:3] == [
        {"url": "https://example.org/a.png"},
        {"url": "https://example.org/b.png"},
        {"file_id": "f-1"},
    ]
    assert memory.metadata["images"][3]["bytes"] == 9_020
    assert memory.metadata["files"][0] == {"type": "wav", "sha256": DIGEST, "bytes": len(PIXELS)}
    assert memory.metadata["files"][1] == {
        "name": "报告.pdf",
        "type": "text/html",
        "sha256": DIGEST,
        "bytes": len(PIXELS),
    }
    assert memory.metadata["files"][2]["sha256"] == hashlib.sha256(b"no base64?").hexdigest()
    assert "no base64" not in json.dumps(memory.metadata)


def test_a_message_of_nothing_but_a_picture(engine: jiyi.Engine) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}"}}
    other = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    paper = {"type": "file", "file": {"filename": "报告.pdf", "file_id": "f-1"}}
    talk = [{"role": "user", "content": [part]} for part in (picture, other, paper)]
    assert len(engine.add_messages(talk, session="s")) == 3
    assert [text for _, text in said(engine)] == ["[image]", "[image]", "[报告.pdf]"]
    assert engine.add_messages(talk[1:], session="s") == []


def test_what_models_write_into_arguments_cannot_hurt(engine: jiyi.Engine) -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    arguments: list[Any] = [
        deep,
        {"n": 10**40, "f": float("nan"), "i": float("-inf"), "z": "a\0b", "s": "\ud83d", 3: {1, 2}},
        '{"a": 1e999}',
        "x" * 100_000,
        {"blob": ENCODED},
        json.dumps({"list": list(range(5_000))}),
        b"bytes",
        None,
    ]
    talk = [
        {"role": "assistant", "content": f"call {i}", "tool_calls": [{"name": f"t\0{i}", "id": i, "args": value}]}
        for i, value in enumerate(arguments)
    ]
    assert len(engine.add_messages(talk, session="s")) == len(arguments)
    for memory in engine.list():
        assert len(json.dumps(memory.metadata)) < 5_000
        assert ENCODED[:40] not in json.dumps(memory.metadata)
    assert engine.add_messages(talk, session="s") == []
    assert engine.verify() == []


ODD: list[Any] = [
    None, True, 0, 10**40, float("nan"), "", "a\0", "\ud83d", b"\xff", [], {}, "data:", ["a", "b"],
    [1, {"text": "里"}], {"url": "data:,%20"}, {"url": "data:;base64,?"}, {"url": []}, {"data": 5},
    {"type": "text", "data": "x"}, {"media_type": 5, "data": "AAAA"}, {"file_id": "f", "filename": "\0"},
    [{"type": "text", "text": "sun"}, {"type": "image"}, 5],
]  # fmt: skip
odd = st.sampled_from(ODD)
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "image", "tool_use", "tool_result", "file", "audio", "odd"])},
    optional={
        "image_url": odd,
        "source": odd,
        "input": odd,
        "content": odd,
        "file": odd,
        "id": odd,
        "name": odd,
        "text": st.text(max_size=5),
        "tool_use_id": odd,
    },
)


@given(st.lists(st.lists(parts, max_size=4), max_size=5))
def test_any_parts_make_memories_or_none(contents: list[list[dict[str, Any]]]) -> None:
    talk = [{"role": "user", "content": content} for content in contents]
    settings: dict[str, Any] = {"session": "s", "namespace": "n", "metadata": {}, "roles": frozenset({"user", "tool"})}
    made, turns = conversation_memories(talk, now=datetime(2026, 1, 1, tzinfo=UTC), **settings)
    assert len(made) == len(turns)
    assert len({memory.id for memory in made}) == len(made) <= len(talk)
    assert all(Memory.from_dict(json.loads(memory.to_json())) == memory for memory in made)
    assert [m.id for m in conversation_memories(talk, now=datetime(2027, 1, 1, tzinfo=UTC), **settings)[0]] == [
        memory.id for memory in made
    ]


# ----------------------------------------------------------------------------------------------------- all or none


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("hi", "messages must be a list of messages, got str"),
        ({"role": "user", "content": "hi"}, "messages must be a list of messages, got dict"),
        (["fine", 5], r"messages\[1\] is int without role and content"),
        (["fine", {"role": 5, "content": "x"}], r"the role of messages\[1\] is int"),
        (["fine", {"role": "user", "content": 5}], r"the content of messages\[1\] is int"),
        (["fine", {"role": "user", "content": [{"type": "text", "text": 5}]}], r"a text part of messages\[1\]"),
        (["fine", {"role": "user", "content": "x", "time": "soon"}], r"the time of messages\[1\] 'soon' is not an ISO"),
        (["fine", {"role": "user", "content": "x", "timestamp": 1e12}], r"messages\[1\].*milliseconds"),
        (["fine", {"role": "user", "content": "x", "name": "n" * 600}], r"messages\[1\]: speaker is 600 characters"),
    ],
)
def test_a_bad_message_stores_nothing(engine: jiyi.Engine, messages: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        engine.add_messages(messages, session="s")
    assert engine.count() == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"session": ""}, "session is empty"),
        ({"session": None}, "session must be text"),
        ({"namespace": 5}, "namespace must be text"),
        ({"roles": "user"}, "roles must be a list"),
        ({"roles": [""]}, "roles holds ''"),
        ({"metadata": []}, "metadata must be a mapping"),
        ({"now": "soon"}, "now 'soon' is not an ISO"),
    ],
)
def test_bad_arguments(engine: jiyi.Engine, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        engine.add_messages(["hi"], **{"session": "s", **settings})


def test_an_empty_conversation(engine: jiyi.Engine) -> None:
    assert engine.add_messages([], session="s") == []
    assert engine.add_messages([{"role": "user", "content": "\u200b \n"}, TALK[0]], session="s") == []
    assert engine.count() == 0


def test_metadata_of_every_message(engine: jiyi.Engine) -> None:
    memory = only(engine, ["hi"], metadata={"app": "喵", "role": "mine"})
    assert memory.metadata == {"app": "喵", "role": "user"}


def test_a_reader_cannot_add(folder: Path) -> None:
    jiyi.open(folder, embedder=None).close()
    with jiyi.open(folder, embedder=None, read_only=True) as engine, pytest.raises(jiyi.ReadOnlyError):
        engine.add_messages(["hi"], session="s")


def test_threads_with_the_same_conversation(engine: jiyi.Engine) -> None:
    talk = [f"turn {i} 第{i}轮" for i in range(50)]
    threads = [
        threading.Thread(target=engine.add_messages, args=(talk[: 10 * (i + 1)],), kwargs={"session": "s"})
        for i in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(text for _, text in said(engine)) == sorted(talk)


def test_without_blocking_the_event_loop(engine: jiyi.Engine) -> None:
    assert len(asyncio.run(engine.aadd_messages(TALK, session="s1"))) == 3
