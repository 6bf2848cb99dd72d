"""The weighted mean of table rows."""

import math
from collections.abc import Sequence


def mean_rows(
    table: Sequence[Sequence[int]],
    scales: Sequence[float],
    tokens: Sequence[int],
    weights: Sequence[float],
    normalize: bool = True,
) -> list[float]:
    dimension = len(table[0])
    mass = math.fsum(weights[token] for token in tokens)
    if mass == 0.0:
        return [0.0] * dimension
    mean = [math.fsum(weights[t] * scales[t] * table[t][j] for t in tokens) / mass for j in range(dimension)]
    norm = math.sqrt(math.fsum(value * value for value in mean))
    if not normalize:
        return mean
    return [value / norm for value in mean] if norm > 0.0 else mean
