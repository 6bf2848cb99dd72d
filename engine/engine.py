"""The engine: everything a user calls."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from jiyi.analysis import as_vector
from jiyi.config import DEFAULT, TRANSFORMER_PRESETS, IndexConfig, SearchConfig, preset_named
from jiyi.context import Context, ContextConfig, render_context
from jiyi.derived import flush_to_disk
from jiyi.errors import ModelError, NotFoundError, StoreError
from jiyi.filters import Condition, Where, compile_where
from jiyi.hits import Hits
from jiyi.ledger import Durability
from jiyi.memory import FIELDS, KINDS, Memory, as_memory, checked_name
from jiyi.models.files import ModelFilesError
from jiyi.models.onnx_session import parse_device
from jiyi.models.protocols import Embedder, TokenTable
from jiyi.models.registry import TRANSFORMER_EMBEDDERS, available_embedders, load_embedder
from jiyi.models.static import SHIPPED_FOLDER
from jiyi.query import build_query
from jiyi.reindex import reindex as run_reindex
from jiyi.search import Settings
from jiyi.search import search as run_search
from jiyi.search import search_many as run_search_many
from jiyi.store import Store
from jiyi.timestamps import TimeLike, to_datetime, to_seconds, utc_now

MemoryLike = Memory | str | Mapping[str, Any]
Vector = Sequence[float] | NDArray[Any]

# Inside the class, `list` is a method.
_List = list

_DEFAULT_EMBEDDER: Final = "default"
_LONGEST_BUDGET_MS: Final = 1e12  # thirty years: any more is no limit either
_CONTEXT_SETTINGS: Final = frozenset(setting.name for setting in fields(ContextConfig))


def open_engine(
    path: str | os.PathLike[str] | None = None,
    *,
    embedder: Embedder | str | None = _DEFAULT_EMBEDDER,
    dim: int | None = None,
    config: SearchConfig | None = None,
    read_only: bool = False,
    durability: Durability = "process",
    memory_budget_mb: float = 1024,
    index_config: IndexConfig | None = None,
    preset: str | None = None,
    device: str = "auto",
) -> Engine:
    """Open a store, or make one.

    Args:
        path: a folder, made when missing; None keeps everything in memory.
        embedder: "default": what the store was made with, or the table that ships, for a new one. Another name, an
            object with the `Embedder` protocol, or None: vectors come with `add(vector=…)` or not at all.
        dim: length of the vectors that will be given, to be checked against the store's. Only with embedder=None.
        config: settings of every search that does not bring its own.
        read_only: follow a store that another process may be writing to.
        durability: "process": an acknowledged write survives kill -9. "power": and power loss, at one fsync a write.
        memory_budget_mb: namespaces above it are unloaded from memory, least recently used first.
        index_config: when namespaces get indexes, and how they are built.
        preset: settings by name, instead of `config` ("fast", "balanced", "best", …). With "balanced" or "best" a new
            store takes a transformer's vectors if one is installed (`jiyi models build e5-small`).
        device: where models run: "auto" (a GPU if ONNX Runtime has one), "cpu", "cuda" or "cuda:1".

    Raises:
        StoreLockedError: another process writes to the folder.
        StoreError: the folder or its ledger cannot be read or written; StoreVersionError: it is of another format.
        DimensionError: `dim` is not the store's.
        ValueError, TypeError: an argument of another kind or range.
    """
    if durability not in ("process", "power"):
        raise ValueError(f"durability is {durability!r:.80}; it must be 'process' or 'power'")
    if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int) or dim < 1):
        raise ValueError(f"dim is {dim!r:.80}; it must be a whole number from 1")
    if isinstance(memory_budget_mb, bool) or not isinstance(memory_budget_mb, int | float):
        raise TypeError(f"memory_budget_mb must be a number, got {type(memory_budget_mb).__name__}")
    if not memory_budget_mb > 0:
        raise ValueError(f"memory_budget_mb is {memory_budget_mb}; it must be above 0 (infinity for no limit)")
    if config is not None and not isinstance(config, SearchConfig):
        raise TypeError(f"config must be a SearchConfig, got {type(config).__name__}")
    if preset is not None and config is not None:
        raise ValueError("give a preset or a config, not both; single settings can be added to a search of either")
    if preset is not None:
        config = preset_named(preset)
    if index_config is not None and not isinstance(index_config, IndexConfig):
        raise TypeError(f"index_config must be an IndexConfig, got {type(index_config).__name__}")
    parse_device(device)  # told at once, though models may be loaded late or never
    if not isinstance(read_only, bool):
        raise TypeError(f"read_only must be True or False, got {read_only!r:.80}")
    if path is None and read_only:
        raise ValueError("a store in memory is empty when it is opened, so there is nothing to read; give a path")
    if path is not None and not os.fspath(path):
        raise ValueError("the path is empty; name a folder, or None to keep the store in memory")
    folder = None if path is None else Path(path)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file; a store is a folder")
    unusable: str | None = None
    by_name = isinstance(embedder, str)
    by_default = embedder == _DEFAULT_EMBEDDER if isinstance(embedder, str) else False
    if by_default and dim is not None:
        embedder = None
    elif isinstance(embedder, str):
        try:
            embedder = load_embedder(_default_embedder(preset) if by_default else embedder, device=device)
        except ModelFilesError as error:
            if not by_default:
                raise ModelError(f"the embedder {embedder!r:.80} cannot be used: {error}") from error
            embedder, unusable = None, str(error)  # what needs no model still works
    elif embedder is not None and not isinstance(embedder, Embedder):
        raise TypeError(
            f"embedder must be a name, an object with name, dim, embed and embed_query, or None, got {embedder!r:.80}"
        )
    if embedder is not None:
        _check_embedder(embedder)
    store = Store(
        folder,
        device=device,
        companion=_companion(embedder) if by_name else None,
        embedder=embedder,
        dim=dim,
        read_only=read_only,
        durability=durability,
        memory_budget_bytes=memory_budget_mb * 2**20,
        index_config=index_config or IndexConfig(),
        adopt=by_default,
        unusable=unusable,
    )
    return Engine(store, config or DEFAULT)


def _default_embedder(preset: str | None) -> str | Path:
    """The table that ships; for a preset that is made for a transformer's vectors the first of those installed."""
    if preset in TRANSFORMER_PRESETS:
        installed = available_embedders()
        wanted = [name for name in TRANSFORMER_EMBEDDERS if name in installed]
        if wanted:
            return wanted[0]
    return SHIPPED_FOLDER


