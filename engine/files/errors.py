"""What goes wrong with a whole file, rather than with one of its lines."""

from __future__ import annotations

from jiyi.errors import JiyiError
from jiyi.paths import shown

#: What installs pyarrow with jiyi.
EXTRA = "pip install 'jiyi[files]'"


class BadFileError(JiyiError, ValueError):
    """A file cannot be read, or not to its end. What was read of it before stays."""

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"{shown(source)}: {reason}")


class MissingPackageError(JiyiError, ImportError):
    """A format needs a package that is not installed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs pyarrow, which is not installed; {EXTRA} brings it")
