"""Lines for a terminal."""

from __future__ import annotations

from jiyi.explain import width


def cut(line: str, columns: int) -> str:
    """Return a line of at most so many columns, "…" where something is missing; unlike `clipped`, spaces stay."""
    if width(line) <= columns:
        return line
    used = 0
    for i, character in enumerate(line):
        used += width(character)
        if used > columns - 1:
            return line[:i] + "…"
    return line


def counted(count: int, one: str, many: str) -> str:
    """Return a number with its noun: "1 memory", "2,000 memories"."""
    return f"{count:,} {one if count == 1 else many}"
