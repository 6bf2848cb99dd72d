"""ranx: fuse the runs of one query. Its kernels are compiled before the clock starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol import Work, serve, texts_in
from ranx import Run, fuse


def _task(folder: Path, how: dict[str, Any]) -> Work:
    runs = [Run({"q": {str(i): score for i, score in pairs}}) for pairs in texts_in(folder, "lists")]

    def call() -> Any:
        return fuse(runs=runs, **how)

    ranked = sorted(((int(i), score) for i, score in call().run["q"].items()), key=lambda pair: (-pair[1], pair[0]))
    return Work(lambda _: call(), 1, [[i, round(score, 9)] for i, score in ranked])


def rrf(folder: Path, asked: dict[str, Any]) -> Work:
    return _task(folder, {"norm": None, "method": "rrf", "params": {"k": 60}})


def weighted(folder: Path, asked: dict[str, Any]) -> Work:
    return _task(folder, {"norm": "min-max", "method": "wsum", "params": {"weights": asked["weights"]}})


if __name__ == "__main__":
    serve({"rrf": rrf, "weighted": weighted})
