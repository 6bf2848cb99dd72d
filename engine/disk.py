"""How much room a folder takes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def folder_bytes(folder: Path) -> int:
    """Return the size of all files below a folder; those that vanish meanwhile count as nothing."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # an index is swapped, a log is cut
                total += Path(at, name).stat().st_size
    return total
