"""`search_many` without a cross-encoder: the answers of `search`, whatever number of threads finds them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import jiyi
from jiyi import search as search_module
from jiyi.bench.corpus import queries, texts

NOW = "2026-12-01T00:00:00Z"


@pytest.fixture(scope="module")
def engine() -> jiyi.Engine:
    engine = jiyi.open()
    engine.add_many([{"text": text, "session": f"s{i // 10}", "id": f"{i}"} for i, text in enumerate(texts(300))])
    return engine


@pytest.mark.parametrize("cores", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 7, 16, 41])
def test_the_same_to_the_bit(engine: jiyi.Engine, monkeypatch: pytest.MonkeyPatch, cores: int, count: int) -> None:
    monkeypatch.setattr(search_module, "cores", lambda: cores)
    asked = list(queries(count))
    together = engine.search_many(asked, now=NOW, k=7, where={"id": {"not": "3"}})
    assert [hits.text for hits in together] == asked
    for query, hits in zip(asked, together, strict=True):
        alone = engine.search(query, now=NOW, k=7, where={"id": {"not": "3"}})
        assert hits.to_dict() | {"timings_ms": None} == alone.to_dict() | {"timings_ms": None}


class Counting:
    """An embedder that notes who calls it."""

    name, dim = "counting", 4

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([self.embed_query(text) for text in texts], np.float32).reshape(-1, 4)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self.threads.add(threading.get_ident())
        return np.array([len(text), text.count("e"), text.count("a"), 1], np.float32)


def test_an_embedder_of_the_users_is_called_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "cores", lambda: 4)
    embedder = Counting()
    with jiyi.open(embedder=embedder) as engine:
        engine.add_many(list(texts(20)))
        assert len(engine.search_many(list(queries(64)))) == 64
    assert embedder.threads == {threading.get_ident()}


def test_an_error_of_one_query_is_raised(engine: jiyi.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "cores", lambda: 2)
    own = search_module.search

    def failing(store: object, text: str, settings: object) -> object:
        if text == "no":
            raise ZeroDivisionError
        return own(store, text, settings)  # type: ignore[arg-type]

    monkeypatch.setattr(search_module, "search", failing)
    with pytest.raises(ZeroDivisionError):
        engine.search_many([*queries(30), "no"])
