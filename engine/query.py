"""What to search for, from the last messages of a conversation.

Three things spoil a query made of the last messages: fillers ("嗯", "ok"), words of a topic the user has just left,
and a follow-up ("那它支持集群吗？") without what it follows. So fillers are left out, a clear change of topic cuts off
what came before it, and where only a follow-up is left, the message it follows is fetched from further back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from jiyi.fillers import is_filler, strip_filler
from jiyi.topic import Turn, new_topic, stands_alone

#: Why a message is not in a query.
REASONS: Final = ("filler", "too old", "left topic", "empty")

_USER: Final = frozenset({"user", "human"})
_ASSISTANT: Final = frozenset({"assistant", "ai", "model", "bot"})
_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})
_MISSING: Final = object()
# Of a long message (a pasted log) only the ends are read, at least this many characters each: an announcement stands
# in the first, and the query is cut from the last.
_LONGEST_END: Final = 4000


class DroppedMessage(NamedTuple):
    """A message of the user or the assistant that is not in the query."""

    message: Any
    """The caller's own object."""
    reason: str
    """One of `REASONS`."""


@dataclass(frozen=True, slots=True)
class BuiltQuery:
    """A query, and which messages it was made of."""

    text: str
    """Empty only if no message of the user or the assistant had text."""
    kept: tuple[Any, ...] = ()
    """The messages used, oldest first: the caller's own objects."""
    dropped: tuple[DroppedMessage, ...] = ()
    """The others of the user and the assistant, oldest first."""

    def __str__(self) -> str:
        return self.text


class _Said(NamedTuple):
    message: Any
    text: str
    from_user: bool


def build_query(messages: Iterable[Any], *, last: int = 3, max_chars: int = 2000) -> BuiltQuery:
    """Build the query for a search from the last messages.

    Args:
        messages: The conversation, oldest first. Each is a mapping or an object with `role` and `content`, or
            a text (then it is the user's). Content is text, None, or a list of parts as OpenAI and Anthropic
            hold it, of which the text counts. Messages of other roles than user and assistant (system, tool,
            …) are passed over.
        last: How many messages of user and assistant with text are looked at, from 1.
        max_chars: How long the query may get, in characters, from 1: its last ones are kept.

    Returns:
        BuiltQuery: Its text is the kept messages, one a line, without filler clauses around them ("Sure! …")
            and without the words that announced a change of topic. It is never empty if any message had text:
            where all are fillers, it is the user's last one.

    Raises:
        TypeError, ValueError: For anything else than such messages, naming the message.

    >>> build_query(["Redis 集群怎么配置？", "好的", "换个话题，周末去哪里徒步？"]).text
    '周末去哪里徒步？'
    >>> build_query(["Tell me about Redis", "ok", "sure", "thanks", "does it cluster?"]).text
    'Tell me about Redis\\ndoes it cluster?'
    """
    _check_count(last, "last")
    _check_count(max_chars, "max_chars")
    said = [one._replace(text=_ends(one.text, max(max_chars, _LONGEST_END))) for one in _said(messages)]
    reasons: dict[int, str] = {i: "empty" for i, one in enumerate(said) if not one.text}
    spoken = [i for i, one in enumerate(said) if one.text]
    older, window = spoken[:-last], spoken[-last:]
    reasons |= dict.fromkeys(older, "too old")
    reasons |= {i: "filler" for i in window if is_filler(said[i].text)}

    chosen = [i for i in window if i not in reasons]
    chosen = _followed(said, older, last - len(chosen), chosen) + chosen
    chosen, texts = _without_left_topic(said, chosen, reasons)
    if not any(texts[i] for i in chosen) and spoken:
        # Every message is filler, or announces a new topic and no more: better the user's words than none.
        reasons |= dict.fromkeys(chosen, "filler")
        chosen = [max(spoken, key=lambda i: (said[i].from_user, i))]
        texts = {chosen[0]: said[chosen[0]].text}

    kept: list[int] = []
    room = max_chars
    for i in reversed(chosen):
        if texts[i] and room > 0:
            kept.append(i)
            room -= len(texts[i]) + 1  # the line break
        elif texts[i]:
            reasons[i] = "too old"
        else:
            reasons[i] = "filler"  # nothing but the announcement of a new topic
    kept.reverse()
    return BuiltQuery(
        "\n".join(texts[i] for i in kept)[-max_chars:],
        tuple(said[i].message for i in kept),
        tuple(DroppedMessage(said[i].message, reasons[i]) for i in sorted(reasons) if i not in kept),
    )


