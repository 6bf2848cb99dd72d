"""After fusion: a fact that another fact leads to gets a share of that one's relevance."""

from __future__ import annotations

import numpy as np

from jiyi.candidates import Candidates, Query


def follow(candidates: Candidates, query: Query) -> Candidates:
    """Lend relevance along the facts that `recall.hop` followed.

    The best of the facts that lead to one counts: led = r + (1 − r) · share · min(1, relevance of the leading fact), r
    being what it has by itself. So a fact that answers the question by itself as well stands above the others that the
    same fact leads to; with the larger of the two, as between turns, they would all stand level.
    """
    leads = candidates.leads
    if leads is None:
        return candidates
    own, rows = candidates.relevance, candidates.rows
    to, by = np.searchsorted(rows, leads.reached), np.searchsorted(rows, leads.leading)
    best = np.argsort(-own[by], kind="stable")
    best = best[own[by[best]] > 0]
    reached, first = np.unique(to[best], return_index=True)
    led, led_by = np.full(len(rows), np.nan), np.full(len(rows), -1, dtype=np.int64)
    led_by[reached] = by[best][first]
    lent = query.config.fact_share * np.minimum(own[led_by[reached]], 1.0)
    led[reached] = own[reached] + (1.0 - own[reached]) * lent
    candidates.relevance = candidates.score = np.fmax(own, led)
    candidates.led, candidates.led_by = led, led_by
    return candidates
