"""Derived files: written whole or not at all, tidied up after a crash, and nothing of anybody else's is touched."""

from __future__ import annotations

import errno
import json
import sqlite3
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import jiyi
from jiyi import derived
from jiyi.disk_errors import os_error_of

SETTINGS = {"format": 1}


def _write(folder: Path, name: str, sequence: int, content: bytes = b"index") -> Path:
    return derived.write_generation(
        folder, name, sequence, SETTINGS, lambda into: _fill(into, content), swapping=nullcontext()
    )


def _fill(into: Path, content: bytes) -> None:
    (into / "index.bin").write_bytes(content)


def test_what_comes_back_from_the_disk_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = _write(tmp_path, "graph-1", 5)
    flush = derived.flush_to_disk

    def decaying(path: Path, *, forget: bool = False) -> None:
        flush(path, forget=forget)
        if path.name == "index.bin":
            path.write_bytes(b"indey")

    monkeypatch.setattr(derived, "flush_to_disk", decaying)
    with pytest.raises(OSError, match="does not hold what was written") as caught:
        _write(tmp_path, "graph-1", 6)
    assert caught.value.errno == errno.EIO
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
    assert derived.read_generation(tmp_path, "graph-1", SETTINGS, 6) == kept


def test_a_manifest_of_another_sequence_is_not_believed(tmp_path: Path) -> None:
    generation = _write(tmp_path, "graph-1", 5)
    manifest = generation / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"sequence": 4}))
    assert derived.read_generation(tmp_path, "graph-1", SETTINGS, 6) is None


def test_what_a_crash_left_is_removed_and_what_is_in_use_stays(tmp_path: Path) -> None:
    for sequence in (3, 4):
        (tmp_path / "aside").mkdir(exist_ok=True)
        _write(tmp_path / "aside", "graph-1", sequence)
        (tmp_path / "aside" / f"graph-1-{sequence}").rename(tmp_path / f"graph-1-{sequence}")
    half = _write(tmp_path, "keyword-1", 4)
    (half / "index.bin").unlink()
    whole = _write(tmp_path, "keyword-2", 2)
    (tmp_path / "aside").rmdir()
    (tmp_path / "notes-2024").mkdir()
    (tmp_path / "partial-x").mkdir()
    (tmp_path / "partial-y").write_bytes(b"")
    derived.remove_partial(tmp_path)
    derived.remove_superseded(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph-1-4", whole.name, "notes-2024"]


def test_a_folder_of_somebody_elses_among_the_indexes_stops_nothing(tmp_path: Path) -> None:
    with jiyi.open(tmp_path / "store", embedder=None) as engine:
        engine.add("rain", vector=np.ones(4, np.float32))
        (tmp_path / "store" / "indexes" / "notes-2024").mkdir(parents=True)
        engine.compact()
        engine.erase([])
    with jiyi.open(tmp_path / "store", embedder=None) as engine:
        assert engine.count() == 1
    assert (tmp_path / "store" / "indexes" / "notes-2024").is_dir()


def test_the_systems_error_is_told(tmp_path: Path) -> None:
    def error(code: int) -> sqlite3.Error:
        made = sqlite3.OperationalError("so says SQLite")
        made.sqlite_errorcode = code
        return made

    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"")
    for code, number in ((13, errno.ENOSPC), (10, errno.EIO), (10 | 3 << 8, errno.EIO), (8, errno.EACCES)):
        found = os_error_of(error(code), path)
        assert found is not None
        assert (found.errno, found.filename) == (number, str(path))
        assert isinstance(found.__cause__, sqlite3.Error)
    missing = os_error_of(error(14), tmp_path / "none" / "ledger.sqlite")
    assert missing is not None
    assert missing.errno == errno.ENOENT
    assert os_error_of(error(11), path) is None  # damage is not the system's
    assert os_error_of(error(13), None) is not None


def test_a_store_error_finds_the_systems_below(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(jiyi.StoreError) as caught:
        jiyi.open(tmp_path / "file" / "store", embedder=None)
    assert caught.value.os_error is not None
    assert caught.value.os_error.errno in (errno.ENOTDIR, errno.EEXIST)
    assert jiyi.StoreError("of its own").os_error is None


def test_replacing_what_others_are_merged_into_is_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is merged into a memory comes back in the transaction that replaces it, not in one before."""
    with jiyi.open(tmp_path / "store", embedder=None) as engine:
        for i in range(3):
            engine.add("she walks her dog by the river", id=f"m{i}", timestamp=1_700_000_000 + i)
        assert engine.consolidate().removed == 2
        before = engine.list()
        finish = engine._store.ledger._finish
        calls = []

        def failing(*arguments: object) -> None:
            calls.append(arguments)
            if len(calls) == 2:
                raise sqlite3.OperationalError("disk I/O error")
            finish(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(engine._store.ledger, "_finish", failing)
        with pytest.raises(jiyi.StoreError):
            engine.add("another thing entirely", id=before[0].id)
        monkeypatch.undo()
        assert engine.list() == before
        assert engine.search("dog river").ids == [before[0].id]
        engine.add("another thing entirely", id=before[0].id)
        assert sorted(memory.text for memory in engine.list()) == [
            "another thing entirely",
            "she walks her dog by the river",
            "she walks her dog by the river",
        ]
        assert sorted(engine.search("dog river", k=5, diversity="none").ids) == ["m0", "m1"]
