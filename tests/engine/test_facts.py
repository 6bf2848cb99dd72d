"""The graph of facts: looking facts up, walking from entity to entity, and recall that follows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import numpy as np
import pytest

import jiyi
from jiyi.evaluation import EvalSet, read_eval_set
from jiyi.fact_graph import FactGraph
from jiyi.memory import Memory, entity_key

_QUESTIONS = Path(__file__).parents[2] / "benches" / "fact_questions"


def _day(day: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)


def _facts(*lines: str) -> list[Memory]:
    """`id|subject|predicate|object`, a day apart; `!` behind the id for a predicate of several objects."""
    made = []
    for day, line in enumerate(lines):
        memory_id, subject, predicate, object_ = line.split("|")
        several = memory_id.endswith("!")
        made.append(
            Memory.fact(subject, predicate, object_, multivalued=several, id=memory_id.rstrip("!"), timestamp=_day(day))
        )
    return made


def _ids(memories: Sequence[Memory]) -> list[str]:
    return [memory.id for memory in memories]


_ANA = _facts(
    "seat|Initech|has its seat in|Leipzig",
    "lyon|Ana|lives in|Lyon",
    "job|Ana|works at|Initech",
    "bob|Bob|works at|Initech",
    "tea!|Ana|likes|tea",
    "hike!|Ana|likes|hiking",
    "paris|Ana|lives in|Paris",
)
_MING = _facts(
    "总部|字节跳动|总部位于|北京",
    "苏州|小明|住在|苏州",
    "工作|小明|就职于|字节跳动",
    "小红|小红|就职于|字节跳动",
    "茶!|小明|喜欢|绿茶",
    "上海|小明|住在|上海",
)

# ------------------------------------------------------------------------------------------------------ facts


@pytest.fixture
def ana(engine: jiyi.Engine) -> jiyi.Engine:
    engine.add_many([*_ANA, "Ana said that she likes the rain"])
    return engine


@pytest.fixture
def ming(engine: jiyi.Engine) -> jiyi.Engine:
    engine.add_many([*_MING, "小明说他喜欢下雨天"])
    return engine


def test_facts_are_found_by_what_they_state(ana: jiyi.Engine) -> None:
    assert _ids(ana.facts(subject="Ana")) == ["job", "tea", "hike", "paris"]
    assert _ids(ana.facts(predicate="works at")) == ["job", "bob"]
    assert _ids(ana.facts(object="Initech")) == ["job", "bob"]
    assert _ids(ana.facts(subject="Ana", predicate="likes")) == ["tea", "hike"]
    assert _ids(ana.facts(subject="Ana", predicate="likes", object="tea")) == ["tea"]
    assert _ids(ana.facts()) == ["seat", "job", "bob", "tea", "hike", "paris"]
    assert ana.facts(subject="nobody") == ana.facts(predicate="eats") == ana.facts(subject="tea") == []


def test_facts_are_found_by_what_they_state_in_chinese(ming: jiyi.Engine) -> None:
    assert _ids(ming.facts(subject="小明")) == ["工作", "茶", "上海"]
    assert _ids(ming.facts(predicate="就职于")) == ["工作", "小红"]
    assert _ids(ming.facts(object="字节跳动")) == ["工作", "小红"]
    assert ming.facts(subject="明") == []


def test_names_are_compared_without_case_width_and_spaces(engine: jiyi.Engine) -> None:
    engine.add(Memory.fact("Ａｎａ  Ribeiro", "Lives  In", "São Paulo", id="1"))
    engine.add(Memory.fact("ana ribeiro", "knows", "ÅSA", id="2"))
    assert _ids(engine.facts(subject=" ANA ribeiro ")) == ["1", "2"]
    assert _ids(engine.facts(predicate="lives in", object="SÃO PAULO")) == ["1"]
    assert _ids(engine.facts(object="åsa")) == ["2"]


def test_facts_stand_in_the_order_of_time_and_then_as_stored(engine: jiyi.Engine) -> None:
    for memory_id, day in (("c", 3), ("a", 1), ("b", 1), ("d", 0)):
        engine.add(Memory.fact("Ana", "knows", memory_id, multivalued=True, id=memory_id, timestamp=_day(day)))
    assert _ids(engine.facts(subject="Ana")) == ["d", "a", "b", "c"]
    assert _ids(engine.facts(subject="Ana", limit=2)) == ["d", "a"]
    assert engine.facts(limit=0) == []


def test_history_and_any_moment_of_it(ana: jiyi.Engine) -> None:
    assert _ids(ana.facts(subject="Ana", predicate="lives in")) == ["paris"]
    assert _ids(ana.facts(subject="Ana", predicate="lives in", history=True)) == ["lyon", "paris"]
    assert _ids(ana.facts(subject="Ana", predicate="lives in", as_of=_day(5))) == ["lyon"]
    assert _ids(ana.facts(subject="Ana", predicate="lives in", as_of=_day(6))) == ["paris"]
    assert ana.facts(subject="Ana", as_of=_day(0)) == []
    ana.delete("paris")
    assert _ids(ana.facts(subject="Ana", predicate="lives in")) == ["lyon"]


def test_history_in_chinese(ming: jiyi.Engine) -> None:
    assert _ids(ming.facts(subject="小明", predicate="住在")) == ["上海"]
    assert _ids(ming.facts(subject="小明", predicate="住在", history=True)) == ["苏州", "上海"]
    assert _ids(ming.facts(subject="小明", predicate="住在", as_of=_day(4))) == ["苏州"]


def test_an_expired_fact_is_gone_and_its_history_too(engine: jiyi.Engine) -> None:
    engine.add(Memory.fact("Ana", "is in", "Rome", id="1", timestamp=_day(0), expires_at=_day(5)))
    assert _ids(engine.facts(subject="Ana", now=_day(4))) == ["1"]
    assert engine.facts(subject="Ana", now=_day(5)) == []
    assert engine.facts(subject="Ana", now=_day(5), history=True) == []
    assert _ids(engine.facts(subject="Ana", as_of=_day(4))) == ["1"]  # by then it had not expired
    assert engine.neighbors("Ana", now=_day(5)) == []


def test_namespaces_are_walls(engine: jiyi.Engine) -> None:
    engine.add(Memory.fact("Ana", "works at", "Initech", namespace="a"))
    engine.add(Memory.fact("Initech", "sits in", "Leipzig", namespace="b"))
    assert len(engine.facts(subject="Ana", namespace="a")) == 1
    assert engine.facts(subject="Ana", namespace="b") == engine.facts(namespace="none") == []
    assert [near.entity for near in engine.neighbors("Ana", namespace="a", hops=3)] == ["Initech"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"subject": ""}, "subject is empty"),
        ({"predicate": "  \t"}, "predicate is nothing but white space"),
        ({"object": "a\0b"}, r"object holds the character U\+0000"),
        ({"subject": "x" * 513}, "subject is 513 characters long; at most 512"),
        ({"subject": "\ud800"}, "half a surrogate pair"),
        ({"subject": 7}, "subject must be text, got int"),
        ({"history": "yes"}, "history must be True or False"),
        ({"limit": -1}, "limit is -1; it must be at least 0"),
        ({"limit": True}, "limit must be a whole number"),
        ({"as_of": "soon"}, "as_of"),
        ({"namespace": ""}, "namespace is empty"),
    ],
)
def test_what_facts_cannot_be_asked(engine: jiyi.Engine, wrong: dict[str, object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        engine.facts(**wrong)  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------- neighbors


def test_neighbors_are_reached_both_ways_nearest_first(ana: jiyi.Engine) -> None:
    near = ana.neighbors("ana", hops=2)
    assert [(each.entity, each.distance) for each in near] == [
        ("Paris", 1),
        ("hiking", 1),
        ("tea", 1),
        ("Initech", 1),
        ("Bob", 2),
        ("Leipzig", 2),
    ]
    assert [_ids(each.facts) for each in near] == [
        ["paris"],
        ["hike"],
        ["tea"],
        ["job"],
        ["job", "bob"],
        ["job", "seat"],
    ]
    assert [each.entity for each in ana.neighbors("Leipzig", hops=3)] == [
        "Initech",
        "Bob",
        "Ana",
        "Paris",
        "hiking",
        "tea",
    ]


def test_neighbors_in_chinese(ming: jiyi.Engine) -> None:
    near = ming.neighbors("小明", hops=2)
    assert [(each.entity, each.distance) for each in near] == [
        ("上海", 1),
        ("绿茶", 1),
        ("字节跳动", 1),
        ("小红", 2),
        ("北京", 2),
    ]
    assert _ids(near[-1].facts) == ["工作", "总部"]


def test_neighbors_at_another_moment(ana: jiyi.Engine) -> None:
    assert [each.entity for each in ana.neighbors("Ana", as_of=_day(2))] == ["Initech", "Lyon"]
    assert ana.neighbors("Ana", as_of=_day(0)) == []


def test_cycles_self_loops_and_several_facts_between_two(engine: jiyi.Engine) -> None:
    engine.add_many(_facts("ab|A|knows|B", "bc|B|knows|C", "ca|C|knows|A", "aa|A|mirrors|a", "ab2|B|pays|A"))
    near = engine.neighbors("a", hops=3)
    assert [(each.entity, each.distance, _ids(each.facts)) for each in near] == [
        ("B", 1, ["ab", "ab2"]),
        ("C", 1, ["ca"]),
    ]
    assert _ids(engine.facts(subject="A", object="A")) == ["aa"]


def test_of_many_facts_between_two_the_latest_are_shown(engine: jiyi.Engine) -> None:
    engine.add_many(_facts(*(f"{i}|Ana|predicate {i}|Bob" for i in range(25))))
    (near,) = engine.neighbors("Bob")
    assert _ids(near.facts) == [str(i) for i in range(15, 25)]


def test_a_hub_is_bounded(engine: jiyi.Engine) -> None:
    engine.add_many(
        Memory.fact("Hub", "employs", f"P{i}", multivalued=True, id=f"h{i}", timestamp=_day(i)) for i in range(10_000)
    )
    engine.add_many(Memory.fact(f"P{i}", "lives in", "Ulm", id=f"u{i}") for i in range(0, 10_000, 50))
    near = engine.neighbors("hub", hops=3)
    assert [each.entity for each in near] == [f"P{i}" for i in range(9_999, 9_899, -1)]
    assert [each.entity for each in engine.neighbors("Ulm", hops=2, limit=201)][-1] == "Hub"
    assert len(engine.neighbors("hub", hops=3, limit=None)) == 10_001
    assert engine.neighbors("hub", limit=0) == []
    hits = engine.search("who is employed by Hub", k=5)
    assert len(hits) == 5
    assert len(hits._candidates) <= 50 + 50 + 50
    assert len(engine.facts(subject="HUB")) == 10_000


@pytest.mark.parametrize(
    ("hops", "message"),
    [(0, "hops is 0; it must be from 1 to 3"), (4, "hops is 4"), (True, "from 1 to 3"), (1.5, "got 1.5")],
)
def test_hops_out_of_range(engine: jiyi.Engine, hops: int, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        engine.neighbors("Ana", hops=hops)


def test_an_entity_that_no_fact_knows_has_no_neighbors(ana: jiyi.Engine) -> None:
    assert ana.neighbors("nobody", hops=3) == []
    with pytest.raises(ValueError, match="entity is nothing but white space"):
        ana.neighbors(" ")


# ------------------------------------------------------------------------- against plain Python, at any moment


def _holds(memories: Sequence[Memory], as_of: datetime | None, now: datetime, history: bool) -> list[Memory]:
    """Facts that hold, of all memories in the order they were stored, by time."""
    known = [m for m in memories if m.subject is not None and (as_of is None or m.timestamp <= as_of)]
    held = []
    for i, fact in enumerate(known):
        newer = (
            other.fact_key == fact.fact_key and (other.timestamp, j) > (fact.timestamp, i)
            for j, other in enumerate(known)
        )
        if (history or not any(newer)) and (fact.expires_at is None or fact.expires_at > now):
            held.append((fact.timestamp, i, fact))
    return [fact for *_, fact in sorted(held, key=lambda each: each[:2])]


def _distances(facts: Sequence[Memory], start: str, hops: int) -> dict[str, int]:
    distances = {start: 0}
    for hop in range(1, hops + 1):
        near = {entity for entity, distance in distances.items() if distance == hop - 1}
        for fact in facts:
            ends = entity_key(str(fact.subject)), entity_key(str(fact.object))
            for here, there in (ends, ends[::-1]):
                if here in near:
                    distances.setdefault(there, hop)
    del distances[start]
    return distances


_NAMES = ("Ana", "ANA", "Bob", "小明", "字节 跳动", "字节跳动", "C++", "Ana Bob", "Ａna", "🐈")
_PREDICATES = ("knows", "Knows", "住在", "likes")


def _random_store(engine: jiyi.Engine, random: Random, size: int) -> None:
    for _ in range(size):
        what = random.random()
        held = [memory.id for memory in engine.list()]
        if what < 0.15 and held:
            engine.delete(random.choice(held))
        elif what < 0.25 and held:
            engine.update(random.choice(held), timestamp=_day(random.randrange(30)))
        elif what < 0.35:
            engine.add(Memory(text="nothing but talk", timestamp=_day(random.randrange(30))))
        else:
            engine.add(
                Memory.fact(
                    random.choice(_NAMES),
                    random.choice(_PREDICATES),
                    random.choice(_NAMES),
                    multivalued=random.random() < 0.3,
                    timestamp=_day(random.randrange(30)),
                    expires_at=_day(random.randrange(20, 40)) if random.random() < 0.2 else None,
                )
            )
        if random.random() < 0.1:
            engine.facts(subject="Ana")  # the graph grows in steps


def _check_against_plain_python(engine: jiyi.Engine, random: Random) -> None:
    memories = engine.list()
    for _ in range(12):
        as_of = random.choice([None, _day(random.randrange(-1, 31))])
        now = _day(random.randrange(40)) if as_of is None or random.random() < 0.5 else as_of
        history = random.random() < 0.3
        holding = _holds(memories, as_of, now, history)
        wanted = {
            name: random.choice(choices)
            for name, choices in (("subject", _NAMES), ("predicate", _PREDICATES), ("object", _NAMES))
            if random.random() < 0.4
        }
        expected = [
            fact
            for fact in holding
            if all(entity_key(getattr(fact, name)) == entity_key(value) for name, value in wanted.items())
        ]
        assert engine.facts(**wanted, as_of=as_of, now=now, history=history) == expected
        start, hops = random.choice(_NAMES), random.randrange(1, 4)
        near = engine.neighbors(start, hops=hops, as_of=as_of, now=now)
        current = _holds(memories, as_of, now, False)
        assert {entity_key(each.entity): each.distance for each in near} == _distances(current, entity_key(start), hops)
        assert [each.distance for each in near] == sorted(each.distance for each in near)
        for each in near:
            assert set(_ids(each.facts)) <= set(_ids(current))
            _check_way(each, start)


def _check_way(near: jiyi.Neighbor, start: str) -> None:
    """The facts lead from the start to the entity, step by step."""
    at, steps = {entity_key(start)}, 0
    pairs = [frozenset((entity_key(str(fact.subject)), entity_key(str(fact.object)))) for fact in near.facts]
    for pair, before in zip(pairs, [None, *pairs], strict=False):
        if pair != before:
            assert pair & at
            at, steps = set(pair - at), steps + 1
    assert at == {entity_key(near.entity)}
    assert steps == near.distance


@pytest.mark.parametrize("seed", range(6))
def test_facts_and_neighbors_agree_with_plain_python(folder: Path, seed: int) -> None:
    random = Random(seed)
    with jiyi.open(folder, embedder=None) as engine:
        _random_store(engine, random, 60)
        _check_against_plain_python(engine, random)
    with jiyi.open(folder, embedder=None) as engine:
        _check_against_plain_python(engine, random)
        engine.compact(now=_day(0))
        _check_against_plain_python(engine, random)
        _random_store(engine, random, 10)
        _check_against_plain_python(engine, random)
    with jiyi.open(folder, embedder=None, read_only=True) as engine:
        _check_against_plain_python(engine, random)


def test_a_reader_sees_facts_that_another_process_states(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine, jiyi.open(folder, embedder=None, read_only=True) as reader:
        engine.add_many(_ANA[:3])
        assert _ids(reader.facts(subject="Ana")) == ["lyon", "job"]
        engine.add(_ANA[-1])
        engine.delete("job")
        assert _ids(reader.facts(subject="Ana")) == ["paris"]


# ---------------------------------------------------------------------------------------------- hostile names

_HOSTILE = (
    '"; DROP TABLE memories; --',
    "O'Hara",
    "100%",
    "_",
    "*",
    "$.a[0]",
    "{j} {} {{0}}",
    "\\",
    "👩‍👩‍👧 семья",
    "字" * 500,
    "x" * 500,
    "a\nb",
    "NULL",
    "-1",
)


def test_hostile_names_are_plain_data(folder: Path) -> None:
    facts = [
        Memory.fact(name, "is like", _HOSTILE[i - 1], id=str(i), timestamp=_day(i)) for i, name in enumerate(_HOSTILE)
    ]

    def check(engine: jiyi.Engine) -> None:
        for i, name in enumerate(_HOSTILE):
            assert _ids(engine.facts(subject=name)) == [str(i)]
            assert _ids(engine.facts(object=name)) == [str((i + 1) % len(_HOSTILE))]
            assert len(engine.neighbors(name)) == 2
            assert engine.search(f"what is {name} like?", k=5).ids
        assert engine.facts(subject="%") == engine.facts(subject="x" * 499) == []

    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many(facts)
        check(engine)
    with jiyi.open(folder, embedder=None) as engine:
        check(engine)
        engine.compact()
        check(engine)


# ------------------------------------------------------------------------------------- recall that follows facts


def test_a_search_follows_the_facts_of_whom_it_names(engine: jiyi.Engine) -> None:
    engine.add_many([*_ANA, *(Memory(text=f"Ana said {word}") for word in ("hello", "employer", "where"))])
    hits = engine.search("Where does Ana's employer reside?", k=10, now=_day(10))
    seat = next(hit for hit in hits if hit.memory.id == "seat")
    assert seat.factors["led"]["by"] == "job"
    assert seat.factors["led"]["relevance"] == seat.factors["relevance"] > 0
    assert sum(seat.factors["contributions"].values()) == pytest.approx(seat.score)
    assert seat.factors["contributions"]["led"] > 0
    assert "fact before" in hits.explain()
    assert "by job" in hits.explain()
    assert "seat" not in engine.search("Where does Ana's employer reside?", k=10, fact_hops=0).ids


def test_a_search_follows_the_facts_of_whom_it_names_in_chinese(engine: jiyi.Engine) -> None:
    engine.add_many([*_MING, *(Memory(text=f"小明说{word}") for word in ("你好", "公司很远", "在哪里"))])
    hits = engine.search("小明的公司在哪座城市？", k=10, now=_day(10))
    seat = next(hit for hit in hits if hit.memory.id == "总部")
    assert seat.factors["led"]["by"] == "工作"
    assert seat.score > next(hit for hit in hits if hit.memory.id == "小红").score - 0.5
    assert sum(seat.factors["contributions"].values()) == pytest.approx(seat.score)
    assert "led" not in str(engine.search("小明的公司在哪座城市？", k=10, fact_hops=0).to_dict())


def test_what_leads_to_a_hit_is_named_when_it_is_no_hit_itself(engine: jiyi.Engine) -> None:
    engine.add_many(_facts("1|Ana|works at|Initech", "2|Initech|sits in|a far city", "3|Initech|pays|taxes"))
    (hit,) = engine.search("does she, Ana, sit in some city far off?", k=1)
    assert (hit.memory.id, hit.factors["led"]["by"]) == ("2", "1")


@pytest.mark.parametrize("fusion", ["weighted", "rrf"])
@pytest.mark.parametrize("normalization", ["minmax", "zscore", "rank", "none"])
def test_the_parts_of_a_led_score_add_up(ana: jiyi.Engine, fusion: str, normalization: str) -> None:
    for query in ("Where is Ana's employer?", "who else works where Bob works", "Leipzig"):
        for hit in ana.search(query, k=10, fusion=fusion, normalization=normalization, now=_day(9)):
            assert sum(hit.factors["contributions"].values()) == pytest.approx(hit.score)


def test_superseded_and_expired_facts_neither_come_nor_lead(folder: Path) -> None:
    facts = [
        *_facts("old|Ana|works at|Globex", "new|Ana|works at|Initech", "globex|Globex|sits in|Ulm"),
        Memory.fact("Ana", "rents from", "Hooli", id="expired", timestamp=_day(1), expires_at=_day(5)),
        Memory.fact("Hooli", "sits in", "Bonn", id="hooli", timestamp=_day(1)),
        Memory.fact("Initech", "sits in", "Leipzig", id="seat", timestamp=_day(1)),
        Memory.fact("Initech", "sat in", "Jena", id="moved", timestamp=_day(1), expires_at=_day(6)),
    ]

    def check(engine: jiyi.Engine) -> None:
        assert set(engine.search("Ana", k=10, now=_day(8)).ids) == {"new", "seat"}
        assert set(engine.search("Ana", k=10, now=_day(2)).ids) == {"new", "seat", "moved", "expired", "hooli"}
        assert set(engine.search("Ana", k=10, as_of=_day(0)).ids) == {"old"}
        assert set(engine.search("Ana", k=10, now=_day(8), where={"id": {"not": "new"}}).ids) == set()
        assert set(engine.search("Ana", k=10, now=_day(8), where={"id": {"not": "seat"}}).ids) == {"new"}

    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many(facts)
        check(engine)
    with jiyi.open(folder, embedder=None) as engine:
        check(engine)
        engine.compact(now=_day(0))
        check(engine)
    with jiyi.open(folder, embedder=None, read_only=True) as engine:
        check(engine)


@pytest.mark.parametrize("seed", range(4))
def test_a_search_of_another_moment_follows_the_facts_of_then(seed: int) -> None:
    random = Random(seed)
    facts = [
        Memory.fact(
            random.choice(_NAMES),
            random.choice(_PREDICATES),
            random.choice(_NAMES),
            timestamp=_day(random.randrange(30)),
        )
        for _ in range(80)
    ]
    with jiyi.open(embedder=None) as engine:
        engine.add_many(facts)
        for day in range(0, 30, 3):
            with jiyi.open(embedder=None) as then:
                then.add_many([fact for fact in facts if fact.timestamp <= _day(day)])
                for query in ("whom does Ana Bob know", "小明认识字节跳动吗", "🐈 C++"):
                    was, would_be = engine.search(query, as_of=_day(day), k=20), then.search(query, now=_day(day), k=20)
                    assert (was.ids, was.scores) == (would_be.ids, would_be.scores)


def test_without_facts_nothing_changes(engine: jiyi.Engine) -> None:
    engine.add_many([Memory(text=f"Ana told Bob about city {i}", session="s", id=str(i)) for i in range(30)])
    engine.add(Memory(text="a fact without its parts", kind="semantic"))
    on, off = (engine.search("what about Ana", k=10, now=_day(1), fact_hops=hops) for hops in (1, 0))
    assert (on.ids, on.scores) == (off.ids, off.scores)
    partition = engine._store.partition("default")
    assert partition is not None
    assert partition.graph.n == 0  # nobody read any


def test_a_query_that_names_nothing_is_answered_alike(ana: jiyi.Engine) -> None:
    on, off = (ana.search("what about the rain", k=10, now=_day(1), fact_hops=hops) for hops in (1, 0))
    assert (on.ids, on.scores) == (off.ids, off.scores)


@pytest.mark.parametrize("wrong", [2, -1, True, 0.5, "1"])
def test_fact_hops_are_none_or_one(engine: jiyi.Engine, wrong: object) -> None:
    with pytest.raises((TypeError, ValueError), match="fact_hops"):
        engine.search("x", fact_hops=wrong)
    with pytest.raises(ValueError, match=r"fact_share is 1\.5"):
        engine.search("x", fact_share=1.5)


def _named(graph: FactGraph, entities: Sequence[str], text: str) -> list[str]:
    facts = graph.facts()
    numbers = facts.named_in(text, np.ones(len(facts.rows), dtype=np.uint8)).tolist()
    return [entity for entity in entities if facts.entity(entity) in numbers]


def test_the_longest_names_in_a_query_count() -> None:
    entities = ["New York", "New York Times", "York", "上海", "上海交通大学", "小明", "C++", "Mary's Café", "the", "我"]
    graph = FactGraph()
    graph.extend([(i, entity, "is", entity) for i, entity in enumerate(entities)], len(entities))
    for text, expected in (
        ("Who reads the New York Times?", ["New York Times"]),
        ("from New York to YORK", ["New York", "York"]),
        ("在上海住哪里", ["上海"]),
        ("上海交通大学在哪里", ["上海交通大学"]),
        ("小明住哪里", ["小明"]),
        ("小 明", ["小明"]),
        ("what is the C++ and what am 我", ["C++"]),
        ("who owns MARY’S café", ["Mary's Café"]),
        ("York's mayor", ["York"]),
        ("Newark, Yorkshire", []),
        ("", []),
        ("?!", []),
    ):
        assert _named(graph, entities, text) == expected, text


def test_what_is_gone_or_of_the_future_hides_no_shorter_name(folder: Path) -> None:
    def check(engine: jiyi.Engine, **settings: object) -> None:
        hits = engine.search("What happens in New York Times Square?", k=10, **settings)  # type: ignore[arg-type]
        assert {hit.memory.id: hit.factors["led"]["by"] for hit in hits if "led" in hit.factors} == {"usa": "york"}

    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many(_facts("york|New York|lies in|the USA", "usa|the USA|elect|a president"))
        check(engine)
        engine.add(Memory.fact("New York Times", "is", "a newspaper", id="times", timestamp=_day(9)))
        check(engine, as_of=_day(8))
        check(engine, where={"id": {"not": "times"}})
        engine.delete("times")
        check(engine)
    with jiyi.open(folder, embedder=None) as engine:
        check(engine)


def test_two_entities_of_one_name_are_both_named() -> None:
    graph = FactGraph()
    entities = ["Node.js", "node js", "Ana"]
    graph.extend([(0, "Node.js", "is", "node js"), (1, "Ana", "is", "Ana")], 2)
    assert _named(graph, entities, "what is node-js") == ["Node.js", "node js"]


def test_the_graph_grows_and_what_was_shown_stays() -> None:
    graph, random, seen = FactGraph(), Random(5), []
    stated: list[tuple[int, str, str, str]] = []
    while len(stated) < 4_000:
        more = [
            (len(stated) + i, f"s{random.randrange(900)}", "p", f"o{random.randrange(900)}")
            for i in range(random.choice([1, 3, 700]))
        ]
        stated += more
        graph.extend(more, len(stated))
        seen.append((len(stated), graph.facts()))
    for n, facts in seen:
        assert facts.rows.tolist() == list(range(n))
        for name in ("s1", "o7", "s899", "none"):
            subject = [row for row, s, _, _ in stated[:n] if s == name]
            assert facts.matching(name, None, None).nonzero()[0].tolist() == subject
            about = [row for row, s, _, o in stated[:n] if name in (s, o)]
            named = facts.named_in(f"tell me of {name} please", np.ones(n, dtype=np.uint8))
            assert facts.about(named, 10_000).tolist() == about


def test_facts_can_be_stated_while_others_search(engine: jiyi.Engine) -> None:
    engine.add(Memory.fact("Ana", "works at", "Initech", id="job"))

    def search() -> None:
        for i in range(150):
            assert "job" in _ids(engine.facts(subject="Ana"))
            assert engine.search(f"where is Ana and P{i}").ids

    def state() -> None:
        for i in range(150):
            engine.add(Memory.fact(f"P{i}", "works at", "Initech", id=f"p{i}"))
            engine.delete(f"p{i - 3}")

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(search), threads.submit(state), threads.submit(search)]:
            done.result()
    assert _ids(engine.facts(object="Initech")) == ["job", "p147", "p148", "p149"]


@pytest.fixture(scope="module")
def questions() -> Iterator[tuple[EvalSet, jiyi.Engine]]:
    """The small set of questions about facts, stored with the table that ships."""
    eval_set = read_eval_set(_QUESTIONS)
    with jiyi.open() as engine:
        engine.add_many(eval_set.memories)
        yield eval_set, engine


def _found(eval_set: EvalSet, engine: jiyi.Engine, language: str, category: str, **settings: int) -> float:
    """Recall@5 of the questions of a kind."""
    asked = [q for q in eval_set.questions if q.namespace.startswith(language) and q.category == category]
    now = max(memory.timestamp for memory in eval_set.memories)
    found = [
        q.relevant[0] in engine.search(q.query, namespace=q.namespace, k=5, now=now, **settings).ids for q in asked
    ]
    return sum(found) / len(found)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_following_facts_answers_questions_that_take_two(questions: tuple[EvalSet, jiyi.Engine], language: str) -> None:
    off, on = (_found(*questions, language, "two facts", fact_hops=hops) for hops in (0, 1))
    assert on > off + 0.25
    for category in ("one fact", "turn"):
        off, on = (_found(*questions, language, category, fact_hops=hops) for hops in (0, 1))
        assert on >= off
