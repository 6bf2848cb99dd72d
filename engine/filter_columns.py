"""Filters over columns in memory, so that a search does not read the ledger for what it may return.

Kind, times and usage are columns of the partition. Every other field gets one when a filter first names it: read from
the ledger in one pass, extended by the writer with every memory that is added, dropped when it is not used and room is
short. Rows never change, so a column never does either. What has no column (an order of ids or texts, a field with
too many distinct values) is tested by SQL, and what passes is kept as a column of its own.

A column covers at least the rows of every view that was published after it was attached: `passing` takes the view
last, so that an answer obeys exactly the view that it is made from, whatever is written meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.errors import StoreError
from jiyi.filter_fields import Condition, Field
from jiyi.filters import COMPARE, All, Among, Between, Exists, Filter, Leaf, Not, Some, Test, leaves
from jiyi.ledger import LABEL_BITS, LABEL_MASK
from jiyi.memory import Memory
from jiyi.value_columns import FEW, MOST_BYTES, Dictionary, Hashes, Mask, Tested, TooLargeError, ValueColumn

if TYPE_CHECKING:
    from jiyi.partition import Partition, View

# Each is a byte a row; a filter of more tests without a column is rare.
_MOST_TESTED: Final = 16
# A float64 of seconds tells microseconds apart up to here (the year 2106), and the order of times is right anywhere.
_EXACT_SECONDS: Final = 2.0**32

_IN_VIEW: Final = ("kind", "timestamp", "expires_at", "uses", "successes", "failures", "last_used")
_TIMES: Final = ("timestamp", "expires_at", "last_used")
_BY_HASH: Final = ("id", "text")
_TEXTS: Final = ("session", "speaker", "subject", "predicate", "object", "title", "use_when")
_NO_ROWS: Final = np.empty(0, dtype=np.int64)
# Rows that are read from the ledger at once: fewer objects than make Python look for garbage among all that there are.
_CHUNK: Final = 500


@dataclass(slots=True)
class _Entry:
    field: Field
    column: ValueColumn
    used: int
    """When, as a count of uses."""


Reading = Callable[[], AbstractContextManager[Connection]]


class FilterColumns:
    """The columns that filters over one partition have asked for."""

    def __init__(self) -> None:
        # Replaced as a whole and under the store's lock, so that searches need none.
        self._entries: dict[_Key, _Entry] = {}
        self._too_large: frozenset[str] = frozenset()
        self._clock = count()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def extend(self, memories: Sequence[Memory], n: int) -> None:
        """Cover n rows, the last of which are these memories. The caller holds the store's lock."""
        for key, entry in list(self._entries.items()):
            start = entry.column.size
            if n - start != len(memories):
                self._drop(key)  # rows that nobody told of: it is read anew when it is asked for
                continue
            try:
                entry.column.put(np.arange(start, n), [entry.field.of(memory) for memory in memories], n)
            except TooLargeError:
                self._drop(key)
                self._too_large |= {entry.field.key}

    def passing(
        self, where: Filter, namespace: str, partition: Partition, reading: Reading, settled: Reading
    ) -> tuple[View, NDArray[np.uint8]]:
        """Return a partition's newest view, and 1 for those of its rows (dead ones aside) that pass a filter.

        Args:
            where: the filter.
            namespace: the partition's, by name.
            partition: what this belongs to.
            reading: lends a connection to the ledger.
            settled: the same, while nobody writes and the partition is what the connection sees.
        """
        while True:
            columns = self._ready(where.test, partition, reading, settled)
            view = partition.view
            # One may have been dropped meanwhile, to make room, and not know the rows since.
            if all(column.size >= view.n for column in columns.values()):
                return view, _rows(where.test, view, namespace, columns).view(np.uint8)

    def _ready(self, test: Test, partition: Partition, reading: Reading, settled: Reading) -> Mapping[int, ValueColumn]:
        """Return the column of each leaf that needs one, by the leaf's identity."""
        while True:
            needed = {id(leaf): (key, leaf) for leaf in leaves(test) if (key := self._key(leaf)) is not None}
            entries, now = self._entries, next(self._clock)
            for key, _ in needed.values():
                if key in entries:
                    entries[key].used = now
            missing = {key: leaf for key, leaf in needed.values() if key not in entries}
            try:
                if missing:
                    entries = entries | self._built(missing, now, partition, reading, settled)
            except _FieldTooLargeError as error:
                self._too_large |= {error.field}
                continue
            return {leaf: entries[key].column for leaf, (key, _) in needed.items()}

    def _built(
        self, missing: Mapping[_Key, Leaf], now: int, partition: Partition, reading: Reading, settled: Reading
    ) -> dict[_Key, _Entry]:
        """Read columns from the ledger: most of it while others may write, what they wrote while nobody does."""
        built = {key: _Entry(leaf.field, _empty(key, leaf), now) for key, leaf in missing.items()}
        with reading() as connection:
            _fill(built, missing, connection, partition.namespace, partition.view.labels)
        with settled() as connection:
            _fill(built, missing, connection, partition.namespace, partition.view.labels)
            self._entries = self._entries | {key: entry for key, entry in built.items() if key[0] != _CHANGING}
            self._make_room(now)
        return built

    def _key(self, leaf: Leaf) -> _Key | None:
        """Which column a leaf is tested on; None where the view itself knows."""
        name = leaf.field.key
        if name == "namespace" or (name in _BY_HASH and isinstance(leaf, Exists)):
            return None
        if name in _IN_VIEW:
            if name not in _TIMES or _near(leaf):
                return None
            return (_CHANGING if name == "last_used" else _TESTED, leaf.condition())
        if name not in _BY_HASH and name not in self._too_large:
            return (_DICTIONARY, name)
        if isinstance(leaf, Between) or name not in (*_BY_HASH, *_TEXTS):
            return (_TESTED, leaf.condition())
        return (_HASHES, name)

    def _make_room(self, now: int) -> None:
        """Drop what was used least lately, while there is too much."""
        while True:
            old = sorted((key for key, entry in self._entries.items() if entry.used < now), key=self._used)
            tested = [key for key in old if key[0] == _TESTED]
            if tested and sum(key[0] == _TESTED for key in self._entries) > _MOST_TESTED:
                self._drop(tested[0])
            elif old and self.bytes() > MOST_BYTES:
                self._drop(old[0])
            else:
                return

    def _used(self, key: _Key) -> int:
        return self._entries[key].used

    def _drop(self, key: _Key) -> None:
        self._entries = {other: entry for other, entry in self._entries.items() if other != key}

    def bytes(self) -> int:
        """Return about how much memory the columns take."""
        return sum(entry.column.bytes() for entry in self._entries.values())


