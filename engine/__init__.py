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
    from jiyi.config import IndexConfig, SearchConfig
    from jiyi.context import Context, ContextConfig
    from jiyi.engine import Engine
    from jiyi.engine import open_engine as open
    from jiyi.errors import (
        ClosedError,
        DimensionError,
        ForkedError,
        JiyiError,
        ModelError,
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
    "ModelError",
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

# Where each name lives. They are imported when they are first asked for: NumPy and Numba take most of a second,
# which a program that imports jiyi and does not use it yet should not wait for.
_HOMES: Final = {
    "KINDS": "memory",
    "Context": "context",
    "ContextConfig": "context",
    "Degraded": "candidates",
    "Engine": "engine",
    "Hit": "hits",
    "Hits": "hits",
    "IndexConfig": "config",
    "Memory": "memory",
    "SearchConfig": "config",
    "build_query": "query",
    "warmup": "kernels.warmup",
}


def __getattr__(name: str) -> Any:
    if name == "open":
        value = import_module("jiyi.engine").open_engine
    elif name in __all__:
        value = getattr(import_module(f"jiyi.{_HOMES.get(name, 'errors')}"), name)
    else:
        raise AttributeError(f"module 'jiyi' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
