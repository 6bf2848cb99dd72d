"""Whether a message leaves the topic of those before it: by what it announces, points back to, its words and its sense.

It tells a *clear* change, and takes everything else for the same topic:

1. a message that says so ("换个话题", "let's change the subject") leaves;
2. one that only hints at it ("另外问一下", "by the way") leaves, unless what follows points back, shares a word or is
   related;
3. one that points back ("那它支持集群吗？", "what about its memory use?") or is too short to stand alone stays;
4. one that stands alone and shares not one content word with those before it leaves, unless it is related to them;
5. so does one that shares a word with them by chance: it is hardly more related to them than any two texts.

"Related" is the dense distance (`relatedness.Relatedness`); without an embedder, words alone decide. Words alone, and
with the table that ships: of 2,707 turns of LoCoMo's talks 9.5 % and 3.8 % were taken for a change that is none, of 389
Chinese ones (children's talk, of which only one side is there) 35.5 % and 21.1 %. Of 977 English questions on something
else 77.3 % and 79.1 % were recognised without any announcement, of 160 Chinese ones 96.2 % and 96.2 %, and of 160
Chinese openings of another talk 83.1 % and 79.4 % (benches/topic_switch.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from jiyi.stopwords import CHINESE, ENGLISH
from jiyi.terms import stem
from jiyi.text import is_run, segments

# Words that messages on different topics may well share.
_ENGLISH_COMMON: Final = frozenset(
    stem(word)
    for word in """
    want need use good great best better nice well thing really help question way make go come take give find look
    try let recommend suggest suggestion idea time day week now lately new old first last next lot bit keep start
    feel happy love thank sure yes yeah hi hello hey please maybe still back never always see talk work people plan
    show explain thought mean stuff little long different important interested able since okay ok should
    """.split()
)
_CHINESE_COMMON: Final = """
    一下 一个 一些 一点 一种 一起 可以 需要 应该 觉得 感觉 认为 想要 没有 比较 非常 推荐 建议 现在 时候 东西 事情
    问题 方法 办法 情况 知道 喜欢 打算 准备 开始 使用 选择 适合 合适 不错 可能 还是 或者 因为 所以 如果 但是 不过
    然后 而且 已经 一直 其实 真的 谢谢 能够 希望 关于 有点 怎么办 最近 今天 明天 昨天 想 要 会 能 去 来 很 太 最 更
    让 给 您 请 帮 有 不 没
    """.split()
_CHINESE_CUT: Final = re.compile("|".join(sorted({*CHINESE, *_CHINESE_COMMON}, key=lambda word: (-len(word), word))))

# With fewer terms of its own a message cannot be told from a follow-up. Statements follow on more often than
# questions and requests: in LoCoMo's talks four terms instead of two take a third of the false changes away, and a
# twentieth of the true ones.
_FEWEST_ASKED: Final = 2
_FEWEST_STATED: Final = 4
# Standard deviations above unrelated texts (`relatedness`) from which a message belongs to those before it though it
# shares no word with them, and below which it does not though it shares one. On the table that ships; all-MiniLM-L6-v2
# has its best values in the same places.
_RELATED: Final = 3.0
_UNRELATED: Final = 2.0
# With more terms than this a statement is no answer that needs its question, and a question without a question word
# ("Redis or Memcached?") no fragment of the one before.
_LONGEST_ANSWER: Final = 6
_LONGEST_FRAGMENT: Final = 3


def _any_of(patterns: Sequence[str], *, before: str = "", after: str = "") -> re.Pattern[str]:
    return re.compile(f"{before}(?:{'|'.join(patterns)}){after}", re.IGNORECASE)


# An announcement stands at the start of a clause, after a few fillers at most (bounded, to stay linear in the text).
_CLAUSE: Final = (
    r"(?:^\s*|[,，。.!！?？;；:：、~～…\n—]\s{0,4}|(?<=[\u4e00-\u9fff])\s{1,4})"
    r"(?:(?:那么?|好的?|嗯|哦|行|(?:ok|okay|so|oh|well|hey|um|right|but|and|please)\b)[\s,，.。!！、]{0,4}){0,3}"
)
_WE: Final = "(?:我们|咱们?|先|来|请|还是){0,3}"
_LETS: Final = r"(?:(?:let'?s|let us|can we|could we|i(?:'d| would) like to|i want to|to|now|time to)\s+)*"
_OTHER: Final = "(?:completely |totally |entirely )?(?:new|different|another|unrelated|separate)"
_ANNOUNCED: Final = _any_of(
    (
        rf"{_WE}(?:换一?[个下]|改个|切换一?下?)(?:别的|新|其他)?(?:话题|主题|話題)(?:吧|聊聊|说说|聊|好吗|好不好|了)*",
        rf"{_WE}[不别](?:再)?[说聊谈提管讲說](?:这个?|那个?|這個|这些|它|这事儿?|这件事)(?:话题)?[了啦吧]+",
        rf"{_WE}[说聊谈问][点些个](?:别的|其他的?|其它的?|另外的)(?:事|话题|问题)?吧?",
        "(?:说个|聊个|来个)?题外话|跑个题|[聊说谈]?(?:另外?一个|另个|新的?|别的)(?:话题|主题)",
        rf"{_LETS}(?:chang|switch)(?:e|ing)?(?:\s+the|\s+of)?\s+(?:subjects?|topics?)\b(?: now| instead| please)?",
        rf"{_LETS}(?:switch(?:ing)? gears|(?:talk|chat) about something else)\b(?: now| instead| please)?",
        rf"(?:change of (?:subject|topic)|off[- ]topic|(?:on(?: to)? )?(?:an? )?{_OTHER} (?:topic|subject|note))\b",
    ),
    before=_CLAUSE,
)
_HINTED: Final = _any_of(
    (
        "另外[再还也]?我?(?:还?想)?(?:请?问|请教)?(?:一下|你|您|一?[个件]?(?:问题|事)){0,3}",
        "对了|换一?个问题|[问说]?一?个?别的问题|(?:顺便|順便)再?(?:请?问|说|提|問|說)?(?:一下|一句|你|您)*",
        "话说(?:回来)?|我?(?:还有|还想问)一?个(?:别的)?(?:问题|事)|我?突然(?:想到|想起来?)",
        r"(?:by the way|btw|anyways?|anyhow|moving on|(?:let'?s )?move on)(?![\w'])",
        rf"(?:i have |i've got )?(?:one more|an?|(?:an? )?{_OTHER}) (?:thing|question)\b",
        r"(?:forget|enough|never ?mind)(?: about| of| with)? (?:it|that|this|all that)(?![\w'])",
    ),
    before=_CLAUSE,
)

_PERIOD: Final = (
    "week|weekend|month|year|morning|afternoon|evening|summer|winter|spring|autumn|fall|time|"
    "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
)
# "Is it possible to …", "is it going to rain": an "it" that stands for nothing.
_DUMMY: Final = "possible|worth|better|safe|true|hard|easy|legal|ok|okay|rain|snow|going to"
_POINTS_BACK: Final = _any_of(
    (
        "它|牠|(?<![其吉])他|她|(?<![尤极])其(?![他它实中余次])|那|這個|上面|上述|前面|前者",
        "后者|刚才|刚刚|之前[说提讲]|同样|第[一二三四五六七八九十0-9]{1,3}[个种条点步款项]",
        # "This weekend" points to no message.
        r"这(?!一?个?(?:周|月|年|星期|季|学期|暑假|寒假|假期|几|两|段|里|边))",
        rf"\b(?:its|(?:it|this)(?:'s|'ll)?(?!\s+(?:{_PERIOD}|{_DUMMY})\b)|"
        r"they(?:'re)?|them|theirs?|he(?:'s)?|him|his|she(?:'s)?|hers?|those|these)(?![\w'])",
        r"\b(?:former|latter|above|the (?:first|second|third|last|other|same)(?: one)?)\b",
        # "That" and "one" as pronouns, not as in "a recipe that …" and "one of".
        r"\bthat(?=\s*(?:[?.!,;]|$|(?:is|was|one|too|thing|mean|works?|costs?)\b))|\bthat's\b",
        r"\b(?:does|is|was|would|could|can|will|did|do|use|than) that\b",
        r"\b(?:about|of|for|with|like|to|on|in|from|after|before) that\b",
        r"\bones?(?=\s*(?:[?.!,;]|$|(?:is|are|should|would|do|does|has)\b))",
    )
)
_CONTINUES: Final = _any_of(
    (
        r"(?:and|but|or|then|also|how come|what about|how about|what if|what else|which one|even|instead)\b",
        r"(?:tell me more|more|any others?|like what|such as|for example)\b",
        r"(?:yes|yeah|yep|no|nope|exactly|haha+|wow|really)\b",
        r"对[啊呀的对]|是[的啊呀]|没有|没事|不是|真的|哈哈|嗯+[\s，,。!！]*我|那|所以",
        "然后|但是?|可是|而且|还有|比如|例如|要是|如果|除了|再[说来给讲]",
    ),
    before=r"^\W*",
)
# "Memcached 呢？" asks of Memcached what was asked before; "去哪里徒步呢？" asks for itself.
_ELLIPSIS: Final = re.compile(r"呢[\s?？!！。~～]*$")
_QUESTION_WORD: Final = _any_of(
    (
        "[吗呢么哪怎谁几]|什么|多少|如何|是否",
        r"\b(?:what|which|who|whom|whose|when|where|why|how)\b",
        r"^\W*(?:is|are|was|were|do|does|did|can|could|would|will|should|any)\b",
    )
)
_REQUEST: Final = _any_of(
    (
        "帮|请|给我|推荐|介绍|说说|我想|我要|想|来|提醒",
        r"(?:i(?:'d| would) like|i(?:'m| am) (?:looking|planning|trying))\b",
        r"(?:please|i want|i need|recommend|suggest|find|show|give|tell|help|plan|write|make|remind|explain|list)\b",
    ),
    before=r"^\W*",
)


_stem: Final = lru_cache(maxsize=1 << 14)(stem)


def topic_terms(text: str) -> set[str]:
    """Return what a text is about, for comparing: stems of its content words, bigrams of its Chinese ones."""
    terms: set[str] = set()
    for segment in segments(text):
        if is_run(segment):
            for part in _CHINESE_CUT.split(segment):
                terms.update([part[i : i + 2] for i in range(len(part) - 1)] or ([part] if part else []))
        elif segment not in ENGLISH and (word := _stem(segment.removesuffix("'s"))) not in _ENGLISH_COMMON:
            terms.add(word)
    return terms


def points_back(text: str) -> bool:
    """Whether a message depends on those before it: a pronoun without a noun of its own, an ellipsis, no content."""
    if not topic_terms(text) or _CONTINUES.search(text):
        return True
    if _ELLIPSIS.search(text) and not _QUESTION_WORD.search(_ELLIPSIS.sub("", text)):
        return True
    # "My friend has a birthday, what do I give her" brings what it points to along.
    pronoun = _POINTS_BACK.search(text)
    return pronoun is not None and len(topic_terms(text[: pronoun.start()])) < _FEWEST_ASKED


def stands_alone(text: str) -> bool:
    """Whether a message says what it is about: it neither points back nor is a fragment ("Redis or Memcached?")."""
    fragment = _asks(text) and not _QUESTION_WORD.search(text) and len(topic_terms(text)) <= _LONGEST_FRAGMENT
    return not fragment and not points_back(text)


class Turn(NamedTuple):
    """A message as topic detection sees it."""

    text: str
    from_user: bool


#: How many standard deviations closer two texts are than unrelated ones; None where that is not known.
Related = Callable[[str, str], float | None]


def new_topic(message: str, earlier: Sequence[Turn], related: Related | None = None) -> str | None:
    """Return what a user's message says on its new topic if it clearly leaves that of the earlier turns, None if not.

    That is what follows the announcement, or the whole message; it may be empty ("换个话题吧").

    Args:
        message: What the user says.
        earlier: What was said before, oldest first.
        related: Tells how much two texts have to do with each other, for instance a `relatedness.Relatedness`. It is
            asked only where words leave it open. Without it, words alone decide.
    """
    if match := _last(_ANNOUNCED, message):
        return _rest(message, match)
    before = "\n".join(turn.text for turn in earlier)
    said = set[str]().union(*(topic_terms(turn.text) for turn in earlier))
    if match := _last(_HINTED, message):
        rest = _rest(message, match)
        own = topic_terms(rest)
        if own and not own & said and not points_back(rest) and _apart(rest, before, False, related):
            return rest
    own = topic_terms(message)
    asks = _asks(message) or _QUESTION_WORD.search(message) or _REQUEST.search(message)
    if not said or len(own) < (_FEWEST_ASKED if asks else _FEWEST_STATED) or not stands_alone(message):
        return None
    if (own & said and related is None) or _answers(message, own, earlier[-1]):
        return None
    return message if _apart(message, before, bool(own & said), related) else None


def in_common_with(one: str, related: Related | None = None) -> Callable[[str], bool]:
    """Return a test of whether a text shares a content word with `one`, and not by chance: its sense is no farther off.

    >>> in_common_with("How do I roll back a release?")("Roll back the service"), in_common_with("怎么回滚")("烤面包")
    (True, False)
    """
    own = topic_terms(one)

    def test(other: str) -> bool:
        return bool(own & topic_terms(other)) and not _apart(one, other, True, related)

    return test


def _apart(one: str, other: str, shares_words: bool, related: Related | None) -> bool:
    """Whether two texts have nothing to do with each other, by the words that they share and by their sense."""
    deviations = None if related is None else related(one, other)
    if deviations is None:
        return not shares_words
    return deviations < (_UNRELATED if shares_words else _RELATED)


def _answers(message: str, own: set[str], before: Turn) -> bool:
    """Whether a message looks like the answer to the question that the turn before it ends with."""
    asked = not before.from_user and _asks(before.text)
    return asked and len(own) <= _LONGEST_ANSWER and not _asks(message) and not _QUESTION_WORD.search(message)


def _asks(text: str) -> bool:
    return text.rstrip().endswith(("?", "？"))


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    matches = list(pattern.finditer(text))
    return matches[-1] if matches else None


def _rest(message: str, match: re.Match[str]) -> str:
    return message[match.end() :].lstrip(" \t\r\n,，。.!！?？:：;；、~～…—-").rstrip()
