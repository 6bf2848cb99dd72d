"""Dates that a text names: absolute ones ("8 May 2023", "5月8日"), and those that count from a moment ("上周五").

What is found is of two uses: parts (year, month, day), which are terms like words, and spans of time, which a memory's
own time may lie in or near. A bare "may" or "march" is a month only behind a word that makes it one ("in May").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from typing import Final, NamedTuple

_DAY: Final = timedelta(days=1)

_MONTHS: Final = {
    name: month
    for month, names in enumerate(
        (
            "january jan",
            "february feb",
            "march mar",
            "april apr",
            "may",
            "june jun",
            "july jul",
            "august aug",
            "september sep sept",
            "october oct",
            "november nov",
            "december dec",
        ),
        start=1,
    )
    for name in names.split()
}
_WEEKDAYS: Final = {
    name: day
    for day, names in enumerate(
        (
            "monday mon 一",
            "tuesday tue 二",
            "wednesday wed 三",
            "thursday thu 四",
            "friday fri 五",
            "saturday sat 六",
            "sunday sun 日 天",
        )
    )
    for name in names.split()
}
_NUMBERS: Final = {
    word: number
    for number, words in enumerate(
        "one a an|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|"
        "seventeen|eighteen|nineteen|twenty".split("|"),
        start=1,
    )
    for word in words.split()
} | {"a couple": 2, "a couple of": 2, "a few": 3, "thirty": 30}
_DIGITS_ZH: Final = {digit: number for number, digit in enumerate("一二三四五六七八九", start=1)} | {"两": 2}

_MONTH: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_SURE_MONTH: Final = "|".join(sorted(name for name in _MONTHS if name not in ("may", "march", "mar", "sep", "dec")))
_BEFORE_MONTH: Final = (
    "in|of|since|until|till|during|by|last|this|next|early|late|mid|before|after|from|to|through|every"
)
_WEEKDAY: Final = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_NUMBER: Final = r"\d{1,4}|" + "|".join(sorted(_NUMBERS, key=len, reverse=True))
_ONES_ZH: Final = "[一二三四五六七八九]"
_NUMBER_ZH: Final = rf"(?:\d{{1,4}}|{_ONES_ZH}?十{_ONES_ZH}?|{_ONES_ZH}|两)"
# Written-out months and days of months, which are read as if in digits.
_WRITTEN_ZH: Final = re.compile(rf"{_ONES_ZH}?十?(?:{_ONES_ZH}|十)(?=[月日号])")
_DAY_OF_MONTH: Final = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"


def _patterns(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, patterns))


_WITH_MONTH: Final = _patterns(
    rf"\b{_DAY_OF_MONTH}(?: of)? (?P<month>{_MONTH})\b\.?(?:,? (?P<y>(?:19|20)\d\d)\b)?",
    rf"\b(?P<month>{_MONTH})\.? {_DAY_OF_MONTH}\b(?:,? (?P<y>(?:19|20)\d\d)\b)?",
    rf"\b(?P<month>{_MONTH})\.?,? (?P<y>(?:19|20)\d\d)\b",
    rf"\b(?:(?P<month>{_SURE_MONTH})|(?:{_BEFORE_MONTH}) (?P<month2>{_MONTH}))\b",
)
_WITH_DIGITS: Final = _patterns(
    r"(?<!\d)(?P<y>(?:19|20)\d\d)(?:-|/|\.|年)(?P<m>\d{1,2})(?:(?:-|/|\.|月)(?P<d>\d{1,2}))?(?!\d)",
    r"(?:(?P<year>去年|前年|今年)的?|(?<!\d))(?P<m>\d{1,2})月(?:(?P<d>\d{1,2})[日号])?",
    r"(?<!\d)(?P<y>(?:19|20)\d\d)(?:年|(?![\d\w]))",
)
# What every date holds. Most texts hold none of it, and the patterns need not look.
# Patterns that begin with what they look for are found quickly, alternatives of them are not.
_YEAR_19: Final = re.compile(r"19\d\d")
_YEAR_20: Final = re.compile(r"20\d\d")
_MONTH_IN_DIGITS_ZH: Final = re.compile(r"[\d一二三四五六七八九十]月")
_MONTH_STARTS: Final = tuple(sorted({name[:3] for name in _MONTHS}))
_ANY_RELATIVE: Final = re.compile(
    r"[天日周年月]|星期|礼拜|昨晚|\b(?:yesterday|tomorrow|today|ago|last|this|past|previous|on)\b"
)
_YEARS_AGO_ZH: Final = {"今年": 0, "去年": 1, "前年": 2}
_DAYS_ZH: Final = {
    "大前天": -3,
    "前天": -2,
    "昨天": -1,
    "昨日": -1,
    "昨晚": -1,
    "今天": 0,
    "明天": 1,
    "后天": 2,
    "大后天": 3,
}
_RELATIVE: Final = re.compile(
    rf"\b(?P<dby>day before yesterday)\b|\b(?P<day>yesterday|last night|today|tomorrow)\b"
    rf"|(?P<half>\bhalf a year ago\b|半年(?:之|以)?前)"
    rf"|\b(?P<n>{_NUMBER}) (?P<unit>day|week|month|year)s? ago\b"
    rf"|\b(?:last|past|previous) (?P<past>{_NUMBER}) (?P<pastunit>day|week|month|year)s\b"
    rf"|\b(?P<last>last|this|past|previous) (?P<period>week(?:end)?|month|year)\b"
    rf"|\b(?P<lastday>last|on|this past|this) (?P<weekday>{_WEEKDAY})\b"
    rf"|(?P<dayzh>大前天|前天|昨天|昨日|昨晚|今天|明天|大后天|后天)"
    rf"|(?<![\d一二两三四五六七八九十百千万])(?P<nzh>{_NUMBER_ZH})"
    rf" ?(?P<unitzh>天|周|个?星期|个?礼拜|个月|年)(?:之|以)?前"
    rf"|(?:最近|过去|近)的?这?(?P<pastzh>{_NUMBER_ZH}) ?(?P<pastunitzh>天|周|个?星期|个?礼拜|个月|年)"
    rf"|(?P<weeks>上上|上|这|本)(?:个?(?:周|星期|礼拜))(?P<weekdayzh>[一二三四五六日天末])?"
    rf"|(?P<monthzh>上上?个?月|这个月|本月)|(?P<yearzh>去年|前年|今年)(?!的?\d{{1,2}}月)"
)
# A text that names more is a table; the first will do.
_MOST: Final = 64
_UNITS: Final = {
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "year",
    "天": "day",
    "周": "week",
    "年": "year",
}


class Span(NamedTuple):
    """A span of time, in epoch seconds: from the first moment to the one after the last."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class NamedDates:
    """What a text says of dates."""

    parts: frozenset[str] = frozenset()
    """Years, months and days: "y2023", "m5", "d8"."""
    spans: tuple[Span, ...] = ()
    """Where it tells them: only a query that is asked at a known moment does."""


