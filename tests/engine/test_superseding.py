"""Facts that replace others: which holds now, which held when, and that nothing else comes back."""

from __future__ import annotations

import random
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jiyi
from jiyi import IndexConfig, Memory
from jiyi.ledger import FILE_NAME
from tests.engine.embedders import HashTable

DAY = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=UTC)


def lives_in(place: str, day: int, *, who: str = "Ana", **fields: Any) -> Memory:
    return Memory.fact(who, "lives in", place, id=f"{who}-{place}", timestamp=START + day * DAY, **fields)


def found(engine: jiyi.Engine, query: str, **settings: Any) -> set[str]:
    return set(engine.search(query, k=50, **settings).ids)


def test_the_later_of_two_facts_is_the_one_that_is_recalled(engine: jiyi.Engine) -> None:
    engine.add_many([lives_in("Lyon", 60), lives_in("Paris", 0), lives_in("Rome", 1, who="Bo")])
    assert found(engine, "Who lives in Paris, Lyon or Rome?") == {"Ana-Lyon", "Bo-Rome"}
    assert engine.get("Ana-Paris").object == "Paris"  # history
    assert engine.count() == 3


def test_facts_in_chinese(engine: jiyi.Engine) -> None:
    engine.add(Memory.fact("小明", "住在", "上海", id="旧", timestamp=START))
    engine.add(Memory.fact("小明", "住在", "杭州", id="新", timestamp=START + DAY))
    assert found(engine, "小明住在哪里？上海还是杭州") == {"新"}
    assert found(engine, "小明住在哪里", as_of=START) == {"旧"}


def test_case_width_and_spaces_do_not_tell_subjects_apart(engine: jiyi.Engine) -> None:
    engine.add_many([lives_in("Paris", 0), lives_in("Lyon", 1, who="ＡＮＡ")])
    engine.add(Memory.fact(" ana ", "Lives  In", "Rome", id="last", timestamp=START + 2 * DAY))
    assert found(engine, "lives in Paris Lyon Rome") == {"last"}


def test_a_multivalued_predicate_holds_several_objects(engine: jiyi.Engine) -> None:
    for day, drink in enumerate(("tea", "coffee", "Tea")):
        engine.add(
            Memory.fact("Ana", "likes", drink, multivalued=True, id=f"{drink}{day}", timestamp=START + day * DAY)
        )
    assert found(engine, "what does Ana like") == {"coffee1", "Tea2"}


def test_of_two_facts_of_one_moment_the_one_stored_last_holds(engine: jiyi.Engine) -> None:
    engine.add(lives_in("Paris", 0))
    engine.add(lives_in("Lyon", 0))
    assert found(engine, "lives in Paris Lyon") == {"Ana-Lyon"}
    assert found(engine, "lives in Paris Lyon", as_of=START) == {"Ana-Lyon"}


def test_deleting_the_newer_fact_revives_the_older(engine: jiyi.Engine) -> None:
    engine.add_many([lives_in("Paris", 0), lives_in("Lyon", 1), lives_in("Rome", 2)])
    engine.delete("Ana-Rome")
    assert found(engine, "lives in Paris Lyon Rome") == {"Ana-Lyon"}
    engine.delete("Ana-Lyon")
    assert found(engine, "lives in Paris Lyon Rome") == {"Ana-Paris"}


def test_replacing_a_fact_by_its_id(engine: jiyi.Engine) -> None:
    engine.add_many([lives_in("Paris", 0), lives_in("Lyon", 1)])
    engine.update("Ana-Lyon", object="Nice")
    assert engine.get("Ana-Lyon").text == "Ana lives in Nice"
    assert found(engine, "lives in Paris Lyon Nice") == {"Ana-Lyon"}
    engine.update("Ana-Lyon", timestamp=START - DAY)  # it was the older one after all
    assert found(engine, "lives in Paris Lyon Nice") == {"Ana-Paris"}


def test_namespaces_do_not_supersede_each_other(engine: jiyi.Engine) -> None:
    engine.add_many([lives_in("Paris", 0, namespace="a"), lives_in("Lyon", 1, namespace="b")])
    assert found(engine, "lives in Paris", namespace="a") == {"Ana-Paris"}


@pytest.mark.parametrize("plan", ["exact", "indexed"])
def test_superseded_and_expired_memories_never_come_back(folder: Path, hash_table: HashTable, plan: str) -> None:
    small = IndexConfig(dense_rows=8, keyword_rows=8)
    plans = {"dense_plan": plan, "keyword_plan": plan}
    now = START + 400 * DAY

    def check(engine: jiyi.Engine) -> None:
        for query in ("where does Ana live", "person3 lives in place3", "住在", "old news"):
            for hit in engine.search(query, k=100, now=now, **plans):
                assert hit.memory.object is None or hit.memory.object.startswith("new"), hit
                assert hit.memory.expires_at is None or hit.memory.expires_at > now
            many = engine.search_many([query, query], k=100, now=now, **plans)
            assert many[0].ids == engine.search(query, k=100, now=now, **plans).ids

    with jiyi.open(folder, embedder=hash_table, index_config=small) as engine:
        for i in range(20):
            engine.add(lives_in(f"old{i}", i, who=f"person{i}"))
            engine.add(Memory(text=f"old news {i} 住在", timestamp=START, expires_at=now if i % 2 else START + DAY))
        engine.flush()  # the indexes know the old facts only
        engine.add_many([lives_in(f"new{i}", 100 + i, who=f"person{i}") for i in range(20)])
        check(engine)
        engine.flush()
        check(engine)
    with jiyi.open(folder, embedder=hash_table, index_config=small) as engine:
        check(engine)
        assert engine.compact(now=now) == 20
        check(engine)
        engine.flush()
        check(engine)
        assert engine.count(where={"kind": "semantic"}) == 40  # compact keeps history
    with jiyi.open(folder, embedder=hash_table, read_only=True) as reader:
        check(reader)


