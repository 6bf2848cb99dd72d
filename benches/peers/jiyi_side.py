"""jiyi's side of every comparison."""

from __future__ import annotations

import os
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from protocol import Task, Work, serve, texts_in

import jiyi
from jiyi.kernels import bm25, fusion, jaccard, mmr, postings, topk
from jiyi.kernels.bm25_top_k import bm25_top_k
from jiyi.kernels.csr import csr_of_lists


def jaccard_matrix(folder: Path, asked: dict[str, Any]) -> Work:
    data = np.load(folder / "sets.npz")
    indptr, ids = data["indptr"], data["ids"]
    answer = np.round(jaccard.jaccard_matrix(indptr, ids), 12).tolist()
    return Work(lambda i: jaccard.jaccard_matrix(indptr, ids), 1, answer)


def jaccard_built(folder: Path, asked: dict[str, Any]) -> Work:
    """From lists of token ids: one array, and where each text begins in it."""
    lists = texts_in(folder, "sets")

    def call(_: int) -> Any:
        return jaccard.jaccard_matrix(*csr_of_lists(lists))

    return Work(call, 1, np.round(call(0), 12).tolist())


def mmr_vectors(folder: Path, asked: dict[str, Any]) -> Work:
    data = np.load(folder / "mmr.npz")
    vectors, query, rows = data["vectors"], data["query"], np.arange(len(data["vectors"]))

    def call(_: int) -> list[int]:
        relevance = topk.dense_rows(vectors, rows, query).astype(np.float64)
        return mmr.mmr_cosine(relevance, vectors, asked["k"], 0.7).order.tolist()

    return Work(call, 1)


def mmr_tokens(folder: Path, asked: dict[str, Any]) -> Work:
    """Token sets instead of vectors; no library compared here has it, so the order is not compared."""
    data, sets = np.load(folder / "mmr.npz"), np.load(folder / "sets.npz")
    vectors, query, rows = data["vectors"], data["query"], np.arange(len(data["vectors"]))
    indptr, ids = sets["indptr"], sets["ids"]

    def call(_: int) -> list[int]:
        relevance = topk.dense_rows(vectors, rows, query).astype(np.float64)
        return mmr.mmr_jaccard(relevance, indptr, ids, asked["k"], 0.7).order.tolist()

    return Work(call, 1, [])


def _ranked(ids: Any, scores: Any) -> list[list[Any]]:
    return [[int(i), round(float(score), 9)] for i, score in zip(ids, scores, strict=True)]


def rrf(folder: Path, asked: dict[str, Any]) -> Work:
    lists = [np.array([i for i, _ in pairs], np.int64) for pairs in texts_in(folder, "lists")]
    return Work(lambda _: fusion.rrf(lists), 1, _ranked(*fusion.rrf(lists)))


def weighted(folder: Path, asked: dict[str, Any]) -> Work:
    pairs = texts_in(folder, "lists")
    lists = [np.array([i for i, _ in ranked], np.int64) for ranked in pairs]
    scores = [np.array([score for _, score in ranked]) for ranked in pairs]
    weights = np.array(asked["weights"])
    answer = _ranked(*fusion.weighted_lists(lists, scores, weights=weights))
    return Work(lambda _: fusion.weighted_lists(lists, scores, weights=weights), 1, answer)


def bm25_exact(folder: Path, asked: dict[str, Any]) -> Work:
    data = np.load(folder / "bm25.npz")
    indptr, ids, freqs, lengths = data["indptr"], data["ids"], data["freqs"], data["lengths"]
    n, queries, live = len(lengths), data["queries"], np.ones(len(lengths), np.uint8)
    lists = postings.build_postings(indptr, ids, freqs, lengths, n, int(ids.max()) + 1)
    columns = (lists, n, indptr, ids, freqs, lengths, n, live, float(lengths.mean()))

    def call(i: int) -> list[int]:
        query = queries[i]
        df = postings.document_frequencies(query, lists, n, indptr, ids, n, live, base_is_live=True)
        best, _ = bm25_top_k(query, bm25.idf(df, n), *columns, 10, k1=1.5, b=0.75)
        return best.tolist()

    return Work(call, len(queries))


def dense(folder: Path, asked: dict[str, Any]) -> Work:
    data = np.load(folder / "dense.npz")
    vectors, queries, live = data["vectors"], data["queries"], np.ones(len(data["vectors"]), np.uint8)
    return Work(lambda i: topk.dense_top_k(vectors, queries[i], live, 10)[0].tolist(), len(queries))


