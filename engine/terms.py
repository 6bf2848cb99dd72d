"""From tokens to *terms*: what BM25 counts.

A term is a stemmed word, a character of an unspaced script, or a bigram of two such characters; it is known by
a 64-bit hash of its text. Hashes need no vocabulary in the store: nothing of a tenant's wording outlives its
memories or reaches another tenant, and the same text gives the same terms in every process. The two lowest
bits of a hash tell the term's sort, so that Jaccard and MMR can leave bigrams and dates out.

Stemming is Snowball's English stemmer (Porter 2001) as Tantivy ships it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi.memory import Memory
from jiyi.stopwords import CHINESE, ENGLISH
from jiyi.text import TOKENIZER_VERSION, fold, is_run, segments

#: Changes whenever a text's terms would; a store of another version is analysed again from the ledger.
ANALYZER_VERSION: Final = f"{TOKENIZER_VERSION}.1"

WORD: Final = 0
BIGRAM: Final = 1
DATE: Final = 2
SPEAKER: Final = 3
_SORT_MASK: Final = np.uint64(3)

# Words repeat: the cache makes stemming and hashing a dictionary look-up. Emptied when full, so that a stream of
# random tokens cannot grow it without bound.
_CACHE_WORDS: Final = 1 << 18
_hash_of_word: dict[str, int] = {}
_hash_of_bigram: dict[str, int] = {}


def _hash(text: str, sort: int) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") & ~3 | sort


@cache
def _english_stemmer() -> Callable[[str], list[str]]:
    import tantivy

    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw()).filter(tantivy.Filter.stemmer("English"))
    analyze: Callable[[str], list[str]] = builder.build().analyze
    return analyze


def stem(word: str) -> str:
    """Return the Snowball English stem of a folded word; words outside ASCII come back as they are."""
    if not word.isascii() or len(word) < 3:
        return word
    stemmed = _english_stemmer()(word)
    return stemmed[0] if stemmed and stemmed[0] else word


def word_term(word: str) -> int:
    """Return the term of one word or character."""
    term = _hash_of_word.get(word)
    if term is None:
        if len(_hash_of_word) >= _CACHE_WORDS:
            _hash_of_word.clear()
        term = _hash_of_word[word] = _hash(stem(word), WORD)
    return term


def _bigram_term(pair: str) -> int:
    term = _hash_of_bigram.get(pair)
    if term is None:
        if len(_hash_of_bigram) >= _CACHE_WORDS:
            _hash_of_bigram.clear()
        term = _hash_of_bigram[pair] = _hash(pair, BIGRAM)
    return term


@lru_cache(maxsize=1 << 12)
def _date_term(part: str) -> int:
    return _hash(part, DATE)


def date_terms(day: datetime) -> tuple[int, int, int]:
    """Return the year, month and day of a time (UTC) as terms, so that "in May 2023" can match by date."""
    return _date_term(f"y{day.year}"), _date_term(f"m{day.month}"), _date_term(f"d{day.day}")


@lru_cache(maxsize=1 << 14)
def _speaker_term(name: str) -> int:
    return _hash(name, SPEAKER)


def speaker_terms(speaker: str) -> list[int]:
    """Return the terms of a speaker's name, so that "what did Ana say" can match who said it."""
    return [_speaker_term(segment) for segment in segments(speaker)]


def text_terms(text: str) -> list[int]:
    """Return every term of a text in text order, repeats kept: words, characters and bigrams."""
    terms: list[int] = []
    for segment in segments(text):
        if is_run(segment):
            terms.extend(map(word_term, segment))
            terms.extend(_bigram_term(segment[i : i + 2]) for i in range(len(segment) - 1))
        else:
            terms.append(word_term(segment))
    return terms


def is_sort(terms: NDArray[np.uint64], sort: int) -> NDArray[np.bool_]:
    """Return which of the terms are of one sort: WORD (words and characters), BIGRAM, DATE or SPEAKER."""
    of_sort: NDArray[np.bool_] = (terms & _SORT_MASK) == np.uint64(sort)
    return of_sort


