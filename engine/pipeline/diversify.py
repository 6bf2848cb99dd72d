"""Fifth stage: of copies only the best, by greedy maximal marginal relevance (Carbonell & Goldstein 1998)."""

from __future__ import annotations

import numpy as np

from jiyi.candidates import Candidates, Query
from jiyi.kernels.mmr import mmr_cosine, mmr_jaccard
from jiyi.kernels.normalize import minmax
from jiyi.kernels.order import moved_to_front


def diversify(candidates: Candidates, query: Query) -> Candidates:
    """Choose the first k of the window one by one, each the most relevant that least resembles those chosen before.

    Relevance is min-maxed over the window first, so that λ means the same for every query. Candidates that were not
    chosen follow in their old order.
    """
    config, view = query.config, query.view
    window = candidates.order[: config.mmr_window]
    if config.diversity == "none" or len(window) < 2 or query.k == 0:
        return candidates
    relevance = minmax(np.ascontiguousarray(candidates.score[window]))
    rows = candidates.rows[window]
    count = min(query.k, len(window))
    if config.diversity == "cosine":
        if view.vectors is None:
            candidates.note("diversify", "cosine needs vectors and the store has none; order is by relevance")
            return candidates
        chosen = mmr_cosine(relevance, np.ascontiguousarray(view.vectors[rows]), count, config.mmr_lambda)
    else:
        indptr, words = view.words_of(rows)
        chosen = mmr_jaccard(relevance, indptr, words, count, config.mmr_lambda)
    candidates.order = moved_to_front(candidates.order, chosen.order)
    candidates.chosen = candidates.order[:count]
    candidates.mmr, candidates.penalty = chosen.score, chosen.penalty
    candidates.blocker = np.where(chosen.blocker >= 0, window[chosen.blocker], -1)
    return candidates
