"""First stage: both legs bring their candidates, and every candidate of the union is scored by every signal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Candidates, Floats, Query, Signal
from jiyi.config import IndexConfig
from jiyi.kernels.late_interaction import max_sim
from jiyi.kernels.topk import dense_rows
from jiyi.models.protocols import TokenTable
from jiyi.recall.dense import begin_dense
from jiyi.recall.keeper import Indexes
from jiyi.recall.keyword import keyword_scores, recall_keyword


def recall(query: Query, indexes: Indexes, config: IndexConfig, table: TokenTable | None) -> Candidates:
    """Return the union of the two legs' pools, each candidate with its raw score in every signal."""
    use_dense = query.config.dense_weight > 0 or query.config.late_weight > 0
    finish_dense = begin_dense(query, indexes.graph, config.dense_rows) if use_dense else lambda: (_NONE, "")
    use_keyword = query.config.keyword_weight > 0
    keyword, keyword_plan = recall_keyword(query, indexes.inverted, config.keyword_rows) if use_keyword else (_NONE, "")
    dense, dense_plan = finish_dense()
    rows = _union(dense, keyword)
    if query.config.neighbor_share > 0:
        # Of each leg's better half: what a candidate further down lends would not reach the answer.
        half = query.pool_size // 2
        rows = _union(rows, _following(query, _union(dense[:half], keyword[:half])))
    signals = (
        _dense_signal(query, rows, dense_plan),
        _keyword_signal(query, rows, keyword_plan),
        _late_signal(query, rows, table),
    )
    return Candidates(rows=rows, signals=tuple(signal for signal in signals if signal is not None))


def _union(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of either, ascending, each once."""
    rows = np.sort(np.concatenate((a, b)))
    first = np.ones(len(rows), dtype=bool)
    first[1:] = rows[1:] != rows[:-1]
    union: NDArray[np.int64] = rows[first]
    return union


def _following(query: Query, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows that come next in their sessions: what was said before them may lend them its relevance."""
    following = query.view.next[rows]
    following = following[(following >= 0) & (following < query.view.n)]
    eligible: NDArray[np.int64] = following[query.eligible[following] == 1]
    return eligible


_NONE = np.empty(0, dtype=np.int64)


def _signal(name: str, raw: Floats, scored: NDArray[np.bool_], plan: str = "") -> Signal:
    raw = raw * scored
    return Signal(name, raw, scored, np.zeros(len(raw)), 0.0, plan)


def _dense_signal(query: Query, rows: NDArray[np.int64], plan: str) -> Signal | None:
    if query.vector is None or query.view.vectors is None or query.config.dense_weight == 0:
        return None
    raw = dense_rows(query.view.vectors, rows, query.vector).astype(np.float64)
    return _signal("dense", raw, query.view.has_vector[rows] == 1, plan)


def _keyword_signal(query: Query, rows: NDArray[np.int64], plan: str) -> Signal | None:
    if query.config.keyword_weight == 0 or len(query.term_ids) == 0:
        return None
    raw = keyword_scores(query, rows)
    # A candidate without any of the words has the score 0 and is in no ranking by it.
    return _signal("keyword", raw, raw > 0, plan)


def _late_signal(query: Query, rows: NDArray[np.int64], table: TokenTable | None) -> Signal | None:
    if table is None or query.config.late_weight == 0 or len(query.tokens) == 0:
        return None
    view, tokens = query.view, query.tokens
    vectors = table.table[tokens].astype(np.float32) * table.inverse_norms[tokens, None]
    raw = max_sim(vectors, query.token_weights, table.table, table.inverse_norms, view.token_indptr, view.tokens, rows)
    return _signal("late", raw, raw > 0)