_Key = tuple[str, str | Condition]
_DICTIONARY, _HASHES, _TESTED, _CHANGING = "dictionary", "hashes", "tested", "changing"


class _FieldTooLargeError(Exception):
    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


def _empty(key: _Key, leaf: Leaf) -> ValueColumn:
    if key[0] == _DICTIONARY:
        return Dictionary(MOST_BYTES)
    return Hashes() if key[0] == _HASHES else Tested(leaf)


def _fill(
    built: Mapping[_Key, _Entry],
    of: Mapping[_Key, Leaf],
    connection: Connection,
    namespace: int,
    labels: NDArray[np.int64],
) -> None:
    """Read the rows that columns do not cover yet; all cover as many."""
    n, start = len(labels), max((entry.column.size for entry in built.values()), default=0)
    if n <= start:
        return
    first, last = (namespace << LABEL_BITS | int(labels[row]) for row in (start, -1))
    read = {key: entry for key, entry in built.items() if not isinstance(entry.column, Tested)}
    for key, entry in built.items():
        if isinstance(entry.column, Tested):
            entry.column.put_passing(_passing(connection, of[key], first, last, labels), n)
    if not read:
        return
    cells = [cell for entry in read.values() for cell in entry.field.cells]
    query = f"SELECT m.key, {', '.join(cell.sql for cell in cells)} FROM memories m WHERE m.key BETWEEN ? AND ?"
    parameters = [value for cell in cells for value in cell.parameters]
    cursor = connection.execute(f"{query} ORDER BY m.key", (*parameters, first, last))
    while chunk := cursor.fetchmany(_CHUNK):
        keys, *contents = ([row[place] for row in chunk] for place in range(1 + len(cells)))
        rows = _rows_of(keys, labels)
        upto, place = int(rows[-1]) + 1, 0
        for entry in read.values():
            width = len(entry.field.cells)
            try:
                values = entry.field.values(*contents[place : place + width])
                place += width
                entry.column.put(rows, values, upto)
            except TooLargeError:
                raise _FieldTooLargeError(entry.field.key) from None
            except (TypeError, ValueError) as error:
                raise StoreError(f"{entry.field.name} is damaged ({error}); verify() lists what is") from error
    for entry in read.values():
        entry.column.put(_NO_ROWS, (), n)


