"""A column of a partition: an array that grows behind what searches see."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Column:
    """Filled behind what views show, and replaced by a larger copy when it is full: a shown part never changes."""

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        self.size = 0
        self.values: NDArray[Any] = np.empty(0 if width is None else (0, width), dtype=dtype)

    def reserve(self, needed: int) -> None:
        """Make room for so many rows in all."""
        if needed > len(self.values):
            # The first fill is exact: a loaded namespace that is only read wastes nothing.
            capacity = needed if self.size == 0 else max(needed, len(self.values) * 3 // 2 + 16)
            grown = np.empty((capacity, *self.values.shape[1:]), dtype=self.values.dtype)
            grown[: self.size] = self.values[: self.size]
            self.values = grown

    def extend(self, more: NDArray[Any]) -> None:
        """Add rows behind the last."""
        needed = self.size + len(more)
        self.reserve(needed)
        self.values[self.size : needed] = more
        self.size = needed

    def append(self, value: Any) -> None:
        """Add one row behind the last: a number, or an array where rows have a width."""
        size = self.size
        if size == len(self.values):
            self.reserve(size + 1)
        self.values[size] = value
        self.size = size + 1

    def replace(self, values: NDArray[Any]) -> None:
        """Put other rows in place of all; what was shown before stays as it was."""
        self.values = values
        self.size = len(values)

    def shown(self) -> NDArray[Any]:
        """Return the rows so far."""
        return self.values[: self.size]
