"""jiyi (记忆): one in-process engine that lets an AI agent remember what matters.

>>> import jiyi
>>> with jiyi.open() as engine:
...     _ = engine.add("周末喜欢去徒步，特别是越野路线", kind="archival")
...     _ = engine.add("I decided to rewrite this project in TypeScript")
...     engine.search("TypeScript backend", k=1)[0].memory.text
'I decided to rewrite this project in TypeScript'
"""

from jiyi.candidates import Degraded
from jiyi.config import IndexConfig, SearchConfig
from jiyi.context import Context, ContextConfig
from jiyi.engine import Engine
from jiyi.engine import open_engine as open
from jiyi.errors import (
    ClosedError,
    DimensionError,
    ForkedError,
    JiyiError,
    ModelMismatchError,
    NotFoundError,
    ReadOnlyError,
    StoreError,
    StoreLockedError,
    StoreVersionError,
)
from jiyi.hits import Hit, Hits
from jiyi.kernels.warmup import warmup
from jiyi.memory import KINDS, Memory
from jiyi.query import build_query

__version__ = "0.1.0"

__all__ = [
    "KINDS",
    "ClosedError",
    "Context",
    "ContextConfig",
    "Degraded",
    "DimensionError",
    "Engine",
    "ForkedError",
    "Hit",
    "Hits",
    "IndexConfig",
    "JiyiError",
    "Memory",
    "ModelMismatchError",
    "NotFoundError",
    "ReadOnlyError",
    "SearchConfig",
    "StoreError",
    "StoreLockedError",
    "StoreVersionError",
    "build_query",
    "open",
    "warmup",
]
