"""The query of a conversation: which messages count, fillers, changes of topic, follow-ups."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.fillers import is_filler, strip_filler
from jiyi.query import CUTS, KEPT_REASONS, REASONS, BuiltQuery, KeptMessage, build_query
from jiyi.topic import Turn, new_topic, points_back


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def dropped(query: BuiltQuery) -> list[tuple[Any, str]]:
    return [(entry.message["content"], entry.reason) for entry in query.dropped]


REDIS_ZH = [
    user("我们的 Redis 集群怎么配置主从复制？"),
    assistant("Redis Cluster 至少需要三个主节点，每个主节点配一个从节点。"),
]
REDIS_EN = [
    user("How do I configure replication in our Redis cluster?"),
    assistant("Redis Cluster needs at least three masters; give each master a replica."),
]


def redis(follow_up: str) -> list[dict[str, Any]]:
    return [*(REDIS_EN if follow_up.isascii() else REDIS_ZH), user(follow_up)]


# ------------------------------------------------------------------------------------------------------- the window


def test_the_last_three_messages_of_user_and_assistant() -> None:
    messages = [
        user("Where should the Redis cache live?"),
        user("We deploy the Redis cache on Kubernetes"),
        assistant("Then give the Redis cache its own node pool"),
        user("How large should the Redis node pool be?"),
    ]

    query = build_query(messages)

    assert query.text == "\n".join(message["content"] for message in messages[1:])
    assert query.kept == tuple(messages[1:])
    assert query.kept[0] is messages[1]
    assert dropped(query) == [("Where should the Redis cache live?", "too old")]
    assert str(query) == query.text


def test_last_can_be_set() -> None:
    messages = [user("Redis cache size"), user("Redis cache eviction"), user("Redis cache costs")]

    assert build_query(messages, last=1).text == "Redis cache costs"
    assert build_query(messages, last=2).text == "Redis cache eviction\nRedis cache costs"
    assert build_query(messages, last=99).text == "Redis cache size\nRedis cache eviction\nRedis cache costs"


def test_system_and_tool_messages_are_passed_over() -> None:
    messages = [
        user("Redis cache size"),
        {"role": "system", "content": "You are a pirate"},
        {"role": "tool", "content": "42 rows"},
        {"role": "developer", "content": "Be brief"},
        {"type": "function_call", "name": "lookup"},
        assistant("The Redis cache holds 2 GB"),
        {"role": "tool", "content": "ok"},
        user("Is the Redis cache large enough?"),
    ]

    query = build_query(messages)

    assert query.kept == (messages[0], messages[5], messages[7])
    assert query.dropped == ()


def test_messages_without_text_do_not_use_up_the_window() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    result = user([{"type": "tool_result", "content": "Redis 7.2"}])
    messages = [user("Which Redis version do we run?"), call, result, call, result]

    query = build_query(messages)

    assert query.text == "Which Redis version do we run?"
    assert [entry.reason for entry in query.dropped] == ["empty"] * 4


def test_nothing_said_is_an_empty_query() -> None:
    assert build_query([]) == BuiltQuery("")
    assert build_query([{"role": "system", "content": "You are helpful"}]).text == ""
    query = build_query([user(None), user("  \n"), assistant("\u200b\u202e"), user([])])
    assert query.text == ""
    assert [entry.reason for entry in query.dropped] == ["empty"] * 4


# -------------------------------------------------------------------------------------------------- forms of messages


class Role(enum.Enum):
    USER = "user"


@pytest.mark.parametrize(
    "message",
    [
        "Redis cache",
        {"role": "user", "content": "Redis cache"},
        {"role": "User", "content": " Redis cache\n"},
        {"role": "human", "content": "Redis cache"},
        {"content": "Redis cache"},
        {"type": "human", "content": "Redis cache"},
        {"role": "user", "content": [{"type": "text", "text": "Redis cache"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Redis cache"}, {"type": "input_image"}]},
        {"role": "user", "content": ["Redis cache"]},
        {"role": "user", "content": [{"text": "Redis cache"}, {"type": "text", "text": None}]},
        {"role": "user", "content": (SimpleNamespace(type="text", text="Redis cache"),)},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Redis cache"}],
        },
        SimpleNamespace(role="user", content="Redis cache"),
        SimpleNamespace(role=Role.USER, content="Redis cache"),
        SimpleNamespace(type="ai", content="Redis cache"),
    ],
)
def test_every_form_of_a_message(message: Any) -> None:
    query = build_query([message])

    assert query.text == "Redis cache"
    assert query.kept == (message,)


def test_text_parts_are_put_together_and_others_skipped() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [{"type": "text", "text": "What is in"}, image, {"type": "text", "text": "this picture of Redis?"}]

    assert build_query([user(content)]).text == "What is in\nthis picture of Redis?"


# ------------------------------------------------------------------------------------------------------------ fillers

FILLERS = """
嗯|嗯嗯嗯|好的|好|好好好|好吧|行吧|继续|请继续|继续吧|哈哈|哈哈哈哈哈|你好|您好！|谢谢|谢谢你！|多谢|收到|明白了|
我知道了|没问题|没事|好的，我明白了|嗯……|哦哦|噢，这样啊|原来如此|好哒～👌|嗯嗯好的谢谢|是的|对对对|不是|不用了|
辛苦了|太好了！|早上好|晚安|在吗|再见|成|繼續|謝謝|没问题，我来帮您看看|请问还有什么可以帮您的吗？|很高兴为您服务|
您好！请问有什么可以帮助您的吗？|不客气，如果还有问题，随时告诉我|好的，已经记住了|ok|OK|ｏｋ|okay|Okkkk!!|k|sure|
Sure!|got it|Got it.|sounds good|Sounds good to me|thanks!|thank you so much|thankssss|thx|hi|hi there|Hello!|hey|
hiii|good morning|lol|looool|hahaha|yes|yess|no|nope|noooo|great!|cool cool cool|I see|makes sense|go on|
please continue|Understood.|Noted|👍|🙏🙏|...|？？？|ok的|OK，收到|That makes sense, thanks|Great question!|
You're welcome!|Sure, I can help with that|Of course! I'd be happy to help you with that.|How can I help you today?|
Happy to help!|Let me know if you need anything else.|Is there anything else I can help you with?|
Got it! I'll keep that in mind.|No problem
"""
CONTENT = """
Redis|好的，那 Redis 呢|那它支持集群吗？|成都|去成都吗|中和|谢霆锋|好吃吗|猫|周末|喝茶|没有糖|早餐吃什么|哈尔滨|
行李|嗯，我喜欢徒步|什么时候去徒步|为什么？|why?|my resume|who helped me?|When is my course?|help me with Python|
god|Good hiking spots|morning run|thanksgiving|the night market|42|Sure, Redis supports clustering.|नमस्ते रेडिस|
Hi, what did Ana say about hiking?|what about its memory use?|спасибо друг
"""


@pytest.mark.parametrize("text", [text for line in FILLERS.strip().split("\n") for text in line.split("|") if text])
def test_fillers(text: str) -> None:
    assert is_filler(text)

    query = build_query([user("Redis 缓存放在哪里？"), assistant(text), user(text)])

    assert query.text == "Redis 缓存放在哪里？"
    assert dropped(query) == [(text, "filler"), (text, "filler")]


@pytest.mark.parametrize("text", [text for line in CONTENT.strip().split("\n") for text in line.split("|") if text])
def test_no_fillers(text: str) -> None:
    assert not is_filler(text)
    assert build_query([user(text)]).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sure! Redis supports clustering. Let me know if you need anything else.", "Redis supports clustering."),
        ("你好，帮我看看 Redis 配置，谢谢", "帮我看看 Redis 配置"),
        ("Hi, what did Ana say about hiking?", "what did Ana say about hiking?"),
        ("node.js 3.5 is good", "node.js 3.5 is good"),
        ("Hi Redis", "Hi Redis"),
        ("ok, thanks", "ok, thanks"),
    ],
)
def test_filler_around_what_is_said_is_left_out(text: str, expected: str) -> None:
    assert strip_filler(text) == expected
    assert build_query([user(text)]).text == expected


def test_where_only_fillers_were_said_lately_the_query_comes_from_further_back() -> None:
    messages = [user("我想用 Redis 做缓存"), assistant("好的，我明白了"), user("嗯"), assistant("Sure"), user("继续")]

    query = build_query(messages)

    assert query.kept == (messages[0],)
    assert [entry.reason for entry in query.dropped] == ["too old", "filler", "filler", "filler"]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([user("你好")], "你好"),
        ([user("嗯"), assistant("好的"), user("👍"), assistant("ok")], "👍"),
        ([assistant("How can I help you today?")], "How can I help you today?"),
        ([user("换个话题吧")], "换个话题吧"),
    ],
)
def test_never_empty_where_something_was_said(messages: list[Any], text: str) -> None:
    query = build_query(messages)

    assert query.text == text
    assert len(query.kept) == 1


# ------------------------------------------------------------------------------------------------------------- topics


def test_the_seeds_named_failure_a_topic_just_left_still_fills_the_window() -> None:
    query = build_query(redis("周末去哪里徒步比较好？"))

    assert query.text == "周末去哪里徒步比较好？"
    assert [reason for _, reason in dropped(query)] == ["left topic", "left topic"]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("换个话题，周末去哪里徒步？", "周末去哪里徒步？"),
        ("好的，换个话题，周末去哪里徒步？", "周末去哪里徒步？"),
        ("那我们换个话题聊聊吧，周末徒步去哪", "周末徒步去哪"),
        ("不说这个了，晚饭吃什么", "晚饭吃什么"),
        ("聊点别的吧，推荐一部电影", "推荐一部电影"),
        ("另外问一下，周末天气怎么样", "周末天气怎么样"),
        ("对了，我妈妈的生日是哪天？", "我妈妈的生日是哪天？"),
        ("Redis 的问题解决了。换个话题，推荐几部科幻电影", "推荐几部科幻电影"),
        ("我女朋友下周过生日，送她什么礼物好？", "我女朋友下周过生日，送她什么礼物好？"),
        ("这周末想去爬山，有什么推荐的路线吗？", "这周末想去爬山，有什么推荐的路线吗？"),
        ("我想学吉他，从哪里开始？", "我想学吉他，从哪里开始？"),
        ("怎么做红烧肉？", "怎么做红烧肉？"),
        ("What should I cook for dinner tonight?", "What should I cook for dinner tonight?"),
        ("Where can I go hiking this weekend?", "Where can I go hiking this weekend?"),
        ("by the way, where should I hike this weekend?", "where should I hike this weekend?"),
        ("That solved it, thanks. By the way, when is my dentist appointment?", "when is my dentist appointment?"),
        ("Let's change the subject. What should I cook tonight?", "What should I cook tonight?"),
        ("Anyway, what movie should we watch tonight?", "what movie should we watch tonight?"),
        ("btw what's my sister's birthday", "what's my sister's birthday"),
        ("New topic: planning a trip to Kyoto", "planning a trip to Kyoto"),
        (
            "My friend has a birthday soon, what should I give her?",
            "My friend has a birthday soon, what should I give her?",
        ),
        ("Is it going to rain in Paris tomorrow?", "Is it going to rain in Paris tomorrow?"),
    ],
)
def test_a_topic_that_was_left_is_left_out(message: str, text: str) -> None:
    messages = redis(message)

    query = build_query(messages)

    assert query.text == text
    assert query.kept == (messages[-1],)
    assert [entry.reason for entry in query.dropped] == ["left topic", "left topic"]


@pytest.mark.parametrize(
    "message",
    """
    那它支持集群吗？|它的内存占用大吗|那 Memcached 呢？|Memcached 呢？|为什么？|第二个怎么配置？|这个怎么弄|
    还有别的办法吗|上面说的配置文件在哪里|顺便问一下，它支持集群吗？|另外，Redis 支持事务吗？|
    Redis 的持久化怎么做？|三个主节点|what about its memory use?|why?|how do I do that?|and persistence?|
    Which port?|How much memory does it use?|tell me more|by the way, does it support clusters?|
    I have another question about Redis|Redis or Memcached?|How do I change the topic retention of Redis streams?|
    Does Redis support transactions?
    """.replace("\n", "").split("|"),
)
def test_a_follow_up_keeps_what_it_follows(message: str) -> None:
    messages = redis(message.strip())

    query = build_query(messages)

    assert query.kept == tuple(messages)
    assert "Redis" in query.text


def test_a_follow_up_of_the_new_topic_does_not_bring_the_old_one_back() -> None:
    messages = [
        user("Redis 集群怎么配置？"),
        user("换个话题，周末去哪徒步？"),
        assistant("推荐莫干山的越野路线"),
        user("那附近有什么吃的？"),
    ]

    query = build_query(messages, last=4)

    assert query.text == "周末去哪徒步？\n推荐莫干山的越野路线\n那附近有什么吃的？"
    assert dropped(query) == [("Redis 集群怎么配置？", "left topic")]


def test_a_follow_up_fetches_what_it_follows_from_behind_fillers() -> None:
    messages = [
        user("我想用 Redis 做缓存"),
        assistant("好的，我明白了"),
        user("嗯"),
        assistant("Sure"),
        user("那它支持集群吗？"),
    ]

    query = build_query(messages)

    assert query.text == "我想用 Redis 做缓存\n那它支持集群吗？"
    assert [entry.reason for entry in query.dropped] == ["too old", "filler", "filler"]


def test_an_answer_keeps_its_question() -> None:
    messages = [user("给我推荐一家餐厅"), assistant("你喜欢吃什么口味？"), user("麻辣川菜")]

    assert build_query(messages).kept == tuple(messages)


def test_a_change_announced_and_nothing_more() -> None:
    query = build_query(redis("换个话题吧"))

    assert query.text == "换个话题吧"
    assert [entry.reason for entry in query.dropped] == ["left topic", "left topic"]


def test_an_assistant_does_not_change_the_topic() -> None:
    messages = [user("Redis 集群怎么配置？"), assistant("换个话题，周末去哪里徒步？")]

    assert build_query(messages).kept == tuple(messages)


def test_points_back() -> None:
    assert points_back("它支持吗")
    assert points_back("does it?")
    assert not points_back("吉他和其他乐器哪个好学")
    assert not points_back("I'm looking for a recipe that uses tofu")


def test_no_earlier_turns_no_change() -> None:
    assert new_topic("周末去哪里徒步比较好？", []) is None
    assert new_topic("周末去哪里徒步比较好？", [Turn("为什么？", True)]) is None


# --------------------------------------------------------------------------------------------------------------- why


@pytest.mark.parametrize(
    ("messages", "reasons"),
    [
        ([user("Redis cache size"), assistant("The Redis cache holds 2 GB")], ["recent", "last"]),
        ([user("Redis 缓存多大？"), assistant("Redis 缓存 2 GB")], ["recent", "last"]),
        (redis("换个话题，周末去哪里徒步？"), ["new topic"]),
        (redis("Where can I go hiking this weekend?"), ["new topic"]),
        ([user("嗯"), assistant("好的")], ["nothing else said"]),
        ([user("ok"), assistant("sure")], ["nothing else said"]),
        ([user("我想用 Redis"), user("嗯"), user("那它支持集群吗？")], ["recent", "last"]),
        ([user("我想用 Redis"), "好的", "嗯", "ok", user("那它支持集群吗？")], ["followed", "last"]),
        ([user("Tell me about Redis"), "ok", "sure", "thanks", user("does it cluster?")], ["followed", "last"]),
        ([user("我想用 Redis"), assistant("好的"), user("嗯"), assistant("Sure"), user("继续")], ["followed"]),
    ],
)
def test_every_message_that_is_kept_says_why(messages: list[Any], reasons: list[str]) -> None:
    query = build_query(messages)

    assert [entry.reason for entry in query.reasons] == reasons
    assert tuple(entry.message for entry in query.reasons) == query.kept


def test_what_is_cut_for_its_length_is_told() -> None:
    messages = [user("Redis cache costs"), assistant("Redis " + "x" * 40), user("Redis cache?")]

    assert build_query(messages, max_chars=30).reasons == (
        KeptMessage(messages[1], "recent", ("length",)),
        KeptMessage(messages[2], "last"),
    )
    assert build_query([user("Redis " * 10_000)]).reasons[0].cut == ("length",)


def test_a_follow_up_does_not_fetch_what_is_far_behind() -> None:
    messages = [user("Tell me about Redis"), *[user("ok")] * 100, user("does it cluster?")]

    assert build_query(messages).kept == (messages[-1],)
    assert build_query(messages[:20] + messages[-1:]).kept == (messages[0], messages[-1])


# ------------------------------------------------------------------------------------------------------------- length


def test_the_last_characters_are_kept() -> None:
    long = "Redis " * 1000 + "the end"

    query = build_query([user(long)])

    assert len(query.text) == 2000
    assert query.text == long[-2000:]


def test_only_the_ends_of_a_huge_message_are_read() -> None:
    huge = "换个话题，周末徒步。" + "x" * 100_000 + " the end"

    query = build_query([user("Redis cache"), user(huge)])

    assert query.text == huge[-2000:]
    assert dropped(query) == [("Redis cache", "left topic")]


def test_messages_that_do_not_fit_are_too_old() -> None:
    messages = [user("Redis cache costs"), assistant("Redis " + "x" * 40), user("Redis cache?")]

    query = build_query(messages, max_chars=30)

    assert len(query.text) == 30
    assert query.text.endswith("xx\nRedis cache?")
    assert query.kept == tuple(messages[1:])
    assert dropped(query) == [("Redis cache costs", "too old")]


# -------------------------------------------------------------------------------------------------- bad and hostile


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ("hello Redis", "messages must be a list of messages, got str"),
        ({"role": "user", "content": "hi"}, "got dict; put a single message in a list"),
        (None, "got NoneType"),
        ([user("hi"), 5], "messages\\[1\\] is int without role and content"),
        ([None], "messages\\[0\\] is NoneType"),
        ([{"role": 1, "content": "hi"}], "the role of messages\\[0\\] is int"),
        ([user(5)], "the content of messages\\[0\\] is int; it must be text, None or a list of parts"),
        ([user({"type": "text", "text": "hi"})], "the content of messages\\[0\\] is dict"),
        ([user([{"type": "text", "text": 5}])], "a text part of messages\\[0\\] holds int"),
    ],
)
def test_bad_messages_are_named(messages: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        build_query(messages)


@pytest.mark.parametrize("name", ["last", "max_chars"])
def test_bad_counts(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0; it must be a whole number from 1 on"):
        build_query([], **{name: 0})
    with pytest.raises(TypeError, match=f"{name} is 2.5 \\(float\\)"):
        build_query([], **{name: 2.5})
    with pytest.raises(TypeError, match=f"{name} is True"):
        build_query([], **{name: True})


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 50_000 + "Redis",
        "ok, " * 20_000 + "Redis",
        "哈" * 100_000,
        "呢！" * 20_000,
        "it " * 20_000,
        "换个话题，" * 5_000,
        "hahaha" * 5_000,
        "(" * 10_000,
        "a" * 100_000,
        "另外" * 20_000,
        "，先先先" * 10_000,
    ],
)
def test_long_and_repetitive_texts_are_no_trap(text: str) -> None:
    assert build_query([user("Redis cache"), user(text), user(text)]).text


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert build_query([user("Redis \ud83d cache")]).text == "Redis \ufffd cache"


def test_messages_are_not_modified() -> None:
    messages = redis("换个话题，周末去哪里徒步？")
    before = [dict(message) for message in messages]

    build_query(messages)

    assert messages == before


PIECES = st.sampled_from(
    ["嗯", "好的，", "Redis ", "那它呢？", "换个话题，", "btw, ", "周末徒步", " ok ", "\n", "👍", "why?", "\u200b"]
)
CONTENTS = st.one_of(st.none(), st.text(max_size=20), st.lists(PIECES, max_size=5).map("".join))


@given(
    contents=st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), CONTENTS), max_size=7),
    last=st.integers(1, 4),
    max_chars=st.sampled_from([1, 10, 2000]),
)
def test_every_message_is_kept_or_dropped_and_something_said_is_never_lost(
    contents: list[tuple[str, str | None]], last: int, max_chars: int
) -> None:
    messages = [{"role": role, "content": content} for role, content in contents]

    query = build_query(messages, last=last, max_chars=max_chars)

    places = {id(message): place for place, message in enumerate(messages)}
    kept = [places[id(message)] for message in query.kept]
    out = [places[id(entry.message)] for entry in query.dropped]
    talk = [place for place, (role, _) in enumerate(contents) if role != "system"]
    assert sorted(kept + out) == talk
    assert kept == sorted(kept)
    assert out == sorted(out)
    assert len(kept) <= last
    assert {entry.reason for entry in query.dropped} <= set(REASONS)
    assert tuple(entry.message for entry in query.reasons) == query.kept
    assert {entry.reason for entry in query.reasons} <= set(KEPT_REASONS)
    assert {name for entry in query.reasons for name in entry.cut} <= set(CUTS)
    said = [place for place in talk if place not in out or query.dropped[out.index(place)].reason != "empty"]
    assert bool(query.text) == bool(said) == bool(kept)
    assert len(query.text) <= max_chars
    assert query == build_query(messages, last=last, max_chars=max_chars)
