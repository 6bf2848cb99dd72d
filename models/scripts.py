"""Which script a letter belongs to, and which scripts a model reads: by its languages, else by its vocabulary."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

__all__ = ["script_of", "scripts_of_languages", "scripts_of_vocabulary"]

_KANA: Final = frozenset({"HIRAGANA", "KATAKANA"})
# Languages not in Latin letters, by ISO 639-1 code. A code in neither list reads every script: better to ask the model
# than to skip it.
_SCRIPTS: Final = {
    "zh": frozenset({"CJK"}),
    "ja": frozenset({"CJK"}) | _KANA,
    "ko": frozenset({"HANGUL", "CJK"}),
    **dict.fromkeys(("ru", "uk", "bg", "be", "mk", "kk", "ky", "mn", "tg"), frozenset({"CYRILLIC"})),
    "sr": frozenset({"CYRILLIC", "LATIN"}),
    **dict.fromkeys(("ar", "fa", "ur", "ps"), frozenset({"ARABIC"})),
    "el": frozenset({"GREEK"}),
    **dict.fromkeys(("he", "yi"), frozenset({"HEBREW"})),
    **dict.fromkeys(("hi", "mr", "ne", "sa"), frozenset({"DEVANAGARI"})),
    "bn": frozenset({"BENGALI"}),
    "ta": frozenset({"TAMIL"}),
    "te": frozenset({"TELUGU"}),
    "th": frozenset({"THAI"}),
    "ka": frozenset({"GEORGIAN"}),
    "hy": frozenset({"ARMENIAN"}),
}
_LATIN_LANGUAGES: Final = frozenset(
    "af az bs ca cs cy da de en es et eu fi fr ga gl hr hu id is it lt lv ms mt nl no pl pt ro sk sl sq sv sw tl tr uz "
    "vi".split()
)
# BERT's English vocabulary holds single letters of a dozen scripts, and some 700 Han characters, that it never learnt
# to read; a script that was learnt has pieces of several letters, and thousands of Han characters.
_LEAST_PIECES: Final = 200
_LEAST_HAN: Final = 2_000


@lru_cache(maxsize=1 << 14)
def script_of(letter: str) -> str:
    """Return a letter's script as Unicode's names begin ("LATIN", "CJK", "CYRILLIC"), or "" for what is no letter."""
    if not letter.isalpha():
        return ""
    plain = unicodedata.normalize("NFKC", letter)[0]
    word = unicodedata.name(plain, "").partition(" ")[0]
    return "CJK" if word in ("IDEOGRAPHIC", "CJK") else word


def scripts_of_languages(languages: Iterable[str]) -> frozenset[str] | None:
    """Return the scripts of languages (ISO 639-1 codes, regions ignored), or None where they may be any."""
    scripts: set[str] = set()
    for language in languages:
        code = language.lower().partition("-")[0]
        if code in _LATIN_LANGUAGES:
            scripts.add("LATIN")
        elif code in _SCRIPTS:
            scripts |= _SCRIPTS[code]
        else:
            return None
    return frozenset(scripts) if scripts else None


def scripts_of_vocabulary(pieces: Iterable[str]) -> frozenset[str]:
    """Return the scripts that a vocabulary was made for.

    Those with at least 200 pieces of two letters or more; Han with at least 2,000 pieces of any length. A small
    vocabulary, of less than 200 pieces of several letters in all, is taken to know every script it has letters of.
    """
    several: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for piece in pieces:
        scripts = [script for script in map(script_of, piece) if script]
        if scripts:
            seen[scripts[0]] += 1
            several[scripts[0]] += len(scripts) > 1
    if several.total() < _LEAST_PIECES:
        return frozenset(seen)
    known = {script for script, count in several.items() if count >= _LEAST_PIECES and script != "CJK"}
    return frozenset(known | ({"CJK"} if seen["CJK"] >= _LEAST_HAN else set()))
