"""How records look on standard output: one line each, whatever their text holds."""

from __future__ import annotations

import shutil
import sys

from jiyi.context import one_line
from jiyi.memory import Memory
from jiyi.terminal import cut


def memory_line(memory: Memory, *, with_namespace: bool) -> str:
    """Return a memory's date, kind, namespace, id and text."""
    cells = [memory.timestamp.date().isoformat(), f"{memory.kind:10}"]
    if with_namespace:
        cells.append(one_line(memory.namespace))
    return "  ".join([*cells, one_line(memory.id), one_line(memory.text)])


def print_line(line: str) -> None:
    """Print a line: cut to the terminal's width there, whole in a pipe."""
    print(cut(line, shutil.get_terminal_size().columns) if sys.stdout.isatty() else line)


def note(message: str) -> None:
    """Tell something on standard error that is no failure."""
    print(f"jiyi: note: {' '.join(message.split())}", file=sys.stderr)