# ---------------------------------------------------------------------------------------------------- queries

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
_MONTH_NAME: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATES: Final = (
    re.compile(r"(?P<y>(?:19|20)\d\d)(?:-|/|\.|年)(?P<m>\d{1,2})(?:(?:-|/|\.|月)(?P<d>\d{1,2}))?(?!\d)"),
    re.compile(rf"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{_MONTH_NAME})\b"),
    re.compile(rf"\b(?P<month>{_MONTH_NAME})\.? (?P<d>\d{{1,2}})(?:st|nd|rd|th)?\b"),
    re.compile(rf"\b(?P<month>{_MONTH_NAME})\b"),
    re.compile(r"(?P<m>\d{1,2})月(?:(?P<d>\d{1,2})[日号])?"),
    re.compile(r"\b(?P<y>(?:19|20)\d\d)\b|(?P<y2>(?:19|20)\d\d)年"),
)


# What every date holds. Most queries hold neither, and six patterns need not look.
_DIGIT_OR_MONTH: Final = re.compile(rf"\d|{_MONTH_NAME}")


def query_date_terms(folded: str) -> set[int]:
    """Return the date terms that a folded query names ("8 May 2023", "2023-05-08", "5月8日", "2023年")."""
    if _DIGIT_OR_MONTH.search(folded) is None:
        return set()
    parts: set[str] = set()
    for pattern in _DATES:
        for match in pattern.finditer(folded):
            found = match.groupdict()
            year = found.get("y") or found.get("y2")
            month = _MONTHS[found["month"]] if found.get("month") else int(found.get("m") or 0)
            day = int(found.get("d") or 0)
            if year:
                parts.add(f"y{int(year)}")
            if 1 <= month <= 12:
                parts.add(f"m{month}")
            if 1 <= day <= 31:
                parts.add(f"d{day}")
    return {_date_term(part) for part in parts}


# Stop words of several characters part a run. Single ones are too often half of a word (都 in 京都, 地 in 地铁): they
# are not looked for by themselves, and the bigrams that hold them stay.
_PARTING_STOP: Final = re.compile("|".join(sorted((word for word in CHINESE if len(word) > 1), key=len, reverse=True)))
_SINGLE_STOP: Final = frozenset(word for word in CHINESE if len(word) == 1)


def content_words(text: str) -> list[str]:
    """Return a query's words and runs without question and function words; all of them where nothing else is left.

    "猫叫什么名字" gives "猫叫" and "名字"; "what is the cat's name" gives "cat's" and "name".
    """
    kept: list[str] = []
    every = segments(text)
    for segment in every:
        if is_run(segment):
            kept.extend(part for part in _PARTING_STOP.split(segment) if not _SINGLE_STOP.issuperset(part))
        elif segment not in ENGLISH:
            kept.append(segment)
    return kept or every


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """A query as the keyword leg sees it."""

    terms: NDArray[np.uint64]
    """Distinct terms, ascending, shape (q,)."""
    content: str
    """The query without question and function words, folded: what the token table looks up."""


def query_terms(text: str) -> QueryTerms:
    """Analyse a query: stop words out (unless nothing else is left), dates named in it as date terms."""
    words = content_words(text)
    terms = query_date_terms(fold(text))
    for word in words:
        if is_run(word):
            characters = [character for character in word if character not in _SINGLE_STOP] or list(word)
            terms.update(map(word_term, characters))
            pairs = (word[i : i + 2] for i in range(len(word) - 1))
            terms.update(_bigram_term(pair) for pair in pairs if not _SINGLE_STOP.issuperset(pair))
        else:
            terms.add(word_term(word))
        terms.add(_speaker_term(word.removesuffix("'s")))
    return QueryTerms(np.array(sorted(terms), dtype=np.uint64), " ".join(words))


# --------------------------------------------------------------------------------------------------- memories


@dataclass(frozen=True, slots=True)
class TermColumns:
    """The terms of n memories in compressed rows, each row's terms ascending and distinct."""

    indptr: NDArray[np.int64]
    """Shape (n + 1,)."""
    terms: NDArray[np.uint64]
    """Shape (nnz,)."""
    freqs: NDArray[np.uint16]
    """Shape (nnz,): how often each stands in its memory, 65,535 at most."""


def memory_terms(memories: Sequence[Memory]) -> TermColumns:
    """Analyse memories: the terms of each text, of the date it happened on and of who said it."""
    flat: list[int] = []
    indptr = np.zeros(len(memories) + 1, dtype=np.int64)
    for i, memory in enumerate(memories):
        flat.extend(text_terms(memory.text))
        flat.extend(date_terms(memory.timestamp))
        if memory.speaker:
            flat.extend(speaker_terms(memory.speaker))
        indptr[i + 1] = len(flat)
    from jiyi.kernels.csr import count_sorted_rows

    return TermColumns(*count_sorted_rows(indptr, np.array(flat, dtype=np.uint64)))
