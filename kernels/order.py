"""Candidates by descending score, and those that were chosen put in front."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float64, int64, jit, reads, writes
from jiyi.kernels._order import sort_best_first


def best_first(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Positions by descending score.

    Args:
        scores: shape (n,), float64.

    Returns:
        Shape (n,), int64; ties keep their order, NaN counts as −∞. Empty gives empty. O(n log n), by heap sort.

    Raises:
        TypeError: another dtype.
        ValueError: another shape, or not contiguous.
    """
    order = np.empty(_check.array(scores, _check.F64, 1, "scores"), np.int64)
    _best_first_kernel(scores, order)
    return order


@jit((reads(float64), writes(int64)))
def _best_first_kernel(scores: Any, order: Any) -> None:
    keys = np.empty(len(scores), np.float64)
    for i in range(len(scores)):
        keys[i] = -np.inf if np.isnan(scores[i]) else scores[i]
        order[i] = i
    sort_best_first(keys, order, len(scores))


def moved_to_front(order: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """An order with some of its places first, and the others after them as they were.

    Args:
        order: shape (n,), int64.
        places: shape (m,), int64: places in `order`, 0 to n − 1, each once.

    Returns:
        Shape (n,), int64: order[places], then the rest. No places: the same order. O(n).

    Raises:
        TypeError: another dtype.
        ValueError: another shape, not contiguous, or a place out of range or twice.
    """
    n = _check.array(order, _check.I64, 1, "order")
    _check.array(places, _check.I64, 1, "places")
    moved = np.empty(n, np.int64)
    bad = _moved_to_front_kernel(order, places, moved)
    if bad >= 0:
        raise ValueError(
            f"places[{bad}] is {places[bad]}, allowed is 0 to {n - 1}, each once: pass places in the order"
        )
    return moved


@jit((reads(int64), reads(int64), writes(int64)))
def _moved_to_front_kernel(order: Any, places: Any, moved: Any) -> Any:
    taken = np.zeros(len(order), np.bool_)
    for i in range(len(places)):
        place = places[i]
        if place < 0 or place >= len(order) or taken[place]:
            return i
        taken[place] = True
        moved[i] = order[place]
    count = len(places)
    for place in range(len(order)):
        if not taken[place]:
            moved[count] = order[place]
            count += 1
    return -1
