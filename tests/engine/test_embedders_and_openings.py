"""What an embedder of the user's, a damaged model or an odd opening may not do."""

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi.candidates import Signal
from jiyi.models.files import ModelFilesError


class Embedder:
    """Answers with what it is told to."""

    def __init__(self, rows: Any = None, *, name: Any = "mine", dim: Any = 4) -> None:
        self.rows, self.name, self.dim = rows, name, dim

    def embed(self, texts: Any) -> Any:
        return np.eye(len(texts), self.dim, dtype=np.float32) + 0.5 if self.rows is None else self.rows

    def embed_query(self, text: str) -> Any:
        return self.embed([text])[0]


def test_a_dim_of_numpy_is_stored_as_a_number(tmp_path: Path) -> None:
    with jiyi.open(tmp_path / "store", embedder=Embedder(dim=np.int64(4))) as engine:
        engine.add("precious")
    with jiyi.open(tmp_path / "store", embedder=Embedder(dim=np.int64(4))) as engine:
        assert [hit.memory.text for hit in engine.search("precious")] == ["precious"]
        assert engine.stats()["mismatch"] is None


@pytest.mark.parametrize("dim", [0, -1, "8", 8.0, True, None])
def test_a_dim_that_is_none_is_refused_at_opening(dim: Any) -> None:
    with pytest.raises(ValueError, match="dim"):
        jiyi.open(embedder=Embedder(dim=dim))


@pytest.mark.parametrize("name", [None, "", 5])
def test_a_name_that_is_none_is_refused_at_opening(name: Any) -> None:
    with pytest.raises(TypeError, match="name"):
        jiyi.open(embedder=Embedder(name=name))


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        (np.ones((1, 4), np.float32), ValueError, r"'mine' returned has shape \(1, 4\); for 2 texts"),
        (np.ones(4, np.float32), ValueError, r"'mine' returned has shape \(4,\)"),
        (np.ones((2, 3), np.float32), jiyi.DimensionError, "has 3 dimensions and the store's vectors have 4"),
        (np.ones((2, 4), np.complex64), TypeError, "'mine' returned must be numbers"),
        ([[1.0], [1.0, 2.0]], ValueError, "'mine' returned must be numbers in rows of one length"),
        ("text", TypeError, "'mine' returned must be numbers"),
        (np.full((2, 4), 1e300), ValueError, "NaN or infinity for memory 0"),
    ],
)
def test_what_an_embedder_returns_is_checked(rows: Any, error: type[Exception], said: str) -> None:
    with jiyi.open(embedder=Embedder(rows)) as engine:
        with pytest.raises(error, match=said):
            engine.add_many(["a", "b"])
        assert engine.count() == 0


def test_memories_without_a_vector_are_told_of(tmp_path: Path) -> None:
    with jiyi.open(tmp_path / "store", embedder=None) as engine:
        engine.add("I love hiking in the mountains")
    with jiyi.open(tmp_path / "store") as engine:
        engine.add("Redis cluster")
        degraded = engine.search("trekking outdoors").degraded
    assert [str(note) for note in degraded] == [
        "dense: 1 of 2 memories were stored without a vector; words alone find them"
    ]


def test_damaged_weights_leave_what_needs_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with jiyi.open(tmp_path / "store") as engine:
        engine.add("Redis cluster")

    def damaged(name: str, **_: object) -> Any:
        raise ModelFilesError(Path("codes.npy"), "is damaged")

    monkeypatch.setattr("jiyi.opening.load_embedder", damaged)
    with jiyi.open(tmp_path / "store") as engine:
        hits = engine.search("redis")
        assert [hit.memory.text for hit in hits] == ["Redis cluster"]
        assert "codes.npy" in str(hits.degraded[0])
        with pytest.raises(jiyi.ModelError, match=r"codes\.npy"):
            engine.add("more")
        assert engine.count() == 1
    with pytest.raises(jiyi.ModelError, match=r"codes\.npy"):
        jiyi.open(embedder="e5-static-256")


def test_a_snapshot_leaves_other_folders_alone(tmp_path: Path) -> None:
    (tmp_path / "copy.partial").mkdir()
    (tmp_path / "copy.partial" / "mine").write_text("x")
    with jiyi.open(embedder=None) as engine:
        engine.add("tea")
        engine.snapshot(tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "copy.partial"]
    assert (tmp_path / "copy.partial" / "mine").read_text() == "x"
    with jiyi.open(tmp_path / "copy", read_only=True) as copy:
        assert copy.count() == 1


def test_odd_openings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="path is empty"):
        jiyi.open("")
    with pytest.raises(TypeError, match="read_only"):
        jiyi.open(tmp_path, read_only="no")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nothing to read"):
        jiyi.open(read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_context_settings_by_name_and_by_config() -> None:
    with jiyi.open(embedder=None) as engine:
        engine.add_many([f"redis note {i}" for i in range(9)])
        assert len(engine.build_context(["redis"], max_memories=2).memories) == 2
        assert engine.build_context(["redis"], token_budget=1).text == ""
        with pytest.raises(TypeError, match="ContextConfig, got SearchConfig"):
            engine.build_context(["redis"], config=jiyi.SearchConfig())  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="max_memories"):
            engine.build_context(["redis"], k=3)


def test_numbers_of_numpy_are_numbers() -> None:
    with jiyi.open(embedder=None) as engine:
        engine.add("tea", metadata={"cups": np.int64(2), "warmth": np.float32(0.5)})
        assert engine.count(where={"metadata.cups": np.int64(2), "metadata.warmth": {"lt": np.float64(1)}}) == 1


@pytest.mark.parametrize("damage", ["tokens = X'FFFFFFFF'", "session = X'C0ED34'", "terms = X'00'", "vector = X'0000'"])
def test_damaged_columns_are_left_out_and_told(tmp_path: Path, damage: str) -> None:
    with jiyi.open(tmp_path / "store") as engine:
        engine.add_many(["Redis cluster", "green tea"])
    with sqlite3.connect(tmp_path / "store" / "ledger.sqlite") as ledger:
        ledger.execute(f"UPDATE columns SET {damage} WHERE key = (SELECT min(key) FROM columns)")
    ledger.close()
    with jiyi.open(tmp_path / "store") as engine:
        hits = engine.search("redis")
        assert [memory.text for memory in hits.memories] == ["green tea"]
        assert [told.stage for told in hits.degraded] == ["recall"]
        assert "1 memory is damaged and left out of 'default' (label 1)" in hits.degraded[0].reason
        assert "verify --repair" in hits.degraded[0].reason
        assert any("columns" in line for line in engine.verify())


def test_ranks_are_sorted_once_for_all_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts: list[str] = []
    original = Signal.ranks

    def counted(self: Signal) -> Any:
        sorts.append(self.name)
        return original(self)

    monkeypatch.setattr(Signal, "ranks", counted)
    with jiyi.open(embedder=None) as engine:
        engine.add_many([f"redis note {i}" for i in range(50)])
        hits = engine.search("redis", k=40)
        assert sorts == []
        assert len(list(hits)) == 40
    assert sorts == ["keyword"]
