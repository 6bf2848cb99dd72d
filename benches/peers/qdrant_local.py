"""Qdrant in local mode: the query filtered on a payload field."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from protocol import Work, serve, texts_in
from qdrant_client import QdrantClient, models


def user(folder: Path, asked: dict[str, Any]) -> Work:
    n = asked["n"]
    texts, vectors = texts_in(folder)[:n], np.load(folder / "vectors.npy")[:n]
    queries = np.load(folder / "query_vectors.npy")
    client = QdrantClient(":memory:")
    start = time.perf_counter()
    size = models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE)
    client.create_collection("memories", vectors_config=size)
    payload = [{"text": text, "user": f"u{i % 100}"} for i, text in enumerate(texts)]
    client.upload_collection("memories", vectors=vectors, payload=payload, ids=range(n))
    took = time.perf_counter() - start

    def call(i: int) -> list[str]:
        match = models.FieldCondition(key="user", match=models.MatchValue(value=f"u{i % 100}"))
        found = client.query_points("memories", query=queries[i], query_filter=models.Filter(must=[match]), limit=5)
        return [str(point.id) for point in found.points]

    return Work(call, len(queries), figures={"ingest_s": took})


if __name__ == "__main__":
    serve({"user": user, "user, nearest": user})
