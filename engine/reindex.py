"""Changes a store's embedder: every memory is embedded anew beside what is in use, then all are put in place at once.

Searches and adds go on meanwhile, with the old vectors. A run that was stopped goes on where it was: what is done is
staged in the ledger, under the name of the model it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from jiyi.analysis import analyse
from jiyi.ledger import LABEL_MASK, Ledger
from jiyi.memory import Memory
from jiyi.models.protocols import Embedder, TokenTable
from jiyi.store import Store

#: Told after each batch: memories done, memories in all.
Report = Callable[[int, int], None]

# Enough for a model's batches, few enough that a stopped run loses seconds.
_BATCH: Final = 256
# The second pass embeds what was added during the first, and so on: little is left for the last, when adds must wait.
_PASSES: Final = 3


def reindex(store: Store, embedder: Embedder, table: TokenTable | None, report: Report | None = None) -> int:
    """Embed every memory with another embedder, or again with the same; return how many there are.

    Args:
        store: open for writing.
        embedder: what the store's vectors come from afterwards.
        table: what its tokens are rows of afterwards.
        report: told of the progress.

    Raises:
        StoreError: the ledger could not be written; what is done is kept for the next run, what is in use is untouched.
        ValueError, DimensionError: the embedder returned no usable vectors; likewise.
    """
    staged = _Staged(store.ledger, f"{embedder.name}/{embedder.dim}/{table.name if table is not None else ''}")
    staged.begin()
    done = staged.count()
    for _ in range(_PASSES):
        for part in staged.missing(up_to=store.ledger.manifest()["sequence"]):
            staged.put(part, embedder, table)
            done += len(part)
            if report is not None:
                report(done, max(done, store.ledger.count("1", ())))
    with store.writing():  # what was added meanwhile, while nothing more can be
        for part in staged.missing(up_to=LABEL_MASK):
            staged.put(part, embedder, table)
        count = store.ledger.count("1", ())
        store.change_vectors(embedder, table)
    return count


@dataclass(frozen=True, slots=True)
class _Staged:
    """The staging table of a ledger."""

    ledger: Ledger
    model: str

    def begin(self) -> None:
        """Make the table, or empty it of what was meant for another model."""
        if self.ledger.manifest().get("staged") == self.model:
            return
        self.ledger.restage(self.model)

    def count(self) -> int:
        return self.ledger.count("m.key IN (SELECT key FROM staged)", ())

    def missing(self, up_to: int) -> Iterator[list[tuple[int, Memory]]]:
        """Yield memories that are not staged, in batches, by key; none with a label above `up_to`."""
        last = -1
        while True:
            part = list(
                self.ledger.select(
                    "m.key > ? AND m.key & ? <= ? AND m.key NOT IN (SELECT key FROM staged)",
                    (last, LABEL_MASK, up_to),
                    order="m.key",
                    limit=_BATCH,
                )
            )
            if not part:
                return
            last = part[-1][0]
            yield part

    def put(self, part: list[tuple[int, Memory]], embedder: Embedder, table: TokenTable | None) -> None:
        memories = [memory for _, memory in part]
        rows = analyse(memories, [None] * len(memories), embedder, table)
        self.ledger.stage([(key, row.vector, row.tokens) for (key, _), row in zip(part, rows, strict=True)])
