"""How far long work has come: one line on a terminal that rewrites itself, and nothing at all in a pipe."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Final, Self, TextIO

_EVERY_S: Final = 0.1


class Progress:
    """Counts work on a terminal: how many, how fast, how much is left. A context manager that clears its line.

    Args:
        unit: what is counted: "memories".
        stream: where the line goes; standard error when left out. Nothing is written if it is no terminal.
    """

    def __init__(self, unit: str, stream: TextIO | None = None) -> None:
        self._unit = unit
        self._stream = sys.stderr if stream is None else stream
        self._shown = False
        self._enabled = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._start = time.perf_counter()
        self._last = -_EVERY_S

    def update(
        self, count: int, fraction: float | None = None, *, rate: float | None = None, left_s: float | None = None
    ) -> None:
        """Show that `count` are done, which is `fraction` (0 to 1) of all there is to do, if that is known.

        rate, left_s: how many a second and how long the rest takes, where the caller knows better: what an earlier run
        has done took no time in this one.
        """
        now = time.perf_counter()
        if not self._enabled or now - self._last < _EVERY_S:
            return
        self._last = now
        elapsed = max(now - self._start, 1e-6)
        parts = [f"{count:,} {self._unit}", f"{count / elapsed if rate is None else rate:,.0f}/s"]
        if fraction is not None and 0 < fraction <= 1:
            left = elapsed / fraction - elapsed if left_s is None else left_s
            parts += [f"{fraction:.0%}", f"{_duration(left)} left"]
        self._stream.write("\r" + "  ".join(parts) + "\x1b[K")
        self._stream.flush()
        self._shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
