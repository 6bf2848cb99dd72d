"""Snapshots, stores of them, and what can be saved of a damaged one."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

import jiyi
from jiyi import page_sums
from jiyi.cli import main
from jiyi.ingest import ingest_files
from jiyi.ledger import FILE_NAME, Ledger
from tests.engine import corruption


def everything(folder: Path) -> dict[str, Any]:
    answers = corruption.ask(folder)
    assert answers["verify"] == []
    return answers


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled") / "store"
    with jiyi.open(folder, embedder=None, dim=8, index_config=corruption.CONFIG) as engine:
        corruption.fill(engine)
        engine.snapshot(folder.parent / "snapshot")
    return folder


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Path:
    """A store of its own for a test."""
    shutil.copytree(filled, tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def snapshot(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled.parent / "snapshot", tmp_path / "snapshot")
    return tmp_path / "snapshot"


def damage(folder: Path) -> None:
    """Change a memory behind SQLite's back."""
    path = folder / FILE_NAME
    content = path.read_bytes()
    at = content.index(b"note 7 about green tea")
    path.write_bytes(content[:at] + b"NOTE" + content[at + 4 :])


# ----------------------------------------------------------------------------------------- snapshot, restore


def test_a_restored_store_is_the_store(store: Path, snapshot: Path, tmp_path: Path) -> None:
    assert jiyi.restore(snapshot, tmp_path / "again") == tmp_path / "again"
    assert everything(tmp_path / "again") == everything(store)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "snapshot", "store"]


