"""BM25 on rows given as {token: frequency}."""

import math
from collections.abc import Mapping, Sequence


def idf(df: int, n_docs: int) -> float:
    return math.log(1.0 + (n_docs - df + 0.5) / (df + 0.5))


def document_frequency(token: int, rows: Sequence[Mapping[int, int]], live: Sequence[int]) -> int:
    return sum(1 for row, counts in zip(rows, live, strict=True) if counts and token in row)


def score(
    query: Sequence[int],
    weights: Sequence[float],
    row: Mapping[int, int],
    length: int,
    average_length: float,
    k1: float,
    b: float,
) -> float:
    relative = length / average_length if average_length > 0 else 1.0
    return sum(
        weight * row[token] * (k1 + 1.0) / (row[token] + k1 * (1.0 - b + b * relative))
        for token, weight in zip(query, weights, strict=True)
        if token in row
    )


def postings(rows: Sequence[Mapping[int, int]], vocabulary_size: int) -> list[list[tuple[int, int]]]:
    return [
        [(number, row[token]) for number, row in enumerate(rows) if token in row] for token in range(vocabulary_size)
    ]
