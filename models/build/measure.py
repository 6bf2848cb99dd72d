"""Measure the shipped table by itself on eval sets: no keyword search, no stop words, no fusion.

    python models/build/measure.py DIR [DIR ...]

A DIR holds `memories.jsonl` beside `queries.jsonl`, as `jiyi eval` takes them. Retrieval is within the query's
namespace; category "adversarial" is left out.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels.late_interaction import max_sim
from jiyi.models import StaticEmbedder


def read(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def scores_of(table: StaticEmbedder, texts: list[str], queries: list[str]) -> dict[str, list[NDArray[np.float64]]]:
    """Return, for each way of scoring, every query's scores over the texts of its namespace."""
    indptr, rows = table.token_rows(texts)
    vectors = table.embed_rows(indptr, rows).astype(np.float64)
    texts_with = np.zeros(len(table.table))
    for start, end in pairwise(indptr.tolist()):
        texts_with[np.unique(rows[start:end])] += 1
    idf: NDArray[np.float64] = np.log1p((len(texts) - texts_with + 0.5) / (texts_with + 0.5))
    everything = np.arange(len(texts), dtype=np.int64)
    scores: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
    for query in queries:
        tokens = np.unique(table.token_rows([query])[1])
        weights = idf[tokens] * table.weights[tokens].astype(np.float64)
        unit = table.table[tokens].astype(np.float32) * table.inverse_norms[tokens, None]
        scores["dense"].append(vectors @ table.embed_query(query))
        scores["dense, query by idf"].append(vectors @ table.embed_weighted(tokens, weights))
        scores["late interaction"].append(
            max_sim(unit, weights, table.table, table.inverse_norms, indptr, rows, everything)
        )
    return scores


def metrics(scores: NDArray[np.float64], relevant: set[int]) -> list[float]:
    """Return recall at 1, 5 and 10 and nDCG at 10; ties go to the memory that comes first."""
    order = np.argsort(-scores, kind="stable")[:10].tolist()
    gains = [float(i in relevant) for i in order]
    ideal = sum(1 / np.log2(i + 2) for i in range(min(10, len(relevant))))
    recalls = [sum(gains[:k]) / len(relevant) for k in (1, 5, 10)]
    return [*recalls, sum(gain / np.log2(i + 2) for i, gain in enumerate(gains)) / ideal]


def main() -> None:
    """Print one line for each set and way of scoring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    table = StaticEmbedder.load()
    for folder in parser.parse_args().folders:
        memories, queries = read(folder / "memories.jsonl"), read(folder / "queries.jsonl")
        results: dict[str, list[list[float]]] = defaultdict(list)
        for namespace in sorted({memory["namespace"] for memory in memories}):
            texts = [memory for memory in memories if memory["namespace"] == namespace]
            place = {memory["id"]: i for i, memory in enumerate(texts)}
            asked = [
                q for q in queries if q["namespace"] == namespace and q["category"] != "adversarial" and q["relevant"]
            ]
            scored = scores_of(table, [memory["text"] for memory in texts], [q["query"] for q in asked])
            for way, rows in scored.items():
                results[way] += [
                    metrics(row, {place[i] for i in q["relevant"]}) for row, q in zip(rows, asked, strict=True)
                ]
        for way, all_metrics in results.items():
            r1, r5, r10, ndcg = 100 * np.mean(all_metrics, axis=0)
            print(f"{folder.name:16s}{way:22s}R@1 {r1:5.1f}  R@5 {r5:5.1f}  R@10 {r10:5.1f}  nDCG@10 {ndcg:5.1f}")


if __name__ == "__main__":
    main()
