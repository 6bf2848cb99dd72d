"""Where a picture goes, and whether it can be drawn."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Final

from jiyi.errors import JiyiError

_FORMATS: Final = (".png", ".svg", ".pdf")


class PlotError(JiyiError, ImportError):
    """A picture was asked for, and Matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__("a picture needs Matplotlib; install it with: pip install 'jiyi[plot]'")


def check_picture(path: str | os.PathLike[str]) -> Path:
    """Return where a picture goes, if it can be drawn.

    Raises:
        ValueError: its name ends in nothing that says what kind of picture it is.
        PlotError: Matplotlib is missing; the message says how to install it.
    """
    target = Path(path)
    if target.suffix.lower() not in _FORMATS:
        raise ValueError(
            f"{str(target)[:200]!r} must end in {', '.join(_FORMATS)}, which says what kind of picture it is"
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise PlotError
    return target