def _companion(embedder: Embedder | None) -> TokenTable | None:
    """The table that ships, for late interaction beside an embedder without one."""
    if embedder is None or isinstance(embedder, TokenTable):
        return None
    try:
        table = load_embedder(SHIPPED_FOLDER)
    except ModelFilesError:
        return None
    return table if isinstance(table, TokenTable) else None


def _check_embedder(embedder: Embedder) -> None:
    if not isinstance(embedder.name, str) or not embedder.name:
        raise TypeError(
            f"the embedder's name must be text, got {embedder.name!r:.80}; stores keep it to tell models apart"
        )
    if isinstance(embedder.dim, bool) or not isinstance(embedder.dim, int | np.integer) or embedder.dim < 1:
        raise ValueError(f"the embedder's dim is {embedder.dim!r:.80}; it must be a whole number from 1")


class Engine:
    """A memory for agents. Made by `jiyi.open`; a context manager; safe to share between threads.

    Every call works in one namespace, "default" unless said; namespaces are walls.
    """

    def __init__(self, store: Store, config: SearchConfig) -> None:
        self._store = store
        self.config = config

    # -------------------------------------------------------------------------------------------------- writing

    def add(
        self,
        memory: MemoryLike,
        *,
        id: str | None = None,
        namespace: str | None = None,
        kind: str | None = None,
        timestamp: TimeLike | None = None,
        session: str | None = None,
        speaker: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_at: TimeLike | None = None,
        sources: Iterable[str] | None = None,
        vector: Vector | None = None,
    ) -> str:
        """Remember one thing; return its id. Durable and searchable when this returns.

        Args:
            memory: a text (with the fields as keywords), a `Memory`, or a mapping of its fields.
            id: an id that exists in the namespace is replaced; a new time-ordered one when left out.
            namespace, kind, timestamp, session, speaker, metadata, expires_at, sources: see `Memory`. They override
                what a `Memory` or mapping says.
            vector: shape (dim,), instead of the embedder's.

        Raises:
            TypeError, ValueError: a field or the vector is not as it must be; nothing was stored.
            StoreError: the store could not be written; nothing was stored.
        """
        given: dict[str, Any] = {
            "id": id,
            "namespace": namespace,
            "kind": kind,
            "timestamp": timestamp,
            "session": session,
            "speaker": speaker,
            "metadata": metadata,
            "expires_at": expires_at,
            "sources": sources,
        }
        given = {name: value for name, value in given.items() if value is not None}
        if isinstance(memory, str):
            memory = Memory(text=memory, **given)
        elif given:
            memory = replace(as_memory(memory), **given)
        return self.add_many([memory], vectors=None if vector is None else [vector])[0]

    def add_many(
        self,
        memories: Iterable[MemoryLike],
        *,
        namespace: str | None = None,
        kind: str | None = None,
        vectors: Sequence[Vector | None] | NDArray[Any] | None = None,
    ) -> list[str]:
        """Remember many things in one transaction, all or none; return their ids in the order given.

        Args:
            memories: texts, `Memory` objects or mappings of fields, mixed as you like. Of two with the same id in one
                namespace the later one stays.
            namespace, kind: for texts and mappings that do not say their own.
            vectors: one a memory, shape (n, dim), or None for those that the embedder shall make.

        Raises:
            TypeError, ValueError: one of them is not as it must be; the message says which. Nothing was stored.
            DimensionError, ModelMismatchError: vectors do not fit the store. Nothing was stored.
            StoreError: the store could not be written; nothing was stored.
        """
        self._store.check_writable("add_many")
        if isinstance(memories, str | Mapping | Memory) or not isinstance(memories, Iterable):
            raise TypeError(f"add_many takes a list of memories, got one {type(memories).__name__}; use add for one")
        items: list[Memory] = []
        for i, item in enumerate(memories):
            try:
                items.append(as_memory(item, namespace=namespace, kind=kind))
            except (TypeError, ValueError) as error:
                raise type(error)(f"memory {i} of the batch: {error}; nothing of the batch was stored") from None
        given = self._checked_vectors(vectors, len(items))
        places = {(memory.namespace, memory.id): i for i, memory in enumerate(items)}
        last = sorted(places.values())
        self._store.write([items[i] for i in last], [given[i] for i in last])
        return [memory.id for memory in items]

    def _checked_vectors(
        self, vectors: Sequence[Vector | None] | NDArray[Any] | None, count: int
    ) -> list[NDArray[np.float32] | None]:
        if vectors is None:
            return [None] * count
        if not hasattr(vectors, "__len__"):
            raise TypeError(f"vectors must be a list or an array, one a memory, got {type(vectors).__name__}")
        if len(vectors) != count:
            raise ValueError(
                f"{len(vectors)} vectors were given for {count} memories; give one each, None where there is none"
            )
        dim = self._store.dim
        checked: list[NDArray[np.float32] | None] = []
        for i, vector in enumerate(vectors):
            checked.append(None if vector is None else as_vector(vector, dim, f"vector {i} of the batch"))
            if dim is None and vector is not None:
                dim = len(vector)
        return checked

    def update(self, id: str, *, namespace: str = "default", vector: Vector | None = None, **fields: Any) -> Memory:
        """Change fields of a memory; return it as it is now. It counts as stored anew.

        A memory whose text stays keeps its vector; one whose text changes gets the embedder's, or `vector`.

        Raises:
            NotFoundError: there is none with this id.
            TypeError, ValueError: a field that does not exist, or a value that is not allowed.
        """
        self._store.check_writable("update")
        allowed = [name for name in FIELDS if name not in ("id", "namespace")]
        unknown = sorted(set(fields) - set(allowed))
        if unknown:
            raise TypeError(f"update cannot set {unknown[0]!r:.80}; it sets {', '.join(allowed)}")
        with self._store.writing():
            key, memory = self._found(id, namespace)
            changed = replace(memory, **fields)
            kept = self._store.ledger.vector(key) if vector is None and changed.text == memory.text else None
            self.add(changed, vector=vector if kept is None else np.frombuffer(kept, dtype=np.float32))
        return changed

    def delete(self, ids: str | Iterable[str], *, namespace: str = "default") -> int:
        """Forget memories by id; return how many there were. Unknown ids are passed over."""
        self._store.check_writable("delete")
        if not isinstance(ids, Iterable):
            raise TypeError(f"delete takes an id or a list of ids, got {type(ids).__name__}")
        wanted = dict.fromkeys(checked_name(memory_id, "id") for memory_id in ([ids] if isinstance(ids, str) else ids))
        with self._store.writing():
            found = [self._store.ledger.find(checked_name(namespace, "namespace"), memory_id) for memory_id in wanted]
            return self._store.end([item[0] for item in found if item is not None])

    def forget(self, where: Where, *, namespace: str = "default", dry_run: bool = False) -> int:
        """Forget every memory of a namespace that a filter holds for; return how many (would) go. `{}` is all."""
        if not isinstance(where, Mapping):
            raise TypeError(f"forget takes a filter, got {type(where).__name__}; {{}} forgets the whole namespace")
        checked_name(namespace, "namespace")
        if dry_run:
            return self.count(namespace=namespace, where=where)
        self._store.check_writable("forget")
        with self._store.writing():
            condition = _in_namespace(namespace, where)
            return self._store.end(self._store.ledger.select_keys(condition.sql, condition.parameters))

    # -------------------------------------------------------------------------------------------------- reading

    def get(self, id: str, *, namespace: str = "default") -> Memory:
        """Return a memory by id.

        Raises:
            NotFoundError: there is none.
        """
        self._store.check_usable()
        return self._found(id, namespace)[1]

    def _found(self, id: str, namespace: str) -> tuple[int, Memory]:
        found = self._store.ledger.find(checked_name(namespace, "namespace"), checked_name(id, "id"))
        if found is None:
            raise NotFoundError(id, namespace)
        return found

    def count(self, *, namespace: str | None = "default", where: Where | None = None) -> int:
        """Return how many memories are stored, in one namespace or (None) in all; expired ones too, until `compact`."""
        self._store.check_usable()
        condition = _in_namespace(namespace, where)
        return self._store.ledger.count(condition.sql, condition.parameters)

    def list(
        self,
        *,
        namespace: str | None = "default",
        where: Where | None = None,
        order: str = "stored",
        limit: int | None = None,
    ) -> _List[Memory]:
        """Return memories as they are stored, expired ones too.

        Args:
            namespace: one, or None for all.
            where: a filter.
            order: "stored" (oldest first), "newest" or "oldest" (by timestamp; equal ones as stored).
            limit: at most so many.
        """
        self._store.check_usable()
        orders = {
            "stored": "m.key & 1099511627775",
            "newest": "m.timestamp_us DESC, m.key & 1099511627775",
            "oldest": "m.timestamp_us, m.key & 1099511627775",
        }
        if order not in orders:
            raise ValueError(f"order is {order!r:.80}; it must be one of {', '.join(orders)}")
        condition = _in_namespace(namespace, where)
        rows = self._store.ledger.select(
            condition.sql,
            condition.parameters,
            order=orders[order],
            limit=-1 if limit is None else min(_checked_count(limit, "limit"), 2**63 - 1),
        )
        return [memory for _, memory in rows]

    def namespaces(self) -> dict[str, int]:
        """Return the namespaces that hold memories, with how many, by name."""
        self._store.check_usable()
        return dict(self._store.ledger.namespaces())

    # ------------------------------------------------------------------------------------------------ searching

    def search(
        self,
        query: str,
        *,
        namespace: str = "default",
        k: int = 5,
        where: Where | None = None,
        now: TimeLike | None = None,
        query_vector: Vector | None = None,
        budget_ms: float | None = None,
        preset: str | None = None,
        config: SearchConfig | None = None,
        **overrides: Any,
    ) -> Hits:
        """Return the k memories that belong in the answer, best first.

        Args:
            query: anything at all; its words are never read as a query language.
            namespace: whose memories.
            k: how many, from 0.
            where: only memories that this filter holds for (`filters.compile_where`).
            now: the moment that recency and expiry count from; give it to replay an answer.
            query_vector: shape (dim,), instead of the embedder's.
            budget_ms: reranking stops in time and says in `.degraded` what it left.
            preset: settings by name: "fast", "balanced", "best", "keyword", "dense", "late".
            config: settings, instead of the engine's.
            **overrides: single settings of `SearchConfig`, e.g. recency_weight=0, diversity="none".

        Returns:
            Hits: a sequence of at most k `Hit`s.

        Raises:
            TypeError, ValueError: an argument, field, operator or setting that does not exist or is out of range.
            DimensionError: the query vector's length is not the store's.
        """
        self._store.check_usable()
        _checked_query(query)
        settings = self._settings(
            namespace=namespace,
            k=k,
            where=where,
            now=now,
            query_vector=query_vector,
            budget_ms=budget_ms,
            preset=preset,
            config=config,
            **overrides,
        )
        return run_search(self._store, query, settings)

    def search_many(self, queries: Iterable[str], **settings: Any) -> _List[Hits]:
        """Answer several queries with the same settings, all as of the same moment; one `Hits` each, in order.

        A cross-encoder gets the candidates of all of them at once. With `budget_ms` each query has its own, one by one.
        """
        self._store.check_usable()
        if isinstance(queries, str):
            raise TypeError("search_many takes a list of queries, got one text; use search for one")
        texts = [_checked_query(query) for query in queries]
        return run_search_many(self._store, texts, self._settings(**settings))

    def _settings(
        self,
        *,
        namespace: str = "default",
        k: int = 5,
        where: Where | None = None,
        now: TimeLike | None = None,
        query_vector: Vector | None = None,
        budget_ms: float | None = None,
        preset: str | None = None,
        config: SearchConfig | None = None,
        **overrides: Any,
    ) -> Settings:
        """Check the arguments of a search."""
        if preset is not None and config is not None:
            raise ValueError("give a preset or a config, not both; single settings can be added to either")
        base = preset_named(preset) if preset is not None else self.config if config is None else config
        if not isinstance(base, SearchConfig):
            raise TypeError(f"config must be a SearchConfig, got {type(base).__name__}")
        if budget_ms is not None and (
            isinstance(budget_ms, bool) or not isinstance(budget_ms, int | float) or not budget_ms >= 0
        ):
            raise ValueError(f"budget_ms is {budget_ms!r:.80}; it must be milliseconds from 0")
        if budget_ms is not None:
            budget_ms = min(budget_ms, _LONGEST_BUDGET_MS)
        return Settings(
            namespace=checked_name(namespace, "namespace"),
            k=_checked_count(k, "k"),
            where=where,
            now_s=_seconds(now),
            query_vector=None if query_vector is None else as_vector(query_vector, self._store.dim, "the query vector"),
            budget_ms=budget_ms,
            config=base.with_overrides(overrides),
        )

    def build_context(
        self,
        messages: Sequence[Any],
        *,
        namespace: str = "default",
        where: Where | None = None,
        now: TimeLike | None = None,
        config: ContextConfig | None = None,
        count_tokens: Callable[[str], int] | None = None,
        preset: str | None = None,
        **overrides: Any,
    ) -> Context:
        """Return what the agent should be reminded of before it answers, as text for its prompt.

        The query comes from the last messages, without fillers and without a topic that was left. Archival memories
        have slots of their own, filled in turn with those nearest to the query and those learnt last; the rest are
        search hits.

        Args:
            messages: the conversation, oldest first: mappings or objects with role and content, or texts.
            namespace, where, now, preset, **overrides: see `search`.
            config: slots, token budget, order and format; each can be given by name too (token_budget=400).
            count_tokens: counts the tokens of a text, instead of an estimate.
        """
        self._store.check_usable()
        if config is not None and not isinstance(config, ContextConfig):
            raise TypeError(
                f"config must be a ContextConfig, got {type(config).__name__}; settings of the search go by name"
            )
        if "k" in overrides:
            raise TypeError("build_context takes no k; max_memories says how many memories the text may hold")
        own = {name: overrides.pop(name) for name in _CONTEXT_SETTINGS & overrides.keys()}
        config = replace(config or ContextConfig(), **own)
        moment = utc_now() if now is None else to_datetime(now, "now")
        query = build_query(messages)
        settings = {"namespace": namespace, "now": moment, "preset": preset, **overrides}
        # Archival memories among the hits move to their own slots: as many more are asked for.
        hits = self.search(query.text, k=config.max_memories + config.archival_slots, where=where, **settings)
        archival = self._archival(query.text, config.archival_slots, where, settings)
        return replace(
            render_context(hits.memories, archival, now=moment, config=config, count_tokens=count_tokens), query=query
        )

    def _archival(self, text: str, slots: int, where: Where | None, settings: dict[str, Any]) -> _List[Memory]:
        if slots == 0:
            return []
        alive = {"or": [{"expires_at": None}, {"expires_at": {"gt": settings["now"]}}]}
        kind: dict[str, Any] = {"and": [{"kind": "archival"}, alive, *([] if where is None else [where])]}
        nearest = self.search(text, k=slots, where=kind, **settings).memories
        latest = self.list(namespace=settings["namespace"], where=kind, order="newest", limit=slots)
        in_turn = [memory for pair in zip(nearest, latest, strict=False) for memory in pair]
        chosen = {memory.id: memory for memory in [*in_turn, *nearest, *latest]}
        return list(chosen.values())[:slots]

    # ----------------------------------------------------------------------------------------------- upkeep

    def flush(self) -> None:
        """Return when every index that is due is built and saved, and the ledger's log is in its file."""
        self._store.check_usable()
        self._store.settle_indexes()
        self._store.ledger.checkpoint()

    def compact(self, *, now: TimeLike | None = None) -> int:
        """Remove expired memories and give free space back; return how many were removed."""
        self._store.check_writable("compact")
        return self._store.compact(_seconds(now))

    def reindex(
        self, embedder: Embedder | str | None = None, *, progress: Callable[[int, int], None] | None = None
    ) -> int:
        """Embed every memory anew, and use that model from here on; return how many memories there are.

        Searches and adds go on meanwhile, with the old vectors; the new ones take their place all at once. A run that
        was stopped goes on where it was. Vectors that came with their memories are replaced as well.

        Args:
            embedder: a name or an object, see `open`; None takes the one that the engine was opened with.
            progress: called with (memories done, memories in all) after each batch.

        Raises:
            ModelError: there is no embedder, or it cannot be used.
            StoreError: the store could not be written; what was done is kept for the next run.
        """
        self._store.check_writable("reindex")
        companion = self._store.companion
        chosen: Embedder | None
        if isinstance(embedder, str):
            try:
                chosen = load_embedder(embedder, device=self._store.device)
            except ModelFilesError as error:
                raise ModelError(f"the embedder {embedder!r:.80} cannot be used: {error}") from error
            companion = companion or _companion(chosen)
        else:
            chosen = self._store.embedder if embedder is None else embedder
        if chosen is None:
            raise ModelError("there is nothing to embed with: name an embedder, reindex('e5-static-256')")
        if not isinstance(chosen, Embedder):
            raise TypeError(
                f"embedder must be a name or an object with name, dim, embed and embed_query, got {chosen!r:.80}"
            )
        _check_embedder(chosen)
        table = chosen if isinstance(chosen, TokenTable) else companion
        if not self._store.reindexing.acquire(blocking=False):
            raise StoreError("a reindex of this store is running in another thread; wait for it to end")
        try:
            return run_reindex(self._store, chosen, table, progress)
        finally:
            self._store.reindexing.release()

    def snapshot(self, dest: str | os.PathLike[str]) -> Path:
        """Copy the store into a new folder, consistently, while reading and writing go on; return the folder.

        Raises:
            ValueError: the folder exists and is not empty.
            StoreError: it could not be written.
        """
        self._store.check_usable()
        folder = Path(dest)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder} exists and is not empty; name a new folder for the snapshot")
        partial: Path | None = None
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            self._store.ledger.copy_to(partial)
            partial.chmod(0o777 & ~_umask())
            partial.replace(folder)
        except OSError as error:
            raise StoreError(
                f"the snapshot to {folder} failed: {error}; choose a folder that can be written"
            ) from error
        finally:
            if partial is not None and partial.exists():
                shutil.rmtree(partial, ignore_errors=True)
        flush_to_disk(folder.parent)
        return folder

    def verify(self) -> _List[str]:
        """Return what is wrong with the store, one line each; empty when every memory is as it was written."""
        self._store.check_usable()
        return self._store.ledger.damage()

    def stats(self) -> dict[str, Any]:
        """Return what the store is and holds: counts, model, sizes."""
        self._store.check_usable()
        store = self._store
        loaded, loaded_bytes = store.loaded_bytes()
        files = [] if store.folder is None else [path for path in store.folder.rglob("*") if path.is_file()]
        return {
            "path": None if store.folder is None else str(store.folder),
            "memories": self.count(namespace=None),
            "namespaces": len(store.ledger.namespaces()),
            "kinds": {kind: self.count(namespace=None, where={"kind": kind}) for kind in KINDS},
            "embedder": store.model or (None if store.embedder is None else store.embedder.name),
            "dim": store.dim,
            "mismatch": None if store.mismatch is None else str(store.mismatch),
            "sequence": store.ledger.manifest()["sequence"],
            "disk_bytes": sum(path.stat().st_size for path in files),
            "loaded_namespaces": loaded,
            "loaded_bytes": loaded_bytes,
            "index_error": None if store.keeper.last_error is None else str(store.keeper.last_error),
        }

    def close(self) -> None:
        """Close the store. Using the engine afterwards is a ClosedError; closing twice is fine."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<jiyi.Engine on {self._store.folder or 'memory'}>"

    # ------------------------------------------------------------------------------------------------ asyncio

    async def aadd(self, memory: MemoryLike, **fields: Any) -> str:
        """`add`, without blocking the event loop."""
        return await asyncio.to_thread(self.add, memory, **fields)

    async def aadd_many(self, memories: Iterable[MemoryLike], **settings: Any) -> _List[str]:
        """`add_many`, without blocking the event loop."""
        return await asyncio.to_thread(self.add_many, memories, **settings)

    async def asearch(self, query: str, **settings: Any) -> Hits:
        """`search`, without blocking the event loop."""
        return await asyncio.to_thread(self.search, query, **settings)

    async def abuild_context(self, messages: Sequence[Any], **settings: Any) -> Context:
        """`build_context`, without blocking the event loop."""
        return await asyncio.to_thread(self.build_context, messages, **settings)


def _in_namespace(namespace: str | None, where: Where | None) -> Condition:
    condition = compile_where(where)
    if namespace is None:
        return condition
    checked_name(namespace, "namespace")
    return Condition(f"n.name = ? AND ({condition.sql})", (namespace, *condition.parameters))


def _umask() -> int:
    """What new files are not allowed, as this process has it; there is no way to read it without setting it."""
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


def _checked_count(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{what} must be a whole number, got {value!r:.80}")
    if value < 0:
        raise ValueError(f"{what} is {value}; it must be at least 0")
    return int(value)


def _checked_query(query: Any) -> str:
    if not isinstance(query, str):
        raise TypeError(f"the query must be text, got {type(query).__name__}")
    return query


def _seconds(now: TimeLike | None) -> float:
    return to_seconds(utc_now() if now is None else to_datetime(now, "now"))
