"""`jiyi search --record`, `--plot` and `jiyi replay`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jiyi
from jiyi.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many(
            [
                {"text": "I decided to rewrite it in TypeScript", "id": "ts", "timestamp": "2026-01-01"},
                {"text": "周末喜欢去徒步", "id": "hiking", "kind": "archival", "timestamp": "2026-01-02"},
                {"text": "TypeScript or Python?", "id": "py", "timestamp": "2025-12-01"},
            ]
        )
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in argv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def record(run: Run, store: Path, tmp_path: Path) -> Path:
    file = tmp_path / "record.json"
    assert run("search", "TypeScript 徒步", "--store", store, "--embedder", "none", "--record", file)[0] == 0
    return file


def replay(run: Run, file: Path, store: Path, *more: object) -> tuple[int, str, str]:
    return run("replay", file, "--store", store, "--embedder", "none", *more)


def test_the_same_answer(run: Run, record: Path, store: Path) -> None:
    assert json.loads(record.read_text(encoding="utf-8"))["text"] == "TypeScript 徒步"
    assert replay(run, record, store) == (0, "the same answer as then\n", "")


def test_another_answer_is_exit_code_1_and_says_why(run: Run, record: Path, store: Path) -> None:
    with jiyi.open(store, embedder=None) as engine:
        engine.add("TypeScript 徒步", id="new\n\x1b[2J")
    code, out, err = replay(run, record, store)
    assert (code, err) == (1, "jiyi: the answer is not the same as then\n")
    assert "stored since change 3 in 'default': new" in out
    assert "\x1b" not in out
    assert len(out.splitlines()) >= 3


def test_as_json(run: Run, record: Path, store: Path) -> None:
    code, out, err = replay(run, record, store, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert set(answer) == {"same", "changes", "ids", "scores"}
    assert (answer["same"], answer["changes"]) == (True, [])
    assert answer["ids"] == json.loads(record.read_text(encoding="utf-8"))["ids"]


def test_explained(run: Run, record: Path, store: Path) -> None:
    code, out, _ = replay(run, record, store, "--explain")
    assert code == 0
    assert out.startswith("query: TypeScript 徒步\n")
    assert out.endswith("the same answer as then\n")


def test_an_existing_file_is_not_overwritten(run: Run, record: Path, store: Path) -> None:
    before = record.read_bytes()
    code, out, err = run("search", "x", "--store", store, "--embedder", "none", "--record", record)
    assert (code, out, err) == (1, "", f"jiyi: {record} exists; name a new file\n")
    assert record.read_bytes() == before


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"query_record": 9}', "\ufeffx"])
def test_a_damaged_record(run: Run, store: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "damaged.json"
    file.write_text(text, encoding="utf-8")
    code, out, err = replay(run, file, store)
    assert (code, out) == (1, "")
    assert err.startswith(f"jiyi: {file}: ")
    assert len(err.splitlines()) == 1
    assert "fault of jiyi" not in err


def test_an_unknown_field(run: Run, record: Path, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps({**json.loads(record.read_text(encoding="utf-8")), "surprise": 1}))
    code, _, err = replay(run, file, store)
    assert code == 1
    assert "unknown field 'surprise'" in err


def test_another_store(run: Run, record: Path, tmp_path: Path) -> None:
    with jiyi.open(tmp_path / "other", embedder=None) as engine:
        engine.add("TypeScript")
    code, out, err = replay(run, record, tmp_path / "other")
    assert (code, out) == (1, "")
    assert "open that store, or a snapshot of it" in err


def test_files_and_stores_that_are_not_there(run: Run, record: Path, store: Path, tmp_path: Path) -> None:
    assert replay(run, tmp_path / "missing.json", store)[0] == 1
    assert replay(run, record, tmp_path / "missing")[0] == 1
    code, _, err = run("replay", "--store", store)
    assert code == 2
    assert "FILE" in err


def test_a_picture(run: Run, store: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    file = tmp_path / "picture.svg"
    code, out, err = run("search", "TypeScript", "--store", store, "--embedder", "none", "--plot", file)
    assert (code, err) == (0, "")
    assert "rewrite it in TypeScript" in out
    assert file.read_text(encoding="utf-8").startswith("<?xml")


def test_a_picture_that_cannot_be(run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask: Any = ("search", "TypeScript", "--store", store, "--embedder", "none", "--plot")
    code, out, err = run(*ask, tmp_path / "picture.gif")
    assert (code, out) == (2, "")
    assert ".png, .svg, .pdf" in err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, err = run(*ask, tmp_path / "picture.png")
    assert (code, out) == (1, "")
    assert err == "jiyi: a picture needs Matplotlib; install it with: pip install 'jiyi[plot]'\n"
