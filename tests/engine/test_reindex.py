"""Changing a store's embedder: everything embedded anew, put in place at once, and nothing lost on the way."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import jiyi
from jiyi.cli import main
from jiyi.errors import ModelError, ReadOnlyError
from tests.engine.embedders import HashEmbedder, HashTable

TEXTS = [f"{word} number {i} 记忆" for i, word in enumerate(["tea", "chess", "rain", "Oslo", "徒步"] * 8)]


def filled(path: Path | None, embedder: Any, **settings: Any) -> jiyi.Engine:
    engine = jiyi.open(path, embedder=embedder, **settings)
    engine.add_many([{"text": text, "id": f"m{i}"} for i, text in enumerate(TEXTS)])
    return engine


def answers(engine: jiyi.Engine) -> list[tuple[list[str], list[float]]]:
    found = [engine.search(query, k=7, now="2026-01-01") for query in ("tea rain", "徒步", "number 3")]
    return [(hits.ids, hits.scores) for hits in found]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (HashEmbedder(8, "a"), HashEmbedder(12, "b")),
        (HashEmbedder(8, "a"), HashTable(16, "t")),
        (HashTable(16, "t"), HashEmbedder(8, "a")),
        (HashTable(16, "t"), HashTable(8, "u")),
    ],
)
def test_afterwards_the_store_is_as_if_made_with_the_new_one(tmp_path: Path, old: Any, new: Any) -> None:
    fresh = filled(None, new)
    wanted = answers(fresh)
    with filled(tmp_path, old) as engine:
        assert engine.reindex(new).memories == len(TEXTS)
        assert answers(engine) == wanted
        assert engine.verify() == []
        engine.add("tea number 99", id="late")
        assert "late" in engine.search("tea number 99").ids
    with jiyi.open(tmp_path, embedder=new) as engine:
        assert engine.stats()["embedder"] == new.name
        assert engine.stats()["mismatch"] is None
        engine.delete("late")
        assert answers(engine) == wanted


def test_a_mismatch_is_cured(tmp_path: Path) -> None:
    filled(tmp_path, HashEmbedder(8, "a")).close()
    with jiyi.open(tmp_path, embedder=HashEmbedder(12, "b")) as engine:
        assert [d.stage for d in engine.search("tea").degraded] == ["dense"]
        assert "jiyi reindex" in engine.search("tea").degraded[0].reason
        assert engine.reindex().memories == len(TEXTS)
        assert engine.search("tea").degraded == ()


def test_vectors_of_the_callers_are_replaced(tmp_path: Path) -> None:
    with jiyi.open(tmp_path, embedder=None) as engine:
        engine.add("tea", vector=[1.0, 0.0])
        engine.add("words only")
        assert engine.reindex(HashEmbedder(8)).memories == 2
        assert engine.search("tea").degraded == ()


class Failing(HashEmbedder):
    """Stops after so many texts."""

    def __init__(self, texts: int) -> None:
        super().__init__(12, "b")
        self.left = texts

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.left -= len(texts)
        if self.left < 0:
            raise RuntimeError("out of memory")
        return super().embed(texts)


def test_a_stopped_run_changes_nothing_and_goes_on_where_it_was(tmp_path: Path) -> None:
    old, seen = HashEmbedder(8, "a"), []
    with filled(tmp_path, old) as engine:
        before = answers(engine)
        with pytest.raises(RuntimeError, match="out of memory"):
            engine.reindex(Failing(25), batch_size=10)
        assert answers(engine) == before
        assert engine.stats()["embedder"] == "a"
    with jiyi.open(tmp_path, embedder=old) as engine:
        assert answers(engine) == before
        counting = Failing(20 + 4)  # ten in each of two batches were done, and four of them are looked at again
        engine.reindex(counting, batch_size=10, progress=lambda done, whole: seen.append((done, whole)))
        assert counting.left == 0
        assert seen[-1] == (len(TEXTS), len(TEXTS))
        assert seen[0] == (30, len(TEXTS))


def test_what_was_staged_for_another_model_is_not_used(tmp_path: Path) -> None:
    new = HashEmbedder(12, "c")
    with filled(tmp_path, HashEmbedder(8, "a")) as engine:
        with pytest.raises(RuntimeError):
            engine.reindex(Failing(25), batch_size=10)
        engine.reindex(new)
        assert answers(engine) == answers(filled(None, new))


def test_memories_that_come_and_go_meanwhile(tmp_path: Path) -> None:
    new = HashEmbedder(12, "b")
    with filled(tmp_path, HashEmbedder(8, "a")) as engine:

        def change(done: int, whole: int) -> None:
            engine.add(f"snow {done}", id=f"s{done}")
            engine.delete(f"m{done - 1}")
            engine.update(f"m{done + 1}", text="changed") if done + 1 < len(TEXTS) else None

        thread = threading.Thread(target=lambda: [engine.search("tea") for _ in range(100)])
        thread.start()
        count = engine.reindex(new, progress=change, batch_size=5).memories
        thread.join()
        assert count == engine.count()
        assert engine.verify() == []
        everything = engine.search("snow 5", k=100)
        assert everything.degraded == ()
        assert everything.ids[0] == "s5"
        for memory in engine.list():
            assert np.isfinite(engine.search(memory.text, k=1).scores).all()


def test_a_reader_follows(tmp_path: Path) -> None:
    new = HashEmbedder(8, "a")  # the same name and length: only the vectors change
    with filled(tmp_path, HashEmbedder(8, "a")) as engine, jiyi.open(tmp_path, embedder=new, read_only=True) as reader:
        assert answers(reader) == answers(engine)
        new.embed = lambda texts: -HashEmbedder(8).embed(texts)  # type: ignore[method-assign]
        new.embed_query = lambda text: -HashEmbedder(8).embed_query(text)  # type: ignore[method-assign]
        engine.reindex(new)
        assert answers(reader) == answers(engine)


def test_wrong_use(tmp_path: Path) -> None:
    with filled(tmp_path, HashEmbedder(8)) as engine:
        with pytest.raises(TypeError, match="embedder must be a name or an object"):
            engine.reindex(3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="there is no embedder 'nonsense'"):
            engine.reindex("nonsense")
        with jiyi.open(tmp_path, embedder=None, read_only=True) as reader, pytest.raises(ReadOnlyError):
            reader.reindex()
    with jiyi.open(None, embedder=None) as engine, pytest.raises(ModelError, match="nothing to embed with"):
        engine.reindex()


def test_an_empty_store_takes_the_new_embedder(tmp_path: Path) -> None:
    with jiyi.open(tmp_path, embedder=HashEmbedder(8, "a")) as engine:
        assert engine.reindex(HashEmbedder(12, "b")).memories == 0
        engine.add("tea")
        assert engine.stats()["dim"] == 12


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path, HashEmbedder(8, "a")).close()
    assert main(["reindex", "--store", str(tmp_path), "--embedder", "e5-static-256"]) == 0
    assert "embedded 40 memories with e5-static-256" in capsys.readouterr().out
    assert main(["reindex", "--store", str(tmp_path), "--embedder", "nonsense"]) != 0
    assert "there is no embedder 'nonsense'" in capsys.readouterr().err
    assert main(["search", "tea", "--store", str(tmp_path), "--json"]) == 0


def test_a_reader_that_named_no_embedder_takes_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = HashEmbedder(12, "b")
    monkeypatch.setattr("jiyi.store.load_embedder", lambda name, **_: {"b": new}[name])
    with jiyi.open(tmp_path) as engine:
        engine.add_many(TEXTS)
        with jiyi.open(tmp_path, read_only=True) as reader:
            assert reader.search("tea").degraded == ()
            engine.reindex(new)
            assert reader.search("tea").degraded == ()
            assert answers(reader) == answers(engine)


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with filled(tmp_path, HashEmbedder(8, "a")) as engine:
        refused: list[str] = []

        def again(done: int, whole: int) -> None:
            with pytest.raises(jiyi.StoreError, match="is running") as caught:
                engine.reindex(HashEmbedder(10, "c"))
            refused.append(str(caught.value))

        engine.reindex(HashEmbedder(12, "b"), progress=again)
        assert refused
        assert engine.stats()["embedder"] == "b"
