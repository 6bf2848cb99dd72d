"""jiyi beside what people would use instead: the same data, in the same run, taking turns.

    python benches/compare.py [WORK ...] [--quick] [--peer-python PYTHON] [--json OUT.json] [--readme]

Each side is a process of its own (`benches/peers/`), without settings for threads (OPENBLAS_*, OMP_* and the like are
taken out of the environment of both). A side answers first, and the answers are compared; then rounds alternate, jiyi
and the other, and the medians of the rounds' medians are set against each other. Nothing asserts a time. A library that
is not installed is named and passed over: `pip install .[bench]` installs all but sentence-transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PEERS = Path(__file__).parent / "peers"
ROUNDS = 7
QUERIES = 60
MARKS = ("<!-- figures -->", "<!-- end of figures -->")
THREADS = ("OPENBLAS_", "OMP_", "MKL_", "BLIS_", "VECLIB_", "GOTO_", "NUMBA_NUM", "NUMEXPR_", "RAYON_")


@dataclass(frozen=True)
class Comparison:
    """One line of the table."""

    work: str
    peer: str
    """The script of the other side."""
    task: str
    n: int
    asked: str = ""
    """What the figure should be at least, in words. Never part of an outcome."""
    settings: dict[str, Any] = field(default_factory=dict)
    peer_task: str = ""
    overlap: float | None = 1.0
    """The share of answers that both sides must have in common, on average; 1 = equal; None = not comparable."""
    calls: int = 40
    figure: str = "median_s"
    """What is compared: the rounds' median, or a figure of setting up."""
    peer_n: int = 0
    """Of the other side, where its n would take too long; the figure is then one per memory."""


def comparisons(quick: bool) -> list[Comparison]:
    """Every line, or with `quick` those at a tenth of the size."""
    large, small = (10_000, 2_000) if quick else (100_000, 10_000)
    fuse = {"weights": [0.5, 0.3, 0.2]}
    named = [
        Comparison("Jaccard matrix, n = 100", "python_sets", "jaccard", 100, "≥ 200", calls=100),
        Comparison("the same, sets built from lists", "python_sets", "jaccard, built", 100, "≥ 50", calls=100),
        *(
            Comparison(f"MMR, k = 10, {what}, n = {n}", "langchain_mmr", task, n, "≥ 100", {"k": 10}, peer, same, calls)
            for n, calls in ((100, 20), (1_000, 2))
            for what, task, peer, same in (
                ("vectors", "mmr", "mmr", 1.0),
                ("token sets", "mmr, tokens", "mmr, tokens", None),
            )
        ),
        *(
            Comparison(f"{name}, 3 lists of 100", peer, task, 100, asked, fuse, calls=calls)
            for name, task in (("RRF", "rrf"), ("weighted fusion", "weighted"))
            for peer, asked, calls in (("python_fusion", "≥ 5", 300), ("ranx_fusion", "≥ 20", 60))
        ),
        Comparison("BM25 exact, 10 k, 8 tokens", "bm25s_scores", "bm25", 10_000, "≥ 5", overlap=0.99),
        Comparison("BM25 exact, 10 k, 8 tokens", "rank_bm25_scores", "bm25", 10_000, "≥ 100", overlap=0.5, calls=20),
        Comparison("dense scan, 10 k × 256", "numpy_scan", "dense", 10_000, "", overlap=0.999),
        Comparison("the same / V @ q alone", "numpy_scan", "dense", 10_000, "> 1", {}, "dense, product", None),
        Comparison("the same / reading the bytes", "numpy_scan", "dense", 10_000, "≥ 0.77", {}, "dense, reading", None),
        *(
            Comparison(f"search, {n:,} memories, {how}", "lancedb_hybrid", "search", n, asked, settings, overlap=None)
            for n, asked in ((small, "≥ 15"), (large, "≥ 8"))
            for how, settings in (("vectors given", {}), ("jiyi embeds too", {"embeds": True}))
        ),
        Comparison(f"nearest of one of 100 users in {large:,}", "chroma_store", "user, nearest", large, overlap=0.95),
        *(
            Comparison(f"one of 100 users in {large:,}, {how}", peer, "user", large, asked, {"how": how}, overlap=None)
            for peer, asked in (("chroma_store", "≥ 40"), ("qdrant_local", ""))
            for how in ("namespace", "where")
        ),
        Comparison(
            f"ingest {large:,} texts, vectors given", "chroma_store", "user", large, "≥ 5", {"how": "where"},
            overlap=None, figure="ingest_s", peer_n=small,
        ),
    ]  # fmt: skip
    return named


