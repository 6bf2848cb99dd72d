"""LoCoMo's own JSON (Maharana et al. 2024, `locomo10.json`) as an eval set.

A file is a list of conversations, or one:

    {"sample_id": "conv-26",
     "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2023",
                      "session_1": [{"speaker": "Ana", "dia_id": "D1:1", "text": "…", "blip_caption": "…"}, …], …},
     "qa": [{"question": "…", "evidence": ["D1:3"], "category": 2}, …]}

Each turn becomes an episodic memory `conv-26/D1:3` of the namespace `conv-26` and the session `s1`, one second after
the one before it; what an image shows follows the text as `[image: …]`. Summaries, observations and answers are not
read: they were made from the turns, or are what is asked for.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from jiyi.evaluation.scoring import ADVERSARIAL
from jiyi.evaluation.sets import EvalSet, EvalSetError, Question
from jiyi.memory import Memory, checked_name
from jiyi.quoted import quoted
from jiyi.timestamps import to_datetime

#: What the numbers of `category` stand for.
CATEGORIES: Final[Mapping[int, str]] = {
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    4: "single-hop",
    5: ADVERSARIAL,
}

_MONTHS: Final = "january february march april may june july august september october november december".split()
_DATE: Final = re.compile(r"(\d{1,2}):(\d{2})\s*([ap])m on (\d{1,2}) ([a-z]+),? (\d{4})", re.IGNORECASE)
_SESSION: Final = re.compile(r"session_(\d+)")
# The annotations also have "D8:6; D9:17" in one text, "D:11:26" and "D30:05".
_TURN: Final = re.compile(r"D:?(\d+):(\d+)")


def read_locomo(path: str | os.PathLike[str]) -> EvalSet:
    """Read conversations in LoCoMo's layout.

    Evidence that names no turn is left out and counted in `left_out`; a question that has none left is asked and not
    scored.

    Raises:
        EvalSetError: the file is not JSON, or not in that layout; the message says where.
        FileNotFoundError: there is no such file.
    """
    source = str(path)
    try:
        content = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise EvalSetError(
            source, f"is not JSON ({error}); an eval set is LoCoMo's JSON, or a folder of memories.jsonl, queries.jsonl"
        ) from None
    memories: list[Memory] = []
    questions: list[Question] = []
    left_out = 0
    names: set[str] = set()
    for i, sample in enumerate(content if isinstance(content, list) else [content]):
        place = f"conversation {i}"
        try:
            record = _mapping(sample, "it")
            name = checked_name(record.get("sample_id", f"conversation-{i}"), "sample_id")
            place = f"conversation {name}"
            if name in names:
                raise ValueError("another one has this sample_id; each needs its own")
            names.add(name)
            turns = list(_turns(name, _mapping(record.get("conversation"), "conversation")))
            known = {memory.id for memory in turns}
            asked, unknown = _questions(name, record.get("qa", []), known)
        except (TypeError, ValueError) as error:
            raise EvalSetError(source, f"{place}: {error}") from None
        memories += turns
        questions += asked
        left_out += unknown
    return EvalSet(memories, questions, left_out)


def _turns(name: str, conversation: Mapping[str, Any]) -> Iterator[Memory]:
    numbers = sorted(int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key)))
    if not numbers:
        raise ValueError("conversation holds no session_1, session_2, …: it is not in LoCoMo's layout")
    for number in numbers:
        key = f"session_{number}"
        turns = conversation[key]
        if not isinstance(turns, list):
            raise TypeError(f"{key} must be a list of turns, got {type(turns).__name__}")
        if not turns:
            continue
        started = _moment(conversation.get(f"{key}_date_time"), f"{key}_date_time")
        for place, turn in enumerate(turns):
            try:
                record = _mapping(turn, "it")
                text = _text(record)
                if not text:
                    continue
                yield Memory(
                    id=f"{name}/{_turn_id(record.get('dia_id'))}",
                    namespace=name,
                    session=f"s{number}",
                    timestamp=started + timedelta(seconds=place),
                    speaker=record.get("speaker"),
                    text=text,
                )
            except (TypeError, ValueError) as error:
                raise ValueError(f"{key}, turn {place}: {error}") from None


def _text(turn: Mapping[str, Any]) -> str:
    said, image = turn.get("text") or "", turn.get("blip_caption") or ""
    for what, value in (("text", said), ("blip_caption", image)):
        if not isinstance(value, str):
            raise TypeError(f"{what} must be text, got {type(value).__name__}")
    return f"{said.strip()} [image: {image.strip()}]".strip() if image.strip() else said.strip()


def _questions(name: str, qa: object, known: set[str]) -> tuple[list[Question], int]:
    if not isinstance(qa, list):
        raise TypeError(f"qa must be a list of questions, got {type(qa).__name__}")
    questions: list[Question] = []
    left_out = 0
    for i, item in enumerate(qa):
        try:
            record = _mapping(item, "it")
            query, category = record.get("question"), record.get("category")
            if not isinstance(query, str):
                raise TypeError(f"question must be text, got {type(query).__name__}")
            if isinstance(category, bool) or not isinstance(category, int):
                raise TypeError(f"category must be a number (1 to 5), got {type(category).__name__}")
            evidence = record.get("evidence") or []
            named: list[str] = []
            for text in [evidence] if isinstance(evidence, str) else evidence:
                turns = [f"{name}/{turn}" for turn in _turns_named(text)]
                left_out += not turns
                named += turns
        except (TypeError, ValueError) as error:
            raise ValueError(f"qa {i}: {error}") from None
        relevant = tuple(dict.fromkeys(turn for turn in named if turn in known))
        left_out += sum(turn not in known for turn in dict.fromkeys(named))
        questions.append(
            Question(f"{name}/q{i}", name, query, relevant, CATEGORIES.get(category, f"category {category}"))
        )
    return questions, left_out


def _turn_id(value: object) -> str:
    found = _turns_named(value)
    if len(found) != 1:
        raise ValueError(f"dia_id is {quoted(value)}; it must be such as 'D1:3'")
    return found[0]


def _turns_named(value: object) -> list[str]:
    if not isinstance(value, str):
        raise TypeError(f"the id of a turn must be text such as 'D1:3', got {type(value).__name__}")
    return [f"D{int(session)}:{int(turn)}" for session, turn in _TURN.findall(value)]


def _moment(value: object, what: str) -> datetime:
    match = _DATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        try:
            return to_datetime(value, what)
        except (TypeError, ValueError):
            raise ValueError(
                f"{what} is {quoted(value)}; it must be such as '1:56 pm on 8 May, 2023', or ISO 8601"
            ) from None
    hour, minute, half, day, month, year = match.groups()
    if month.casefold() not in _MONTHS:
        raise ValueError(f"{what} is {quoted(value)}; {month!r} is no month")
    if not 1 <= int(hour) <= 12:
        raise ValueError(f"{what} is {quoted(value)}; hours with am and pm go from 1 to 12")
    return datetime(
        int(year),
        _MONTHS.index(month.casefold()) + 1,
        int(day),
        int(hour) % 12 + (12 if half in "pP" else 0),
        int(minute),
        tzinfo=UTC,
    )


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} must be a JSON object, got {type(value).__name__}")
    return value
