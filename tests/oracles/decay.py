"""Recency by age, the age clamped at 0 before anything else."""

import math


def exponential(age_s: float, half_life_s: float) -> float:
    return 2.0 ** -(max(age_s, 0.0) / half_life_s)


def linear(age_s: float, horizon_s: float) -> float:
    return max(0.0, 1.0 - max(age_s, 0.0) / horizon_s)


def logarithmic(age_s: float, unit_s: float) -> float:
    return 1.0 / math.log(math.e + max(age_s, 0.0) / unit_s)
