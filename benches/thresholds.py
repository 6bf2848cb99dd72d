"""From how many memories an index pays: exact and indexed plans of both legs side by side, over sizes and filters.

    python benches/thresholds.py [--rows 5000,20000,50000] [--plot thresholds.png] [--json]

An index pays where it is quicker and finds at least 98 % of the ten that the exact plan finds. For the graph the
narrowest search that does so is taken, of several (ef), for each way of building it (M, ef_construction). Texts are
made up (benches/corpus.py), query vectors are the token table's: of a few words, far from every text, which graphs find
hard. Building graphs takes most of the time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from corpus import queries, texts
from numpy.typing import NDArray

import jiyi
from jiyi.candidates import Query
from jiyi.recall.dense import begin_dense
from jiyi.recall.graph import Graph
from jiyi.recall.inverted import InvertedIndex
from jiyi.recall.keyword import recall_keyword

QUERIES = 60
ENOUGH = 0.98
NEVER = 2**40
BUILDS = ((16, 100), (32, 200))
WIDTHS = (50, 100, 200, 400, 800, 1_600)
SHARES = (1.0, 0.1, 0.01)

Rows = NDArray[np.int64]
Plan = Callable[[Query], Rows | None]


def asked(rows: int) -> list[Query]:
    """Open a namespace of so many memories in memory, with nothing but exact plans; the queries asked of it."""
    engine = jiyi.open(index_config=jiyi.IndexConfig(dense_rows=NEVER, keyword_rows=NEVER))
    batch: list[str] = []
    for text in texts(rows):
        batch.append(text)
        if len(batch) == 1_000:
            engine.add_many(batch)
            batch = []
    engine.add_many(batch)
    found = [engine.search(text, k=10)._query for text in queries(QUERIES)]
    return [query for query in found if query is not None and query.vector is not None]


def filtered(query: Query, share: float) -> Query:
    """The same query with a filter that leaves a share of the rows, picked at random."""
    eligible = (np.random.default_rng(0).random(query.view.n) < share).astype(np.uint8)
    return replace(query, eligible=eligible, n_eligible=int(eligible.sum()))


def measured(plan: Plan, exact: Plan, asked: list[Query]) -> tuple[float, float]:
    """Median milliseconds a query of a plan, and the share of the ten best by the exact plan that it finds."""
    plan(asked[0])
    times, recall = [], []
    for query in asked:
        start = time.perf_counter()
        rows = plan(query)
        times.append(time.perf_counter() - start)
        best = exact(query)
        if best is not None and len(best):
            recall.append(0.0 if rows is None else float(np.isin(best[:10], rows[:10]).mean()))
    return float(np.median(times)) * 1000, float(np.mean(recall))


def exact_dense(query: Query) -> Rows:
    return begin_dense(query, None, NEVER)()[0]


def exact_keyword(query: Query) -> Rows:
    return recall_keyword(query, None, NEVER)[0]


def by_graph(graph: Graph) -> Plan:
    config = {"dense_plan": "indexed"}
    return lambda query: begin_dense(replace(query, config=query.config.with_overrides(config)), graph, 0)()[0]


def by_tantivy(index: InvertedIndex) -> Plan:
    config = {"keyword_plan": "indexed"}
    return lambda query: recall_keyword(replace(query, config=query.config.with_overrides(config)), index, 0)[0]


def dense(asked: list[Query]) -> list[dict[str, Any]]:
    """Exact scan and graphs, unfiltered and filtered."""
    found: list[dict[str, Any]] = []
    view = asked[0].view
    graphs = []
    for links, width in BUILDS:
        start = time.perf_counter()
        graph = Graph.build(view, jiyi.IndexConfig(graph_links=links, graph_build_width=width), lambda: False)
        if graph is not None:
            graphs.append((links, width, time.perf_counter() - start, graph))
    for share in SHARES:
        some = [filtered(query, share) for query in asked] if share < 1 else asked
        exact_ms, _ = measured(exact_dense, exact_dense, some)
        row = {"leg": "dense", "rows": view.n, "share": share, "exact_ms": exact_ms, "indexed": []}
        for links, width, build_s, graph in graphs:
            for ef in WIDTHS:
                graph._index.set_ef(ef)
                ms, recall = measured(by_graph(graph), exact_dense, some)
                row["indexed"].append(
                    {"M": links, "ef_construction": width, "build_s": build_s, "ef": ef, "ms": ms, "recall@10": recall}
                )
                if recall >= ENOUGH:
                    break
        found.append(row)
    return found


def keyword(asked: list[Query]) -> list[dict[str, Any]]:
    """Postings and Tantivy, unfiltered and filtered."""
    found: list[dict[str, Any]] = []
    view = asked[0].view
    start = time.perf_counter()
    index = InvertedIndex.build(view, view.terms_by_id(), None, lambda: False)
    build_s = time.perf_counter() - start
    for share in SHARES if index is not None else ():
        some = [filtered(query, share) for query in asked] if share < 1 else asked
        exact_ms, _ = measured(exact_keyword, exact_keyword, some)
        ms, recall = measured(by_tantivy(index), exact_keyword, some)
        indexed = [{"build_s": build_s, "ms": ms, "recall@10": recall}]
        found.append({"leg": "keyword", "rows": view.n, "share": share, "exact_ms": exact_ms, "indexed": indexed})
    return found


def enough(row: dict[str, Any]) -> dict[str, Any] | None:
    """The quickest indexed plan that finds enough."""
    good = [plan for plan in row["indexed"] if plan["recall@10"] >= ENOUGH]
    return min(good, key=lambda plan: plan["ms"]) if good else None


def line(row: dict[str, Any]) -> str:
    head = f"{row['leg']:8}{row['rows']:>9,} rows, {row['share']:>4.0%} pass: exact {row['exact_ms']:7.2f} ms, indexed "
    plan = enough(row)
    if plan is not None:
        how = f" (M {plan['M']}, ef {plan['ef']})" if "ef" in plan else ""
        return head + f"{plan['ms']:7.2f} ms at recall {plan['recall@10']:.3f}{how}, built in {plan['build_s']:.0f} s"
    best = max(row["indexed"], key=lambda plan: plan["recall@10"])
    return head + f"finds {best['recall@10']:.3f} at most, in {best['ms']:.2f} ms"


def crossover(rows: list[dict[str, Any]], leg: str, share: float) -> str:
    """From which of the sizes on the index pays."""
    of_leg = sorted((row for row in rows if row["leg"] == leg and row["share"] == share), key=lambda row: row["rows"])
    pays = [(plan := enough(row)) is not None and plan["ms"] < row["exact_ms"] for row in of_leg]
    for i, row in enumerate(of_leg):
        if all(pays[i:]):
            return f"{leg}, {share:.0%} pass: an index pays from {row['rows']:,} rows on"
    return f"{leg}, {share:.0%} pass: at none of these sizes does an index pay"


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw both legs, one picture each: milliseconds by rows; an index that misses too much is drawn hollow."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for axis, leg in zip(axes, ("dense", "keyword"), strict=True):
        for share, color in zip(SHARES, ("tab:blue", "tab:orange", "tab:green"), strict=True):
            of_leg = [row for row in rows if row["leg"] == leg and row["share"] == share]
            x = [row["rows"] for row in of_leg]
            axis.plot(x, [row["exact_ms"] for row in of_leg], color=color, label=f"exact, {share:.0%} pass")
            best = [enough(row) or max(row["indexed"], key=lambda plan: plan["recall@10"]) for row in of_leg]
            axis.plot(x, [plan["ms"] for plan in best], "--", color=color, label=f"indexed, {share:.0%} pass")
            for size, plan in zip(x, best, strict=True):
                face = color if plan["recall@10"] >= ENOUGH else "none"
                axis.plot(size, plan["ms"], "o", color=color, markerfacecolor=face)
        axis.set(xscale="log", yscale="log", xlabel="memories in the namespace", ylabel="ms a query", title=leg)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", default="2000,5000,10000,20000,50000", help="sizes, with commas between them")
    parser.add_argument("--plot", type=Path, help="draw the curves into this file (needs Matplotlib)")
    parser.add_argument("--json", action="store_true", help="print every measurement as JSON")
    args = parser.parse_args()
    jiyi.warmup()
    rows: list[dict[str, Any]] = []
    for size in map(int, args.rows.split(",")):
        some = asked(size)
        for row in (*dense(some), *keyword(some)):
            rows.append(row)
            if not args.json:
                print(line(row), flush=True)
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        for leg in ("dense", "keyword"):
            for share in SHARES:
                print(crossover(rows, leg, share))
    if args.plot:
        plot(rows, args.plot)


if __name__ == "__main__":
    main()
