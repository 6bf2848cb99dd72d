"""A generation of the columns that does not serve, as a store to search in: to compare what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from jiyi.errors import ClosedError, StoreError
from jiyi.generations import Generation
from jiyi.memory import Memory
from jiyi.models.protocols import Embedder, TokenTable
from jiyi.partition import Partition
from jiyi.recall.keeper import Indexes
from jiyi.store import Ready, Store
from jiyi.terms import ANALYZER_VERSION

_NONE: Final = Indexes()


class Beside(Store):
    """Reads another generation of an open store's ledger. It writes nothing, follows nothing and owns nothing.

    Its partitions show the moment at which they were loaded. They become the store's when the generation serves.

    Args:
        store: the open one.
        found: the generation.
        embedder, table: what its vectors come from, and what its tokens are rows of.
    """

    def __init__(self, store: Store, found: Generation, embedder: Embedder | None, table: TokenTable | None) -> None:
        self._base = store
        self._found = found
        self.folder = None
        self.read_only = False
        self.ledger = store.ledger
        self.id = store.id
        self.embedder, self.table, self.mismatch, self.unusable = embedder, table, None, None
        self.model = found.embedder
        self.dim = found.dim
        self._vectors_version = found.vectors_version
        self.stale_terms = found.analyzer != ANALYZER_VERSION
        self.generation = self.settled = found.number
        self.device, self.cross_encoders, self.companion = store.device, store.cross_encoders, store.companion
        self.index_config = store.index_config
        self._budget_bytes = store.budget_bytes
        self.loaded: dict[str, Partition] = {}
        self._read_namespaces: dict[str, Ready] = {}

    def check_usable(self) -> None:
        """Raise what the store raises."""
        self._base.check_usable()

    def wait_for_writer(self) -> None:
        """Return at once: what is shown does not change."""

    def memories(self, keys: Sequence[int], namespace: str) -> dict[int, Memory]:
        """Return memories of one namespace by key, as the store does."""
        return self._base.memories(keys, namespace)

    def left_out(self, namespaces: Sequence[str]) -> list[str]:
        """Return what searches leave out because it is damaged."""
        return self._base.left_out(namespaces)

    def partition(self, namespace: str) -> Partition | None:
        """Return a namespace's partition, as of when it was first asked for."""
        partition = self.loaded.get(namespace)
        if partition is None:
            read = self._base.read_beside(namespace, self._found)
            if read is None:
                return None
            self._read_namespaces[namespace] = read
            partition = self.loaded[namespace] = read.partition
        return partition

    def indexes(self, partition: Partition) -> Indexes:
        """Return none: the exact plans answer."""
        return _NONE

    def size_of(self, namespace: str) -> int:
        """Return how much memory a namespace takes; 0 when it is not loaded."""
        return self.loaded[namespace].bytes() if namespace in self.loaded else 0

    def let_go(self, keep: Mapping[str, object]) -> None:
        """Unload every namespace but some."""
        for name in [name for name in self.loaded if name not in keep]:
            del self.loaded[name], self._read_namespaces[name]

    def make_ready(self) -> dict[str, Ready]:
        """Return, by namespace, what the store has in memory, as this generation has it: as much as its budget allows.

        Those used last come first. Their indexes are those that are on disk.
        """
        wanted = self._base.loaded_namespaces()
        self.let_go(dict.fromkeys(wanted))
        left = self._budget_bytes
        ready: dict[str, Ready] = {}
        for name in wanted:
            if name not in self.loaded and self._base.size_of(name) > left:
                continue
            try:
                partition = self.partition(name)
            except ClosedError:
                raise
            except StoreError:  # damaged: who asks for it will be told
                continue
            if partition is not None:
                left -= partition.bytes()
                indexes = self._base.indexes_on_disk(partition, name, self._found)
                ready[name] = replace(self._read_namespaces[name], indexes=indexes)
        return ready
