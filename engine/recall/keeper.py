"""Which namespaces have indexes, and building them behind everybody's back.

A namespace that outgrows the exact plans gets a graph and an inverted index, built by one background thread from a
view and swapped in when done. Until then, and whenever an index is missing, the exact plans answer.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import re
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from jiyi.config import IndexConfig
from jiyi.derived import (
    read_generation,
    remove_generations,
    remove_newer,
    remove_partial,
    remove_superseded,
    write_generation,
)
from jiyi.erase import remove_index_files
from jiyi.heap import give_back
from jiyi.partition import Partition, View
from jiyi.recall.graph import Graph, graph_settings
from jiyi.recall.inverted import InvertedIndex, inverted_settings, load_inverted

_COVERAGE: Final = "coverage.json"
# How Rust writes the operating system's errors.
_OS_ERROR: Final = re.compile(r"\bos error (\d+)|\bcode: (\d+)")


@dataclass(frozen=True, slots=True)
class Indexes:
    """What one namespace has."""

    graph: Graph | None = None
    inverted: InvertedIndex | None = None

    def bytes(self) -> int:
        """Return about how much memory they take."""
        return sum(index.bytes() for index in (self.graph, self.inverted) if index is not None)


@dataclass(frozen=True, slots=True)
class _Held:
    """A namespace that is in memory."""

    partition: Partition
    name: str
    indexes: Indexes
    embedder: str
    analyzer: str | None


class IndexKeeper:
    """Loads, builds, saves and hands out the indexes of a store's namespaces.

    Args:
        folder: where generations are kept; None keeps indexes in memory only.
        config: sizes and parameters.
        store_id: what tells this store from every other; indexes of another are not read.
        sequence: the ledger's sequence number at opening. Indexes that claim to show a later one belong to a ledger
            that was replaced by an older copy, or that lost its end with the power: they are removed.
        embedder: name of the model that the vectors come from; graphs of another are not read.
        analyzer: version of the analysis that cut the terms; inverted indexes of another are not read.
        build: whether this process may build and write (a read-only engine only reads what is there).
    """

    def __init__(
        self,
        folder: Path | None,
        config: IndexConfig,
        *,
        store_id: str,
        sequence: int,
        embedder: str,
        analyzer: str | None,
        build: bool,
    ) -> None:
        self._folder = folder
        self._store_id = store_id
        self._config = config
        self.embedder = embedder
        self.analyzer = analyzer
        self._build = build
        self._held: dict[int, _Held] = {}
        self._jobs: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._due: set[int] = set()
        self._building: int | None = None
        self._halted: set[int] = set()
        self._state = threading.Condition()
        # Tantivy opens a folder's files one by one and takes one that was just removed for one that never was.
        self._files = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._pid = os.getpid()
        self.on_built: Callable[[int], None] = lambda _: None
        """Told when a namespace has got an index, in the thread that builds; it must not wait for a lock."""
        self.last_error: Exception | None = None
        """Why the last build could not be saved, if it could not: searches are right all the same."""
        self._unsaved: dict[int, _Save] = {}
        self._to_save: set[int] = set()
        self._not_before_s: dict[int, float] = {}
        _keepers.add(self)
        if build and folder is not None:
            remove_partial(folder)
            remove_newer(folder, sequence)
            remove_superseded(folder)

    def of(self, namespace: int) -> Indexes:
        """Return what a namespace has by now."""
        held = self._held.get(namespace)
        return _NONE if held is None else held.indexes

    def attach(self, partition: Partition, namespace: str) -> None:
        """Take up a namespace that was just loaded: read its indexes from disk, or have them built."""
        self.take(partition, namespace, self.read(partition, namespace, self.embedder, self.analyzer))

    def take(self, partition: Partition, namespace: str, indexes: Indexes) -> None:
        """Take up a namespace with indexes that were read before (`read`); what is missing is built."""
        self._held[partition.namespace] = _Held(partition, namespace, indexes, self.embedder, self.analyzer)
        self.consider(partition.namespace)

    def read(self, partition: Partition, namespace: str, embedder: str, analyzer: str | None) -> Indexes:
        """Return what indexes there are on disk of a partition, by the names of what made its vectors and terms."""
        if self._folder is not None and partition.view.n_live >= min(
            self._config.dense_rows, self._config.keyword_rows
        ):
            with suppress(Exception), self._files:  # whatever is wrong with a derived file, it is built again
                return self._read(self._folder, partition, namespace, embedder, analyzer)
        return _NONE

    def drop(self, namespace: int) -> None:
        """Forget a namespace that was unloaded; what is on disk stays."""
        self._held.pop(namespace, None)
        self._unsaved.pop(namespace, None)
        self._to_save.discard(namespace)
        self._not_before_s.pop(namespace, None)

    def keep_only(self, namespaces: set[int]) -> None:
        """Remove the files of every other namespace: their memories are gone."""
        if self._folder is not None:
            with self._files:
                remove_generations(self._folder, lambda name: int(name.rpartition("-")[2]) not in namespaces)
                remove_superseded(self._folder)

    def keep_graphs(self, generations: set[int]) -> None:
        """Remove the graphs of every other generation of the columns from disk: their vectors are gone."""
        if self._folder is not None:
            kept = {_graph_name(number, "") for number in generations}
            with self._files:
                remove_generations(
                    self._folder, lambda name: name.startswith("graph") and f"{name.rpartition('-')[0]}-" not in kept
                )

    def erase(self, namespaces: set[int], wait_s: float) -> None:
        """Drop the indexes of namespaces from memory and disk, with what is being built, and have them built anew.

        The partitions that are in memory must show by now what is gone.

        Raises:
            StoreError: a file cannot be removed.
        """
        with self._state:
            self._halted |= namespaces
            for number in namespaces & self._held.keys():
                self._held[number] = replace(self._held[number], indexes=_NONE)
            self._state.wait_for(lambda: self._building not in namespaces)
            for number in namespaces:  # it holds what is erased
                self._unsaved.pop(number, None)
                self._to_save.discard(number)
        try:
            if self._folder is not None:
                remove_index_files(self._folder, namespaces, wait_s)
        finally:
            with self._state:
                self._halted -= namespaces
            for number in namespaces:
                self.consider(number)

    def consider(self, namespace: int) -> None:
        """Have a namespace's indexes built in the background if they are due."""
        held = self._held.get(namespace)
        if not self._build or held is None or not self._is_due(held):
            return
        if time.monotonic() < self._not_before_s.get(namespace, 0.0):
            return  # it has just failed: on a full disk each write would try again
        with self._state:
            if self._closing or namespace in self._due or namespace in self._halted:
                return
            self._due.add(namespace)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="jiyi-indexes", daemon=True)
                self._thread.start()
        self._jobs.put(namespace)

    def wait(self) -> None:
        """Return when every index that is due has been built."""
        with self._state:
            self._state.wait_for(lambda: not self._due or self._closing)

    def close(self) -> None:
        """Cancel what is being built and end the thread. Closing twice is fine."""
        if os.getpid() != self._pid:
            return  # a forked child has no such thread, and one of the parent's may have held the lock
        with self._state:
            self._closing = True
            self._state.notify_all()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        self._held.clear()

    # ------------------------------------------------------------------------------------------------ building

    def _is_due(self, held: _Held) -> bool:
        return held.partition.namespace in self._to_save or self._graph_due(held) or self._inverted_due(held)

    def _graph_due(self, held: _Held) -> bool:
        view, graph = held.partition.view, held.indexes.graph
        if view.vectors is None or view.n_live < self._config.dense_rows:
            return False
        if np.count_nonzero(view.live & view.has_vector) < self._config.dense_rows:
            return False
        return graph is None or graph.is_stale(view, self._config.rebuild_fraction)

    def _inverted_due(self, held: _Held) -> bool:
        view, inverted = held.partition.view, held.indexes.inverted
        if view.n_live < self._config.keyword_rows:
            return False
        return inverted is None or inverted.is_stale(view, self._config.rebuild_fraction)

    def _work(self) -> None:
        while (namespace := self._jobs.get()) is not None and not self._closing:
            halted = False
            try:
                # Asked anew each time: the namespace may have been written to, unloaded or loaded again meanwhile.
                while (held := self._held.get(namespace)) is not None and self._is_due(held) and not self._closing:
                    halted = not self._begin(namespace)
                    if halted:
                        break
                    self._build_for(held)
            except Exception as error:  # an index that cannot be built costs speed, never an answer
                self.last_error = error
                self._not_before_s[namespace] = time.monotonic() + _RETRY_AFTER_S
            finally:
                with self._state:
                    self._building = None
                    self._due.discard(namespace)
                    self._state.notify_all()
                if halted:
                    self.consider(namespace)  # while it was due, nobody else could have it built later

    def _begin(self, namespace: int) -> bool:
        """Mark a namespace as the one that is being built, unless it must not be now."""
        with self._state:
            halted = namespace in self._halted
            self._building = None if halted else namespace
            self._state.notify_all()
        return not halted

    def _stopped(self, namespace: int) -> bool:
        """Whether what is being built for a namespace is not wanted any more."""
        return self._closing or namespace in self._halted

    def _build_for(self, held: _Held) -> None:
        """Build one index that is due, publish it, save it."""
        view, number = held.partition.view, held.partition.namespace
        left = self._unsaved.get(number)
        if number in self._to_save:
            self._to_save.discard(number)
            if left is not None:
                self._save(number, left.name, left.view, left.settings, left.fill)
        elif self._graph_due(held):
            graph = Graph.build(view, self._config, lambda: self._stopped(number))
            if graph is None or self._stopped(number):
                return
            self._publish(held, replace(held.indexes, graph=graph))
            self._save(
                number,
                _graph_name(held.partition.generation, number),
                view,
                lambda: graph.settings(self._store_id, held.name, held.embedder),
                graph.save,
            )
        else:
            inverted = self._build_inverted(number, held, view)
            if inverted is not None:
                self._publish(held, replace(held.indexes, inverted=inverted))
        give_back()  # Tantivy's writer had 64 MB
        self._not_before_s.pop(number, None)
        if not self._unsaved and not self._not_before_s:
            self.last_error = None

    def _publish(self, held: _Held, indexes: Indexes) -> None:
        number = held.partition.namespace
        with self._state:
            now = self._held.get(number)
            if now is not None and now.partition is held.partition and number not in self._halted:
                self._held[number] = replace(now, indexes=indexes)
        self.on_built(number)

    def _build_inverted(self, number: int, held: _Held, view: View) -> InvertedIndex | None:
        terms = view.terms_by_id()
        if self._folder is None:
            return InvertedIndex.build(view, terms, None, lambda: self._stopped(number))
        built: list[InvertedIndex] = []

        def fill(folder: Path) -> None:
            try:
                index = InvertedIndex.build(view, terms, folder, lambda: self._stopped(number))
            except ValueError as error:  # Tantivy's for everything
                found = _OS_ERROR.search(str(error))
                if found is None:
                    raise
                raise OSError(int(found[1] or found[2]), str(error)) from error
            if index is None:
                raise _Cancelled
            built.append(index)
            coverage = {"last_label": index.last_label, "documents": index.documents}
            (folder / _COVERAGE).write_text(json.dumps(coverage), encoding="utf-8")

        try:
            generation = write_generation(
                self._folder,
                f"keyword-{number}",
                view.sequence,
                inverted_settings(self._store_id, held.name, held.analyzer),
                fill,
                swapping=self._files,
            )
        except _Cancelled:
            return None
        with self._files:
            return load_inverted(generation, built[0].last_label, built[0].documents)

    def _save(
        self,
        number: int,
        name: str,
        view: View,
        settings: Callable[[], dict[str, object]],
        fill: Callable[[Path], None],
    ) -> None:
        if self._folder is None:
            return
        try:
            write_generation(self._folder, name, view.sequence, settings(), fill, swapping=self._files)
        except OSError as error:
            self.last_error = error
            self._unsaved[number] = _Save(name, view, settings, fill)
        else:
            self._unsaved.pop(number, None)

    def retry(self) -> None:
        """Have saved, or built, in the background what could not be before: the disk may have room again."""
        self.last_error = None  # what fails again says so again
        self._not_before_s.clear()
        self._to_save |= self._unsaved.keys()
        for number in list(self._held):
            self.consider(number)

    def _read(self, folder: Path, partition: Partition, namespace: str, embedder: str, analyzer: str | None) -> Indexes:
        view, number = partition.view, partition.namespace
        graph, inverted = None, None
        if partition.dim is not None and view.n_live >= self._config.dense_rows:
            settings = graph_settings(self._store_id, namespace, embedder, partition.dim, self._config.graph_links)
            generation = read_generation(folder, _graph_name(partition.generation, number), settings, view.sequence)
            if generation is not None:
                graph = Graph.load(generation, partition.dim, self._config)
        if view.n_live >= self._config.keyword_rows:
            settings = inverted_settings(self._store_id, namespace, analyzer)
            generation = read_generation(folder, f"keyword-{number}", settings, view.sequence)
            if generation is not None:
                coverage = json.loads((generation / _COVERAGE).read_text(encoding="utf-8"))
                inverted = load_inverted(generation, coverage["last_label"], coverage["documents"])
        return Indexes(graph, inverted)


def _graph_name(generation: int, namespace: int | str) -> str:
    """The name of a namespace's graphs on disk: one for each generation of the columns, as each has other vectors."""
    return f"graph.{generation}-{namespace}" if generation else f"graph-{namespace}"


_NONE: Final = Indexes()

# How long a build that failed is not tried again by itself.
_RETRY_AFTER_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Save:
    """An index that is in use and could not be saved."""

    name: str
    view: View
    settings: Callable[[], dict[str, object]]
    fill: Callable[[Path], None]


# A thread inside hnswlib or Tantivy when the interpreter goes away takes the process down with it.
_keepers: weakref.WeakSet[IndexKeeper] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for keeper in list(_keepers):
        keeper.close()


class _Cancelled(Exception):
    """The engine closes while an index is being built."""
