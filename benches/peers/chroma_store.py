"""Chroma, persistent: add, and the query filtered on a metadata field."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
from protocol import Work, serve, texts_in


def _collection(folder: Path, n: int) -> tuple[Any, float]:
    texts, vectors = texts_in(folder)[:n], np.load(folder / "vectors.npy")[:n]
    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(tempfile.mkdtemp(dir=folder), settings=settings)
    collection = client.create_collection("memories", configuration={"hnsw": {"space": "cosine"}})
    start = time.perf_counter()
    for first in range(0, n, 1_000):
        last = min(first + 1_000, n)
        collection.add(
            ids=[str(i) for i in range(first, last)],
            documents=texts[first:last],
            embeddings=vectors[first:last],
            metadatas=[{"user": f"u{i % 100}"} for i in range(first, last)],
        )
    return collection, time.perf_counter() - start


def user(folder: Path, asked: dict[str, Any]) -> Work:
    collection, took = _collection(folder, asked["n"])
    vectors = np.load(folder / "query_vectors.npy")

    def call(i: int) -> list[str]:
        found = collection.query(query_embeddings=vectors[i : i + 1], n_results=5, where={"user": f"u{i % 100}"})
        ids: list[str] = found["ids"][0]
        return ids

    return Work(call, len(vectors), figures={"ingest_s": took})


if __name__ == "__main__":
    serve({"user": user, "user, nearest": user})