def _passing(connection: Connection, leaf: Leaf, first: int, last: int, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows that SQL says pass a test."""
    condition = leaf.condition()
    query = "SELECT m.key FROM memories m LEFT JOIN usage u ON u.key = m.key WHERE m.key BETWEEN ? AND ?"
    found = connection.execute(f"{query} AND ({condition.sql}) ORDER BY m.key", (first, last, *condition.parameters))
    return _rows_of([key for (key,) in found], labels)


def _rows_of(keys: Sequence[int], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    # Every key up to a partition's last is one of its rows: what is stored later has a higher one.
    return np.searchsorted(labels, np.array(keys, dtype=np.int64) & LABEL_MASK)


def _rows(test: Test, view: View, namespace: str, columns: Mapping[int, ValueColumn]) -> Mask:
    """Which rows of a view pass."""
    if isinstance(test, Not):
        return ~_rows(test.part, view, namespace, columns)
    if isinstance(test, All | Some):
        mask = np.full(view.n, isinstance(test, All))
        for part in test.parts:
            if isinstance(test, All):
                mask &= _rows(part, view, namespace, columns)
            else:
                mask |= _rows(part, view, namespace, columns)
        return mask
    column = columns.get(id(test))
    if column is not None:
        return column.test(test, view.n)
    name = test.field.key
    if name == "namespace":
        return np.full(view.n, test.holds_for(namespace))
    if name in _BY_HASH:
        return np.ones(view.n, dtype=np.bool_)  # whether it exists
    return _of_view(test, view)


def _near(leaf: Leaf) -> bool:
    """Whether a test of times is exact on float64 seconds."""
    bounds = [value for _, value in leaf.bounds] if isinstance(leaf, Between) else getattr(leaf, "values", ())
    return all(abs(value) / 1e6 < _EXACT_SECONDS for value in bounds)


def _of_view(leaf: Leaf, view: View) -> Mask:
    """Which rows pass a test on what the view has a column of."""
    name, n, usage = leaf.field.key, view.n, view.usage
    absent: float | None = None
    if name == "kind":
        column: NDArray[Any] = view.kinds
    elif name == "timestamp":
        column = view.timestamps_s
    elif name == "expires_at":
        column, absent = view.expires_s, np.inf
    elif usage is None:
        return np.full(n, leaf.holds_for(None if name == "last_used" else 0))
    elif name == "last_used":
        column, absent = usage.last_used_s[:n], -np.inf
    else:
        column = getattr(usage, name)[:n]
    scale = 1e6 if name in _TIMES else 1
    if isinstance(leaf, Exists):
        return np.ones(n, dtype=np.bool_) if absent is None else column != absent
    if isinstance(leaf, Among):
        wanted = [value / scale for value in leaf.values if not isinstance(value, str)]
        return _any_of(column, [*wanted, absent] if leaf.absent and absent is not None else wanted)
    mask = np.ones(n, dtype=np.bool_) if absent is None else column != absent
    for operator, bound in leaf.bounds:
        mask &= COMPARE[operator](column, bound / scale)
    return mask


def _any_of(column: NDArray[Any], wanted: Sequence[float]) -> Mask:
    if len(wanted) > FEW:
        return np.isin(column, wanted)
    mask = np.zeros(len(column), dtype=np.bool_)
    for value in wanted:
        mask |= column == value
    return mask