# ------------------------------------------------------------------------------------------------------------ data


def token_sets(n: int, folder: Path) -> None:
    """Texts of 5 to 39 words as frequent as in talk, as token ids."""
    sys.path.insert(0, str(Path(__file__).parent))
    from corpus import texts

    from jiyi.text import tokenize

    numbers: dict[str, int] = {}
    lists = []
    for text in texts(n, seed=3, words=20):
        tokens = dict.fromkeys(tokenize(text))
        lists.append(sorted(numbers.setdefault(token, len(numbers)) for token in tokens))
    indptr = np.concatenate([[0], np.cumsum([len(tokens) for tokens in lists])]).astype(np.int64)
    np.savez(folder / "sets.npz", indptr=indptr, ids=np.array([t for tokens in lists for t in tokens], np.uint32))
    (folder / "sets.json").write_text(json.dumps(lists), encoding="utf-8")


def bm25_data(n: int, folder: Path) -> None:
    rng = np.random.default_rng(0)
    vocabulary = 30_000
    rows = [np.minimum(rng.zipf(1.3, size), vocabulary) - 1 for size in rng.integers(5, 40, n)]
    counted = [np.unique(row, return_counts=True) for row in rows]
    indptr = np.concatenate([[0], np.cumsum([len(ids) for ids, _ in counted])]).astype(np.int64)
    queries = np.array([np.sort(rng.choice(np.unique(rng.zipf(1.2, 60) % 2_000), 8, replace=False)) for _ in range(20)])
    np.savez(
        folder / "bm25.npz",
        indptr=indptr,
        ids=np.concatenate([ids for ids, _ in counted]).astype(np.uint32),
        freqs=np.concatenate([freqs for _, freqs in counted]).astype(np.uint16),
        lengths=np.array([len(row) for row in rows], np.uint32),
        queries=queries.astype(np.uint32),
    )


def fusion_data(n: int, folder: Path) -> None:
    rng = np.random.default_rng(0)
    lists = []
    for _ in range(3):
        ids, scores = rng.permutation(2 * n)[:n], np.sort(rng.random(n))[::-1]
        lists.append([[int(i), float(score)] for i, score in zip(ids, scores, strict=True)])
    (folder / "lists.json").write_text(json.dumps(lists), encoding="utf-8")


def memories(n: int, folder: Path) -> None:
    """Texts and questions with the vectors of jiyi's shipped table, which both sides are given."""
    sys.path.insert(0, str(Path(__file__).parent))
    from corpus import queries, texts

    from jiyi.models import load_embedder

    embedder = load_embedder("e5-static-256")
    for name, lines, vectors in (
        ("texts", list(texts(n)), "vectors"),
        ("queries", list(queries(QUERIES)), "query_vectors"),
    ):
        (folder / f"{name}.json").write_text(json.dumps(lines, ensure_ascii=False), encoding="utf-8")
        np.save(folder / f"{vectors}.npy", np.ascontiguousarray(embedder.embed(lines), np.float32))


def kernel_vectors(n: int, folder: Path) -> None:
    memories(n, folder)
    vectors, queries = np.load(folder / "vectors.npy"), np.load(folder / "query_vectors.npy")
    np.savez(folder / "mmr.npz", vectors=vectors, query=queries[0])
    np.savez(folder / "dense.npz", vectors=vectors, queries=queries)
    token_sets(n, folder) if n <= 1_000 else None


DATA = {
    "jaccard": token_sets,
    "jaccard, built": token_sets,
    "mmr": kernel_vectors,
    "mmr, tokens": kernel_vectors,
    "dense": kernel_vectors,
    "bm25": bm25_data,
    "rrf": fusion_data,
    "weighted": fusion_data,
}


