"""Names of files and folders as they are given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from jiyi.quoted import quoted

# What Linux, macOS and the file systems that both know take.
_MOST_BYTES: Final = 4_095
_MOST_BYTES_A_NAME: Final = 255

# How much of a path a message shows.
_LONGEST: Final = 200


def checked_path(value: object, what: str) -> Path:
    """Return a path as given by a user, or say what is wrong with it.

    Args:
        value: a text or an object that stands for a path (`os.PathLike`).
        what: what messages call it.

    Raises:
        TypeError: it is neither.
        ValueError: it is empty, holds the character U+0000, or is longer than any system takes.

    >>> checked_path("memories", "the store").name
    'memories'
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(text := os.fspath(value), str):
        raise TypeError(f"{what} must be a path (text or pathlib.Path), got {type(value).__name__[:80]}")
    if not text:
        raise ValueError(f"{what} is empty; it must be the path of a file or folder")
    if "\0" in text:
        raise ValueError(f"{what} is {quoted(text)}; a path cannot hold the character U+0000")
    if (wrong := too_long(text)) is not None:
        raise ValueError(f"{what} {wrong}")
    return Path(text)


def too_long(path: str) -> str | None:
    """Return what makes a path longer than any system takes; None where nothing does."""
    size = len(os.fsencode(path))
    if size > _MOST_BYTES:
        return f"is {size:,} bytes long; a path can have {_MOST_BYTES:,}"
    longest = max((len(os.fsencode(name)) for name in Path(path).parts), default=0)
    if longest > _MOST_BYTES_A_NAME:
        return f"has a name of {longest:,} bytes in it; a file or folder can be named in {_MOST_BYTES_A_NAME}"
    return None


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as messages show it: whole, unless it is longer than any should be.

    The end of a path says more than its beginning.

    >>> shown("a/b"), len(shown("x" * 1_000))
    ('a/b', 200)
    """
    text = str(path)
    return text if len(text) <= _LONGEST else f"…{text[1 - _LONGEST :]}"


def said_by(error: OSError) -> str:
    """Return what the system said, with the path that it is about as messages show it."""
    said = error.strerror or f"{error!s:.200}"
    return said if error.filename is None else f"{said}: {shown(str(error.filename))!r}"
