"""A bounded memory of scores: (query, text) to what one model gave it."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["ScoreCache", "pair_key", "scores_of"]

_owner: Final[ContextVar[str]] = ContextVar("jiyi_scores_of", default="")


@contextmanager
def scores_of(owner: str) -> Iterator[None]:
    """Remember, and look up, the scores of one owner meanwhile (in this thread, or task).

    What is remembered costs no time, so whoever has none left is told it: that must not be what another owner asked.
    """
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


def pair_key(query: str, text: str) -> bytes:
    """Return 16 bytes that stand for a pair of an owner (BLAKE2b, 128 bits): no two share one by chance.

    Lengths go first, so that ("ab", "c") and ("a", "bc") differ.
    """
    owner, first = _owner.get().encode("utf-8", "surrogatepass"), query.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(len(owner).to_bytes(8, "little") + len(first).to_bytes(8, "little"), digest_size=16)
    digest.update(owner)
    digest.update(first)
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.digest()


class ScoreCache:
    """The scores used last, by pair. Holds no text: an entry takes about 150 bytes. Safe to share between threads."""

    def __init__(self, most_pairs: int) -> None:
        """Keep at most `most_pairs` scores; 0 keeps none.

        Raises:
            ValueError: `most_pairs` is negative.
        """
        if not isinstance(most_pairs, int) or isinstance(most_pairs, bool) or most_pairs < 0:
            raise ValueError(f"cache_pairs is {most_pairs!r}; it must be a whole number, 0 for no cache")
        self._most = most_pairs
        self._scores: OrderedDict[bytes, float] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._scores)

    def get(self, key: bytes) -> float | None:
        """Return a pair's score, and count it as used now; None where there is none."""
        with self._lock:
            score = self._scores.get(key)
            if score is not None:
                self._scores.move_to_end(key)
            return score

    def put(self, key: bytes, score: float) -> None:
        """Keep a pair's score; the one unused for longest makes room."""
        if not self._most:
            return
        with self._lock:
            self._scores[key] = score
            self._scores.move_to_end(key)
            if len(self._scores) > self._most:
                self._scores.popitem(last=False)