def _followed(said: list[_Said], older: list[int], most: int, chosen: list[int]) -> list[int]:
    """The older messages, back to the user's last that stands alone, if none of the chosen ones does."""
    found: list[int] = []
    if not any(stands_alone(said[i].text) for i in chosen):
        for i in reversed(older):
            if len(found) == most:
                break
            if not is_filler(said[i].text):
                found.append(i)
                if said[i].from_user and stands_alone(said[i].text):
                    break
    return found[::-1]


def _without_left_topic(
    said: list[_Said], chosen: list[int], reasons: dict[int, str]
) -> tuple[list[int], dict[int, str]]:
    """Cut what stands before the user's last change of topic; return what is left, and its texts without fillers."""
    texts = {i: strip_filler(said[i].text) for i in chosen}
    for place in range(len(chosen) - 1, -1, -1):
        i = chosen[place]
        if not said[i].from_user:
            continue
        rest = new_topic(said[i].text, [Turn(said[j].text, said[j].from_user) for j in chosen[:place]])
        if rest is not None:
            reasons.update(dict.fromkeys(chosen[:place], "left topic"))
            texts[i] = strip_filler(rest)
            return chosen[place:], texts
    return chosen, texts


# ----------------------------------------------------------------------------------------------------- messages


def _said(messages: Iterable[Any]) -> list[_Said]:
    """What users and assistants said, in order; the text is empty where they said nothing that can be seen."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise TypeError(
            f"messages must be a list of messages, got {type(messages).__name__}; put a single message in a list"
        )
    said = []
    for i, message in enumerate(messages):
        role = _role(message, f"messages[{i}]")
        if role in _USER or role in _ASSISTANT:
            said.append(_Said(message, _text(message, f"messages[{i}]"), role in _USER))
    return said


def _field(holder: Any, name: str) -> Any:
    return holder.get(name, _MISSING) if isinstance(holder, Mapping) else getattr(holder, name, _MISSING)


def _role(message: Any, where: str) -> str:
    if isinstance(message, str):
        return "user"
    role = _field(message, "role")
    if role is _MISSING:
        role = _field(message, "type")  # "human", "ai", … on messages of some frameworks
    if role is _MISSING and _field(message, "content") is not _MISSING:
        return "user"
    if role is _MISSING:
        raise TypeError(
            f"{where} is {type(message).__name__} without role and content; pass text, a mapping such as "
            '{"role": "user", "content": "…"}, or an object with these attributes'
        )
    role = getattr(role, "value", role)  # an enum's
    if not isinstance(role, str):
        raise TypeError(f"the role of {where} is {type(role).__name__}; it must be text, such as user or assistant")
    return role.strip().casefold()


def _text(message: Any, where: str) -> str:
    content = message if isinstance(message, str) else _field(message, "content")
    if content is None or content is _MISSING:
        return ""
    if isinstance(content, str):
        return _visible(content)
    if isinstance(content, Mapping) or not isinstance(content, Iterable):
        raise TypeError(f"the content of {where} is {type(content).__name__}; it must be text, None or a list of parts")
    return _visible("\n".join(text for part in content if (text := _part_text(part, where)).strip()))


def _part_text(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    kind, text = _field(part, "type"), _field(part, "text")
    if kind is not _MISSING and kind not in _TEXT_PARTS:
        return ""
    if text is None or text is _MISSING:
        return ""
    if not isinstance(text, str):
        raise TypeError(f"a text part of {where} holds {type(text).__name__}; its text must be text")
    return text


def _ends(text: str, length: int) -> str:
    return text if len(text) <= 2 * length else f"{text[:length]}\n{text[-length:]}"


def _visible(text: str) -> str:
    """A text without white space around it, and empty if nothing can be seen; lone surrogates become U+FFFD."""
    if not any(character.isprintable() and not character.isspace() for character in text):
        return ""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.strip()


def _check_count(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r:.80} ({type(value).__name__}); it must be a whole number from 1 on")
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be a whole number from 1 on")
