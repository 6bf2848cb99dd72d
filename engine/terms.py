"""From tokens to *terms*: what BM25 counts.

A term is a stemmed word, a character of an unspaced script, or a bigram of two such characters; it is known by
a 64-bit hash of its text. Hashes need no vocabulary in the store: nothing of a tenant's wording outlives its
memories or reaches another tenant, and the same text gives the same terms in every process. The two lowest
bits of a hash tell the term's sort, so that Jaccard and MMR can leave bigrams and dates out.

Stemming is Snowball's English stemmer (Porter 2001) as Tantivy ships it.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import pairwise
from operator import add
from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi.compounds import Compounds, compounds, joined
from jiyi.dates import Span, named_dates
from jiyi.memory import Memory
from jiyi.models.simplified import simplified
from jiyi.stopwords import CHINESE, ENGLISH
from jiyi.text import TOKENIZER_VERSION, fold, folded_segments, is_run

#: Changes whenever a text's terms would; a store of another version is analysed again from the ledger.
ANALYZER_VERSION: Final = f"{TOKENIZER_VERSION}.2"

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
    if not word.isascii() or len(word) < 3 or word.isdigit():
        return word
    stemmed = _english_stemmer()(word)
    return stemmed[0] if stemmed and stemmed[0] else word


def word_term(word: str) -> int:
    """Return the term of one word or character."""
    term = _hash_of_word.get(word)
    if term is None:
        if len(_hash_of_word) >= _CACHE_WORDS:
            _hash_of_word.clear()
        term = _hash_of_word[word] = word_term_of(word)
    return term


def word_term_of(word: str) -> int:
    """Return the term of a word that need not be remembered."""
    return _hash(stem(word), WORD)


def bigram_term_of(pair: str) -> int:
    """Return the term of two neighbouring characters that need not be remembered."""
    return _hash(pair, BIGRAM)


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
    return _day_terms(day.year, day.month, day.day)


@lru_cache(maxsize=1 << 12)
def _day_terms(year: int, month: int, day: int) -> tuple[int, int, int]:
    return _date_term(f"y{year}"), _date_term(f"m{month}"), _date_term(f"d{day}")


@lru_cache(maxsize=1 << 14)
def _speaker_term(name: str) -> int:
    return _hash(name, SPEAKER)


@lru_cache(maxsize=1 << 12)
def speaker_terms(speaker: str) -> tuple[int, ...]:
    """Return the terms of a speaker's name, so that "what did Ana say" can match who said it."""
    return tuple(_speaker_term(segment) for segment in folded_segments(simplified(fold(speaker))))


def text_terms(text: str) -> list[int]:
    """Return every term of a text, repeats kept: words, characters and bigrams, whole numbers and identifiers."""
    return _text_terms(text, simplified(fold(text)))


def _text_terms(text: str, folded: str) -> list[int]:
    found = compounds(text, folded)
    words = folded_segments(found.rest)
    terms: list[int] = []
    if not found.rest.isascii():
        segments, words = words, []
        characters: list[str] = []
        pairs: list[str] = []
        for segment in segments:
            if is_run(segment):
                characters.extend(segment)
                pairs.extend(map(add, segment, segment[1:]))
            else:
                words.append(segment)
        terms.extend(_known(_hash_of_word, characters, word_term))
        terms.extend(_known(_hash_of_bigram, pairs, _bigram_term))
    terms.extend(_known(_hash_of_word, words, word_term))
    if together := joined(words):
        terms.extend(map(word_term, together))
    if found.more:
        terms.extend(_compound_terms(found))
    return terms


def _known(terms: dict[str, int], words: Iterable[str], term_of: Callable[[str], int]) -> list[int]:
    """Terms of words: looked up here, as calling what looks them up takes longer than that."""
    get = terms.get
    return [get(word) or term_of(word) for word in words]


