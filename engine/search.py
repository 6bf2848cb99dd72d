"""One search, from a text to hits: assemble the query, run the stages, fetch the memories that are left."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.analysis import as_vector, spoken
from jiyi.candidates import Candidates, Floats, Ints, Query
from jiyi.config import SearchConfig
from jiyi.filters import Where, compile_where
from jiyi.hits import Hits
from jiyi.kernels.bm25 import idf
from jiyi.kernels.topk import unit_rows
from jiyi.ledger import LABEL_BITS, LABEL_MASK, key_range
from jiyi.memory import Memory
from jiyi.models.files import ModelFilesError
from jiyi.models.protocols import CrossEncoder, Embedder, TokenTable
from jiyi.models.registry import load_cross_encoder
from jiyi.partition import Partition, View
from jiyi.pipeline.diversify import diversify
from jiyi.pipeline.fuse import fuse
from jiyi.pipeline.pool import recall
from jiyi.pipeline.recency import recency
from jiyi.pipeline.rerank import Request, Rerank, answer, answer_together, rerank
from jiyi.store import EXTERNAL, Store
from jiyi.terms import QueryTerms, query_terms, text_terms

# Late interaction costs (query tokens × distinct tokens of the pool): of a very long query the rarest tokens count.
_MOST_QUERY_TOKENS: Final = 64
# Queries whose texts go to a cross-encoder at once: enough for full batches, few enough to hold their candidates.
_TOGETHER: Final = 64
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

    namespace: str
    k: int
    where: Where | None
    now_s: float
    query_vector: NDArray[np.float32] | None
    budget_ms: float | None
    config: SearchConfig


def search(store: Store, text: str, settings: Settings) -> Hits:
    """Answer a query."""
    budget_ms = settings.budget_ms
    deadline = None if budget_ms is None else time.perf_counter() + budget_ms / 1000
    steps = _steps(store, text, settings)
    try:
        request = next(steps)
        while True:
            request = steps.send(answer(request, deadline))
    except StopIteration as stop:
        hits: Hits = stop.value
        return hits


def search_many(store: Store, texts: Sequence[str], settings: Settings) -> list[Hits]:
    """Answer several queries. What they give a cross-encoder to score goes there together; nothing else differs."""
    if settings.budget_ms is not None or not settings.config.rerank:
        return [search(store, text, settings) for text in texts]
    answers: list[Hits] = []
    for start in range(0, len(texts), _TOGETHER):
        answers.extend(_search_together(store, texts[start : start + _TOGETHER], settings))
    return answers


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
        replies = answer_together([request for _, _, request in asked])
        waiting = [(i, steps, reply) for (i, steps, _), reply in zip(asked, replies, strict=True)]
    return [done[i] for i in range(len(texts))]


_Steps = Generator[Request, Any, Hits]


def _steps(store: Store, text: str, settings: Settings) -> _Steps:
    """Answer a query, handing out what is to be scored by models."""
    clock = _Clock()
    namespace, k, config = settings.namespace, settings.k, settings.config
    condition = None if settings.where is None else compile_where(settings.where)
    partition = store.partition(namespace)
    scorers, failed = _scorers(config, store)
    if partition is None or k == 0:
        clock.lap("recall")
        return Hits(None, Candidates(np.empty(0, dtype=np.int64)), (), (), {}, clock.total(), text)
    terms = query_terms(text)
    for attempt in range(_ATTEMPTS):
        view = partition.view
        keys = None
        if condition is not None:
            first, last = key_range(partition.namespace)
            keys = store.ledger.select_keys(
                f"m.key BETWEEN ? AND ? AND ({condition.sql})", (first, last, *condition.parameters)
            )
        query, degraded = _query(store, view, text, terms, k, settings.now_s, settings.query_vector, config, keys)
        clock.lap("query")
        found = _Fetched(store, partition, namespace)
        candidates = yield from _stages(store, partition, query, [*degraded, *failed], scorers, found, clock)
        positions = candidates.order[:k].tolist()
        labels = [int(view.labels[candidates.rows[position]]) for position in positions]
        found.fetch(labels)
        if all(label in found.memories for label in labels) or attempt == _ATTEMPTS - 1:
            break
        store.wait_for_writer()  # one is committed and not shown yet; its view comes with it
    kept = [(position, label) for position, label in zip(positions, labels, strict=True) if label in found.memories]
    memories = [found.memories[label] for _, label in kept]
    ids = {position: found.memories[label].id for position, label in kept}
    clock.lap("fetch")
    return Hits(query, candidates, memories, [position for position, _ in kept], ids, clock.total(), text)


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

    def __init__(self, store: Store, partition: Partition, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._base = partition.namespace << LABEL_BITS
        self.memories: dict[int, Memory] = {}

    def fetch(self, labels: Sequence[int]) -> None:
        missing = [self._base | label for label in labels if label not in self.memories]
        if missing:
            for key, memory in self._store.ledger.memories(missing, self._namespace).items():
                self.memories[key & LABEL_MASK] = memory


def _stages(
    store: Store,
    partition: Partition,
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

    candidates = recall(query, store.indexes(partition), store.index_config, _table(store))
    for leg, reason in degraded:
        candidates = candidates.with_degraded(leg, reason)
    clock.lap("recall")
    candidates = fuse(candidates, query)
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
    k: int,
    now_s: float,
    query_vector: NDArray[np.float32] | None,
    config: SearchConfig,
    keys: list[int] | None,
) -> tuple[Query, list[tuple[str, str]]]:
    """Look the query up in a view: ids and weights of its terms and tokens, its vector, the rows it may return."""
    eligible = view.live
    if keys is not None:
        allowed = np.zeros(view.n, dtype=np.uint8)
        allowed[view.rows_of_labels(np.array(keys, dtype=np.int64) & LABEL_MASK)] = 1
        eligible = allowed
    if view.expiring:
        eligible = eligible & (view.expires_s > now_s)
    term_ids = view.term_ids_of(terms.terms)
    term_weights = idf(view.document_frequencies(term_ids), view.n_live)
    tokens, token_weights = _tokens(store, view, terms)
    vector, degraded = _vector(store, view, text, tokens, token_weights, query_vector, config)
    if view.n_unembedded and vector is not None:
        degraded.append(
            (
                "dense",
                f"{view.n_unembedded} of {view.n_live} memories were stored without a vector; words alone find them",
            )
        )
    if store.stale_terms:
        degraded.append(("keyword", "the store's terms are another version's; open it once for writing to renew them"))
    if len(tokens) > _MOST_QUERY_TOKENS:
        kept = np.sort(np.argsort(-token_weights, kind="stable")[:_MOST_QUERY_TOKENS])
        tokens, token_weights = tokens[kept], token_weights[kept]
    query = Query(
        text=text,
        k=k,
        now_s=now_s,
        config=config,
        view=view,
        terms=terms,
        term_ids=term_ids,
        term_weights=term_weights,
        vector=vector,
        tokens=tokens,
        token_weights=token_weights,
        eligible=eligible,
        n_eligible=int(np.count_nonzero(eligible)),
    )
    return query, degraded


def _tokens(store: Store, view: View, terms: QueryTerms) -> tuple[NDArray[np.uint32], Floats]:
    """The query's distinct rows of the token table, weighted by its fixed weight and its idf in the namespace."""
    table = _table(store)
    if table is None:
        return np.empty(0, dtype=np.uint32), np.empty(0)
    _, rows = table.token_rows([terms.content])
    tokens = np.array(sorted(set(rows.tolist())), dtype=np.uint32)
    counts = np.minimum(view.token_frequencies(tokens), view.n_live)
    return tokens, idf(counts, view.n_live) * table.weights[tokens]


