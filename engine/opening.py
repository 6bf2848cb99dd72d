"""`jiyi.open`: a store's folder, checked and opened."""

from __future__ import annotations

import os
from typing import Final

from jiyi.config import DEFAULT, IndexConfig, SearchConfig, preset_named
from jiyi.embedders import check_embedder, companion_of, default_embedder
from jiyi.engine import Engine
from jiyi.errors import ModelError, StoreError
from jiyi.ledger import Durability
from jiyi.models.files import ModelFilesError
from jiyi.models.onnx_session import parse_device
from jiyi.models.protocols import Embedder
from jiyi.models.registry import load_embedder
from jiyi.paths import checked_path, shown
from jiyi.quoted import quoted
from jiyi.retention import Policy, checked_policy
from jiyi.store import Store

_DEFAULT_EMBEDDER: Final = "default"


def open_engine(
    path: str | os.PathLike[str] | None = None,
    *,
    embedder: Embedder | str | None = _DEFAULT_EMBEDDER,
    dim: int | None = None,
    config: SearchConfig | None = None,
    read_only: bool = False,
    durability: Durability = "process",
    memory_budget_mb: float = 1024,
    index_config: IndexConfig | None = None,
    preset: str | None = None,
    device: str = "auto",
    retention: Policy | None = None,
) -> Engine:
    """Open a store, or make one.

    Args:
        path: a folder, made when missing; None keeps everything in memory.
        embedder: "default": what the store was made with, or the table that ships, for a new one. Another name, an
            object with the `Embedder` protocol, or None: vectors come with `add(vector=…)` or not at all.
        dim: length of the vectors that will be given, to be checked against the store's. Only with embedder=None.
        config: settings of every search that does not bring its own.
        read_only: follow a store that another process may be writing to.
        durability: "process": an acknowledged write survives kill -9. "power": and power loss, at one fsync a write.
        memory_budget_mb: namespaces above it are unloaded from memory, least recently used first.
        index_config: when namespaces get indexes, and how they are built.
        preset: settings by name, instead of `config` ("fast", "balanced", "best", …). With "balanced" or "best" a new
            store takes a transformer's vectors if one is installed (`jiyi models build e5-small`).
        device: where models run: "auto" (a GPU if ONNX Runtime has one), "cpu", "cuda" or "cuda:1".
        retention: by kind, a `Retention`: what `compact` and `retain` let go of. It is not kept in the store.

    Raises:
        StoreLockedError: another process writes to the folder.
        StoreError: the folder or its ledger cannot be read or written; StoreVersionError: it is of another format.
        DimensionError: `dim` is not the store's.
        ValueError, TypeError: an argument of another kind or range.
    """
    if durability not in ("process", "power"):
        raise ValueError(f"durability is {quoted(durability)}; it must be 'process' or 'power'")
    if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int) or dim < 1):
        raise ValueError(f"dim is {quoted(dim)}; it must be a whole number from 1")
    if isinstance(memory_budget_mb, bool) or not isinstance(memory_budget_mb, int | float):
        raise TypeError(f"memory_budget_mb must be a number, got {type(memory_budget_mb).__name__}")
    if not memory_budget_mb > 0:
        raise ValueError(f"memory_budget_mb is {quoted(memory_budget_mb)}; it must be above 0 (infinity for no limit)")
    if config is not None and not isinstance(config, SearchConfig):
        raise TypeError(f"config must be a SearchConfig, got {type(config).__name__}")
    if preset is not None and config is not None:
        raise ValueError("give a preset or a config, not both; single settings can be added to a search of either")
    if preset is not None:
        config = preset_named(preset)
    if index_config is not None and not isinstance(index_config, IndexConfig):
        raise TypeError(f"index_config must be an IndexConfig, got {type(index_config).__name__}")
    policy = checked_policy({} if retention is None else retention)
    parse_device(device)  # told at once, though models may be loaded late or never
    if not isinstance(read_only, bool):
        raise TypeError(f"read_only must be True or False, got {quoted(read_only)}")
    if path is None and read_only:
        raise ValueError("a store in memory is empty when it is opened, so there is nothing to read; give a path")
    if path == "":
        raise ValueError("the path is empty; name a folder, or None to keep the store in memory")
    folder = None if path is None else checked_path(path, "the store's folder")
    if folder is not None and folder.exists() and not folder.is_dir():
        raise StoreError(f"{shown(folder)} is a file; a store is a folder")
    unusable: str | None = None
    by_name = isinstance(embedder, str)
    by_default = embedder == _DEFAULT_EMBEDDER if isinstance(embedder, str) else False
    if by_default and dim is not None:
        embedder = None
    elif isinstance(embedder, str):
        try:
            embedder = load_embedder(default_embedder(preset) if by_default else embedder, device=device)
        except ModelFilesError as error:
            if not by_default:
                raise ModelError(f"the embedder {quoted(embedder)} cannot be used: {error}") from error
            embedder, unusable = None, str(error)  # what needs no model still works
    elif embedder is not None and not isinstance(embedder, Embedder):
        raise TypeError(
            f"embedder must be a name, an object with name, dim, embed and embed_query, or None, got {quoted(embedder)}"
        )
    if embedder is not None:
        check_embedder(embedder)
    store = Store(
        folder,
        device=device,
        companion=companion_of(embedder) if by_name else None,
        embedder=embedder,
        dim=dim,
        read_only=read_only,
        durability=durability,
        memory_budget_bytes=memory_budget_mb * 2**20,
        index_config=index_config or IndexConfig(),
        adopt=by_default,
        unusable=unusable,
    )
    return Engine(store, config or DEFAULT, policy)
