"""The one tokenizer: what counts as a word, for BM25, Jaccard and MMR alike.

Text is folded (NFKC, then case folding) and cut into *tokens*: one token a character in the scripts that
are written without spaces (Han, kana, Thai, Lao, Khmer, Burmese), one a word in every other script, one an
emoji. Punctuation, symbols and white space separate and are never tokens, so nothing here can be mistaken
for a query language.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

#: Named in a store's manifest: a store cut by another version is cut again from the ledger.
TOKENIZER_VERSION: Final = "1"

# Scripts without spaces between words. Punctuation inside the blocks (、。・ and the like) is left out.
_UNSPACED: Final = (
    "\u3005-\u3007"  # 々 〆 〇
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ece\u0edc-\u0edf"  # Lao
    "\u1780-\u17d3"  # Khmer
    "\u1000-\u103f\u1050-\u109d\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Burmese
)
# Marks that `\w` leaves out, without which words of these scripts fall apart (Latin and Cyrillic accents,
# Hebrew and Arabic points, the vowel signs of the Indic scripts).
_MARKS: Final = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963"
    "\u0981-\u0983\u09bc-\u09d7\u0a01-\u0a03\u0a3c-\u0a51\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b57"
    "\u0b82\u0bbe-\u0bd7\u0c00-\u0c04\u0c3e-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6\u0d00-\u0d03\u0d3b-\u0d57\u0d82-\u0d83"
    "\u0dca-\u0ddf"
)
_EMOJI: Final = "\U0001f1e6-\U0001f1ff\U0001f300-\U0001f64f\U0001f680-\U0001f6ff\U0001f900-\U0001faff\u2600-\u27bf"
_LETTER: Final = rf"(?:[^\W_{_UNSPACED}]|[{_MARKS}])"
# An apostrophe holds an English contraction together ("don't", "Ana's") and separates everywhere else ("l'eau").
_WORD: Final = rf"{_LETTER}+(?:'(?:s|t|d|m|ll|re|ve)(?!{_LETTER}))?"

_SEGMENT: Final = re.compile(rf"[{_UNSPACED}]+|{_WORD}|[{_EMOJI}]")
# The same for text that is all ASCII, at a fifth of the time.
_ASCII_SEGMENT: Final = re.compile(r"[a-z0-9]+(?:'(?:s|t|d|m|ll|re|ve)(?![a-z0-9]))?")
_UNSPACED_START: Final = re.compile(rf"[{_UNSPACED}]")
_CLASSES: Final = (("run", rf"[{_UNSPACED}]"), ("letter", _LETTER), ("alone", rf"[{_EMOJI}]"))


def fold(text: str) -> str:
    """Return `text` in the form that is compared: NFKC (full width → half width, ligatures apart), then case folded."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).replace("\u2019", "'")


def segments(text: str) -> list[str]:
    """Cut a text, folded, into words, emoji and whole *runs* of unspaced script, in text order.

    A run is what bigrams are taken from; `is_run` tells runs from words.
    """
    return folded_segments(fold(text))


def folded_segments(folded: str) -> list[str]:
    """Cut a text that is folded already, see `segments`."""
    return (_ASCII_SEGMENT if folded.isascii() else _SEGMENT).findall(folded)


def is_run(segment: str) -> bool:
    """Whether a segment is a run of unspaced script, to be read character by character."""
    # Almost every segment of English text is settled by this one comparison.
    return segment[0] > "\u0dff" and _UNSPACED_START.match(segment) is not None


def is_unspaced(character: str) -> bool:
    """Whether a character belongs to a script that is written without spaces."""
    return _UNSPACED_START.match(character) is not None


def classes_of(characters: str) -> list[str]:
    """Return what each character is to the tokenizer: "run", "letter", "alone" (an emoji), or "" for what separates."""
    classes = [""] * len(characters)
    for name, pattern in _CLASSES:
        for match in re.finditer(pattern, characters):
            classes[match.start()] = classes[match.start()] or name
    return classes


def tokenize(text: str) -> list[str]:
    """Cut `text` into tokens: words in spaced scripts, single characters in unspaced ones.

    Args:
        text: Anything at all; lone surrogates and control characters separate tokens.

    Returns:
        list of str: Folded tokens in text order, repeats kept. Empty for text without letters, digits or
            emoji.

    >>> tokenize("用户用 TypeScript 写后端 API")
    ['用', '户', '用', 'typescript', '写', '后', '端', 'api']
    """
    tokens: list[str] = []
    for segment in segments(text):
        if is_run(segment):
            tokens.extend(segment)
        else:
            tokens.append(segment)
    return tokens
