"""A store: the ledger, the partitions that are in memory, and their indexes, held together.

Writers take one lock and go through the ledger first; only what is durable is published to searches. Searches take
a partition's view and need no lock.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi import originals
from jiyi.analysis import analyse
from jiyi.config import IndexConfig, SearchConfig
from jiyi.erase import refuse_hidden, refuse_merged
from jiyi.errors import (
    ClosedError,
    DimensionError,
    ForkedError,
    ModelError,
    ModelMismatchError,
    ReadOnlyError,
    StoreError,
)
from jiyi.filter_fields import Condition
from jiyi.filters import Filter, Test
from jiyi.ledger import LABEL_BITS, LABEL_MASK, DerivedRow, Durability, Ledger, UsageRow, Written, column_row
from jiyi.lock import WriterLock
from jiyi.memory import Memory
from jiyi.models.files import ModelFilesError
from jiyi.models.onnx_folder import EMBEDDER, read_onnx_folder
from jiyi.models.protocols import CrossEncoder, Embedder, TokenTable
from jiyi.models.registry import available, load_embedder
from jiyi.partition import Partition, View, rows_of
from jiyi.recall.keeper import Indexes, IndexKeeper
from jiyi.retention import Retention, due, leaving
from jiyi.terms import ANALYZER_VERSION, memory_terms

#: Manifest entry of a store whose vectors come from the caller.
EXTERNAL: Final = "external"

_BATCH: Final = 4_096

# For the erasure that a process which died has left: opening must not take long because somebody reads.
_FINISHING_WAIT_S: Final = 2.0


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
        self._adopt = adopt
        self.reindexing = threading.Lock()
        self.index_config = index_config
        self._budget_bytes = memory_budget_bytes
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.RLock()
        self._erasing = threading.Lock()  # one erasure at a time, taken before the lock above
        self._recent_lock = threading.Lock()
        self._partitions: OrderedDict[str, Partition] = OrderedDict()
        self._loaded_names: dict[int, str] = {}
        self._sizes: dict[str, int] = {}
        self._total_bytes = 0
        self._writer_lock: WriterLock | None = None
        if folder is not None and not read_only:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"cannot make the folder {folder}: {error}; choose a folder that can be written"
                ) from error
            self._writer_lock = WriterLock(folder)
        try:
            self.ledger = Ledger(folder, read_only=read_only, durability=durability)
        except BaseException:
            self._release()
            raise
        try:
            manifest = self.ledger.manifest()
            self.id = str(manifest["store"])
            self.model: str | None = manifest.get("embedder")
            self.dim: int | None = manifest.get("dim")
            if adopt and self.model == EXTERNAL:
                self.embedder = embedder = None
            elif adopt and embedder is not None and self.model not in (None, embedder.name):
                known = _known(str(self.model), device)
                if known is not None:
                    if self.companion is None and isinstance(embedder, TokenTable):
                        self.companion = embedder
                    self.embedder = embedder = known
            self.table = self._table(manifest, self.companion)
            self.mismatch = self._find_mismatch(embedder, dim)
            if self.dim is None:
                self.dim = int(embedder.dim) if embedder is not None else dim
            self.stale_terms = manifest.get("analyzer") != ANALYZER_VERSION
            if self.stale_terms and not read_only:
                self._reanalyse()
                self.stale_terms = False
            self._data_version = self.ledger.data_version()
            self._vectors_version = manifest.get("vectors_version", 0)
            indexes = None if folder is None else folder / "indexes"
            self.keeper = IndexKeeper(
                indexes,
                index_config,
                store_id=manifest["store"],
                sequence=manifest["sequence"],
                embedder=self.model or self._model_name(),
                build=not read_only,
            )
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
            return ModelMismatchError(embedder.name, embedder.dim, self.model, self.dim)
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
                columns = memory_terms([memory for _, memory in part])
                bounds = columns.indptr.tolist()
                yield [
                    (key, columns.terms[s:e].tobytes(), columns.freqs[s:e].tobytes())
                    for (key, _), s, e in zip(part, bounds[:-1], bounds[1:], strict=True)
                ]

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
        """Return when what is being written now is shown to searches."""
        with self._lock:
            if self.read_only:
                self.refresh()

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
    ) -> None:
        """Store memories durably, all or none, and show them to the next search. Ids must be distinct per namespace.

        A memory that replaces one which others are merged into is another one: those are given back right before,
        unless keep_merged says that it is the same. What else one transaction can do is told in `Ledger.put`.

        Raises:
            DimensionError: a vector of another length than the store's.
            ModelMismatchError: the embedder is not the one the store was made with, and is needed.
            StoreError: the ledger could not be written; nothing has changed.
        """
        if not memories and not ending and then is None:
            return
        if self.unusable is not None and self.model != EXTERNAL and any(vector is None for vector in vectors):
            raise ModelError(f"memories cannot be embedded: {self.unusable}; give vectors, or open with embedder=None")
        if self.mismatch is not None and any(vector is None for vector in vectors):
            raise self.mismatch
        embedder = None if self.mismatch is not None else self.embedder
        derived: list[DerivedRow] = []
        for start in range(0, len(memories), _BATCH):
            part = slice(start, start + _BATCH)
            derived.extend(analyse(memories[part], vectors[part], embedder, self.table if embedder else None))
        with self._lock:
            self.check_usable()
            dim = self._dim_with(vectors)  # under the lock: two first writes may bring vectors of different lengths
            first = self.model is None and dim is not None and len(memories) > 0
            if not keep_merged:
                self._give_back_behind(memories)
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

    def _give_back_behind(self, memories: Sequence[Memory]) -> None:
        """Give back what is merged into memories whose ids these have. The caller holds the lock."""
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
                self.give_back(number, leaders)

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
        ended = _by_namespace(written.ended)
        used: dict[int, list[UsageRow]] = {}
        for row in written.usage:
            used.setdefault(row[0] >> LABEL_BITS, []).append(row)
        added: dict[int, list[int]] = {}
        for i, key in enumerate(written.keys):
            added.setdefault(key >> LABEL_BITS, []).append(i)
        for number in ended.keys() | added.keys() | used.keys():
            name = self._loaded_names.get(number)
            if name is None:
                continue  # it will be read from the ledger when somebody asks
            partition = self._partitions[name]
            places = added.get(number, [])
            partition.apply(
                written.sequence,
                ended=ended.get(number),
                rows=rows_of([column_row(written.keys[i], memories[i], derived[i]) for i in places]),
                vectors=[[derived[i].vector for i in places]],
                usage=used.get(number, ()),
                memories=[memories[i] for i in places],
            )
            self._account(name, partition)
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

    def change_vectors(self, embedder: Embedder, table: TokenTable | None) -> None:
        """Put the vectors and tokens that are staged in place of all, and use their model from here on.

        The caller holds the lock (`writing`).
        """
        self.keeper.wait()  # a graph of the old vectors must not be saved as one of the new
        own = {} if table is None or isinstance(embedder, TokenTable) else {"table": table.name}
        self.ledger.replace_vectors({"embedder": embedder.name, "dim": int(embedder.dim), **own})
        self.embedder, self.table, self.mismatch, self.unusable = embedder, table, None, None
        self.model, self.dim = embedder.name, int(embedder.dim)
        self._vectors_version = self.ledger.manifest()["vectors_version"]
        self._unload_all()
        self.keeper.forget_graphs(self.model)

    def compact(self, now_s: float, policy: Mapping[str, Retention], config: SearchConfig) -> int:
        """Remove what expired and what a policy lets go of, shrink the file; return how many were removed."""
        with self._lock:
            self.check_usable()
            written = self.ledger.compact(round(now_s * 1e6), leaving(self.ledger, policy, config, now_s))
            self._unload_all()
            self.keeper.keep_only(self.ledger.namespace_numbers())
        self.finish_erasing(_FINISHING_WAIT_S)
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
            self.refresh()
        partition = self._partitions.get(namespace)
        if partition is None:
            with self._lock:
                self.check_usable()
                partition = self._partitions.get(namespace) or self._load(namespace)
            if partition is None:
                return None
        with self._recent_lock:
            if namespace in self._partitions:
                self._partitions.move_to_end(namespace)
        return partition

    @property
    def vectors_version(self) -> int:
        """How often all vectors were replaced by another model's, or anew (`reindex`)."""
        return int(self._vectors_version)

    @property
    def vectors_model(self) -> str:
        """What the vectors are of: of any other model, or before a reindex, they say nothing."""
        return f"{self.model}@{self.vectors_version}"

    def indexes(self, partition: Partition) -> Indexes:
        """Return the indexes that a partition has by now."""
        return self.keeper.of(partition.namespace)

    def _load(self, namespace: str) -> Partition | None:
        number = self.ledger.namespace_number(namespace)
        if number is None:
            return None
        with self.ledger.changes(number) as changes:
            partition = Partition(number, self.dim, changes.sequence)
            try:
                partition.apply(
                    changes.sequence, rows=rows_of(changes.rows), vectors=changes.vectors, usage=changes.usage
                )
            except (TypeError, ValueError, OverflowError) as error:
                raise StoreError(
                    f"the columns of {namespace!r:.80} are damaged ({error}); verify() lists which"
                ) from error
        if (
            self.table is not None
            and self.mismatch is None  # another table's tokens are never looked up
            and len(partition.view.tokens)
            and partition.view.tokens.max() >= len(self.table.table)
        ):
            raise StoreError(f"the tokens of {namespace!r:.80} are damaged; verify() lists which")
        with self._recent_lock:
            self._partitions[namespace] = partition
            self._loaded_names[number] = namespace
        self.keeper.attach(partition, namespace)
        self._account(namespace, partition)
        self._evict(keep=namespace)
        return partition

    def _account(self, name: str, partition: Partition) -> None:
        size = partition.bytes() + self.indexes(partition).bytes()
        self._total_bytes += size - self._sizes.get(name, 0)
        self._sizes[name] = size

    def _evict(self, keep: str) -> None:
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
        self.keeper.drop(partition.namespace)

    def _unload_all(self) -> None:
        for name in list(self._partitions):
            self._unload(name)

    def settle_indexes(self) -> None:
        """Return when every namespace that is large enough for an index has it, on disk too."""
        if not self.read_only:
            least = min(self.index_config.dense_rows, self.index_config.keyword_rows)
            for name, count in self.ledger.namespaces():
                if count >= least:
                    self.partition(name)  # loading it makes its indexes due
                    self.keeper.wait()  # before the next namespace may push it out of memory
        self.keeper.wait()

    def refresh(self) -> None:
        """Catch up with another process that writes to the same folder."""
        with self._lock:
            version = self.ledger.data_version()
            if version == self._data_version:
                return
            self._data_version = version
            manifest = self.ledger.manifest()
            now = (manifest.get("embedder"), manifest.get("dim"), manifest.get("vectors_version", 0))
            if now != (self.model, self.dim, self._vectors_version):
                self.model, self.dim = manifest.get("embedder"), manifest.get("dim")
                self._vectors_version = manifest.get("vectors_version", 0)
                if self._adopt and self.embedder is not None and self.model not in (None, self.embedder.name):
                    self.embedder = _known(str(self.model), self.device) or self.embedder
                self.mismatch = self._find_mismatch(self.embedder, None)
                self.table = self._table(manifest, self.companion)
                self._unload_all()
                self.keeper.embedder = self.model or self._model_name()
            for name, partition in list(self._partitions.items()):
                with suppress(_OutdatedError), self._caught_up(name, partition):
                    pass

    @contextmanager
    def _caught_up(self, name: str, partition: Partition) -> Iterator[sqlite3.Connection]:
        """Bring a partition to a moment of the ledger, and lend a connection that sees it. The caller holds the lock.

        Raises:
            _OutdatedError: the ledger has forgotten what happened since; the partition is unloaded.
        """
        labels = partition.view.labels
        last_label = int(labels[-1]) if len(labels) else 0
        with self.ledger.changes(partition.namespace, last_label, partition.sequence) as changes:
            if changes.ended is None:
                if self._partitions.get(name) is partition:
                    self._unload(name)
                raise _OutdatedError
            memories: list[Memory] = []
            if partition.filters:
                found = self.ledger.memories_on(changes.connection, [row[0] for row in changes.rows], name)
                memories = [found[row[0]] for row in changes.rows if row[0] in found]
            partition.apply(
                changes.sequence,
                ended=_by_namespace(changes.ended).get(partition.namespace),
                rows=rows_of(changes.rows),
                vectors=changes.vectors,
                usage=changes.usage,
                memories=memories,
            )
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
                self.refresh()
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


def _known(name: str, device: str) -> Embedder | None:
    """The embedder that a store was made with, if it can be had here: by its name, or by one that it was given."""
    for candidate in (name, *_names_given_to(name)):
        try:
            embedder = load_embedder(candidate, device=device)
        except (ValueError, ModelFilesError):
            continue
        if embedder.name == name:
            return embedder
    return None


def _names_given_to(model: str) -> Iterator[str]:
    """Names under which a user added the model that calls itself so (`jiyi models add`), none of them loaded."""
    for record in available():
        if record.origin == "added" and record.kind == EMBEDDER and record.problem is None:
            with suppress(ModelFilesError):
                if read_onnx_folder(record.folder, EMBEDDER).name == model:
                    yield record.name


def _by_namespace(keys: Sequence[int]) -> dict[int, NDArray[np.int64]]:
    grouped: dict[int, list[int]] = {}
    for key in keys:
        grouped.setdefault(key >> LABEL_BITS, []).append(key & LABEL_MASK)
    return {namespace: np.array(sorted(labels), dtype=np.int64) for namespace, labels in grouped.items()}
