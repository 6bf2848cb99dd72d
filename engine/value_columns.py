"""Columns of one field's values, for filters: one entry a row, which tests are answered from in some microseconds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from os import urandom
from sys import getsizeof
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.columns import Column
from jiyi.filter_fields import Value
from jiyi.filters import Among, Between, Exists, Leaf

Mask = NDArray[np.bool_]

#: What a column may take, and all columns of one namespace.
MOST_BYTES: Final = 64 << 20
#: More wanted values than this are looked up together, instead of compared with every row one by one.
FEW: Final = 4
# A dictionary's values that were added since they were last sorted are tested one by one: so many, or such a share.
_UNSORTED: Final = 1_000
_UNSORTED_SHARE: Final = 32
# What a dict and two lists take for an entry, beside the value itself.
_ENTRY_BYTES: Final = 120
_HASH_KEY: Final = urandom(16)

_TYPED: Final = frozenset((bool, tuple))
_ABSENT, _TRUE, _FALSE, _STRUCTURE = range(4)


class TooLargeError(Exception):
    """A column would take more memory than all may."""


class ValueColumn(ABC):
    """What a test of one field reads: an entry a row. Rows are added behind the last and never change."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many rows it covers."""

    @abstractmethod
    def put(self, rows: NDArray[np.int64], values: Sequence[Value], n: int) -> None:
        """Cover n rows: values for some of the new ones, ascending; the others have none.

        Raises:
            TooLargeError: it would take too much memory; it is of no use any more.
        """

    @abstractmethod
    def test(self, leaf: Leaf, n: int) -> Mask:
        """Return which of the first n rows pass."""

    @abstractmethod
    def bytes(self) -> int:
        """Return about how much memory it takes."""


