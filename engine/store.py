"""A store: the ledger, the partitions that are in memory, and their indexes, held together.

Writers take one lock and go through the ledger first; only what is durable is published to searches. Searches take
a partition's view and need no lock.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi import generations, originals
from jiyi.analysis import analyse
from jiyi.config import IndexConfig, SearchConfig
from jiyi.erase import refuse_hidden, refuse_merged
from jiyi.errors import (
    ClosedError,
    DimensionError,
    ForkedError,
    LostWritesWarning,
    ModelError,
    ModelMismatchError,
    ReadOnlyError,
    StoreError,
)
from jiyi.filter_fields import Condition
from jiyi.filters import Filter, Test
from jiyi.heap import give_back
from jiyi.integrity import damage
from jiyi.ledger import (
    DAMAGED,
    LABEL_BITS,
    LABEL_MASK,
    Changes,
    ColumnRow,
    DerivedRow,
    Durability,
    Ledger,
    UsageRow,
    Written,
)
from jiyi.lock import WriterLock
from jiyi.memory import Memory
from jiyi.models.files import ModelFilesError
from jiyi.models.onnx_folder import EMBEDDER, read_onnx_folder
from jiyi.models.protocols import CrossEncoder, Embedder, TokenTable
from jiyi.models.registry import available, load_embedder
from jiyi.partition import Partition, View
from jiyi.paths import said_by, shown
from jiyi.quoted import quoted
from jiyi.recall.helpers import cores
from jiyi.recall.keeper import Indexes, IndexKeeper
from jiyi.recovery import examine
from jiyi.retention import Retention, due, leaving
from jiyi.terms import ANALYZER_VERSION, memory_term_bytes
from jiyi.turns import Turns

#: Manifest entry of a store whose vectors come from the caller.
EXTERNAL: Final = "external"

_BATCH: Final = 4_096

# A store of so many memories is cut into terms anew while it is opened, which takes a few seconds; a larger one answers
# from the terms it has, and `reindex` renews them beside.
_RECUT_AT_OPEN: Final = 20_000

# For the erasure that a process which died has left: opening must not take long because somebody reads.
_FINISHING_WAIT_S: Final = 2.0

# A reader does not wait for another thread that catches up with the writer while what it shows is not older than this.
_MOST_BEHIND_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Analysed:
    """What is derived of memories, and for which generation of the columns."""

    rows: Sequence[DerivedRow]
    generation: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A namespace that was loaded of a generation beside, before that serves."""

    partition: Partition
    indexes: Indexes
    complete: bool
    """Whether the generation had taken in everything of it by then."""
    damaged: list[int]
    """Keys of rows that are not what was written."""


