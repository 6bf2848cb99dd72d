"""How much of a memory's importance is left at an age."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float64, jit, reads, uint8, writes


def exponential(age_s: NDArray[np.float64], half_life_s: float) -> NDArray[np.float64]:
    """Exponential decay: half after one half-life, a quarter after two.

    recency = 2^(−age / half_life), the shape of Ebbinghaus' forgetting curve (1885).

    Args:
        age_s: shape (n,), float64, seconds; below 0 (the future) counts as 0, infinity gives 0.
        half_life_s: seconds, finite, above 0.

    Returns:
        Shape (n,), float64, in [0, 1], in the input's order. Equal ages give equal factors; empty gives empty; nothing
        overflows. O(n).

    Raises:
        TypeError: another dtype, or half_life_s not a number.
        ValueError: another shape, not contiguous, NaN among the ages, half_life_s not finite or not above 0.
    """
    recency = np.empty(_check.array(age_s, _check.F64, 1, "age_s"), np.float64)
    _refuse_nan(_exponential_kernel(age_s, _check.positive(half_life_s, "half_life_s"), recency), age_s)
    return recency


@jit((reads(float64), float64, writes(float64)))
def _exponential_kernel(age_s: Any, half_life_s: Any, recency: Any) -> Any:
    for i in range(len(age_s)):
        if np.isnan(age_s[i]):
            return i
        # The age is clamped before the power: 2^(+large) would overflow.
        recency[i] = np.exp2(-(max(age_s[i], 0.0) / half_life_s))
    return -1


def linear(age_s: NDArray[np.float64], horizon_s: float) -> NDArray[np.float64]:
    """Linear decay: from 1 at age 0 to 0 at the horizon, and 0 beyond.

    recency = max(0, 1 − age / horizon): the linear candidate of the first seed.

    Args:
        age_s: shape (n,), float64, seconds; below 0 (the future) counts as 0, infinity gives 0.
        horizon_s: seconds, finite, above 0.

    Returns:
        Shape (n,), float64, in [0, 1], in the input's order. Equal ages give equal factors; empty gives empty. O(n).

    Raises:
        TypeError: another dtype, or horizon_s not a number.
        ValueError: another shape, not contiguous, NaN among the ages, horizon_s not finite or not above 0.
    """
    recency = np.empty(_check.array(age_s, _check.F64, 1, "age_s"), np.float64)
    _refuse_nan(_linear_kernel(age_s, _check.positive(horizon_s, "horizon_s"), recency), age_s)
    return recency


@jit((reads(float64), float64, writes(float64)))
def _linear_kernel(age_s: Any, horizon_s: Any, recency: Any) -> Any:
    for i in range(len(age_s)):
        if np.isnan(age_s[i]):
            return i
        recency[i] = max(1.0 - max(age_s[i], 0.0) / horizon_s, 0.0)
    return -1


def logarithmic(age_s: NDArray[np.float64], unit_s: float) -> NDArray[np.float64]:
    """Logarithmic decay: quick at first, with a long tail.

    recency = 1 / ln(e + age / unit): the logarithmic candidate of the first seed.

    Args:
        age_s: shape (n,), float64, seconds; below 0 (the future) counts as 0, infinity gives 0.
        unit_s: seconds that count as one step, finite, above 0.

    Returns:
        Shape (n,), float64, in [0, 1], in the input's order. Equal ages give equal factors; empty gives empty. O(n).

    Raises:
        TypeError: another dtype, or unit_s not a number.
        ValueError: another shape, not contiguous, NaN among the ages, unit_s not finite or not above 0.
    """
    recency = np.empty(_check.array(age_s, _check.F64, 1, "age_s"), np.float64)
    _refuse_nan(_logarithmic_kernel(age_s, _check.positive(unit_s, "unit_s"), recency), age_s)
    return recency


@jit((reads(float64), float64, writes(float64)))
def _logarithmic_kernel(age_s: Any, unit_s: Any, recency: Any) -> Any:
    for i in range(len(age_s)):
        if np.isnan(age_s[i]):
            return i
        recency[i] = 1.0 / np.log(np.e + max(age_s[i], 0.0) / unit_s)
    return -1


#: Numbers that `aged` knows the curves by; 0 is no aging.
CURVES: Final = {"exponential": 1, "linear": 2, "logarithmic": 3}


def aged(
    age_s: NDArray[np.float64],
    kinds: NDArray[np.uint8],
    curves: NDArray[np.uint8],
    lengths_s: NDArray[np.float64],
    floors: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Decay by kind: each memory by the curve of its kind, and never below that kind's floor.

    recency(i) = max(floors[kind], curve(age; lengths_s[kind])), the curves those of `exponential` (its length the
    half-life), `linear` (the horizon) and `logarithmic` (the unit), to the bit.

    Args:
        age_s: shape (n,), float64, seconds; below 0 (the future) counts as 0, infinity gives the floor.
        kinds: shape (n,), uint8, numbers of kinds.
        curves: shape (kinds,), uint8: by kind, one of `CURVES`, 0 for a kind that does not age (1 at every age).
        lengths_s: shape of `curves`, float64, seconds, finite, above 0.
        floors: shape of `curves`, float64, 0 to 1.

    Returns:
        Shape (n,), float64, in [0, 1], in the input's order. Empty gives empty. O(n).

    Raises:
        TypeError: an array of another dtype.
        ValueError: another shape, not contiguous, NaN among the ages, a kind or curve out of range.
    """
    n = _check.array(age_s, _check.F64, 1, "age_s")
    _check.length(_check.array(kinds, _check.U8, 1, "kinds"), n, "kinds", "age_s")
    count = _check.array(curves, _check.U8, 1, "curves")
    _check.length(_check.array(lengths_s, _check.F64, 1, "lengths_s"), count, "lengths_s", "curves")
    _check.length(_check.array(floors, _check.F64, 1, "floors"), count, "floors", "curves")
    recency = np.empty(n, np.float64)
    bad = _aged_kernel(age_s, kinds, curves, lengths_s, floors, recency)
    if bad >= 0:
        _refuse_nan(bad if np.isnan(age_s[bad]) else -1, age_s)
        raise ValueError(
            f"kinds[{bad}] is {kinds[bad]}, allowed is 0 to {count - 1} with a curve from 0 to {len(CURVES)}: "
            "pass a curve for every kind"
        )
    return recency


@jit((reads(float64), reads(uint8), reads(uint8), reads(float64), reads(float64), writes(float64)))
def _aged_kernel(age_s: Any, kinds: Any, curves: Any, lengths_s: Any, floors: Any, recency: Any) -> Any:
    for i in range(len(age_s)):
        kind = kinds[i]
        if np.isnan(age_s[i]) or kind >= len(curves) or curves[kind] > 3:
            return i
        age, length, curve = max(age_s[i], 0.0), lengths_s[kind], curves[kind]
        factor = 1.0
        if curve == 1:
            factor = np.exp2(-(age / length))
        elif curve == 2:
            factor = max(1.0 - age / length, 0.0)
        elif curve == 3:
            factor = 1.0 / np.log(np.e + age / length)
        recency[i] = max(factor, floors[kind])
    return -1


def _refuse_nan(bad: int, age_s: NDArray[np.float64]) -> None:
    if bad >= 0:
        raise ValueError(f"age_s[{bad}] is {age_s[bad]}, allowed are numbers: give every memory a timestamp")
