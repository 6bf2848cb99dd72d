"""Giving the C library's free memory back to the system.

glibc keeps what was freed, in one arena for each thread, and a process that writes, searches and compacts for long
grows to a multiple of what it holds. Other systems' allocators give it back by themselves.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache


@cache
def _libc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") else None  # musl has none and needs none


def give_back() -> None:
    """Give free memory back to the system, where the allocator does not do so by itself. Takes milliseconds."""
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)
