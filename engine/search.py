"""One search, from a text to hits: assemble the query, run the stages, fetch the memories that are left."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.analysis import as_vector, spoken
from jiyi.around import Around, turns_around, views_of
from jiyi.candidates import Candidates, Floats, Ints, Query
from jiyi.config import SearchConfig
from jiyi.facts import graph_of
from jiyi.filters import Filter, Where, parse_where
from jiyi.hits import Hits
from jiyi.kernels.bm25 import idf
from jiyi.kernels.topk import unit_rows
from jiyi.ledger import LABEL_BITS, LABEL_MASK
from jiyi.memory import Memory
from jiyi.models.files import ModelFilesError
from jiyi.models.protocols import CrossEncoder, TokenTable
from jiyi.models.registry import load_cross_encoder
from jiyi.models.score_cache import scores_of
from jiyi.partition import Partition, View
from jiyi.pipeline.diversify import diversify
from jiyi.pipeline.follow import follow
from jiyi.pipeline.fuse import fuse
from jiyi.pipeline.pool import recall
from jiyi.pipeline.recency import recency
from jiyi.pipeline.rerank import Request, Rerank, answer, answer_together, rerank
from jiyi.pipeline.several import Asked, Counts, Home, Recalled, Seen, Spaces, counted, recall_several
from jiyi.query_record import asked_of
from jiyi.recall.helpers import cores
from jiyi.spaces import Namespaces, names_in, only_name
from jiyi.store import EXTERNAL, Store
from jiyi.terms import QueryTerms, query_terms, text_terms

# Late interaction costs (query tokens × distinct tokens of the pool): of a very long query the rarest tokens count.
_MOST_QUERY_TOKENS: Final = 64
# Queries whose texts go to a cross-encoder at once: enough for full batches, few enough to hold their candidates.
_TOGETHER: Final = 64
# Starting a thread takes about as long as a search.
_WORTH_A_THREAD: Final = 8
# With fewer memories than this, a word that stands in some of them may well be what the query is about.
_FEW_MEMORIES: Final = 20
# A hit can vanish between scoring and fetching when another thread deletes it; then the search starts again.
_ATTEMPTS: Final = 5


class _Clock:
    """Milliseconds by stage."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self.ms: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.ms[stage] = self.ms.get(stage, 0.0) + (now - self._last) * 1000
        self._last = now

    def total(self) -> dict[str, float]:
        return {**self.ms, "total": (time.perf_counter() - self._start) * 1000}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a search is asked, beside its text. Checked already."""

    namespace: Namespaces
    k: int
    where: Where | None
    now_s: float
    as_of_s: float | None
    query_vector: NDArray[np.float32] | None
    budget_ms: float | None
    config: SearchConfig
    neighbors: int = 0
    """How many turns on each side of a hit come with it."""


def search(store: Store, text: str, settings: Settings) -> Hits:
    """Answer a query."""
    budget_ms = settings.budget_ms
    deadline = None if budget_ms is None else time.perf_counter() + budget_ms / 1000
    steps = _steps(store, text, settings)
    try:
        request = next(steps)
        while True:
            with scores_of(_owner(store, settings)):
                reply = answer(request, deadline)
            request = steps.send(reply)
    except StopIteration as stop:
        hits: Hits = stop.value
        return hits


def search_many(store: Store, texts: Sequence[str], settings: Settings) -> list[Hits]:
    """Answer several queries, each as `search` does: to the bit, but for int8 cross-encoders.

    What they give a cross-encoder to score goes there together. Without one they share the cores.
    """
    if settings.budget_ms is not None or not settings.config.rerank:
        return _side_by_side(store, texts, settings)
    answers: list[Hits] = []
    for start in range(0, len(texts), _TOGETHER):
        answers.extend(_search_together(store, texts[start : start + _TOGETHER], settings))
    return answers


def _side_by_side(store: Store, texts: Sequence[str], settings: Settings) -> list[Hits]:
    # An embedder of the user's is called by one thread, as it would be by a loop.
    alone = store.embedder is not None and store.own_table is None and settings.query_vector is None
    workers = 1 if alone else min(cores(), len(texts) // _WORTH_A_THREAD)
    if workers < 2:
        return [search(store, text, settings) for text in texts]
    bounds = [len(texts) * i // workers for i in range(workers + 1)]

    def share(number: int) -> list[Hits]:
        return [search(store, text, settings) for text in texts[bounds[number] : bounds[number + 1]]]

    # Threads of their own: those of the dense scan must be free to be waited for.
    with ThreadPoolExecutor(workers - 1, thread_name_prefix="jiyi-search") as pool:
        others = [pool.submit(share, number) for number in range(1, workers)]
        return [*share(0), *(hits for other in others for hits in other.result())]


def _search_together(store: Store, texts: Sequence[str], settings: Settings) -> list[Hits]:
    done: dict[int, Hits] = {}
    waiting: list[tuple[int, _Steps, Any]] = [(i, _steps(store, text, settings), None) for i, text in enumerate(texts)]
    while waiting:
        asked: list[tuple[int, _Steps, Request]] = []
        for i, steps, reply in waiting:
            try:
                asked.append((i, steps, steps.send(reply)))
            except StopIteration as stop:
                done[i] = stop.value
        with scores_of(_owner(store, settings)):
            replies = answer_together([request for _, _, request in asked])
        waiting = [(i, steps, reply) for (i, steps, _), reply in zip(asked, replies, strict=True)]
    return [done[i] for i in range(len(texts))]


def _owner(store: Store, settings: Settings) -> str:
    """Whose a cross-encoder's scores are: what one tenant asked must not make another's answers quicker."""
    return f"{store.id} {settings.namespace!r}"


_Steps = Generator[Request, Any, Hits]


def _steps(store: Store, text: str, settings: Settings) -> _Steps:
    """Answer a query, handing out what is to be scored by models."""
    clock = _Clock()
    k, config = settings.k, settings.config
    where = None if settings.where is None else parse_where(settings.where)
    only = only_name(settings.namespace)
    names = names_in(store.ledger, settings.namespace) if only is None else [only]
    partition = store.partition(names[0]) if len(names) == 1 else None
    scorers, failed = _scorers(config, store)
    if k == 0 or (partition is None and len(names) < 2):
        clock.lap("recall")
        asked = asked_of(store, settings, dict.fromkeys(names, 0 if partition is None else partition.view.sequence))
        return Hits(None, Candidates(np.empty(0, dtype=np.int64)), (), (), {}, clock.total(), text, asked)
    terms = query_terms(text, settings.now_s)
    for attempt in range(_ATTEMPTS):
        if partition is not None:
            seen, (query, degraded, candidates) = _recalled_in(
                store, names[0], partition, text, terms, settings, where, clock
            )
            generation = {names[0]: query.view.sequence}
            found = _Fetched(store, (seen.partition.namespace, names[0]))
        else:
            recalled, degraded = _recalled_over(store, names, text, terms, settings, where, clock)
            query, candidates = recalled.query, recalled.candidates
            generation = {**dict.fromkeys(names, 0), **recalled.generation}
            found = _Fetched(store, recalled.homes)
        clock.lap("recall")
        candidates = yield from _stages(candidates, query, [*degraded, *failed], scorers, found, clock)
        view, positions = query.view, candidates.order[:k].tolist()
        labels = [int(view.labels[candidates.rows[position]]) for position in positions]
        found.fetch(labels)
        if all(label in found.memories for label in labels) or attempt == _ATTEMPTS - 1:
            break
        store.wait_for_writer()  # one is committed and not shown yet; its view comes with it
        if partition is not None:  # compacting unloads them, and what happens since is shown in those loaded anew
            partition = store.partition(names[0]) or partition
    kept = [(position, label) for position, label in zip(positions, labels, strict=True) if label in found.memories]
    memories = [found.memories[label] for _, label in kept]
    ids = {position: found.memories[label].id for position, label in kept}
    if candidates.leads is not None:
        lenders = {int(lender) for lender in candidates.led_by[[position for position, _ in kept]] if lender >= 0}
        by_label = {int(view.labels[candidates.rows[lender]]): lender for lender in sorted(lenders)}
        found.fetch(list(by_label))
        ids |= {by_label[label]: found.memories[label].id for label in by_label if label in found.memories}
    around: list[Around] = []
    if settings.neighbors:
        homes = [(found.home(label), label) for _, label in kept]
        around = _around(store, homes, view if partition is not None else None, settings)
    for reason in store.left_out(names):
        candidates.note("recall", reason)
    clock.lap("fetch")
    asked = asked_of(store, settings, generation)
    positions = [position for position, _ in kept]
    return Hits(query, candidates, memories, positions, ids, clock.total(), text, asked, around)


def _around(store: Store, hits: Sequence[tuple[Home, int]], only: View | None, settings: Settings) -> list[Around]:
    """The turns around hits. Over several namespaces what was searched is not at hand any more: they are as by now."""

    view_of = views_of(store, settings.as_of_s) if only is None else lambda _: only
    return turns_around(store, hits, view_of, count=settings.neighbors, now_s=settings.now_s)


def _scorers(config: SearchConfig, store: Store) -> tuple[list[str | CrossEncoder], list[tuple[str, str]]]:
    """The scorers, named models loaded, and what is wrong with those that are. A name of no model is an error."""
    scorers: list[str | CrossEncoder] = []
    failed: list[tuple[str, str]] = []
    for scorer in config.rerank:
        if not isinstance(scorer, str) or scorer == "bm25":
            scorers.append(scorer)
            continue
        model = store.cross_encoders.get(scorer)
        if model is None:
            try:
                model = load_cross_encoder(scorer, device=store.device)
            except ModelFilesError as error:
                failed.append(("rerank", f"{scorer} cannot be loaded: {error}"[:300]))
                continue
            store.cross_encoders[scorer] = model
        scorers.append(model)
        failed.extend(("rerank", reason) for reason in getattr(model, "degraded", ()))
    return scorers, failed


class _Fetched:
    """Memories read from the ledger, each once."""

    def __init__(self, store: Store, homes: Mapping[int, Home] | Home) -> None:
        self._store = store
        self._homes = homes
        self.memories: dict[int, Memory] = {}

    def home(self, label: int) -> Home:
        return self._homes if isinstance(self._homes, tuple) else self._homes[label]

    def fetch(self, labels: Sequence[int]) -> None:
        missing: dict[str, list[int]] = {}
        for label in labels:
            if label not in self.memories:
                number, name = self.home(label)
                missing.setdefault(name, []).append(number << LABEL_BITS | label)
        for name, keys in missing.items():
            for key, memory in self._store.memories(keys, name).items():
                self.memories[key & LABEL_MASK] = memory


def _seen(store: Store, namespace: str, partition: Partition, settings: Settings, where: Filter | None) -> Seen:
    """A namespace as a search sees it."""
    view, passing = partition.view, None
    if where is not None:
        filtered = store.filtered(namespace, where)
        if filtered is None:  # its last memory has just gone
            passing = np.zeros(view.n, dtype=np.uint8)
        else:
            partition, view, passing = filtered
    if settings.as_of_s is not None:
        view = view.as_of(settings.as_of_s)
    eligible = view.recallable(settings.now_s)
    return Seen(partition, view, eligible if passing is None else eligible & passing)


def _recalled_in(
    store: Store,
    name: str,
    partition: Partition,
    text: str,
    terms: QueryTerms,
    settings: Settings,
    where: Filter | None,
    clock: _Clock,
) -> tuple[Seen, tuple[Query, list[tuple[str, str]], Candidates]]:
    """The candidates of one namespace, as of one generation of its columns, and the namespace as it was seen."""
    while True:
        seen = _seen(store, name, partition, settings, where)
        try:
            recalled = _recalled(store, seen, text, terms, settings, clock)
        except ValueError:  # vectors of different lengths
            if store.generation == seen.partition.generation:
                raise
        # Looked at last: it is what changes first when a reindex ends, and only then the model of the query's vector.
        if store.generation == seen.partition.generation:
            return seen, recalled
        store.wait_for_writer()
        partition = store.partition(name) or partition


def _recalled(
    store: Store, seen: Seen, text: str, terms: QueryTerms, settings: Settings, clock: _Clock
) -> tuple[Query, list[tuple[str, str]], Candidates]:
    """The candidates of one namespace."""
    partition = seen.partition
    query, degraded = _query(store, seen.view, text, terms, settings, seen.eligible)
    clock.lap("query")
    facts = graph_of(store, partition) if settings.config.fact_hops and seen.view.facts is not None else None
    return query, degraded, recall(query, store.indexes(partition), store.index_config, _table(store), facts)


def _recalled_over(
    store: Store,
    names: Sequence[str],
    text: str,
    terms: QueryTerms,
    settings: Settings,
    where: Filter | None,
    clock: _Clock,
) -> tuple[Recalled, list[tuple[str, str]]]:
    """The candidates of several namespaces, as of one that holds what they hold."""

    def see(name: str) -> Seen | None:
        partition = store.partition(name)
        return None if partition is None else _seen(store, name, partition, settings, where)

    def once() -> tuple[Recalled, list[tuple[str, str]]]:
        spaces = Spaces(names, see, store.size_of, store.budget_bytes)
        counts = counted(spaces, _counted_terms(store, text, terms), _token_rows(store, terms))
        tokens, weights, vector, degraded = _lookup(store, counts, text, terms, settings)
        asked = Asked.over(counts, text, terms, settings.k, settings.now_s, settings.config, vector, tokens, weights)
        clock.lap("query")
        config, table = store.index_config, _table(store)
        return recall_several(spaces, asked, store.indexes, partial(graph_of, store), config, table), degraded

    while True:
        version = store.settled
        try:
            recalled = once()
        except ValueError:  # vectors of different lengths
            if store.generation == version:
                raise
        if store.generation == version:
            return recalled
        # A reindex ended while namespaces were looked at, one after the other: some had the vectors of another model.


def _counted_terms(store: Store, text: str, terms: QueryTerms) -> NDArray[np.uint64]:
    """The terms of a query, ascending, and every other that `_without_frequent_words` asks for."""
    if store.embedder is None or store.own_table is not None:
        return terms.terms
    words = [term for word in text.split() for term in text_terms(word)]
    return np.union1d(terms.terms, np.array(words, dtype=np.uint64))


def _stages(
    candidates: Candidates,
    query: Query,
    degraded: Sequence[tuple[str, str]],
    scorers: Sequence[str | CrossEncoder],
    found: _Fetched,
    clock: _Clock,
) -> Rerank:
    def texts_of(positions: Ints) -> list[str]:
        labels = query.view.labels[candidates.rows[positions]].tolist()
        found.fetch(labels)
        return [spoken(found.memories[label]) if label in found.memories else "" for label in labels]

    for leg, reason in degraded:
        candidates.note(leg, reason)
    candidates = follow(fuse(candidates, query), query)
    clock.lap("fuse")
    candidates = recency(candidates, query)
    clock.lap("recency")
    if scorers:
        candidates = yield from rerank(candidates, query, scorers, texts_of)
        clock.lap("rerank")
    candidates = diversify(candidates, query)
    clock.lap("diversify")
    return candidates


def _table(store: Store) -> TokenTable | None:
    return store.table if store.mismatch is None else None


def _query(
    store: Store,
    view: View,
    text: str,
    terms: QueryTerms,
    settings: Settings,
    eligible: NDArray[np.uint8],
) -> tuple[Query, list[tuple[str, str]]]:
    """Look the query up in a view: ids and weights of its terms and tokens, its vector."""
    term_ids = view.term_ids_of(terms.terms)
    counts = view.document_frequencies(term_ids)
    speaker_ids = term_ids[:0]
    if settings.config.speaker_bonus and len(terms.speakers):
        speaker_ids = view.term_ids_of(terms.speakers)
    if not counts.all():  # terms of memories that are gone, or not yet there
        term_ids, counts = term_ids[counts > 0], counts[counts > 0]
        speaker_ids = speaker_ids[np.isin(speaker_ids, term_ids)]
    term_weights = idf(counts, view.n_live)
    tokens, token_weights, vector, degraded = _lookup(store, view, text, terms, settings)
    query = Query(
        text=text,
        k=settings.k,
        now_s=settings.now_s,
        config=settings.config,
        view=view,
        terms=terms,
        term_ids=term_ids,
        term_weights=term_weights,
        average_length=view.average_length,
        speaker_ids=speaker_ids,
        vector=vector,
        tokens=tokens,
        token_weights=token_weights,
        eligible=eligible,
        n_eligible=int(np.count_nonzero(eligible)),
    )
    return query, degraded


def _lookup(
    store: Store, view: View | Counts, text: str, terms: QueryTerms, settings: Settings
) -> tuple[NDArray[np.uint32], Floats, NDArray[np.float32] | None, list[tuple[str, str]]]:
    """The query's tokens with their weights and its vector, by the statistics of a view (or of several together)."""
    tokens, token_weights = _tokens(store, view, terms)
    vector, degraded = _vector(store, view, text, tokens, token_weights, settings.query_vector, settings.config)
    if view.n_unembedded and vector is not None:
        degraded.append(_unembedded(view))
    if store.stale_terms:
        stale = "the store's terms are another version's; `jiyi reindex --tokenizer current` renews them"
        degraded.append(("keyword", stale))
    if len(tokens) > _MOST_QUERY_TOKENS:
        kept = np.sort(np.argsort(-token_weights, kind="stable")[:_MOST_QUERY_TOKENS])
        tokens, token_weights = tokens[kept], token_weights[kept]
    return tokens, token_weights, vector, degraded


