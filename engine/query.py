"""What to search for, from the last messages of a conversation.

Four things spoil a query made of the last messages: fillers ("嗯", "ok"), words of a topic the user has just left,
what was pasted (code, quotes, stack traces), and a follow-up ("那它支持集群吗？") without what it follows. So fillers
and what was pasted are left out, a clear change of topic cuts off what came before it, and where only a follow-up is
left, the message it follows is fetched from further back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from jiyi.fillers import is_filler, strip_filler
from jiyi.messages import ASSISTANT, USER, check_messages, role_of, text_of
from jiyi.quoted import quoted
from jiyi.topic import Related, Turn, new_topic, stands_alone
from jiyi.trim import trim

#: Why a message is in a query: it is the last that says something, of the window, what a follow-up follows, the first
#: of a topic, or the best there is where all are fillers.
KEPT_REASONS: Final = ("last", "recent", "followed", "new topic", "nothing else said")
#: Why a message is not in a query.
REASONS: Final = ("filler", "too old", "left topic", "empty")
#: What was cut from a message that is in a query: what was pasted, or what is over max_chars.
CUTS: Final = ("code", "quote", "stack trace", "length")

# Of a long message (a pasted log) only the ends are read, at least this many characters each: an announcement stands
# in the first, and the query is cut from the last.
_LONGEST_END: Final = 4000
# A follow-up this many messages after what it follows follows nothing any more; older messages are not read.
_FARTHEST: Final = 50


class DroppedMessage(NamedTuple):
    """A message of the user or the assistant that is not in the query."""

    message: Any
    """The caller's own object."""
    reason: str
    """One of `REASONS`."""


class KeptMessage(NamedTuple):
    """A message that is in the query."""

    message: Any
    """The caller's own object."""
    reason: str
    """One of `KEPT_REASONS`."""
    cut: tuple[str, ...] = ()
    """What was cut from it, of `CUTS`."""


@dataclass(frozen=True, slots=True)
class BuiltQuery:
    """A query, and which messages it was made of."""

    text: str
    """Empty only if no message of the user or the assistant had text."""
    kept: tuple[Any, ...] = ()
    """The messages used, oldest first: the caller's own objects."""
    dropped: tuple[DroppedMessage, ...] = ()
    """The others of the user and the assistant, oldest first."""
    reasons: tuple[KeptMessage, ...] = ()
    """Why each message of `kept` is in the query, in the same order."""

    def __str__(self) -> str:
        return self.text


class _Said(NamedTuple):
    message: Any
    text: str
    from_user: bool
    cut: tuple[str, ...] = ()


