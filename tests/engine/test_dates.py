"""Dates that texts name: their parts, and the time they mean from a given moment on."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.dates import NONE, named_dates
from jiyi.text import fold

# A Monday.
NOW = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)


def parts(text: str) -> set[str]:
    return set(named_dates(fold(text), NOW.timestamp()).parts)


def spans(text: str, now: datetime = NOW) -> list[tuple[str, str]]:
    """First and last day of each."""
    found = named_dates(fold(text), now.timestamp()).spans
    return [
        (
            datetime.fromtimestamp(span.start_s, UTC).date().isoformat(),
            (datetime.fromtimestamp(span.end_s, UTC).date() - timedelta(days=1)).isoformat(),
        )
        for span in found
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8 May 2023", "y2023 m5 d8"),
        ("the 8th of May, 2023", "y2023 m5 d8"),
        ("May 8th, 2023", "y2023 m5 d8"),
        ("on 2023-05-08", "y2023 m5 d8"),
        ("2023/5/8", "y2023 m5 d8"),
        ("2023年5月8日", "y2023 m5 d8"),
        ("５月８号", "m5 d8"),
        ("May 2023", "y2023 m5"),
        ("in May", "m5"),
        ("last march", "m3"),
        ("on Sept. 3", "m9 d3"),
        ("in 2019", "y2019"),
        ("2019年", "y2019"),
        ("2023-13-40", "y2023"),
        ("三月五日", "m3 d5"),
        ("十二月二十五号", "m12 d25"),
        # what is none
        ("I may go on a march", ""),
        ("the decor, a market, an octopus", ""),
        ("room 2047b, 12345", ""),
        ("9:30, 3.11, 100%", ""),
        ("", ""),
    ],
)
def test_parts(text: str, expected: str) -> None:
    assert parts(text) == set(expected.split())
    assert named_dates(fold(text)).spans == ()  # without a moment


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2023-05-08", "2023-05-08", "2023-05-08"),
        ("in May 2023", "2023-05-01", "2023-05-31"),
        ("in 2024", "2024-01-01", "2024-12-31"),
        ("5月8日", "2026-05-08", "2026-05-08"),
        ("in december", "2025-12-01", "2025-12-31"),  # the last one that has begun
        ("yesterday", "2026-11-29", "2026-11-29"),
        ("昨天", "2026-11-29", "2026-11-29"),
        ("大前天", "2026-11-27", "2026-11-27"),
        ("the day before yesterday", "2026-11-28", "2026-11-28"),
        ("3 days ago", "2026-11-27", "2026-11-27"),
        ("three days ago", "2026-11-27", "2026-11-27"),
        ("三天前", "2026-11-27", "2026-11-27"),
        ("十二天之前", "2026-11-18", "2026-11-18"),
        ("two weeks ago", "2026-11-16", "2026-11-22"),
        ("两周前", "2026-11-16", "2026-11-22"),
        ("两个星期前", "2026-11-16", "2026-11-22"),
        ("a couple weeks ago", "2026-11-16", "2026-11-22"),
        ("last week", "2026-11-23", "2026-11-29"),
        ("上周", "2026-11-23", "2026-11-29"),
        ("上个礼拜", "2026-11-23", "2026-11-29"),
        ("上上周", "2026-11-16", "2026-11-22"),
        ("上周五", "2026-11-27", "2026-11-27"),
        ("这周一", "2026-11-30", "2026-11-30"),
        ("上周末", "2026-11-28", "2026-11-29"),
        ("last weekend", "2026-11-28", "2026-11-29"),
        ("last Friday", "2026-11-27", "2026-11-27"),
        ("on Monday", "2026-11-23", "2026-11-23"),
        ("last month", "2026-10-01", "2026-10-31"),
        ("上个月", "2026-10-01", "2026-10-31"),
        ("上上个月", "2026-09-01", "2026-09-30"),
        ("三个月前", "2026-08-01", "2026-08-31"),
        ("last year", "2025-01-01", "2025-12-31"),
        ("去年", "2025-01-01", "2025-12-31"),
        ("前年", "2024-01-01", "2024-12-31"),
        ("two years ago", "2024-01-01", "2024-12-31"),
        ("十五天前的笔记", "2026-11-15", "2026-11-15"),
        ("二十天前", "2026-11-10", "2026-11-10"),
        ("fifteen days ago", "2026-11-15", "2026-11-15"),
        ("a couple of days ago", "2026-11-28", "2026-11-28"),
        ("half a year ago", "2026-05-01", "2026-05-31"),
        ("半年前", "2026-05-01", "2026-05-31"),
        ("去年3月", "2025-03-01", "2025-03-31"),
        ("去年三月五日", "2025-03-05", "2025-03-05"),
        ("the last 3 days", "2026-11-27", "2026-11-30"),
        ("最近三天", "2026-11-27", "2026-11-30"),
        ("this Monday", "2026-11-30", "2026-11-30"),
    ],
)
def test_spans(text: str, first: str, last: str) -> None:
    assert spans(text) == [(first, last)]


def test_a_day_that_counts_from_now_is_also_a_date() -> None:
    assert parts("what did I do yesterday") == {"y2026", "m11", "d29"}
    assert parts("上个月") == {"y2026", "m10"}
    assert parts("去年") == {"y2025"}


def test_today_and_tomorrow_are_dates_and_no_time_that_memories_are_of() -> None:
    assert (parts("tomorrow"), spans("明天吃什么")) == ({"y2026", "m12", "d1"}, [])
    assert (parts("今天"), spans("what shall I cook today")) == ({"y2026", "m11", "d30"}, [])


def test_several() -> None:
    assert spans("between May 2023 and last week") == [("2023-05-01", "2023-05-31"), ("2026-11-23", "2026-11-29")]


@pytest.mark.parametrize(
    "text", ["31 June 2023", "9999年", "1000 weeks ago from 0001", "9999 years ago", "9999 days ago"]
)
def test_days_that_do_not_exist(text: str) -> None:
    named_dates(fold(text), 0.0)
    named_dates(fold(text), -6.2e10)  # the year 5


@given(st.text("天周月年上前个二5 2023-/.日may agolstweek一", max_size=40), st.floats(-1e18, 1e18))
def test_any_text_at_any_moment(text: str, now_s: float) -> None:
    for span in named_dates(fold(text), now_s).spans:
        assert span.start_s < span.end_s


@given(st.dates(min_value=date(1900, 1, 1), max_value=date(2099, 12, 31)))
def test_iso_dates(day: date) -> None:
    expected = {f"y{day.year}", f"m{day.month}", f"d{day.day}"}
    assert parts(f"on {day.isoformat()}.") == expected
    assert parts(f"{day.year}年{day.month}月{day.day}日") == expected


def test_nothing_is_quick() -> None:
    assert named_dates("hello there", 0.0) is NONE


def test_a_table_of_dates_is_cut_short() -> None:
    assert len(named_dates("5月8日 " * 10_000, 1.7e9).spans) <= 64
    assert len(named_dates("yesterday " * 10_000, 1.7e9).spans) <= 64