# ----------------------------------------------------------------------------------------------------------- sides


class SideError(Exception):
    """A side that could not be started, with the last line that it said."""


class Side:
    """A process that answers one task."""

    def __init__(self, python: str, script: str, task: str, folder: Path, settings: dict[str, Any]) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(THREADS)}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [python, str(PEERS / f"{script}.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=clean,
        )
        self.first = self._ask({"task": task, "data": str(folder), **settings})

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait()
            self._errors.seek(0)
            lines = self._errors.read().strip().splitlines() or ["it said nothing"]
            raise SideError(lines[-1])
        answer: dict[str, Any] = json.loads(line)
        return answer

    def median_s(self, calls: int) -> float:
        return float(self._ask({"calls": calls})["median_s"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._errors.close()


def common(mine: list[Any], theirs: list[Any]) -> float:
    """The mean share of the answers of each case that both have; 1.0 only for equal ones."""
    if mine == theirs:
        return 1.0
    shares = []
    for a, b in zip(mine, theirs, strict=True):
        if not isinstance(a, list):
            shares.append(float(a == b))
        elif a and isinstance(a[0], float):
            shares.append(float(np.allclose(a, b)))
        else:
            shares.append(len({*map(str, a)} & {*map(str, b)}) / max(len(a), len(b), 1))
    return min(statistics.fmean(shares), 0.9999)


def measure(line: Comparison, folder: Path, peer_python: str) -> dict[str, Any]:
    """Run one comparison."""
    result: dict[str, Any] = {"work": line.work, "peer": line.peer, "asked": line.asked, "n": line.n}
    sides: list[Side] = []
    try:
        peer_settings = {**line.settings, "n": line.peer_n or line.n}
        sides.append(Side(peer_python, line.peer, line.peer_task or line.task, folder, peer_settings))
        sides.append(Side(sys.executable, "jiyi_side", line.task, folder, {**line.settings, "n": line.n}))
        theirs, mine = (side.first for side in sides)
        if line.overlap is not None:
            result["in common"] = round(common(mine["answer"], theirs["answer"]), 4)
            if result["in common"] < line.overlap:
                raise SideError(f"answers differ: {result['in common']} in common, {line.overlap} expected")
        if line.figure == "median_s":
            rounds: tuple[list[float], list[float]] = ([], [])
            for _ in range(ROUNDS):
                for times, side in zip(rounds, sides, strict=True):
                    times.append(side.median_s(line.calls))
            peer_s, jiyi_s = (statistics.median(times) for times in rounds)
        else:
            jiyi_s = mine[line.figure] / line.n
            peer_s = theirs[line.figure] / (line.peer_n or line.n)
            result["per"] = "memory"
        result |= {"jiyi_s": jiyi_s, "peer_s": peer_s, "ratio": peer_s / jiyi_s}
    except SideError as error:
        result["failed"] = str(error)[:200]
    finally:
        for side in sides:
            side.close()
    return result


def recall_at_10(folder: Path, n: int) -> float:
    """How many of the ten nearest of each question jiyi finds in the plan that it picks for n memories."""
    vectors, queries = np.load(folder / "vectors.npy")[:n], np.load(folder / "query_vectors.npy")
    side = Side(sys.executable, "jiyi_side", "recall", folder, {"n": n})
    try:
        exact = [[str(i) for i in np.argsort(-(vectors @ query), kind="stable")[:10]] for query in queries]
        return common(side.first["answer"], exact)
    finally:
        side.close()


def together(folder: Path, n: int) -> dict[str, Any]:
    """`search_many` of 256 questions beside one search after the other, in two processes that take turns."""
    sides = [
        Side(sys.executable, "jiyi_side", "many", folder, {"n": n, "how": how}) for how in ("one by one", "together")
    ]
    try:
        assert sides[0].first["answer"] == sides[1].first["answer"]
        rounds: list[list[float]] = [[], []]
        for _ in range(5):
            for times, side in zip(rounds, sides, strict=True):
                times.append(side.median_s(1))
        one, many = (statistics.median(times) for times in rounds)
        result = {"work": f"search_many of 256 at {n:,}", "peer": "one by one", "asked": "≥ 3", "n": n}
        return {**result, "jiyi_s": many / 256, "peer_s": one / 256, "ratio": one / many, "in common": 1.0}
    finally:
        for side in sides:
            side.close()


def span(seconds: float) -> str:
    """A time for people."""
    return f"{seconds * 1e3:10.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:10.1f} µs"


def times(ratio: float) -> str:
    """A ratio for people."""
    return f"{ratio:.{2 if ratio < 10 else 0}f} ×"


def show(result: dict[str, Any]) -> str:
    """One line of the table for a terminal."""
    head = f"{result['work']:<46}{result['peer']:<18}"
    if "failed" in result:
        return f"{head}not measured: {result['failed']}"

    return f"{head}{span(result['jiyi_s'])}{span(result['peer_s'])}{times(result['ratio']):>11}  {result['asked']}"


def write_table(results: list[dict[str, Any]], readme: Path) -> None:
    """Put the table between the marks of a README."""
    lines = ["| work | beside | jiyi | it | ratio | to reach |", "|---|---|---|---|---|---|"]
    for result in results:
        if "ratio" in result:
            mine, its = span(result["jiyi_s"]).strip(), span(result["peer_s"]).strip()
            cells = [result["work"], result["peer"], mine, its, times(result["ratio"]), result["asked"]]
        else:
            value = f"{result['recall']:.4f}" if "recall" in result else "not measured"
            cells = [result["work"], result.get("peer", "exact"), value, "", "", result["asked"]]
        lines.append(f"| {' | '.join(cells)} |")
    text = readme.read_text(encoding="utf-8")
    head, rest = text.split(MARKS[0])
    table = "\n".join(lines)
    readme.write_text(f"{head}{MARKS[0]}\n{table}\n{MARKS[1]}{rest.split(MARKS[1])[1]}", encoding="utf-8")


def main() -> None:
    """Print the table, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="*", help="only lines whose work or peer holds one of these words")
    parser.add_argument("--quick", action="store_true", help="stores of a tenth of the size")
    parser.add_argument("--peer-python", default=sys.executable, help="where the other libraries are installed")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every figure there")
    parser.add_argument("--readme", action="store_true", help="write the table into benches/README.md")
    arguments = parser.parse_args()
    lines = comparisons(arguments.quick)
    chosen = [
        line
        for line in lines
        if not arguments.work or any(word in f"{line.work} {line.peer}" for word in arguments.work)
    ]
    results: list[dict[str, Any]] = []
    print(f"{'work':<46}{'peer':<18}{'jiyi':>13}{'peer':>13}{'ratio':>9}    asked", flush=True)
    with tempfile.TemporaryDirectory() as parent:
        stores = Path(parent) / "memories"
        largest = max(line.n for line in lines if line.task not in DATA)

        def of_memories() -> Path:
            if not stores.exists():
                stores.mkdir()
                memories(largest, stores)
            return stores

        for line in chosen:
            if line.task in DATA:
                folder = Path(parent) / f"{line.task}-{line.n}"
                if not folder.exists():
                    folder.mkdir()
                    DATA[line.task](line.n, folder)
            else:
                folder = of_memories()
            results.append(measure(line, folder, arguments.peer_python))
            print(show(results[-1]), flush=True)
        small = min(line.n for line in lines if line.task == "search")
        if not arguments.work or "search_many" in arguments.work:
            results.append(together(of_memories(), small))
            print(show(results[-1]), flush=True)
        if not arguments.work or "recall" in arguments.work:
            found = recall_at_10(of_memories(), largest)
            results.append({"work": f"recall@10 at {largest:,}", "recall": found, "asked": "≥ 0.98"})
            print(f"recall@10 of jiyi at {largest:,} against the exact ten: {found:.4f}   ≥ 0.98", flush=True)
    if arguments.readme:
        write_table(results, Path(__file__).parent / "README.md")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        machine = {"machine": platform.machine(), "python": platform.python_version(), "cores": os.cpu_count()}
        written = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **machine, "results": results}
        arguments.json.write_text(json.dumps(written, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
