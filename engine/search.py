"""One search, from a text to hits: assemble the query, run the stages, fetch the memories that are left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi.analysis import as_vector
from jiyi.candidates import Candidates, Floats, Ints, Query
from jiyi.config import SearchConfig
from jiyi.filters import Where, compile_where
from jiyi.hits import Hits
from jiyi.kernels.bm25 import idf
from jiyi.kernels.topk import unit_rows
from jiyi.ledger import LABEL_BITS, LABEL_MASK, key_range
from jiyi.memory import Memory
from jiyi.models.protocols import Embedder, TokenTable
from jiyi.partition import Partition, View
from jiyi.pipeline.diversify import diversify
from jiyi.pipeline.fuse import fuse
from jiyi.pipeline.pool import recall
from jiyi.pipeline.recency import recency
from jiyi.pipeline.rerank import rerank
from jiyi.store import EXTERNAL, Store
from jiyi.terms import QueryTerms, query_terms

# Late interaction costs (query tokens × distinct tokens of the pool): of a very long query the rarest tokens count.
_MOST_QUERY_TOKENS: Final = 64
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


def search(
    store: Store,
    text: str,
    *,
    namespace: str,
    k: int,
    where: Where | None,
    now_s: float,
    query_vector: NDArray[np.float32] | None,
    budget_ms: float | None,
    config: SearchConfig,
) -> Hits:
    """Answer a query. Arguments are checked already."""
    clock = _Clock()
    deadline = None if budget_ms is None else time.perf_counter() + budget_ms / 1000
    condition = None if where is None else compile_where(where)
    partition = store.partition(namespace)
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
        query, degraded = _query(store, view, text, terms, k, now_s, query_vector, config, keys)
        clock.lap("query")
        candidates, found = _run(store, partition, namespace, query, degraded, deadline, clock)
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


def _run(
    store: Store,
    partition: Partition,
    namespace: str,
    query: Query,
    degraded: Sequence[tuple[str, str]],
    deadline: float | None,
    clock: _Clock,
) -> tuple[Candidates, _Fetched]:
    found = _Fetched(store, partition, namespace)

    def texts_of(positions: Ints) -> list[str]:
        labels = query.view.labels[candidates.rows[positions]].tolist()
        found.fetch(labels)
        return [found.memories[label].text if label in found.memories else "" for label in labels]

    stages: tuple[tuple[str, Callable[[Candidates], Candidates]], ...] = (
        ("fuse", lambda pool: fuse(pool, query)),
        ("recency", lambda pool: recency(pool, query)),
        ("rerank", lambda pool: rerank(pool, query, texts_of, deadline)),
        ("diversify", lambda pool: diversify(pool, query)),
    )
    candidates = recall(query, store.indexes(partition), store.index_config, _table(store))
    for leg, reason in degraded:
        candidates = candidates.with_degraded(leg, reason)
    clock.lap("recall")
    for name, stage in stages:
        if name == "rerank" and not query.config.rerank:
            continue
        candidates = stage(candidates)
        clock.lap(name)
    return candidates, found


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
        vector = _embedded(embedder, store.table, text, tokens, token_weights)
    except Exception as error:  # a model of the user's: whatever it raises, keywords still answer
        return None, [("dense", f"the embedder {embedder.name!r} failed: {type(error).__name__}: {error}"[:300])]
    if vector is None:
        return None, [
            ("dense", f"the embedder {embedder.name!r} knows nothing of this query; only keywords were searched")
        ]
    return vector, []


def _embedded(
    embedder: Embedder, table: TokenTable | None, text: str, tokens: NDArray[np.uint32], token_weights: Floats
) -> NDArray[np.float32] | None:
    """A unit query vector, or None when the model has nothing on the query."""
    if table is not None:
        # Words that are everywhere in the namespace do not steer the query.
        vector = table.embed_weighted(tokens, token_weights)
    else:
        vector = as_vector(embedder.embed_query(text), int(embedder.dim), "what it returned")
    unit, nonzero = unit_rows(vector[np.newaxis])
    return unit[0] if nonzero[0] else None
