"""From text to the rows of a token table: longest match for Han, whole words and then pieces for Latin letters.

A row's key is a Han word or character (`徒步`), a Latin word with the mark of its start (`▁hiking`), or a piece of
one (`ing`), the form that SentencePiece gives them. Every other script has no rows.
"""

from __future__ import annotations

import os
import re
import threading
import unicodedata
import weakref
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jiyi.models.table_batches import BatchTokenizer

__all__ = ["HAN", "WORD_START", "TableTokenizer", "fold"]

WORD_START: Final = "\u2581"
"""Marks a key or piece that starts a word, as SentencePiece does."""

HAN: Final = "\u3007\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U000323af"
"""The Han ranges, as the inside of a regular expression's class."""

# An apostrophe's tail belongs to its word and carries no meaning of its own ("Ana's", "don't").
_LATIN: Final = r"[a-z0-9]+(?:'(?:s|t|d|m|ll|re|ve)(?![a-z0-9]))?"
_LATIN_SEGMENT: Final = re.compile(_LATIN)
_SEGMENT: Final = re.compile(f"[{HAN}]+|{_LATIN}")
_ACCENTED: Final = re.compile("[\u00df-\u024f\u1e00-\u1eff]")
_ACCENT: Final = re.compile("[\u0300-\u036f]")
_NOT_COMPOSED: Final = str.maketrans(
    {"ø": "o", "đ": "d", "ł": "l", "ı": "i", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th"}
)

# No word is longer; what is (base64, hashes) says nothing by its letters.
_MAX_WORD: Final = 40
# 2^17 words hold a large store's vocabulary in about 20 MB. Emptied when full, so random words cannot grow it.
_CACHE_WORDS: Final = 1 << 17
# Fewer characters in all are cut one text after the other (`benches/ingest_stages.py`).
_FEW: Final = 4_000


def fold(text: str) -> str:
    """Return `text` as the table's keys are written: NFKC, lower case, Latin letters without their accents."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    if _ACCENTED.search(text):
        text = _ACCENT.sub("", unicodedata.normalize("NFD", text).translate(_NOT_COMPOSED))
    return text


class _WordCache(dict[str, tuple[int, ...]]):
    """Latin word to its rows; asks the tokenizer for the words it has not seen."""

    def __init__(self, tokenizer: TableTokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> tuple[int, ...]:
        rows = tuple(row for row, _ in self._tokenizer.latin_rows(word))
        if len(self) >= _CACHE_WORDS:
            self.clear()
        if len(word) <= _MAX_WORD:
            self[word] = rows
        return rows


class TableTokenizer:
    """Cuts text into rows of one table. Safe to share between threads."""

    def __init__(
        self, keys: Sequence[str], piece_scores: NDArray[np.float32], simplified: Mapping[str, str] | None = None
    ) -> None:
        """Prepare the look-ups (about 0.1 s for 70,000 rows).

        Args:
            keys: the key of each row.
            piece_scores: float32 array of shape (rows,): unigram log probability of the rows that are pieces, NaN for
                the others.
            simplified: traditional Han character to the simplified one that keys are written with.

        Raises:
            ValueError: the lengths differ, or a key stands twice.
        """
        if len(keys) != len(piece_scores):
            raise ValueError(f"got {len(keys)} keys and {len(piece_scores)} piece scores: one of each a row")
        self._rows = {key: row for row, key in enumerate(keys)}
        if len(self._rows) != len(keys):
            raise ValueError(f"got {len(keys)} keys, {len(keys) - len(self._rows)} of them twice")
        self._simplified = {ord(t): s for t, s in (simplified or {}).items()}
        self._traditional = frozenset(simplified or ())
        # By the first two characters: most positions then need one look-up, not one for each length.
        self._longest: dict[str, int] = {}
        for key in keys:
            if key[0] > WORD_START and len(key) > 1:
                self._longest[key[:2]] = max(self._longest.get(key[:2], 0), len(key))
        self._pieces = _unigram(keys, piece_scores)
        self._piece_row = [-1, *np.flatnonzero(~np.isnan(piece_scores)).tolist()]
        self._words = _WordCache(self)
        self._batches: BatchTokenizer | None = None
        self._lock = threading.Lock()
        _all.add(self)

    def latin_rows(self, word: str) -> list[tuple[int, int]]:
        """Return (row, letters it stands for) of a folded Latin word: the word itself, else its pieces."""
        word = word.partition("'")[0]
        row = self._rows.get(WORD_START + word)
        if row is not None:
            return [(row, len(word))]
        if len(word) > _MAX_WORD:
            return []
        encoded = self._pieces.encode(WORD_START + word, add_special_tokens=False)
        found = []
        for piece, (start, end) in zip(encoded.ids, encoded.offsets, strict=True):
            if piece:
                found.append((self._piece_row[piece], end - start - (start == 0)))
        return found

    def _han_words(self, run: str) -> list[str]:
        """Cut a run of Han characters into the longest keys from the left, and single characters."""
        rows, longest, found = self._rows, self._longest.get, []
        i, n = 0, len(run)
        while i < n:
            length = longest(run[i : i + 2], 1)
            while length > 1 and run[i : i + length] not in rows:
                length -= 1
            found.append(run[i : i + length])
            i += length
        return found

    def _segments(self, folded: str) -> list[str]:
        if folded.isascii():
            return _LATIN_SEGMENT.findall(folded)
        if not self._traditional.isdisjoint(folded):
            folded = folded.translate(self._simplified)
        return _SEGMENT.findall(folded)

    def rows(self, text: str) -> list[int]:
        """Return the rows of a text in text order, repeats kept; unknown parts are left out."""
        folded = fold(text)
        segments = self._segments(folded)
        if folded.isascii():
            return list(chain.from_iterable(map(self._words.__getitem__, segments)))
        found: list[int] = []
        for segment in segments:
            if segment[0] > WORD_START:
                known = map(self._rows.get, self._han_words(segment))
                found.extend([row for row in known if row is not None])
            else:
                found.extend(self._words[segment])
        return found

    def rows_of_texts(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Return the rows of many texts: (indptr int64 of shape (n + 1,), rows uint32), see `rows`."""
        if sum(map(len, texts)) >= _FEW:
            with self._lock:
                if self._batches is None:
                    from jiyi.models.table_batches import BatchTokenizer

                    self._batches = BatchTokenizer(self, self._rows, self._simplified)
                batches = self._batches
            return batches.rows(texts)
        flat: list[int] = []
        ends = [0]
        for text in texts:
            flat.extend(self.rows(text))
            ends.append(len(flat))
        return np.array(ends, dtype=np.int64), np.array(flat, dtype=np.uint32)

    def coverage(self, text: str) -> float:
        """Return the share of a text's letters and digits that rows stand for, in [0, 1]; 1 if it has none.

        A single letter within a word counts as unknown: the table has them all, and they say nothing of the word.
        """
        folded = fold(text)
        letters = sum(map(str.isalnum, folded))
        if not letters:
            return 1.0
        covered = 0
        for segment in self._segments(folded):
            if segment[0] > WORD_START:
                covered += sum(len(word) for word in self._han_words(segment) if word in self._rows)
            else:
                word, _, tail = segment.partition("'")
                covered += sum(n for _, n in self.latin_rows(segment) if n > 1 or len(word) == 1) + len(tail)
        return min(1.0, covered / letters)


_all: Final[weakref.WeakSet[TableTokenizer]] = weakref.WeakSet()


def _after_fork() -> None:
    for tokenizer in _all:
        # Another thread may have been at work there.
        tokenizer._batches, tokenizer._lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _unigram(keys: Sequence[str], piece_scores: NDArray[np.float32]):  # type: ignore[no-untyped-def]
    # Imported here: `import jiyi.models` stays light for those who bring their own vectors.
    from tokenizers import Tokenizer
    from tokenizers.models import Unigram

    known = np.flatnonzero(~np.isnan(piece_scores))
    vocabulary = [("<unk>", 0.0), *((keys[row], float(piece_scores[row])) for row in known.tolist())]
    return Tokenizer(Unigram(vocabulary, unk_id=0))
