"""Which namespaces have indexes, and building them behind everybody's back.

A namespace that outgrows the exact plans gets a graph and an inverted index, built by one background thread from a
view and swapped in when done. Until then, and whenever an index is missing, the exact plans answer.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jiyi.config import IndexConfig
from jiyi.derived import read_generation, remove_generations, remove_partial, write_generation
from jiyi.partition import Partition, View
from jiyi.recall.graph import Graph, graph_settings
from jiyi.recall.inverted import InvertedIndex, inverted_settings, load_inverted

_COVERAGE: Final = "coverage.json"


@dataclass(slots=True)
class Indexes:
    """What one namespace has."""

    graph: Graph | None = None
    inverted: InvertedIndex | None = None

    def bytes(self) -> int:
        """Return about how much memory they take."""
        return sum(index.bytes() for index in (self.graph, self.inverted) if index is not None)


class IndexKeeper:
    """Loads, builds, saves and hands out the indexes of a store's namespaces.

    Args:
        folder: where generations are kept; None keeps indexes in memory only.
        config: sizes and parameters.
        embedder: name of the model that the vectors come from; graphs of another are not read.
        build: whether this process may build and write (a read-only engine only reads what is there).
    """

    def __init__(self, folder: Path | None, config: IndexConfig, embedder: str, *, build: bool) -> None:
        self._folder = folder
        self._config = config
        self.embedder = embedder
        self._build = build
        self._held: dict[int, Indexes] = {}
        self._jobs: queue.SimpleQueue[tuple[Partition, str] | None] = queue.SimpleQueue()
        self._due: set[int] = set()
        self._state = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self.last_error: Exception | None = None
        """Why the last build could not be saved, if it could not: searches are right all the same."""
        if build and folder is not None:
            remove_partial(folder)

    def of(self, namespace: int) -> Indexes:
        """Return what a namespace has by now."""
        return self._held.get(namespace) or Indexes()

    def attach(self, partition: Partition, namespace: str) -> None:
        """Take up a namespace that was just loaded: read its indexes from disk, or have them built."""
        held = Indexes()
        if self._folder is not None and partition.view.n_live >= min(self._config.dense_rows, self._config.keyword_rows):
            with suppress(Exception):  # whatever is wrong with a derived file, it is built again
                held = self._read(partition, namespace)
        self._held[partition.namespace] = held
        self.consider(partition, namespace)

    def drop(self, namespace: int) -> None:
        """Forget a namespace that was unloaded; what is on disk stays."""
        self._held.pop(namespace, None)

    def remove(self, namespace: int) -> None:
        """Forget a namespace whose memories are gone, on disk too."""
        self.drop(namespace)
        if self._folder is not None:
            for name in ("graph", "keyword"):
                remove_generations(self._folder, f"{name}-{namespace}")

    def consider(self, partition: Partition, namespace: str) -> None:
        """Have a namespace's indexes built in the background if they are due."""
        if not self._build or not self._is_due(partition):
            return
        with self._state:
            if self._closing or partition.namespace in self._due:
                return
            self._due.add(partition.namespace)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="jiyi-indexes", daemon=True)
                self._thread.start()
        self._jobs.put((partition, namespace))

    def wait(self) -> None:
        """Return when every index that is due has been built."""
        with self._state:
            self._state.wait_for(lambda: not self._due or self._closing)

    def close(self) -> None:
        """Cancel what is being built and end the thread."""
        with self._state:
            self._closing = True
            self._state.notify_all()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        self._held.clear()

    # ------------------------------------------------------------------------------------------------ building

    def _is_due(self, partition: Partition) -> bool:
        return self._graph_due(partition) or self._inverted_due(partition)

    def _graph_due(self, partition: Partition) -> bool:
        view = partition.view
        if view.vectors is None or view.n_live < self._config.dense_rows or not view.has_vector.any():
            return False
        graph = self.of(partition.namespace).graph
        return graph is None or graph.is_stale(view, self._config.rebuild_fraction)

    def _inverted_due(self, partition: Partition) -> bool:
        view = partition.view
        if view.n_live < self._config.keyword_rows:
            return False
        inverted = self.of(partition.namespace).inverted
        return inverted is None or inverted.is_stale(view, self._config.rebuild_fraction)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closing:
            partition, namespace = job
            try:
                while self._is_due(partition) and not self._closing:
                    if not self._build_for(partition, namespace):
                        break
            except Exception as error:  # an index that cannot be built costs speed, never an answer
                self.last_error = error
            finally:
                with self._state:
                    self._due.discard(partition.namespace)
                    self._state.notify_all()

    def _build_for(self, partition: Partition, namespace: str) -> bool:
        view = partition.view
        if self._graph_due(partition):
            graph = Graph.build(view, self._config, lambda: self._closing)
            if graph is None:
                return False
            self._publish(partition, graph=graph)
            self._save(
                f"graph-{partition.namespace}", view, lambda: graph.settings(namespace, self.embedder), graph.save
            )
        if self._inverted_due(partition):
            inverted = self._build_inverted(partition, namespace, view)
            if inverted is None:
                return False
            self._publish(partition, inverted=inverted)
        return True

    def _publish(self, partition: Partition, graph: Graph | None = None, inverted: InvertedIndex | None = None) -> None:
        before = self._held.get(partition.namespace)
        if before is not None:  # unloaded meanwhile: nobody is there to use it
            self._held[partition.namespace] = Indexes(graph or before.graph, inverted or before.inverted)

    def _build_inverted(self, partition: Partition, namespace: str, view: View) -> InvertedIndex | None:
        terms = view.terms_by_id()
        if self._folder is None:
            return InvertedIndex.build(view, terms, None, lambda: self._closing)
        built: list[InvertedIndex] = []

        def fill(folder: Path) -> None:
            index = InvertedIndex.build(view, terms, folder, lambda: self._closing)
            if index is None:
                raise _Cancelled
            built.append(index)
            coverage = {"last_label": index.last_label, "documents": index.documents}
            (folder / _COVERAGE).write_text(json.dumps(coverage), encoding="utf-8")

        try:
            generation = write_generation(
                self._folder, f"keyword-{partition.namespace}", view.sequence, inverted_settings(namespace), fill
            )
        except _Cancelled:
            return None
        return load_inverted(generation, built[0].last_label, built[0].documents)

    def _save(self, name: str, view: View, settings: Callable[[], dict[str, object]], fill: Callable[[Path], None]) -> None:
        if self._folder is None:
            return
        try:
            write_generation(self._folder, name, view.sequence, settings(), fill)
        except OSError as error:
            self.last_error = error

    def _read(self, partition: Partition, namespace: str) -> Indexes:
        assert self._folder is not None
        held = Indexes()
        if partition.dim is not None and partition.view.n_live >= self._config.dense_rows:
            settings = graph_settings(namespace, self.embedder, partition.dim, self._config.graph_links)
            folder = read_generation(self._folder, f"graph-{partition.namespace}", settings)
            if folder is not None:
                held.graph = Graph.load(folder, partition.dim, self._config)
        if partition.view.n_live >= self._config.keyword_rows:
            folder = read_generation(self._folder, f"keyword-{partition.namespace}", inverted_settings(namespace))
            if folder is not None:
                coverage = json.loads((folder / _COVERAGE).read_text(encoding="utf-8"))
                held.inverted = load_inverted(folder, coverage["last_label"], coverage["documents"])
        return held


class _Cancelled(Exception):
    """The engine closes while an index is being built."""