class Store:
    """One folder (or one store in memory), opened.

    Args:
        folder: made when missing; None keeps everything in memory.
        embedder: makes the vectors of memories that come without one; None for none.
        dim: length of the vectors that the caller will give, when there is no embedder.
        read_only, durability: see `Ledger`.
        memory_budget_bytes: partitions above it are unloaded, least recently used first (never the one in use).
        index_config: when and how indexes are built.
        unusable: why the embedder that there should be cannot be used: searches go on by words, adding is refused.
        adopt: the embedder was not asked for by name: a store of external vectors does without it, and one of another
            known model takes that.
        companion: the token table for late interaction beside an embedder that is none.
        device: where models run, see `models.load_cross_encoder`.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        embedder: Embedder | None,
        dim: int | None,
        read_only: bool,
        durability: Durability,
        memory_budget_bytes: float,
        index_config: IndexConfig,
        adopt: bool = False,
        companion: TokenTable | None = None,
        device: str = "auto",
        unusable: str | None = None,
    ) -> None:
        self.folder = folder
        self.read_only = read_only
        self.embedder = embedder
        self.unusable = unusable
        self.device = device
        self.cross_encoders: dict[str, CrossEncoder] = {}
        """Those that searches asked for by name: finding one among all there are reads every manifest (3 ms)."""
        self.companion = companion
        self.left_models: dict[str, tuple[Embedder | None, TokenTable | None]] = {}
        """By `vectors_model`, what a reindex left with its old generation kept: for going back to it."""
        self._adopt = adopt
        self.reindexing = threading.Lock()
        self.index_config = index_config
        self._budget_bytes = memory_budget_bytes
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.RLock()
        self.turns = Turns(cores())
        self._erasing = threading.Lock()  # one erasure at a time, taken before the lock above
        self._recent_lock = threading.Lock()
        self._partitions: OrderedDict[str, Partition] = OrderedDict()
        self._loaded_names: dict[int, str] = {}
        self._sizes: dict[str, int] = {}
        self._damaged: dict[str, set[int]] = {}
        self._known_damaged: dict[int, set[int]] = {}
        self._gone: set[int] = set()
        self._grown: set[int] = set()  # namespaces that have got an index which is not counted yet
        self._followed: dict[str, tuple[object, float]] = {}  # by namespace: what it was caught up with, and when
        self._total_bytes = 0
        self._unpublished: list[tuple[Written, Sequence[Memory], Sequence[DerivedRow]]] | None = None
        self._writer_lock: WriterLock | None = None
        if folder is not None and not read_only:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"cannot make the folder {shown(folder)}: {said_by(error)}; choose a folder that can be written"
                ) from error
            self._writer_lock = WriterLock(folder)
        try:
            self.ledger = Ledger(folder, read_only=read_only, durability=durability)
        except BaseException:
            self._release()
            raise
        try:
            examined = examine(self.ledger)
            self._gone = examined.gone
            for key in examined.damaged | examined.gone:
                self._known_damaged.setdefault(key >> LABEL_BITS, set()).add(key)
            self.ledger.trusted = True
            for line in self._missing():
                warnings.warn(f"{self.ledger.path}: {line}", LostWritesWarning, stacklevel=4)
            manifest = self.ledger.manifest()
            self.id = str(manifest["store"])
            self.model: str | None = manifest.get("embedder")
            self.dim: int | None = manifest.get("dim")
            if adopt and self.model == EXTERNAL:
                self.embedder = embedder = None
            elif adopt and embedder is not None and self.model not in (None, embedder.name):
                known = known_embedder(str(self.model), device)
                if known is not None:
                    if self.companion is None and isinstance(embedder, TokenTable):
                        self.companion = embedder
                    self.embedder = embedder = known
            self.table = self._table(manifest, self.companion)
            self.mismatch = self._find_mismatch(embedder, dim)
            if self.dim is None:
                self.dim = int(embedder.dim) if embedder is not None else dim
            self.stale_terms = manifest.get("analyzer") != ANALYZER_VERSION
            if self.stale_terms and not read_only and self.ledger.count_all() <= _RECUT_AT_OPEN:
                self._reanalyse()
                manifest["analyzer"] = ANALYZER_VERSION
                self.stale_terms = False
            self._data_version: tuple[int, int] | None = self.ledger.data_version()
            self._vectors_version = manifest.get("vectors_version", 0)
            self.generation: int = manifest.get("generation", 0)
            """Which columns serve. While that changes, this is first to be set, before the model and what goes with it,
            and `settled` last: what was worked out between reading `settled` and an equal `generation` is of one."""
            self.settled = self.generation
            indexes = None if folder is None else folder / "indexes"
            self.keeper = IndexKeeper(
                indexes,
                index_config,
                store_id=manifest["store"],
                sequence=manifest["sequence"],
                embedder=self.model or self._model_name(),
                analyzer=manifest.get("analyzer"),
                build=not read_only,
            )
            self.keeper.on_built = self._index_built
            if not read_only:
                self.finish_erasing(_FINISHING_WAIT_S)
        except BaseException:
            self.ledger.close()
            self._release()
            raise

    def _table(self, manifest: dict[str, Any], companion: TokenTable | None) -> TokenTable | None:
        """The table that tokens are rows of: the embedder's own, or the companion where the store has its rows."""
        if isinstance(self.embedder, TokenTable):
            return self.embedder
        if self.embedder is None or companion is None:
            return None
        return companion if self.model is None or manifest.get("table") == companion.name else None

    def _find_mismatch(self, embedder: Embedder | None, dim: int | None) -> ModelMismatchError | None:
        """What is wrong between the store's vectors and the embedder; a wrong `dim` argument is refused outright."""
        if self.model is None or self.dim is None:
            return None
        if embedder is not None and (embedder.name, embedder.dim) != (self.model, self.dim):
            damage = damage_of(self.model, self.device) if self._adopt else None
            return ModelMismatchError(embedder.name, embedder.dim, self.model, self.dim, damage)
        if dim is not None and dim != self.dim:
            raise DimensionError(dim, self.dim, "the dim given to open")
        return None

    def _model_name(self) -> str:
        return EXTERNAL if self.embedder is None else self.embedder.name

    def _reanalyse(self) -> None:
        """Cut every memory into terms again: the store was made by another version of the tokenizer."""

        def batches() -> Iterator[list[tuple[int, bytes, bytes]]]:
            every = self.ledger.select("1", ())
            while part := list(islice(every, _BATCH)):
                cut = memory_term_bytes([memory for _, memory in part])
                yield [(key, terms, freqs) for (key, _), (terms, freqs) in zip(part, cut, strict=True)]

        self.ledger.replace_terms(batches(), {"analyzer": ANALYZER_VERSION})

    # --------------------------------------------------------------------------------------------------- life

    def check_usable(self) -> None:
        """Raise ClosedError or ForkedError if this store cannot be used here and now."""
        if self._closed:
            raise ClosedError
        if os.getpid() != self._pid:
            raise ForkedError(self._pid, os.getpid())

    def check_writable(self, call: str) -> None:
        """Raise if this store cannot be written to."""
        self.check_usable()
        if self.read_only:
            raise ReadOnlyError(call)

    def close(self) -> None:
        """Cancel index building, close the files, let another process write."""
        if os.getpid() != self._pid:
            return  # everything belongs to the parent
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.keeper.close()
            self.ledger.close()
            self._partitions.clear()
            self._release()

    def _release(self) -> None:
        if self._writer_lock is not None:
            self._writer_lock.release()

    # ------------------------------------------------------------------------------------------------- writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other writers out while something is read and then written."""
        with self._lock:
            yield

    def wait_for_writer(self) -> None:
        """Return when what is being written now will be shown to the next search."""
        with self._lock:
            if self.read_only:
                self._refresh(())

    def write(
        self,
        memories: Sequence[Memory],
        vectors: Sequence[NDArray[np.float32] | None],
        *,
        ending: Sequence[int] = (),
        hiding: bool = False,
        inherit_usage: bool = True,
        keep_merged: bool = False,
        then: Callable[[sqlite3.Connection], None] | None = None,
        analysed: Analysed | None = None,
    ) -> None:
        """Store memories durably, all or none, and show them to the next search. Ids must be distinct per namespace.

        A memory that replaces one which others are merged into is another one: those are given back right before,
        unless keep_merged says that it is the same. What else one transaction can do is told in `Ledger.put`. They are
        analysed here, unless that was done before (`analysed`) and a reindex has not ended since.

        Raises:
            DimensionError: a vector of another length than the store's.
            ModelMismatchError: the embedder is not the one the store was made with, and is needed.
            StoreError: the ledger could not be written; nothing has changed.
        """
        if not memories and not ending and then is None:
            return
        while True:
            if analysed is None or analysed.generation != self.settled:
                analysed = self.analysed(memories, vectors)
            with self._lock:
                if analysed.generation != self.generation:
                    continue  # a reindex has ended meanwhile: these vectors are another model's
                self._write(
                    memories,
                    vectors,
                    analysed.rows,
                    ending=ending,
                    hiding=hiding,
                    inherit_usage=inherit_usage,
                    keep_merged=keep_merged,
                    then=then,
                )
                return

    def analysed(self, memories: Sequence[Memory], vectors: Sequence[NDArray[np.float32] | None]) -> Analysed:
        """Analyse memories for `write`, without a lock: the next ones while others are written.

        Raises:
            ModelError, ModelMismatchError: memories without a vector cannot be embedded.
        """
        if self.unusable is not None and self.model != EXTERNAL and any(vector is None for vector in vectors):
            raise ModelError(f"memories cannot be embedded: {self.unusable}; give vectors, or open with embedder=None")
        if self.mismatch is not None and any(vector is None for vector in vectors):
            raise self.mismatch
        generation = self.settled
        embedder = None if self.mismatch is not None else self.embedder
        derived: list[DerivedRow] = []
        for start in range(0, len(memories), _BATCH):
            part = slice(start, start + _BATCH)
            derived.extend(analyse(memories[part], vectors[part], embedder, self.table if embedder else None))
        return Analysed(derived, generation)

    def _write(
        self,
        memories: Sequence[Memory],
        vectors: Sequence[NDArray[np.float32] | None],
        derived: Sequence[DerivedRow],
        *,
        ending: Sequence[int],
        hiding: bool,
        inherit_usage: bool,
        keep_merged: bool,
        then: Callable[[sqlite3.Connection], None] | None,
    ) -> None:
        with self._lock:
            self.check_usable()
            behind = [] if keep_merged else self._behind(memories)
            if behind:
                with self._one_transaction():
                    for number, leaders in behind:
                        self.give_back(number, leaders)
                    self._write(
                        memories,
                        vectors,
                        derived,
                        ending=ending,
                        hiding=hiding,
                        inherit_usage=inherit_usage,
                        keep_merged=True,
                        then=then,
                    )
                return
            dim = self._dim_with(vectors)  # under the lock: two first writes may bring vectors of different lengths
            first = self.model is None and dim is not None and len(memories) > 0
            manifest = {"embedder": self._model_name(), "dim": dim} if first else {}
            if first and self.table is not None and not isinstance(self.embedder, TokenTable):
                manifest["table"] = self.table.name
            written = self.ledger.put(
                memories,
                derived,
                manifest,
                ending=ending,
                hiding=hiding,
                inherit_usage=inherit_usage,
                then=then,
            )
            if first:
                self.model, self.dim = self._model_name(), dim
                self.keeper.embedder = self.model
                self._unload_all()  # partitions loaded before there were vectors have no column for them
            self._publish(written, memories, derived)

    def _behind(self, memories: Sequence[Memory]) -> list[tuple[int, list[str]]]:
        """Memories that others are merged into and whose ids these have: ids by the number of their namespace."""
        found: list[tuple[int, list[str]]] = []
        if not self.ledger.has_merged:
            return found
        ids: dict[str, list[str]] = {}
        for memory in memories:
            ids.setdefault(memory.namespace, []).append(memory.id)
        for name, of_it in ids.items():
            number = self.ledger.namespace_number(name)
            if number is None:
                continue
            with self.ledger.reading() as connection:
                leaders = originals.held_by(connection, number, of_it)
            if leaders:
                found.append((number, leaders))
        return found

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make one transaction of all that is written meanwhile, all or none; nobody else writes."""
        with self._lock:
            before = self.model, self.dim, self.keeper.embedder
            try:
                with self._one_transaction():
                    yield
            except BaseException:
                self.model, self.dim, self.keeper.embedder = before
                raise

    @contextmanager
    def _one_transaction(self) -> Iterator[None]:
        """Make one transaction of all that is written meanwhile, and show it when it is durable. Hold the lock."""
        if self._unpublished is not None:  # part of a larger one
            yield
            return
        waiting: list[tuple[Written, Sequence[Memory], Sequence[DerivedRow]]] = []
        self._unpublished = waiting
        try:
            with self.ledger.changing():
                yield
        finally:
            self._unpublished = None
        for written, memories, derived in waiting:
            self._publish(written, memories, derived)

    def give_back(self, namespace: int, ids: Iterable[str]) -> int:
        """Put memories that were merged into others in their place again, durably, all or none; return how many.

        Args:
            namespace: the number of theirs.
            ids: of what they were merged into; those that hide nothing are passed over.
        """
        with self._lock:
            restored: list[Memory] = []
            vectors: list[NDArray[np.float32] | None] = []
            merged: list[str] = []
            for memory_id in ids:
                with self.ledger.reading() as connection:
                    found = originals.of(connection, namespace, memory_id)
                if found:
                    merged.append(memory_id)
                for original in found:
                    restored.append(original.memory)
                    usable = original.vector is not None and original.model == self.vectors_model
                    vectors.append(np.frombuffer(original.vector or b"", np.float32) if usable else None)

            def forget(connection: sqlite3.Connection) -> None:
                for memory_id in merged:
                    originals.drop(connection, namespace, memory_id)

            if restored:
                self.write(restored, vectors, inherit_usage=False, keep_merged=True, then=forget)
            return len(restored)

    def _dim_with(self, vectors: Sequence[NDArray[np.float32] | None]) -> int | None:
        dim = self.dim
        for i, vector in enumerate(vectors):
            if vector is None:
                continue
            if dim is None:
                dim = len(vector)
            elif len(vector) != dim:
                raise DimensionError(len(vector), dim, f"vector {i} of the batch")
        return dim

    def _publish(self, written: Written, memories: Sequence[Memory], derived: Sequence[DerivedRow]) -> None:
        if self._unpublished is not None:
            self._unpublished.append((written, memories, derived))
            return
        if len(written.keys) == 1 and not written.ended and not written.usage:  # what an agent does all day
            self._show(written.keys[0] >> LABEL_BITS, written, None, written.rows, (), memories, derived)
            return
        if written.ended:
            for damaged in (*self._damaged.values(), *self._known_damaged.values()):
                damaged.difference_update(written.ended)
        ended = _by_namespace(written.ended)
        used: dict[int, list[UsageRow]] = {}
        for row in written.usage:
            used.setdefault(row[0] >> LABEL_BITS, []).append(row)
        added: dict[int, list[int]] = {}
        for i, key in enumerate(written.keys):
            added.setdefault(key >> LABEL_BITS, []).append(i)
        for number in ended.keys() | added.keys() | used.keys():
            places = added.get(number, [])
            self._show(
                number,
                written,
                ended.get(number),
                [written.rows[i] for i in places],
                used.get(number, ()),
                [memories[i] for i in places],
                [derived[i] for i in places],
            )

    def _show(
        self,
        number: int,
        written: Written,
        ended: NDArray[np.int64] | None,
        rows: Sequence[ColumnRow],
        usage: Sequence[UsageRow],
        memories: Sequence[Memory],
        derived: Sequence[DerivedRow],
    ) -> None:
        """Show searches what was written to one namespace, if that is in memory."""
        name = self._loaded_names.get(number)
        if name is None:
            return  # it will be read from the ledger when somebody asks
        partition = self._partitions[name]
        if partition.apply(
            written.sequence,
            ended=ended,
            rows=rows,
            vectors=[[row.vector for row in derived]],
            usage=usage,
            memories=memories,
            may_wait=True,
        ):
            if partition.has_grown():
                self._account(name, partition)
            self._evict(keep=name)
            self.keeper.consider(number)

    def end(self, keys: Sequence[int]) -> int:
        """Delete memories durably by key; return how many there were."""
        with self._lock:
            self.check_usable()
            written = self.ledger.delete(keys)
            self._publish(written, (), ())
        return len(written.ended)

    def use(self, keys: Sequence[int], now_us: int, *, uses: int = 0, successes: int = 0, failures: int = 0) -> int:
        """Count uses of memories and how they went, durably; return how many memories there were."""
        with self._lock:
            self.check_usable()
            written = self.ledger.use(keys, now_us, uses=uses, successes=successes, failures=failures)
            self._publish(written, (), ())
        return len(written.usage)

    def serve(
        self,
        to: generations.Generation,
        embedder: Embedder | None,
        table: TokenTable | None,
        *,
        keep: bool,
        ready: Mapping[str, Ready],
    ) -> None:
        """Let another generation of the columns serve from here on. The caller holds the lock (`writing`).

        Args:
            to: the generation, which has taken in every memory.
            embedder, table: what its vectors come from, and what its tokens are rows of.
            keep: keep the one that served.
            ready: by namespace, what was loaded of it before; what is in memory and not among them is loaded when
                somebody asks.
        """
        with self.ledger.changing() as connection:
            generations.switch(connection, to.number, keep=keep)
        manifest = self.ledger.manifest()
        self.generation = to.number
        self.embedder, self.table, self.unusable = embedder, table, None if embedder is not None else self.unusable
        self.model, self.dim = manifest.get("embedder"), manifest.get("dim")
        if self.dim is None and embedder is not None:
            self.dim = int(embedder.dim)
        self._vectors_version = manifest.get("vectors_version", 0)
        self.mismatch = self._find_mismatch(embedder, None)
        self.stale_terms = manifest.get("analyzer") != ANALYZER_VERSION
        self.keeper.embedder, self.keeper.analyzer = self.model or self._model_name(), manifest.get("analyzer")
        self.settled = to.number
        self._damaged.clear()  # those were rows of the generation that served; what is loaded from here on tells anew
        for name, left in list(self._partitions.items()):
            self._unload(name)
            if name in ready:
                self._note_damaged(name, ready[name].damaged)
                fresh = ready[name]
                with suppress(_OutdatedError, StoreError):
                    if not fresh.complete or fresh.partition.sequence < left.sequence:
                        with self._caught_up(name, fresh.partition):
                            pass
                    self._keep_loaded(name, fresh.partition, fresh.indexes)

    def read_beside(self, namespace: str, found: generations.Generation) -> Ready | None:
        """Return a namespace as a generation beside has it, without indexes; None when nothing was ever stored there.

        If that has not taken in everything, it ends before the first memory that is missing.
        """
        number = self.ledger.namespace_number(namespace)
        if number is None:
            return None
        partition, changes = self._read(number, namespace, found.dim, found.number)
        return Ready(partition, Indexes(), changes.complete, changes.damaged)

    def loaded_namespaces(self) -> list[str]:
        """Return the namespaces that are in memory, those used last first."""
        with self._recent_lock:
            return list(reversed(self._partitions))

    def indexes_on_disk(self, partition: Partition, namespace: str, found: generations.Generation) -> Indexes:
        """Return the indexes that a partition of a generation beside has on disk."""
        return self.keeper.read(partition, namespace, found.embedder or self._model_name(), found.analyzer)

    def compact(self, now_s: float, policy: Mapping[str, Retention], config: SearchConfig) -> int:
        """Remove what expired and what a policy lets go of, shrink the file; return how many were removed."""
        with self._lock:
            self.check_usable()
            try:
                written = self.ledger.compact(round(now_s * 1e6), leaving(self.ledger, policy, config, now_s))
            finally:  # what is gone is gone, also where the file could not be made smaller
                self._unload_all()
            self.keeper.keep_only(self.ledger.namespace_numbers())
        self.finish_erasing(_FINISHING_WAIT_S)
        give_back()
        return len(written.ended)

    def retain(
        self, now_s: float, policy: Mapping[str, Retention], config: SearchConfig, namespace: str | None
    ) -> dict[str, int]:
        """Delete durably what a policy lets go of, in one namespace or (None) in each; return how many, by kind."""
        with self._lock:
            keys = due(self.ledger, policy, config, now_s, namespace)
            self.end([key for of_kind in keys.values() for key in of_kind])
        return {kind: len(of_kind) for kind, of_kind in keys.items()}

    def erase(
        self, namespace: str, condition: Condition, ids: Sequence[str], wait_s: float, test: Test | None = None
    ) -> int:
        """Delete memories so that no file of the folder holds a byte of them; return how many there were.

        Args:
            namespace: where they are: its indexes are dropped and built again in the background.
            condition: holds for them.
            ids: theirs, if that is how they were named.
            wait_s: how long to wait for what still reads the files.
            test: the filter, if that is how they were named.

        Raises:
            ValueError: one of them is merged into another that stays.
            StoreError: they are deleted, and something that is named still holds bytes of them.
        """
        with self._erasing:
            with self._lock:
                self.check_usable()
                number = self.ledger.namespace_number(namespace)
                if number is not None:
                    with self.ledger.reading() as connection:
                        refuse_merged(connection, number, ids)
                keys = self.ledger.select_keys(condition.sql, condition.parameters)
                if number is not None and test is not None:
                    with self.ledger.reading() as connection:
                        refuse_hidden(connection, number, test, keys)
                written, emptied, concerned = self.ledger.erase(keys, () if number is None else (number,))
                self._publish(written, (), ())
                for name in [self._loaded_names[number] for number in emptied & self._loaded_names.keys()]:
                    self._unload(name)
                self.keeper.erase(concerned, wait_s)
            self.ledger.scrub(wait_s)
        return len(written.ended)

    def finish_erasing(self, wait_s: float) -> None:
        """Go on with an erasure that did not end, if there is one; it stays unfinished when something is in the way."""
        with self._erasing, suppress(StoreError):
            concerned = self.ledger.being_erased()
            if concerned:
                with self._lock:
                    self.keeper.erase(concerned, wait_s)
                self.ledger.scrub(wait_s)

    # ------------------------------------------------------------------------------------------------- reading

    def partition(self, namespace: str) -> Partition | None:
        """Return a namespace's partition, loading it if need be; None when nothing was ever stored there."""
        self.check_usable()
        if self.read_only:
            self._follow(namespace)
        partition = self._partitions.get(namespace)
        if partition is None:
            with self._lock:
                self.check_usable()
                partition = self._partitions.get(namespace) or self._load(namespace)
            if partition is None:
                return None
        partition.asked_for = True
        with self._recent_lock:
            if namespace in self._partitions:
                self._partitions.move_to_end(namespace)
        return partition

    def is_loaded(self, namespace: str) -> bool:
        """Return whether a namespace is in memory."""
        return namespace in self._partitions

    @property
    def own_table(self) -> TokenTable | None:
        """The table that tokens are rows of, where it is the embedder itself and no companion."""
        table: object = self.table
        return self.table if table is self.embedder else None

    @property
    def vectors_version(self) -> int:
        """How often all vectors were replaced by another model's, or anew (`reindex`)."""
        return int(self._vectors_version)

    @property
    def vectors_model(self) -> str:
        """What the vectors are of: of any other model, or before a reindex, they say nothing."""
        return f"{self.model or self._model_name()}@{self.vectors_version}"

    def indexes(self, partition: Partition) -> Indexes:
        """Return the indexes that a partition has by now."""
        return self.keeper.of(partition.namespace)

    def _load(self, namespace: str) -> Partition | None:
        began = time.monotonic()
        number = self.ledger.namespace_number(namespace)
        if number is None:
            return None
        while True:
            try:
                partition, changes = self._read(number, namespace, self.dim)
                break
            except _OutdatedError:  # another process has switched to another generation
                self._data_version = None
                self._refresh(())
        if (
            self.table is not None
            and self.mismatch is None  # another table's tokens are never looked up
            and len(partition.view.tokens)
            and partition.view.tokens.max() >= len(self.table.table)
        ):
            raise StoreError(f"the tokens of {quoted(namespace)} are damaged; verify() lists which")
        self._note_damaged(namespace, changes.damaged)
        self._keep_loaded(namespace, partition, None)
        self._followed[namespace] = (self._data_version, began)
        self._evict(keep=namespace)
        return partition

    def _keep_loaded(self, namespace: str, partition: Partition, indexes: Indexes | None) -> None:
        """Take up a partition with its indexes, or those that are on disk."""
        with self._recent_lock:
            self._partitions[namespace] = partition
            self._loaded_names[partition.namespace] = namespace
        if indexes is None:
            self.keeper.attach(partition, namespace)
        else:
            self.keeper.take(partition, namespace, indexes)
        self._account(namespace, partition)

    def _read(
        self, number: int, namespace: str, dim: int | None, generation: int | None = None
    ) -> tuple[Partition, Changes]:
        """Read a partition from the ledger; return it with what was read.

        Args:
            number, namespace: its number and name.
            dim: length of its vectors.
            generation: the one to read; None reads the one that serves.

        Raises:
            _OutdatedError: another one serves by now than this store knows of.
        """
        with self.ledger.changes(number, generation=generation) as changes:
            if generation is None and changes.generation != self.generation:
                raise _OutdatedError
            of = changes.generation if generation is None else generation
            partition = Partition(number, dim, changes.sequence, of)
            changes.damaged.extend(self._known_damaged.get(number, ()))
            try:
                partition.apply(
                    changes.sequence,
                    rows=changes.rows,
                    vectors=changes.vectors,
                    usage=changes.usage,
                    damaged=changes.damaged,
                )
            except (TypeError, ValueError, OverflowError) as error:
                raise StoreError(
                    f"the columns of {quoted(namespace)} are damaged ({error}); verify() lists which"
                ) from error
        return partition, changes

    def memories(self, keys: Sequence[int], namespace: str) -> dict[int, Memory]:
        """Return memories of one namespace by key; those that hold nothing (any more) are absent.

        So are those that are not what was written: from here on, searches leave them out and say so (`left_out`).
        """
        damaged: list[int] = []
        found = self.ledger.memories(keys, namespace, damaged)
        if damaged:
            with self._lock:
                self._note_damaged(namespace, damaged)
                partition = self._partitions.get(namespace)
                if partition is not None:
                    partition.apply(partition.sequence, damaged=damaged)
        return found

    def _note_damaged(self, namespace: str, keys: Sequence[int]) -> None:
        if keys:
            self._damaged.setdefault(namespace, set()).update(keys)

    def left_out(self, namespaces: Sequence[str]) -> list[str]:
        """Return what searches of some namespaces leave out because it is damaged, one line each namespace."""
        if not self._damaged and self.ledger.missing is None:
            return []
        lines = self._missing()
        for name in sorted(self._damaged.keys() & set(namespaces)):
            labels = sorted(key & LABEL_MASK for key in self._damaged[name])
            if labels:
                shown = ", ".join(map(str, labels[:3])) + (", …" if len(labels) > 3 else "")
                are = "memory is" if len(labels) == 1 else "memories are"
                lines.append(
                    f"{len(labels)} {are} damaged and left out of {quoted(name)} (label {shown}); `jiyi verify` lists "
                    "what is damaged, and `jiyi verify --repair OUT` saves the rest"
                )
        return lines

    def refuse_gone(self, namespace: str | None) -> None:
        """Raise StoreError if memories of a namespace (None: of any) are known to be gone: who asks for all of them, or
        for one that is not there, would be told wrong."""
        if self._gone:
            number = None if namespace is None else self.ledger.namespace_number(namespace)
            if namespace is None or any(key >> LABEL_BITS == number for key in self._gone):
                raise StoreError(f"memories are missing from the ledger, of which columns are left; {DAMAGED}")

    def verify(self) -> list[str]:
        """Return what is wrong with the store, one line each; empty when every memory is as it was written."""
        return [f"ledger: {line}" for line in self._missing()] + damage(self.ledger)

    def _missing(self) -> list[str]:
        if self.ledger.missing is None:
            return []
        first, last = self.ledger.missing
        return [
            f"changes {first} to {last} were acknowledged and are gone: the end of the log was damaged, or the power "
            "failed (durability='power' survives that)"
        ]

    def memory_of(self, namespace: str) -> dict[str, int]:
        """Return how much memory a namespace takes, by part; it is loaded if it was not. Empty for an unknown one."""
        partition = self.partition(namespace)
        if partition is None:
            return {}
        return {**partition.bytes_by_part(), "indexes": self.indexes(partition).bytes()}

    def _account(self, name: str, partition: Partition) -> None:
        size = partition.bytes() + self.indexes(partition).bytes()
        self._total_bytes += size - self._sizes.get(name, 0)
        self._sizes[name] = size

    def _index_built(self, number: int) -> None:
        """Count an index that was built; whoever holds the lock does so later, as it may wait for who built it."""
        self._grown.add(number)
        if self._lock.acquire(blocking=False):
            try:
                if not self._closed:
                    self._evict(keep=self._loaded_names.get(number, ""))
            finally:
                self._lock.release()

    def _evict(self, keep: str) -> None:
        while self._grown:
            name = self._loaded_names.get(self._grown.pop())
            if name is not None:
                self._account(name, self._partitions[name])
        while self._total_bytes > self._budget_bytes:
            oldest = next((name for name in self._partitions if name != keep), None)
            if oldest is None:
                return  # one namespace larger than the budget still has to be searched
            self._unload(oldest)

    def _unload(self, name: str) -> None:
        with self._recent_lock:
            partition = self._partitions.pop(name)
            del self._loaded_names[partition.namespace]
        self._total_bytes -= self._sizes.pop(name)
        self._followed.pop(name, None)
        self.keeper.drop(partition.namespace)

    def _unload_all(self) -> None:
        for name in list(self._partitions):
            self._unload(name)

    def settle_indexes(self) -> None:
        """Return when every namespace that is large enough for an index has it, on disk too.

        Raises:
            StoreError: an index could not be written. What it is of is stored, and is found without it.
        """
        if not self.read_only:
            self.keeper.retry()
            least = min(self.index_config.dense_rows, self.index_config.keyword_rows)
            for name, count in self.ledger.namespaces():
                if count >= least:
                    partition = self.partition(name)
                    if partition is not None:
                        self.keeper.consider(partition.namespace)  # what was only noted when it was written counts too
                    self.keeper.wait()  # before the next namespace may push it out of memory
        self.keeper.wait()
        if isinstance(self.keeper.last_error, OSError):
            raise StoreError(
                f"an index could not be written: {self.keeper.last_error}; every memory is stored and found all the "
                "same. Make room and flush again"
            ) from self.keeper.last_error

    def refresh(self) -> None:
        """Catch up with another process that writes to the same folder: show everything that it has committed."""
        if self.read_only:
            with self._lock:
                self.check_usable()
                self._refresh(list(self._partitions))

    def _follow(self, namespace: str) -> None:
        """Catch up in one namespace, unless another thread is at it and what is shown is hardly older."""
        if not self._lock.acquire(blocking=False):
            if time.monotonic() - self._followed.get(namespace, (None, -math.inf))[1] < _MOST_BEHIND_S:
                return
            self._lock.acquire()
        try:
            self.check_usable()
            self._refresh((namespace,))
        finally:
            self._lock.release()

    def _refresh(self, names: Iterable[str]) -> None:
        """Catch up in those namespaces that are loaded. The caller holds the lock."""
        began = time.monotonic()
        version = self.ledger.data_version()
        if version != self._data_version:
            self._follow_model()
            self._data_version = version
        for name in names:
            partition = self._partitions.get(name)
            if partition is None:
                continue
            if self._followed.get(name, (None, began))[0] != version:
                try:
                    with self._caught_up(name, partition):
                        pass
                except _OutdatedError:  # it is unloaded
                    continue
                self._account(name, partition)
                self._evict(keep=name)
            self._followed[name] = (version, began)

    def _follow_model(self) -> None:
        """Take up another model or generation, if another process has changed to one. The caller holds the lock."""
        manifest = self.ledger.manifest()
        version, generation = manifest.get("vectors_version", 0), manifest.get("generation", 0)
        now = (manifest.get("embedder"), manifest.get("dim"), version, generation)
        if now != (self.model, self.dim, self._vectors_version, self.generation):
            self.generation = generation
            self.model, self.dim = manifest.get("embedder"), manifest.get("dim")
            self._vectors_version = version
            self.stale_terms = manifest.get("analyzer") != ANALYZER_VERSION
            if self._adopt and self.embedder is not None and self.model not in (None, self.embedder.name):
                self.embedder = known_embedder(str(self.model), self.device) or self.embedder
            self.mismatch = self._find_mismatch(self.embedder, None)
            self.table = self._table(manifest, self.companion)
            self._unload_all()
            self.keeper.embedder, self.keeper.analyzer = self.model or self._model_name(), manifest.get("analyzer")
            self.settled = generation

    @contextmanager
    def _caught_up(self, name: str, partition: Partition) -> Iterator[sqlite3.Connection]:
        """Bring a partition to a moment of the ledger, and lend a connection that sees it. The caller holds the lock.

        Raises:
            _OutdatedError: the ledger has forgotten what happened since, or another generation serves; the partition
                is unloaded.
        """
        labels = partition.view.labels
        last_label = int(labels[-1]) if len(labels) else 0
        with self.ledger.changes(partition.namespace, last_label, partition.sequence) as changes:
            if changes.ended is None or changes.generation != partition.generation:
                if self._partitions.get(name) is partition:
                    self._unload(name)
                raise _OutdatedError
            memories: list[Memory] = []
            if partition.filters:
                keys = [row[0] for row in changes.rows]
                found = self.ledger.memories_on(changes.connection, keys, name, changes.damaged)
                memories = [found[row[0]] for row in changes.rows if row[0] in found]
            partition.apply(
                changes.sequence,
                ended=_by_namespace(changes.ended).get(partition.namespace),
                rows=changes.rows,
                vectors=changes.vectors,
                usage=changes.usage,
                memories=memories,
                damaged=changes.damaged,
            )
            self._note_damaged(name, changes.damaged)
            yield changes.connection

    @contextmanager
    def _settled(self, name: str, partition: Partition) -> Iterator[sqlite3.Connection]:
        """Lend a connection that sees just what a partition shows, while nobody writes here.

        Raises:
            _OutdatedError: the partition is not in use any more.
        """
        with self._lock:
            self.check_usable()
            if self.read_only:
                self._refresh((name,))
            if self._partitions.get(name) is not partition:
                raise _OutdatedError
            with self._caught_up(name, partition) if self.read_only else self.ledger.reading() as connection:
                yield connection
            self._account(name, partition)
            self._evict(keep=name)

    def filtered(self, namespace: str, where: Filter) -> tuple[Partition, View, NDArray[np.uint8]] | None:
        """Return a namespace's partition, its newest view, and 1 for those of its rows (dead ones aside) that pass.

        None when nothing was ever stored there. A filter on a field that none named before reads the ledger once.
        """
        while (partition := self.partition(namespace)) is not None:
            settled = partial(self._settled, namespace, partition)
            with suppress(_OutdatedError):
                return partition, *partition.filters.passing(where, namespace, partition, self.ledger.reading, settled)
        return None

    @property
    def budget_bytes(self) -> float:
        """How much memory partitions and their indexes may take."""
        return self._budget_bytes

    def size_of(self, namespace: str) -> int:
        """Return how much memory a namespace takes, with its indexes; 0 when it is not loaded."""
        return self._sizes.get(namespace, 0)

    def loaded_bytes(self) -> tuple[int, int]:
        """Return how many partitions are in memory, and how many bytes they and their indexes take."""
        loaded = list(self._partitions.values())
        return len(loaded), sum(p.bytes() + self.indexes(p).bytes() for p in loaded)


