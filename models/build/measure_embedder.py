"""Measure an embedder by itself on eval sets: dense retrieval alone, and what it costs in processor time.

    python models/build/measure_embedder.py NAME [--speakers] [--against NAME] DIR [DIR ...]

A DIR holds `memories.jsonl` beside `queries.jsonl`, as `jiyi eval` takes them. Retrieval is within the query's
namespace; category "adversarial" is left out. With --against, also how alike the two models order each namespace: the
share of the first ten that both have, and the mean cosine of a text's two vectors.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from measure import metrics, read
from numpy.typing import NDArray

from jiyi.models import Embedder, load_embedder


def vectors(embedder: Embedder, texts: list[str], queries: list[str]) -> tuple[NDArray[np.float32], ...]:
    """Return the vectors of texts and queries, and print what they cost."""
    embedder.embed_query("warm")
    started = time.process_time()
    stored = embedder.embed(texts)
    each_text = (time.process_time() - started) / len(texts)
    started = time.process_time()
    asked = np.stack([embedder.embed_query(query) for query in queries])
    each_query = (time.process_time() - started) / len(queries)
    letters = sum(map(len, texts)) / len(texts)
    print(
        f"  {embedder.name:24s}{1 / each_text:7.1f} texts a CPU second ({letters:.0f} characters each)  "
        f"{1000 * each_query:6.2f} CPU ms a query"
    )
    return stored, asked


def main() -> None:
    """Print a few lines for each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--speakers", action="store_true", help="put 'speaker: ' before a text")
    parser.add_argument("--against", metavar="NAME", help="another embedder of the same texts")
    args = parser.parse_args()
    names = [args.name] + ([args.against] if args.against else [])
    embedders = [load_embedder(name) for name in names]
    for folder in args.folders:
        print(folder.name)
        memories, queries = read(folder / "memories.jsonl"), read(folder / "queries.jsonl")
        queries = [q for q in queries if q["category"] != "adversarial" and q["relevant"]]
        texts = [
            f"{m['speaker']}: {m['text']}" if args.speakers and m.get("speaker") else str(m["text"]) for m in memories
        ]
        found = [vectors(embedder, texts, [str(q["query"]) for q in queries]) for embedder in embedders]
        places: dict[str, list[int]] = {}
        for i, memory in enumerate(memories):
            places.setdefault(memory["namespace"], []).append(i)
        shared = []
        for embedder, (stored, asked) in zip(embedders, found, strict=True):
            scored = []
            for query, vector in zip(queries, asked, strict=True):
                rows = places[query["namespace"]]
                place = {memories[row]["id"]: i for i, row in enumerate(rows)}
                scored.append(
                    metrics((stored[rows] @ vector).astype(np.float64), {place[i] for i in query["relevant"]})
                )
            r1, r5, r10, ndcg = 100 * np.mean(scored, axis=0)
            print(f"  {embedder.name:24s}R@1 {r1:5.1f}  R@5 {r5:5.1f}  R@10 {r10:5.1f}  nDCG@10 {ndcg:5.1f}")
        if len(found) == 2:
            (a, query_a), (b, query_b) = found
            for query, u, v in zip(queries, query_a, query_b, strict=True):
                rows = places[query["namespace"]]
                tops = [set(np.argsort(-(s[rows] @ q), kind="stable")[:10].tolist()) for s, q in ((a, u), (b, v))]
                shared.append(len(tops[0] & tops[1]) / len(tops[0]))
            print(f"  both: {np.mean(shared):.3f} of the first ten, cosine {np.einsum('ij,ij->i', a, b).mean():.5f}")


if __name__ == "__main__":
    main()
