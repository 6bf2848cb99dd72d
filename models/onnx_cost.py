"""How long a batch will take, learnt from those before it: what a time budget is kept with."""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["CostEstimate", "batch_work"]

# Attention grows with the square of the length: at 1,024 tokens it costs about as much as all the rest.
_SQUARE_AT: Final = 1_024.0
# What a batch costs by itself, in tokens: six layers take 6 to 19 tokens' time beside that of their rows, one core.
_BATCH_TOKENS: Final = 16.0
# Weight of the newest observation: after five batches a machine that has become slower is known at 83 %.
_NEWEST: Final = 0.3


def batch_work(rows: int, longest: int) -> float:
    """Return the work of a batch of `rows` rows padded to `longest` tokens, in tokens of a short row."""
    return rows * longest * (1 + longest / _SQUARE_AT) + _BATCH_TOKENS


class CostEstimate:
    """Seconds a unit of work, an exponentially weighted mean over what was run. Safe to share between threads."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._seconds_per_work: float | None = None
        self._lock = threading.Lock()

    def seconds(self, work: float) -> float | None:
        """Return how long `work` is expected to take, in seconds, or None before anything was observed."""
        rate = self._seconds_per_work
        return None if rate is None else rate * work

    def doubt(self) -> None:
        """Expect a tenth less, where the estimate forbade everything: one slow run must not do so for ever."""
        with self._lock:
            if self._seconds_per_work is not None:
                self._seconds_per_work *= 0.9

    def observe(self, work: float, seconds: float) -> None:
        """Learn that `work`, more than 0, took `seconds`."""
        rate = seconds / work
        with self._lock:
            old = self._seconds_per_work
            self._seconds_per_work = rate if old is None else old + _NEWEST * (rate - old)
