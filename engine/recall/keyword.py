"""The keyword leg: memories that share words with the query, scored by BM25 over the namespace's live memories."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Floats, Query
from jiyi.kernels.bm25 import bm25_rows
from jiyi.kernels.bm25_top_k import bm25_top_k
from jiyi.kernels.topk import top_k
from jiyi.recall.inverted import InvertedIndex


def keyword_scores(query: Query, rows: NDArray[np.int64]) -> Floats:
    """Return the BM25 score of named rows; 0 for those that share no term with the query."""
    view, config = query.view, query.config
    return bm25_rows(
        rows,
        query.term_ids,
        query.term_weights,
        view.term_indptr,
        view.term_ids,
        view.term_freqs,
        view.lengths,
        query.average_length,
        k1=config.bm25_k1,
        b=config.bm25_b,
    )


def recall_keyword(query: Query, index: InvertedIndex | None, index_rows: int) -> tuple[NDArray[np.int64], str]:
    """Return the rows of the pool's size with the highest BM25 score above 0, best first, and the plan that found them.

    Tantivy recalls more than asked by its own statistics, the kernel scores them by the namespace's: both plans order
    by the same number. Rows stored since the index was built are always scored by the kernel.
    """
    view, config = query.view, query.config
    if len(query.term_ids) == 0 or query.n_eligible == 0:
        return np.empty(0, dtype=np.int64), ""
    plan = config.keyword_plan
    if index is not None and (plan == "indexed" or (plan == "auto" and query.n_eligible >= index_rows)):
        found = index.search(view, query.terms.terms, query.eligible, query.pool_size)
        if found is not None:
            since = index.covered(view)
            tail = np.flatnonzero(query.eligible[since:]) + since
            rows = np.concatenate((np.sort(found), tail))
            best, _ = top_k(keyword_scores(query, rows), np.ones(len(rows), np.uint8), query.pool_size, above=0.0)
            return rows[best], "indexed"
    rows, _ = bm25_top_k(
        query.term_ids,
        query.term_weights,
        view.postings,
        view.n_base,
        view.term_indptr,
        view.term_ids,
        view.term_freqs,
        view.lengths,
        view.n,
        query.eligible,
        query.average_length,
        query.pool_size,
        k1=config.bm25_k1,
        b=config.bm25_b,
    )
    return rows, "exact"
