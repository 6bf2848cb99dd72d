"""The dense leg: memories whose vectors are nearest to the query's."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Query
from jiyi.kernels.quantized import quantized_top_k
from jiyi.kernels.topk import dense_rows, dense_top_k, top_k
from jiyi.partition import View
from jiyi.recall.graph import Graph

# Below, the float32 rows are in the processor's cache and a second array does not pay.
_QUANTIZED_ROWS: Final = 8_000


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
    """The nearest eligible rows from row `since` on, exactly."""
    if view.vectors is None:
        return np.empty(0, dtype=np.int64)
    if view.n - since < _QUANTIZED_ROWS:
        rows, _ = dense_top_k(view.vectors[since:], vector, eligible[since:], count)
    else:
        codes, scales = view.codes[since:], view.code_scales[since:]
        rows, _ = quantized_top_k(codes, scales, view.vectors[since:], vector, eligible[since:], count)
    return rows + since
