"""min-max, z-score and rank scores in exact rational arithmetic, rounded once at the end."""

import math
from collections.abc import Sequence
from fractions import Fraction


def minmax(x: Sequence[float]) -> list[float]:
    if not x:
        return []
    low, high = Fraction(min(x)), Fraction(max(x))
    return [1.0 if high == low else float((Fraction(value) - low) / (high - low)) for value in x]


def zscore(x: Sequence[float]) -> list[float]:
    if len(set(x)) <= 1:
        return [0.0] * len(x)
    low, high = Fraction(min(x)), Fraction(max(x))
    # A scaled copy has the same z-scores, and stays in the range of a float.
    exact = [(Fraction(value) - low) / (high - low) for value in x]
    mean = sum(exact) / len(exact)
    variance = sum((value - mean) ** 2 for value in exact) / len(exact)
    return [float(value - mean) / math.sqrt(variance) for value in exact]


def rank_scores(x: Sequence[float]) -> list[float]:
    return [(len(x) - sum(other > value for other in x)) / len(x) for value in x]