def test_a_store_is_overwritten_only_when_told(snapshot: Path, folder: Path, tmp_path: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("what was there")
    with pytest.raises(ValueError, match="exists and is not empty"):
        jiyi.restore(snapshot, folder)
    jiyi.restore(snapshot, folder, overwrite=True)
    assert everything(folder) == everything(snapshot)


def test_a_store_in_use_is_not_overwritten(snapshot: Path, folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("mine")
        with pytest.raises(jiyi.StoreLockedError):
            jiyi.restore(snapshot, folder, overwrite=True)
        assert engine.list()[0].text == "mine"
    with jiyi.open(folder, embedder=None, read_only=True) as reader:
        assert reader.count() == 1
        with pytest.raises(jiyi.StoreError, match="being read"):
            jiyi.restore(snapshot, folder, overwrite=True)
        assert reader.count() == 1


def test_a_folder_of_something_else_is_not_overwritten(snapshot: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="no store"):
        jiyi.restore(snapshot, tmp_path / "other", overwrite=True)
    with pytest.raises(ValueError, match="is no snapshot"):
        jiyi.restore(tmp_path / "other", tmp_path / "new")


def test_a_damaged_snapshot_is_refused_and_nothing_is_left(snapshot: Path, tmp_path: Path) -> None:
    damage(snapshot)
    with pytest.raises(jiyi.StoreError, match="the snapshot is damaged"):
        jiyi.restore(snapshot, tmp_path / "again")
    assert [path.name for path in tmp_path.iterdir()] == ["snapshot"]


def test_a_damaged_store_makes_no_snapshot(store: Path, tmp_path: Path) -> None:
    damage(store)
    with jiyi.open(store, embedder=None) as engine, pytest.raises(jiyi.StoreError, match="the store is damaged"):
        engine.snapshot(tmp_path / "snapshot")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_snapshot_inside_the_store_is_refused(store: Path) -> None:
    with jiyi.open(store, embedder=None) as engine, pytest.raises(ValueError, match="inside the store"):
        engine.snapshot(store / "backup")


def test_what_a_stopped_snapshot_left_goes_with_the_next(store: Path, tmp_path: Path) -> None:
    left = tmp_path / ".snapshot-stopped"
    left.mkdir()
    (left / "writer.lock").touch()
    (left / FILE_NAME).write_bytes(b"half")
    with jiyi.open(store, embedder=None) as engine:
        engine.snapshot(tmp_path / "snapshot")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["snapshot", "store"]


def test_a_snapshot_that_cannot_be_written_leaves_nothing(store: Path, tmp_path: Path) -> None:
    with jiyi.open(store, embedder=None) as engine:
        (tmp_path / "file").touch()
        with pytest.raises(jiyi.StoreError, match="the snapshot to"):
            engine.snapshot(tmp_path / "file" / "snapshot")
        with pytest.MonkeyPatch.context() as patch:

            def full(*_: object) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr(Ledger, "copy_to", full)
            with pytest.raises(jiyi.StoreError, match="No space left"):
                engine.snapshot(tmp_path / "snapshot")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "store"]


def test_two_snapshots_to_one_place_at_once(store: Path, tmp_path: Path) -> None:
    outcomes: list[object] = []
    with jiyi.open(store, embedder=None) as engine:

        def take() -> None:
            try:
                outcomes.append(engine.snapshot(tmp_path / "snapshot"))
            except (jiyi.StoreError, ValueError) as error:
                outcomes.append(error)

        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes.count(tmp_path / "snapshot") == 1
    assert everything(tmp_path / "snapshot") == everything(store)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["snapshot", "store"]


def test_a_snapshot_while_writing_goes_on_is_of_one_moment(folder: Path, tmp_path: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                engine.add_many([{"text": f"pair {number}", "id": f"{number}-{side}"} for side in "ab"])
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for i in range(3):
                engine.snapshot(tmp_path / f"snapshot {i}")
        finally:
            stop.set()
            writer.join()
    for i in range(3):
        with jiyi.open(tmp_path / f"snapshot {i}", embedder=None) as engine:
            ids = [memory.id for memory in engine.list()]
            assert len(ids) % 2 == 0
            assert ids == [f"{number}-{side}" for number in range(len(ids) // 2) for side in "ab"]


def test_a_snapshot_of_a_store_that_is_being_erased_holds_nothing_of_it(folder: Path, tmp_path: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many([f"kept {i}" for i in range(30)])
        engine.add("vermilion lighthouse", id="secret")
        with pytest.MonkeyPatch.context() as patch:

            def dies(*_: object) -> None:
                raise jiyi.StoreError("stopped on the way")

            patch.setattr(Ledger, "scrub", dies)
            with pytest.raises(jiyi.StoreError, match="stopped"):
                engine.erase("secret")
        engine.snapshot(tmp_path / "snapshot")
    assert b"lighthouse" not in (tmp_path / "snapshot" / FILE_NAME).read_bytes()
    with jiyi.open(tmp_path / "snapshot", embedder=None) as engine:
        assert engine.count() == 30
        assert not engine.stats()["erasing"]


def test_restore_on_the_command_line(snapshot: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", str(snapshot), "--store", str(folder)]) == 0
    assert capsys.readouterr().out == f"restored to {folder}\n"
    assert main(["restore", str(snapshot), "--store", str(folder)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["restore", str(snapshot), "--store", str(folder), "--overwrite"]) == 0


# --------------------------------------------------------------------------------------------------- salvage


def _compared(answers: dict[str, Any]) -> dict[str, Any]:
    return {name: answer for name, answer in answers.items() if not name.startswith("search")}


def test_a_sound_store_is_saved_whole(store: Path, tmp_path: Path) -> None:
    saved = jiyi.salvage(store, tmp_path / "out")
    assert (saved.lost, saved.notes, saved.without_vectors) == ((), (), 0)
    assert saved.merged == 2
    assert everything(tmp_path / "out") == everything(store)
    with jiyi.open(tmp_path / "out", embedder=None) as engine:
        assert engine.unconsolidate("c1") == 2


def test_a_damaged_memory_is_lost_and_named_and_the_rest_is_saved(store: Path, tmp_path: Path) -> None:
    before = everything(store)
    damage(store)
    saved = jiyi.salvage(store, tmp_path / "out")
    assert [(lost.id, lost.namespace) for lost in saved.lost] == [("n7", "ana")]
    after = everything(tmp_path / "out")
    assert after["count ana"] == before["count ana"] - 1
    assert [m for m in before["list ana"] if m["id"] != "n7"] == after["list ana"]
    assert before["list 小明"] == after["list 小明"]


@pytest.mark.parametrize("page", [1, 2, 3, 4, 5, 6, 7, 9, 12, 15])
def test_a_page_that_is_gone_costs_what_was_on_it(store: Path, tmp_path: Path, page: int) -> None:
    before = everything(store)
    path = store / FILE_NAME
    content = bytearray(path.read_bytes())
    start = (page - 1) * 8192
    if start >= len(content):
        pytest.skip("the ledger has fewer pages")
    content[start : start + 8192] = bytes(8192)
    path.write_bytes(content)
    saved = jiyi.salvage(store, tmp_path / "out")
    with jiyi.open(tmp_path / "out", embedder=None) as engine:
        after = [memory.to_dict(usage=False) for memory in engine.list(namespace=None)]
        assert engine.verify() == []
    was = [m for name in corruption.NAMESPACES for m in before[f"list {name}"]]
    texts = [m["text"] for m in was]
    assert saved.saved == len(after)
    assert all(m["text"] in texts for m in after)
    assert len(after) + len(saved.lost) >= len(was)
    assert len(after) >= len(was) - 45  # no more than a page of rows


def test_a_truncated_file_gives_what_is_there(store: Path, tmp_path: Path) -> None:
    path = store / FILE_NAME
    content = path.read_bytes()
    path.write_bytes(content[: -3 * 8192])
    saved = jiyi.salvage(store, tmp_path / "out")
    assert saved.saved > 0
    with jiyi.open(tmp_path / "out", embedder=None) as engine:
        assert engine.verify() == []


def test_what_was_deleted_stays_away(store: Path, tmp_path: Path) -> None:
    jiyi.salvage(store, tmp_path / "out")
    with jiyi.open(tmp_path / "out", embedder=None) as engine, pytest.raises(jiyi.NotFoundError):
        engine.get("n3", namespace="ana")


def test_salvage_refuses_what_it_would_spoil(store: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ValueError, match="not empty"):
        jiyi.salvage(store, tmp_path / "full")
    with pytest.raises(ValueError, match="holds no"):
        jiyi.salvage(tmp_path / "full", tmp_path / "out")
    with pytest.raises(ValueError, match="inside"):
        jiyi.salvage(store, store / "out")
    with jiyi.open(store, embedder=None), pytest.raises(jiyi.StoreLockedError):
        jiyi.salvage(store, tmp_path / "out")


def test_repair_on_the_command_line(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(store)
    assert main(["verify", "--store", str(store)]) == 1
    assert "--repair OUT" in capsys.readouterr().err
    assert main(["verify", "--store", str(store), "--repair", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "lost: 'n7' (label 8) in namespace 'ana'" in out
    assert f"to {tmp_path / 'out'}; 1 are lost" in out


# --------------------------------------------------------------------------------------------- damage in use


def told(hits: Any) -> list[str]:
    return [degraded.reason for degraded in hits.degraded if degraded.stage == "recall"]


def test_a_damaged_memory_is_named_and_never_returned(store: Path) -> None:
    damage(store)
    with jiyi.open(store, embedder=None) as engine:
        with pytest.raises(jiyi.DamagedError, match=r"'n7' .label 8. in namespace 'ana'.*verify --repair") as caught:
            engine.get("n7", namespace="ana")
        assert (caught.value.label, caught.value.memory_id, caught.value.namespace) == (8, "n7", "ana")
        with pytest.raises(jiyi.DamagedError):
            engine.list(namespace="ana")
        hits = engine.search("note 7 about green tea", namespace="ana", k=50)
        assert len(hits) > 30
        assert "n7" not in hits.ids
        assert "label 8" in told(hits)[0]
        assert told(engine.search("note 7", namespace="小明")) == []
        assert engine.forget({"id": "n7"}, namespace="ana") == 1
        assert told(engine.search("note 7", namespace="ana")) == []
        assert engine.verify() == []


def test_damage_that_is_found_only_when_a_memory_is_fetched(store: Path) -> None:
    with sqlite3.connect(store / FILE_NAME) as ledger:
        ledger.execute("UPDATE memories SET text = 'forged' WHERE id = 'n7'")
    ledger.close()
    (store / "ledger.sums").unlink()
    with jiyi.open(store, embedder=None) as engine:
        hits = engine.search("note 7 about green tea", namespace="ana", k=50)
        assert "n7" not in hits.ids
        assert len(told(hits)) == 1
        assert "forged" not in str(hits.degraded)
        assert len(engine.search("note 7", namespace="ana", k=5)) == 5


# ------------------------------------------------------------------------- what is damaged, whoever reads it


@pytest.fixture
def hurt(tmp_path: Path) -> Any:
    """A store that was damaged while it was in nobody's hands and has no checksums of its pages any more."""
    folder = tmp_path / "hurt"
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many(
            [{"text": f"likes tea {i}", "id": f"a{i}", "kind": "archival", "timestamp": i} for i in range(4)]
        )
        engine.add(jiyi.Memory.procedure("Brew tea", ["heat", "pour"], id="brew"))
        for number, place in enumerate(["Lyon", "Oslo", "Bonn"]):
            engine.add(jiyi.Memory.fact(f"Person {number}", "lives in", place, id=place))
            engine.add(jiyi.Memory.fact("Ana", "knows", f"Person {number}", id=f"k{number}", multivalued=True))
    with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        connection.execute("UPDATE memories SET text = text || '!' WHERE id IN ('a3', 'brew', 'Oslo')")
    (folder / page_sums.FILE_NAME).unlink(missing_ok=True)
    return folder


CALLS: dict[str, Any] = {
    "context": lambda e: e.build_context(["how do I brew tea"], archival_slots=2),
    "facts": lambda e: e.facts(predicate="lives in"),
    "neighbors": lambda e: e.neighbors("Ana", hops=2),
    "search": lambda e: e.search("Oslo lives brew tea", k=20),
}


@pytest.mark.parametrize("call", list(CALLS))
def test_every_reader_leaves_out_what_is_damaged_and_names_it(hurt: Path, call: str) -> None:
    with jiyi.open(hurt, embedder=None) as engine:
        answer = CALLS[call](engine)
        said = "; ".join(each.reason for each in answer.degraded)
        assert "damaged and left out of 'default'" in said
        if call == "context":
            assert {"a2", "a1"} <= set(answer.ids)
            assert not {"a3", "brew", "Oslo"} & set(answer.ids)
        elif call == "facts":
            assert [memory.id for memory in answer] == ["Lyon", "Bonn"]
        elif call == "neighbors":
            assert {each.entity for each in answer} == {"Person 0", "Person 1", "Person 2", "Lyon", "Bonn"}
        else:
            assert "Lyon" in answer.ids
            assert not {"a3", "brew", "Oslo"} & set(answer.ids)


def test_what_is_damaged_can_be_deleted_and_ingested_anew(hurt: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"id": "a3", "text": "likes tea 3", "kind": "archival", "timestamp": 3}\n')
    with jiyi.open(hurt, embedder=None) as engine:
        with pytest.raises(jiyi.DamagedError, match="'Oslo'"):
            engine.get("Oslo")
        assert engine.delete(["Oslo", "brew", "nobody"]) == 2
        assert ingest_files(engine, lines).replaced == 1
        assert engine.verify() == []
        assert engine.facts(predicate="lives in").degraded == ()
        assert engine.build_context(["tea"], archival_slots=2).degraded == ()
