"""What was pasted into a message is cut, and what is asked about it stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.query import build_query
from jiyi.topic import stands_alone
from jiyi.trim import TRIMMED, trim

PYTHON = """Traceback (most recent call last):
  File "/srv/app/orders.py", line 12, in lookup
    return cache.get(key)
           ^^^^^^^^^^^^^^
  File "/srv/app/cache.py", line 88, in get
    raise KeyError(key)
KeyError: 'order:42'"""
JAVA = """java.lang.NullPointerException: total is null
\tat com.shop.Order.total(Order.java:57)
\tat com.shop.Main.main(Main.java:12)
\t... 3 more"""
JAVASCRIPT = """TypeError: items.map is not a function
    at render (/srv/app/list.js:10:15)
    at Object.<anonymous> (/srv/app/main.js:3:1)
    at /srv/app/loader.js:7:3"""
GO = """panic: runtime error: index out of range
goroutine 1 [running]:
main.main()
    /srv/app/main.go:14 +0x1d
    /srv/app/run.go:5 +0x2f"""
RUST = """thread 'main' panicked at src/main.rs:4:5: no entry
   0: std::panicking::begin_panic
   1: orders::lookup::find
             at ./src/lookup.rs:9"""


@pytest.mark.parametrize(
    ("text", "left", "cut"),
    [
        ("Why does this fail?\n```python\nredis.get(None)\n```", "Why does this fail?", ("code",)),
        ("这段代码为什么报错？\n```\nredis.get(None)\n```\n谢谢", "这段代码为什么报错？\n谢谢", ("code",)),
        ("Before\n~~~\na = 1\n~~~\nafter", "Before\nafter", ("code",)),
        ("Two:\n```\na\n```\nand\n````\n```\nb\n```\n````\nend", "Two:\nand\nend", ("code",)),
        ("Set `REDIS_URL` for the cache", "Set `REDIS_URL` for the cache", ()),
        (f"Why is `{'x = compute(1); ' * 4}` slow in Redis?", "Why is   slow in Redis?", ("code",)),
        (
            "> Redis has 16384 slots\n> and replicas\nHow large is the Redis cache?",
            "How large is the Redis cache?",
            ("quote",),
        ),
        ("> Redis 有 16384 个槽\nRedis 缓存要多大内存？", "Redis 缓存要多大内存？", ("quote",)),
        ("On 3 March, Ana wrote:\n> see you\nWhere is the Redis cache?", "Where is the Redis cache?", ("quote",)),
        ("3 月 3 日安娜写道：\n> 再见\nRedis 缓存放在哪里？", "Redis 缓存放在哪里？", ("quote",)),
        (f"订单查询报错：\n{PYTHON}", "订单查询报错：\nKeyError: 'order:42'", ("stack trace",)),
        (f"Our lookup fails:\n{PYTHON}", "Our lookup fails:\nKeyError: 'order:42'", ("stack trace",)),
        (JAVA, "java.lang.NullPointerException: total is null", ("stack trace",)),
        (JAVASCRIPT, "TypeError: items.map is not a function", ("stack trace",)),
        (RUST, "thread 'main' panicked at src/main.rs:4:5: no entry", ("stack trace",)),
        ("We met at noon (in Paris)\nand at nine (at home)", "We met at noon (in Paris)\nand at nine (at home)", ()),
        ("a < b and b > a", "a < b and b > a", ()),
        ("How many are\n> 5\nof them?", "How many are\n> 5\nof them?", ()),
    ],
)
def test_what_is_cut_and_what_stays(text: str, left: str, cut: tuple[str, ...]) -> None:
    assert trim(text, stands_alone=stands_alone) == (left, cut)


def test_the_frames_of_a_panic_go_and_its_error_stays() -> None:
    left = trim(GO).text

    assert left.startswith("panic: runtime error: index out of range")
    assert "main.go" not in left


def test_a_question_about_a_quote_keeps_its_beginning() -> None:
    assert trim("> Redis has 16384 slots\nIs this right?", stands_alone=stands_alone) == (
        "Redis has 16384 slots\nIs this right?",
        ("quote",),
    )
    assert (
        trim("> Redis 有 16384 个槽\n这个对吗？", stands_alone=stands_alone).text == "Redis 有 16384 个槽\n这个对吗？"
    )
    long = trim("> " + "slot " * 1000 + "\nIs this right?", stands_alone=stands_alone).text
    assert len(long) < 250


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("```python\nimport redis\nredis.get(1)\n```", "import redis\nredis.get(1)"),
        ("> only this", "only this"),
        ("```\n" + "x = 1\n" * 1000 + "```", ("x = 1\n" * 34)[:200].strip()),
        ("```\n```", "```\n```"),
    ],
)
def test_a_message_of_nothing_else_keeps_its_beginning(text: str, left: str) -> None:
    assert trim(text).text == left


def test_a_fence_that_is_never_closed_hides_no_question() -> None:
    text = "Look:\n```\nredis.get(None)\nWhy does it fail?"

    assert trim(text) == (text, ())


@given(
    st.lists(
        st.sampled_from(
            [
                "```",
                "~~~",
                "> quoted",
                "Why?",
                "",
                '  File "a", line 1',
                "\tat a.b(C.java:1)",
                "`" + "y" * 60 + "`",
                "词",
            ]
        )
        | st.text(max_size=20),
        max_size=12,
    )
)
def test_what_was_said_is_never_lost(lines: list[str]) -> None:
    text = "\n".join(lines)

    left, cut = trim(text, stands_alone=stands_alone)

    assert bool(left.strip()) == bool(text.strip())
    assert set(cut) <= set(TRIMMED)
    if not cut:
        assert left == text


@pytest.mark.parametrize(
    "text",
    [
        "`" * 100_000 + "\n",
        "`a" * 50_000 + "\n",
        " " * 100_000 + "\nx",
        "```\n" * 30_000,
        ("\tat a" * 20_000) + "\n",
        "\n".join(["\tat a.b(C.java:1)", "x"] * 20_000),
        "> " * 50_000 + "\n",
        "On " * 40_000 + "\n",
        "Traceback (most recent call last):\n" * 10_000,
    ],
)
def test_long_and_repetitive_texts_are_no_trap(text: str) -> None:
    assert trim(text).text.strip()


# ------------------------------------------------------------------------------------------------------ in a query


@pytest.mark.parametrize("question", ["Why does the Redis cache fail here?", "Redis 缓存为什么在这里失败？"])
def test_a_query_tells_what_was_cut_from_each_message(question: str) -> None:
    messages = [f"{question}\n```\n" + "secret = 1\n" * 500 + "```"]

    query = build_query(messages)

    assert query.text == question
    assert query.reasons[0].cut == ("code",)


def test_what_was_pasted_does_not_bring_a_topic_along() -> None:
    pasted = "```\n" + "hiking trail weekend mountain\n" * 50 + "```"
    messages = [f"How large is our Redis cache?\n{pasted}", "Where can I go hiking this weekend?"]

    assert build_query(messages).text == "Where can I go hiking this weekend?"
