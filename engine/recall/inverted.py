"""The keyword leg's index: Tantivy over one namespace, by terms that are cut here and never by a query parser.

A document is a label and its terms as hexadecimal hashes, so Tantivy's analysis (which finds nothing in Chinese and
drops long tokens) has nothing to do, no memory's wording stands in its files, and a query is a list of term queries.
Like the graph it is built aside from a view and never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.partition import View
from jiyi.terms import ANALYZER_VERSION

if TYPE_CHECKING:
    import tantivy

_HEAP_BYTES: Final = 64 << 20
_BATCH: Final = 1_000
# Tantivy's statistics and constants are not the kernel's: so many times the pool are taken for the kernel to score.
_OVERFETCH: Final = 4


class InvertedIndex:
    """A Tantivy index of one namespace at one moment."""

    def __init__(self, index: tantivy.Index, last_label: int, documents: int, folder: Path | None) -> None:
        self._index = index
        self._searcher = index.searcher()
        # Tantivy opens a segment without its missing files and says so at the first query that needs them.
        self._searcher.search(self._any_of(np.zeros(1, dtype=np.uint64)), limit=1, count=False)
        self.error: ValueError | None = None
        """Why the index cannot be read any more, if it cannot: it is then stale, and finds nothing."""
        self.last_label = last_label
        self.documents = documents
        self._folder = folder

    @staticmethod
    def _schema() -> tantivy.Schema:
        import tantivy

        builder = tantivy.SchemaBuilder()
        builder.add_unsigned_field("label", stored=False, indexed=False, fast=True)
        builder.add_text_field("terms", stored=False, tokenizer_name="whitespace", index_option="freq")
        return builder.build()

    @classmethod
    def build(
        cls, view: View, terms_by_id: NDArray[np.uint64], folder: Path | None, cancelled: Callable[[], bool]
    ) -> InvertedIndex | None:
        """Build an index over a view's live rows, in a folder or in memory; None when cancelled or without rows."""
        import tantivy

        rows = np.flatnonzero(view.live)
        if len(rows) == 0:
            return None
        words = [f"{term:016x}" for term in terms_by_id.tolist()]
        index = tantivy.Index(cls._schema(), path=None if folder is None else str(folder))
        # One thread: the same memories give the same segments, and ties the same order, on every run.
        writer = index.writer(_HEAP_BYTES, num_threads=1)
        for done, row in enumerate(rows):
            if done % _BATCH == 0 and cancelled():
                writer.rollback()
                return None
            start, end = view.term_indptr[row], view.term_indptr[row + 1]
            document = tantivy.Document()
            document.add_unsigned("label", int(view.labels[row]))
            document.add_text(
                "terms",
                " ".join(
                    words[term] if freq == 1 else " ".join([words[term]] * freq)
                    for term, freq in zip(
                        view.term_ids[start:end].tolist(), view.term_freqs[start:end].tolist(), strict=True
                    )
                ),
            )
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        return cls(index, int(view.labels[-1]), len(rows), folder)

    def covered(self, view: View) -> int:
        """Return how many of a view's first rows were there when the index was built."""
        return int(np.searchsorted(view.labels, self.last_label, side="right"))

    def is_stale(self, view: View, fraction: float) -> bool:
        """Return whether so large a share of the view's rows is not in the index, or has died, that a new one pays."""
        if self.error is not None:
            return True
        covered = self.covered(view)
        missing = view.n - covered
        dead = self.documents - int(np.count_nonzero(view.live[:covered]))
        return missing + dead > fraction * max(self.documents, 1)

    def search(
        self, view: View, terms: NDArray[np.uint64], eligible: NDArray[np.uint8], count: int
    ) -> NDArray[np.int64] | None:
        """Return the eligible rows among the best by Tantivy's score: at least `count`, or all that match.

        None when the filter leaves too few of what Tantivy finds, or the index cannot be read.
        """
        if self.error is not None:
            return None
        try:
            return self._found(view, self._any_of(terms), eligible, count)
        except ValueError as error:  # Tantivy's for everything
            self.error = error
            return None

    def _any_of(self, terms: NDArray[np.uint64]) -> tantivy.Query:
        import tantivy

        schema = self._index.schema
        return tantivy.Query.boolean_query(
            [
                (tantivy.Occur.Should, tantivy.Query.term_query(schema, "terms", f"{term:016x}", "freq"))
                for term in terms.tolist()
            ]
        )

    def _found(
        self, view: View, query: tantivy.Query, eligible: NDArray[np.uint8], count: int
    ) -> NDArray[np.int64] | None:
        limit = min(_OVERFETCH * count, self.documents)
        while True:
            hits = self._searcher.search(query, limit=limit, count=False).hits
            labels = self._searcher.fast_field_values("label", [address for _, address in hits])
            rows: NDArray[np.int64] = view.rows_of_labels(np.sort(np.array(labels, dtype=np.int64)))
            rows = rows[eligible[rows] == 1]
            if len(rows) >= min(count * _OVERFETCH // 2, count * 2) or len(hits) < limit:
                return rows
            if limit == self.documents or limit > 64 * count:
                return None
            limit = min(limit * 4, self.documents)

    def bytes(self) -> int:
        """Return about how much memory the index takes: memory-mapped files count as none."""
        return 0 if self._folder is not None else self.documents * 400


def inverted_settings(store_id: str, namespace: str, analyzer: str | None = ANALYZER_VERSION) -> dict[str, Any]:
    """Return what must agree for a saved index to be of use. analyzer: the version that cut the terms."""
    return {
        "format": 1,
        "store": store_id,
        "namespace": namespace,
        "analyzer": analyzer,
        "tantivy": version("tantivy"),
    }


def load_inverted(folder: Path, last_label: int, documents: int) -> InvertedIndex:
    """Open an index that was built in a folder. The caller has verified its files."""
    import tantivy

    return InvertedIndex(tantivy.Index.open(str(folder)), last_label, documents, folder)
