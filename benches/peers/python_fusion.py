"""A careful pure-Python fusion with dictionaries: one pass a list, one sort, ties to the smaller id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol import Work, serve, texts_in


def rrf(lists: list[list[int]], k: float = 60.0) -> list[tuple[int, float]]:
    scores: dict[int, float] = {}
    get = scores.get
    for ids in lists:
        place = k
        for identifier in ids:
            place += 1.0
            scores[identifier] = get(identifier, 0.0) + 1.0 / place
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def weighted(lists: list[list[tuple[int, float]]], weights: list[float]) -> list[tuple[int, float]]:
    scores: dict[int, float] = {}
    get = scores.get
    for pairs, weight in zip(lists, weights, strict=True):
        values = [score for _, score in pairs]
        low = min(values)
        span = max(values) - low
        for identifier, score in pairs:
            scores[identifier] = get(identifier, 0.0) + weight * ((score - low) / span if span else 1.0)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def _rounded(ranked: list[tuple[int, float]]) -> list[list[Any]]:
    return [[i, round(score, 9)] for i, score in ranked]


def rrf_task(folder: Path, asked: dict[str, Any]) -> Work:
    lists = [[i for i, _ in pairs] for pairs in texts_in(folder, "lists")]
    return Work(lambda _: rrf(lists), 1, _rounded(rrf(lists)))


def weighted_task(folder: Path, asked: dict[str, Any]) -> Work:
    lists = [[(i, score) for i, score in pairs] for pairs in texts_in(folder, "lists")]
    return Work(lambda _: weighted(lists, asked["weights"]), 1, _rounded(weighted(lists, asked["weights"])))


if __name__ == "__main__":
    serve({"rrf": rrf_task, "weighted": weighted_task})
