"""Rows of files on their way to the store: in batches, each row a memory or the reason why it is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jiyi.analysis import as_vector
from jiyi.errors import DimensionError
from jiyi.files.checkpoints import Position
from jiyi.files.sources import Source
from jiyi.memory import Memory, checked_name
from jiyi.quoted import quoted

#: What one transaction writes.
BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 8 * 2**20

#: The field of a row that says what it is merged into; a memory itself has none such.
MERGED_INTO: Final = "merged_into"

#: How much of a row is shown of it where it is reported.
SHOWN_CHARACTERS: Final = 80


class Reject(NamedTuple):
    """A row that is no memory."""

    source: str
    unit: str
    """ "line" or "row"."""
    number: int
    """From 1."""
    reason: str
    content: str
    """How it begins."""

    def __str__(self) -> str:
        return f"{self.source}, {self.unit} {self.number}: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as a line of a reject file."""
        return {"source": self.source, self.unit: self.number, "reason": self.reason, "content": self.content}


class HiddenRow(NamedTuple):
    """A row of a memory that is merged into another one (`originals`), and comes back when that is undone."""

    place: int
    """How many other memories of the batch stand before it."""
    memory: Memory
    vector: NDArray[np.float32] | None
    into_id: str
    dated: bool
    """Whether the row says when it happened."""


@dataclass(slots=True)
class Batch:
    """Rows of one file that are stored together."""

    source: Source
    memories: list[Memory] = field(default_factory=list)
    vectors: list[NDArray[np.float32] | None] = field(default_factory=list)
    dated: list[bool] = field(default_factory=list)
    """Whether the row says when it happened; the others happen now."""
    hidden: list[HiddenRow] = field(default_factory=list)
    """Rows of memories that are merged into another one."""
    rejects: list[Reject] = field(default_factory=list)
    end: Position = field(default_factory=Position)
    """The file up to the last of them."""
    file_bytes: int = 0
    """Bytes of the file that were read by then, compressed as they are."""
    ended: bool = False
    """Nothing more comes of the file."""
    failed: str | None = None
    """Why it could not be read, or not to its end."""

    @property
    def rows(self) -> int:
        """How many rows were read for it."""
        return len(self.memories) + len(self.hidden) + len(self.rejects)


@dataclass(slots=True)
class Intake:
    """Makes memories of the rows of a job, or says what is wrong with them.

    Args:
        namespace: of rows that do not say their own.
        dim: length that vectors must have; that of the first one, while it is None.
        strict: the first wrong row ends the job.
        max_rejects: one more than so many end it too.
        there: says whether the store has a memory, by namespace and id.
    """

    namespace: str | None
    dim: int | None
    strict: bool = False
    max_rejects: int | None = None
    there: Callable[[str, str], bool] = lambda namespace, memory_id: False
    stopped: bool = False
    rejected: int = 0
    _before: tuple[str, str] | None = None
    """The memory that was taken last, those that are merged aside."""

    def take(
        self,
        batch: Batch,
        unit: str,
        number: int,
        record: dict[str, Any],
        vector: NDArray[np.float32] | None = None,
        content: object = None,
    ) -> None:
        """Add one row to a batch: as a memory, or as a reject.

        Args:
            batch: takes it.
            unit: "line" or "row".
            number: its number, from 1.
            record: fields of a memory, nulls left out or not, and "vector" where it is no array yet.
            vector: float32, contiguous, finite; only its length is checked here.
            content: bytes of the line; left out, the record is shown where there is something wrong with it.
        """
        given = record.pop("vector", None) if vector is None else vector
        try:
            if self.namespace is not None and record.get("namespace") is None:
                record["namespace"] = self.namespace
            if record.get("id") is None and batch.source.identity is not None:
                record["id"] = row_id(batch.source.identity, number, record)
            into_id = record.pop(MERGED_INTO, None)
            memory = Memory.from_dict(record)
            made = self._checked(given)
            if into_id is not None:
                self._check_merged(memory, into_id)
        except (TypeError, ValueError) as error:
            self.refuse(batch, unit, number, str(error), record if content is None else content)
            return
        if made is not None and self.dim is None:
            self.dim = len(made)
        if into_id is not None:
            dated = record.get("timestamp") is not None
            batch.hidden.append(HiddenRow(len(batch.memories), memory, made, into_id, dated))
            return
        self._before = memory.namespace, memory.id
        batch.memories.append(memory)
        batch.vectors.append(made)
        batch.dated.append(record.get("timestamp") is not None)

    def _check_merged(self, memory: Memory, into_id: object) -> None:
        into = memory.namespace, checked_name(into_id, MERGED_INTO)
        if into != self._before and not self.there(*into):
            raise ValueError(
                f"{MERGED_INTO} is {quoted(into_id)}, which is not in namespace {quoted(memory.namespace)}; the memory "
                "that it is merged into must stand before it"
            )

    def _checked(self, given: Any) -> NDArray[np.float32] | None:
        if not isinstance(given, np.ndarray):
            return None if given is None else as_vector(given, self.dim, "the vector")
        if not len(given):
            raise ValueError("the vector is empty; leave it out")
        if self.dim is not None and len(given) != self.dim:
            raise DimensionError(len(given), self.dim, "the vector")
        return given

    def refuse(self, batch: Batch, unit: str, number: int, reason: str, content: object) -> None:
        """Add a row that is wrong to a batch."""
        batch.rejects.append(Reject(batch.source.name, unit, number, reason, shown(content)))
        self.rejected += 1
        self.stopped = self.strict or (self.max_rejects is not None and self.rejected > self.max_rejects)


def row_id(identity: str, number: int, record: Mapping[str, Any]) -> str:
    """Return the id of a row that has none: the same whenever this file is read, a UUID of version 8 (RFC 9562)."""
    text = str(record.get("text"))
    digest = blake2b(f"{identity}\0{number}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:]}"


def shown(content: object) -> str:
    """Return how something begins, on one line."""
    if isinstance(content, bytes):
        text = content[: 8 * SHOWN_CHARACTERS].decode("utf-8", "replace")
    elif isinstance(content, Mapping):
        text = ", ".join(f"{name}: {str(value)[:SHOWN_CHARACTERS]}" for name, value in content.items())
    else:
        text = str(content)
    return " ".join(text[: 8 * SHOWN_CHARACTERS].split())[:SHOWN_CHARACTERS].encode("utf-8", "replace").decode()
