"""What is more than its words: numbers that stay whole, identifiers, and words that are written together or apart.

"3.11" is one term and neither 3 nor 11. `cache_key`, `getUser`, `src/io.py`, an address or a URL is a term as a whole
beside its words. "type script" holds "typescript" as well, so that both spellings find each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

# Common words of both spellings, and names that are no identifiers in spite of a capital inside.
#: Words that are found in two parts as well.
JOINED: Final = frozenset(
    """
    airport anybody anymore anyone anything anytime babysitter backend background backpack backup backyard baseball
    basketball bathroom bedroom birthday blackboard blockchain bookmark bookshelf bookstore breakfast broadband
    brownfield carpool changelog chatbot chatgpt checklist checkout classmate classroom codebase cookbook coursework
    coworker crossword cupboard dashboard database dataset datetime daycare daytime deadline dishwasher doorbell
    doorway download downstairs downtime downtown earring earthquake email endpoint everyday everyone everything
    eyeglasses facebook filename filesystem fingerprint firebase firefox fireplace firewall firewood flowchart
    football footprint framework freelance frontend fullstack gamepad github gitlab goodbye grandchild grandfather
    grandma grandmother grandpa grandparent grandson greenhouse guidebook hairbrush haircut handbag handmade
    handwriting hardware headache headphone healthcare highlight highway hobbyist homemade homepage hometown
    homework hostname hotspot housework ipad iphone jailbreak javascript keyboard keychain keyword landlord laptop
    lifestyle lifetime lighthouse linkedin livestream logfile login logout lunchbox macbook mailbox makefile makeup
    marketplace microservice middleware milestone mindset motorcycle multimodal multithreading namespace
    neighborhood network newsletter newspaper nightmare nightstand noodle notebook offline onboarding online openai
    opensource outdoor overnight overtime passport password paycheck paypal photoshop pinterest pipeline playground
    playlist podcast policyholder popcorn postcard postgresql powerpoint preprocess pytorch quicksort racetrack
    railway rainbow rainforest readme realtime redwood roadmap roommate runtime sandbox saucepan scoreboard
    screenshot seafood seaside selfcare setup sideproject skateboard sketchbook skydiving sleepover smartphone
    smartwatch snowboard snowflake soccer software soundtrack spreadsheet stackoverflow stairway startup statefulset
    storyboard subway suitcase summertime sunflower sunglasses sunrise sunset supermarket surfboard sweatshirt
    swimsuit tablecloth takeaway teammate teapot tensorflow textbook thanksgiving throughput thunderstorm tiktok
    timeline timestamp timezone toolchain toolkit toothbrush toothpaste topology township trackpad treadmill
    typescript underground upgrade upload upstairs username vacation vegetable videogame viewpoint volleyball
    wallpaper watercolor waterfall webhook webpage website wechat weekday weekend wheelchair whiteboard wholesale
    wikipedia wildlife windsurfing wordpress workbook workflow workout workplace workshop workspace worldwide
    youtube
    """.split()
)
#: What the first of two such words can be.
BEGINNINGS: Final = frozenset(word[:length] for word in JOINED for length in range(3, len(word) - 2))
_NUMBER: Final = re.compile(
    r"(?<![\w.])(?:v?\d+(?:[.:]\d+)+|(?:19|20)\d\d(?P<separator>[-/])\d\d(?P=separator)\d\d|\d{1,3}(?:,\d{3})+)"
    r"(?:am|pm)?(?![\w,]\d|\w)"
)
# Possessive, and from the start of a word only: linear in whatever text comes.
_RUN: Final = re.compile(
    r"(?<![a-z0-9_])(?:[a-z0-9_]++(?:[./@:+~%?=&\\#-]{1,3}[a-z0-9_]++)+(?:\+\+|#)?"
    r"|(?=[a-z0-9]*+_)[a-z0-9_]++|[a-z](?:\+\+|#)(?!\w))"
)
_PART: Final = re.compile(r"[/@?&=\\:]+")
_INNER: Final = re.compile(r"[._+~%#-]")
# "Node.js", "GPT-4o", "138-0013-8000": not a version, nor the name of a file or an address.
_TOGETHER: Final = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)+")
_PUNCTUATION: Final = re.compile(r"[.-]")
_CAMEL: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[A-Za-z0-9]*")
_HUMP: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# What any of it holds. Most texts hold none, and the patterns need not look. Each starts with what is rare.
_ANY_INNER: Final = re.compile(r"[./@:_+#~%?=&\\,-](?<=[0-9A-Za-z_].)(?:[./@:+~%?=&\\#-]{0,2}[0-9A-Za-z_]|(?<=#)|\+)")
_ANY_HUMP: Final = re.compile(r"[A-Z](?:(?<=[a-z0-9].)|(?<=[A-Z].)(?=[a-z]))")

# Longer ones are data (base64, signed URLs), which nobody asks for whole.
_LONGEST: Final = 200


class Compounds(NamedTuple):
    """What a text holds beside its words."""

    rest: str
    """The folded text without the numbers that stay whole."""
    numbers: tuple[str, ...] = ()
    wholes: tuple[str, ...] = ()
    """Identifiers, addresses and paths, and the parts of those that are such themselves."""
    words: tuple[str, ...] = ()
    """The words of identifiers with capitals inside, and those that are hyphenated or dotted, written together."""

    @property
    def more(self) -> bool:
        """Whether there is anything but the rest."""
        return bool(self.numbers or self.wholes or self.words)


def compounds(text: str, folded: str) -> Compounds:
    """Take apart what is more than its words.

    Args:
        text: as it was written, for its capitals.
        folded: the same, see `text.fold`.
    """
    words: tuple[str, ...] = ()
    if _ANY_HUMP.search(text) is not None:
        words = tuple(
            part.lower()
            for match in _CAMEL.finditer(text)
            if match.group().lower() not in JOINED
            for part in _HUMP.findall(match.group())
            if len(part) > 1
        )
    if _ANY_INNER.search(folded) is None:
        return Compounds(folded, words=words)
    wholes: list[str] = []
    for match in _RUN.finditer(folded):
        run = match.group()
        if len(run) <= _LONGEST:
            wholes.append(run)
            if _TOGETHER.fullmatch(run):
                words = (*words, _PUNCTUATION.sub("", run))
            wholes.extend(part for part in _PART.split(run) if part != run and _INNER.search(part))
    numbers: list[str] = []

    def taken(match: re.Match[str]) -> str:
        numbers.append(match.group().removesuffix("am").removesuffix("pm").replace(",", "").replace("/", "-"))
        return " "

    rest = _NUMBER.sub(taken, folded)
    whole_numbers = set(numbers)
    return Compounds(rest, tuple(numbers), tuple(whole for whole in wholes if whole not in whole_numbers), words)


def joined(words: Sequence[str]) -> list[str]:
    """Return the words that two neighbours are when they are written together."""
    if BEGINNINGS.isdisjoint(words):
        return []
    return [pair for first, second in pairwise(words) if (pair := first + second) in JOINED]
