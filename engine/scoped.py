"""A handle to one namespace: the calls of an `Engine`, bound, so that nothing reaches another's memories.

Made for what serves several users: give the code that works for one of them this, and not the engine. There is no
argument for a namespace, no prefix and no list; a memory that says it belongs elsewhere is refused; what concerns the
whole store (compacting, embedding anew, snapshots, verifying, closing) is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from jiyi.asynchronous import Asynchronous
from jiyi.memory import KINDS, Memory, MemoryLike, as_memory, checked_name
from jiyi.query_record import QueryRecord
from jiyi.quoted import quoted
from jiyi.spaces import exact_namespace

if TYPE_CHECKING:
    from jiyi.budget import TokenCounter
    from jiyi.config import SearchConfig
    from jiyi.consolidate import Consolidated
    from jiyi.context import Context, ContextConfig
    from jiyi.distill import Distilled, Extractor
    from jiyi.engine import Engine, Vector
    from jiyi.facts import Neighbor
    from jiyi.filters import Where
    from jiyi.hits import Hits
    from jiyi.models.protocols import CrossEncoder
    from jiyi.replay import Replay
    from jiyi.retention import Policy
    from jiyi.timestamps import TimeLike

# Inside the class, `list` is a method.
_List = list

#: What would name a namespace, or change what holds for all of them.
_NOT_HERE: Final = ("namespace", "namespaces", "among")


class ScopedEngine(Asynchronous):
    """One namespace of an engine. Made by `Engine.scoped`; as safe to share between threads as the engine.

    Every call is the engine's of the same name, without `namespace`; see there. It holds for as long as the engine is
    open, and closes nothing. It keeps honest code from reaching too far; what shares the process can always get at the
    process's memory, so code that must not be trusted at all belongs into a process of its own.
    """

    __slots__ = ("_engine", "_namespace", "_pattern")

    def __init__(self, engine: Engine, namespace: str) -> None:
        self._engine = engine
        self._namespace = checked_name(namespace, "namespace")
        # For calls that also take prefixes: who calls himself "*" is then no more than that.
        self._pattern = exact_namespace(namespace)

    @property
    def namespace(self) -> str:
        """Name of the namespace."""
        return self._namespace

    def __repr__(self) -> str:
        return f"<jiyi.ScopedEngine of {quoted(self._namespace)}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScopedEngine) and self._engine is other._engine and self._namespace == other._namespace

    def __hash__(self) -> int:
        return hash((id(self._engine), self._namespace))

    # -------------------------------------------------------------------------------------------------- writing

    def add(
        self,
        memory: MemoryLike,
        *,
        id: str | None = None,
        kind: str | None = None,
        timestamp: TimeLike | None = None,
        session: str | None = None,
        speaker: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_at: TimeLike | None = None,
        sources: Iterable[str] | None = None,
        vector: Vector | None = None,
    ) -> str:
        """`Engine.add`. A `Memory` or mapping may say no other namespace than this one.

        Raises:
            ValueError: it says another one. A `Memory` of "default" counts as one that was made without.
        """
        return self._engine.add(
            memory if isinstance(memory, str) else self._own(memory),
            id=id,
            namespace=self._namespace,
            kind=kind,
            timestamp=timestamp,
            session=session,
            speaker=speaker,
            metadata=metadata,
            expires_at=expires_at,
            sources=sources,
            vector=vector,
        )

    def add_many(
        self,
        memories: Iterable[MemoryLike],
        *,
        kind: str | None = None,
        vectors: Sequence[Vector | None] | Any = None,
    ) -> _List[str]:
        """`Engine.add_many`. None of them may say another namespace than this one; nothing is stored if one does."""
        if isinstance(memories, str | Mapping | Memory) or not isinstance(memories, Iterable):
            raise TypeError(f"add_many takes a list of memories, got one {type(memories).__name__}; use add for one")
        own: _List[Memory] = []
        for i, item in enumerate(memories):
            try:
                own.append(self._own(item, kind))
            except (TypeError, ValueError) as error:
                plain = TypeError if isinstance(error, TypeError) else ValueError  # subclasses may take more
                raise plain(f"memory {i} of the batch: {error}; nothing of the batch was stored") from None
        return self._engine.add_many(own, vectors=vectors)

    def add_messages(
        self,
        messages: Iterable[Any],
        *,
        session: str,
        roles: Iterable[str] = ("user", "assistant"),
        metadata: Mapping[str, Any] | None = None,
        now: TimeLike | None = None,
    ) -> _List[str]:
        """`Engine.add_messages`."""
        return self._engine.add_messages(
            messages, session=session, namespace=self._namespace, roles=roles, metadata=metadata, now=now
        )

    def update(self, id: str, *, vector: Vector | None = None, **fields: Any) -> Memory:
        """`Engine.update`."""
        self._refuse(fields, "update")
        return self._engine.update(id, namespace=self._namespace, vector=vector, **fields)

    def delete(self, ids: str | Iterable[str]) -> int:
        """`Engine.delete`."""
        return self._engine.delete(ids, namespace=self._namespace)

    def forget(self, where: Where, *, dry_run: bool = False) -> int:
        """`Engine.forget`."""
        return self._engine.forget(where, namespace=self._namespace, dry_run=dry_run)

    def erase(self, ids: str | Iterable[str] | None = None, *, where: Where | None = None, wait_s: float = 30.0) -> int:
        """`Engine.erase`; `where={}` erases the whole namespace, its name too."""
        return self._engine.erase(ids, where=where, namespace=self._namespace, wait_s=wait_s)

    def retain(
        self, policy: Policy | None = None, *, now: TimeLike | None = None, dry_run: bool = False
    ) -> dict[str, int]:
        """`Engine.retain`."""
        return self._engine.retain(policy, namespace=self._namespace, now=now, dry_run=dry_run)

    def reinforce(self, ids: str | Iterable[str], *, now: TimeLike | None = None) -> int:
        """`Engine.reinforce`."""
        return self._engine.reinforce(ids, namespace=self._namespace, now=now)

    def outcome(self, ids: str | Iterable[str], *, success: bool, now: TimeLike | None = None) -> int:
        """`Engine.outcome`."""
        return self._engine.outcome(ids, success=success, namespace=self._namespace, now=now)

    def distill(
        self,
        where: Where | None = None,
        *,
        extractor: Extractor,
        batch: str | int = "session",
        name: str | None = None,
        again: bool = False,
        max_results: int = 1_000,
        progress: Callable[[int, int], None] | None = None,
    ) -> Distilled:
        """`Engine.distill`."""
        return self._engine.distill(
            where,
            extractor=extractor,
            namespace=self._namespace,
            batch=batch,
            name=name,
            again=again,
            max_results=max_results,
            progress=progress,
        )

    def consolidate(
        self, where: Where | None = None, *, jaccard: float = 0.8, cosine: float = 0.95, dry_run: bool = False
    ) -> Consolidated:
        """`Engine.consolidate`."""
        return self._engine.consolidate(
            where, namespace=self._namespace, jaccard=jaccard, cosine=cosine, dry_run=dry_run
        )

    def unconsolidate(self, ids: str | Iterable[str]) -> int:
        """`Engine.unconsolidate`."""
        return self._engine.unconsolidate(ids, namespace=self._namespace)

    # -------------------------------------------------------------------------------------------------- reading

    def get(self, id: str) -> Memory:
        """`Engine.get`. The id of another namespace's memory is unknown here, like any other that is not there."""
        return self._engine.get(id, namespace=self._namespace)

    def count(self, *, where: Where | None = None) -> int:
        """`Engine.count`."""
        return self._engine.count(namespace=self._pattern, where=where)

    def list(self, *, where: Where | None = None, order: str = "stored", limit: int | None = None) -> _List[Memory]:
        """`Engine.list`."""
        return self._engine.list(namespace=self._pattern, where=where, order=order, limit=limit)

    def facts(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        as_of: TimeLike | None = None,
        history: bool = False,
        limit: int | None = None,
        now: TimeLike | None = None,
    ) -> _List[Memory]:
        """`Engine.facts`."""
        return self._engine.facts(
            subject=subject,
            predicate=predicate,
            object=object,
            namespace=self._namespace,
            as_of=as_of,
            history=history,
            limit=limit,
            now=now,
        )

    def neighbors(
        self,
        entity: str,
        *,
        hops: int = 1,
        as_of: TimeLike | None = None,
        limit: int | None = 100,
        now: TimeLike | None = None,
    ) -> _List[Neighbor]:
        """`Engine.neighbors`."""
        return self._engine.neighbors(entity, hops=hops, namespace=self._namespace, as_of=as_of, limit=limit, now=now)

    # ------------------------------------------------------------------------------------------------ searching

    def search(
        self,
        query: str,
        *,
        k: int = 5,
        where: Where | None = None,
        now: TimeLike | None = None,
        as_of: TimeLike | None = None,
        query_vector: Vector | None = None,
        budget_ms: float | None = None,
        neighbors: int = 0,
        preset: str | None = None,
        config: SearchConfig | None = None,
        **overrides: Any,
    ) -> Hits:
        """`Engine.search`."""
        self._refuse(overrides, "search")
        return self._engine.search(
            query,
            namespace=self._pattern,
            k=k,
            where=where,
            now=now,
            as_of=as_of,
            query_vector=query_vector,
            budget_ms=budget_ms,
            neighbors=neighbors,
            preset=preset,
            config=config,
            **overrides,
        )

    def search_many(self, queries: Iterable[str], **settings: Any) -> _List[Hits]:
        """`Engine.search_many`."""
        self._refuse(settings, "search_many")
        return self._engine.search_many(queries, namespace=self._pattern, **settings)

    def build_context(
        self,
        messages: Sequence[Any],
        *,
        where: Where | None = None,
        now: TimeLike | None = None,
        config: ContextConfig | None = None,
        count_tokens: TokenCounter = None,
        preset: str | None = None,
        reinforce: bool = False,
        **overrides: Any,
    ) -> Context:
        """`Engine.build_context`."""
        self._refuse(overrides, "build_context")
        return self._engine.build_context(
            messages,
            namespace=self._pattern,
            where=where,
            now=now,
            config=config,
            count_tokens=count_tokens,
            preset=preset,
            reinforce=reinforce,
            **overrides,
        )

    def replay(
        self, record: QueryRecord | Mapping[str, Any], *, scorers: Mapping[str, CrossEncoder] | None = None
    ) -> Replay:
        """`Engine.replay`, of a query that was asked of this namespace alone.

        Raises:
            ValueError: the record is of another namespace, or of several.
        """
        read = record if isinstance(record, QueryRecord) else QueryRecord.from_dict(record)
        asked = read.namespace if isinstance(read.namespace, str) else tuple(read.namespace)
        only = self._namespace
        if asked not in (self._pattern, (self._pattern,)) or not {*read.generation, *read.homes} <= {only}:
            raise ValueError(
                f"the record was asked of {quoted(asked)}, and this handle reaches {quoted(only)} alone; "
                "replay it with the engine"
            )
        return self._engine.replay(read, scorers=scorers)

    def stats(self) -> dict[str, Any]:
        """Return what the namespace holds: how many memories, in all and by kind. Nothing of the store's."""
        engine = self._engine
        by_kind = {kind: engine.count(namespace=self._pattern, where={"kind": kind}) for kind in KINDS}
        return {"namespace": self._namespace, "memories": sum(by_kind.values()), "kinds": by_kind}

    # ------------------------------------------------------------------------------------------------- asyncio

    async def adistill(
        self,
        where: Where | None = None,
        *,
        extractor: Extractor,
        batch: str | int = "session",
        name: str | None = None,
        again: bool = False,
        max_results: int = 1_000,
        progress: Callable[[int, int], None] | None = None,
    ) -> Distilled:
        """`Engine.adistill`."""
        return await self._engine.adistill(
            where,
            extractor=extractor,
            namespace=self._namespace,
            batch=batch,
            name=name,
            again=again,
            max_results=max_results,
            progress=progress,
        )

    # ------------------------------------------------------------------------------------------------- the wall

    def _own(self, item: MemoryLike, kind: str | None = None) -> Memory:
        """A memory of this namespace, or a ValueError that names the other one."""
        memory = as_memory(item, namespace=self._namespace, kind=kind)
        if memory.namespace == self._namespace:
            return memory
        if isinstance(item, Memory) and memory.namespace == "default":  # made without a namespace
            return replace(memory, namespace=self._namespace)
        raise ValueError(
            f"it is of the namespace {quoted(memory.namespace)}, and this handle reaches {quoted(self._namespace)} "
            "alone; leave its namespace out, or use the engine"
        )

    def _refuse(self, given: Mapping[str, Any], call: str) -> None:
        for name in _NOT_HERE:
            if name in given:
                raise TypeError(f"{call} takes no {name} here: this handle reaches {quoted(self._namespace)} alone")


__all__ = ["ScopedEngine"]
