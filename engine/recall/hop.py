"""Recall over the graph of facts: those about an entity that the query names, and those about what they point to.

"Where does Ana's employer sit?" names Ana, and shares no word with "Initech has its seat in Leipzig". The fact that Ana
works at Initech leads there.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Ints, Leads, Query
from jiyi.fact_graph import MOST_OF_NAMED, Facts
from jiyi.kernels.topk import dense_rows
from jiyi.recall.keyword import keyword_scores

# Facts about what the query names, and facts that those lead to: of an entity with ten thousand the best by words and
# the best by vector. A search recalls 50 by each leg, so that this at most doubles what the pool holds.
_MOST_LEADING: Final = 50
_MOST_REACHED: Final = 50
# And of what one leading fact points to, the latest stored are looked at.
_MOST_OF_REACHED: Final = 1_000


def follow_facts(query: Query, facts: Facts) -> Leads | None:
    """Return the facts one step from the entities that the query names, of those that it may return."""
    named = facts.named_in(query.text, query.eligible)
    if len(named) == 0:
        return None
    leads = facts.eligible(facts.about(named, MOST_OF_NAMED), query.eligible)
    if len(leads) == 0:
        return None
    leads = leads[_best(query, facts.rows[leads], _MOST_LEADING)]
    # What a leading fact points to: the end that the query does not name.
    subjects, objects, is_named = facts.subjects[leads], facts.objects[leads], facts.marked(named)
    ends = np.where(is_named[subjects], objects, subjects)
    leading, ends = leads[~is_named[ends]], ends[~is_named[ends]]
    reached = facts.eligible(facts.about(np.flatnonzero(facts.marked(ends)), _MOST_OF_REACHED), query.eligible)
    reached = reached[~(is_named[facts.subjects[reached]] | is_named[facts.objects[reached]])]
    reached = reached[_best(query, facts.rows[reached], _MOST_REACHED)]
    pairs = (facts.subjects[reached, None] == ends) | (facts.objects[reached, None] == ends)
    of_reached, of_leading = np.nonzero(pairs)
    return Leads(
        rows=facts.rows[np.union1d(leads, reached)],
        reached=facts.rows[reached[of_reached]],
        leading=facts.rows[leading[of_leading]],
    )


def _best(query: Query, rows: Ints, most: int) -> NDArray[np.int64]:
    """Positions, ascending, of the rows that fit the query best: half by words, half by vector; ties to the latest."""
    if len(rows) <= most:
        return np.arange(len(rows), dtype=np.int64)
    latest_first = np.lexsort((rows, query.view.timestamps_s[rows]))[::-1]
    by_words = latest_first[np.argsort(-keyword_scores(query, rows)[latest_first], kind="stable")]
    if query.vector is None or query.view.vectors is None:
        return np.sort(by_words[:most])
    likeness = dense_rows(query.view.vectors, rows, query.vector)
    by_vector = latest_first[np.argsort(-likeness[latest_first], kind="stable")]
    return np.union1d(by_words[: most // 2], by_vector[: most // 2])
