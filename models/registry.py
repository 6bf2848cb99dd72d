"""Names to embedders."""

from __future__ import annotations

from jiyi.models.files import read_manifest
from jiyi.models.protocols import Embedder
from jiyi.models.static import SHIPPED_FOLDER, StaticEmbedder

__all__ = ["available_embedders", "load_embedder"]


def available_embedders() -> list[str]:
    """Return the names that `load_embedder` knows, without loading any."""
    return [read_manifest(SHIPPED_FOLDER).name]


def load_embedder(name: str) -> Embedder:
    """Return the embedder of a name, loaded once a process.

    Raises:
        ValueError: there is no such embedder; the message lists those there are.
        ModelFilesError: its files are missing or damaged.
    """
    names = available_embedders()
    if name not in names:
        raise ValueError(f"there is no embedder {name!r}; there are: {', '.join(names)}")
    return StaticEmbedder.load()
