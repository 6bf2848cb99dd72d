"""Bytes flipped and ends cut off in every file of a store: the right answer, or an error that names the damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine import corruption

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="trials run in forked children")


def _wrong(counts: dict[str, dict[str, int]]) -> list[str]:
    good = (corruption.RIGHT, corruption.NAMED, corruption.BY_VERIFY)
    return [f"{file}: {outcome}" for file, of_file in counts.items() for outcome in of_file if outcome not in good]


def test_a_closed_ledger(tmp_path: Path) -> None:
    expected = corruption.closed_store(tmp_path / "store")
    assert _wrong(corruption.run(tmp_path / "store", tmp_path / "work", expected, 5, "ledger.sqlite")) == []


def test_a_log_that_a_dead_process_left(tmp_path: Path) -> None:
    expected = corruption.crashed_store(tmp_path / "store", tmp_path / "work")
    assert (tmp_path / "store" / "ledger.sqlite-wal").stat().st_size > 0
    counts = corruption.run(tmp_path / "store", tmp_path / "work", expected, 5, "ledger.sqlite-wal")
    assert _wrong(counts) == []
    assert corruption.NAMED in counts["ledger.sqlite-wal"]


@pytest.mark.parametrize("file", ["graph.bin", "members.npz", "meta.json", "coverage.json", "manifest.json"])
def test_derived_files_change_no_answer(tmp_path: Path, file: str) -> None:
    expected = corruption.closed_store(tmp_path / "store")
    (name,) = [name for name in corruption.files(tmp_path / "store") if name.endswith(file) and "-1-" in name][:1]
    assert corruption.run(tmp_path / "store", tmp_path / "work", expected, 2, name) == {name: {corruption.RIGHT: 2}}


@pytest.mark.slow
@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
def test_every_file_of_a_store(tmp_path: Path, crashed: bool) -> None:
    store, work = tmp_path / "store", tmp_path / "work"
    expected = corruption.crashed_store(store, work) if crashed else corruption.closed_store(store)
    counts = corruption.run(store, work, expected, 200)
    for file, outcomes in counts.items():
        print(file, outcomes)
    assert _wrong(counts) == []
    derived = [outcomes for file, outcomes in counts.items() if file.startswith("indexes")]
    assert all(set(outcomes) == {corruption.RIGHT} for outcomes in derived)
