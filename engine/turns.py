"""No more searches at once than there are cores: more would only take the interpreter's lock from one another.

A search is many short pieces, some of which let go of that lock, and with eight threads on two cores each piece queues
for it anew. One after the other the slowest of them end sooner, and an event loop beside them gets its turn.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from jiyi.spaces import only_name

if TYPE_CHECKING:
    from jiyi.search import Settings
    from jiyi.store import Store

_AT_ONCE: Final = nullcontext()


class Turns(AbstractContextManager[None]):
    """So many at a time; those who wait get their turn in the order in which they came."""

    def __init__(self, at_a_time: int) -> None:
        self._free = at_a_time
        self._waiting: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        try:
            mine.acquire()  # until it is handed over
        except BaseException:  # a signal's handler has raised
            with self._lock:
                waits = mine in self._waiting
                if waits:
                    self._waiting.remove(mine)
            if not waits:
                self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


def turn_of(store: Store, settings: Settings) -> AbstractContextManager[None]:
    """Return what a search has to wait for: nothing, if it might take long, so that it holds up no other.

    That is one that models of others are asked in, or that has to read a namespace first.
    """
    name = only_name(settings.namespace)
    if name is None or not store.is_loaded(name):
        return _AT_ONCE
    embedder: object = store.embedder
    if settings.query_vector is None and embedder is not None and embedder is not store.table:
        return _AT_ONCE
    if any(scorer != "bm25" for scorer in settings.config.rerank):
        return _AT_ONCE
    return store.turns
