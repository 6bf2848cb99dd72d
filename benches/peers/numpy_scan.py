"""Dense scans: NumPy's product and partition, the product alone, and a Numba kernel that only reads the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
from protocol import Work, serve


@numba.njit(nogil=True, fastmath={"reassoc", "contract"})
def read_and_sum(vectors: Any) -> Any:
    total = np.float32(0.0)
    for row in range(vectors.shape[0]):
        for j in range(vectors.shape[1]):
            total += vectors[row, j]
    return total


def partition(folder: Path, asked: dict[str, Any]) -> Work:
    data = np.load(folder / "dense.npz")
    vectors, queries = data["vectors"], data["queries"]

    def call(i: int) -> list[int]:
        found = vectors @ queries[i]
        best = np.argpartition(found, -10)[-10:]
        return best[np.argsort(-found[best], kind="stable")].tolist()

    return Work(call, len(queries))


def product(folder: Path, asked: dict[str, Any]) -> Work:
    data = np.load(folder / "dense.npz")
    vectors, queries = data["vectors"], data["queries"]
    return Work(lambda i: vectors @ queries[i], len(queries), [])


def reading(folder: Path, asked: dict[str, Any]) -> Work:
    vectors = np.load(folder / "dense.npz")["vectors"]
    read_and_sum(vectors)
    return Work(lambda _: read_and_sum(vectors), 1, [])


if __name__ == "__main__":
    serve({"dense": partition, "dense, product": product, "dense, reading": reading})
