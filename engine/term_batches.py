"""The terms of many texts at once: cut and numbered by kernels, each distinct word stemmed and hashed once.

What comes out is what `terms.text_terms` gives for each text; the tests hold the two against each other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.compounds import BEGINNINGS, JOINED
from jiyi.kernels import cutting
from jiyi.kernels.cutting import Cut, cut
from jiyi.kernels.interning import Pairs, Words
from jiyi.terms import bigram_term_of, word_term_of
from jiyi.text import classes_of

# What is known of words is forgotten when there are so many: random tokens cannot make it grow without bound. With all
# tables, a word takes about 60 bytes.
_MOST_WORDS: Final = 1 << 18
_MOST_LETTERS: Final = 1 << 22
_MOST_PAIRS: Final = 1 << 19
# Code points are classified so many at a time, when a text first holds one of them.
_PAGE: Final = 1 << 12

# A word that can be the first, or the second, of two that are one when written together.
_FIRSTS: Final = frozenset(word[:i] for word in JOINED for i in range(1, len(word)))
_SECONDS: Final = frozenset(word[i:] for word in JOINED for i in range(1, len(word)))
_IS_FIRST: Final = 1
_IS_SECOND: Final = 2
# `compounds.joined` looks at a text's neighbours if one of its words is such.
_IS_BEGINNING: Final = 4


class TermCutter:
    """Cuts texts into terms, and remembers the terms of words. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._classes: NDArray[np.uint8] = np.full(cutting.CODE_POINTS, cutting.UNKNOWN, np.uint8)
        self._forget()

    def _forget(self) -> None:
        self._words, self._pairs = Words(), Pairs()
        self._terms: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._joining: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._pair_terms: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._neighbours = Pairs()
        self._joint_terms: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._known_words = self._known_pairs = self._known_neighbours = 0

    def terms(
        self, texts: Sequence[str], more: Sequence[Sequence[int]]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return every term of texts, repeats kept, in compressed rows; in no order within a row.

        Args:
            texts: folded, without what `compounds` takes out.
            more: terms that each text has besides.
        """
        with self._lock:
            if (
                self._words.size > _MOST_WORDS
                or self._words.letters > _MOST_LETTERS
                or max(self._pairs.size, self._neighbours.size) > _MOST_PAIRS
            ):
                self._forget()
            bounds = np.zeros(len(texts) + 1, np.int64)
            np.cumsum([len(text) for text in texts], out=bounds[1:])
            codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
            segments = self._cut(codes, bounds)
            numbers = self._words.number(codes, segments.starts, segments.ends, segments.kinds)
            self._learn_words()
            later = np.flatnonzero(segments.kinds == cutting.RUN_NEXT)
            keys = numbers[later - 1].astype(np.uint64) << np.uint64(32) | numbers[later].astype(np.uint64)
            pairs = self._pairs.number(keys)
            self._learn_pairs()
            joint_rows, joint_terms = self._joint(segments, numbers)
            parts = [
                (segments.indptr, self._terms[numbers]),
                (np.searchsorted(later, segments.indptr), self._pair_terms[pairs]),
                _rows(more),
                (np.searchsorted(joint_rows, np.arange(len(texts) + 1)), joint_terms),  # none in most batches
            ]
        return _side_by_side(parts)

    def _cut(self, codes: NDArray[np.uint32], bounds: NDArray[np.int64]) -> Cut:
        while not isinstance(found := cut(codes, bounds, self._classes), Cut):
            first = found // _PAGE * _PAGE
            page = "".join(map(chr, range(first, first + _PAGE)))
            self._classes[first : first + _PAGE] = [_CLASSES[name] for name in classes_of(page)]
        return found

    def _learn_words(self) -> None:
        first = self._known_words
        if first == self._words.size:
            return
        words = self._words.texts(first)
        self._terms = _extended(self._terms, first, [word_term_of(word) for word in words])
        self._joining = _extended(self._joining, first, list(map(_joining_of, words)))
        self._known_words = self._words.size

    def _learn_pairs(self) -> None:
        first = self._known_pairs
        if first == self._pairs.size:
            return
        keys = self._pairs.keys(first)
        before = self._words.first_letters((keys >> np.uint64(32)).astype(np.int64)).tolist()
        behind = self._words.first_letters((keys & np.uint64(0xFFFFFFFF)).astype(np.int64)).tolist()
        made = [bigram_term_of(chr(one) + chr(other)) for one, other in zip(before, behind, strict=True)]
        self._pair_terms = _extended(self._pair_terms, first, made)
        self._known_pairs = self._pairs.size

    def _joint(self, segments: Cut, numbers: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Terms of neighbouring words that are one when written together, and the text of each, ascending."""
        places = np.flatnonzero(segments.kinds == cutting.WORD)
        words = numbers[places]
        joining = self._joining[words]
        maybe = np.flatnonzero(joining[:-1] & _IS_FIRST & joining[1:] >> 1)
        keys = words[maybe].astype(np.uint64) << np.uint64(32) | words[maybe + 1].astype(np.uint64)
        neighbours = self._neighbours.number(keys)
        self._learn_neighbours()
        terms = self._joint_terms[neighbours]
        hit = np.flatnonzero(terms)
        firsts = maybe[hit]
        texts = np.searchsorted(segments.indptr, places[firsts], "right") - 1
        kept = texts == np.searchsorted(segments.indptr, places[firsts + 1], "right") - 1
        for i in np.flatnonzero(kept).tolist():
            within = slice(int(segments.indptr[texts[i]]), int(segments.indptr[texts[i] + 1]))
            kept[i] = bool((self._joining[numbers[within]] & _IS_BEGINNING).any())
        return texts[kept], terms[hit][kept]

    def _learn_neighbours(self) -> None:
        first = self._known_neighbours
        text_of = self._words.text
        written = [text_of(key >> 32) + text_of(key & 0xFFFFFFFF) for key in self._neighbours.keys(first).tolist()]
        terms = [word_term_of(word) if word in JOINED else 0 for word in written]
        self._joint_terms = _extended(self._joint_terms, first, terms)
        self._known_neighbours = self._neighbours.size


def _joining_of(word: str) -> int:
    return _IS_FIRST * (word in _FIRSTS) | _IS_SECOND * (word in _SECONDS) | _IS_BEGINNING * (word in BEGINNINGS)


def _rows(lists: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    indptr = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(one) for one in lists], out=indptr[1:])
    return indptr, np.fromiter(chain.from_iterable(lists), np.uint64, int(indptr[-1]))


