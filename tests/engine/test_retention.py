"""What expires and what a policy lets go of: out of every answer, and out of the store when it is asked to tidy up."""

from __future__ import annotations

import math
import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jiyi
from jiyi import Aging, IndexConfig, Memory, Retention, SearchConfig
from jiyi.retention import usefulness
from jiyi.usage import Usage
from tests.engine.embedders import HashEmbedder

NOW = datetime(2026, 6, 1, 12, 0, 0, 123_457, tzinfo=UTC)
TICK = timedelta(microseconds=1)
DAY_S = 86_400.0

TINY = IndexConfig(dense_rows=4, keyword_rows=4)
PLANS = [("exact", "exact"), ("indexed", "indexed"), ("auto", "auto")]


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def texts(engine: jiyi.Engine, **settings: Any) -> list[str]:
    return [memory.text for memory in engine.list(**settings)]


# --------------------------------------------------------------------------------------------- expires_at


@pytest.mark.parametrize(("dense_plan", "keyword_plan"), PLANS)
def test_nothing_recalls_what_expired(folder: Path, dense_plan: str, keyword_plan: str) -> None:
    plans = {"dense_plan": dense_plan, "keyword_plan": keyword_plan}
    queries = ["where is the spare key of the boat", "船的备用钥匙在哪里"]

    def check(engine: jiyi.Engine) -> None:
        for moment, expected in [(NOW - TICK, True), (NOW, False), (NOW + timedelta(days=9), False)]:
            for query, memory_id in zip(queries, ["en", "zh"], strict=True):
                assert (memory_id in engine.search(query, k=50, now=moment, **plans).ids) is expected
                hits = engine.search(query, k=50, now=moment, where={"session": "s"}, **plans)
                assert (memory_id in hits.ids) is expected
                [hits] = engine.search_many([query], k=50, now=moment, **plans)
                assert (memory_id in hits.ids) is expected
                for preset in ("dense", "keyword"):
                    assert (memory_id in engine.search(query, k=50, now=moment, preset=preset, **plans).ids) is expected
                context = engine.build_context([{"role": "user", "content": query}], now=moment, **plans)
                assert (f"expiring {memory_id}" in context.text) is expected
                assert (f"archived {memory_id}" in context.text) is expected

    with jiyi.open(folder, embedder=HashEmbedder(), index_config=TINY) as engine:
        engine.add_many([f"a day at sea 海上的一天 {i}" for i in range(30)])
        for memory_id, query in zip(["en", "zh"], queries, strict=True):
            engine.add(
                f"expiring {memory_id} {query}", id=memory_id, session="s", timestamp=days_ago(1), expires_at=NOW
            )
            engine.add(
                f"archived {memory_id} {query}", kind="archival", id=f"a-{memory_id}", session="s", expires_at=NOW
            )
        check(engine)  # no index yet
        engine.flush()
        check(engine)
        assert engine.compact(now=NOW - TICK) == 0
        check(engine)
    with jiyi.open(folder, embedder=HashEmbedder(), index_config=TINY) as engine:
        check(engine)
        assert engine.compact(now=NOW, dry_run=True) == 4
        assert engine.count() == 34
        assert engine.compact(now=NOW) == 4  # the very instant counts
        assert engine.count() == 30
        for plan in ("exact", "indexed"):
            for query in queries:
                hits = engine.search(query, k=50, now=days_ago(1), dense_plan=plan, keyword_plan=plan)
                assert not set(hits.ids) & {"en", "zh"}
    with jiyi.open(folder, embedder=HashEmbedder(), index_config=TINY, read_only=True) as reader:
        assert reader.count() == 30
        assert not set(reader.search(queries[0], k=50, now=days_ago(1)).ids) & {"en", "zh"}


