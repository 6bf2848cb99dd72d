"""Near-identical memories become one, on request, and come back exactly as they were."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jiyi
from jiyi import Memory
from jiyi.ledger import FILE_NAME, Ledger
from tests.engine.embedders import HashEmbedder
from tests.oracles.jaccard import jaccard

ENGLISH = "I go hiking in the hills behind the old mill whenever the weather allows it"
CHINESE = "周末天气好的时候我都会去城外的山上徒步"


def texts(engine: jiyi.Engine, **settings: Any) -> list[str]:
    return [memory.text for memory in engine.list(**settings)]


def everything(engine: jiyi.Engine, namespace: str = "default") -> list[tuple[Memory, bytes | None]]:
    """All there is to know of memories, vectors and usage included, by id."""
    ledger = engine._store.ledger
    return sorted(
        ((memory, ledger.vector(key)) for key, memory in ledger.select("n.name = ?", (namespace,))),
        key=lambda pair: pair[0].id,
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ENGLISH, ENGLISH),
        (ENGLISH, ENGLISH + "!"),
        (ENGLISH.upper(), ENGLISH),
        (ENGLISH, ENGLISH + " usually"),
        (CHINESE, CHINESE),
        (CHINESE, CHINESE + "。"),
        (CHINESE, CHINESE + "哦"),
        ("OK", "ok"),
        ("It costs （5） at the well-known old mill.", "It costs (5) at the well known old mill!"),
        ("It costs ＄5 and 1％ more at the mill", "It costs $5 and 1% more at the mill"),
        ("हम हर रविवार पहाड़ी पर घूमने जाते हैं और बातें करते हैं", "हम हर रविवार पहाड़ी पर घूमने जाते हैं और बातें करते"),
    ],
)
def test_near_copies_become_one(engine: jiyi.Engine, first: str, second: str) -> None:
    engine.add(first, id="a", timestamp="2026-01-01", session="s1", speaker="Ana", metadata={"tag": "x"})
    engine.add(second, id="b", timestamp="2026-02-01", session="s2", speaker="Ana", sources=["z"])
    done = engine.consolidate()
    assert done.ids == ["b"]
    assert done.removed == 1
    (left,) = engine.list()
    assert left == done.merges[0].memory
    assert (left.text, left.session, left.timestamp.month) == (second, "s2", 2)
    assert left.metadata == {"merged": 2}
    assert left.sources == ("z", "a")
    assert [memory.id for memory in done.merges[0].originals] == ["b", "a"]
    assert engine.search(first).ids == ["b"]
    with pytest.raises(jiyi.NotFoundError):
        engine.get("a")
    assert engine.verify() == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Meet Bob in front of the old clock tower at 9", "Meet Bob in front of the old clock tower at 10"),
        ("The office is open on Monday for who has a key", "The office is open on Friday for who has a key"),
        ("I do like the soup that they make at the corner", "I do not like the soup that they make at the corner"),
        ("You can park in the yard behind our old house", "You can't park in the yard behind our old house"),
        ("Ana told Bob that the party is cancelled", "Bob told Ana that the party is cancelled"),
        ("小明借给小红很多很多钱去买那一套房子", "小红借给小明很多很多钱去买那一套房子"),
        ("她说周末想去城外的山上徒步", "她说周末不想去城外的山上徒步"),
        ("我家里养着三只非常活泼的小猫", "我家里养着四只非常活泼的小猫"),
        ("tea", "coffee"),
        ("!!!", "!!!"),
        ("The lake was at -5 degrees when we came there", "The lake was at 5 degrees when we came there"),
        ("The lake was at \u22125 degrees when we came there", "The lake was at 5 degrees when we came there"),
        ("There are about 10^5 sheep on the hills there", "There are about 10 5 sheep on the hills there"),
        ("There are about 10\u2075 sheep on the hills there", "There are about 105 sheep on the hills there"),
        ("A fever of <39 is no reason to call the doctor", "A fever of >39 is no reason to call the doctor"),
        ("The old lamp that we saw there costs $5 now", "The old lamp that we saw there costs €5 now"),
        ("The old lamp that we saw there costs -$5 now", "The old lamp that we saw there costs $5 now"),
        ("The price of the lamp went up by 5% today", "The price of the lamp went up by 5 today"),
        ("Take 1/2 of the red tablets before the meal", "Take 1-2 of the red tablets before the meal"),
        ("Take 1.5 of the red tablets before the meal", "Take 1,5 of the red tablets before the meal"),
        ("Ana is at -5 and Bob is at 3 on that list", "Ana is at 5 and Bob is at -3 on that list"),
        ("He writes all his programs in C++ at work", "He writes all his programs in C at work"),
        ("The train from the old town leaves at 9 am", "The train from the old town leaves at 9 pm"),
        ("Take the tablets once on days with headaches", "Take the tablets twice on days with headaches"),
        ("The answer to that question of mine is true", "The answer to that question of mine is false"),
        ("Her answer to that question of mine was yes", "Her answer to that question of mine was no"),
        ("The party in the garden will be in Jan then", "The party in the garden will be in Feb then"),
        ("You can park in the yard behind our old house", "You cant park in the yard behind our old house"),
        ("They did say they will come and they wont", "They did say they will come and they will"),
        ("Leave the heating on when you leave the house", "Leave the heating off when you leave the house"),
        ("Call me on the phone before the long meeting", "Call me on the phone after the long meeting"),
        ("We read chapter IV of the book about the sea", "We read chapter V of the book about the sea"),
        ("明天上午我们要去城外的山上徒步", "明天下午我们要去城外的山上徒步"),
        ("我们早上都会去城外的山上徒步", "我们晚上都会去城外的山上徒步"),
        ("我们今年打算去城外的山上徒步", "我们明年打算去城外的山上徒步"),
        ("我们昨天又去了城外的山上徒步", "我们今天又去了城外的山上徒步"),
        ("听说他周末要去城外的山上徒步", "听说她周末要去城外的山上徒步"),
        ("你们周末要去城外的山上徒步", "你们周末甭要去城外的山上徒步"),
        ("今天城外的山上气温是-5度左右", "今天城外的山上气温是5度左右"),
    ],
)  # fmt: skip
def test_what_says_something_else_stays(engine: jiyi.Engine, first: str, second: str) -> None:
    engine.add_many([first, second])
    assert engine.consolidate(jaccard=0.5).merges == ()
    assert engine.count() == 2


def test_kinds_speakers_and_expiry_keep_apart(engine: jiyi.Engine) -> None:
    fields: list[dict[str, Any]] = [
        {},
        {"kind": "archival"},
        {"speaker": "Ana"},
        {"speaker": "李雷"},
        {"expires_at": "2999-01-01"},
        {"expires_at": "2999-01-02"},
    ]
    engine.add_many([{"text": ENGLISH, **each} for each in fields])
    engine.add(ENGLISH, namespace="other")
    assert engine.consolidate().merges == ()
    engine.add_many([{"text": ENGLISH, **each} for each in fields])
    assert engine.consolidate().removed == len(fields)
    assert engine.count(namespace="other") == 1


def test_what_expired_is_left_alone(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": ENGLISH, "expires_at": "2020-01-01"} for _ in range(2)])
    assert engine.consolidate().merges == ()


def test_groups_do_not_drift(engine: jiyi.Engine) -> None:
    """Each of a chain is near the next, and the ends are not: every member of a group is near the one that stays."""
    words = [f"w{chr(97 + i)}" for i in range(16)]
    chain = [" ".join(words[i : i + 12]) for i in range(5)]
    engine.add_many([{"text": text, "timestamp": 1000 + i} for i, text in enumerate(chain)])
    for merge in engine.consolidate(dry_run=True).merges:
        for original in merge.originals:
            assert jaccard(original.text.split(), merge.memory.text.split()) >= 0.8
    assert engine.consolidate().removed == 2  # steps of 11/13: two and two, and one over
    assert engine.count() == 3


def test_a_dry_run_changes_nothing(engine: jiyi.Engine) -> None:
    engine.add_many([ENGLISH, ENGLISH, CHINESE, CHINESE])
    before, sequence = everything(engine), engine.stats()["sequence"]
    planned = engine.consolidate(dry_run=True)
    assert planned.dry_run
    assert planned.removed == 2
    assert everything(engine) == before
    assert engine.stats()["sequence"] == sequence
    done = engine.consolidate()
    assert not done.dry_run
    assert [m.memory for m in done.merges] == [m.memory for m in planned.merges]


def test_where_says_what_is_looked_at(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": ENGLISH, "session": name} for name in ("a", "a", "b", "b")])
    assert engine.consolidate({"session": "a"}).removed == 1
    assert engine.count(where={"session": "b"}) == 2


def test_vectors_have_a_say() -> None:
    with jiyi.open(embedder=None) as engine:
        engine.add_many([ENGLISH, ENGLISH], vectors=[[1, 0, 0], [0, 1, 0]])
        assert engine.consolidate().merges == ()
        engine.add_many([CHINESE, CHINESE], vectors=[[1, 0, 0], [1, 0.1, 0]])
        engine.add(CHINESE)  # without a vector, in a store that has some
        assert engine.consolidate().removed == 1
        assert engine.consolidate(cosine=0).removed == 1
        assert engine.count() == 3


# ----------------------------------------------------------------------------------------- facts, procedures, use


def test_facts_of_different_objects_stay(engine: jiyi.Engine) -> None:
    said = "Ana lives in the house on the hill next to the church with the red roof"
    for place, month in (("Paris", 1), ("Lyon", 2)):
        engine.add(Memory.fact("Ana", "lives in", place, text=said, timestamp=f"2026-0{month}-01"))
    engine.add(Memory(text=said, kind="semantic"))
    engine.add(Memory.fact("Ana", "lives in", "Lyon", text=said, timestamp="2026-02-01", multivalued=True))
    assert engine.consolidate(jaccard=0.5, cosine=0).merges == ()


def test_a_fact_that_was_stated_again_has_held_since_the_first_time(engine: jiyi.Engine) -> None:
    for name, place, month in (
        ("a", "Lyon", 1),
        ("b", "Paris", 2),
        ("c", "Paris", 3),
        ("d", "Lyon", 4),
        ("e", "Lyon", 5),
    ):
        engine.add(Memory.fact("Ana", "lives in", place, id=name, timestamp=f"2026-0{month}-01"))

    def answers() -> list[list[str | None]]:
        moments = ("2026-01-15", "2026-02-15", "2026-03-15", "2026-04-15", None)
        return [[m.object for m in engine.search("where does Ana live", as_of=at).memories] for at in moments]

    before = answers()
    assert engine.consolidate().ids == ["e", "c"]
    assert answers() == before == [["Lyon"], ["Paris"], ["Paris"], ["Lyon"], ["Lyon"]]
    assert engine.get("c").timestamp.month == 2
    assert engine.unconsolidate(["e", "c"]) == 4
    assert answers() == before


def test_procedures_with_other_steps_stay(engine: jiyi.Engine) -> None:
    steps = ["run all the tests in the cloud", "write the notes for the users", "push the tag"]
    engine.add(Memory.procedure("Release", steps, id="a", timestamp="2026-01-01"))
    engine.add(Memory.procedure("Release", [*steps[:2], "push the tags"], timestamp="2026-01-02"))
    engine.add(Memory.procedure("release", steps, id="c", timestamp="2026-01-03"))
    engine.outcome("a", success=True)
    engine.outcome("a", success=False)
    engine.outcome("c", success=True)
    assert engine.consolidate().ids == ["c"]
    assert (engine.get("c").successes, engine.get("c").failures, engine.get("c").uses) == (2, 1, 3)
    assert engine.unconsolidate("c") == 2
    assert (engine.get("c").successes, engine.get("c").failures, engine.get("c").uses) == (1, 0, 1)


def test_use_is_added_up_and_taken_back(engine: jiyi.Engine) -> None:
    engine.add(ENGLISH, id="a", timestamp="2026-01-01")
    engine.add(ENGLISH, id="b", timestamp="2026-02-01")  # never used
    engine.reinforce(["a"], now="2026-03-01")
    before = everything(engine)
    engine.consolidate()
    assert (engine.get("b").uses, engine.get("b").last_used) == (1, before[0][0].last_used)
    engine.reinforce("b", now="2026-04-01")
    assert engine.unconsolidate("b") == 2
    assert everything(engine) == before


# ----------------------------------------------------------------------------------------------------- coming back


def _filled(engine: jiyi.Engine) -> None:
    engine.add_many(
        [
            Memory(
                text=text,
                id=f"{name}{i}",
                kind=kind,
                timestamp=f"2026-01-0{i}T00:00:00.00000{i}",
                session=f"s{name}{i}",
                speaker="李雷",
                metadata={"n": i, "f": 0.1, "l": [1, None, {"a.b": "\u2028"}]},
                sources=[f"q{i}"],
            )
            for i in range(1, 4)
            for name, text, kind in (("e", ENGLISH, "episodic"), ("c", CHINESE, "archival"))
        ]
    )
    engine.add(Memory.procedure("Brew", ["boil", "pour"], id="p1", timestamp="2026-01-01"))
    engine.add(Memory.procedure("Brew", ["boil", "pour"], id="p2", timestamp="2026-01-02", use_when="thirsty"))
    engine.reinforce(["e1", "c2"], now="2026-05-01")


@pytest.mark.parametrize("embedder", [None, HashEmbedder(8)])
def test_originals_come_back_exactly(folder: Path, embedder: Any) -> None:
    with jiyi.open(folder, embedder=embedder) as engine:
        _filled(engine)
        before = everything(engine)
        done = engine.consolidate()
        assert {"e3", "c3"} <= set(done.ids)
        hidden = {original.id for merge in done.merges for original in merge.originals[1:]}
        assert engine.verify() == []
    with jiyi.open(folder, embedder=embedder) as engine:
        engine.compact()
        assert engine.count() == len(before) - done.removed
        assert not hidden & set(engine.search("hiking 徒步", k=20).ids)
        assert not hidden & {memory.id for memory in engine.list()}
        assert engine.unconsolidate([*done.ids, "unknown", *done.ids]) == done.removed + len(done.ids)
        assert everything(engine) == before
        assert engine.unconsolidate(done.ids) == 0
        assert engine.verify() == []
        assert {"e1", "e2", "e3"} <= set(engine.search("hiking", k=20).ids)
    with jiyi.open(folder, embedder=embedder) as engine:
        assert everything(engine) == before


@given(
    st.lists(st.tuples(st.sampled_from([ENGLISH, CHINESE, "ok", "好的"]), st.integers(0, 3)), min_size=2, max_size=12),
    st.sampled_from([0.5, 0.8, 1.0]),
)
def test_any_store_comes_back(parts: list[tuple[str, int]], least: float) -> None:
    with jiyi.open(embedder=HashEmbedder(8)) as engine:
        engine.add_many([{"text": text[extra:], "id": str(i), "timestamp": i} for i, (text, extra) in enumerate(parts)])
        before = everything(engine)
        done = engine.consolidate(jaccard=least)
        assert engine.count() == len(parts) - done.removed
        assert sum(memory.metadata.get("merged", 1) for memory in engine.list()) == len(parts)
        engine.unconsolidate(done.ids)
        assert everything(engine) == before


def test_merging_merged_memories_keeps_all_originals(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": ENGLISH, "id": f"a{i}", "timestamp": i} for i in range(3)])
    before = everything(engine)
    engine.consolidate()
    engine.add(ENGLISH, id="b", timestamp=9)
    before += everything(engine)[1:]
    assert engine.consolidate().ids == ["b"]
    (left,) = engine.list()
    assert left.metadata == {"merged": 4}
    assert set(left.sources) == {"a0", "a1", "a2"}
    engine.add(ENGLISH, id="c", timestamp=5)  # older than the one that stays
    assert engine.consolidate().ids == ["b"]
    assert engine.get("b").metadata == {"merged": 5}
    engine.delete("c")
    assert engine.unconsolidate("b") == 5
    engine.delete("c")
    assert everything(engine) == before


def test_the_merged_memory_can_be_changed_meanwhile(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": ENGLISH, "id": name, "timestamp": i} for i, name in enumerate("ab")])
    before = everything(engine)
    engine.consolidate()
    engine.update("b", text="something else", metadata={"mine": 1})
    assert engine.unconsolidate("b") == 2
    assert everything(engine) == before


def test_an_id_that_is_given_again_is_the_new_memory(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": ENGLISH, "id": name, "timestamp": i} for i, name in enumerate("abc")])
    engine.consolidate()
    engine.add("a new one", id="a")
    assert engine.unconsolidate("c") == 2
    assert engine.get("a").text == "a new one"
    assert engine.get("b").text == ENGLISH


@pytest.mark.parametrize("how", ["delete", "forget", "erase", "expire"])
def test_originals_go_with_what_they_were_merged_into(folder: Path, how: str) -> None:
    with jiyi.open(folder, embedder=HashEmbedder(8)) as engine:
        engine.add("it stays")
        expires_at = "2030-01-01" if how == "expire" else None
        engine.add_many(
            [{"text": ENGLISH, "id": name, "timestamp": i, "expires_at": expires_at} for i, name in enumerate("ab")]
        )
        engine.consolidate()
        if how == "delete":
            engine.delete("b")
        elif how == "forget":
            engine.forget({"text": ENGLISH})
        elif how == "expire":
            engine.compact(now="2031-01-01")
        else:
            engine.erase("b")
        assert engine.unconsolidate("b") == 0
        assert texts(engine) == ["it stays"]
        if how != "erase":
            engine.compact()
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"hiking" not in path.read_bytes()


def test_after_a_reindex_originals_have_vectors_of_the_new_model() -> None:
    with jiyi.open(embedder=HashEmbedder(8, "a")) as engine:
        engine.add_many([{"text": ENGLISH, "id": name, "timestamp": i} for i, name in enumerate("ab")])
        engine.consolidate()
        new = HashEmbedder(12, "b")
        engine.reindex(new)
        engine.unconsolidate("b")
        for _, vector in everything(engine):
            assert vector == new.embed_query(ENGLISH).tobytes()


def test_a_failing_write_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        _filled(engine)
        before = everything(engine)

        def fail(*_: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "_finish", staticmethod(fail))
            with pytest.raises(jiyi.StoreError, match="disk I/O error"):
                engine.consolidate()
        assert everything(engine) == before
        done = engine.consolidate()
        merged = everything(engine)
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "_finish", staticmethod(fail))
            with pytest.raises(jiyi.StoreError, match="disk I/O error"):
                engine.unconsolidate(done.ids)
        assert everything(engine) == merged
        engine.unconsolidate(done.ids)
        assert everything(engine) == before


def test_damage_to_hidden_memories_is_found(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many([{"text": ENGLISH, "id": name, "timestamp": i} for i, name in enumerate("ab")])
        engine.consolidate()
        assert engine.verify() == []
    with sqlite3.connect(folder / FILE_NAME) as connection:
        connection.execute("UPDATE merged SET memory = replace(memory, 'hills', 'hulls') WHERE id = 'a'")
    connection.close()
    with jiyi.open(folder, embedder=None) as engine:
        (line,) = engine.verify()
        assert "'a'" in line
    with sqlite3.connect(folder / FILE_NAME) as connection:
        connection.execute("UPDATE merged SET memory = 'x' WHERE id = 'a'")
    connection.close()
    with jiyi.open(folder, embedder=None) as engine, pytest.raises(jiyi.StoreError, match=r"damaged.*verify"):
        engine.unconsolidate("b")


def test_a_snapshot_can_be_taken_back_too(folder: Path, tmp_path: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        _filled(engine)
        before = everything(engine)
        done = engine.consolidate()
        engine.snapshot(tmp_path / "copy")
    with jiyi.open(tmp_path / "copy", embedder=None) as engine:
        engine.unconsolidate(done.ids)
        assert everything(engine) == before


def test_memories_that_change_while_they_are_compared_are_left(
    engine: jiyi.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jiyi import consolidate as module

    engine.add_many(
        [{"text": text, "timestamp": i, "id": f"{i}"} for i, text in enumerate([ENGLISH, ENGLISH, CHINESE, CHINESE])]
    )
    compare = module.near_copies

    def meanwhile(*arguments: Any) -> Any:
        engine.update("0", text="changed meanwhile")
        return compare(*arguments)

    monkeypatch.setattr(module, "near_copies", meanwhile)
    assert engine.consolidate().ids == ["3"]
    assert engine.get("0").text == "changed meanwhile"
    assert engine.count() == 3


def test_a_fact_that_comes_while_they_are_compared_keeps_apart(
    engine: jiyi.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jiyi import consolidate as module

    for name, month in (("a", 1), ("c", 3)):
        engine.add(Memory.fact("Ana", "lives in", "Paris", id=name, timestamp=f"2026-0{month}-01"))
    engine.add_many([{"text": ENGLISH, "id": name, "session": "s", "timestamp": i} for i, name in enumerate("xy")])
    compare = module.near_copies

    def meanwhile(*arguments: Any) -> Any:
        engine.add(Memory.fact("Ana", "lives in", "Lyon", id="b", timestamp="2026-02-01"))
        engine.add("of the same time", session="s", timestamp=0)
        return compare(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, "near_copies", meanwhile)
        assert engine.consolidate().merges == ()
    assert [fact.id for fact in engine.facts()] == ["c"]


def test_an_empty_namespace(engine: jiyi.Engine) -> None:
    assert engine.consolidate().merges == ()
    assert engine.unconsolidate("a") == 0
    engine.add("one")
    assert engine.consolidate().merges == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"jaccard": 0.2}, "jaccard is 0.2; it must be from 0.5 to 1"),
        ({"jaccard": "1"}, "jaccard must be a number"),
        ({"jaccard": float("nan")}, "jaccard is nan"),
        ({"cosine": 2}, "cosine is 2; it must be from 0.0 to 1"),
        ({"cosine": True}, "cosine must be a number, got bool"),
        ({"dry_run": 1}, "dry_run must be True or False"),
        ({"namespace": ""}, "namespace is empty"),
        ({"where": {"colour": "red"}}, "colour"),
    ],
)
def test_bad_arguments(engine: jiyi.Engine, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        engine.consolidate(**settings)


def test_a_reader_may_look_and_not_merge(folder: Path) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many([ENGLISH, ENGLISH])
    with jiyi.open(folder, embedder=None, read_only=True) as engine:
        assert engine.consolidate(dry_run=True).removed == 1
        with pytest.raises(jiyi.ReadOnlyError):
            engine.consolidate()
        with pytest.raises(jiyi.ReadOnlyError):
            engine.unconsolidate("a")


def test_a_fact_that_held_meanwhile_keeps_apart_whatever_keeps_it_from_the_group(engine: jiyi.Engine) -> None:
    def ana(name: str, month: int, place: str = "Paris", **fields: Any) -> None:
        engine.add(Memory.fact("Ana", "lives in", place, id=name, timestamp=f"2026-0{month}-01", **fields))

    ana("p1", 1)
    ana("p2", 2, expires_at="2026-03-01")
    ana("p3", 4)
    assert engine.consolidate().merges == ()
    assert [fact.id for fact in engine.facts()] == ["p3"]
    engine.erase(where={})
    ana("p1", 1)
    ana("p2", 2, speaker="Bob")
    ana("p3", 4)
    assert engine.consolidate().merges == ()
    assert [fact.id for fact in engine.facts()] == ["p3"]
    engine.erase(where={})
    ana("p1", 1, session="s")
    ana("p2", 2, session="t")
    ana("p3", 3, session="s")
    assert engine.consolidate({"session": "s"}).merges == ()
    assert [fact.id for fact in engine.facts()] == ["p3"]
    assert engine.consolidate().ids == ["p3"]
    engine.erase(where={})
    ana("p1", 1, text=ENGLISH)
    ana("p2", 2, text=CHINESE)  # states the same in other words
    ana("p3", 3, text=ENGLISH)
    ana("p4", 4, text=ENGLISH)
    assert [[m.id for m in merge.originals] for merge in engine.consolidate().merges] == [["p4", "p3"]]
    assert [fact.id for fact in engine.facts()] == ["p4"]


def test_facts_of_one_time_stay_in_order(engine: jiyi.Engine) -> None:
    def ana(name: str, place: str, month: int) -> None:
        engine.add(Memory.fact("Ana", "lives in", place, id=name, timestamp=f"2026-0{month}-01"))

    ana("a", "Paris", 1)
    ana("b", "Lyon", 1)
    ana("c", "Lyon", 2)
    assert engine.consolidate().merges == ()
    ana("d", "Lyon", 3)
    ana("e", "Paris", 3)
    done = engine.consolidate()
    assert done.merges == ()
    assert [fact.id for fact in engine.facts()] == ["e"]
    ana("f", "Paris", 4)
    ana("g", "Paris", 4)  # all of one time are in the group
    assert [[m.id for m in merge.originals] for merge in engine.consolidate().merges] == [["g", "f"]]
    assert [fact.id for fact in engine.facts()] == ["g"]
    assert engine.unconsolidate("g") == 2
    assert [fact.id for fact in engine.facts()] == ["g"]


def test_turns_of_one_time_stay_in_order(engine: jiyi.Engine) -> None:
    engine.add_many(
        [
            {"text": text, "id": name, "session": session, "timestamp": at}
            for name, text, session, at in (
                ("a", ENGLISH, "s", 1),
                ("b", "something else", "s", 1),
                ("c", ENGLISH, "s", 2),
                ("d", ENGLISH, "s", 3),
                ("e", ENGLISH, "t", 1),
            )
        ]
    )
    assert [[m.id for m in merge.originals] for merge in engine.consolidate().merges] == [["d", "c", "e"]]
    engine.add("and else", id="f", session="s", timestamp=3)
    engine.add(ENGLISH, id="g", session="t", timestamp=3)
    assert engine.consolidate().merges == ()  # the one that would stay, of the latest, is tied
    assert engine.count() == 5


def test_ties_within_a_group_come_back_in_the_order_they_were_stored(engine: jiyi.Engine) -> None:
    names = ["z", "m", "a", "q"]
    engine.add_many([{"text": ENGLISH, "id": name, "session": "s", "timestamp": 5} for name in names])
    assert engine.consolidate().ids == ["q"]
    engine.compact()
    assert engine.unconsolidate("q") == 4
    assert [memory.id for memory in engine.list()] == names


def test_an_unrelated_memory_of_the_same_id_does_not_stand_for_the_others(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": ENGLISH, "id": name, "timestamp": i} for i, name in enumerate("abc")])
    engine.add("apart", id="x")
    engine.reinforce(["a", "c"], now="2026-03-01")
    before = {memory.id: memory for memory in engine.list()}
    assert engine.consolidate().ids == ["c"]
    engine.add("an unrelated one", id="c")
    after = {memory.id: memory for memory in engine.list()}
    assert {name: after[name] for name in "abx"} == {name: before[name] for name in "abx"}
    assert after["c"].text == "an unrelated one"
    assert after["c"].uses == 1  # of the memory that it replaces, not of all that were merged
    assert engine.unconsolidate("c") == 0
    assert engine.get("c").text == "an unrelated one"
    assert set(engine.search("hiking", k=9).ids) >= {"a", "b"}
    assert engine.verify() == []


def test_a_batch_may_replace_both_what_stands_and_what_is_hidden(engine: jiyi.Engine) -> None:
    engine.add_many([{"text": ENGLISH, "id": name, "timestamp": i} for i, name in enumerate("abc")])
    engine.consolidate()
    engine.add_many([{"text": "new a", "id": "a"}, {"text": "new c", "id": "c"}])
    assert {memory.id: memory.text for memory in engine.list()} == {"a": "new a", "b": ENGLISH, "c": "new c"}
    assert engine.unconsolidate("c") == 0


def test_metadata_of_that_name_comes_back(engine: jiyi.Engine) -> None:
    engine.add_many(
        [{"text": ENGLISH, "id": name, "timestamp": i, "metadata": {"merged": "mine"}} for i, name in enumerate("ab")]
    )
    before = everything(engine)
    engine.consolidate()
    assert engine.get("b").metadata == {"merged": 2}
    engine.unconsolidate("b")
    assert everything(engine) == before