NONE: Final = NamedDates()


def named_dates(folded: str, now_s: float | None = None) -> NamedDates:
    """Return the dates that a folded text names.

    Args:
        folded: see `text.fold`.
        now_s: the moment, in epoch seconds, from which "yesterday" counts, and before which "5月8日" was last; without
            one there are parts only, and none of what counts from it.
    """
    now = None if now_s is None else _moment(now_s)
    if not folded.isascii() and ("月" in folded or "日" in folded or "号" in folded):
        folded = _WRITTEN_ZH.sub(lambda match: str(_number_zh(match.group())), folded)
    absolute: tuple[re.Pattern[str], ...] = ()
    for start in _MONTH_STARTS:  # quicker than a pattern, and than any()
        if start in folded and _month_that_starts(start).search(folded) is not None:
            absolute = _WITH_MONTH
            break
    if (
        ("19" in folded and _YEAR_19.search(folded) is not None)
        or ("20" in folded and _YEAR_20.search(folded) is not None)
        or ("月" in folded and _MONTH_IN_DIGITS_ZH.search(folded) is not None)
    ):
        absolute += _WITH_DIGITS
    relative = now is not None and _ANY_RELATIVE.search(folded) is not None
    if not absolute and not relative:
        return NONE
    parts: set[str] = set()
    spans: list[Span] = []
    taken: list[tuple[int, int]] = []
    for pattern in absolute:
        for match in pattern.finditer(folded):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue  # part of a longer date
            if len(taken) == _MOST:
                break
            found = match.groupdict()
            name = found.get("month") or found.get("month2")
            year, month, day = (int(found.get(part) or 0) for part in "ymd")
            if now is not None and found.get("year"):
                year = now.year - _YEARS_AGO_ZH[found["year"]]
            month = _MONTHS[name] if name else month
            if month > 12 or day > 31:
                continue
            taken.append(match.span())
            parts.update(f"{part}{value}" for part, value in (("y", year), ("m", month), ("d", day)) if value)
            if now is not None and (span := _absolute_span(year, month, day, now)) is not None:
                spans.append(span)
    if now is not None and relative:
        for first, last, told in _relative(folded, now):
            if told:
                spans.append(Span(_seconds(first), _seconds(last)))
            if last - first == _DAY:
                parts.update((f"y{first.year}", f"m{first.month}", f"d{first.day}"))
            elif first.day == 1 and last.day == 1:  # months, a month or a year
                parts.add(f"y{first.year}")
                if last - first < 32 * _DAY:
                    parts.add(f"m{first.month}")
    return NamedDates(frozenset(parts), tuple(spans))


@cache
def _month_that_starts(start: str) -> re.Pattern[str]:
    """Finds names of the month that starts so as words, without which none of the patterns matches."""
    ends = sorted((name[3:] for name in _MONTHS if name.startswith(start)), key=len, reverse=True)
    return re.compile(rf"{start}(?<!\w{start})(?:{'|'.join(ends)})\b")  # a literal first: found quickly


