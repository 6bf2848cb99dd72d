"""The dense leg: memories whose vectors are nearest to the query's."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Query
from jiyi.kernels.quantized import quantized_top_k
from jiyi.kernels.topk import dense_rows, dense_top_k, top_k
from jiyi.partition import View
from jiyi.recall.graph import Graph
from jiyi.recall.helpers import cores, helpers

# Below, the float32 rows are in the processor's cache and a second array does not pay. Beside float32 alone, 256
# dimensions, best of a run of benches/test_dense_scan.py: 0.08 ms against 0.04 at 1,000 rows, 0.21 against 0.28 at
# 10,000, 3.9 against 9.7 at 100,000.
_QUANTIZED_ROWS: Final = 10_000
# Fewer rows than this are scanned in about the time that handing them to another thread takes.
_PART_ROWS: Final = 25_000


def recall_dense(query: Query, graph: Graph | None, graph_rows: int) -> tuple[NDArray[np.int64], str]:
    """Return the rows of the pool's size with the highest cosine, best first, and the plan that found them.

    The graph answers when at least `graph_rows` rows are eligible; fewer are scanned, which is exact and at that size
    no slower. Rows stored since the graph was built are always scanned. Rows without a vector are never recalled.
    """
    view, vector = query.view, query.vector
    if vector is None or view.vectors is None or query.n_eligible == 0:
        return np.empty(0, dtype=np.int64), ""
    eligible = query.eligible & view.has_vector
    plan = query.config.dense_plan
    if graph is not None and (plan == "indexed" or (plan == "auto" and query.n_eligible >= graph_rows)):
        found = graph.search(view, vector, eligible, query.pool_size)
        if found is not None:
            since = graph.covered(view)
            tail = _scan(view, vector, eligible, query.pool_size, since)
            rows = np.sort(np.concatenate((found, tail)))
            best, _ = top_k(dense_rows(view.vectors, rows, vector), np.ones(len(rows), np.uint8), query.pool_size)
            return rows[best], "indexed"
    return _scan(view, vector, eligible, query.pool_size), "exact"


def _scan(
    view: View, vector: NDArray[np.float32], eligible: NDArray[np.uint8], count: int, since: int = 0
) -> NDArray[np.int64]:
    """The nearest eligible rows from row `since` on, exactly; large scans use all cores."""
    size = view.n - since
    if size < _QUANTIZED_ROWS:
        return _scan_part(view, vector, eligible, count, since, view.n)
    parts = max(1, min(cores(), size // _PART_ROWS))
    bounds = [since + size * i // parts for i in range(parts + 1)]
    waiting = [
        helpers().submit(_scan_part, view, vector, eligible, count, start, end) for start, end in pairwise(bounds[1:])
    ]
    found = [_scan_part(view, vector, eligible, count, bounds[0], bounds[1])]
    if not waiting or view.vectors is None:
        return found[0]
    rows = np.sort(np.concatenate(found + [part.result() for part in waiting]))
    best, _ = top_k(dense_rows(view.vectors, rows, vector), np.ones(len(rows), np.uint8), count)
    return rows[best]


def _scan_part(
    view: View, vector: NDArray[np.float32], eligible: NDArray[np.uint8], count: int, start: int, end: int
) -> NDArray[np.int64]:
    if view.vectors is None:
        return np.empty(0, dtype=np.int64)
    vectors, part = view.vectors[start:end], slice(start, end)
    if end - start < _QUANTIZED_ROWS:
        rows, _ = dense_top_k(vectors, vector, eligible[part], count)
    else:
        rows, _ = quantized_top_k(view.codes[part], view.code_scales[part], vectors, vector, eligible[part], count)
    return rows + start