def _unembedded(view: View | Counts) -> tuple[str, str]:
    return "dense", f"{view.n_unembedded} of {view.n_live} memories were stored without a vector; words alone find them"


def _token_rows(store: Store, terms: QueryTerms) -> NDArray[np.uint32]:
    """The query's distinct rows of the token table, ascending."""
    table = _table(store)
    if table is None:
        return np.empty(0, dtype=np.uint32)
    _, rows = table.token_rows([terms.content])
    return np.array(sorted(set(rows.tolist())), dtype=np.uint32)


def _tokens(store: Store, view: View | Counts, terms: QueryTerms) -> tuple[NDArray[np.uint32], Floats]:
    """The query's distinct rows of the token table, weighted by its fixed weight and its idf in the namespace."""
    table, tokens = _table(store), _token_rows(store, terms)
    if table is None:
        return tokens, np.empty(0)
    counts = np.minimum(view.token_frequencies(tokens), view.n_live)
    return tokens, idf(counts, view.n_live) * table.weights[tokens]


def _vector(
    store: Store,
    view: View | Counts,
    text: str,
    tokens: NDArray[np.uint32],
    token_weights: Floats,
    query_vector: NDArray[np.float32] | None,
    config: SearchConfig,
) -> tuple[NDArray[np.float32] | None, list[tuple[str, str]]]:
    if config.dense_weight == 0 and config.late_weight == 0:
        return None, []
    if query_vector is not None:
        vector = _unit(query_vector)
        return vector, [("dense", "the query vector is zero and has no direction")] if vector is None else []
    if not view.embedded:  # for its vectors nothing is missing where nobody made any
        return None, [_unembedded(view)] if view.n_unembedded and store.embedder is not None else []
    if store.mismatch is not None:
        return None, [("dense", str(store.mismatch))]
    embedder = store.embedder
    if embedder is None and store.unusable is not None:
        return None, [("dense", f"{store.unusable}; only keywords were searched")]
    if embedder is None:
        source = "the caller" if store.model == EXTERNAL else repr(store.model)
        return None, [
            ("dense", f"the vectors come from {source} and the query came without one; only keywords were searched")
        ]
    try:
        if (table := store.own_table) is not None:
            # Words that are everywhere in the namespace do not steer the query.
            vector = _unit(table.embed_weighted(tokens, token_weights))
        else:
            telling = _without_frequent_words(view, text, config.frequent_share)
            vector = _unit(as_vector(embedder.embed_query(telling), int(embedder.dim), "what it returned"))
    except Exception as error:  # a model of the user's: whatever it raises, keywords still answer
        return None, [("dense", f"the embedder {embedder.name!r} failed: {type(error).__name__}: {error!s:.80}")]
    if vector is None:
        return None, [
            ("dense", f"the embedder {embedder.name!r} knows nothing of this query; only keywords were searched")
        ]
    return vector, [("dense", reason) for reason in getattr(embedder, "degraded", ())]


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """A vector of length 1, or None for one of zeros: the model has nothing on the query."""
    unit, nonzero = unit_rows(vector[np.newaxis])
    return unit[0] if nonzero[0] else None


def _without_frequent_words(view: View | Counts, text: str, share: float) -> str:
    """The query without words that stand in more than a share of the memories; all of it if nothing else is left.

    In a conversation between two people nearly every turn and question names one of them, and a vector of a question
    that does lies closer to whatever names them than to what answers it.
    """
    if view.n_live < _FEW_MEMORIES or share >= 1:
        return text
    words, kept, telling = text.split(), [], False
    for word in words:
        terms = np.array(sorted(set(text_terms(word))), dtype=np.uint64)
        ids = view.term_ids_of(terms)
        frequent = len(ids) == len(terms) > 0 and view.document_frequencies(ids).min() > share * view.n_live
        if not frequent:
            kept.append(word)
            telling = telling or len(terms) > 0  # a question mark alone is no question
    return " ".join(kept) if telling and len(kept) < len(words) else text
