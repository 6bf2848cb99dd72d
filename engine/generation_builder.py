"""Takes memories into a generation of the columns that is beside the one that serves, and lets it serve in the end.

A sweep goes over all memories by key, in batches; each is durable when it ends, with the key that it came to. What is
written meanwhile is caught up with, until so little is left that writers can be kept waiting for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from jiyi import generations
from jiyi.analysis import checked_embeddings
from jiyi.checksums import columns_are_sound, columns_checksum
from jiyi.errors import StoreError
from jiyi.generations import Generation
from jiyi.ledger import COLUMN_FIELDS, LABEL_MASK, ColumnRow, DerivedRow, column_row
from jiyi.memory import Memory
from jiyi.models.protocols import Embedder, TokenTable
from jiyi.store import Ready, Store
from jiyi.terms import ANALYZER_VERSION, memory_term_bytes

# Rows a transaction: few enough that a writer that waits for it waits for milliseconds.
_STAGED_TOGETHER: Final = 128
# Texts cut into tokens at a time: Python code gives way to other threads only every 5 ms by itself.
_CUT_TOGETHER: Final = 64
_GIVE_WAY_S: Final = 2e-4
# So few are embedded while writers wait; while there are more, the builder goes on beside them, so many times at most.
_LAST: Final = 8
_MOST_ROUNDS: Final = 200
# Where they come in as fast as they are embedded, writers wait for all that is left in the end.
_ATTEMPTS: Final = 4
# Dropped at a time, and how long others have the ledger in between.
_DROPPED_TOGETHER: Final = 256
_BETWEEN_DROPS_S: Final = 2e-3

_FIELDS: Final = f"{COLUMN_FIELDS}, checksum, vector"
_READ: Final = ", ".join(f"c.{name.strip()}" for name in _FIELDS.split(","))


@dataclass(frozen=True, slots=True)
class _Read:
    """A memory as the generation that serves has it."""

    row: ColumnRow
    vector: bytes | None
    sound: bool
    """Whether the row is what was written. What is not is made anew."""
    text: str
    """What models read."""

    @property
    def key(self) -> int:
        return self.row[0]


class Builder:
    """Builds one generation.

    Args:
        store: open for writing.
        found: the generation, building or kept.
        embedder: of its vectors; None where they come from the caller, or there are none.
        table: what its tokens are rows of.
        between: called between batches; may wait, or raise to stop.
    """

    def __init__(
        self,
        store: Store,
        found: Generation,
        embedder: Embedder | None,
        table: TokenTable | None,
        between: Callable[[], None],
    ) -> None:
        self._store = store
        self._between = between
        self.found = found
        self.embedder = embedder
        self.table = table
        manifest = store.ledger.manifest()
        self._copies_vectors = found.vectors_version == manifest.get("vectors_version", 0)
        self._recuts = found.analyzer == ANALYZER_VERSION != manifest.get("analyzer")
        # An embedder that is a table names it.
        served = manifest.get("table") or manifest.get("embedder")
        self._copies_tokens = table is not None and table.name == served
        self.taken = 0
        """How many memories this builder has taken in."""

    # ------------------------------------------------------------------------------------------------- the steps

    def sweep(self, batch_size: int, told: Callable[[int], None]) -> None:
        """Take in all memories there are by key, from where an earlier sweep was stopped.

        Args:
            batch_size: how many are embedded in one call.
            told: how many there were in a batch, when it is durable.
        """
        cursor = self.found.cursor
        # What is stored from now on is caught up with later: the sweep must end, however much comes in.
        newest = int(self._store.ledger.manifest()["sequence"])
        while cursor != generations.SWEPT:
            self._between()
            part = self._after(cursor, batch_size, newest)
            cursor = part[-1].key if len(part) == batch_size else generations.SWEPT
            self._take(part, cursor)
            told(len(part))

    def catch_up(self, batch_size: int, told: Callable[[int], None] | None = None) -> int:
        """Take in what was written meanwhile, until little is left; return how many there were.

        told: how many there were by now, after each batch.
        """
        count = 0
        limit = max(batch_size, _LAST + 1)
        before = limit + 1
        for _ in range(_MOST_ROUNDS):
            self._between()
            keys = self._behind(limit)
            # No fewer than the last time: they come in as fast as they can be taken in.
            if len(keys) <= _LAST or len(keys) == before < limit or before < len(keys):
                break
            before = len(keys)
            self._take(self._of(keys))
            count += len(keys)
            if told is not None:
                told(count)
        return count

    def finish(self, ready: Mapping[str, Ready], *, keep: bool) -> tuple[int, float]:
        """Take in the last few while nothing is written, and let the generation serve.

        Returns:
            int, float: how many those were, and how many seconds writers were kept waiting.
        """
        for attempt in range(_ATTEMPTS):
            with self._store.writing():
                started = time.perf_counter()
                keys = self._behind(_LAST + 1)
                if len(keys) <= _LAST or attempt == _ATTEMPTS - 1:
                    count = 0
                    while keys:
                        self._take(self._of(keys))
                        count += len(keys)
                        keys = self._behind(_LAST + 1)
                    self._store.serve(self.found, self.embedder, self.table, keep=keep, ready=ready)
                    return count, time.perf_counter() - started
            self.catch_up(1_024)
        raise AssertionError("unreachable: the last attempt ends in a switch")

    def differs(self, sample: int) -> bool:
        """Whether the embedder makes other vectors now than those that an earlier run took in from it."""
        if self.embedder is None or self._copies_vectors or self.found.done == 0:
            return False
        query = (
            f"SELECT c.vector, {_READ.replace('c.', 's.')}, m.text, m.speaker FROM columns_{self.found.number} c "
            "JOIN memories m USING (key) JOIN columns s USING (key) ORDER BY c.key LIMIT ?"
        )
        with self._store.ledger.reading() as connection:
            found = connection.execute(query, (sample,)).fetchall()
        vectors, _ = self._embedded([_to_read(row[1:]) for row in found])
        for (content, *_), now in zip(found, vectors, strict=True):
            then = np.frombuffer(content or b"", np.float32)
            new = np.frombuffer(now or b"", np.float32)
            # Neighbours in a batch move a vector by 1e-4 at most; another model's has nothing to do with it.
            if len(then) != len(new) or np.linalg.norm(then - new) > 0.05 * max(float(np.linalg.norm(new)), 1e-6):
                return True
        return False

    # --------------------------------------------------------------------------------------------------- reading

    def _after(self, cursor: int, count: int, newest: int) -> list[_Read]:
        query = (
            f"SELECT {_READ}, m.text, m.speaker FROM memories m JOIN columns c ON c.key = m.key "
            "WHERE m.key > ? AND m.key & ? <= ? ORDER BY m.key LIMIT ?"
        )
        with self._store.ledger.reading() as connection:
            return [_to_read(row) for row in connection.execute(query, (cursor, LABEL_MASK, newest, count))]

    def _of(self, keys: Sequence[int]) -> list[_Read]:
        query = f"SELECT {_READ}, m.text, m.speaker FROM memories m JOIN columns c ON c.key = m.key WHERE m.key = ?"
        with self._store.ledger.reading() as connection:
            rows = [connection.execute(query, (key,)).fetchone() for key in keys]
        return [_to_read(row) for row in rows if row is not None]

    def _behind(self, most: int) -> list[int]:
        with self._store.ledger.reading() as connection:
            return generations.behind(connection, self.found.number, most)

    # --------------------------------------------------------------------------------------------------- writing

    def _take(self, part: Sequence[_Read], cursor: int | None = None) -> None:
        """Take memories in, durably; the sweep has come to the cursor with the last of them."""
        rows: list[tuple[Any, ...]] = []
        if part:
            vectors, tokens = self._embedded(part)
            terms = self._terms(part)
            for i, read in enumerate(part):
                base = terms.get(i, read.row)
                row: ColumnRow = (*base[:8], tokens[i])
                rows.append((*row, columns_checksum(row, vectors[i]), vectors[i]))
        steps = range(0, max(len(rows), 1), _STAGED_TOGETHER)
        for start in steps:
            # The cursor moves with the last of them, so that a run that is resumed makes the same batches.
            at = cursor if start == steps[-1] else None
            with self._store.ledger.changing() as connection:
                generations.stage(
                    connection,
                    self.found.number,
                    _FIELDS,
                    rows[start : start + _STAGED_TOGETHER],
                    cursor=at,
                    done=len(rows) if at is not None else 0,
                )
            time.sleep(_GIVE_WAY_S)
        self.taken += len(rows)

    def _embedded(self, part: Sequence[_Read]) -> tuple[list[bytes | None], list[bytes]]:
        """The vectors and tokens of memories."""
        texts = [read.text for read in part]
        tokens = [b""] * len(part) if self.table is None else self._cut(part, texts, self.table)
        # A row that is not what was written is embedded where it can be.
        vectors = [read.vector if self._copies_vectors and read.sound else None for read in part]
        missing = [i for i, read in enumerate(part) if not self._copies_vectors or not read.sound]
        if self.embedder is None or not missing:
            return vectors, tokens
        if isinstance(self.embedder, TokenTable):
            cut = [np.frombuffer(tokens[i], np.uint32) for i in missing]
            indptr = np.zeros(len(cut) + 1, dtype=np.int64)
            np.cumsum([len(each) for each in cut], out=indptr[1:])
            returned: Any = self.embedder.embed_rows(indptr, np.concatenate(cut))
        else:
            returned = self.embedder.embed([texts[i] for i in missing])
        made = checked_embeddings(
            returned,
            self.embedder,
            len(missing),
            lambda bad: f"{missing[bad]} of a batch (label {part[missing[bad]].key & LABEL_MASK})",
        )
        for i, vector in zip(missing, made, strict=True):
            vectors[i] = vector.tobytes()
        return vectors, tokens

    def _cut(self, part: Sequence[_Read], texts: Sequence[str], table: TokenTable) -> list[bytes]:
        # Rows without a token may have been stored when there was no table at hand.
        kept = [read.row[8] if self._copies_tokens and read.sound else b"" for read in part]
        missing = [i for i, tokens in enumerate(kept) if not tokens]
        for start in range(0, len(missing), _CUT_TOGETHER):
            places = missing[start : start + _CUT_TOGETHER]
            indptr, tokens = table.token_rows([texts[i] for i in places])
            content, bounds = tokens.tobytes(), (4 * indptr).tolist()
            for i, first, last in zip(places, bounds[:-1], bounds[1:], strict=True):
                kept[i] = content[first:last]
            time.sleep(_GIVE_WAY_S)
        return kept

    def _terms(self, part: Sequence[_Read]) -> dict[int, ColumnRow]:
        """By place in the part, the columns of those that are cut into terms anew."""
        places = [i for i, read in enumerate(part) if self._recuts or not read.sound]
        made: dict[int, ColumnRow] = {}
        for start in range(0, len(places), _CUT_TOGETHER):
            some = places[start : start + _CUT_TOGETHER]
            found = dict(self._memories([part[i].key for i in some]))
            held = [i for i in some if part[i].key in found]
            cut = memory_term_bytes([found[part[i].key] for i in held])
            for i, (terms, freqs) in zip(held, cut, strict=True):
                made[i] = column_row(part[i].key, found[part[i].key], DerivedRow(None, terms, freqs, b""))
            time.sleep(_GIVE_WAY_S)
        return made

    def _memories(self, keys: Sequence[int]) -> list[tuple[int, Memory]]:
        return [found for key in keys for found in self._store.ledger.select("m.key = ?", (key,))]


def _to_read(found: Sequence[Any]) -> _Read:
    *row, checksum, vector, text, speaker = found
    columns: ColumnRow = tuple(row)
    sound = columns_are_sound(columns, vector, checksum)
    if not isinstance(text, str):
        raise StoreError(f"the memory of label {columns[0] & LABEL_MASK} is damaged; verify() lists all that are")
    return _Read(columns, vector, sound, text if speaker is None else f"{speaker}: {text}")


def drop(store: Store, between: Callable[[], None]) -> None:
    """Drop what is marked to be, a few rows at a time.

    Args:
        store: open for writing.
        between: called in between; may wait, or raise to stop.
    """
    while True:
        between()
        with store.ledger.changing() as connection:
            dropping = [found for found in generations.beside(connection) if found.state == generations.DROPPING]
            if not dropping:
                break
            generations.drop_some(connection, dropping[0].number, _DROPPED_TOGETHER)
        time.sleep(_BETWEEN_DROPS_S)
    with store.ledger.reading() as connection:
        left = {found.number for found in generations.beside(connection)}
    store.keeper.keep_graphs({*left, store.generation})
