"""A page of a terminal: headings, colour where it is wanted, columns that know how wide Chinese is."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Final

from jiyi.explain import clipped, width

_NARROWEST: Final = 80
_WIDEST: Final = 120
_IN_A_PIPE: Final = 120

_CODES: Final = {"bold": "1", "dim": "2", "green": "32", "red": "31", "cyan": "36"}


class Page:
    """Prints to standard output; colour only on a terminal, and not with NO_COLOR set."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty()
        columns = shutil.get_terminal_size().columns if terminal else _IN_A_PIPE
        self.width = min(max(columns, _NARROWEST), _WIDEST)
        self._coloured = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def styled(self, text: str, style: str) -> str:
        """Return a text in bold, dim, green, red or cyan, if this page has colours."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self._coloured else text

    def heading(self, text: str) -> None:
        """Print a heading with a rule to the right edge."""
        rule = "─" * (self.width - width(text) - 4)
        self.line()
        self.line(self.styled(f"── {text} {rule}", "bold"))

    def line(self, text: str = "", style: str | None = None, *, end: str = "\n") -> None:
        """Print a line at once."""
        print(self.styled(text, style) if style else text, end=end, flush=True)

    def fitted(self, text: str, columns: int) -> str:
        """Return a text on one line of exactly so many columns, clipped or padded."""
        line = clipped(text, columns)
        return line + " " * (columns - width(line))

    def beside(self, left: Sequence[str], right: Sequence[str]) -> None:
        """Print two columns of lines side by side; the first line of each is its head."""
        columns = (self.width - 3) // 2
        rows = max(len(left), len(right))
        pairs = zip([*left, *[""] * (rows - len(left))], [*right, *[""] * (rows - len(right))], strict=True)
        for i, (one, other) in enumerate(pairs):
            self.line(f"{self.fitted(one, columns)} │ {clipped(other, columns)}", "cyan" if i == 0 else None)
            if i == 0:
                self.line("─" * columns + "─┼─" + "─" * columns, "dim")