def _moment(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _seconds(moment: datetime) -> float:
    return moment.timestamp()


def _absolute_span(year: int, month: int, day: int, now: datetime) -> Span | None:
    """A named day, month or year; without its year the last one that has begun."""
    try:
        if not year:
            year = now.year if datetime(now.year, month, day or 1, tzinfo=UTC) <= now else now.year - 1
        first = datetime(year, month or 1, day or 1, tzinfo=UTC)
        last = first + _DAY if day else _months_on(first, 1) if month else datetime(year + 1, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):  # 31 June; the year 9999
        return None
    return Span(_seconds(first), _seconds(last))


def _months_on(first: datetime, months: int) -> datetime:
    index = first.year * 12 + first.month - 1 + months
    return datetime(index // 12, index % 12 + 1, 1, tzinfo=UTC)


def _relative(folded: str, now: datetime) -> Iterator[tuple[datetime, datetime, bool]]:
    """First and last (exclusive) day of what counts from `now`, and whether memories can be of then.

    "Today" is in too many questions that ask of no day ("what shall I cook today"), and nothing has happened tomorrow:
    of these only the date counts.
    """
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    monday = today - today.weekday() * _DAY
    for match in islice(_RELATIVE.finditer(folded), _MOST):
        try:
            yield from _one_relative(match.groupdict(), today, monday)
        except (ValueError, OverflowError):  # before the year 1
            continue


def _one_relative(
    found: dict[str, str | None], today: datetime, monday: datetime
) -> Iterator[tuple[datetime, datetime, bool]]:
    if found["dby"]:
        yield today - 2 * _DAY, today - _DAY, True
    elif found["day"] or found["dayzh"]:
        english = {"yesterday": -1, "last night": -1, "today": 0, "tomorrow": 1}
        days = english[found["day"]] if found["day"] else _DAYS_ZH[str(found["dayzh"])]
        yield today + days * _DAY, today + (days + 1) * _DAY, days < 0
    elif found["half"]:
        yield (*_ago(today, monday, 6, "month"), True)
    elif found["n"] or found["nzh"]:
        yield (*_ago(today, monday, *_counted(found["n"] or found["nzh"], found["unit"] or found["unitzh"])), True)
    elif found["past"] or found["pastzh"]:
        count, unit = _counted(found["past"] or found["pastzh"], found["pastunit"] or found["pastunitzh"])
        days = {"day": 1, "week": 7, "month": 30, "year": 365}[unit] * count
        yield today - days * _DAY, today + _DAY, True
    elif found["period"]:
        back = 0 if found["last"] == "this" else 1
        if str(found["period"]).startswith("week"):
            start = monday - back * 7 * _DAY
            yield (start + 5 * _DAY if found["period"] == "weekend" else start), start + 7 * _DAY, True
        elif found["period"] == "month":
            yield _months_on(today, -back), _months_on(today, 1 - back), True
        else:
            yield _year(today.year - back), _year(today.year - back + 1), True
    elif found["weekday"]:
        weekday = _WEEKDAYS[str(found["weekday"])]
        ago = today.weekday() - weekday
        days = ago if found["lastday"] == "this" else ago % 7 or 7
        yield today - days * _DAY, today - (days - 1) * _DAY, days >= 0
    elif found["weeks"]:
        start = monday - {"上上": 14, "上": 7, "这": 0, "本": 0}[str(found["weeks"])] * _DAY
        named = found["weekdayzh"]
        if named == "末":
            yield start + 5 * _DAY, start + 7 * _DAY, True
        elif named:
            yield start + _WEEKDAYS[named] * _DAY, start + (_WEEKDAYS[named] + 1) * _DAY, True
        else:
            yield start, start + 7 * _DAY, True
    elif found["monthzh"]:
        back = str(found["monthzh"]).count("上")
        yield _months_on(today, -back), _months_on(today, 1 - back), True
    elif found["yearzh"]:
        year = today.year - _YEARS_AGO_ZH[str(found["yearzh"])]
        yield _year(year), _year(year + 1), True


def _counted(number: str | None, unit: str | None) -> tuple[int, str]:
    """A count as it is said, and its unit in English."""
    said, of = str(number), str(unit).removeprefix("个")
    count = _NUMBERS.get(said) or (int(said) if said.isdecimal() else _number_zh(said))
    return count, {"星期": "week", "礼拜": "week", "月": "month"}.get(of) or _UNITS[of]


def _number_zh(said: str) -> int:
    """A number below a hundred in Chinese words."""
    tens, ten, ones = said.rpartition("十")
    if not ten:
        return _DIGITS_ZH.get(said, 0)
    return 10 * _DIGITS_ZH.get(tens, 1) + _DIGITS_ZH.get(ones, 0)


def _year(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


def _ago(today: datetime, monday: datetime, count: int, unit: str) -> tuple[datetime, datetime]:
    if unit == "day":
        return today - count * _DAY, today - (count - 1) * _DAY
    if unit == "week":
        return monday - 7 * count * _DAY, monday - 7 * (count - 1) * _DAY
    if unit == "month":
        return _months_on(today, -count), _months_on(today, 1 - count)
    return _year(today.year - count), _year(today.year - count + 1)
