"""What the engine asks of an embedder, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["BudgetedCrossEncoder", "CrossEncoder", "Embedder", "TokenTable"]


@runtime_checkable
class Embedder(Protocol):
    """Text to unit vectors. Implementations are safe to share between threads."""

    @property
    def name(self) -> str:
        """Name that a store's manifest keeps: vectors of another name are never compared with these."""
        ...

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed memories.

        Args:
            texts: n texts, anything at all.

        Returns:
            float32 array of shape (n, dim): unit rows; a zero row where nothing of the text is known.
        """
        ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a query: float32 array of shape (dim,), unit, or zero where nothing of it is known."""
        ...


@runtime_checkable
class TokenTable(Protocol):
    """One vector for each token, whatever stands around it: what late interaction needs.

    An optional second capability of an embedder. A token is a row of the table.
    """

    @property
    def name(self) -> str:
        """Name of the table, that of the embedder: a store keeps it beside rows of it."""
        ...

    @property
    def table(self) -> NDArray[np.int8]:
        """int8 array of shape (rows, dim), C-contiguous; a row's vector is `table[row] * scales[row]`."""
        ...

    @property
    def scales(self) -> NDArray[np.float32]:
        """float32 array of shape (rows,), positive."""
        ...

    @property
    def inverse_norms(self) -> NDArray[np.float32]:
        """float32 array of shape (rows,): `table[row] * inverse_norms[row]` is a unit vector."""
        ...

    @property
    def weights(self) -> NDArray[np.float32]:
        """float32 array of shape (rows,) in [0, 1]: the fixed weight of each row, less for frequent words."""
        ...

    def token_rows(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Cut texts into table rows, in text order, repeats kept; what the table does not know is left out.

        Args:
            texts: n texts, anything at all.

        Returns:
            indptr: int64 array of shape (n + 1,); text i has `rows[indptr[i]:indptr[i + 1]]`.
            rows: uint32 array of shape (nnz,).
        """
        ...

    def embed_rows(self, indptr: NDArray[np.int64], rows: NDArray[np.uint32]) -> NDArray[np.float32]:
        """Embed texts already cut: the mean of their rows by the fixed weights, of unit length.

        Args:
            indptr: int64 array of shape (n + 1,), as `token_rows` returns it.
            rows: uint32 array of shape (nnz,).

        Returns:
            float32 array of shape (n, dim), equal to `embed` of the same texts.
        """
        ...

    def embed_weighted(self, rows: NDArray[np.uint32], weights: NDArray[np.float64]) -> NDArray[np.float32]:
        """Embed one text with weights of the caller's, which replace the fixed ones.

        Args:
            rows: uint32 array of shape (m,).
            weights: float64 array of shape (m,), finite, at least 0.

        Returns:
            float32 array of shape (dim,): unit, or zero where the weights or rows add up to nothing.
        """
        ...


@runtime_checkable
class CrossEncoder(Protocol):
    """Reads a query and a text together and says how relevant the text is. Safe to share between threads."""

    @property
    def name(self) -> str:
        """Name of the model, for explanations."""
        ...

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Score texts for one query.

        Args:
            query: anything at all.
            texts: n texts, anything at all.

        Returns:
            float32 array of shape (n,): higher is more relevant. Only the scores of one model can be compared.
        """
        ...


@runtime_checkable
class BudgetedCrossEncoder(Protocol):
    """What a cross-encoder can do beside: many queries at once, within a time, and knowing what it cannot read.

    An optional second capability of a `CrossEncoder`.
    """

    def score_pairs(self, pairs: Sequence[tuple[str, str]], *, deadline: float | None = None) -> NDArray[np.float32]:
        """Score pairs of query and text, in batches across queries.

        Args:
            pairs: n pairs, the best candidates first: they are scored first.
            deadline: a `time.perf_counter()` value after which nothing more is started; None scores all.

        Returns:
            float32 array of shape (n,): higher is more relevant; NaN for a pair not reached in time.
        """
        ...

    def knows(self, text: str) -> float:
        """Return the share of a text's letters that the model can read, in [0, 1]; 1 for a text without letters."""
        ...