def _vector(
    store: Store,
    view: View,
    text: str,
    tokens: NDArray[np.uint32],
    token_weights: Floats,
    query_vector: NDArray[np.float32] | None,
    config: SearchConfig,
) -> tuple[NDArray[np.float32] | None, list[tuple[str, str]]]:
    if config.dense_weight == 0 and config.late_weight == 0:
        return None, []
    if query_vector is not None:
        unit, nonzero = unit_rows(query_vector[np.newaxis])
        return (unit[0], []) if nonzero[0] else (None, [("dense", "the query vector is zero and has no direction")])
    if view.vectors is None or not view.n:
        return None, []
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
        vector = _embedded(embedder, view, text, tokens, token_weights, config.frequent_share)
    except Exception as error:  # a model of the user's: whatever it raises, keywords still answer
        return None, [("dense", f"the embedder {embedder.name!r} failed: {type(error).__name__}: {error}"[:300])]
    if vector is None:
        return None, [
            ("dense", f"the embedder {embedder.name!r} knows nothing of this query; only keywords were searched")
        ]
    return vector, [("dense", reason) for reason in getattr(embedder, "degraded", ())]


def _embedded(
    embedder: Embedder,
    view: View,
    text: str,
    tokens: NDArray[np.uint32],
    token_weights: Floats,
    frequent_share: float,
) -> NDArray[np.float32] | None:
    """A unit query vector, or None when the model has nothing on the query."""
    if isinstance(embedder, TokenTable):
        # Words that are everywhere in the namespace do not steer the query.
        vector = embedder.embed_weighted(tokens, token_weights)
    else:
        telling = _without_frequent_words(view, text, frequent_share)
        vector = as_vector(embedder.embed_query(telling), int(embedder.dim), "what it returned")
    unit, nonzero = unit_rows(vector[np.newaxis])
    return unit[0] if nonzero[0] else None


def _without_frequent_words(view: View, text: str, share: float) -> str:
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
