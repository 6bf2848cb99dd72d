"""So many searches at once as there are cores, the others in the order in which they came, and nobody is forgotten."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import jiyi
from jiyi.turns import Turns, turn_of
from tests.engine.embedders import HashEmbedder, HashTable


@pytest.mark.parametrize("at_a_time", [1, 2, 3])
def test_never_more_at_once_and_everybody_once(at_a_time: int) -> None:
    turns, lock = Turns(at_a_time), threading.Lock()
    inside, most, done = 0, 0, []

    def work(number: int) -> None:
        nonlocal inside, most
        for _ in range(50):
            with turns:
                with lock:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0)
                with lock:
                    inside -= 1
                    done.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(done) == 400
    assert 1 <= most <= at_a_time
    assert turns._free == at_a_time


def test_in_the_order_in_which_they_came() -> None:
    turns, order, came = Turns(1), [], threading.Event()

    def work(number: int) -> None:
        came.set()
        with turns:
            order.append(number)

    threads = []
    with turns:
        for number in range(6):
            came.clear()
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            came.wait(60)
            while len(turns._waiting) <= number:
                time.sleep(0.001)
    for thread in threads:
        thread.join(60)
    assert order == list(range(6))


def test_a_search_that_fails_gives_its_turn_back(folder: Path) -> None:
    with jiyi.open(folder, embedder=HashTable()) as engine:
        engine.add("cat")
        engine.search("cat")
        free = engine._store.turns._free
        for _ in range(10):
            with pytest.raises(ValueError, match="metadata"):
                engine.search("cat", where={"nothing": 1})
        assert engine._store.turns._free == free
        assert len(engine.search("cat")) == 1


def test_what_may_take_long_holds_up_nobody(folder: Path) -> None:
    """A search that is not in memory, asks a model, or looks at several namespaces, takes no turn."""
    with jiyi.open(folder, embedder=HashTable()) as engine:
        engine.add_many(["cat"])
        store = engine._store

        def waits(**settings: object) -> bool:
            return turn_of(store, engine._settings(**settings)) is store.turns

        assert not waits()  # not loaded yet
        engine.search("cat")
        assert waits()
        assert waits(rerank=("bm25",))
        assert not waits(namespace=["default", "other"])
        assert not waits(namespace="d*")
        assert not waits(rerank=(_Scorer(),))
        engine.reindex(HashEmbedder())
        engine.search("cat")
        assert not waits()  # the embedder may be anywhere
        assert waits(query_vector=[1.0] * 32)


class _Scorer:
    name = "slow"

    def score(self, query: str, texts: list[str]) -> list[float]:
        return [0.0] * len(texts)
