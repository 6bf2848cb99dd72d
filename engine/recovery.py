"""Whether a ledger that is being opened can be trusted, and what of it cannot.

Its pages were closed as they are (`page_sums`): nothing to do. Otherwise SQLite checks the structure. Indexes that
disagree with their tables are made anew of them. Damage within rows of memories or of their columns stays theirs: those
are left out and named, the rest works. Anything else is refused, since what it holds could be missing without a trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from jiyi.errors import StoreError
from jiyi.integrity import damaged_pages, unsound_columns, unsound_memories, without_columns, without_text
from jiyi.ledger import DAMAGED, Ledger
from jiyi.page_sums import FILE_NAME, MOST_BYTES
from jiyi.pages import Pages
from jiyi.paths import shown

# Their rows have checksums of their own.
_CHECKED: Final = ("memories", "columns", "merged")


@dataclass(frozen=True, slots=True)
class Examined:
    """What of a ledger is damaged, by keys."""

    damaged: set[int] = field(default_factory=set)
    """Memories that are not what was written, or whose columns are not."""
    gone: set[int] = field(default_factory=set)
    """Memories of which nothing is left but columns."""


def examine(ledger: Ledger) -> Examined:
    """Return which memories are damaged, so that searches can leave them out.

    What is not read here is checked as it is read. A ledger that may be written to has its indexes mended.

    Raises:
        StoreError: the ledger is damaged beyond its rows; the message names what is.
    """
    path, wrong = ledger.path, ledger.wrong_pages
    if path is None or wrong == set() or (wrong is None and ledger.read_only):
        return Examined()
    if wrong is None and path.stat().st_size > MOST_BYTES:
        return Examined()
    try:
        with ledger.reading() as connection:
            if wrong:
                _refuse_unchecked(path, wrong)
            lines = list(damaged_pages(connection))
        if lines and not ledger.read_only:
            with ledger.changing() as connection:
                connection.execute("REINDEX")
                lines = list(damaged_pages(connection))
                if lines:  # it stays as it was
                    raise StoreError(f"{shown(path)}: {lines[0]}; {DAMAGED}")
        if lines:
            raise StoreError(f"{shown(path)}: {lines[0]}; {DAMAGED}")
        if not wrong:
            return Examined()
        with ledger.reading() as connection:
            damaged = {key for key, _ in unsound_memories(connection)}
            damaged |= {key for key, _ in unsound_columns(connection)}
            damaged |= {key for key, _ in without_columns(connection)}
            return Examined(damaged, {key for key, _ in without_text(connection)})
    except StoreError as error:
        if DAMAGED in str(error):
            raise
        raise StoreError(f"{shown(path)} cannot be read whole: {error.__cause__ or error}; {DAMAGED}") from error


def _refuse_unchecked(path: Path, wrong: set[int]) -> None:
    """Raise if a page is wrong that holds rows without checksums."""
    pages = Pages(path)
    roots = pages.roots()
    if 1 in wrong or not roots:
        raise StoreError(f"{shown(path)}: page 1, which names the tables, is not what was written; {DAMAGED}")
    indexes = _indexes(pages)
    for name, root in roots.items():
        if name in indexes or name in _CHECKED or name.startswith("columns_"):
            continue
        damaged = wrong & pages.tree(root)
        if damaged:
            raise StoreError(
                f"{shown(path)}: page {min(damaged)} of the table {name} is not what was written; {DAMAGED}. (Whoever "
                f"changes the file with another program on purpose removes {FILE_NAME} beside it)"
            )


def _indexes(pages: Pages) -> set[str]:
    """The names of indexes: what they hold can be made anew."""
    found: set[str] = set()
    for number in pages.tree(1):
        page = pages.page(number)
        for cell in pages.cells(page, number) if page is not None else ():
            if len(cell.values) == 5 and cell.values[0] == "index" and isinstance(cell.values[1], str):
                found.add(cell.values[1])
    return found
