"""LanceDB: hybrid search by vector and full text, fused by RRF; above 50,000 rows with an IVF_HNSW_SQ index."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.rerankers import RRFReranker
from protocol import Work, serve, texts_in


def _table(folder: Path, n: int) -> tuple[Any, float]:
    texts, vectors = texts_in(folder)[:n], np.load(folder / "vectors.npy")[:n]
    start = time.perf_counter()
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    rows = pa.table({"id": [str(i) for i in range(n)], "text": texts, "vector": flat})
    table = lancedb.connect(tempfile.mkdtemp(dir=folder)).create_table("memories", rows)
    table.create_fts_index("text")
    if n > 50_000:
        table.create_index(metric="cosine", vector_column_name="vector", index_type="IVF_HNSW_SQ")
    return table, time.perf_counter() - start


def search(folder: Path, asked: dict[str, Any]) -> Work:
    table, took = _table(folder, asked["n"])
    queries, vectors = texts_in(folder, "queries"), np.load(folder / "query_vectors.npy")
    reranker = RRFReranker()

    def call(i: int) -> list[str]:
        hybrid = table.search(query_type="hybrid").vector(vectors[i]).text(queries[i])
        return [row["id"] for row in hybrid.distance_type("cosine").rerank(reranker).limit(5).to_list()]

    return Work(call, len(queries), figures={"ingest_s": took})


if __name__ == "__main__":
    serve({"search": search})