def build_query(
    messages: Iterable[Any], *, last: int = 3, max_chars: int = 2000, related: Related | None = None
) -> BuiltQuery:
    """Build the query for a search from the last messages.

    Args:
        messages: The conversation, oldest first. Each is a mapping or an object with `role` and `content`, or
            a text (then it is the user's). Content is text, None, or a list of parts as OpenAI and Anthropic
            hold it, of which the text counts. Messages of other roles than user and assistant (system, tool,
            …) are passed over.
        last: How many messages of user and assistant with text are looked at, from 1.
        max_chars: How long the query may get, in characters, from 1: its last ones are kept.
        related: Tells how much two texts have to do with each other, so that a change of topic is told by sense as
            well as by words: a `relatedness.Relatedness` of an embedder (see `topic.new_topic`).

    Returns:
        BuiltQuery: Its text is the kept messages, one a line, without filler clauses around them ("Sure! …")
            without the words that announced a change of topic, and without pasted code, quotes and stack traces.
            It is never empty if any message had text: where all are fillers, it is the user's last one.

    Raises:
        TypeError, ValueError: For anything else than such messages, naming the message.

    >>> build_query(["Redis 集群怎么配置？", "好的", "换个话题，周末去哪里徒步？"]).text
    '周末去哪里徒步？'
    >>> build_query(["Tell me about Redis", "ok", "sure", "thanks", "does it cluster?"]).text
    'Tell me about Redis\\ndoes it cluster?'
    """
    _check_count(last, "last")
    _check_count(max_chars, "max_chars")
    if related is not None and not callable(related):
        raise TypeError(
            f"related is {type(related).__name__}; pass a function of two texts, such as Relatedness(embedder.embed)"
        )
    said = _said(messages)
    reasons: dict[int, str] = {i: "empty" for i, one in enumerate(said) if not one.text}
    spoken = [i for i, one in enumerate(said) if one.text]
    for i in spoken[-last - _FARTHEST :]:
        said[i] = _read(said[i], max(max_chars, _LONGEST_END))
    older, window = spoken[:-last], spoken[-last:]
    reasons |= dict.fromkeys(older, "too old")
    reasons |= {i: "filler" for i in window if is_filler(said[i].text)}

    chosen = [i for i in window if i not in reasons]
    why = dict.fromkeys(chosen, "recent") | dict.fromkeys(chosen[-1:], "last")
    followed = _followed(said, older[-_FARTHEST:], last - len(chosen), chosen)
    why |= dict.fromkeys(followed, "followed")
    chosen = followed + chosen
    whole = len(chosen)
    chosen, texts = _without_left_topic(said, chosen, reasons, related)
    if len(chosen) < whole:
        why[chosen[0]] = "new topic"
    if not any(texts[i] for i in chosen) and spoken:
        # Every message is filler, or announces a new topic and no more: better the user's words than none.
        reasons |= dict.fromkeys(chosen, "filler")
        chosen = [max(spoken, key=lambda i: (said[i].from_user, i))]
        texts = {chosen[0]: said[chosen[0]].text}
        why[chosen[0]] = "nothing else said"

    kept: list[int] = []
    cut = {i: said[i].cut for i in chosen}
    room = max_chars
    for i in reversed(chosen):
        if texts[i] and room > 0:
            kept.append(i)
            if len(texts[i]) > room:
                cut[i] = tuple(name for name in CUTS if name in (*cut[i], "length"))
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
        tuple(KeptMessage(said[i].message, why[i], cut[i]) for i in kept),
    )


def _read(one: _Said, longest_end: int) -> _Said:
    """A message without what was pasted, and of a long one the ends."""
    trimmed = trim(one.text, stands_alone=stands_alone)
    text = _ends(trimmed.text, longest_end)
    shortened = ("length",) if len(text) < len(trimmed.text) else ()
    return one._replace(text=text, cut=(*trimmed.cut, *shortened))


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
    said: list[_Said], chosen: list[int], reasons: dict[int, str], related: Related | None
) -> tuple[list[int], dict[int, str]]:
    """Cut what stands before the user's last change of topic; return what is left, and its texts without fillers."""
    texts = {i: strip_filler(said[i].text) for i in chosen}
    for place in range(len(chosen) - 1, -1, -1):
        i = chosen[place]
        if not said[i].from_user:
            continue
        earlier = [Turn(said[j].text, said[j].from_user) for j in chosen[:place]]
        rest = new_topic(said[i].text, earlier, related)
        if rest is not None:
            reasons.update(dict.fromkeys(chosen[:place], "left topic"))
            texts[i] = strip_filler(rest)
            return chosen[place:], texts
    return chosen, texts


# ----------------------------------------------------------------------------------------------------- messages


def _said(messages: Iterable[Any]) -> list[_Said]:
    """What users and assistants said, in order; the text is empty where they said nothing that can be seen."""
    said = []
    for i, message in enumerate(check_messages(messages)):
        role = role_of(message, f"messages[{i}]")
        if role in USER or role in ASSISTANT:
            said.append(_Said(message, text_of(message, f"messages[{i}]"), role in USER))
    return said


def _ends(text: str, length: int) -> str:
    return text if len(text) <= 2 * length else f"{text[:length]}\n{text[-length:]}"


def _check_count(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {quoted(value)} ({type(value).__name__}); it must be a whole number from 1 on")
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be a whole number from 1 on")
