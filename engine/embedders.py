"""Which embedder a store works with: what there is by default, what goes beside it, and whether one is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jiyi.config import TRANSFORMER_PRESETS
from jiyi.models.files import ModelFilesError
from jiyi.models.protocols import Embedder, TokenTable
from jiyi.models.records import available
from jiyi.models.registry import TRANSFORMER_EMBEDDERS, load_embedder
from jiyi.models.static import SHIPPED_FOLDER
from jiyi.quoted import quoted


def default_embedder(preset: str | None) -> str | Path:
    """The table that ships; for a preset that is made for a transformer's vectors the first of those installed.

    One that is damaged is installed: loading it tells, where taking the next would give a new store other vectors.
    """
    if preset in TRANSFORMER_PRESETS:
        installed = {record.name for record in available() if record.role == "embedder"}
        wanted = [name for name in TRANSFORMER_EMBEDDERS if name in installed]
        if wanted:
            return wanted[0]
    return SHIPPED_FOLDER


def companion_of(embedder: Embedder | None) -> TokenTable | None:
    """The table that ships, for late interaction beside an embedder without one."""
    if embedder is None or isinstance(embedder, TokenTable):
        return None
    try:
        table = load_embedder(SHIPPED_FOLDER)
    except ModelFilesError:
        return None
    return table if isinstance(table, TokenTable) else None


def check_embedder(embedder: Embedder) -> None:
    """Refuse what names itself by nothing, or makes vectors of no length."""
    if not isinstance(embedder.name, str) or not embedder.name:
        raise TypeError(
            f"the embedder's name must be text, got {quoted(embedder.name)}; stores keep it to tell models apart"
        )
    if isinstance(embedder.dim, bool) or not isinstance(embedder.dim, int | np.integer) or embedder.dim < 1:
        raise ValueError(f"the embedder's dim is {quoted(embedder.dim)}; it must be a whole number from 1")
