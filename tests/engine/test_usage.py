"""Reinforcement and outcomes: counted on request only, kept, explained, and what they do to a rank."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import jiyi
from jiyi import Memory
from jiyi.pipeline.recency import outcomes
from jiyi.usage import Usage

DAY = timedelta(days=1)
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def test_a_use_is_counted_and_when_it_was(engine: jiyi.Engine) -> None:
    engine.add("徒步", id="a", timestamp=NOW - 10 * DAY)
    assert engine.reinforce(["a", "unknown", "a"], now=NOW - DAY) == 1
    assert engine.reinforce("a", now=NOW - 5 * DAY) == 1  # told late: the last use stays the last
    memory = engine.get("a")
    assert (memory.uses, memory.last_used) == (2, NOW - DAY)
    assert engine.list() == [memory]
    assert engine.search("徒步").memories == [memory]


def test_searching_never_counts_as_a_use(engine: jiyi.Engine) -> None:
    engine.add("hiking", id="a")
    before = engine.stats()["sequence"]
    engine.search("hiking", reinforcement="last_use")
    engine.search_many(["hiking"], reinforcement="half_life")
    engine.build_context(["hiking"])
    assert engine.get("a").uses == 0
    assert engine.stats()["sequence"] == before


def test_uses_survive_reopening_updates_and_being_stored_again(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many([Memory(text="tea", id="a"), Memory(text="tea", id="b")])
        engine.reinforce("a", now=NOW)
        engine.update("a", text="green tea")
        engine.add("black tea", id="a")
        engine.add_many(engine.list())
        assert (engine.get("a").uses, engine.get("b").uses) == (1, 0)
        assert engine.search("tea").ids[0] in {"a", "b"}
    with jiyi.open(folder, embedder=None) as engine:
        assert (engine.get("a").uses, engine.get("a").last_used) == (1, NOW)
        assert engine.verify() == []
        used = {hit.memory.id: hit.factors["used"]["uses"] for hit in engine.search("tea")}
        assert used == {"a": 1, "b": 0}
        engine.delete("a")
        engine.add("tea again", id="a")
        assert engine.get("a").uses == 0  # another memory of that name


def test_a_memory_brings_its_uses_along(engine: jiyi.Engine) -> None:
    exported = Memory(text="tea", uses=3, last_used=NOW, id="a").to_json()
    assert '"uses": 3' in exported
    engine.add_many([__import__("json").loads(exported)])
    assert (engine.get("a").uses, engine.get("a").last_used) == (3, NOW)


def test_used_memories_age_from_their_last_use_if_asked_to(engine: jiyi.Engine) -> None:
    engine.add("green tea", id="used", timestamp=NOW - 100 * DAY)
    engine.add("green tea", id="unused", timestamp=NOW - 50 * DAY)
    engine.reinforce("used", now=NOW - DAY)
    plain = engine.search("green tea", now=NOW, diversity="none")
    assert plain.ids == ["unused", "used"]
    reinforced = engine.search("green tea", now=NOW, diversity="none", reinforcement="last_use")
    assert reinforced.ids == ["used", "unused"]
    assert reinforced[0].factors["age_s"] == 86400
    assert reinforced[0].factors["recency"] == pytest.approx(2 ** (-1 / 7))
    assert reinforced[0].factors["used"]["uses"] == 1


def test_a_use_makes_the_half_life_longer_if_asked_to(engine: jiyi.Engine) -> None:
    engine.add("green tea", id="a", timestamp=NOW - 21 * DAY)
    for _ in range(2):
        engine.reinforce("a", now=NOW)

    def recency(**settings: float | str) -> float:
        hit = engine.search("tea", now=NOW, **settings)[0]
        assert hit.factors["age_s"] == 21 * 86400
        return float(hit.factors["recency"])

    assert recency() == pytest.approx(2**-3)
    assert recency(reinforcement="half_life") == pytest.approx(0.5)  # 7 days · (1 + 2)
    assert recency(reinforcement="half_life", reinforcement_growth=0.5) == pytest.approx(2**-1.5)
    assert recency(reinforcement="half_life", recency_curve="linear") == pytest.approx(0.5)


def test_outcomes_move_procedures_and_nothing_else(engine: jiyi.Engine) -> None:
    for name in ("works", "fails", "untried"):
        engine.add(Memory.procedure("deploy 部署", ["run it"], id=name, timestamp=NOW))
    assert engine.outcome("works", success=True, now=NOW) == 1
    for _ in range(3):
        engine.outcome("fails", success=False, now=NOW)
    hits = engine.search("部署 deploy", now=NOW, diversity="none", recency_weight=0.5)
    assert hits.ids == ["works", "untried", "fails"]
    by_id = {hit.memory.id: hit for hit in hits}
    assert by_id["fails"].factors["used"] | {"last_used_s": 0} == {
        "uses": 3,
        "last_used_s": 0,
        "successes": 0,
        "failures": 3,
        "change": pytest.approx(0.1 * -0.6 * 1.0),
    }
    same = engine.search("部署 deploy", now=NOW, diversity="none", outcome_weight=0)
    assert same.ids == ["works", "fails", "untried"]  # as stored
    assert engine.get("fails").failures == 3


def test_an_outcome_is_drawn_within_bounds() -> None:
    score = np.array([0.0, 0.5, 1.0, 0.5, 0.5, 0.5])
    used = Usage(
        uses=np.zeros(6, dtype=np.int64),
        last_used_s=np.full(6, -np.inf),
        successes=np.array([9, 9, 9, 0, 1, 5]),
        failures=np.array([0, 0, 0, 9, 1, 0]),
    )
    kinds = np.array([3, 3, 3, 3, 3, 0], dtype=np.uint8)
    change = outcomes(score, kinds, used, 1.0)
    balance = 2 * 10 / 11 - 1
    assert change == pytest.approx([balance, balance / 2, 0, -balance / 2, 0, 0])


def test_only_procedures_have_outcomes(engine: jiyi.Engine) -> None:
    engine.add("tea", id="a")
    engine.add(Memory.procedure("brew", ["boil"], id="p"))
    with pytest.raises(ValueError, match="only procedural memories have outcomes"):
        engine.outcome(["p", "a"], success=True)
    assert engine.get("p").uses == 0
    with pytest.raises(TypeError, match="success"):
        engine.outcome("p", success="yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="reinforce takes an id"):
        engine.reinforce(5)  # type: ignore[arg-type]


def test_a_reader_in_another_engine_follows(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine, jiyi.open(folder, embedder=None, read_only=True) as reader:
        engine.add_many([Memory(text="tea", id="a", timestamp=NOW), Memory(text="tea", id="b", timestamp=NOW)])
        assert "used" not in reader.search("tea")[0].factors
        engine.reinforce("b", now=NOW)
        assert {hit.memory.id: hit.factors["used"]["uses"] for hit in reader.search("tea")} == {"a": 0, "b": 1}
        engine.add("tea", id="c")
        engine.reinforce("c", now=NOW)
        assert {hit.memory.id: hit.factors["used"]["uses"] for hit in reader.search("tea")} == {"a": 0, "b": 1, "c": 1}
        with pytest.raises(jiyi.ReadOnlyError):
            reader.reinforce("a")


def test_uses_counted_by_many_threads_are_all_there(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("tea", id="a")

        def use() -> None:
            for _ in range(20):
                engine.reinforce("a")
                assert engine.search("tea").ids == ["a"]

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert engine.get("a").uses == 80


def test_a_use_at_the_end_of_time_can_be_read(engine: jiyi.Engine) -> None:
    engine.add("tea", id="a")
    engine.reinforce("a", now="9999-12-31T23:59:59.999999Z")
    assert engine.get("a").last_used == datetime.max.replace(tzinfo=UTC)
    engine.reinforce("a", now="0001-01-01")
    assert engine.search("tea").memories == engine.list()
    assert engine.verify() == []


def test_what_an_update_says_of_uses_counts(engine: jiyi.Engine) -> None:
    engine.add("tea", id="a")
    engine.reinforce("a", now=NOW)
    assert engine.update("a", uses=0, last_used=None).uses == 0
    assert (engine.get("a").uses, engine.get("a").last_used) == (0, None)
    assert engine.update("a", text="green tea", uses=5).uses == engine.get("a").uses == 5


def test_uses_noted_later_do_not_count_as_of_earlier(engine: jiyi.Engine) -> None:
    engine.add(Memory.procedure("brew tea", ["boil"], id="a", timestamp=NOW - 100 * DAY))
    engine.add(Memory.procedure("brew tea", ["boil"], id="b", timestamp=NOW - 100 * DAY))
    engine.outcome("b", success=True, now=NOW)
    then = engine.search("tea", as_of=NOW - DAY, reinforcement="last_use", diversity="none")
    assert then.ids == ["a", "b"]
    assert [hit.factors["used"]["uses"] for hit in then] == [0, 0]
    assert engine.search("tea", as_of=NOW, diversity="none", aging={"procedural": {}}).ids == ["b", "a"]
