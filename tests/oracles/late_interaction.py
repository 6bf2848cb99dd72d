"""Weighted MaxSim over a static token table."""

import math
from collections.abc import Sequence


def max_sim(
    query_vectors: Sequence[Sequence[float]],
    query_weights: Sequence[float],
    table: Sequence[Sequence[int]],
    inverse_norms: Sequence[float],
    tokens: Sequence[int],
) -> float:
    total = 0.0
    for vector, weight in zip(query_vectors, query_weights, strict=True):
        best = 0.0
        for token in tokens:
            cosine = math.fsum(x * y for x, y in zip(vector, table[token], strict=True)) * inverse_norms[token]
            best = max(best, cosine)
        total += weight * best
    return total


def token_frequency(token: int, texts: Sequence[Sequence[int]], live: Sequence[int]) -> int:
    return sum(1 for tokens, counts in zip(texts, live, strict=True) if counts and token in tokens)