@given(us=st.integers(0, 4_000_000_000_000_000))
def test_an_instant_is_the_same_for_every_part(us: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
    with jiyi.open(embedder=None) as engine:
        engine.add("gone at once", expires_at=moment, timestamp=0)
        assert list(engine.search("gone", now=moment)) == []
        assert engine.compact(now=moment, dry_run=True) == 1
        if us:
            assert len(engine.search("gone", now=moment - TICK)) == 1
            assert engine.compact(now=moment - TICK) == 0
        assert engine.compact(now=moment) == 1


@pytest.mark.parametrize(("place", "old", "new"), [("lives in", "Paris", "Lyon"), ("住在", "北京", "上海")])
def test_what_a_fact_replaced_is_not_true_again_when_that_fact_expires(
    folder: Path, place: str, old: str, new: str
) -> None:
    query = f"小明 {place}"
    with jiyi.open(folder, embedder=None) as engine:
        engine.add(Memory.fact("小明", place, old, id="old", timestamp=days_ago(90)))
        engine.add(Memory.fact("小明", place, new, id="new", timestamp=days_ago(30), expires_at=days_ago(1)))
        engine.add(Memory.fact("小明", "likes", "tea", id="tea", timestamp=days_ago(90)))
        engine.add(Memory.fact("Bo", place, old, id="other", timestamp=days_ago(90)))
        before = engine.search(query, k=9, now=NOW).ids
        assert not {"old", "new"} & set(before)
        assert engine.facts(subject="小明", predicate=place, now=NOW) == []
        assert engine.compact(now=NOW, dry_run=True) == 2
        assert engine.compact(now=NOW) == 2
        assert set(engine.search(query, k=9, now=NOW).ids) == set(before)
    with jiyi.open(folder, embedder=None) as engine:
        assert set(engine.search(query, k=9, now=NOW).ids) == set(before)
        assert engine.facts(subject="小明", predicate=place, now=NOW) == []


def test_an_expired_fact_in_the_middle_takes_nothing_along() -> None:
    with jiyi.open(embedder=None) as engine:
        engine.add(Memory.fact("Ana", "lives in", "Paris", id="a", timestamp=days_ago(90)))
        engine.add(Memory.fact("Ana", "lives in", "Lyon", id="b", timestamp=days_ago(60), expires_at=days_ago(50)))
        engine.add(Memory.fact("Ana", "lives in", "Nice", id="c", timestamp=days_ago(30)))
        assert engine.compact(now=NOW) == 1
        assert [memory.id for memory in engine.list()] == ["a", "c"]
        assert engine.search("Ana lives", now=NOW).ids == ["c"]
        assert engine.search("Ana lives", as_of=days_ago(70)).ids == ["a"]


def test_superseded_and_expired_facts_never_come_back() -> None:
    rng = random.Random(4)
    for _ in range(25):
        with jiyi.open(embedder=None) as engine:
            for i in range(30):
                expires = days_ago(rng.randint(-40, 60)) if rng.random() < 0.4 else None
                fact = Memory.fact(
                    rng.choice(["Ana", "小明"]),
                    rng.choice(["lives in", "住在"]),
                    f"place {i}",
                    id=f"{i}",
                    timestamp=days_ago(rng.randint(1, 90)),
                    expires_at=expires,
                )
                engine.add(fact)
            recalled = set(engine.search("Ana 小明 lives in 住在 place", k=50, now=NOW).ids)
            expired = engine.count(where={"expires_at": {"lte": NOW}})
            assert engine.compact(now=NOW, dry_run=True) == engine.compact(now=NOW) >= expired
            assert set(engine.search("Ana 小明 lives in 住在 place", k=50, now=NOW).ids) == recalled
            assert engine.count(where={"expires_at": {"lte": NOW}}) == 0
            assert engine.compact(now=NOW) == 0


# ---------------------------------------------------------------------------------------- forget, delete


@pytest.mark.parametrize(("dense_plan", "keyword_plan"), PLANS)
def test_what_is_forgotten_is_in_no_answer(folder: Path, dense_plan: str, keyword_plan: str) -> None:
    plans = {"dense_plan": dense_plan, "keyword_plan": keyword_plan}
    with jiyi.open(folder, embedder=HashEmbedder(), index_config=TINY) as engine:
        for namespace in ("ana", "bo"):
            engine.add_many(
                [
                    Memory(text=f"walk {i} 散步{i}", id=f"{i}", session=f"s{i % 3}", namespace=namespace)
                    for i in range(30)
                ]
            )
        engine.flush()
        assert engine.forget({"session": "s1"}, namespace="ana", dry_run=True) == 10
        assert engine.count(namespace="ana") == 30
        assert engine.forget({"session": "s1"}, namespace="ana") == 10
        assert engine.delete(["0", "nobody"], namespace="ana") == 1
        kept = {f"{i}" for i in range(30) if i % 3 != 1 and i != 0}

        def check(engine: jiyi.Engine) -> None:
            for query in ("walk", "散步", "walk 1 散步1"):
                assert set(engine.search(query, namespace="ana", k=50, **plans).ids) <= kept
                assert "1" in engine.search("walk 1 散步1", namespace="bo", k=50, **plans).ids
            assert {memory.id for memory in engine.list(namespace="ana")} == kept

        check(engine)
        engine.flush()
        check(engine)
        engine.compact()
        check(engine)
    with jiyi.open(folder, embedder=HashEmbedder(), index_config=TINY) as engine:
        check(engine)
        assert engine.forget({}, namespace="ana") == 19  # the whole namespace
        assert engine.namespaces() == {"bo": 30}
        for query in ("walk", "散步"):
            assert list(engine.search(query, namespace="ana", **plans)) == []
        engine.compact()
        engine.add("walk again 再散步", id="new", namespace="ana")
        assert engine.search("walk 散步", namespace="ana", **plans).ids == ["new"]
        assert engine.count(namespace="bo") == 30


# ------------------------------------------------------------------------------------------------- age


def test_what_is_older_than_its_kind_may_be_goes() -> None:
    policy = {"episodic": Retention(max_age_s=30 * DAY_S), "semantic": {"max_age_s": 10 * DAY_S}}
    with jiyi.open(embedder=None, retention=policy) as engine:
        for kind in jiyi.KINDS:
            for days in (5, 20, 30, 40):
                engine.add(f"{kind} {days} 天前", kind=kind, timestamp=days_ago(days))
        engine.add("one tick too old", timestamp=days_ago(30) - TICK)
        assert engine.retain(now=NOW, dry_run=True) == {"episodic": 2, "semantic": 3}
        assert engine.count() == 17
        assert engine.retain(now=NOW) == {"episodic": 2, "semantic": 3}
        assert engine.retain(now=NOW) == {"episodic": 0, "semantic": 0}
        assert [text for text in texts(engine) if text.startswith(("episodic", "semantic"))] == [
            "episodic 5 天前",
            "episodic 20 天前",
            "episodic 30 天前",
            "semantic 5 天前",
        ]
        assert engine.count(where={"kind": {"in": ["archival", "procedural"]}}) == 8
        assert "episodic 40 天前" not in [hit.memory.text for hit in engine.search("episodic 40 天前", k=50, now=NOW)]


@pytest.mark.parametrize(("reinforcement", "kept"), [("none", []), ("half_life", []), ("last_use", ["used"])])
def test_age_counts_from_the_last_use_where_memories_are_reinforced_so(reinforcement: str, kept: list[str]) -> None:
    config = SearchConfig(reinforcement=reinforcement)  # type: ignore[arg-type]
    with jiyi.open(embedder=None, config=config) as engine:
        engine.add("used", id="used", timestamp=days_ago(90))
        engine.add("never used", timestamp=days_ago(90))
        engine.reinforce("used", now=days_ago(3))
        engine.retain({"episodic": Retention(max_age_s=30 * DAY_S)}, now=NOW)
        assert texts(engine) == kept


def test_a_fact_that_is_too_old_takes_along_what_it_superseded() -> None:
    with jiyi.open(embedder=None, config=SearchConfig(reinforcement="last_use")) as engine:
        engine.add(Memory.fact("Ana", "lives in", "Paris", id="old", timestamp=days_ago(90)))
        engine.add(Memory.fact("Ana", "lives in", "Lyon", id="new", timestamp=days_ago(60)))
        engine.reinforce("old", now=days_ago(1))
        assert engine.retain({"semantic": Retention(max_age_s=30 * DAY_S)}, now=NOW) == {"semantic": 2}
        assert engine.count() == 0


# ------------------------------------------------------------------------------------------------- count


def test_the_most_useful_stay_in_each_namespace() -> None:
    policy = {"episodic": Retention(max_count=3)}
    with jiyi.open(embedder=None, retention=policy) as engine:
        for namespace, count in (("ana", 6), ("小红", 5), ("bo", 2)):
            for i in range(count):
                engine.add(f"{namespace} 第{i}天", namespace=namespace, timestamp=days_ago(i), id=f"{i}")
        engine.add("never counted", kind="archival", namespace="ana")
        assert engine.retain(now=NOW, namespace="ana", dry_run=True) == {"episodic": 3}
        assert engine.retain(now=NOW, namespace="nobody") == {"episodic": 0}
        engine.reinforce("5", namespace="小红", now=NOW)  # there is none
        engine.reinforce(["4", "4"], namespace="小红", now=NOW)
        for _ in range(20):
            engine.reinforce("4", namespace="小红", now=NOW)
        assert engine.retain(now=NOW) == {"episodic": 5}
        assert texts(engine, namespace="ana") == ["ana 第0天", "ana 第1天", "ana 第2天", "never counted"]
        assert texts(engine, namespace="小红") == ["小红 第0天", "小红 第1天", "小红 第4天"]  # used a lot
        assert engine.count(namespace="bo") == 2


def test_ties_go_by_age_and_then_as_stored() -> None:
    with jiyi.open(embedder=None) as engine:
        for i, days in enumerate([5, 9, 1, 9, 5]):
            engine.add(f"{i}", id=f"{i}", kind="archival", timestamp=days_ago(days))  # archival: all equally useful
        for left in (["0", "2", "3", "4"], ["0", "2", "4"], ["2", "4"], ["2"], []):
            engine.retain({"archival": Retention(max_count=len(left))}, now=NOW)
            assert [memory.id for memory in engine.list()] == left


def test_superseded_and_expired_go_before_all_others() -> None:
    with jiyi.open(embedder=None) as engine:
        engine.add(Memory.fact("Ana", "lives in", "Paris", id="superseded", timestamp=days_ago(2)))
        engine.add(Memory.fact("Ana", "lives in", "Lyon", id="current", timestamp=days_ago(1)))
        engine.add(Memory.fact("小明", "住在", "上海", id="old", timestamp=days_ago(300)))
        engine.add("over", kind="semantic", id="expired", timestamp=days_ago(1), expires_at=NOW)
        engine.reinforce(["superseded", "expired"], now=NOW)
        for left in (["superseded", "current", "old"], ["current", "old"], ["current"]):
            engine.retain({"semantic": {"max_count": len(left)}}, now=NOW)
            assert [memory.id for memory in engine.list()] == left


def test_procedures_that_work_stay() -> None:
    with jiyi.open(embedder=None) as engine:
        for name in ("untried", "works", "failed", "failed often", "mixed"):
            engine.add(Memory.procedure(name, ["做"], id=name, timestamp=days_ago(7)))
        for name, outcomes in {
            "works": [True] * 4,
            "failed": [False],
            "failed often": [False] * 9,
            "mixed": [True, True, False],
        }.items():
            for outcome in outcomes:
                engine.outcome(name, success=outcome, now=NOW)
        kept = []
        for count in range(5):
            with jiyi.open(embedder=None) as copy:
                copy.add_many(engine.list())
                copy.retain({"procedural": Retention(max_count=count)}, now=NOW)
                kept.append({memory.id for memory in copy.list()})
        assert kept == [
            set(),
            {"works"},
            {"works", "mixed"},
            {"works", "mixed", "untried"},
            {"works", "mixed", "untried", "failed"},
        ]


def test_usefulness_is_the_formula() -> None:
    config = SearchConfig(half_life_s=10 * DAY_S, aging={"semantic": Aging(half_life_s=math.inf)}, outcome_weight=0.4)
    kinds = np.array([0, 0, 1, 3, 3], dtype=np.uint8)
    used = Usage(
        uses=np.array([0, 3, 1, 5, 2]),
        last_used_s=np.full(5, -np.inf),
        successes=np.array([0, 0, 0, 4, 0]),
        failures=np.array([0, 0, 0, 1, 2]),
    )
    age_s, worth = usefulness(20 * DAY_S, np.array([0.0, 10, 0, 0, 0]) * DAY_S, kinds, used, config)
    assert age_s.tolist() == [20 * DAY_S, 10 * DAY_S, 20 * DAY_S, 20 * DAY_S, 20 * DAY_S]
    expected = [
        0.25,
        0.5 * (1 + math.log(4)),
        1 + math.log(2),
        (1 + math.log(5)) * (1 + 0.4 * (2 * 5 / 7 - 1)),
        1 * (1 + 0.4 * (2 * 1 / 4 - 1)),
    ]
    np.testing.assert_allclose(worth, expected)


def test_ages_by_the_engines_own_curve() -> None:
    memories = [Memory(text="old", timestamp=days_ago(30)), Memory(text="new", kind="semantic", timestamp=days_ago(1))]
    for kind, aging in (("episodic", Aging(floor=0.9)), ("semantic", Aging(half_life_s=math.inf))):
        with jiyi.open(embedder=None, config=SearchConfig(aging={kind: aging})) as engine:
            engine.add_many(memories)
            engine.add("newest", kind=kind, timestamp=NOW)
            engine.add("a bit newer", kind=kind, timestamp=days_ago(0.5))
            assert engine.retain({kind: Retention(max_count=2)}, now=NOW) == {kind: 1}
            assert engine.count(where={"kind": kind}) == 2


@pytest.mark.parametrize("seed", range(6))
def test_equals_a_naive_policy_over_list(seed: int) -> None:
    rng = random.Random(seed)
    config = SearchConfig(reinforcement=rng.choice(["none", "last_use", "half_life"]))  # type: ignore[arg-type]
    with jiyi.open(embedder=None, config=config) as engine:
        for i in range(60):
            engine.add(
                f"memory {i} 记忆{i}",
                id=f"{i}",
                kind=rng.choice(["episodic", "archival"]),
                timestamp=days_ago(rng.randint(-2, 60)),
                expires_at=days_ago(rng.randint(-9, 9)) if rng.random() < 0.2 else None,
            )
            if rng.random() < 0.5:
                engine.reinforce(f"{i}", now=days_ago(rng.randint(0, 30)))
        limit_s, count = rng.randint(5, 50) * DAY_S, rng.randint(0, 20)

        def worth(memory: Memory) -> float:
            happened = memory.timestamp
            if config.reinforcement == "last_use" and memory.last_used is not None:
                happened = max(happened, memory.last_used)
            age_s = max((NOW - happened).total_seconds(), 0.0)
            if config.reinforcement == "half_life":
                age_s /= 1 + memory.uses
            recency = 1.0 if memory.kind == "archival" else 0.5 ** (age_s / config.half_life_s)
            return recency * (1 + math.log(1 + memory.uses))

        def age_s(memory: Memory) -> float:
            happened = memory.timestamp
            if config.reinforcement == "last_use" and memory.last_used is not None:
                happened = max(happened, memory.last_used)
            return (NOW - happened).total_seconds()

        kept = set()
        for kind in ("episodic", "archival"):
            left = [m for m in engine.list(where={"kind": kind}) if age_s(m) <= limit_s]
            left.sort(key=lambda m: (m.expires_at is None or m.expires_at > NOW, round(worth(m), 12), m.timestamp))
            kept |= {memory.id for memory in left[max(len(left) - count, 0) :]}
        before = engine.count()
        limit = Retention(max_age_s=limit_s, max_count=count)
        gone = engine.retain({"episodic": limit, "archival": limit}, now=NOW)
        assert sum(gone.values()) == before - len(kept)
        assert {memory.id for memory in engine.list()} == kept


# ---------------------------------------------------------------------------------- when it is applied


def test_only_compact_and_retain_apply_it(folder: Path) -> None:
    policy = {"episodic": Retention(max_count=1), "archival": Retention(max_age_s=DAY_S)}
    with jiyi.open(folder, embedder=None, retention=policy) as engine:
        for i in range(5):
            engine.add(f"day {i} 天", timestamp=days_ago(i))
        engine.add("vegetarian 吃素", kind="archival", timestamp=days_ago(9))
        engine.add("over", expires_at=NOW, timestamp=NOW)
        assert len(engine.search("day 天 吃素", k=9, now=NOW)) == 6
        engine.flush()
        assert engine.count() == 7
        assert engine.compact(now=NOW, dry_run=True) == 6
        assert engine.count() == 7
        assert engine.compact(now=NOW) == 6
        assert texts(engine) == ["day 0 天"]
        engine.add("day 5 天", timestamp=days_ago(5))
    with jiyi.open(folder, embedder=None) as engine:  # it is not kept in the store
        assert engine.retention == {}
        assert engine.retain(now=NOW) == {}
        assert engine.compact(now=NOW) == 0
        assert engine.count() == 2


def test_searches_go_on_meanwhile(folder: Path) -> None:
    ends, errors, answered = threading.Event(), [], [0]
    with jiyi.open(folder, embedder=HashEmbedder(), index_config=TINY) as engine:

        def search() -> None:
            while not ends.is_set():
                try:
                    hits = engine.search("walk 散步", k=5, now=NOW)
                    assert len(hits) == 5
                    answered[0] += 1
                except Exception as error:  # told below
                    errors.append(error)
                    return

        engine.add_many([Memory(text=f"walk {i} 散步{i}", timestamp=days_ago(i / 10)) for i in range(100)])
        threads = [threading.Thread(target=search) for _ in range(2)]
        for thread in threads:
            thread.start()
        for count in (80, 60, 40, 20):
            engine.retain({"episodic": Retention(max_count=count)}, now=NOW)
            engine.compact(now=NOW)
        ends.set()
        for thread in threads:
            thread.join()
        assert errors == []
        assert answered[0]
        assert engine.count() == 20


# ------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (5, "retention must map kinds to Retention, got int"),
        ({"odd": Retention()}, "retention names the kind 'odd'; kinds are episodic, semantic"),
        ({"episodic": 5}, "retention of episodic must be a Retention or a mapping of its fields, got int"),
        ({"episodic": {"max": 5}}, "retention of episodic has 'max'; it can have max_age_s, max_count"),
        ({"episodic": {"max_age_s": "90d"}}, "max_age_s must be a number of seconds or None, got '90d'"),
        ({"episodic": {"max_age_s": -1}}, "max_age_s is -1; it must be seconds from 0"),
        ({"episodic": {"max_age_s": math.nan}}, "max_age_s is nan"),
        ({"episodic": {"max_count": 1.5}}, "max_count must be a whole number or None, got 1.5"),
        ({"episodic": {"max_count": True}}, "max_count must be a whole number or None, got True"),
        ({"episodic": {"max_count": -1}}, "max_count is -1; it must be at least 0"),
    ],
)
def test_wrong_policies(engine: jiyi.Engine, policy: Any, message: str) -> None:
    engine.add("still here")
    with pytest.raises((TypeError, ValueError), match=message):
        engine.retain(policy)
    with pytest.raises((TypeError, ValueError), match=message):
        jiyi.open(retention=policy)
    assert engine.count() == 1


def test_a_reader_only_counts(folder: Path) -> None:
    policy = {"episodic": Retention(max_count=0)}
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("a")
    with jiyi.open(folder, embedder=None, read_only=True, retention=policy) as reader:
        assert reader.retain(dry_run=True) == {"episodic": 1}
        assert reader.compact(dry_run=True) == 1
        with pytest.raises(jiyi.StoreError, match=r"retain\(\) writes"):
            reader.retain()
        assert reader.count() == 1


def test_no_limits_keep_everything(engine: jiyi.Engine) -> None:
    engine.add("a", timestamp=0)
    unlimited = {"episodic": Retention(), "semantic": {"max_age_s": math.inf}}
    assert engine.retain(unlimited) == {"episodic": 0, "semantic": 0}
