"""`jiyi context`: procedures, how much of the conversation counts, what was used, and what the query was made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import jiyi
from jiyi import Memory
from jiyi.cli import main


@pytest.fixture
def store(folder: Path) -> str:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many(
            [
                Memory(text="喜欢喝茶", id="tea", kind="archival"),
                Memory.procedure("Roll back a release", ["run make rollback"], id="rollback"),
                Memory.procedure("回滚发布", ["执行 make rollback"], id="回滚"),
                Memory(text="The release went out on Monday", id="monday"),
            ]
        )
    return str(folder)


def context(capsys: pytest.CaptureFixture[str], store: str, *arguments: str) -> str:
    assert main(["context", *arguments, "--store", store, "--embedder", "none"]) == 0
    return capsys.readouterr().out


def test_procedures_have_slots(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    for asked, shown in (("How do I roll back?", "1. run make rollback"), ("怎么回滚？", "1. 执行 make rollback")):
        alone = ("--max-memories", "0", "--archival-slots", "0")
        assert shown in context(capsys, store, asked, *alone)
        assert context(capsys, store, asked, *alone, "--procedure-slots", "0") == ""


def test_what_the_query_was_made_of(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messages = [
        {"role": "user", "content": "What went out with the release?"},
        {"role": "user", "content": "ok"},
        {"role": "user", "content": "How do I roll back the release?\n```\nmake rollback\n```"},
    ]
    path = tmp_path / "messages.jsonl"
    path.write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")

    record = json.loads(context(capsys, store, "--messages", str(path), "--json"))
    assert record["kept"] == [
        {"message": messages[0], "reason": "recent", "cut": []},
        {"message": messages[2], "reason": "last", "cut": ["code"]},
    ]
    assert record["dropped"] == [{"message": messages[1], "reason": "filler"}]
    last = json.loads(context(capsys, store, "--messages", str(path), "--json", "--last-messages", "1"))
    assert last["query"] == "How do I roll back the release?"


def test_what_was_used_is_noted_where_asked(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    def uses() -> list[int]:
        with jiyi.open(store, embedder=None, read_only=True) as engine:
            return [memory.uses for memory in engine.list()]

    context(capsys, store, "How do I roll back?", "--max-memories", "0")
    assert uses() == [0, 0, 0, 0]
    context(capsys, store, "How do I roll back?", "--max-memories", "0", "--reinforce")
    assert uses() == [1, 1, 0, 0]
