"""Times as people give them (datetime, ISO 8601 text, epoch seconds) and as the engine counts them (epoch seconds)."""

from __future__ import annotations

import math
import numbers
from datetime import UTC, date, datetime, timedelta
from typing import Final

from jiyi.quoted import quoted

TimeLike = datetime | str | float | int

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_S: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH).total_seconds()
_MAX_S: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH).total_seconds()
# The year 5138. Anything larger was meant in milliseconds.
_LARGEST_SECONDS: Final = 1e11


def to_datetime(value: object, field: str = "timestamp") -> datetime:
    """Return `value` as an aware datetime in UTC.

    Args:
        value: A datetime (naive ones are UTC), a date (its midnight), ISO 8601 text ("2026-03-02T09:30:00Z",
            "2026-03-02"), or epoch seconds.
        field: What the value is called in error messages.

    Raises:
        TypeError: For any other type.
        ValueError: For text that is no ISO 8601 time, NaN or infinity, a time outside the years 1 to 9999, or
            a number over 1e11, which can only be milliseconds.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.replace(tzinfo=UTC)
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise ValueError(f"{field} {value} is outside the years 1 to 9999 in UTC") from None
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError(
                f"{field} {quoted(value)} is not an ISO 8601 time; write 2026-03-02T09:30:00Z or 2026-03-02"
            ) from None
        return to_datetime(parsed, field)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
        if not math.isfinite(seconds):
            raise ValueError(f"{field} is not a finite number of epoch seconds; write 1772443800 or an ISO 8601 time")
        if abs(seconds) > _LARGEST_SECONDS:
            raise ValueError(f"{field} {seconds:.0f} looks like milliseconds; pass epoch seconds (divide by 1000)")
        if not _MIN_S <= seconds <= _MAX_S:
            raise ValueError(f"{field} {seconds:.0f} is outside the years 1 to 9999")
        return _EPOCH + timedelta(seconds=seconds)
    raise TypeError(f"{field} must be a datetime, ISO 8601 text or epoch seconds, got {type(value).__name__}")


def to_seconds(value: datetime) -> float:
    """Return an aware datetime as epoch seconds, exact to the microsecond."""
    return (value - _EPOCH) / timedelta(seconds=1)


def to_microseconds(value: datetime) -> int:
    """Return an aware datetime as whole microseconds since the epoch: exact, as the ledger keeps it."""
    since = value - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_microseconds(microseconds: int) -> datetime:
    """Return microseconds since the epoch as an aware datetime in UTC (the inverse of `to_microseconds`)."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_text(value: datetime) -> str:
    """Return an aware datetime as ISO 8601 text in UTC with a "Z"."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def utc_now() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)
