"""The engine: everything a user calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from jiyi.analysis import as_vector
from jiyi.around import checked_neighbors, turns_around_memories
from jiyi.asynchronous import Asynchronous
from jiyi.budget import TokenCounter
from jiyi.candidates import Degraded
from jiyi.config import SearchConfig, preset_named
from jiyi.consolidate import Consolidated
from jiyi.consolidate import consolidate as run_consolidate
from jiyi.consolidate import unconsolidate as run_unconsolidate
from jiyi.context import Context, ContextConfig, render_context
from jiyi.conversation import add_conversation, checked_roles
from jiyi.disk import folder_bytes
from jiyi.distill import Distillation, Distilled, Extractor, extractor_name, is_async
from jiyi.distill import adistill as run_adistill
from jiyi.distill import distill as run_distill
from jiyi.errors import NotFoundError
from jiyi.facts import Answer, FactQuery, Neighbor, checked_entity, checked_hops, find_facts, find_neighbors
from jiyi.filters import Condition, Where, compile_where, parse_where
from jiyi.hits import Hits
from jiyi.memory import FIELDS, KINDS, Memory, MemoryLike, as_memory, checked_name, composed_text
from jiyi.models.protocols import CrossEncoder, Embedder
from jiyi.query import build_query
from jiyi.query_record import QueryRecord
from jiyi.quoted import quoted
from jiyi.reindex import ReindexJob
from jiyi.reindex import drop_kept as run_drop_kept
from jiyi.reindex import rollback as run_rollback
from jiyi.reindex_events import Event, Progressed, ReindexReport
from jiyi.relatedness import relatedness_of
from jiyi.replay import Replay
from jiyi.replay import replay as run_replay
from jiyi.retention import Policy, Retention, checked_policy, due, leaving
from jiyi.scoped import ScopedEngine
from jiyi.search import Settings
from jiyi.search import search as run_search
from jiyi.search import search_many as run_search_many
from jiyi.slots import SlotQuery, fill_slots
from jiyi.snapshots import snapshot as take_snapshot
from jiyi.spaces import checked_namespaces, condition_in, names_in, only_name
from jiyi.store import Store
from jiyi.timestamps import TimeLike, to_datetime, to_microseconds, to_seconds, utc_now
from jiyi.topic import Related
from jiyi.turns import turn_of

Vector = Sequence[float] | NDArray[Any]
NamespaceLike = str | Sequence[str]

# Inside the class, `list` is a method.
_List = list

_LONGEST_BUDGET_MS: Final = 1e12  # thirty years: any more is no limit either
_LONGEST_WAIT_S: Final = 86_400.0
_MOST_HITS: Final = 2**40  # as many as a store can hold
_CONTEXT_SETTINGS: Final = frozenset(setting.name for setting in fields(ContextConfig))


class Engine(Asynchronous):
    """A memory for agents. Made by `jiyi.open`; a context manager; safe to share between threads.

    Every call works in one namespace, "default" unless said; namespaces are walls.
    """

    def __init__(self, store: Store, config: SearchConfig, retention: Mapping[str, Retention] | None = None) -> None:
        self._store = store
        self.config = config
        self.retention = dict(retention or {})
        self._relatedness: tuple[object, Related] | None = None

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
            id: an id that exists in the namespace is replaced, and what was merged into that (`consolidate`) comes
                back; a new time-ordered one when left out.
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
            memory = Memory(text=memory, **given) if given else Memory.of_text(memory)
        elif given:
            memory = replace(as_memory(memory), **given)
        else:
            memory = as_memory(memory)
        self._store.check_writable("add")
        self._store.write([memory], self._checked_vectors(None if vector is None else [vector], 1))
        return memory.id

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
                plain = TypeError if isinstance(error, TypeError) else ValueError  # subclasses may take more
                raise plain(f"memory {i} of the batch: {error}; nothing of the batch was stored") from None
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

        A memory whose text stays keeps its vector; one whose text changes gets the embedder's, or `vector`. The text of
        a fact or a procedure that was made of its fields changes with them. What was merged into it stays behind it.

        Raises:
            NotFoundError: there is none with this id.
            TypeError, ValueError: a field that does not exist, or a value that is not allowed.
        """
        self._store.check_writable("update")
        allowed = [name for name in FIELDS if name not in ("id", "namespace")]
        unknown = sorted(set(fields) - set(allowed))
        if unknown:
            raise TypeError(f"update cannot set {quoted(unknown[0])}; it sets {', '.join(allowed)}")
        with self._store.writing():
            key, memory = self._found(id, namespace)
            changed = replace(memory, **fields)
            if "text" not in fields and memory.text == composed_text(memory.to_dict()):
                changed = replace(changed, text=composed_text(changed.to_dict()) or memory.text)
            kept = self._store.ledger.vector(key) if vector is None and changed.text == memory.text else None
            given = vector if kept is None else np.frombuffer(kept, dtype=np.float32)
            # It has its usage, and stands for what it stood for.
            self._store.write([changed], self._checked_vectors([given], 1), inherit_usage=False, keep_merged=True)
        return changed

    def delete(self, ids: str | Iterable[str], *, namespace: str = "default") -> int:
        """Forget memories by id; return how many there were. Unknown ids are passed over."""
        self._store.check_writable("delete")
        wanted = _checked_ids(ids, "delete")
        with self._store.writing():
            condition = _in_namespace(checked_name(namespace, "namespace"), {"id": {"in": [*wanted]}})
            # By key alone: what is damaged can be deleted too.
            return self._store.end(self._store.ledger.select_keys(condition.sql, condition.parameters))

    def forget(self, where: Where, *, namespace: str = "default", dry_run: bool = False) -> int:
        """Forget every memory of a namespace that a filter holds for; return how many (would) go. `{}` is all.

        What is merged into another memory (`consolidate`) is not looked at: it goes, and only goes, with that one.
        """
        if not isinstance(where, Mapping):
            raise TypeError(f"forget takes a filter, got {type(where).__name__}; {{}} forgets the whole namespace")
        self._store.check_usable()
        condition = _in_namespace(checked_name(namespace, "namespace"), where)
        self._refuse_prefix(namespace, "forget")
        if dry_run:
            return self._store.ledger.count(condition.sql, condition.parameters)
        self._store.check_writable("forget")
        with self._store.writing():
            return self._store.end(self._store.ledger.select_keys(condition.sql, condition.parameters))

    def _refuse_prefix(self, namespace: str, call: str) -> None:
        if namespace.endswith("*") and self._store.ledger.namespace_number(namespace) is None:
            raise ValueError(
                f"there is no namespace {quoted(namespace)}, and {call} takes no prefix: it works in one, named in full"
            )

    def erase(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        where: Where | None = None,
        namespace: str = "default",
        wait_s: float = 30.0,
    ) -> int:
        """Delete memories so that nothing of them is left in the store's files; return how many there were.

        When this returns, no file of the folder holds their text, fields, metadata, terms or vectors, neither as they
        were last nor as they were before an update; a process that dies on the way leaves a note, and the next that
        opens the store for writing goes on. A namespace that is left empty loses its name as well. It rewrites the
        whole ledger and has the namespace's indexes built anew: delete what should go and erase now and then
        (`erase([])` does away with the bytes of what was deleted before).

        Not reached: what lies outside the store's folder (snapshots, exports, logs of yours), blocks that the file
        system or the disk has given up and not overwritten, and other memories that say the same (what was distilled
        of it) or name its id (`sources`). What is merged into another memory (`consolidate`) is erased with that one,
        and by itself it cannot be.

        Args:
            ids: one, or several; unknown ones are passed over.
            where: a filter, instead of ids; `{}` is the whole namespace.
            namespace: theirs.
            wait_s: seconds to wait, from 0, for readers that began before.

        Raises:
            TypeError, ValueError: neither or both of ids and where, or one of them is not as it must be; or a memory is
                merged into another one, which stays. Nothing was erased.
            StoreError: the memories are deleted, and a reader that is still at work keeps their bytes in the files.
                Erase again when it has ended; compacting and opening go on with it too.
        """
        if (ids is None) == (where is None):
            raise TypeError("erase takes ids or where, one of them; where={} erases the whole namespace")
        if where is not None and not isinstance(where, Mapping):
            raise TypeError(f"where must be a filter, got {type(where).__name__}")
        if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 <= wait_s <= _LONGEST_WAIT_S:
            raise ValueError(f"wait_s is {quoted(wait_s)}; it must be seconds from 0 to {_LONGEST_WAIT_S:.0f}")
        named = [] if ids is None else [*_checked_ids(ids, "erase")]
        condition = _in_namespace(checked_name(namespace, "namespace"), where if ids is None else {"id": {"in": named}})
        self._store.check_writable("erase")
        self._refuse_prefix(namespace, "erase")
        test = None if where is None else parse_where(where).test
        return self._store.erase(namespace, condition, named, wait_s, test)

    def delete_namespace(self, namespace: str, *, wait_s: float = 30.0) -> int:
        """Erase a namespace: its memories, its name, its indexes; return how many memories there were.

        It is `erase(where={})`, with what that says: no file of the folder holds a byte of it when this returns. One
        that holds nothing is no error.

        Args:
            namespace: in full; a prefix is refused.
            wait_s: see `erase`.

        Raises:
            ValueError, StoreError: see `erase`.
        """
        return self.erase(where={}, namespace=namespace, wait_s=wait_s)

    def retain(
        self,
        policy: Policy | None = None,
        *,
        namespace: str | None = None,
        now: TimeLike | None = None,
        dry_run: bool = False,
    ) -> dict[str, int]:
        """Forget what a retention policy lets go of; return how many (would) go, by kind, for every kind it names.

        First what is older than `max_age_s`, then, of more than `max_count`, what is least useful
        (`retention.usefulness`: recency by the kind's curve, raised by uses and by how procedures went). Expired
        memories go before all others, superseded facts before current ones, of equals the older before the younger. A
        fact that goes takes those along that it superseded.

        Args:
            policy: by kind, a `Retention` or a mapping of its fields; the engine's own when left out.
            namespace: one, or None for all; limits count in each by itself.
            now: the moment that ages count from; the present when left out.
            dry_run: only count.

        Raises:
            TypeError, ValueError: the policy is not as it must be; nothing has changed.
        """
        self._store.check_usable()
        policy = self.retention if policy is None else checked_policy(policy)
        if namespace is not None:
            self._refuse_prefix(checked_name(namespace, "namespace"), "retain")
        if dry_run:
            keys = due(self._store.ledger, policy, self.config, _seconds(now), namespace)
            return {kind: len(of_kind) for kind, of_kind in keys.items()}
        self._store.check_writable("retain")
        return self._store.retain(_seconds(now), policy, self.config, namespace)

    def reinforce(self, ids: str | Iterable[str], *, namespace: str = "default", now: TimeLike | None = None) -> int:
        """Note that memories were used; return how many there are. Unknown ids are passed over.

        With `reinforcement="last_use"` or "half_life" in the settings of a search, used memories age later or slower.

        Args:
            ids: one, or several.
            namespace: theirs.
            now: when they were used; the present when left out. The latest moment counts.

        Raises:
            StoreError: it could not be written; nothing has changed.
        """
        return self._use("reinforce", ids, namespace, now, uses=1)

    def outcome(
        self, ids: str | Iterable[str], *, success: bool, namespace: str = "default", now: TimeLike | None = None
    ) -> int:
        """Note how following a procedure went: it counts as used, and as a success or a failure; see `reinforce`.

        Raises:
            ValueError: one of the memories is not procedural; nothing has changed.
            StoreError: it could not be written; nothing has changed.
        """
        if not isinstance(success, bool):
            raise TypeError(f"success must be True or False, got {quoted(success)}")
        return self._use("outcome", ids, namespace, now, uses=1, successes=success, failures=not success)

    def _use(self, call: str, ids: str | Iterable[str], namespace: str, now: TimeLike | None, **counts: int) -> int:
        now_us = to_microseconds(utc_now() if now is None else to_datetime(now, "now"))
        self._store.check_writable(call)
        wanted = _checked_ids(ids, call)
        with self._store.writing():
            found = [self._store.ledger.find(checked_name(namespace, "namespace"), memory_id) for memory_id in wanted]
            held = [item for item in found if item is not None]
            if call == "outcome":
                for _, memory in held:
                    if memory.kind != "procedural":
                        found_kind = f"{quoted(memory.id)} is {memory.kind}"
                        raise ValueError(f"{found_kind}; only procedural memories have outcomes: use reinforce")
            return self._store.use([key for key, _ in held], now_us, **{name: int(n) for name, n in counts.items()})

    def add_messages(
        self,
        messages: Iterable[Any],
        *,
        session: str,
        namespace: str = "default",
        roles: Iterable[str] = ("user", "assistant"),
        metadata: Mapping[str, Any] | None = None,
        now: TimeLike | None = None,
    ) -> _List[str]:
        """Remember a conversation as agents hold it; return the ids of what was new, oldest first. All or none.

        Each message that says something becomes an episodic memory of its session. Give the conversation again when it
        has grown, whole or a window of its last messages, and only what is new is stored: what the list begins with is
        laid over the end of what is stored of the session, as far as the two agree in speaker, text, attachments and
        given times, and what stands behind that is new, also where it says what was said before ("ok"). A list that
        holds all that is stored adds what stands before and after it, in its place. Where neither fits, since
        something was deleted or the window begins elsewhere, a message is new if the session does not hold it as many
        times as the list has up to there: what was deleted is new again. Of messages with a time, one that is stored
        is never new. A window must overlap what is stored: a lone "ok" cannot be told from the one before.

        Args:
            messages: oldest first: mappings or objects with role and content (text, or parts as OpenAI and Anthropic
                have them), or texts, which are the user's. The speaker is a message's name, or its role; the time its
                timestamp, created_at or time; the last without one was said now, those before it a microsecond apart,
                all between what stands before and after them. Tool calls, with the beginning of what they returned,
                images and files go into `metadata` (tool_calls, images, files), beside the role; of an image or a file
                its type, size and SHA-256 or address. The calls of an assistant's message without text go with its
                next one.
            session: the conversation's name.
            namespace: whose it is.
            roles: which are stored; add "system" or "tool" for those.
            metadata: of every message, besides its own.
            now: when what has no time was said; the present when left out.

        Raises:
            TypeError, ValueError: a message is not as it must be; the error says which. Nothing was stored.
            StoreError: the store could not be written; nothing was stored.
        """
        self._store.check_writable("add_messages")
        if metadata is not None and not isinstance(metadata, Mapping):
            raise TypeError(f"metadata must be a mapping with text keys, got {type(metadata).__name__}")
        return add_conversation(
            self._store,
            messages,
            session=checked_name(session, "session"),
            namespace=checked_name(namespace, "namespace"),
            roles=checked_roles(roles),
            metadata=metadata or {},
            now=utc_now() if now is None else to_datetime(now, "now"),
        )

    def distill(
        self,
        where: Where | None = None,
        *,
        extractor: Extractor,
        namespace: str = "default",
        batch: str | int = "session",
        name: str | None = None,
        again: bool = False,
        max_results: int = 1_000,
        progress: Callable[[int, int], None] | None = None,
    ) -> Distilled:
        """Have an extractor of yours make lasting memories of what happened.

        It gets episodic memories, a batch at a time and oldest first, and returns what is to be remembered of them. A
        batch in which nothing is new since it was given is not given again, also not after a restart; one that grew or
        changed is given whole, and what comes of it takes the place of what had come of it before. No lock is held
        meanwhile: what is added while the extractor works is for the next run.

        Results are semantic, archival or procedural memories of the namespace. Each has `sources`: the ids that it
        names, or those of the whole batch; an id that follows from what it says (one that the extractor gives does not
        count); and the time of its latest source unless it has its own. A batch whose results are not as they must be,
        or whose extractor raises, is not stored at all and tried again by the next run: see `Distilled.failed`.

        Args:
            where: which episodic memories; all when left out.
            extractor: called with a list of memories, for example to ask a language model. Returns a list, or
                generates, `Memory` objects, texts (semantic) or mappings of a memory's fields (semantic if they do not
                say, procedural with a title or steps).
            namespace: whose memories.
            batch: "session" (what belongs to none is taken a day at a time), or how many memories at a time.
            name: what the extractor is remembered by; its module and name when left out. Another name (a new version
                of its prompt) makes everything new to it, and leaves what it made under the old one.
            again: give batches in which nothing is new, too; what comes of them replaces what came before.
            max_results: of one batch; with more it fails.
            progress: called with (batches done, batches in all) after each.

        Raises:
            TypeError, ValueError: an argument is not as it must be. An asynchronous extractor is for `adistill`.
            StoreError, ModelError: the store could not be written; batches that were stored stay.
        """
        if is_async(extractor):
            raise TypeError("the extractor is asynchronous, and distill waits for nobody; await adistill instead")
        run = self._distillation(where, extractor, namespace, batch, name, again, max_results)
        return run_distill(run, extractor, progress)

    async def adistill(
        self,
        where: Where | None = None,
        *,
        extractor: Extractor,
        namespace: str = "default",
        batch: str | int = "session",
        name: str | None = None,
        again: bool = False,
        max_results: int = 1_000,
        progress: Callable[[int, int], None] | None = None,
    ) -> Distilled:
        """`distill`, without blocking the event loop; the extractor may be a coroutine function."""
        run = self._distillation(where, extractor, namespace, batch, name, again, max_results)
        return await run_adistill(run, extractor, progress)

    def _distillation(
        self,
        where: Where | None,
        extractor: object,
        namespace: str,
        batch: str | int,
        name: str | None,
        again: bool,
        max_results: int,
    ) -> Distillation:
        self._store.check_writable("distill")
        if not callable(extractor):
            raise TypeError(f"extractor must be a function of a list of memories, got {type(extractor).__name__}")
        if isinstance(batch, bool) or not isinstance(batch, str | int):
            raise TypeError(f"batch must be 'session' or how many memories at a time, got {quoted(batch)}")
        if (isinstance(batch, int) and batch < 1) or (isinstance(batch, str) and batch != "session"):
            raise ValueError(f"batch is {quoted(batch)}; it must be 'session' or how many memories at a time, from 1")
        if not isinstance(again, bool):
            raise TypeError(f"again must be True or False, got {quoted(again)}")
        if _checked_count(max_results, "max_results") < 1:
            raise ValueError("max_results is 0; an extractor must be allowed one result at least")
        wanted: dict[str, Any] = {"and": [{"kind": "episodic"}, *([] if where is None else [where])]}
        return Distillation(
            store=self._store,
            namespace=namespace,
            condition=_in_namespace(checked_name(namespace, "namespace"), wanted),
            extractor=extractor_name(extractor) if name is None else checked_name(name, "name"),
            batch=batch,
            again=again,
            max_results=max_results,
            now=utc_now(),
        )

    def consolidate(
        self,
        where: Where | None = None,
        *,
        namespace: str = "default",
        jaccard: float = 0.8,
        cosine: float = 0.95,
        dry_run: bool = False,
    ) -> Consolidated:
        """Merge near-identical memories of a namespace, each group into one; `unconsolidate` gives them back.

        Two are near-identical if they are of one kind, speaker and expiry, share their words (Jaccard) in the same
        order and have vectors alike (where they have any), and differ in no number, sign, weekday, month or negation
        that is known; facts must state the same with no other fact of theirs between, and procedures have the same
        steps. (A name in place of another is one word of many: `dry_run` shows what would be merged.) Facts whose time
        another fact of theirs shares stay, and so do memories whose time another of their session does. All of a group
        are near-identical to the one that stays, which is the latest, with its id, text and time (a fact keeps the
        earliest time: it has held since then). It has the number of memories that it stands for in
        `metadata["merged"]` (what you keep under that name is replaced, until it is undone), the sources of all and
        their ids as `sources`, and their uses and outcomes added up.

        The others are in no search, list or count any more, and their ids are unknown. They lie in the store behind
        the memory that stays, and go with it when that is deleted, forgotten, erased or expires. `as_of` a moment
        before the latest of a group finds none of it.

        Args:
            where: which memories are looked at; all when left out.
            namespace: theirs.
            jaccard: at least so much of the words of two must be common to both, from 0.5 to 1.
            cosine: at least so much alike their vectors must be, from 0 to 1.
            dry_run: say what would be merged, and change nothing.

        Raises:
            TypeError, ValueError: an argument is not as it must be.
            StoreError: the store could not be written; groups that were merged before stay so.
        """
        for setting, value, least in (("jaccard", jaccard, 0.5), ("cosine", cosine, 0.0)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{setting} must be a number, got {type(value).__name__}")
            if not least <= value <= 1:
                raise ValueError(f"{setting} is {quoted(value)}; it must be from {least} to 1")
        if not isinstance(dry_run, bool):
            raise TypeError(f"dry_run must be True or False, got {quoted(dry_run)}")
        condition = _in_namespace(checked_name(namespace, "namespace"), where)
        if dry_run:
            self._store.check_usable()
        else:
            self._store.check_writable("consolidate")
        return run_consolidate(
            self._store,
            namespace,
            condition,
            min_jaccard=float(jaccard),
            min_cosine=float(cosine),
            now=utc_now(),
            dry_run=dry_run,
        )

    def unconsolidate(self, ids: str | Iterable[str], *, namespace: str = "default") -> int:
        """Give back what `consolidate` merged, as it was; return how many memories that are. All or none.

        What became of the merged memory since (another text, uses) is lost. The memories count as stored anew. Those
        whose ids were given to others meanwhile are not there any more.

        Args:
            ids: of memories that stand for several; others are passed over.
            namespace: theirs.
        """
        self._store.check_writable("unconsolidate")
        return run_unconsolidate(self._store, checked_name(namespace, "namespace"), _checked_ids(ids, "unconsolidate"))

    def scoped(self, namespace: str) -> ScopedEngine:
        """Return a handle with the calls of an engine that reaches this one namespace and no other.

        Args:
            namespace: its name, exactly: `*` at its end means nothing here. It need not hold anything yet.

        Raises:
            TypeError, ValueError: it cannot be a namespace's name.
        """
        return ScopedEngine(self, namespace)

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
            self._store.refuse_gone(namespace)
            raise NotFoundError(id, namespace)
        return found

    def count(self, *, namespace: NamespaceLike | None = "default", where: Where | None = None) -> int:
        """Return how many memories are stored, expired ones too, until `compact`.

        Args:
            namespace: one, several or a prefix, see `search`; None for all.
            where: a filter.
        """
        self._store.check_usable()
        condition = _in_namespaces(namespace, where)
        self._store.refuse_gone(namespace if isinstance(namespace, str) else None)
        return self._store.ledger.count(condition.sql, condition.parameters)

    def list(
        self,
        *,
        namespace: NamespaceLike | None = "default",
        where: Where | None = None,
        order: str = "stored",
        limit: int | None = None,
    ) -> _List[Memory]:
        """Return memories as they are stored, expired ones too.

        Args:
            namespace: one, several or a prefix, see `search`; None for all.
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
            raise ValueError(f"order is {quoted(order)}; it must be one of {', '.join(orders)}")
        condition = _in_namespaces(namespace, where)
        self._store.refuse_gone(namespace if isinstance(namespace, str) else None)
        rows = self._store.ledger.select(
            condition.sql,
            condition.parameters,
            order=orders[order],
            limit=-1 if limit is None else min(_checked_count(limit, "limit"), 2**63 - 1),
        )
        return [memory for _, memory in rows]

    def facts(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        namespace: str = "default",
        as_of: TimeLike | None = None,
        history: bool = False,
        limit: int | None = None,
        now: TimeLike | None = None,
    ) -> Answer[Memory]:
        """Return facts by what they state, oldest first (by timestamp; equal ones as stored).

        Only those that hold: a fact that a later one supersedes is history, and one that has expired is gone.

        Args:
            subject, predicate, object: without regard to case, width and spaces; None is any.
            namespace: whose facts.
            as_of: the facts that held then, of those that were not deleted since.
            history: superseded ones too.
            limit: at most so many, from the oldest on.
            now: the moment that expiry counts from; `as_of` when left out, or the present.

        Returns:
            list of Memory: with `.degraded`, which names damaged memories of the namespace that are left out.

        Raises:
            TypeError, ValueError: an argument is not as it must be.
        """
        self._store.check_usable()
        if not isinstance(history, bool):
            raise TypeError(f"history must be True or False, got {quoted(history)}")
        return find_facts(
            self._store,
            _fact_query(namespace, as_of, now, history=history),
            None if subject is None else checked_entity(subject, "subject"),
            None if predicate is None else checked_entity(predicate, "predicate"),
            None if object is None else checked_entity(object, "object"),
            None if limit is None else _checked_count(limit, "limit"),
        )

    def neighbors(
        self,
        entity: str,
        *,
        hops: int = 1,
        namespace: str = "default",
        as_of: TimeLike | None = None,
        limit: int | None = 100,
        now: TimeLike | None = None,
    ) -> Answer[Neighbor]:
        """Return the entities that facts lead to from an entity, in either direction, nearest first.

        Of entities equally near the one whose fact is the latest comes first. Only facts that hold count (`facts`).

        Args:
            entity: a subject or object, without regard to case, width and spaces; one that no fact knows has none.
            hops: how many facts away, 1 to 3.
            namespace, as_of, now: see `facts`.
            limit: at most so many; None for all.

        Returns:
            list of Neighbor: each with `entity`, `distance` and `facts`, the memories that lead there; as a whole with
            `.degraded`, see `facts`.

        Raises:
            TypeError, ValueError: an argument is not as it must be.
        """
        self._store.check_usable()
        return find_neighbors(
            self._store,
            _fact_query(namespace, as_of, now),
            checked_entity(entity, "entity"),
            checked_hops(hops),
            None if limit is None else _checked_count(limit, "limit"),
        )

    def namespaces(self, among: NamespaceLike | None = None) -> dict[str, int]:
        """Return the namespaces that hold memories, with how many, by name.

        Args:
            among: only those: one, several or a prefix, see `search`; None for all.
        """
        self._store.check_usable()
        held = self._store.ledger.namespaces()
        if among is None:
            return dict(held)
        wanted = set(names_in(self._store.ledger, checked_namespaces(among)))
        return {name: count for name, count in held if name in wanted}

    # ------------------------------------------------------------------------------------------------ searching

    def search(
        self,
        query: str,
        *,
        namespace: NamespaceLike = "default",
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
        """Return the k memories that belong in the answer, best first.

        Args:
            query: anything at all; its words are never read as a query language.
            namespace: whose memories: a name, a list of names, or a prefix such as "org/team/*" (every namespace whose
                name begins with "org/team/"), also in a list. The answer is that of one namespace which holds all of
                them: words are as rare as they are in all together. Only sessions, and facts that supersede or lead
                to each other, stay within their own. Names of nothing are passed over. A name that itself ends in
                "*" is given as `jiyi.exact_namespace(name)` gives it; do that with every name that a stranger chose.
            k: how many, from 0.
            where: only memories that this filter holds for (`filters.compile_where`).
            now: the moment that recency and expiry count from; give it to replay an answer. `as_of` when left out, or
                the present.
            as_of: answer from what had happened by then (by timestamp), with the facts that held then, as a store
                would that was given no more. What was deleted or replaced since is not there, and a memory that was
                used since counts as never used.
            query_vector: shape (dim,), instead of the embedder's.
            budget_ms: reranking stops in time and says in `.degraded` what it left.
            neighbors: each hit brings the turns around it, so many before and after it in its session (by time, in its
                namespace; live, current and not expired, whatever the filter says) as `Hit.before` and `Hit.after`,
                from 0 to 20. They do not count towards k. No memory is given twice: a hit is not repeated around
                another, and a turn between two hits comes with the better.
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
            as_of=as_of,
            query_vector=query_vector,
            budget_ms=budget_ms,
            neighbors=neighbors,
            preset=preset,
            config=config,
            **overrides,
        )
        with turn_of(self._store, settings):
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

    def replay(
        self, record: QueryRecord | Mapping[str, Any], *, scorers: Mapping[str, CrossEncoder] | None = None
    ) -> Replay:
        """Run a recorded query again; say whether the answer is the same, and what changed since.

        Everything is as it was recorded: settings, moment, filter, vector. Memories and models are those of today.

        Args:
            record: `Hits.query_record`, or its `to_dict`.
            scorers: cross-encoders by name, for a query that was given objects; those in the engine's own settings
                and models that are installed are found by themselves.

        Raises:
            StoreError: the query was asked of another store (a snapshot counts as the same).
            TypeError, ValueError: the record is none, or is damaged, or has a setting that does not exist.
        """
        self._store.check_usable()
        return run_replay(self._store, record, self._settings, self.config, scorers or {})

    def _settings(
        self,
        *,
        namespace: NamespaceLike = "default",
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
            raise ValueError(f"budget_ms is {quoted(budget_ms)}; it must be milliseconds from 0")
        if budget_ms is not None:
            budget_ms = min(budget_ms, _LONGEST_BUDGET_MS)
        as_of_s = None if as_of is None else to_seconds(to_datetime(as_of, "as_of"))
        return Settings(
            namespace=checked_namespaces(namespace),
            k=min(_checked_count(k, "k"), _MOST_HITS),
            where=where,
            now_s=as_of_s if as_of_s is not None and now is None else _seconds(now),
            as_of_s=as_of_s,
            query_vector=None if query_vector is None else as_vector(query_vector, self._store.dim, "the query vector"),
            budget_ms=budget_ms,
            config=base.with_overrides(overrides),
            neighbors=checked_neighbors(neighbors),
        )

    def build_context(
        self,
        messages: Sequence[Any],
        *,
        namespace: NamespaceLike = "default",
        where: Where | None = None,
        now: TimeLike | None = None,
        config: ContextConfig | None = None,
        count_tokens: TokenCounter = None,
        preset: str | None = None,
        reinforce: bool = False,
        **overrides: Any,
    ) -> Context:
        """Return what the agent should be reminded of before it answers, as text for its prompt.

        The query comes from the last messages, without fillers, without what was pasted, and without a topic that was
        left. Archival memories have slots of their own, filled in turn with those nearest to the query and those learnt
        last, and so have procedures that have to do with the query; the rest are search hits.

        Args:
            messages: the conversation, oldest first: mappings or objects with role and content, or texts.
            namespace, where, now, preset, **overrides: see `search`.
            config: slots, token budget, order and format; each can be given by name too (token_budget=400). With
                neighbors=n the turns around the hits (see `search`) stand under them, where the budget has room.
            count_tokens: counts the tokens of a text, instead of an estimate: a function, or a tokenizer with
                `encode(text)`, such as a `tokenizers.Tokenizer`.
            reinforce: note that the memories in the text were used (`reinforce`).
        """
        self._store.check_usable()
        if config is not None and not isinstance(config, ContextConfig):
            raise TypeError(
                f"config must be a ContextConfig, got {type(config).__name__}; settings of the search go by name"
            )
        if "k" in overrides:
            raise TypeError("build_context takes no k; max_memories says how many memories the text may hold")
        if not isinstance(reinforce, bool):
            raise TypeError(f"reinforce must be True or False, got {quoted(reinforce)}")
        if reinforce:
            self._store.check_writable("reinforce")
        own = {name: overrides.pop(name) for name in _CONTEXT_SETTINGS & overrides.keys()}
        config = replace(config or ContextConfig(), **own)
        as_of = overrides.get("as_of")
        moment = utc_now() if now is None and as_of is None else to_datetime(as_of if now is None else now, "now")
        related = self._related()
        query = build_query(messages, last=config.last_messages, related=related)
        settings = {"namespace": namespace, "now": moment, "preset": preset, **overrides}
        # What is among the hits and moves to a slot of its own leaves its place to another: as many more are asked for.
        k = config.max_memories + config.archival_slots + config.procedure_slots
        degraded: dict[Degraded, None] = {}

        def found(**of: Any) -> Sequence[Memory]:
            answer = self.search(query.text, **settings, **of)
            degraded.update(dict.fromkeys(answer.degraded))
            return answer.memories

        hits = found(k=k, where=where)
        slots = fill_slots(
            self._store,
            SlotQuery(
                text=query.text,
                namespaces=names_in(self._store.ledger, checked_namespaces(namespace)),
                where=where,
                now_s=to_seconds(moment),
                as_of_s=None if as_of is None else to_seconds(to_datetime(as_of, "as_of")),
                archival_slots=config.archival_slots,
                procedure_slots=config.procedure_slots,
                related=related,
            ),
            hits,
            len(hits) < k,
            found,
        )
        context = render_context(
            hits,
            slots.archival,
            procedures=slots.procedures,
            now=moment,
            config=config,
            count_tokens=count_tokens,
            turns_of=lambda found, others: turns_around_memories(
                self._store,
                found,
                others,
                count=config.neighbors,
                now_s=to_seconds(moment),
                as_of_s=None if as_of is None else to_seconds(to_datetime(as_of, "as_of")),
            ),
        )
        names = names_in(self._store.ledger, checked_namespaces(namespace))
        degraded.update((Degraded("recall", reason), None) for reason in self._store.left_out(names))
        if reinforce:
            used: dict[str, _List[str]] = {}
            for memory in context.memories:
                used.setdefault(memory.namespace, []).append(memory.id)
            for name, ids in used.items():
                self.reinforce(ids, namespace=name, now=moment)
        return replace(context, query=query, degraded=tuple(degraded))

    def _related(self) -> Related | None:
        """How much two texts have to do with each other, by the token table, or by an embedder that has none."""
        source = self._store.table or self._store.embedder
        if source is None:
            return None
        if self._relatedness is None or self._relatedness[0] is not source:
            self._relatedness = source, relatedness_of(source)
        return self._relatedness[1]

    # ----------------------------------------------------------------------------------------------- upkeep

    def flush(self) -> None:
        """Return when every index that is due is built and saved, and the ledger's log is in its file."""
        self._store.check_usable()
        self._store.settle_indexes()
        self._store.ledger.checkpoint()

    def refresh(self) -> None:
        """Show everything that another process has written to the folder by now, in a read-only engine.

        Each search of one does so by itself for the namespaces that it looks at (while several threads search, what it
        shows may be a quarter of a second old); this is for everything at once, and for certain.
        """
        self._store.check_usable()
        self._store.refresh()

    def compact(self, *, now: TimeLike | None = None, dry_run: bool = False) -> int:
        """Remove expired memories and what the engine's retention lets go of (`retain`); give free space back.

        An expired fact takes those along that it superseded: they would be recalled again. What is removed is out of
        the ledger's pages too, but its vectors stay in an index on disk until that is built anew; `erase` leaves
        nothing.

        Args:
            now: the moment that expiry and ages count from; the present when left out.
            dry_run: only count.

        Returns:
            int: how many (would) go.
        """
        if dry_run:
            self._store.check_usable()
            return len(leaving(self._store.ledger, self.retention, self.config, _seconds(now)))
        self._store.check_writable("compact")
        return self._store.compact(_seconds(now), self.retention, self.config)

    def reindex(
        self,
        embedder: Embedder | str | None = None,
        *,
        tokenizer: str | None = None,
        batch_size: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        limit_rate: float | None = None,
        keep: bool = False,
        min_overlap: float | None = None,
        force: bool = False,
        queries: Sequence[str | Mapping[str, Any]] | None = None,
        sample: int = 100,
    ) -> ReindexReport:
        """Embed every memory anew, beside what is in use, then use that model from here on; return what was done.

        Searches and adds go on meanwhile, with the old vectors; the new ones take their place all at once. A run that
        was stopped, even by kill -9, goes on where it was. Vectors that came with their memories are replaced as well.
        Before the switch, both answer a sample of queries. `ReindexJob` does the same for a scheduler: it can be
        planned, watched, paused and cancelled.

        Args:
            embedder: a name or an object, see `open`; None takes the one that the engine was opened with.
            tokenizer: "current" cuts texts into terms anew with this version of the tokenizer; without an embedder,
                vectors stay as they are.
            batch_size: memories embedded in one call.
            progress: called with (memories done, memories in all) after each batch.
            limit_rate: memories a second at most.
            keep: keep the old generation for `rollback`.
            min_overlap: refuse to switch where the mean overlap@10 with the old answers is below this share; the report
                says so (`switched`, `refused`), and a forced run switches at once.
            force: switch whatever the comparison, and where the disk seems too small.
            queries: to compare by: texts (of the largest namespace) or mappings with query and namespace; None takes
                what stored memories begin with.
            sample: how many of those, from 0.

        Raises:
            ModelError: there is no embedder, or it cannot be used.
            StoreError: the store could not be written, or another reindex of it runs; what was done is kept.
            ValueError, TypeError: an argument, or what the embedder returned, is not as it must be.
        """

        def told(event: Event) -> None:
            if progress is not None and isinstance(event, Progressed):
                progress(event.done, event.total)

        return ReindexJob(
            self,
            embedder,
            tokenizer=tokenizer,
            batch_size=batch_size,
            limit_rate=limit_rate,
            keep=keep,
            min_overlap=min_overlap,
            force=force,
            queries=queries,
            sample=sample,
            on_event=told,
        ).run()

    def rollback(
        self,
        embedder: Embedder | str | None = None,
        *,
        keep: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ReindexReport:
        """Go back to the generation that a reindex with keep=True has kept; return what was done.

        Memories written since are embedded by the old model first, while searches and adds go on. Where nothing was
        written since, the answers are those of before, bit for bit.

        Args:
            embedder: the old model, where it cannot be found by its name.
            keep: keep the generation that is left, so that another rollback returns to it.
            progress: called with (memories done, memories written since) after each batch.

        Raises:
            StoreError: there is no kept generation, or another reindex runs, or the store could not be written.
            ModelError: the old model cannot be had.
        """
        self._store.check_writable("rollback")
        return run_rollback(self._store, embedder, keep=keep, progress=progress)

    def drop_kept(self) -> bool:
        """Drop the generation that a reindex has kept for `rollback`; return whether there was one.

        The file does not shrink by it: what comes next takes the space, or `compact` gives it back.
        """
        self._store.check_writable("drop_kept")
        return run_drop_kept(self._store)

    def snapshot(self, dest: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> Path:
        """Copy the store into a new folder, as it is at one moment, while reading and writing go on; return the folder.

        The copy is checked, every row of it, before it appears under its name. It is a store by itself: `open` takes
        it, and `jiyi.restore` puts it in the place of another. One that is stopped on the way (killed, interrupted, no
        room) leaves nothing that looks like a store, and the next call with the same folder goes on with what was
        copied: what has not changed since is not copied again, and the snapshot is of the moment of that call. Until
        then it lies beside the folder, as `.<its name>-snapshot`. (Where it has filled the store's own disk, it goes.)

        Args:
            dest: a folder that does not exist or is empty, outside of the store's.
            progress: called with (rows copied or found to be there, rows in all) now and then.

        Raises:
            TypeError, ValueError: the folder exists and is not empty, or lies in the store's own, or is no path.
            StoreLockedError: another snapshot to there is under way.
            StoreError: it could not be written, or the store is damaged.
        """
        self._store.check_usable()
        return take_snapshot(self._store, dest, progress)

    def verify(self) -> _List[str]:
        """Return what is wrong with the store, one line each; empty when every memory is as it was written."""
        self._store.check_usable()
        return self._store.verify()

    def stats(self) -> dict[str, Any]:
        """Return what the store is and holds: counts, model, sizes."""
        self._store.check_usable()
        store = self._store
        loaded, loaded_bytes = store.loaded_bytes()
        return {
            "path": None if store.folder is None else str(store.folder),
            "memories": self.count(namespace=None),
            "namespaces": len(store.ledger.namespaces()),
            "kinds": {kind: self.count(namespace=None, where={"kind": kind}) for kind in KINDS},
            "embedder": store.model or (None if store.embedder is None else store.embedder.name),
            "dim": store.dim,
            "mismatch": None if store.mismatch is None else str(store.mismatch),
            "format": store.ledger.manifest()["format"],
            "sequence": store.ledger.manifest()["sequence"],
            "disk_bytes": 0 if store.folder is None else folder_bytes(store.folder),
            "loaded_namespaces": loaded,
            "loaded_bytes": loaded_bytes,
            "erasing": bool(store.ledger.being_erased()),
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


def _in_namespace(namespace: str, where: Where | None) -> Condition:
    condition = compile_where(where)
    return Condition(f"n.name = ? AND ({condition.sql})", (namespace, *condition.parameters))


def _in_namespaces(namespace: NamespaceLike | None, where: Where | None) -> Condition:
    if namespace is None:
        return compile_where(where)
    asked = checked_namespaces(namespace)
    only = only_name(asked)
    if only is not None:
        return _in_namespace(only, where)
    chosen, condition = condition_in(asked), compile_where(where)
    return Condition(f"{chosen.sql} AND ({condition.sql})", (*chosen.parameters, *condition.parameters))


def _checked_ids(ids: object, call: str) -> dict[str, None]:
    """Distinct ids, in order."""
    if not isinstance(ids, Iterable):
        raise TypeError(f"{call} takes an id or a list of ids, got {type(ids).__name__}")
    return dict.fromkeys(checked_name(memory_id, "id") for memory_id in ([ids] if isinstance(ids, str) else ids))


def _checked_count(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{what} must be a whole number, got {quoted(value)}")
    if value < 0:
        raise ValueError(f"{what} is {quoted(int(value))}; it must be at least 0")
    return int(value)


def _fact_query(namespace: str, as_of: TimeLike | None, now: TimeLike | None, *, history: bool = False) -> FactQuery:
    as_of_s = None if as_of is None else to_seconds(to_datetime(as_of, "as_of"))
    now_s = as_of_s if as_of_s is not None and now is None else _seconds(now)
    return FactQuery(checked_name(namespace, "namespace"), now_s, as_of_s, history)


def _checked_query(query: Any) -> str:
    if not isinstance(query, str):
        raise TypeError(f"the query must be text, got {type(query).__name__}")
    return query


def _seconds(now: TimeLike | None) -> float:
    return to_seconds(utc_now() if now is None else to_datetime(now, "now"))
