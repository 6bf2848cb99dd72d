"""`Engine.build_context`: the seed's scenes, slots, what is never recalled, and what is written back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import jiyi
from jiyi import Engine, Memory
from tests.engine.embedders import HashEmbedder

NOW = datetime(2026, 3, 23, 12, tzinfo=UTC)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


@pytest.fixture
def shipped() -> Iterator[Engine]:
    """An engine with the table that ships."""
    with jiyi.open() as engine:
        yield engine


@pytest.fixture(params=["with the table that ships", "without vectors"])
def any_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with jiyi.open(embedder="default" if "table" in request.param else None) as engine:
        yield engine


# ------------------------------------------------------------------------------------------------ the seed's scenes


@pytest.mark.parametrize(
    ("likes", "did", "asked"),
    [
        (
            "周末喜欢去徒步，特别是走越野路线",
            [
                "在写一个 Node.js 后端",
                "后端接口用 Node.js 重写",
                "Node.js 后端的测试全绿",
                "缓存层还没定",
                "后端部署在容器里",
                "后端日志接好了",
            ],
            "最近在写一个 Node.js 后端，想加个缓存层，用 Redis 还是 Memcached？",
        ),
        (
            "Loves hiking on weekends, trail routes above all",
            [
                "Writing a Node.js backend",
                "The Node.js backend got new endpoints",
                "All tests of the Node.js backend pass",
                "The cache layer is not decided",
                "The backend runs in containers",
                "The backend writes logs",
            ],
            "I'm writing a Node.js backend and want a cache layer, Redis or Memcached?",
        ),
    ],
)
def test_scene_one_who_the_user_is_reaches_a_prompt_about_something_else(
    any_engine: Engine, likes: str, did: list[str], asked: str
) -> None:
    any_engine.add(likes, id="hiking", kind="archival", timestamp=days_ago(21))
    any_engine.add_many([Memory(text=text, timestamp=days_ago(1)) for text in did])

    assert "hiking" not in any_engine.search(asked, now=NOW).ids
    context = any_engine.build_context([user(asked)], now=NOW)

    assert context.ids[0] == "hiking"
    assert likes in context.text
    assert ("3 周前" if "周末" in likes else "3 weeks ago") in context.text
    assert len(context.ids) == 6


@pytest.mark.parametrize(
    ("memories", "query"),
    [
        (
            [
                "我决定用 TypeScript 写后端 API",
                "决定用 TypeScript 写后端 API 了",
                "准备用 TypeScript 写后端 API",
                "不过我也在学 Python 做数据分析",
                "周末徒步",
                "猫叫豆包",
            ],
            "在用什么语言写后端，在学什么？",
        ),
        (
            [
                "I decided to write the backend API in TypeScript",
                "Decided to write the backend API in TypeScript now",
                "We write the backend API in TypeScript",
                "But I am also learning Python for data analysis",
                "Went hiking on the weekend",
                "The cat is called Bean",
            ],
            "What do I write the backend API in, what am I learning?",
        ),
    ],
)
def test_scene_two_near_copies_do_not_take_every_place(shipped: Engine, memories: list[str], query: str) -> None:
    shipped.add_many([Memory(text=text, timestamp=NOW) for text in memories])

    plain = shipped.search(query, k=3, now=NOW, recency_weight=0, diversity="none")
    context = shipped.build_context([user(query)], now=NOW, max_memories=3)

    assert not any("Python" in memory.text for memory in plain.memories)
    assert sum("Python" in memory.text for memory in context.memories) == 1
    assert len(context.ids) == 3


SWITCHES = {
    "zh": (
        [
            user("我们的 Redis 集群怎么配置主从复制？"),
            assistant("Redis Cluster 至少需要三个主节点，每个主节点配一个从节点。"),
            user("周末去哪里徒步比较好？"),
        ],
        ["Redis 集群有三个主节点", "Redis 主节点在机房一", "Redis 集群配置放在仓库里"],
        ["周末徒步走了九溪到龙井的路线", "上次徒步去了莫干山"],
    ),
    "en": (
        [
            user("How do I configure replication in our Redis cluster?"),
            assistant("Redis Cluster needs at least three masters; give each master a replica."),
            user("Where should I go hiking this weekend?"),
        ],
        [
            "The Redis cluster has three masters",
            "Replication of Redis lags",
            "The Redis cluster config is in git",
        ],
        ["Went hiking along the river trail", "The last hiking trip led to the lakes"],
    ),
}


@pytest.mark.parametrize("language", SWITCHES)
def test_the_seeds_known_failure_a_topic_just_left_fills_the_window_no_more(any_engine: Engine, language: str) -> None:
    messages, old, new = SWITCHES[language]
    any_engine.add_many([Memory(text=text, timestamp=days_ago(2)) for text in [*old, *new]])

    context = any_engine.build_context(messages, now=NOW, max_memories=2)

    assert {memory.text for memory in context.memories} == set(new)
    assert context.query is not None
    assert context.query.text == messages[-1]["content"]
    assert [entry.reason for entry in context.query.dropped] == ["left topic"] * 2
    # The window as it is, with the topic that was left, brings back what was left.
    window = any_engine.search("\n".join(message["content"] for message in messages), k=2, now=NOW)
    assert any("Redis" in memory.text for memory in window.memories)


@pytest.mark.parametrize(
    "texts",
    [
        ("我家狗周一开始不吃狗粮了", "换牌子了吗？", "要带小猫小狗去宠物医院检查肠胃吗？"),
        (
            "Our Postgres queries became slow",
            "Check the indexes and the buffer cache.",
            "Which SQL database tuning would speed up reads?",
        ),
    ],
)
def test_a_topic_goes_on_in_other_words_where_there_are_vectors(shipped: Engine, texts: Sequence[str]) -> None:
    messages = [user(texts[0]), assistant(texts[1]), user(texts[2])]

    context = shipped.build_context(messages, now=NOW)

    assert context.query is not None
    assert context.query.kept == tuple(messages)


def test_last_messages_can_be_set(engine: Engine) -> None:
    messages = [user("Redis cache size"), user("Redis cache eviction"), user("Redis cache costs")]

    for last, text in ((1, "Redis cache costs"), (2, "Redis cache eviction\nRedis cache costs")):
        context = engine.build_context(messages, now=NOW, last_messages=last)
        assert context.query is not None
        assert context.query.text == text


# --------------------------------------------------------------------------------------------------------- archival


def test_archival_slots_hold_the_nearest_and_the_latest(any_engine: Engine) -> None:
    any_engine.add_many(
        [
            Memory(text=f"likes tea number {i}", id=f"tea {i}", kind="archival", timestamp=days_ago(100 - i))
            for i in range(20)
        ]
    )
    any_engine.add("likes Redis caches", id="redis", kind="archival", timestamp=days_ago(500))

    context = any_engine.build_context(["Which Redis cache?"], now=NOW, archival_slots=2, max_memories=0)

    assert context.ids == ("redis", "tea 19")


@pytest.mark.parametrize("likes", ["喜欢喝茶", "likes tea"])
def test_archival_memories_obey_the_filter(any_engine: Engine, likes: str) -> None:
    for i in range(70):
        any_engine.add(f"{likes} {i}", id=f"other {i}", kind="archival", session="b", timestamp=days_ago(i))
    any_engine.add(f"{likes} 70", id="wanted", kind="archival", session="a", timestamp=days_ago(300))

    context = any_engine.build_context(["Redis?"], now=NOW, where={"session": "a"})

    assert context.ids == ("wanted",)
    assert any_engine.build_context(["Redis?"], now=NOW, where={"session": "c"}).text == ""


def test_namespaces_are_walls(any_engine: Engine) -> None:
    any_engine.add("likes tea", namespace="ana", kind="archival")
    any_engine.add(Memory.procedure("Brew tea", ["boil water"], namespace="ana"))

    assert any_engine.build_context(["How do I brew tea?"], namespace="bob").text == ""
    assert len(any_engine.build_context(["How do I brew tea?"], namespace="ana").ids) == 2


def test_slots_over_several_namespaces(any_engine: Engine) -> None:
    any_engine.add("喜欢喝茶", id="same", namespace="team/ana", kind="archival", timestamp=days_ago(2))
    any_engine.add("likes tea", id="same", namespace="team/bob", kind="archival", timestamp=days_ago(1))
    any_engine.add("likes coffee", namespace="other", kind="archival")
    any_engine.add(Memory.procedure("Brew tea", ["boil water"], namespace="team/bob"))
    any_engine.add(Memory.procedure("泡茶", ["烧水"], namespace="team/ana"))

    context = any_engine.build_context(
        ["How to brew tea?"], namespace="team/*", max_memories=0, now=NOW, reinforce=True
    )

    assert [memory.namespace for memory in context.memories] == ["team/bob", "team/ana", "team/bob"]
    assert "coffee" not in context.text
    assert any_engine.get("same", namespace="team/ana").uses == 1


# ------------------------------------------------------------------------------------------------------- procedures

PROCEDURES = [
    Memory.procedure("Roll back a release", ["run make rollback"], use_when="a release fails", id="rollback"),
    Memory.procedure("Bake bread", ["knead the dough", "bake it"], use_when="guests come for breakfast", id="bread"),
    Memory.procedure("回滚发布", ["执行 make rollback", "看错误率曲线"], use_when="上线失败", id="回滚"),
    Memory.procedure("烤面包", ["揉面", "进烤箱"], use_when="早餐有客人", id="面包"),
    Memory(text="怎么给猫喂药：药片压碎拌进罐头", kind="procedural", id="喂药"),
]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("The new release fails, how do I roll it back?", "rollback"),
        ("新版本上线失败了，怎么回滚？", "回滚"),
        ("How do I bake bread?", "bread"),
        ("早餐有客人，面包怎么烤？", "面包"),
        ("猫怎么喂药？", "喂药"),
        ("Which song shall we play at the wedding?", None),
        ("婚礼上放哪首歌？", None),
        ("嗯", None),
    ],
)
def test_a_procedure_that_has_to_do_with_the_query_and_never_another(
    any_engine: Engine, asked: str, found: str | None
) -> None:
    any_engine.add_many(PROCEDURES)
    any_engine.add_many([f"周末第 {i} 次徒步" for i in range(20)])

    context = any_engine.build_context([user(asked)], max_memories=0, now=NOW)

    assert context.ids == (() if found is None else (found,))


def test_a_procedure_is_found_behind_hits_of_other_kinds(any_engine: Engine) -> None:
    any_engine.add_many([f"The release fails again, number {i}, roll back" for i in range(60)])
    any_engine.add_many(PROCEDURES)

    context = any_engine.build_context(["The release fails, how do I roll back?"], max_memories=2, now=NOW)

    assert [memory.kind for memory in context.memories] == ["procedural", "episodic", "episodic"]
    assert '"Roll back a release (a release fails): 1. run make rollback"' in context.text


def test_procedure_slots_can_be_set(any_engine: Engine) -> None:
    any_engine.add_many(
        [Memory.procedure(f"Release service {i}", ["push the tag"], id=f"release {i}") for i in range(5)]
    )

    for slots in (0, 1, 2):
        context = any_engine.build_context(["How do I release?"], max_memories=0, procedure_slots=slots, now=NOW)
        assert len(context.ids) == slots


# ----------------------------------------------------------------------------------------------- never recalled


def test_what_has_expired_is_in_no_slot(any_engine: Engine) -> None:
    for kind, memory in (("archival", "likes tea"), ("procedural", "How to brew tea"), ("episodic", "drank tea")):
        any_engine.add(memory, id=kind, kind=kind, expires_at=NOW, timestamp=days_ago(1))

    assert any_engine.build_context(["tea, how to brew it"], now=NOW).text == ""
    before = any_engine.build_context(["tea, how to brew it"], now=NOW - timedelta(seconds=1))
    assert set(before.ids) == {"archival", "procedural", "episodic"}


@pytest.mark.parametrize(
    ("subject", "predicate", "old", "new", "asked"),
    [
        ("小明", "住在", "上海", "杭州", "小明住在哪里？"),
        ("Ana", "lives in", "Lyon", "Oslo", "Where does Ana live?"),
    ],
)
def test_a_superseded_fact_is_in_no_context(
    any_engine: Engine, subject: str, predicate: str, old: str, new: str, asked: str
) -> None:
    any_engine.add(Memory.fact(subject, predicate, old, timestamp=days_ago(30)))
    any_engine.add(Memory.fact(subject, predicate, new, timestamp=days_ago(1)))

    now = any_engine.build_context([asked], now=NOW).text
    assert new in now
    assert old not in now
    then = any_engine.build_context([asked], as_of=days_ago(10)).text
    assert old in then
    assert new not in then


def test_as_of_leaves_out_what_came_later(any_engine: Engine) -> None:
    any_engine.add("likes tea", id="old", kind="archival", timestamp=days_ago(30))
    any_engine.add("likes coffee", id="new", kind="archival", timestamp=days_ago(1))

    assert any_engine.build_context(["What to drink?"], as_of=days_ago(10)).ids == ("old",)
    assert set(any_engine.build_context(["What to drink?"], now=NOW).ids) == {"old", "new"}


# ------------------------------------------------------------------------------------------------------ written back


def test_reinforce_counts_what_is_in_the_text_and_nothing_else(engine: Engine) -> None:
    engine.add("likes Redis", id="archival", kind="archival", timestamp=days_ago(3))
    engine.add_many([Memory(text=f"Redis note {i}", id=str(i), timestamp=days_ago(i)) for i in range(5)])

    context = engine.build_context(["Redis?"], now=NOW, max_memories=2, reinforce=True)

    assert len(context.ids) == 3
    for memory in engine.list():
        used = memory.id in context.ids
        assert (memory.uses, memory.last_used) == ((1, NOW) if used else (0, None))


def test_nothing_is_written_unless_asked(engine: Engine) -> None:
    engine.add("likes Redis", kind="archival")
    before = engine.stats()["sequence"]

    engine.build_context(["Redis?"])

    assert engine.stats()["sequence"] == before
    assert engine.list()[0].uses == 0


def test_reinforce_needs_a_store_that_can_be_written(folder: Any) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        engine.add("likes Redis")
    with jiyi.open(folder, embedder=None, read_only=True) as engine:
        assert engine.build_context(["Redis?"]).text
        with pytest.raises(jiyi.ReadOnlyError):
            engine.build_context(["Redis?"], reinforce=True)
    with jiyi.open(embedder=None) as engine, pytest.raises(TypeError, match="reinforce must be True or False"):
        engine.build_context(["Redis?"], reinforce=1)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ other


def test_one_search_where_one_will_do(any_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Any] = []
    search = any_engine.search

    def counted(query: str, **settings: Any) -> Any:
        searched.append(settings.get("where"))
        return search(query, **settings)

    monkeypatch.setattr(any_engine, "search", counted)
    any_engine.add_many([Memory(text=f"likes tea {i}", kind="archival") for i in range(3)])
    any_engine.add_many([f"Redis note {i}" for i in range(50)])

    any_engine.build_context(["Redis?"])
    assert searched == [None]  # every archival memory has a slot, and there are no procedures

    any_engine.add(Memory(text="likes tea 4", kind="archival"))
    any_engine.add_many(PROCEDURES)
    any_engine.build_context(["Redis?"])
    assert searched[1:] == [None, {"kind": {"in": ["archival", "procedural"]}}]


def test_the_same_in_async(shipped: Engine) -> None:
    shipped.add_many([*PROCEDURES, Memory(text="likes tea", kind="archival")])
    asked: Any = {"now": NOW, "token_budget": 300}

    assert asyncio.run(shipped.abuild_context(["怎么回滚？"], **asked)) == shipped.build_context(
        ["怎么回滚？"], **asked
    )


def test_an_embedder_without_a_table_is_asked_for_topics_too() -> None:
    asked: list[str] = []

    class Spy(HashEmbedder):
        def embed(self, texts: Sequence[str]) -> Any:
            asked.extend(texts)
            return super().embed(texts)

    with jiyi.open(embedder=Spy()) as engine:
        engine.build_context(["How large is the Redis cache?", "Where can I go hiking this weekend?"])

    assert any("hiking" in text for text in asked)


def test_a_tokenizer_as_counter(engine: Engine) -> None:
    class Words:
        def encode(self, text: str) -> list[str]:
            return text.split()

    engine.add("Ana moved the sessions to Redis")

    context = engine.build_context(["Redis?"], count_tokens=Words())

    assert context.tokens == len(context.text.split())
