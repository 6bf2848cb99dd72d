"""J(A, B) = |A ∩ B| / |A ∪ B|, J(∅, ∅) = 0."""

from collections.abc import Iterable, Sequence


def jaccard(a: Iterable[int], b: Iterable[int]) -> float:
    a, b = set(a), set(b)
    return len(a & b) / len(a | b) if a | b else 0.0


def jaccard_matrix(rows: Sequence[Sequence[int]]) -> list[list[float]]:
    return [[jaccard(a, b) for b in rows] for a in rows]