class _OutdatedError(Exception):
    """A partition that another has to be loaded for."""


def known_embedder(name: str, device: str) -> Embedder | None:
    """The embedder that a store was made with, if it can be had here: by its name, or by one that it was given."""
    for candidate in (name, *_names_given_to(name)):
        try:
            embedder = load_embedder(candidate, device=device)
        except (ValueError, ModelFilesError):
            continue
        if embedder.name == name:
            return embedder
    return None


def damage_of(name: str, device: str) -> str | None:
    """Why a model that is here cannot be loaded; None where it can be, or there is none of that name."""
    try:
        load_embedder(name, device=device)
    except ModelFilesError as error:
        return str(error)
    except ValueError:
        return None
    return None


def _names_given_to(model: str) -> Iterator[str]:
    """Names under which a user added the model that calls itself so (`jiyi models add`), none of them loaded."""
    for record in available():
        if record.origin == "added" and record.kind == EMBEDDER and record.problem is None:
            with suppress(ModelFilesError):
                if read_onnx_folder(record.folder, EMBEDDER).name == model:
                    yield record.name


def store_of(engine: object) -> Store:
    """Return the store of an engine.

    Raises:
        TypeError: it is no engine.
    """
    store = getattr(engine, "_store", None)
    if not isinstance(store, Store):
        raise TypeError(f"engine must be a jiyi.Engine, as jiyi.open returns it, got {type(engine).__name__}")
    return store


def _by_namespace(keys: Sequence[int]) -> dict[int, NDArray[np.int64]]:
    grouped: dict[int, list[int]] = {}
    for key in keys:
        grouped.setdefault(key >> LABEL_BITS, []).append(key & LABEL_MASK)
    return {namespace: np.array(sorted(labels), dtype=np.int64) for namespace, labels in grouped.items()}
