"""The error of a model that is not at hand. One that is, and is damaged, is a `ModelFilesError`."""

from __future__ import annotations

__all__ = ["ModelUnavailableError"]


class ModelUnavailableError(RuntimeError):
    """A model cannot be pulled or built here and now; the message says what to do."""
