"""Threads that help a search with a scan that is too long for one core (kernels release the interpreter's lock)."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from jiyi.models.cores import usable_cores

_lock = threading.Lock()
_helpers: ThreadPoolExecutor | None = None


@cache
def cores() -> int:
    """Return how many cores this process may use, as of the first time that it was asked: each search asks."""
    return usable_cores()


def helpers() -> ThreadPoolExecutor:
    """Return the pool that all engines of this process share, one thread a core; made when it is first needed."""
    global _helpers
    with _lock:
        if _helpers is None:
            _helpers = ThreadPoolExecutor(cores(), thread_name_prefix="jiyi-scan")
        return _helpers


def _forget() -> None:
    """In a forked child: the parent's threads are not here."""
    global _helpers, _lock
    _helpers, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
