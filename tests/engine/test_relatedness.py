"""Relatedness is on one scale for every embedder and both languages, and says when it does not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jiyi.models.registry import load_embedder
from jiyi.query import build_query
from jiyi.relatedness import Relatedness, relatedness_of
from jiyi.topic import Turn, in_common_with, new_topic
from tests.engine.embedders import HashEmbedder, HashTable


@pytest.fixture(scope="module")
def related() -> Relatedness:
    return Relatedness(load_embedder("e5-static-256").embed)


ABOUT_REDIS = ["How do I configure replication in our Redis cluster?", "Redis 集群怎么配置主从复制？"]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (ABOUT_REDIS[0], "Does Redis support transactions?", True),
        (ABOUT_REDIS[1], "Redis 的持久化怎么做？", True),
        (ABOUT_REDIS[0], "Where can I go hiking this weekend?", False),
        (ABOUT_REDIS[1], "周末去哪里徒步比较好？", False),
        (ABOUT_REDIS[0], "周末去哪里徒步比较好？", False),
        (ABOUT_REDIS[1], "Where can I go hiking this weekend?", False),
    ],
)
def test_both_languages_on_one_scale(related: Relatedness, one: str, other: str, alike: bool) -> None:
    deviations = related(one, other)

    assert deviations is not None
    assert (deviations > 3) == alike
    assert (deviations < 2) == (not alike)
    assert related(other, one) == pytest.approx(deviations)


def test_the_scale_does_not_depend_on_the_embedders(related: Relatedness) -> None:
    """Neither on the length of its vectors, nor on what all of them have in common."""
    embedder = load_embedder("e5-static-256")

    def stretched(texts: Sequence[str]) -> NDArray[np.float64]:
        return np.asarray(embedder.embed(texts), np.float64) * 7

    def alike(texts: Sequence[str]) -> NDArray[np.float64]:
        vectors = np.asarray(embedder.embed(texts), np.float64)
        return np.hstack([vectors, np.full((len(texts), 1), 2.0)])  # every cosine above 0.75

    pair = (ABOUT_REDIS[0], "Does Redis support transactions?")
    assert Relatedness(stretched)(*pair) == pytest.approx(related(*pair))
    assert Relatedness(alike)(*pair) == pytest.approx(related(*pair), rel=0.05)


@pytest.mark.parametrize(
    "embed",
    [
        lambda texts: np.zeros((len(texts), 4)),
        lambda texts: np.ones((len(texts), 4)),
        lambda texts: np.full((len(texts), 4), np.nan),
        lambda texts: np.full((len(texts), 4), np.inf),
    ],
)
def test_an_embedder_that_knows_nothing_is_not_asked_to_decide(embed: Any) -> None:
    unknowing = Relatedness(embed)

    assert unknowing("Redis cache", "weekend hiking") is None
    assert in_common_with("Redis cache", unknowing)("the Redis cluster")
    assert build_query([*ABOUT_REDIS[:1], "Where can I go hiking this weekend?"], related=unknowing).text == (
        "Where can I go hiking this weekend?"
    )


def test_empty_texts_are_related_to_nothing(related: Relatedness) -> None:
    assert related("", "Redis") is None
    assert related("Redis", "？！") is None


def test_a_failing_embedder_leaves_it_to_the_words() -> None:
    class Failing(HashEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            raise ConnectionError("no network")

    related = relatedness_of(Failing())

    assert related("Redis cache", "Redis cluster") is None
    assert new_topic("Where can I go hiking this weekend?", [Turn(ABOUT_REDIS[0], True)], related) is not None


def test_a_token_table_tells_it_too() -> None:
    class Bare:
        """A token table that is no embedder."""

        def __init__(self) -> None:
            table = HashTable()
            self.name, self.token_rows, self.embed_rows = table.name, table.token_rows, table.embed_rows

    bare: Any = Bare()
    assert relatedness_of(bare)("Redis cache size", "Redis cache size limit") == pytest.approx(
        relatedness_of(HashTable())("Redis cache size", "Redis cache size limit")
    )


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="embed is str; pass a function from a list of texts to their vectors"):
        Relatedness("e5-static-256")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"embed returned shape \(3,\); for 2 texts it must be one row each"):
        Relatedness(lambda texts: np.ones(3))("a", "b")
    with pytest.raises(TypeError, match="related is int; pass a function of two texts"):
        build_query(["hi"], related=5)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------- in a query

SAME_IN_OTHER_WORDS = [
    [
        "Our Postgres queries became slow",
        "Check the indexes and the buffer cache.",
        "Which SQL database tuning would speed up reads?",
    ],
    ["我家狗周一开始不吃狗粮了", "换牌子了吗？", "要带小猫小狗去宠物医院检查肠胃吗？"],
]
OTHER_IN_THE_SAME_WORDS = [
    [
        "How do I configure the cache of our Redis cluster?",
        "Give each master node a replica and run a cluster check.",
        "How fast should I run a marathon in hot weather?",
    ],
    ["Redis 集群怎么配置主从复制？", "跑一下检查命令，看每个节点的状态。", "膝盖检查要去哪家医院挂号？"],
]


def talk(first: str, answer: str, last: str) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": first},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": last},
    ]


@pytest.mark.parametrize("texts", SAME_IN_OTHER_WORDS)
def test_a_topic_that_goes_on_in_other_words_is_not_left(related: Relatedness, texts: list[str]) -> None:
    messages = talk(*texts)

    assert build_query(messages).kept == (messages[-1],)
    assert build_query(messages, related=related).kept == tuple(messages)


@pytest.mark.parametrize("texts", OTHER_IN_THE_SAME_WORDS)
def test_a_word_shared_by_chance_does_not_hide_a_new_topic(related: Relatedness, texts: list[str]) -> None:
    messages = talk(*texts)

    assert build_query(messages).kept == tuple(messages)
    query = build_query(messages, related=related)
    assert query.text == texts[-1]
    assert [entry.reason for entry in query.dropped] == ["left topic"] * 2
    assert [entry.reason for entry in query.reasons] == ["new topic"]


def test_it_is_asked_only_where_words_leave_it_open() -> None:
    asked: list[tuple[str, str]] = []

    def related(one: str, other: str) -> float:
        asked.append((one, other))
        return 0.0

    for follow_up in ("why?", "那它支持集群吗？", "换个话题，周末去哪里徒步？", "Let's change the subject. Any films?"):
        build_query([ABOUT_REDIS[0], follow_up], related=related)

    assert asked == []
