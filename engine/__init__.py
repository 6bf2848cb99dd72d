"""jiyi (记忆): one in-process engine that lets an AI agent remember what matters.

>>> import jiyi
>>> with jiyi.open() as engine:
...     _ = engine.add("周末喜欢去徒步，特别是越野路线", kind="archival")
...     _ = engine.add("I decided to rewrite this project in TypeScript")
...     engine.search("TypeScript backend", k=1)[0].memory.text
'I decided to rewrite this project in TypeScript'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jiyi.candidates import Degraded
    from jiyi.config import Aging, IndexConfig, SearchConfig
    from jiyi.consolidate import Consolidated
    from jiyi.context import Context, ContextConfig
    from jiyi.distill import Distilled
    from jiyi.engine import Engine
    from jiyi.errors import (
        ClosedError,
        DamagedError,
        DimensionError,
        ForkedError,
        JiyiError,
        LostWritesWarning,
        ModelError,
        ModelMismatchError,
        NotFoundError,
        ReadOnlyError,
        StoreError,
        StoreLockedError,
        StoreVersionError,
    )
    from jiyi.export import export_file
    from jiyi.facts import Neighbor
    from jiyi.hits import Hit, Hits
    from jiyi.ingest import IngestJob, IngestStatus, ingest_files
    from jiyi.inject import MemoryInjector
    from jiyi.kernels.warmup import warmup
    from jiyi.memory import KINDS, Memory
    from jiyi.opening import open_engine as open
    from jiyi.query import build_query
    from jiyi.query_record import QueryRecord
    from jiyi.reindex import ReindexJob
    from jiyi.reindex_events import Comparison, ReindexPlan, ReindexReport
    from jiyi.replay import Replay
    from jiyi.retention import Retention
    from jiyi.salvaging import Salvaged, salvage
    from jiyi.scoped import ScopedEngine
    from jiyi.snapshots import restore
    from jiyi.spaces import exact_namespace

__version__ = "0.1.0"

__all__ = [
    "KINDS",
    "Aging",
    "ClosedError",
    "Comparison",
    "Consolidated",
    "Context",
    "ContextConfig",
    "DamagedError",
    "Degraded",
    "DimensionError",
    "Distilled",
    "Engine",
    "ForkedError",
    "Hit",
    "Hits",
    "IndexConfig",
    "IngestJob",
    "IngestStatus",
    "JiyiError",
    "LostWritesWarning",
    "Memory",
    "MemoryInjector",
    "ModelError",
    "ModelMismatchError",
    "Neighbor",
    "NotFoundError",
    "QueryRecord",
    "ReadOnlyError",
    "ReindexJob",
    "ReindexPlan",
    "ReindexReport",
    "Replay",
    "Retention",
    "Salvaged",
    "ScopedEngine",
    "SearchConfig",
    "StoreError",
    "StoreLockedError",
    "StoreVersionError",
    "build_query",
    "exact_namespace",
    "export_file",
    "ingest_files",
    "open",
    "restore",
    "salvage",
    "warmup",
]

# Where each name lives. They are imported when they are first asked for: NumPy and Numba take most of a second,
# which a program that imports jiyi and does not use it yet should not wait for.
_HOMES: Final = {
    "KINDS": "memory",
    "Aging": "config",
    "Consolidated": "consolidate",
    "Context": "context",
    "ContextConfig": "context",
    "Degraded": "candidates",
    "Distilled": "distill",
    "Engine": "engine",
    "Hit": "hits",
    "Hits": "hits",
    "IndexConfig": "config",
    "IngestJob": "ingest",
    "IngestStatus": "ingest",
    "Memory": "memory",
    "MemoryInjector": "inject",
    "Neighbor": "facts",
    "ScopedEngine": "scoped",
    "SearchConfig": "config",
    "QueryRecord": "query_record",
    "Comparison": "reindex_events",
    "ReindexJob": "reindex",
    "ReindexPlan": "reindex_events",
    "ReindexReport": "reindex_events",
    "Replay": "replay",
    "Retention": "retention",
    "Salvaged": "salvaging",
    "restore": "snapshots",
    "salvage": "salvaging",
    "build_query": "query",
    "exact_namespace": "spaces",
    "export_file": "export",
    "ingest_files": "ingest",
    "warmup": "kernels.warmup",
}


def __getattr__(name: str) -> Any:
    if name == "open":
        value = import_module("jiyi.opening").open_engine
    elif name in __all__:
        value = getattr(import_module(f"jiyi.{_HOMES.get(name, 'errors')}"), name)
    else:
        raise AttributeError(f"module 'jiyi' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
