"""First stage over several namespaces: what one namespace that holds all their memories would recall.

Document counts, token counts and lengths are summed over the namespaces, so that a term weighs the same in each and
raw scores are on one scale; each namespace is recalled by itself, and of all the best are kept. What follows sees one
small view of the candidates. Sessions, and facts that supersede or lead to each other, stay within their namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Candidates, Floats, Ints, Leads, Query
from jiyi.config import IndexConfig, SearchConfig
from jiyi.fact_graph import Facts
from jiyi.kernels.bm25 import idf
from jiyi.kernels.topk import dense_rows
from jiyi.models.protocols import TokenTable
from jiyi.partition import Partition, View
from jiyi.pipeline.pool import Legs, legs, signals_of, union
from jiyi.recall.hop import follow_facts
from jiyi.recall.keeper import Indexes
from jiyi.recall.keyword import keyword_scores
from jiyi.recall.slices import Slice, following_rows, gathered, taken
from jiyi.terms import QueryTerms

# Slices of namespaces whose memories have been outdone are let go when rows of so many pools are held.
_MOST_POOLS = 16

Home = tuple[int, str]
"""A namespace, by number and name."""


class Seen(NamedTuple):
    """A namespace as one search sees it."""

    partition: Partition
    view: View
    eligible: NDArray[np.uint8]
    """1 for rows that it may return."""


class Spaces:
    """The namespaces of one search, loaded when they are looked at.

    What fits into `room_bytes` is held from the first look on. The rest is loaded again for the second, so that a
    thousand namespaces take no more memory than the store may use; what was written between the looks then counts in
    the second only.
    """

    def __init__(
        self, names: Sequence[str], see: Callable[[str], Seen | None], size: Callable[[str], int], room_bytes: float
    ) -> None:
        self._names = list(names)
        self._see = see
        self._size = size
        self._room_bytes = room_bytes
        self._held: dict[str, Seen] = {}
        self._taken_bytes = 0

    def __iter__(self) -> Iterator[tuple[str, Seen]]:
        stored: list[str] = []
        for name in self._names:
            seen = self._held.get(name)
            if seen is None:
                seen = self._see(name)
                if seen is None:  # nothing is stored there
                    continue
                self._taken_bytes += self._size(name)
                if self._taken_bytes <= self._room_bytes:
                    self._held[name] = seen
            stored.append(name)
            yield name, seen
        self._names = stored

    def holds(self, name: str) -> bool:
        """Return whether a namespace will be the same at the next look."""
        return name in self._held


@dataclass(frozen=True, slots=True)
class Counts:
    """Statistics over the live memories of all the namespaces. Terms are known here by their place in `terms`."""

    n_live: int
    n_unembedded: int
    average_length: float
    dim: int | None
    """Of the vectors; None when the store has none."""
    embedded: bool
    terms: NDArray[np.uint64]
    """Those that were counted, ascending."""
    _frequencies: Ints
    _tokens: NDArray[np.uint32]
    _token_frequencies: Ints
    found: Mapping[str, Ints]
    """By namespace that is held: the ids of the terms there, -1 for none."""

    def term_ids_of(self, terms: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Return the places, ascending, of those terms that some live memory holds."""
        places = np.searchsorted(self.terms, terms)
        counted_here = places < len(self.terms)
        counted_here[counted_here] = self.terms[places[counted_here]] == terms[counted_here]
        places = places[counted_here]
        return places[self._frequencies[places] > 0].astype(np.uint32)

    def document_frequencies(self, term_ids: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return in how many live memories each term stands."""
        return self._frequencies[term_ids]

    def token_frequencies(self, tokens: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return in how many live memories each of the tokens that were counted stands."""
        return self._token_frequencies[np.searchsorted(self._tokens, tokens)]


def counted(spaces: Spaces, terms: NDArray[np.uint64], tokens: NDArray[np.uint32]) -> Counts:
    """Count terms and tokens, ascending and distinct, over all namespaces."""
    n_live, n_unembedded, length, dim, embedded = 0, 0, 0, None, False
    frequencies, token_frequencies = np.zeros(len(terms), dtype=np.int64), np.zeros(len(tokens), dtype=np.int64)
    ids: dict[str, Ints] = {}
    for name, (_, view, _) in spaces:
        n_live += view.n_live
        n_unembedded += view.n_unembedded
        length += view.live_length
        embedded = embedded or view.embedded
        dim = dim if view.vectors is None else view.vectors.shape[1]
        found = view.find_terms(terms)
        if spaces.holds(name):
            ids[name] = found
        held = _held(found)
        frequencies[held] += view.document_frequencies(found[held].astype(np.uint32))
        if len(tokens):
            token_frequencies += view.token_frequencies(tokens)
    average = length / n_live if n_live else 0.0
    return Counts(n_live, n_unembedded, average, dim, embedded, terms, frequencies, tokens, token_frequencies, ids)


@dataclass(frozen=True, slots=True)
class Asked:
    """A query as it is asked of every namespace."""

    text: str
    k: int
    now_s: float
    config: SearchConfig
    terms: QueryTerms
    counts: Counts
    vector: NDArray[np.float32] | None
    tokens: NDArray[np.uint32]
    token_weights: Floats
    known: NDArray[np.uint64]
    """Terms of the query that some live memory holds, ascending."""
    weights: Floats
    """Their idf."""
    places: NDArray[np.uint32]
    """Where they stand in `counts.terms`."""
    speakers: NDArray[np.uint64]
    """Those of them that are speakers' names."""

    @classmethod
    def over(
        cls,
        counts: Counts,
        text: str,
        terms: QueryTerms,
        k: int,
        now_s: float,
        config: SearchConfig,
        vector: NDArray[np.float32] | None,
        tokens: NDArray[np.uint32],
        token_weights: Floats,
    ) -> Asked:
        """Weigh the terms of a query by what was counted."""
        ids = counts.term_ids_of(terms.terms)
        weights = idf(counts.document_frequencies(ids), counts.n_live)
        named = terms.speakers if config.speaker_bonus else terms.speakers[:0]
        speakers = counts.terms[counts.term_ids_of(named)]
        return cls(
            text=text,
            k=k,
            now_s=now_s,
            config=config,
            terms=terms,
            counts=counts,
            vector=vector,
            tokens=tokens,
            token_weights=token_weights,
            known=counts.terms[ids],
            weights=weights,
            places=ids,
            speakers=speakers,
        )

    def of(self, view: View, eligible: NDArray[np.uint8], name: str | None = None) -> Query:
        """Return the query as it is asked of the view of a namespace, by name, or of that of all candidates."""
        found = None if name is None else self.counts.found.get(name)
        found = view.find_terms(self.known) if found is None else found[self.places]
        held = _held(found)
        return Query(
            text=self.text,
            k=self.k,
            now_s=self.now_s,
            config=self.config,
            view=view,
            terms=self.terms,
            term_ids=found[held].astype(np.uint32),
            term_weights=self.weights[held],
            average_length=self.counts.average_length,
            speaker_ids=view.term_ids_of(self.speakers) if name is None else _NO_IDS,  # asked of candidates only
            vector=self.vector,
            tokens=self.tokens,
            token_weights=self.token_weights,
            eligible=eligible,
            n_eligible=int(np.count_nonzero(eligible)),
        )


_NO_IDS = np.empty(0, dtype=np.uint32)


def _held(ids: Ints) -> Ints:
    """Places of those that are known, by ascending id."""
    held = np.flatnonzero(ids >= 0)
    return held[np.argsort(ids[held])].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Recalled:
    """The candidates of all namespaces, as one view has them."""

    query: Query
    candidates: Candidates
    homes: dict[int, Home]
    """By label, a candidate's namespace."""
    generation: dict[str, int]
    """By namespace that holds anything, the sequence number that was searched."""


class _Leg:
    """The best memories that one leg has found so far, best first; of equal ones the one stored first."""

    def __init__(self) -> None:
        self.labels: Ints = np.empty(0, dtype=np.int64)
        self._scores: Floats = np.empty(0)
        self.plans: set[str] = set()

    def offer(self, labels: Ints, scores: NDArray[np.floating], size: int) -> NDArray[np.bool_]:
        """Take in what a namespace found, best first, keep so many of all; return which of the new ones are kept."""
        if len(labels) == 0 or (len(self.labels) == size and scores[0] < self._scores[-1]):
            return np.zeros(len(labels), dtype=bool)
        every, values = np.concatenate((self.labels, labels)), np.concatenate((self._scores, scores))
        best = np.lexsort((every, -values))[:size]
        self.labels, self._scores = every[best], values[best]
        worst = self._scores[-1]
        kept: NDArray[np.bool_] = (scores > worst) | ((scores == worst) & (labels <= self.labels[-1]))
        return kept

    @property
    def plan(self) -> str:
        return "indexed" if "indexed" in self.plans else "exact" if "exact" in self.plans else ""


class _Pool:
    """What both legs have found so far, and slices that hold it."""

    def __init__(self) -> None:
        self.dense = _Leg()
        self.keyword = _Leg()
        self.slices: dict[Home, Slice] = {}
        self._rows = 0
        self._led: list[tuple[Ints, Ints, Ints]] = []

    def add(self, home: Home, query: Query, recalled: Legs, facts: Facts | None) -> None:
        """Take in what was recalled in one namespace."""
        view, size = query.view, query.pool_size
        dense, keyword = recalled.dense, recalled.keyword
        self.dense.plans.add(recalled.dense_plan)
        self.keyword.plans.add(recalled.keyword_plan)
        if len(dense) and view.vectors is not None and query.vector is not None:
            scores = dense_rows(view.vectors, dense, query.vector)
            dense = dense[self.dense.offer(view.labels[dense], scores, size)]
        keyword = keyword[self.keyword.offer(view.labels[keyword], keyword_scores(query, keyword), size)]
        leads = None if facts is None else follow_facts(query, facts)
        if len(dense) == len(keyword) == 0 and leads is None:
            return
        rows = union(dense, keyword)
        following = following_rows(view, rows, query.eligible)
        rows = union(rows, following[following >= 0])
        if leads is not None:
            rows = union(rows, leads.rows)
            self._led.append((view.labels[leads.rows], view.labels[leads.reached], view.labels[leads.leading]))
        self.slices[home] = taken(view, rows, query.eligible)
        self._rows += len(rows)
        if self._rows > _MOST_POOLS * size:
            self._let_go()

    def _let_go(self) -> None:
        """Drop the slices of namespaces whose memories have all been outdone since."""
        led = [labels for labels, _, _ in self._led]
        needed = np.concatenate((self.dense.labels, self.keyword.labels, *led))
        self.slices = {home: part for home, part in self.slices.items() if np.isin(part.labels, needed).any()}
        self._rows = sum(len(part.labels) for part in self.slices.values())

    def labels(self, half: int) -> Ints:
        """Return the labels of all candidates, ascending; those of each leg's better half bring the next turn."""
        labels = union(self.dense.labels, self.keyword.labels)
        if half:
            heads = union(self.dense.labels[:half], self.keyword.labels[:half])
            following = [part.following[np.isin(part.labels, heads)] for part in self.slices.values()]
            labels = union(labels, np.concatenate([labels[:0], *(part[part >= 0] for part in following)]))
        for led, _, _ in self._led:
            labels = union(labels, led)
        return labels

    def leads(self, labels: Ints) -> Leads | None:
        """Return the facts that lead to others by their places among the labels."""
        if not self._led:
            return None
        every, reached, leading = (np.concatenate(parts) for parts in zip(*self._led, strict=True))
        rows = np.searchsorted(labels, np.sort(every))
        return Leads(rows, np.searchsorted(labels, reached), np.searchsorted(labels, leading))


def recall_several(
    spaces: Spaces,
    asked: Asked,
    indexes_of: Callable[[Partition], Indexes],
    graph_of: Callable[[Partition], Facts | None],
    index_config: IndexConfig,
    table: TokenTable | None,
) -> Recalled:
    """Return the candidates that one namespace with all the memories would have, in the order they were stored."""
    config, counts = asked.config, asked.counts
    pool, generation, with_usage, half = _Pool(), {}, False, 0
    for name, (partition, view, eligible) in spaces:
        generation[name] = view.sequence
        with_usage = with_usage or view.usage is not None
        query = asked.of(view, eligible, name)
        if query.n_eligible == 0:
            continue
        half = query.pool_size // 2 if config.neighbor_share > 0 else 0
        if config.keyword_weight > 0 and len(asked.known):
            pool.keyword.plans.add("exact")  # also where no namespace with the words has anything to return
        facts = graph_of(partition) if config.fact_hops and view.facts is not None else None
        pool.add((partition.namespace, name), query, legs(query, indexes_of(partition), index_config), facts)
    labels = pool.labels(half)
    view = gathered(
        list(pool.slices.values()),
        labels,
        known_terms=asked.known,
        average_length=counts.average_length,
        dim=counts.dim,
        with_usage=with_usage,
    )
    query = asked.of(view, view.live)
    candidates = Candidates(
        rows=np.arange(len(labels), dtype=np.int64),
        signals=signals_of(query, np.arange(len(labels), dtype=np.int64), pool.dense.plan, pool.keyword.plan, table),
        leads=pool.leads(labels),
    )
    homes = {label: home for home, part in pool.slices.items() for label in part.labels.tolist()}
    return Recalled(query, candidates, homes, generation)
