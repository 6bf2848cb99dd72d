"""Batches of rows of like length: a batch costs what its longest row costs, for every row in it.

One row of 512 tokens among 31 of 20 makes the whole batch 19 times slower; sorted into batches of its own it costs
only itself. Small batches lose little on a CPU: a six-layer model 384 wide runs eight rows of 46 tokens at a time as
fast, per token, as 32 of them, and in int8 one row as fast as any (`benches/test_cross_encoder.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BATCH_TOKENS", "encoder_feeds", "pad", "plan_batches"]

# On a CPU a larger batch is no faster and its activations leave the cache; a GPU is filled by tens of thousands.
BATCH_TOKENS: Final = {"cpu": 512, "cuda": 32_768}

# A row is padded to at most a quarter more than itself, or by a few tokens where it is short: below those a batch's
# own cost (about that of 16 tokens on one core) is more than what the padding costs.
_STRETCH: Final = 1.25
_FEW_TOKENS: Final = 4


def plan_batches(lengths: Sequence[int], *, most_tokens: int, most_rows: int | None = None) -> list[list[int]]:
    """Group rows of like length.

    Args:
        lengths: tokens of each row, at least 1.
        most_tokens: tokens a batch may have, padding included; a longer row has a batch of its own.
        most_rows: rows a batch may have; None sets no limit.

    Returns:
        Batches of row numbers, every row in exactly one: no row padded to more than 1.25 times itself (or by more than
        4 tokens). Batches stand in the order of the first row each holds, so that a caller who sorted rows by
        importance can stop early; so do the rows within a batch.
    """
    batches: list[list[int]] = []
    longest = 0
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        length = lengths[row]
        full = not batches or (len(batches[-1]) + 1) * longest > most_tokens or len(batches[-1]) == most_rows
        if full or longest > max(length * _STRETCH, length + _FEW_TOKENS):
            batches.append([])
            longest = length
        batches[-1].append(row)
    for batch in batches:
        batch.sort()
    return sorted(batches)


def pad(rows: Sequence[Sequence[int]], value: int) -> NDArray[np.int64]:
    """Stack rows of tokens, padded at their end.

    Args:
        rows: at least one row; row i has length_i tokens.
        value: what to pad with.

    Returns:
        int64 array of shape (len(rows), max(length_i)).
    """
    own = _own(rows)
    padded = np.full(own.shape, value, np.int64)
    padded[own] = np.fromiter(chain.from_iterable(rows), np.int64, np.count_nonzero(own))
    return padded


def _own(rows: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Where a row's own tokens are once it is padded: bool array of shape (len(rows), max(length_i))."""
    lengths = np.array([len(row) for row in rows])
    own: NDArray[np.bool_] = np.arange(lengths.max()) < lengths[:, None]
    return own


def encoder_feeds(
    rows: Sequence[Sequence[int]], pad_id: int, types: Sequence[Sequence[int]] | None = None
) -> dict[str, NDArray[np.int64]]:
    """Build every input an encoder may take, for rows of tokens.

    Args:
        rows: ids of each row, with special tokens; at least one row.
        pad_id: id that fills the end of shorter rows.
        types: token types of each row; None stands for all 0.

    Returns:
        input_ids, attention_mask, token_type_ids, position_ids: int64 arrays of shape (n, longest).
    """
    ids = pad(rows, pad_id)
    return {
        "input_ids": ids,
        "attention_mask": _own(rows).astype(np.int64),
        "token_type_ids": pad(types, 0) if types is not None else np.zeros_like(ids),
        "position_ids": np.broadcast_to(np.arange(ids.shape[1]), ids.shape),
    }
