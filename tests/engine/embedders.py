"""Small deterministic embedders that follow the protocols, so that the engine is tested without a model."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

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
