"""Sets in pure Python: the Jaccard similarity of every pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol import Work, serve, texts_in


def matrix(sets: list[frozenset[int]]) -> list[list[float]]:
    n = len(sets)
    similarities = [[0.0] * n for _ in range(n)]
    for i, a in enumerate(sets):
        size, row = len(a), similarities[i]
        row[i] = 1.0 if a else 0.0
        for j in range(i):
            b = sets[j]
            shared = len(a & b)
            if shared:
                row[j] = similarities[j][i] = shared / (size + len(b) - shared)
    return similarities


def _rounded(rows: list[list[float]]) -> list[list[float]]:
    return [[round(value, 12) for value in row] for row in rows]


def built(folder: Path, asked: dict[str, Any]) -> Work:
    lists = texts_in(folder, "sets")
    return Work(
        lambda _: matrix([frozenset(tokens) for tokens in lists]), 1, _rounded(matrix([*map(frozenset, lists)]))
    )


def ready(folder: Path, asked: dict[str, Any]) -> Work:
    sets = [frozenset(tokens) for tokens in texts_in(folder, "sets")]
    return Work(lambda _: matrix(sets), 1, _rounded(matrix(sets)))


if __name__ == "__main__":
    serve({"jaccard": ready, "jaccard, built": built})