def _extended(known: NDArray[Any], size: int, more: Sequence[int]) -> NDArray[Any]:
    """Entries behind the first `size`, in the same array or a larger one."""
    needed = size + len(more)
    if needed > len(known):
        grown = np.empty(max(needed, 2 * len(known)), known.dtype)
        grown[:size] = known[:size]
        known = grown
    known[size:needed] = more
    return known


def _side_by_side(
    parts: Sequence[tuple[NDArray[np.int64], NDArray[np.uint64]]],
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Rows that hold what the rows of several matrices hold, one part behind the other."""
    indptr = np.sum([pointers for pointers, _ in parts], axis=0)
    values = np.empty(int(indptr[-1]), np.uint64)
    at = indptr[:-1].copy()
    for pointers, part in parts:
        sizes = np.diff(pointers)
        values[np.arange(len(part)) + np.repeat(at - pointers[:-1], sizes)] = part
        at += sizes
    return indptr, values


_CLASSES: Final = {"": cutting.SEPARATOR, "letter": cutting.LETTER, "run": cutting.RUN, "alone": cutting.ALONE}

_lock = threading.Lock()
_cutter: TermCutter | None = None


def term_cutter() -> TermCutter:
    """Return the cutter of this process."""
    global _cutter
    with _lock:
        if _cutter is None:
            _cutter = TermCutter()
        return _cutter


def _after_fork() -> None:
    global _lock, _cutter
    _lock, _cutter = threading.Lock(), None  # another thread may have been at work in it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
