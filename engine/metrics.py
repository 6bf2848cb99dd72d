"""How good a ranking is: recall, nDCG and reciprocal rank with binary gains.

Every function takes the ids that are relevant (at least one) and the ids ranked, best first. A repeated id counts
once, at its first place. Results are in [0, 1], higher is better.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence


def recall_at(k: int, relevant: Collection[str], ranked: Sequence[str]) -> float:
    """Return |relevant in the first k| / |relevant|.

    >>> recall_at(2, ["a", "b"], ["a", "c", "b"])
    0.5
    """
    gold = _checked(relevant)
    return len(gold & set(_distinct(ranked)[:k])) / len(gold)


def ndcg_at(k: int, relevant: Collection[str], ranked: Sequence[str]) -> float:
    """Return the discounted cumulative gain of the first k over that of the best order (Järvelin & Kekäläinen 2002).

    Σ 1/log₂(rank + 1) over the relevant among the first k, over the same sum for ranks 1 … min(k, |relevant|).

    >>> round(ndcg_at(10, ["a"], ["b", "a"]), 4)
    0.6309
    """
    gold = _checked(relevant)
    gain = sum(
        1 / math.log2(rank + 1) for rank, memory_id in enumerate(_distinct(ranked)[:k], start=1) if memory_id in gold
    )
    return gain / sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(gold)) + 1))


def reciprocal_rank_at(k: int, relevant: Collection[str], ranked: Sequence[str]) -> float:
    """Return 1 / rank of the first relevant id among the first k, 0 if there is none.

    >>> reciprocal_rank_at(10, ["a"], ["b", "a"])
    0.5
    """
    gold = _checked(relevant)
    for rank, memory_id in enumerate(_distinct(ranked)[:k], start=1):
        if memory_id in gold:
            return 1 / rank
    return 0.0


def _checked(relevant: Collection[str]) -> set[str]:
    if not relevant:
        raise ValueError("there are no relevant ids, so nothing can be measured; leave the question out")
    return set(relevant)


def _distinct(ranked: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(ranked))
