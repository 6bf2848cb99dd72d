"""rank_bm25's BM25Okapi: get_scores and the ten best of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from protocol import Work, serve
from rank_bm25 import BM25Okapi


def scores(folder: Path, asked: dict[str, Any]) -> Work:
    data = np.load(folder / "bm25.npz")
    indptr, ids, freqs = data["indptr"], data["ids"], data["freqs"]
    corpus = [np.repeat(ids[start:end], freqs[start:end]).tolist() for start, end in pairwise(indptr)]
    index = BM25Okapi(corpus, k1=1.5, b=0.75)
    queries = data["queries"].tolist()

    def call(i: int) -> list[int]:
        found = index.get_scores(queries[i])
        best = np.argpartition(found, -10)[-10:]
        return best[np.lexsort((best, -found[best]))].tolist()

    return Work(call, len(queries))


if __name__ == "__main__":
    serve({"bm25": scores})
