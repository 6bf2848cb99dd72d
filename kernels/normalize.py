"""Put the scores of one signal on a scale that other signals share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float64, int64, jit, reads, writes


def minmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale to 0 (worst) to 1 (best).

    y_i = (x_i − min) / (max − min): Lee 1997, Analyses of Multiple Evidence Combination.

    Args:
        x: shape (n,), float64, finite; higher is better.

    Returns:
        Shape (n,), float64, in [0, 1], in the input's order. A constant list, or one value, is 1.0 each; empty gives
        empty; equal values stay equal. A range beyond float64 (1e308 beside −1e308) is scaled, not overflowed. O(n).

    Raises:
        TypeError: another dtype.
        ValueError: another shape, not contiguous, NaN or infinity.
    """
    y = np.empty(_check.array(x, _check.F64, 1, "x"), np.float64)
    _refuse_nonfinite(_minmax_kernel(x, y), x)
    return y


@jit()
def scale_to_unit(x: Any, y: Any, constant: Any) -> Any:
    """Fill y with x scaled to [0, 1], or with `constant` when x does not vary; −1, or the first index not finite."""
    low, high = np.inf, -np.inf
    for i in range(len(x)):
        if not np.isfinite(x[i]):
            return i
        low, high = min(low, x[i]), max(high, x[i])
    if low >= high:
        y[:] = constant
        return -1
    span = high - low
    if np.isfinite(span):
        for i in range(len(x)):
            y[i] = (x[i] - low) / span
    else:  # halves cannot overflow, and numbers this large lose nothing by it
        span = 0.5 * high - 0.5 * low
        for i in range(len(x)):
            y[i] = (0.5 * x[i] - 0.5 * low) / span
    return -1


@jit((reads(float64), writes(float64)))
def _minmax_kernel(x: Any, y: Any) -> Any:
    return scale_to_unit(x, y, 1.0)


def zscore(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale to mean 0 and standard deviation 1.

    y_i = (x_i − mean) / σ, σ over the population (ddof 0): Montague & Aslam 2001, Relevance Score Normalization for
    Metasearch. Computed on the min-max scaled values, which gives the same y and neither overflows nor cancels.

    Args:
        x: shape (n,), float64, finite; higher is better.

    Returns:
        Shape (n,), float64, in the input's order. A constant list, or one value, is 0.0 each; empty gives empty; equal
        values stay equal. O(n).

    Raises:
        TypeError: another dtype.
        ValueError: another shape, not contiguous, NaN or infinity.
    """
    y = np.empty(_check.array(x, _check.F64, 1, "x"), np.float64)
    _refuse_nonfinite(_zscore_kernel(x, y), x)
    return y


@jit((reads(float64), writes(float64)))
def _zscore_kernel(x: Any, y: Any) -> Any:
    bad = scale_to_unit(x, y, 0.0)
    if bad >= 0 or len(y) == 0:
        return bad
    mean = 0.0
    for value in y:
        mean += value
    mean /= len(y)
    variance = 0.0
    for value in y:
        variance += (value - mean) * (value - mean)
    variance /= len(y)
    if variance > 0.0:
        deviation = np.sqrt(variance)
        for i in range(len(y)):
            y[i] = (y[i] - mean) / deviation
    return -1


def rank_scores(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace each score by its place: 1.0 for the best, down to 1/n for the worst.

    y_i = (n − |{j : x_j > x_i}|) / n: Renda & Straccia 2003, Web Metasearch: Rank vs. Score Based Rank Aggregation.

    Args:
        x: shape (n,), float64, finite; higher is better.

    Returns:
        Shape (n,), float64, in (0, 1], in the input's order. Equal scores share the best of their places, so a constant
        list is 1.0 each; empty gives empty. O(n log n).

    Raises:
        TypeError: another dtype.
        ValueError: another shape, not contiguous, NaN or infinity.
    """
    y = np.empty(_check.array(x, _check.F64, 1, "x"), np.float64)
    _refuse_nonfinite(_rank_scores_kernel(x, np.argsort(x), y), x)
    return y


@jit((reads(float64), reads(int64), writes(float64)))
def _rank_scores_kernel(x: Any, ascending: Any, y: Any) -> Any:
    n = len(x)
    for i in range(n):
        if not np.isfinite(x[i]):
            return i
    better = 0
    for place in range(n):
        i = ascending[n - 1 - place]
        if place > 0 and x[i] != x[ascending[n - place]]:
            better = place
        y[i] = (n - better) / n
    return -1


def _refuse_nonfinite(bad: int, x: NDArray[np.float64]) -> None:
    if bad >= 0:
        raise ValueError(f"x[{bad}] is {x[bad]}, allowed are finite numbers: leave out candidates without a score")
