"""LangChain's maximal_marginal_relevance, on the vectors as its vector stores hand them over: a list of lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from protocol import Work, serve


def mmr(folder: Path, asked: dict[str, Any]) -> Work:
    data = np.load(folder / "mmr.npz")
    vectors = [row.tolist() for row in data["vectors"]]
    return Work(
        lambda _: [int(i) for i in maximal_marginal_relevance(data["query"], vectors, lambda_mult=0.7, k=asked["k"])], 1
    )


def mmr_array(folder: Path, asked: dict[str, Any]) -> Work:
    """The same, handed an array, which saves it the conversion."""
    data = np.load(folder / "mmr.npz")
    query, vectors = data["query"], data["vectors"]
    return Work(
        lambda _: [int(i) for i in maximal_marginal_relevance(query, vectors, lambda_mult=0.7, k=asked["k"])], 1
    )


if __name__ == "__main__":
    serve({"mmr": mmr_array, "mmr, lists": mmr, "mmr, tokens": mmr_array})
