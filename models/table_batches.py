"""From many texts to the rows of a token table at once, by kernels: what `TableTokenizer.rows` gives for each."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import cutting
from jiyi.kernels.cutting import Cut, cut
from jiyi.kernels.interning import Words
from jiyi.kernels.longest_match import build_trie, match_rows
from jiyi.models.table_tokenizer import HAN, WORD_START, TableTokenizer, fold

# What is known of words is forgotten when there are so many: random words cannot make it grow without bound.
_MOST_WORDS: Final = 1 << 17
_MOST_LETTERS: Final = 1 << 21
# Longer texts are cut by themselves, and so many characters at a time.
_LONG: Final = 1 << 16
_MANY: Final = 1 << 18


class BatchTokenizer:
    """Cuts many texts into rows of one table. Safe to share between threads.

    Args:
        one_by_one: cuts single texts.
        rows: key to row.
        simplified: traditional Han character to the simplified one.
    """

    def __init__(self, one_by_one: TableTokenizer, rows: Mapping[str, int], simplified: Mapping[int, str]) -> None:
        self._one_by_one = one_by_one
        self._lock = threading.Lock()
        self._classes: NDArray[np.uint8] = np.full(cutting.CODE_POINTS, cutting.SEPARATOR, np.uint8)
        for letters in ("az", "09"):
            self._classes[ord(letters[0]) : ord(letters[1]) + 1] = cutting.LETTER
        for first, last in re.findall("(.)(?:-(.))?", HAN):
            self._classes[ord(first) : ord(last or first) + 1] = cutting.RUN
        self._simplified: NDArray[np.uint32] = np.arange(cutting.CODE_POINTS, dtype=np.uint32)
        self._simplified[list(simplified)] = list(map(ord, simplified.values()))
        keys = [key for key in rows if key[0] > WORD_START]
        self._trie = build_trie(keys, [rows[key] for key in keys])
        self._forget()

    def _forget(self) -> None:
        self._words = Words()
        self._known = 0
        self._word_ends: NDArray[np.int64] = np.zeros(1, np.int64)
        self._word_rows: NDArray[np.uint32] = np.empty(0, np.uint32)

    def rows(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Return the rows of texts: (indptr int64 of shape (n + 1,), rows uint32)."""
        parts: list[tuple[NDArray[np.int64], NDArray[np.uint32]]] = []
        start, size = 0, 0
        for i, text in enumerate(texts):
            if len(text) > _LONG:
                parts.append(self._some(texts[start:i]))
                own = np.array(self._one_by_one.rows(text), np.uint32)
                parts.append((np.array([0, len(own)], np.int64), own))
                start, size = i + 1, 0
                continue
            if size + len(text) > _MANY:
                parts.append(self._some(texts[start:i]))
                start, size = i, 0
            size += len(text)
        parts.append(self._some(texts[start:]))
        if len(parts) == 1:
            return parts[0]
        counts = np.concatenate([np.diff(indptr) for indptr, _ in parts])
        indptr = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        return indptr, np.concatenate([rows for _, rows in parts])

    def _some(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        prepared = list(map(fold, texts))
        bounds = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(text) for text in prepared], out=bounds[1:])
        codes = np.frombuffer("".join(prepared).encode("utf-32-le", "surrogatepass"), np.uint32)
        if len(codes) and int(codes.max()) > 0x7F:
            codes = self._simplified[codes]
        segments = cut(codes, bounds, self._classes)
        assert isinstance(segments, Cut)  # every class is known
        with self._lock:
            if self._words.size > _MOST_WORDS or self._words.letters > _MOST_LETTERS:
                self._forget()
            numbers = self._words.number(codes, segments.starts, segments.ends, segments.kinds, most_kind=cutting.WORD)
            self._learn()
            return match_rows(codes, segments, numbers, self._word_ends, self._word_rows, self._trie)

    def _learn(self) -> None:
        if self._known == self._words.size:
            return
        rows = [[row for row, _ in self._one_by_one.latin_rows(word)] for word in self._words.texts(self._known)]
        ends = int(self._word_ends[-1]) + np.cumsum([len(of_word) for of_word in rows])
        self._word_ends = np.concatenate((self._word_ends, ends.astype(np.int64)))
        flat = np.array([row for of_word in rows for row in of_word], np.uint32)
        self._word_rows = np.concatenate((self._word_rows, flat))
        self._known = self._words.size