def _compound_terms(found: Compounds) -> Iterator[int]:
    yield from map(word_term, found.numbers)
    yield from map(word_term, found.words)
    # Of the sort of bigrams: made of words that are counted already.
    yield from map(_bigram_term, found.wholes)


def is_sort(terms: NDArray[np.uint64], sort: int) -> NDArray[np.bool_]:
    """Return which of the terms are of one sort: WORD (words and characters), BIGRAM, DATE or SPEAKER."""
    of_sort: NDArray[np.bool_] = (terms & _SORT_MASK) == np.uint64(sort)
    return of_sort


# ---------------------------------------------------------------------------------------------------- queries

# Stop words of several characters part a run. Single ones are too often half of a word (都 in 京都, 地 in 地铁): they
# are not looked for by themselves, and the bigrams that hold them stay.
_PARTING_STOP: Final = re.compile("|".join(sorted((word for word in CHINESE if len(word) > 1), key=len, reverse=True)))
_SINGLE_STOP: Final = frozenset(word for word in CHINESE if len(word) == 1)


def content_words(text: str) -> list[str]:
    """Return a query's words and runs without question and function words; all of them where nothing else is left.

    "猫叫什么名字" gives "猫叫" and "名字"; "what is the cat's name" gives "cat's" and "name".
    """
    return _content(folded_segments(fold(text)))


def _content(every: list[str]) -> list[str]:
    kept: list[str] = []
    for segment in every:
        if is_run(segment):
            kept.extend(part for part in _PARTING_STOP.split(segment) if not _SINGLE_STOP.issuperset(part))
        elif segment not in ENGLISH:
            kept.append(segment)
    return kept or every


# Characters of a name in an unspaced script, and how far into a run names are looked for.
_LONGEST_NAME: Final = 4
_MOST_NAMES: Final = 64


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """A query as the keyword leg sees it."""

    terms: NDArray[np.uint64]
    """Distinct terms, ascending, shape (q,)."""
    content: str
    """The query without question and function words, folded: what the token table looks up."""
    speakers: NDArray[np.uint64]
    """What would be the terms of speakers that it names, ascending: of no use where nobody is called so."""
    spans: tuple[Span, ...] = ()
    """The times that it names."""


def query_terms(text: str, now_s: float | None = None) -> QueryTerms:
    """Analyse a query: stop words out (unless nothing else is left), dates named in it as date terms.

    Args:
        text: the query.
        now_s: the moment that "yesterday" counts from, in epoch seconds.
    """
    folded = simplified(fold(text))
    found = compounds(text, folded)
    every = folded_segments(found.rest)
    words = _content(every) if every else []
    dates = named_dates(folded, now_s)
    terms = set(map(_date_term, dates.parts))
    terms.update(_compound_terms(found))
    terms.update(map(word_term, joined(every)))
    speakers: set[int] = set()
    for word in words:
        if is_run(word):
            characters = [character for character in word if character not in _SINGLE_STOP] or list(word)
            terms.update(map(word_term, characters))
            pairs = (word[i : i + 2] for i in range(len(word) - 1))
            terms.update(_bigram_term(pair) for pair in pairs if not _SINGLE_STOP.issuperset(pair))
        else:
            terms.add(word_term(word))
            speakers.add(_speaker_term(word.removesuffix("'s")))
    for run in filter(is_run, every):
        # Names of unspaced scripts stand inside the run: every part of it that may be one.
        for size in range(2, _LONGEST_NAME + 1):
            speakers.update(_speaker_term(run[i : i + size]) for i in range(min(len(run) - size + 1, _MOST_NAMES)))
    terms |= speakers
    return QueryTerms(
        np.array(sorted(terms), dtype=np.uint64),
        " ".join(content_words(text)),
        np.array(sorted(speakers), dtype=np.uint64),
        dates.spans,
    )


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


# Fewer characters in all are cut one text after the other; so is a text of more than the second number, for which the
# tables of the kernels would have to grow (`benches/ingest_stages.py`).
_FEW: Final = 4_000
_LONG: Final = 1 << 16
_MANY: Final = 1 << 18