WORDS = ["red", "green", "blue", "tea", "coffee", "hiking", "Lyon", "徒步", "上海", "编程"]


def random_history(seed: int) -> list[Memory]:
    draw = random.Random(seed)
    memories = []
    for i in range(draw.randint(1, 40)):
        day = draw.randint(0, 30)
        fields: dict[str, Any] = {"id": f"m{i}", "timestamp": START + day * DAY}
        if draw.random() < 0.5:
            who, does = draw.choice(["Ana", "ana", "小明"]), draw.choice(["likes", "lives in"])
            memories.append(
                Memory.fact(
                    who, does, draw.choice(WORDS), multivalued=does == "likes" and draw.random() < 0.5, **fields
                )
            )
        else:
            expires = START + draw.randint(0, 40) * DAY if draw.random() < 0.3 else None
            words = " ".join(draw.choices(WORDS, k=draw.randint(1, 5)))
            session = draw.choice([None, "s", "t"])
            memories.append(Memory(text=words, expires_at=expires, session=session, **fields))
    return memories


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), day=st.integers(-1, 31), deleted=st.integers(0, 5))
def test_as_of_equals_a_store_of_the_history_up_to_then(seed: int, day: int, deleted: int) -> None:
    history, table, moment = random_history(seed), HashTable(), START + day * DAY
    gone = {memory.id for memory in history[:deleted]}
    with jiyi.open(embedder=table) as whole, jiyi.open(embedder=table) as until:
        whole.add_many(history)
        whole.delete(gone)
        until.add_many([memory for memory in history if memory.timestamp <= moment and memory.id not in gone])
        for query in ("Ana likes tea", "小明 lives in 上海", "徒步 hiking red"):
            then = whole.search(query, as_of=moment, k=10)
            expected = until.search(query, now=moment, k=10)
            assert then.ids == expected.ids
            assert then.scores == expected.scores  # to the last bit: the same statistics
            assert [hit.factors for hit in then] == [hit.factors for hit in expected]


def test_as_of_after_reopening_and_with_a_tail_of_new_rows(folder: Path, hash_table: HashTable) -> None:
    history = [memory for seed in range(80) for memory in random_history(seed)]
    history = [Memory.from_dict({**memory.to_dict(), "id": f"n{i}"}) for i, memory in enumerate(history)]
    assert len(history) > 1200
    moment = START + 15 * DAY
    with jiyi.open(embedder=hash_table) as until:
        until.add_many([memory for memory in history if memory.timestamp <= moment])
        expected = until.search("Ana likes tea", now=moment, k=20)
    with jiyi.open(folder, embedder=hash_table) as engine:
        for start in range(0, len(history), 500):
            engine.add_many(history[start : start + 500])
        assert engine.search("Ana likes tea", as_of=moment, k=20).scores == expected.scores
    with jiyi.open(folder, embedder=hash_table) as engine:
        then = engine.search("Ana likes tea", as_of="2026-01-16T00:00:00Z", k=20)
        assert (then.ids, then.scores) == (expected.ids, expected.scores)


def test_as_of_must_be_a_time(engine: jiyi.Engine) -> None:
    engine.add("x")
    with pytest.raises(ValueError, match="as_of"):
        engine.search("x", as_of="yesterday")
    assert len(engine.search("x", as_of=0)) == 0


def test_a_store_of_the_first_format_is_upgraded_when_it_is_opened_for_writing(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("cat 猫", id="old", vector=np.ones(3), metadata={"a": 1})
    connection = sqlite3.connect(folder / FILE_NAME)
    connection.execute("DROP INDEX facts_by_subject")
    connection.execute("DROP TABLE usage")
    for column in ("subject", "predicate", "object", "multivalued", "title", "steps", "use_when"):
        connection.execute(f"ALTER TABLE memories DROP COLUMN {column}")
    connection.execute("ALTER TABLE columns DROP COLUMN fact")
    for (name,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN "
        "('manifest', 'namespaces', 'memories', 'columns', 'tombstones') AND name NOT LIKE 'sqlite_%'"
    ).fetchall():
        connection.execute(f"DROP TABLE {name}")  # those of later formats
    connection.execute("UPDATE manifest SET value = '1' WHERE key = 'format'")
    connection.commit()
    connection.close()
    (folder / "ledger.sums").unlink()
    with pytest.raises(jiyi.StoreVersionError, match="Open it once for writing"):
        jiyi.open(folder, embedder=None, read_only=True)
    with jiyi.open(folder, embedder=None) as engine:
        assert engine.get("old").metadata == {"a": 1}
        assert engine.search("cat").ids == ["old"]
        assert engine.verify() == []
        engine.add(lives_in("Paris", 0), vector=np.ones(3))
        engine.add(lives_in("Lyon", 1), vector=np.ones(3))
        assert found(engine, "lives in Paris Lyon") >= {"Ana-Lyon"}
        assert "Ana-Paris" not in found(engine, "lives in Paris Lyon")
        assert engine.reinforce("old") == 1
    with jiyi.open(folder, embedder=None, read_only=True) as engine:
        assert engine.get("old").uses == 1
        assert engine.verify() == []
