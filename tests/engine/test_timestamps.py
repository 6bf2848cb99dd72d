"""Times in and out: every way to write one, and every way to write one wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.timestamps import from_microseconds, to_datetime, to_microseconds, to_seconds, to_text

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SAME = [
    NOON,
    datetime(2026, 3, 2, 12),
    datetime(2026, 3, 2, 20, tzinfo=timezone(timedelta(hours=8))),
    "2026-03-02T12:00:00Z",
    "2026-03-02T12:00:00",
    " 2026-03-02 20:00:00+08:00 ",
    1772452800,
    1772452800.0,
    np.int64(1772452800),
    np.float64(1772452800),
]


@pytest.mark.parametrize("value", SAME, ids=str)
def test_one_moment_however_it_is_written(value: Any) -> None:
    assert to_datetime(value) == NOON
    assert to_datetime(value).tzinfo is UTC


def test_corners_that_are_allowed() -> None:
    assert to_datetime("2026-03-02") == datetime(2026, 3, 2, tzinfo=UTC)
    assert to_datetime(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert to_datetime(-1.5) == datetime(1969, 12, 31, 23, 59, 58, 500_000, tzinfo=UTC)
    assert to_datetime(1e11).year == 5138
    assert to_datetime(datetime.max).year == 9999
    assert to_datetime(datetime.min).year == 1


@pytest.mark.parametrize("value", [1e11 + 1, 1772452800000, -1e12, np.int64(1772452800000)])
def test_milliseconds_are_refused_and_said_to_be_milliseconds(value: Any) -> None:
    with pytest.raises(ValueError, match=r"milliseconds.*epoch seconds"):
        to_datetime(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "yesterday",
        "1772452800",
        "2026-13-01",
        "2026-02-30",
        float("nan"),
        float("inf"),
        -float("inf"),
        -9e10,
        10**400,
        "\ud800",
    ],
    ids=lambda value: repr(value)[:12],
)
def test_what_is_no_time_is_a_value_error_that_names_the_field(value: Any) -> None:
    with pytest.raises(ValueError, match="expires_at"):
        to_datetime(value, "expires_at")


@pytest.mark.parametrize("value", [None, True, b"2026", [2026], ..., 1j], ids=repr)
def test_other_types_are_type_errors_that_name_the_field(value: Any) -> None:
    with pytest.raises(TypeError, match="timestamp must be a datetime, ISO 8601 text or epoch seconds"):
        to_datetime(value)


def test_a_zone_that_leads_out_of_the_calendar() -> None:
    with pytest.raises(ValueError, match="outside the years"):
        to_datetime(datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))))
    with pytest.raises(ValueError, match="outside the years"):
        to_datetime(datetime.min.replace(tzinfo=timezone(timedelta(hours=1))))


@given(st.datetimes())
def test_microseconds_and_text_are_exact(value: datetime) -> None:
    aware = value.replace(tzinfo=UTC)
    assert from_microseconds(to_microseconds(aware)) == aware
    assert to_datetime(to_text(aware)) == aware
    assert to_text(aware).endswith("Z")


@given(st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2100, 1, 1)))
def test_seconds_are_exact_to_the_microsecond(value: datetime) -> None:
    aware = value.replace(tzinfo=UTC)
    assert to_seconds(aware) == aware.timestamp()