def memory_terms(memories: Sequence[Memory]) -> TermColumns:
    """Analyse memories: the terms of each text, of the date it happened on and of who said it."""
    from jiyi.kernels.csr import count_sorted_rows

    sizes = [len(memory.text) for memory in memories]
    if sum(sizes) < _FEW:
        return TermColumns(*count_sorted_rows(*_one_by_one(memories)))
    parts: list[TermColumns] = []
    start, size = 0, 0
    for i, length in enumerate([*sizes, _MANY]):
        if (size + length > _MANY and i > start) or i == len(sizes):
            parts.append(TermColumns(*count_sorted_rows(*_at_once(memories[start:i]))))
            start, size = i, 0
        size += length if length <= _LONG else 0
    return parts[0] if len(parts) == 1 else _one_behind_the_other(parts)


def memory_term_bytes(memories: Sequence[Memory]) -> list[tuple[bytes, bytes]]:
    """Analyse memories as `memory_terms` does; return the terms and frequencies of each as the ledger keeps them.

    Returns:
        uint64 terms, ascending and distinct, and uint16 frequencies.
    """
    if sum(len(memory.text) for memory in memories) < _FEW:
        return list(map(_one_as_bytes, memories))
    columns = memory_terms(memories)
    terms, freqs, bounds = columns.terms.tobytes(), columns.freqs.tobytes(), columns.indptr.tolist()
    return [(terms[8 * s : 8 * e], freqs[2 * s : 2 * e]) for s, e in pairwise(bounds)]


def _one_as_bytes(memory: Memory) -> tuple[bytes, bytes]:
    # Less than a kernel takes to be called, and no frequency is near its limit in so short a text.
    folded = simplified(fold(memory.text))
    counts = Counter(_text_terms(memory.text, folded))
    counts.update(_other_terms(memory, folded))
    terms = sorted(counts)
    return array("Q", terms).tobytes(), array("H", map(counts.__getitem__, terms)).tobytes()


def _one_by_one(memories: Sequence[Memory]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    flat: list[int] = []
    indptr = np.zeros(len(memories) + 1, dtype=np.int64)
    for i, memory in enumerate(memories):
        folded = simplified(fold(memory.text))
        flat.extend(_text_terms(memory.text, folded))
        flat.extend(_other_terms(memory, folded))
        indptr[i + 1] = len(flat)
    return indptr, np.array(flat, dtype=np.uint64)


def _at_once(memories: Sequence[Memory]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    from jiyi.term_batches import term_cutter

    rests: list[str] = []
    more: list[Sequence[int]] = []
    for memory in memories:
        text = memory.text
        folded = simplified(fold(text))
        others = _other_terms(memory, folded)
        if len(text) > _LONG:
            rests.append("")
            others.extend(_text_terms(text, folded))
        else:
            found = compounds(text, folded)
            rests.append(found.rest)
            if found.more:
                others.extend(_compound_terms(found))
        more.append(others)
    return term_cutter().terms(rests, more)


def _other_terms(memory: Memory, folded: str) -> list[int]:
    """Terms of when a memory happened, of the dates that it names and of who said it."""
    terms = [*date_terms(memory.timestamp)]
    dates = named_dates(folded)
    if dates.parts:
        terms.extend(map(_date_term, dates.parts))
    if memory.speaker:
        terms.extend(speaker_terms(memory.speaker))
    return terms


def _one_behind_the_other(parts: Sequence[TermColumns]) -> TermColumns:
    ends = np.cumsum([part.indptr[-1] for part in parts])
    pointers = [part.indptr[1:] + end - part.indptr[-1] for part, end in zip(parts, ends.tolist(), strict=True)]
    return TermColumns(
        np.concatenate((np.zeros(1, np.int64), *pointers)),
        np.concatenate([part.terms for part in parts]),
        np.concatenate([part.freqs for part in parts]),
    )
