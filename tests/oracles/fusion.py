"""Reciprocal rank fusion and the weighted sum."""

from collections.abc import Sequence


def rrf(
    lists: Sequence[Sequence[int]], k: float = 60.0, weights: Sequence[float] | None = None
) -> tuple[list[int], list[float]]:
    scores: dict[int, float] = {}
    for number, ids in enumerate(lists):
        weight = 1.0 if weights is None else weights[number]
        for rank, identifier in enumerate(dict.fromkeys(ids), start=1):
            scores[identifier] = scores.get(identifier, 0.0) + weight / (k + rank)
    ranked = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
    return [identifier for identifier, _ in ranked], [score for _, score in ranked]


def rrf_scores(
    ranks: Sequence[Sequence[int]], n: int, k: float = 60.0, weights: Sequence[float] | None = None
) -> list[float]:
    return [
        sum(
            (1.0 if weights is None else weights[number]) / (k + row[candidate])
            for number, row in enumerate(ranks)
            if row[candidate] > 0
        )
        for candidate in range(n)
    ]


def weighted_sum(scores: Sequence[Sequence[float]], weights: Sequence[float], n: int) -> list[float]:
    return [sum(weight * row[candidate] for weight, row in zip(weights, scores, strict=True)) for candidate in range(n)]


def weighted_lists(
    lists: Sequence[Sequence[tuple[int, float]]], weights: Sequence[float]
) -> tuple[list[int], list[float]]:
    totals: dict[int, float] = {}
    for pairs, weight in zip(lists, weights, strict=True):
        first: dict[int, float] = {}
        for identifier, score in pairs:
            first.setdefault(identifier, score)
        low, high = min(first.values(), default=0.0), max(first.values(), default=0.0)
        for identifier, score in first.items():
            scaled = (score - low) / (high - low) if high > low else 1.0
            totals[identifier] = totals.get(identifier, 0.0) + weight * scaled
    ranked = sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))
    return [identifier for identifier, _ in ranked], [total for _, total in ranked]