class Dictionary(ValueColumn):
    """A code per row, and the distinct values that codes stand for; the elements of lists in pairs beside."""

    def __init__(self, most_bytes: int) -> None:
        self._codes = Column(np.int32)
        self._values: list[Any] = [None, True, False, ()]
        self._code_of: dict[Any, int] = {None: _ABSENT}
        self._pair_rows = Column(np.int64)
        self._pair_codes = Column(np.int32)
        self._value_bytes = 0
        self._most_bytes = most_bytes
        self._sorted = _Sorted([], [], np.empty(0, np.int64), np.empty(0, np.int64), len(self._values))

    @property
    def size(self) -> int:
        """How many rows it covers."""
        return self._codes.size

    def put(self, rows: NDArray[np.int64], values: Sequence[Value], n: int) -> None:
        """Cover n rows."""
        start = self._codes.size
        pair_rows: list[int] = []
        pair_codes: list[int] = []
        if not _TYPED.isdisjoint(map(type, values)):
            found, elements = self._typed(values)
            for row, value in zip(rows.tolist(), values, strict=True):
                if isinstance(value, tuple):
                    codes_of = elements[id(value)]
                    pair_rows.extend([row] * len(codes_of))
                    pair_codes.extend(codes_of)
        else:
            for value in dict.fromkeys(values):
                self._code(value)
            found = list(map(self._code_of.__getitem__, values))
        codes = np.zeros(n - start, dtype=np.int32)
        codes[rows - start] = found
        # Before the codes: a reader that sees a row finds its pairs.
        self._pair_rows.extend(np.array(pair_rows, dtype=np.int64))
        self._pair_codes.extend(np.array(pair_codes, dtype=np.int32))
        self._codes.extend(codes)

    def _typed(self, values: Sequence[Value]) -> tuple[list[int], dict[int, list[int]]]:
        """Codes of values, some True or False (which Python takes for 1 and 0) or lists, and of lists' elements.

        Lists come by identity: those that are one object are looked at once.
        """
        codes: list[int] = []
        elements: dict[int, list[int]] = {}
        for value in values:
            if isinstance(value, bool):
                codes.append(_TRUE if value else _FALSE)
            elif isinstance(value, tuple):
                codes.append(_STRUCTURE)
                if id(value) not in elements:
                    elements[id(value)] = list(dict.fromkeys(self._typed(value)[0]))
            else:
                codes.append(self._code(value))
        return codes, elements

    def _code(self, value: Any) -> int:
        code = self._code_of.get(value)
        if code is None:
            self._value_bytes += getsizeof(value) + _ENTRY_BYTES
            if self._value_bytes > self._most_bytes:
                raise TooLargeError
            code = len(self._values)
            self._values.append(value)
            self._code_of[value] = code  # after the list: a reader that finds a code finds its value
        return code

    def test(self, leaf: Leaf, n: int) -> Mask:
        """Return which of the first n rows pass."""
        codes = self._codes.shown()[:n]
        if isinstance(leaf, Exists):
            there: Mask = codes != _ABSENT
            return there
        wanted = self._among(leaf) if isinstance(leaf, Among) else self._between(leaf)
        return self._rows_with(wanted, codes, n)

    def _among(self, leaf: Among) -> NDArray[np.int64]:
        flags = ((leaf.absent, _ABSENT), (leaf.true, _TRUE), (leaf.false, _FALSE))
        codes = [code for value in leaf.values if (code := self._code_of.get(value)) is not None]
        return np.array([code for wanted, code in flags if wanted] + codes, dtype=np.int64)

    def _between(self, leaf: Between) -> NDArray[np.int64]:
        if leaf.mixed:
            return np.empty(0, dtype=np.int64)
        order = self._order()
        values, codes = (order.texts, order.text_codes) if leaf.texts else (order.numbers, order.number_codes)
        low, high = 0, len(values)
        for name, bound in leaf.bounds:
            if name == "gt":
                low = max(low, bisect_right(values, bound))
            elif name == "gte":
                low = max(low, bisect_left(values, bound))
            elif name == "lt":
                high = min(high, bisect_left(values, bound))
            else:
                high = min(high, bisect_right(values, bound))
        since = order.count
        later = [code for code, value in enumerate(self._values[since:], start=since) if leaf.holds_for(value)]
        return np.concatenate((codes[low:high], np.array(later, dtype=np.int64)))

    def _order(self) -> _Sorted:
        """The distinct values in order, but for some that were added lately."""
        order, count = self._sorted, len(self._values)
        if count - order.count > max(_UNSORTED, order.count // _UNSORTED_SHARE) or order.count == _STRUCTURE + 1:
            values = self._values
            codes = range(_STRUCTURE + 1, count)
            texts = sorted((c for c in codes if isinstance(values[c], str)), key=values.__getitem__)
            numbers = sorted((c for c in codes if not isinstance(values[c], str)), key=values.__getitem__)
            # Threads that come here together make the same of it.
            order = self._sorted = _Sorted(
                [values[code] for code in texts],
                [values[code] for code in numbers],
                np.array(texts, dtype=np.int64),
                np.array(numbers, dtype=np.int64),
                count,
            )
        return order

    def _rows_with(self, wanted: NDArray[np.int64], codes: NDArray[np.int32], n: int) -> Mask:
        mask = self._any_of(codes, wanted)
        pairs = int(np.searchsorted(self._pair_rows.shown(), n))
        if pairs:
            hit = np.flatnonzero(self._any_of(self._pair_codes.shown()[:pairs], wanted))
            mask[self._pair_rows.shown()[hit]] = True
        return mask

    def _any_of(self, codes: NDArray[np.int32], wanted: NDArray[np.int64]) -> Mask:
        """Which codes are among those wanted."""
        if len(wanted) > FEW:
            table = np.zeros(max(len(self._values), int(wanted.max()) + 1), dtype=np.bool_)
            table[wanted] = True
            # No code is outside the table: "clip" only spares numpy the look.
            found: Mask = table.take(codes, mode="clip")
            return found
        mask = np.zeros(len(codes), dtype=np.bool_)
        for code in wanted.tolist():
            mask |= codes == code
        return mask

    def bytes(self) -> int:
        """Return about how much memory it takes."""
        columns = (self._codes, self._pair_rows, self._pair_codes)
        order = len(self._sorted.texts) + len(self._sorted.numbers)
        return sum(column.values.nbytes for column in columns) + self._value_bytes + 16 * order


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The first `count` values of a dictionary in order, and their codes."""

    texts: list[str]
    numbers: list[int | float]
    text_codes: NDArray[np.int64]
    number_codes: NDArray[np.int64]
    count: int


class Hashes(ValueColumn):
    """64 bits of each row's text, for fields whose texts would take too much memory.

    The hash is keyed anew in every process, so that nobody can make two texts that it takes for one.
    """

    def __init__(self) -> None:
        self._hashes = Column(np.int64)

    @property
    def size(self) -> int:
        """How many rows it covers."""
        return self._hashes.size

    def put(self, rows: NDArray[np.int64], values: Sequence[Value], n: int) -> None:
        """Cover n rows."""
        start = self._hashes.size
        hashes = np.zeros(n - start, dtype=np.int64)
        hashes[rows - start] = [_hash(value) if isinstance(value, str) else 0 for value in values]
        self._hashes.extend(hashes)

    def test(self, leaf: Leaf, n: int) -> Mask:
        """Return which of the first n rows pass."""
        hashes = self._hashes.shown()[:n]
        if not isinstance(leaf, Among):
            there: Mask = hashes != 0
            return there
        wanted = [_hash(value) for value in leaf.values if isinstance(value, str)] + [0] * leaf.absent
        if len(wanted) > FEW:
            ascending = np.array(sorted(wanted), dtype=np.int64)
            places = np.searchsorted(ascending, hashes)
            places[places == len(ascending)] = 0
            found: Mask = ascending[places] == hashes
            return found
        mask = np.zeros(n, dtype=np.bool_)
        for value in wanted:
            mask |= hashes == value
        return mask

    def bytes(self) -> int:
        """Return about how much memory it takes."""
        return self._hashes.values.nbytes


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8, key=_HASH_KEY).digest(), "little", signed=True) or 1


class Tested(ValueColumn):
    """Which rows pass one test: what SQL said, and Python of the rows since."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf
        self._passes = Column(np.bool_)

    @property
    def size(self) -> int:
        """How many rows it covers."""
        return self._passes.size

    def put(self, rows: NDArray[np.int64], values: Sequence[Value], n: int) -> None:
        """Cover n rows."""
        start = self._passes.size
        passes = np.full(n - start, self._leaf.holds_for(None))
        passes[rows - start] = [self._leaf.holds_for(value) for value in values]
        self._passes.extend(passes)

    def put_passing(self, rows: NDArray[np.int64], n: int) -> None:
        """Extend it to n rows, by the rows that pass."""
        passes = np.zeros(n - self._passes.size, dtype=np.bool_)
        passes[rows - self._passes.size] = True
        self._passes.extend(passes)

    def test(self, leaf: Leaf, n: int) -> Mask:
        """Return which of the first n rows pass."""
        return self._passes.shown()[:n]

    def bytes(self) -> int:
        """Return about how much memory it takes."""
        return self._passes.values.nbytes
