"""From memories to what is searched: terms, token rows and vectors, as the ledger keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.errors import DimensionError
from jiyi.kernels.topk import first_nonfinite_row
from jiyi.ledger import DerivedRow
from jiyi.memory import Memory
from jiyi.models.protocols import Embedder, TokenTable
from jiyi.models.static import StaticEmbedder
from jiyi.quoted import quoted
from jiyi.terms import memory_term_bytes


def as_vector(vector: Any, dim: int | None, what: str) -> NDArray[np.float32]:
    """Return one vector as float32, checked.

    Raises:
        TypeError, ValueError: it is no list of numbers, or holds NaN or infinity after the cast to float32.
        DimensionError: its length is not `dim`.
    """
    array = _as_float32(vector, what)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{what} must be one-dimensional and not empty, got shape {array.shape}")
    if dim is not None and len(array) != dim:
        raise DimensionError(len(array), dim, what)
    if not np.isfinite(array).all():
        raise ValueError(f"{what} holds NaN or infinity (in float32) at position {int(np.argmin(np.isfinite(array)))}")
    return array


def _as_float32(values: Any, what: str) -> NDArray[np.float32]:
    try:
        given = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{what} must be numbers in rows of one length: {error}") from None
    if given.dtype.kind not in "fiu":
        raise TypeError(f"{what} must be numbers, got {type(values).__name__} of {given.dtype}")
    with np.errstate(over="ignore"):  # what overflows to infinity is refused by the caller
        return np.ascontiguousarray(given.astype(np.float32))


def spoken(memory: Memory) -> str:
    """Return what models read: who says it is part of what is said, and "what did Ana say" should find Ana's words."""
    return memory.text if memory.speaker is None else f"{memory.speaker}: {memory.text}"


def analyse(
    memories: Sequence[Memory],
    vectors: Sequence[NDArray[np.float32] | None],
    embedder: Embedder | None,
    table: TokenTable | None,
) -> list[DerivedRow]:
    """Analyse memories. Those without a vector get the embedder's, if there is one; tokens are rows of the table.

    Raises:
        ValueError: the embedder returned NaN or infinity; the message names the memory.
        DimensionError: the embedder returned vectors of another length than it says.
    """
    texts = [spoken(memory) for memory in memories]
    cut = memory_term_bytes(memories)
    if table is not None:
        token_indptr, tokens = table.token_rows(texts)
    else:
        token_indptr, tokens = np.zeros(len(texts) + 1, dtype=np.int64), np.empty(0, dtype=np.uint32)
    made = _embedded(memories, texts, vectors, embedder, table, token_indptr, tokens)
    token_bytes, bounds = tokens.tobytes(), token_indptr.tolist()
    return [
        DerivedRow(vector, terms, freqs, token_bytes[4 * start : 4 * end])
        for vector, (terms, freqs), (start, end) in zip(made, cut, pairwise(bounds), strict=True)
    ]


def checked_embeddings(
    returned: Any, embedder: Embedder, count: int, which: Callable[[int], str]
) -> NDArray[np.float32]:
    """Return what an embedder made of texts as float32 of shape (count, dim).

    Args:
        returned: by its `embed`.
        embedder: for the messages, and its dimension.
        count: how many texts it was given.
        which: names one of them by its place, for the message.

    Raises:
        TypeError, ValueError: it is no array of numbers with a row for each text, or holds NaN or infinity.
        DimensionError: the rows are of another length than it says.
    """
    what = f"what the embedder {embedder.name!r} returned"
    if type(returned) is np.ndarray and returned.dtype == np.float32 and returned.flags.c_contiguous:
        embedded: NDArray[np.float32] = returned
    else:
        embedded = _as_float32(returned, what)
    if embedded.ndim != 2 or len(embedded) != count:
        raise ValueError(f"{what} has shape {embedded.shape}; for {count} texts it must be one row each")
    if embedded.shape[1] != embedder.dim:
        raise DimensionError(embedded.shape[1], int(embedder.dim), what)
    bad = first_nonfinite_row(embedded)
    if bad >= 0:
        raise ValueError(
            f"the embedder {embedder.name!r} returned NaN or infinity for memory {which(bad)}; "
            "nothing of the batch was stored"
        )
    return embedded


def _embedded(
    memories: Sequence[Memory],
    texts: Sequence[str],
    vectors: Sequence[NDArray[np.float32] | None],
    embedder: Embedder | None,
    table: TokenTable | None,
    token_indptr: NDArray[np.int64],
    tokens: NDArray[np.uint32],
) -> list[bytes | None]:
    made = [None if vector is None else vector.tobytes() for vector in vectors]
    missing = [i for i, vector in enumerate(vectors) if vector is None]
    if embedder is None or not missing:
        return made
    # The table is the embedder's own; asking whether an object is of a protocol takes longer than embedding a text.
    given: object = embedder
    own = table if table is given else embedder if isinstance(embedder, TokenTable) else None
    if own is not None:
        made_here = own.embed_rows(token_indptr, tokens)
        if len(missing) < len(vectors):
            made_here = made_here[missing]
    else:
        made_here = embedder.embed([texts[i] for i in missing])
    if type(own) is StaticEmbedder:  # whose kernel returns nothing but finite rows
        embedded = made_here
    else:
        embedded = checked_embeddings(
            made_here,
            embedder,
            len(missing),
            lambda bad: f"{missing[bad]} of the batch (id {quoted(memories[missing[bad]].id)})",
        )
    content, width = embedded.tobytes(), 4 * embedder.dim
    for place, i in enumerate(missing):
        made[i] = content[width * place : width * (place + 1)]
    return made
