"""The k best, ties to the lower row; exact dot products and norms."""

import math
from collections.abc import Sequence


def top_k(scores: Sequence[float], eligible: Sequence[int], k: int, above: float = -math.inf) -> list[int]:
    rows = [row for row, score in enumerate(scores) if eligible[row] and score > above]
    return sorted(rows, key=lambda row: (-scores[row], row))[:k]


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def unit(vector: Sequence[float]) -> list[float]:
    norm = math.sqrt(math.fsum(x * x for x in vector))
    return [x / norm for x in vector] if norm > 0.0 else list(vector)


def first_nonfinite_row(vectors: Sequence[Sequence[float]]) -> int:
    return next((row for row, vector in enumerate(vectors) if not all(map(math.isfinite, vector))), -1)
