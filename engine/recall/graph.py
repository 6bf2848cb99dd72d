"""The dense leg's index: an hnswlib graph over one namespace's distinct vectors.

A graph is built from a view, aside, and never changes: hnswlib crashes when it grows under a search, and hides the
distinct vectors behind many equal ones, so nothing is added or deleted and equal vectors share one node. Rows stored
since are scanned beside it; rows that died are dropped from its answers; a new graph is built when either is too many.

Insertion is in one thread and seeded, so that the same memories give the same graph on every run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.config import IndexConfig
from jiyi.partition import View

if TYPE_CHECKING:
    import hnswlib

_SEED: Final = 100
# Between two batches a build can be cancelled.
_BATCH: Final = 1_000


class Graph:
    """An hnswlib index and what its nodes stand for."""

    def __init__(
        self,
        index: hnswlib.Index,
        member_indptr: NDArray[np.int64],
        member_labels: NDArray[np.int64],
        last_label: int,
        search_width: int,
    ) -> None:
        self._index = index
        # hnswlib forgets it when it loads, and answers with a width of 10.
        index.set_ef(search_width)
        self._member_indptr = member_indptr
        self._member_labels = member_labels
        self.last_label = last_label

    @classmethod
    def build(cls, view: View, config: IndexConfig, cancelled: Callable[[], bool]) -> Graph | None:
        """Build a graph over a view's live rows that have a vector; None when cancelled, or when there are none."""
        # Imported only when a graph is needed: hnswlib is compiled for the processor it was installed on, and an
        # environment moved to an older one dies at this import.
        import hnswlib

        if view.vectors is None:
            return None
        rows = np.flatnonzero(view.live & view.has_vector)
        if len(rows) == 0:
            return None
        nodes, members = _distinct(view.vectors, rows)
        index = hnswlib.Index(space="ip", dim=view.vectors.shape[1])
        index.init_index(len(nodes), M=config.graph_links, ef_construction=config.graph_build_width, random_seed=_SEED)
        for start in range(0, len(nodes), _BATCH):
            if cancelled():
                return None
            batch = nodes[start : start + _BATCH]
            index.add_items(view.vectors[batch], np.arange(start, start + len(batch)), num_threads=1)
        order = np.lexsort((rows, members))
        indptr = np.zeros(len(nodes) + 1, dtype=np.int64)
        np.cumsum(np.bincount(members, minlength=len(nodes)), out=indptr[1:])
        return cls(index, indptr, view.labels[rows[order]], int(view.labels[-1]), config.graph_search_width)

    def covered(self, view: View) -> int:
        """Return how many of a view's first rows were there when the graph was built."""
        return int(np.searchsorted(view.labels, self.last_label, side="right"))

    def is_stale(self, view: View, fraction: float) -> bool:
        """Return whether so large a share of the view's rows is not in the graph, or has died, that a new one pays."""
        covered = self.covered(view)
        live_here = int(np.count_nonzero(view.live[:covered] & view.has_vector[:covered]))
        missing = view.n - covered
        dead = len(self._member_labels) - live_here
        return missing + dead > fraction * max(len(self._member_labels), 1)

    def search(
        self, view: View, vector: NDArray[np.float32], eligible: NDArray[np.uint8], count: int
    ) -> NDArray[np.int64] | None:
        """Return about `count` eligible rows near a unit vector, or None when the graph does not yield so many."""
        n_nodes = len(self._member_indptr) - 1
        n_eligible = int(np.count_nonzero(eligible[: self.covered(view)]))
        count = min(count, n_eligible)
        if count == 0:
            return np.empty(0, dtype=np.int64)
        # Ask for so many more that the expected number passes, twice over.
        wanted = min(n_nodes, count if n_eligible == len(self._member_labels) else 2 * count * view.n // n_eligible + 1)
        while True:
            try:
                nodes, _ = self._index.knn_query(vector, k=wanted, num_threads=1)
            except RuntimeError:  # fewer reachable than asked for
                return None
            rows: NDArray[np.int64] = self._rows(view, nodes[0].astype(np.int64))
            rows = rows[eligible[rows] == 1]
            if len(rows) >= count:
                return rows
            if wanted == n_nodes or wanted > 16 * count:
                return None
            wanted = min(n_nodes, wanted * 4)

    def _rows(self, view: View, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        starts, ends = self._member_indptr[nodes], self._member_indptr[nodes + 1]
        if int((ends - starts).max()) == 1:
            labels = self._member_labels[starts]
        else:
            labels = np.concatenate([self._member_labels[s:e] for s, e in zip(starts, ends, strict=True)])
        return view.rows_of_labels(np.sort(labels))

    def bytes(self) -> int:
        """Return about how much memory the graph takes."""
        return int(self._index.index_file_size()) + self._member_indptr.nbytes + self._member_labels.nbytes

    # -------------------------------------------------------------------------------------------------- files

    def settings(self, store_id: str, namespace: str, embedder: str) -> dict[str, Any]:
        """Return what must agree for a saved graph to be of use."""
        return graph_settings(store_id, namespace, embedder, int(self._index.dim), int(self._index.M))

    def save(self, folder: Path) -> None:
        """Write the graph into an empty folder.

        Raises:
            OSError: hnswlib reports no failure of its own, so what it wrote is measured.
        """
        path = folder / "graph.bin"
        self._index.save_index(str(path))
        expected = int(self._index.index_file_size())
        written = path.stat().st_size if path.exists() else 0
        if written != expected:
            raise OSError(f"{written} of {expected} bytes of {path} were written; the disk may be full")
        np.savez(
            folder / "members.npz",
            indptr=self._member_indptr,
            labels=self._member_labels,
            last_label=np.array(self.last_label),
        )

    @classmethod
    def load(cls, folder: Path, dim: int, config: IndexConfig) -> Graph:
        """Read a graph that `save` wrote. The caller has verified the files and that the settings agree."""
        import hnswlib

        with np.load(folder / "members.npz", allow_pickle=False) as members:
            indptr, labels, last_label = members["indptr"], members["labels"], int(members["last_label"])
        index = hnswlib.Index(space="ip", dim=dim)
        index.load_index(str(folder / "graph.bin"), max_elements=len(indptr) - 1)
        return cls(index, indptr, labels, last_label, config.graph_search_width)


def graph_settings(store_id: str, namespace: str, embedder: str, dim: int, links: int) -> dict[str, Any]:
    """Return what a graph on disk was built with."""
    return {
        "format": 1,
        "store": store_id,
        "namespace": namespace,
        "embedder": embedder,
        "dim": dim,
        "space": "ip",
        "links": links,
    }


def _distinct(vectors: NDArray[np.float32], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of every distinct vector, in the order stored, and for each row which of them it equals."""
    first: dict[bytes, int] = {}
    nodes: list[int] = []
    members = np.empty(len(rows), dtype=np.int64)
    for i, row in enumerate(rows):
        content = vectors[row].tobytes()
        node = first.setdefault(content, len(nodes))
        if node == len(nodes):
            nodes.append(int(row))
        members[i] = node
    return np.array(nodes, dtype=np.int64), members
