"""The dense leg: memories whose vectors are nearest to the query's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
# dimensions (benches/test_dense_scan.py, medians of one run): 0.07 ms against 0.06 at 1,000 rows, 0.12 against 0.14 at
# 4,000, 4.2 against 10.2 at 100,000.
_QUANTIZED_ROWS: Final = 4_000
# Fewer rows than this are scanned in about the time that handing them to another thread takes.
_PART_ROWS: Final = 25_000
# The keyword leg runs while helpers scan, and takes as long as scanning a fifth of the rows (100,000 rows, two cores).
_OWN_SHARE: Final = 0.65


def begin_dense(query: Query, graph: Graph | None, graph_rows: int) -> Callable[[], tuple[NDArray[np.int64], str]]:
    """Start the dense leg; what is returned finishes it, so that other work can run while helpers scan.

    Finishing returns the rows of the pool's size with the highest cosine, best first, and the plan that found them.
    The graph answers when at least `graph_rows` rows are eligible; fewer are scanned, which is exact and at that size
    no slower. Rows stored since the graph was built are always scanned. Rows without a vector are never recalled.
    """
    view, vector = query.view, query.vector
    if vector is None or view.vectors is None or query.n_eligible == 0:
        return lambda: (np.empty(0, dtype=np.int64), "")
    eligible = query.eligible if view.all_have_vectors else query.eligible & view.has_vector
    plan = query.config.dense_plan
    if graph is not None and (plan == "indexed" or (plan == "auto" and query.n_eligible >= graph_rows)):
        found = graph.search(view, vector, eligible, query.pool_size)
        if found is not None:
            since = graph.covered(view)
            tail = _begin_scan(view, vector, eligible, query.pool_size, since)
            return lambda: (_best(view.vectors, vector, (found, tail()), query.pool_size), "indexed")
    rows = _begin_scan(view, vector, eligible, query.pool_size)
    return lambda: (rows(), "exact")


def _begin_scan(
    view: View, vector: NDArray[np.float32], eligible: NDArray[np.uint8], count: int, since: int = 0
) -> Callable[[], NDArray[np.int64]]:
    """The nearest eligible rows from row `since` on, exactly; large scans use all cores."""
    size = view.n - since
    parts = max(1, min(cores(), size // _PART_ROWS))
    # The caller's own part is the smaller one: it has other work to do meanwhile.
    own = since + int(size / (1 + (parts - 1) / _OWN_SHARE))
    bounds = [own + (view.n - own) * i // max(parts - 1, 1) for i in range(parts)]
    waiting = [
        helpers().submit(_scan_part, view, vector, eligible, count, start, end) for start, end in pairwise(bounds)
    ]

    def finish() -> NDArray[np.int64]:
        found = _scan_part(view, vector, eligible, count, since, own)
        if not waiting:
            return found
        return _best(view.vectors, vector, (found, *(part.result() for part in waiting)), count)

    return finish


def _best(
    vectors: NDArray[np.float32] | None, vector: NDArray[np.float32], found: Sequence[NDArray[np.int64]], count: int
) -> NDArray[np.int64]:
    """The nearest of the rows that several parts found."""
    if vectors is None:
        return np.empty(0, dtype=np.int64)
    rows = np.sort(np.concatenate(found))
    best, _ = top_k(dense_rows(vectors, rows, vector), np.ones(len(rows), np.uint8), count)
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
