"""How the memories of a namespace were used, as columns by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jiyi.ledger import UsageRow


@dataclass(frozen=True, slots=True)
class Usage:
    """Columns that never change: counting a use makes new ones."""

    uses: NDArray[np.int64]
    last_used_s: NDArray[np.float64]
    """Minus infinity for rows that never were."""
    successes: NDArray[np.int64]
    failures: NDArray[np.int64]

    @classmethod
    def none(cls, n: int) -> Usage:
        """Return n rows that were never used."""
        zeros = np.zeros(n, dtype=np.int64)
        return cls(zeros, np.full(n, -np.inf), zeros, zeros)

    def extended(self, n: int) -> Usage:
        """Return the same with rows behind that were never used, n in all."""
        if n == len(self.uses):
            return self
        more = Usage.none(n - len(self.uses))
        return Usage(
            np.concatenate((self.uses, more.uses)),
            np.concatenate((self.last_used_s, more.last_used_s)),
            np.concatenate((self.successes, more.successes)),
            np.concatenate((self.failures, more.failures)),
        )

    def changed(self, rows: NDArray[np.int64], told: Sequence[UsageRow]) -> Usage:
        """Return the same with what the ledger tells of some rows."""
        if len(rows) == 0:
            return self
        uses, last_s = self.uses.copy(), self.last_used_s.copy()
        successes, failures = self.successes.copy(), self.failures.copy()
        uses[rows] = [row[1] for row in told]
        last_s[rows] = [-np.inf if row[2] is None else row[2] / 1e6 for row in told]
        successes[rows] = [row[3] for row in told]
        failures[rows] = [row[4] for row in told]
        return Usage(uses, last_s, successes, failures)

    def as_of(self, moment_s: float) -> Usage:
        """Return the same without rows that were used after a moment: how they were used before is not known."""
        known = self.last_used_s <= moment_s
        return Usage(
            self.uses * known,
            np.where(known, self.last_used_s, -np.inf),
            self.successes * known,
            self.failures * known,
        )

    def of(self, rows: NDArray[np.int64]) -> Usage:
        """Return some of the rows."""
        return Usage(self.uses[rows], self.last_used_s[rows], self.successes[rows], self.failures[rows])

    def bytes(self) -> int:
        """Return how much memory the columns take."""
        return self.uses.nbytes + self.last_used_s.nbytes + self.successes.nbytes + self.failures.nbytes
