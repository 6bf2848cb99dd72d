"""`jiyi compact` and `jiyi delete --erase` through `main`."""

from __future__ import annotations

from pathlib import Path

import pytest

import jiyi
from jiyi.cli import main

NOW = "2026-06-01"


@pytest.fixture
def store(folder: Path) -> Path:
    with jiyi.open(folder, embedder=None) as engine:
        for day in range(1, 11):
            engine.add(f"第{day}天 day {day}", id=f"{day}", timestamp=f"2026-05-{day:02}")
        engine.add("偏好 tea", kind="archival", id="tea", timestamp="2020-01-01")
        engine.add("over", id="over", timestamp="2026-05-11", expires_at="2026-05-31")
    return folder


def ids(folder: Path) -> list[str]:
    with jiyi.open(folder, embedder=None, read_only=True) as engine:
        return [memory.id for memory in engine.list()]


def test_compact_removes_what_expired(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compact", "--store", str(store), "--now", NOW]) == 0
    assert capsys.readouterr().out.startswith("removed 1 memory; the store takes 0.")
    assert ids(store) == [*map(str, range(1, 11)), "tea"]


def test_compact_applies_limits(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = ["--max-age", "episodic=26d", "--max-age", "archival=52w", "--max-count", "episodic=3", "--now", NOW]
    assert main(["compact", "--store", str(store), *limits, "--dry-run"]) == 0
    assert capsys.readouterr().out == "would remove 9 memories\n"
    assert len(ids(store)) == 12
    assert main(["compact", "--store", str(store), *limits]) == 0
    assert ids(store) == ["8", "9", "10"]


@pytest.mark.parametrize(
    ("age", "left"), [("23d", 2), ("552h", 2), ("33120m", 2), ("1987200s", 2), ("1987200", 2), ("1.98e6", 1), ("4w", 7)]
)
def test_ages_have_units(store: Path, age: str, left: int) -> None:
    # From the first of June, 00:00: day 9 is 23 days old, day 4 four weeks.
    assert main(["compact", "--store", str(store), "--max-age", f"episodic={age}", "--now", NOW]) == 0
    assert len(ids(store)) == left + 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-age", "90d"], "must begin with a kind"),
        (["--max-age", "dreams=90d"], "must begin with a kind"),
        (["--max-age", "episodic=soon"], "must be an age such as 90d"),
        (["--max-age", "episodic="], "must be an age such as 90d"),
        (["--max-age", "episodic=-1d"], "max_age_s is -86400"),
        (["--max-age", "episodic=nan"], "max_age_s is nan"),
        (["--max-count", "episodic=many"], "must be a whole number"),
        (["--max-count", "episodic=-1"], "--max-count is -1"),
        (["--now", "soon"], "not an ISO 8601 time"),
    ],
)
def test_wrong_limits(store: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str) -> None:
    assert main(["compact", "--store", str(store), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert len(ids(store)) == 12


@pytest.mark.parametrize(
    ("choice", "count"), [(["7", "8"], 2), (["--where", '{"id": {"in": ["7", "8"]}}'], 2), (["7", "--where", "{}"], 1)]
)
def test_delete_can_erase(store: Path, capsys: pytest.CaptureFixture[str], choice: list[str], count: int) -> None:
    assert main(["delete", "--store", str(store), *choice, "--erase", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith(f"would delete {count} ")
    assert len(ids(store)) == 12
    assert main(["delete", "--store", str(store), *choice, "--erase"]) == 0
    assert capsys.readouterr().out.startswith(f"erased {count} ")
    assert len(ids(store)) == 12 - count
    assert not any("第7天".encode() in path.read_bytes() for path in store.rglob("*") if path.is_file())
