"""Greedy MMR: the best of λ·relevance − (1−λ)·max(0, max similarity to what was chosen), ties to the lower index."""

import math
from collections.abc import Sequence


def mmr(
    relevance: Sequence[float], similarity: Sequence[Sequence[float]], k: int, lambda_: float
) -> tuple[list[int], list[float], list[float], list[int]]:
    order: list[int] = []
    scores: list[float] = []
    penalties: list[float] = []
    blockers: list[int] = []
    while len(order) < min(k, len(relevance)):
        best, best_score, best_penalty, best_blocker = -1, 0.0, 0.0, -1
        for candidate in range(len(relevance)):
            if candidate in order:
                continue
            penalty, blocker = 0.0, -1
            for chosen in order:
                if similarity[chosen][candidate] > penalty:
                    penalty, blocker = similarity[chosen][candidate], chosen
            score = lambda_ * relevance[candidate] - (1.0 - lambda_) * penalty
            if best < 0 or score > best_score:
                best, best_score, best_penalty, best_blocker = candidate, score, penalty, blocker
        order.append(best)
        scores.append(best_score)
        penalties.append(best_penalty)
        blockers.append(best_blocker)
    return order, scores, penalties, blockers


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    norms = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(x * x for x in b))
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / norms if norms > 0.0 else 0.0


def cosine_matrix(vectors: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[min(cosine(a, b), 1.0) for b in vectors] for a in vectors]
