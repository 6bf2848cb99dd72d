"""How a query is answered: every number of the pipeline in one frozen, checked value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from jiyi.memory import KINDS
from jiyi.quoted import quoted

if TYPE_CHECKING:
    from jiyi.models.protocols import CrossEncoder

Normalization = Literal["minmax", "zscore", "rank", "none"]
Fusion = Literal["weighted", "rrf"]
Curve = Literal["exponential", "linear", "logarithmic"]
Diversity = Literal["jaccard", "cosine", "none"]
Plan = Literal["auto", "exact", "indexed"]
Reinforcement = Literal["none", "last_use", "half_life"]

_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "normalization": ("minmax", "zscore", "rank", "none"),
    "fusion": ("weighted", "rrf"),
    "rerank_fusion": ("weighted", "rrf"),
    "recency_curve": ("exponential", "linear", "logarithmic"),
    "reinforcement": ("none", "last_use", "half_life"),
    "diversity": ("jaccard", "cosine", "none"),
    "dense_plan": ("auto", "exact", "indexed"),
    "keyword_plan": ("auto", "exact", "indexed"),
}
# name: (lowest, highest), both allowed unless said in _ABOVE.
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "dense_weight": (0, 1e6),
    "keyword_weight": (0, 1e6),
    "late_weight": (0, 1e6),
    "speaker_bonus": (0, 1e6),
    "date_bonus": (0, 1e6),
    "neighbor_share": (0, 1),
    "fact_share": (0, 1),
    "frequent_share": (0, 1),
    "rrf_k": (0, 1e6),
    "recency_weight": (0, 1),
    "half_life_s": (1e-3, math.inf),
    "reinforcement_growth": (0, 1e6),
    "outcome_weight": (0, 1),
    "rerank_weight": (0, 1),
    "mmr_lambda": (0, 1),
    "bm25_k1": (0, 1e6),
    "bm25_b": (0, 1),
}
_MOST_CANDIDATES: Final = 2**40  # as many as a store can hold
_COUNTS: Final[dict[str, int]] = {"pool_min": 1, "rerank_candidates": 0, "mmr_window": 0}

#: Signals that lift what the others found, in proportion: by the setting `<name>_bonus`.
BONUSES: Final = ("speaker", "date")

#: The cross-encoder that ships.
SHIPPED_CROSS_ENCODER: Final = "rerank-en"


def _check_half_life(value: float, name: str) -> None:
    if 1e15 < value < math.inf:  # thirty million years: the curves' arithmetic ends there
        raise ValueError(f"{name} is {quoted(value)}; it must be at most 1e15, or infinity for no ageing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Aging:
    """How one kind of memory ages.

    half_life_s: seconds until recency is ½; infinity for a kind that does not age. curve: "exponential" | "linear" |
    "logarithmic". Where one is None, the search's own counts. floor: recency never falls below it, 0 to 1.
    """

    half_life_s: float | None = None
    curve: Curve | None = None
    floor: float = 0.0

    def __post_init__(self) -> None:
        for name, (low, high) in {"half_life_s": _RANGES["half_life_s"], "floor": (0.0, 1.0)}.items():
            value = getattr(self, name)
            if value is None and name == "half_life_s":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} must be a number, got {type(value).__name__}")
            if not low <= value <= high:
                raise ValueError(f"{name} is {quoted(value)}; it must be from {low:g} to {high:g}")
        if self.half_life_s is not None:
            _check_half_life(self.half_life_s, "half_life_s")
        if self.curve is not None and self.curve not in _CHOICES["recency_curve"]:
            allowed = ", ".join(_CHOICES["recency_curve"])
            raise ValueError(f"curve is {quoted(self.curve)}; it must be one of {allowed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """Every setting of a search. All can be given to `search` by name.

    Recall
        pool_min: each leg recalls max(4·k, pool_min) candidates. dense_plan, keyword_plan: "exact", "indexed" or
        "auto" (by size and filter). bm25_k1, bm25_b: BM25's saturation and length correction.
    Fusion
        normalization: "minmax" | "zscore" | "rank" | "none" over the pool; fusion: "weighted" | "rrf" (rrf_k).
        dense_weight, keyword_weight, late_weight: of the vector's cosine, BM25 and late interaction over token
        vectors; they are scaled to sum to 1, and a signal that has nothing to say has weight 0.
        speaker_bonus: a query that names speakers of the namespace prefers what they said: its relevance counts
        (1 + speaker_bonus) times as much as that of the rest, all divided by (1 + speaker_bonus); 0 prefers nobody.
        date_bonus: likewise for what happened when the query says ("in May 2023", "上周五", from `now` on), and half as
        much for each length of that time (a day at least) that lies between.
        neighbor_share: how much of its relevance a memory lends to the one after it in its session, so that an answer
        is found by the question before it; 0 lends nothing.
        fact_hops: 1 follows facts: of the entities that the query names, the facts about them and those about what they
        point to join the pool, and a fact that another leads to, of relevance r by itself, has at least
        r + (1 − r)·fact_share·(that one's relevance); 0 follows none. It is on because questions that take two facts
        gain by it and no others lose (`benches/fact_hops.py`); a namespace without facts is answered as before.
        frequent_share: words that stand in more than this share of the namespace's memories (a name that everybody
        says) are cut from the query that a transformer embeds, unless nothing else is left; 1 cuts none. A token
        table weighs its words by rarity instead.
    Recency
        blended = relevance·(1 − recency_weight) + recency·recency_weight. recency_curve: "exponential" |
        "linear" | "logarithmic", each ½ at half_life_s seconds. Kinds in ageless_kinds always have recency 1.
        aging: by kind, an `Aging` (or a mapping of its fields) that goes before these, ageless_kinds included. Facts
        change in months: {"semantic": {"half_life_s": 90 * 86400}} tells new ones from old better (docs/quality.md).
        reinforcement: "none"; "last_use": a memory that was used ages from its last use; "half_life": its half-life is
        (1 + reinforcement_growth · uses) times as long.
    Outcomes
        outcome_weight w: a procedural memory that was tried is drawn towards 1 or 0 by how it went: with
        b = 2·(successes + 1) / (successes + failures + 2) − 1, its score s becomes s + w·b·(1 − s) for b > 0 and
        s + w·b·s for b < 0.
    Rerank
        rerank: "bm25", a cross-encoder's name (`jiyi models list`), an object with score(query, texts), or several in
        a tuple; the first rerank_candidates are scored. A model sees `speaker: text`.
        rerank_fusion "weighted": rerank_weight·reranked + (1 − rerank_weight)·first stage, both min-maxed; "rrf".
    Diversity
        diversity: "jaccard" | "cosine" | "none" for greedy MMR over mmr_window candidates, with mmr_lambda
        (1: only relevance, 0: only novelty).
    """

    pool_min: int = 50
    dense_plan: Plan = "auto"
    keyword_plan: Plan = "auto"
    bm25_k1: float = 0.9
    bm25_b: float = 0.4
    normalization: Normalization = "minmax"
    fusion: Fusion = "weighted"
    rrf_k: float = 60.0
    neighbor_share: float = 0.8
    fact_hops: int = 1
    fact_share: float = 0.6
    dense_weight: float = 0.3
    keyword_weight: float = 0.35
    late_weight: float = 0.35
    speaker_bonus: float = 0.3
    date_bonus: float = 0.4
    frequent_share: float = 0.2
    recency_weight: float = 0.1
    recency_curve: Curve = "exponential"
    half_life_s: float = 7 * 86400.0
    ageless_kinds: tuple[str, ...] = ("archival", "procedural")
    aging: Mapping[str, Aging] = field(default_factory=dict, hash=False)
    reinforcement: Reinforcement = "none"
    reinforcement_growth: float = 1.0
    outcome_weight: float = 0.1
    rerank: tuple[str | CrossEncoder, ...] = ()
    rerank_candidates: int = 30
    rerank_fusion: Fusion = "weighted"
    rerank_weight: float = 0.7
    diversity: Diversity = "jaccard"
    mmr_window: int = 20
    mmr_lambda: float = 0.7

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {quoted(getattr(self, name))}; it must be one of {', '.join(choices)}")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} must be a number, got {type(value).__name__}")
            if not low <= value <= high:
                raise ValueError(f"{name} is {quoted(value)}; it must be from {low:g} to {high:g}")
        _check_half_life(self.half_life_s, "half_life_s")
        object.__setattr__(self, "aging", _checked_aging(self.aging))
        if not isinstance(self.ageless_kinds, tuple | list | set | frozenset) or not set(self.ageless_kinds) <= set(
            KINDS
        ):
            raise ValueError(f"ageless_kinds is {quoted(self.ageless_kinds)}; it must be a tuple of {', '.join(KINDS)}")
        if isinstance(self.fact_hops, bool) or not isinstance(self.fact_hops, int):
            raise TypeError(f"fact_hops must be 0 or 1, got {type(self.fact_hops).__name__}")
        if self.fact_hops not in (0, 1):
            raise ValueError(f"fact_hops is {quoted(self.fact_hops)}; it must be 0 (off) or 1")
        for name, least in _COUNTS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be a whole number, got {type(value).__name__}")
            if not least <= value <= _MOST_CANDIDATES:
                raise ValueError(f"{name} is {quoted(value)}; it must be from {least} to {_MOST_CANDIDATES}")
        if self.dense_weight + self.keyword_weight + self.late_weight <= 0:
            raise ValueError("dense_weight, keyword_weight and late_weight are all 0; at least one must be above")
        if self.rerank is None:
            object.__setattr__(self, "rerank", ())
        elif not isinstance(self.rerank, tuple):
            object.__setattr__(self, "rerank", tuple(self.rerank) if isinstance(self.rerank, list) else (self.rerank,))
        for scorer in self.rerank:
            if not (isinstance(scorer, str) and scorer) and not callable(getattr(scorer, "score", None)):
                raise TypeError(
                    "rerank takes 'bm25', a cross-encoder's name, or objects with score(query, texts), "
                    f"got {quoted(scorer)}"
                )

    def with_overrides(self, overrides: dict[str, Any]) -> SearchConfig:
        """Return a copy with some settings changed; an unknown one is a TypeError that lists those that exist."""
        if not overrides:
            return self
        unknown = sorted(set(overrides) - set(SETTINGS))
        if unknown:
            raise TypeError(f"unknown search setting {quoted(unknown[0])}; settings are {', '.join(SETTINGS)}")
        return replace(self, **overrides)


def _checked_aging(aging: object) -> dict[str, Aging]:
    if not isinstance(aging, Mapping):
        raise TypeError(f"aging must map kinds to Aging, got {type(aging).__name__}")
    checked: dict[str, Aging] = {}
    for kind, value in aging.items():
        if kind not in KINDS:
            raise ValueError(f"aging names the kind {quoted(kind)}; kinds are {', '.join(KINDS)}")
        if isinstance(value, Mapping):
            unknown = [str(name) for name in value if name not in _AGING]
            if unknown:
                raise ValueError(f"aging of {kind} has {quoted(unknown[0])}; it can have {', '.join(_AGING)}")
            value = Aging(**value)
        if not isinstance(value, Aging):
            raise TypeError(f"aging of {kind} must be an Aging or a mapping of its fields, got {type(value).__name__}")
        checked[kind] = value
    return checked


_AGING: Final = tuple(setting.name for setting in fields(Aging))

SETTINGS: Final = tuple(setting.name for setting in fields(SearchConfig))

DEFAULT: Final = SearchConfig()

_BALANCED: Final = replace(DEFAULT, dense_weight=0.4, keyword_weight=0.3, late_weight=0.3)

#: Settings by name, for `search(preset=…)`. "balanced" and "best" are made for a transformer's vectors, which
#: `jiyi.open(preset=…)` takes where there are any, and do with a token table's; the last three are one signal alone.
PRESETS: Final = {
    "fast": DEFAULT,
    "balanced": _BALANCED,
    "best": replace(_BALANCED, rerank=(SHIPPED_CROSS_ENCODER,)),
    "keyword": replace(DEFAULT, dense_weight=0.0, late_weight=0.0),
    "dense": replace(DEFAULT, keyword_weight=0.0, late_weight=0.0),
    "late": replace(DEFAULT, keyword_weight=0.0, dense_weight=0.0),
}

#: Presets that a new store is made with a transformer's vectors for, where one is installed.
TRANSFORMER_PRESETS: Final = frozenset({"balanced", "best"})


def preset_named(name: str) -> SearchConfig:
    """Return a preset; an unknown name is a ValueError that lists those that exist."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ValueError(f"unknown preset {quoted(name)}; presets are {', '.join(PRESETS)}")
    return PRESETS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConfig:
    """When a namespace outgrows the exact plans, and how its indexes are built.

    dense_rows, keyword_rows: from so many rows on a namespace gets an hnswlib graph, a Tantivy index. A search
    uses them when at least that many rows pass its filter. Below, the exact plans miss nothing. At 10,000, 20,000,
    50,000 and 100,000 rows no index that finds 98 % of the ten best is quicker than the exact plan, filtered or not
    (benches/thresholds.py); where they cross beyond has not been measured, and both defaults are choices.
    graph_links (M), graph_build_width (ef_construction), graph_search_width (ef): hnswlib's parameters.
    rebuild_fraction: an index is built again when so large a share of its memories died or is not in it.
    """

    dense_rows: int = 250_000
    keyword_rows: int = 500_000
    graph_links: int = 32
    graph_build_width: int = 200
    graph_search_width: int = 200
    rebuild_fraction: float = 0.2

    def __post_init__(self) -> None:
        counts = {
            "dense_rows": (1, 2**40),
            "keyword_rows": (1, 2**40),
            "graph_links": (2, 128),
            "graph_build_width": (1, 10_000),
            "graph_search_width": (1, 10_000),
        }
        for name, (low, high) in counts.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be a whole number, got {type(value).__name__}")
            if not low <= value <= high:
                raise ValueError(f"{name} is {quoted(value)}; it must be from {low} to {high}")
        if isinstance(self.rebuild_fraction, bool) or not isinstance(self.rebuild_fraction, int | float):
            raise TypeError(f"rebuild_fraction must be a number, got {type(self.rebuild_fraction).__name__}")
        if not 0 < self.rebuild_fraction < math.inf:
            raise ValueError(f"rebuild_fraction is {quoted(self.rebuild_fraction)}; it must be a finite number above 0")
