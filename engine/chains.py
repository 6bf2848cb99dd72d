"""Who comes before and after whom: the live rows of each group as a linked list, by time and then as stored.

Groups are sessions, whose turns lend each other relevance, and facts of one subject and predicate, of which the last
supersedes the others.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from jiyi.columns import Column

# Up to so many rows are linked one by one; for more, sorting all groups at once is quicker.
_FEW = 64


class Chains:
    """Links between the rows of a partition. Writers change it; what views were given stays as it was.

    Attributes:
        previous, next: int64 columns by row; -1 for none. `next` may name a row that was stored after a view was made.
    """

    def __init__(self) -> None:
        self.previous = Column(np.int64)
        self.next = Column(np.int64)
        self._groups = Column(np.int64)
        self._times_s = Column(np.float64)
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def extend(self, groups: NDArray[np.int64], times_s: NDArray[np.float64], live: NDArray[np.uint8]) -> None:
        """Add rows (group 0 is none). `live` is of all rows, the new ones included."""
        start = self._groups.size
        self._groups.extend(groups)
        self._times_s.extend(times_s)
        self.previous.extend(np.full(len(groups), -1, dtype=np.int64))
        self.next.extend(np.full(len(groups), -1, dtype=np.int64))
        rows = np.flatnonzero(groups) + start
        if len(rows) > _FEW:
            self._relink(np.flatnonzero((self._groups.shown() != 0) & (live == 1)), keep=False)
            return
        for row in rows.tolist():
            self._insert(row, live)

    def append(self, group: int, time_s: float, live: NDArray[np.uint8]) -> bool:
        """Add one row, as `extend` does; return whether it is linked to another."""
        row = self._groups.size
        self._groups.append(group)
        self._times_s.append(time_s)
        self.previous.append(-1)
        self.next.append(-1)
        if group == 0:
            return False
        self._insert(row, live)
        return bool(self.previous.values[row] >= 0 or self.next.values[row] >= 0)

    def _insert(self, row: int, live: NDArray[np.uint8]) -> None:
        group, time_s = int(self._groups.values[row]), self._times_s.values[row]
        first, last = self._first.get(group), self._last.get(group)
        if first is None or last is None:
            self._first[group] = self._last[group] = row
        elif time_s >= self._times_s.values[last]:
            self.previous.values[row], self.next.values[last] = last, row
            self._last[group] = row
        elif time_s < self._times_s.values[first]:
            # A view without this row sees a link to a row that it does not have, which is none to it.
            self.next.values[row], self.previous.values[first] = first, row
            self._first[group] = row
        else:
            same = (self._groups.shown() == group) & (live == 1)
            same[row + 1 :] = False  # those are linked next
            self._relink(np.flatnonzero(same), keep=True)

    def remove(self, rows: Iterable[int], live: NDArray[np.uint8]) -> None:
        """Take rows that died out of their groups. `live` is without them."""
        dead = [row for row in rows if self._groups.values[row] != 0]
        if not dead:
            return
        if len(dead) > _FEW:
            self._relink(np.flatnonzero((self._groups.shown() != 0) & (live == 1)), keep=False)
            return
        before, after = self.previous.shown().copy(), self.next.shown().copy()
        for row in dead:
            group, left, right = int(self._groups.values[row]), int(before[row]), int(after[row])
            before[row] = after[row] = -1
            if left >= 0:
                after[left] = right
            if right >= 0:
                before[right] = left
            if left < 0 and right < 0:
                del self._first[group], self._last[group]
            elif left < 0:
                self._first[group] = right
            elif right < 0:
                self._last[group] = left
        self.previous.replace(before)
        self.next.replace(after)

    def _relink(self, rows: NDArray[np.int64], *, keep: bool) -> None:
        """Link these rows (all live ones of their groups) anew, keeping or dropping the links of all others."""
        groups, times_s = self._groups.values[rows], self._times_s.values[rows]
        order = rows[np.lexsort((rows, times_s, groups))]
        count = self._groups.size
        before = self.previous.shown().copy() if keep else np.full(count, -1, dtype=np.int64)
        after = self.next.shown().copy() if keep else np.full(count, -1, dtype=np.int64)
        before[rows] = after[rows] = -1
        ordered = self._groups.values[order]
        same = ordered[1:] == ordered[:-1]
        before[order[1:][same]], after[order[:-1][same]] = order[:-1][same], order[1:][same]
        if not keep:
            self._first, self._last = {}, {}
        starts, ends = order[before[order] < 0], order[after[order] < 0]
        self._first.update(zip(self._groups.values[starts].tolist(), starts.tolist(), strict=True))
        self._last.update(zip(self._groups.values[ends].tolist(), ends.tolist(), strict=True))
        self.previous.replace(before)
        self.next.replace(after)

    def groups(self) -> NDArray[np.int64]:
        """Return the group of every row, 0 for none."""
        return self._groups.shown()

    def bytes(self) -> int:
        """Return about how much memory the links take."""
        columns = (self.previous, self.next, self._groups, self._times_s)
        return sum(column.values.nbytes for column in columns) + 240 * len(self._first)
