"""Stores of this release and of earlier ones are opened, and hold what they held."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tarfile
from pathlib import Path

import pytest

import jiyi
from jiyi.ledger import FILE_NAME
from jiyi.schema import FORMAT_VERSION

FIXTURES = sorted((Path(__file__).parent.parent / "fixtures").glob("store-format-*.tar.xz"))


@pytest.fixture(params=FIXTURES, ids=lambda path: path.name.split(".")[0])
def packed(request: pytest.FixtureRequest, folder: Path) -> Path:
    folder.mkdir()
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _is_older(folder: Path) -> bool:
    with contextlib.closing(sqlite3.connect(f"file:{folder / FILE_NAME}?mode=ro&immutable=1", uri=True)) as ledger:
        (number,) = ledger.execute("SELECT value FROM manifest WHERE key = 'format'").fetchone()
    return bool(number != FORMAT_VERSION)


def test_this_format_has_a_fixture() -> None:
    assert f"store-format-{FORMAT_VERSION}.tar.xz" in [path.name for path in FIXTURES]


def test_a_store_holds_what_it_held(packed: Path) -> None:
    expected = json.loads((packed / "found.json").read_text(encoding="utf-8"))
    before, older = (packed / FILE_NAME).read_bytes(), _is_older(packed)
    with jiyi.open(packed, embedder=None) as engine:
        assert [memory.to_dict() for memory in engine.list(namespace=None)] == expected["memories"]
        assert engine.search("徒步", namespace="小明", k=1, now=1_770_000_000).ids == expected["top"]
        assert engine.verify() == []
        stats = engine.stats()
        assert (stats["format"], stats["dim"]) == (FORMAT_VERSION, 8)
        engine.add("written since", namespace="ana", id="since")
        assert engine.search("written since", namespace="ana", k=1).ids == ["since"]
        assert engine.verify() == []
    kept = list(packed.glob(f"{FILE_NAME}.format-*"))
    assert bool(kept) == older
    for copy in kept:  # as it was, and a store by itself
        (packed / "old").mkdir()
        copy.rename(packed / "old" / FILE_NAME)
        assert len((packed / "old" / FILE_NAME).read_bytes()) == len(before)
        with jiyi.open(packed / "old", embedder=None) as engine:
            assert [memory.to_dict() for memory in engine.list(namespace=None)] == expected["memories"]


def test_a_reader_changes_nothing(packed: Path) -> None:
    before = (packed / FILE_NAME).read_bytes()
    if _is_older(packed):
        with pytest.raises(jiyi.StoreVersionError, match="Open it once for writing"):
            jiyi.open(packed, embedder=None, read_only=True)
    else:
        with jiyi.open(packed, embedder=None, read_only=True) as engine:
            assert engine.stats()["format"] == FORMAT_VERSION
    assert (packed / FILE_NAME).read_bytes() == before


def test_erasing_takes_the_kept_copy_along(packed: Path) -> None:
    with jiyi.open(packed, embedder=None) as engine:
        assert engine.erase(where={}, namespace="ana") > 0
    assert list(packed.glob(f"{FILE_NAME}.format-*")) == []


def test_without_room_for_a_copy_nothing_is_changed(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not _is_older(packed):
        pytest.skip("it needs no other format")
    before = (packed / FILE_NAME).read_bytes()
    monkeypatch.setattr("jiyi.migration._SPARE_BYTES", 1 << 60)
    with pytest.raises(jiyi.StoreError, match="a copy is kept"):
        jiyi.open(packed, embedder=None)
    assert (packed / FILE_NAME).read_bytes() == before
