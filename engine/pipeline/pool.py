"""First stage: both legs bring their candidates, and every candidate of the union is scored by every signal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Candidates, Query, Signal
from jiyi.config import IndexConfig
from jiyi.fact_graph import Facts
from jiyi.kernels.bm25 import bm25_rows
from jiyi.kernels.late_interaction import max_sim
from jiyi.kernels.pool import pool_rows
from jiyi.kernels.topk import dense_rows
from jiyi.models.protocols import TokenTable
from jiyi.recall.dense import begin_dense
from jiyi.recall.hop import follow_facts
from jiyi.recall.keeper import Indexes
from jiyi.recall.keyword import keyword_scores, recall_keyword


def recall(
    query: Query, indexes: Indexes, config: IndexConfig, table: TokenTable | None, facts: Facts | None = None
) -> Candidates:
    """Return the union of the two legs' pools, each candidate with its raw score in every signal.

    With a graph of facts, those that the query leads to join them.
    """
    dense, dense_plan, keyword, keyword_plan = legs(query, indexes, config)
    # Of each leg's better half: what a candidate further down lends would not reach the answer.
    half = query.pool_size // 2 if query.config.neighbor_share > 0 else 0
    rows = pool_rows(dense, keyword, half, query.view.next, query.eligible)
    leads = None if facts is None else follow_facts(query, facts)
    if leads is not None:
        rows = union(rows, leads.rows)
    return Candidates(rows=rows, signals=signals_of(query, rows, dense_plan, keyword_plan, table), leads=leads)


class Legs(NamedTuple):
    """What both legs bring: rows of the pool's size, best first, and by which plan."""

    dense: NDArray[np.int64]
    dense_plan: str
    keyword: NDArray[np.int64]
    keyword_plan: str


def legs(query: Query, indexes: Indexes, config: IndexConfig) -> Legs:
    """Run the legs that the settings give any weight."""
    use_dense = query.config.dense_weight > 0 or query.config.late_weight > 0
    finish_dense = begin_dense(query, indexes.graph, config.dense_rows) if use_dense else lambda: (_NONE, "")
    use_keyword = query.config.keyword_weight > 0
    keyword, keyword_plan = recall_keyword(query, indexes.inverted, config.keyword_rows) if use_keyword else (_NONE, "")
    dense, dense_plan = finish_dense()
    return Legs(dense, dense_plan, keyword, keyword_plan)


def signals_of(
    query: Query, rows: NDArray[np.int64], dense_plan: str, keyword_plan: str, table: TokenTable | None
) -> tuple[Signal, ...]:
    """Score candidates by every signal that has anything to say."""
    signals = (
        _dense_signal(query, rows, dense_plan),
        _keyword_signal(query, rows, keyword_plan),
        _late_signal(query, rows, table),
        _speaker_signal(query, rows),
        _date_signal(query, rows),
    )
    return tuple(signal for signal in signals if signal is not None)


def union(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels of either, ascending, each once."""
    rows = np.sort(np.concatenate((a, b)))
    first = np.ones(len(rows), dtype=bool)
    first[1:] = rows[1:] != rows[:-1]
    union: NDArray[np.int64] = rows[first]
    return union


_NONE = np.empty(0, dtype=np.int64)
_DAY_S = 86_400.0
# Seven lengths off: nothing to do with it any more.
_FAR = 2.0**-7


def _dense_signal(query: Query, rows: NDArray[np.int64], plan: str) -> Signal | None:
    if query.vector is None or query.view.vectors is None or query.config.dense_weight == 0:
        return None
    raw = dense_rows(query.view.vectors, rows, query.vector).astype(np.float64)
    if query.view.all_have_vectors:
        return Signal("dense", raw, np.ones(len(rows), dtype=np.bool_), plan)
    scored = query.view.has_vector[rows] == 1
    return Signal("dense", raw * scored, scored, plan)


def _keyword_signal(query: Query, rows: NDArray[np.int64], plan: str) -> Signal | None:
    if query.config.keyword_weight == 0 or len(query.term_ids) == 0:
        return None
    raw = keyword_scores(query, rows)
    # A candidate without any of the words has the score 0 and is in no ranking by it.
    return Signal("keyword", raw, raw > 0, plan)


def _speaker_signal(query: Query, rows: NDArray[np.int64]) -> Signal | None:
    """1 for what was said by somebody whom the query names, 0 for the rest."""
    if query.config.speaker_bonus == 0 or len(query.speaker_ids) == 0:
        return None
    view = query.view
    named = bm25_rows(
        rows,
        query.speaker_ids,
        np.ones(len(query.speaker_ids)),
        view.term_indptr,
        view.term_ids,
        view.term_freqs,
        view.lengths,
        query.average_length,
        k1=0.0,  # how often does not count
        b=0.0,
    )
    said = named > 0
    return Signal("speaker", said.astype(np.float64), said)


def _date_signal(query: Query, rows: NDArray[np.int64]) -> Signal | None:
    """1 for what happened when the query says, half as much for each length of it (a day at least) further off."""
    if query.config.date_bonus == 0 or not query.terms.spans:
        return None
    times_s = query.view.timestamps_s[rows]
    near = np.zeros(len(rows))
    for start_s, end_s in query.terms.spans:
        off_s = np.maximum(np.maximum(start_s - times_s, times_s - end_s), 0.0)
        near = np.maximum(near, np.exp2(-off_s / max(end_s - start_s, _DAY_S)))
    near[near < _FAR] = 0.0
    return Signal("date", near, near > 0)


def _late_signal(query: Query, rows: NDArray[np.int64], table: TokenTable | None) -> Signal | None:
    if table is None or query.config.late_weight == 0 or len(query.tokens) == 0:
        return None
    view, tokens = query.view, query.tokens
    vectors = table.table[tokens].astype(np.float32) * table.inverse_norms[tokens, None]
    raw = max_sim(vectors, query.token_weights, table.table, table.inverse_norms, view.token_indptr, view.tokens, rows)
    return Signal("late", raw, raw > 0)