@cache
def _store(folder: Path, how: str, n: int) -> tuple[jiyi.Engine, float]:
    """A store on disk of the first n texts, in one namespace ("one") or by user ("users"); and seconds to ingest."""
    texts, vectors = texts_in(folder)[:n], np.load(folder / "vectors.npy", mmap_mode="r")
    jiyi.warmup()
    engine = jiyi.open(tempfile.mkdtemp(dir=folder))
    memories = [
        {
            "text": text,
            "id": str(i),
            "namespace": f"u{i % 100}" if how == "users" else "one",
            "metadata": {"user": f"u{i % 100}"},
        }
        for i, text in enumerate(texts)
    ]
    start = time.perf_counter()
    for first in range(0, n, 1_000):
        engine.add_many(memories[first : first + 1_000], vectors=vectors[first : first + 1_000])
    engine.search(texts[-1], namespace=memories[-1]["namespace"], k=1)
    took = time.perf_counter() - start
    engine.flush()
    for _ in range(100):  # a graph is built in the background
        engine.search(texts[0], namespace=memories[0]["namespace"], k=1)
        time.sleep(0.02)
    return engine, took


def _queries(folder: Path) -> tuple[list[str], Any]:
    return texts_in(folder, "queries"), np.load(folder / "query_vectors.npy")


def search(folder: Path, asked: dict[str, Any]) -> Work:
    """The whole pipeline; with the vectors given as the other side gets them, or embedding the text as well."""
    engine, took = _store(folder, "one", asked["n"])
    queries, vectors = _queries(folder)
    embeds = asked.get("embeds", False)

    def call(i: int) -> list[str]:
        vector = None if embeds else vectors[i]
        return list(engine.search(queries[i], namespace="one", k=5, query_vector=vector).ids)

    return Work(call, len(queries), figures={"ingest_s": took})


def recall(folder: Path, asked: dict[str, Any]) -> Work:
    """The ten nearest by vector alone, for recall against the exact ones."""
    engine, took = _store(folder, "one", asked["n"])
    queries, vectors = _queries(folder)
    alone: dict[str, Any] = {"preset": "dense", "recency_weight": 0, "diversity": "none", "neighbor_share": 0}

    def call(i: int) -> list[str]:
        return list(engine.search(queries[i], namespace="one", k=10, query_vector=vectors[i], **alone).ids)

    return Work(call, len(queries), figures={"ingest_s": took})


def user(folder: Path, asked: dict[str, Any]) -> Work:
    """One of a hundred users: a namespace of theirs, or a filter on a metadata field in one namespace of all."""
    how = asked["how"]
    engine, took = _store(folder, "users" if how == "namespace" else "one", asked["n"])
    queries, vectors = _queries(folder)

    def call(i: int) -> list[str]:
        name = f"u{i % 100}"
        asks = {"namespace": name} if how == "namespace" else {"namespace": "one", "where": {"metadata.user": name}}
        return list(engine.search(queries[i], k=5, query_vector=vectors[i], **asks).ids)

    return Work(call, len(queries), figures={"ingest_s": took})


def user_nearest(folder: Path, asked: dict[str, Any]) -> Work:
    """The same by vector alone, to compare what is found with a store that has nothing else."""
    engine, took = _store(folder, "users", asked["n"])
    queries, vectors = _queries(folder)
    alone: dict[str, Any] = {"preset": "dense", "recency_weight": 0, "diversity": "none", "neighbor_share": 0}

    def call(i: int) -> list[str]:
        hits = engine.search(queries[i], namespace=f"u{i % 100}", k=5, query_vector=vectors[i], **alone)
        return list(hits.ids)

    return Work(call, len(queries), figures={"ingest_s": took})


def many(folder: Path, asked: dict[str, Any]) -> Work:
    """256 queries in one call, or one by one."""
    engine, took = _store(folder, "one", asked["n"])
    texts, _ = _queries(folder)
    queries = (texts * 256)[:256]

    def call(_: int) -> list[list[str]]:
        if asked["how"] == "together":
            return [list(hits.ids) for hits in engine.search_many(queries, namespace="one", k=5)]
        return [list(engine.search(query, namespace="one", k=5).ids) for query in queries]

    return Work(call, 1, figures={"ingest_s": took})


TASKS: dict[str, Task] = {
    "jaccard": jaccard_matrix,
    "jaccard, built": jaccard_built,
    "mmr": mmr_vectors,
    "mmr, tokens": mmr_tokens,
    "rrf": rrf,
    "weighted": weighted,
    "bm25": bm25_exact,
    "dense": dense,
    "search": search,
    "recall": recall,
    "user": user,
    "user, nearest": user_nearest,
    "many": many,
}

if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    serve(TASKS)
