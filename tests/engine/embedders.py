"""Small deterministic embedders that follow the protocols, so that the engine is tested without a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.text import tokenize


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float32]:
    norm = float(np.linalg.norm(vector))
    return (vector / norm if norm else vector).astype(np.float32)


class HashEmbedder:
    """The mean of one pseudo-random vector a word; words that are equal are alike, others are not."""

    def __init__(self, dim: int = 32, name: str = "hash") -> None:
        self._dim = dim
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def dim(self) -> int:
        return self._dim

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self.embed_query(text) for text in texts]) if texts else np.empty((0, self._dim), np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        vector = np.zeros(self._dim)
        for token in tokenize(text):
            vector += np.random.default_rng(_digest(token)).normal(size=self._dim)
        return _unit(vector)


class HashTable(HashEmbedder):
    """A token table of 512 rows: a word's row is its hash, so it has both capabilities of an embedder."""

    ROWS = 512

    def __init__(self, dim: int = 32, name: str = "hash-table") -> None:
        super().__init__(dim, name)
        rng = np.random.default_rng(7)
        self._table = rng.integers(-127, 128, (self.ROWS, dim)).astype(np.int8)
        self._scales = np.full(self.ROWS, 0.01, np.float32)
        self._inverse_norms = (1 / np.linalg.norm(self._table.astype(np.float64), axis=1)).astype(np.float32)
        self._weights = np.linspace(0.2, 1.0, self.ROWS).astype(np.float32)

    @property
    def table(self) -> NDArray[np.int8]:
        return self._table

    @property
    def scales(self) -> NDArray[np.float32]:
        return self._scales

    @property
    def inverse_norms(self) -> NDArray[np.float32]:
        return self._inverse_norms

    @property
    def weights(self) -> NDArray[np.float32]:
        return self._weights

    def token_rows(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        rows = [[_digest(token) % self.ROWS for token in tokenize(text)] for text in texts]
        indptr = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=indptr[1:])
        return indptr, np.array([row for text in rows for row in text], np.uint32)

    def embed_rows(self, indptr: NDArray[np.int64], rows: NDArray[np.uint32]) -> NDArray[np.float32]:
        made = np.zeros((len(indptr) - 1, self.dim), np.float32)
        for i in range(len(made)):
            part = rows[indptr[i] : indptr[i + 1]]
            made[i] = self.embed_weighted(part, self._weights[part].astype(np.float64))
        return made

    def embed_weighted(self, rows: NDArray[np.uint32], weights: NDArray[np.float64]) -> NDArray[np.float32]:
        vectors = self._table[rows].astype(np.float64) * self._scales[rows, None]
        return _unit((vectors * np.asarray(weights, np.float64)[:, None]).sum(axis=0))

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.embed_rows(*self.token_rows(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self.embed([text])[0]


class SpyEmbedder(HashEmbedder):
    """A `HashEmbedder` that remembers the queries it was given."""

    def __init__(self, dim: int = 32, name: str = "spy") -> None:
        super().__init__(dim, name)
        self.queries: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        made = [HashEmbedder.embed_query(self, text) for text in texts]
        return np.stack(made) if made else np.empty((0, self.dim), np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self.queries.append(text)
        return super().embed_query(text)


def hashed_score(query: str, text: str) -> float:
    """A score in [0, 1) that is the same in every process."""
    return _digest(f"{query}\n{text}") % 10_007 / 10_007


class PlainScorer:
    """A `CrossEncoder` and no more: answers from a function, and remembers every call."""

    def __init__(self, score_of: Callable[[str, str], float] = hashed_score, name: str = "plain") -> None:
        self.name = name
        self.score_of = score_of
        self.asked: list[tuple[str, list[str]]] = []

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.append((query, list(texts)))
        return np.array([self.score_of(query, text) for text in texts], np.float32)


class PairScorer:
    """A `CrossEncoder` that scores pairs too, reads what it is told to, and may stop after some."""

    def __init__(
        self,
        score_of: Callable[[str, str], float] = hashed_score,
        *,
        name: str = "pairs",
        knows: Callable[[str], float] = lambda text: 1.0,
        most: int | None = None,
        answer: Callable[[list[tuple[str, str]]], Any] | None = None,
    ) -> None:
        """Say what it answers.

        Args:
            score_of: of a query and a text.
            name: for explanations.
            knows: share of a text's letters that it reads.
            most: pairs that it reaches in a call; NaN for the others.
            answer: what a call returns, or raises, instead.
        """
        self.name = name
        self.score_of = score_of
        self.share = knows
        self.most = most
        self.answer = answer
        self.calls: list[list[tuple[str, str]]] = []
        self.deadlines: list[float | None] = []

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        raise NotImplementedError("a scorer of pairs is asked for pairs")

    def score_pairs(self, pairs: Sequence[tuple[str, str]], *, deadline: float | None = None) -> Any:
        self.calls.append(list(pairs))
        self.deadlines.append(deadline)
        if self.answer is not None:
            return self.answer(list(pairs))
        scores = np.array([self.score_of(query, text) for query, text in pairs], np.float32)
        if self.most is not None:
            scores[self.most :] = np.nan
        return scores

    def knows(self, text: str) -> float:
        return self.share(text)


def reads_latin(text: str) -> float:
    """Share of a text's letters that are ASCII; 1 without letters."""
    letters = [character for character in text if character.isalpha()]
    return sum(letter.isascii() for letter in letters) / len(letters) if letters else 1.0
