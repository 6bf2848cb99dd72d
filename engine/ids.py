"""Time-ordered ids (UUID version 7, RFC 9562) for memories that come without one."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

_lock = threading.Lock()
_last_tick = 0
# Random bytes by the hundred: asking the system for eight takes longer than all the rest.
_RANDOM_BYTES: Final = 1_024
_random = b""


def new_id() -> str:
    """Return a new UUIDv7 as text: later ids sort after earlier ones, within a process strictly.

    48 bits are the time in milliseconds and 12 the fraction of one, counted on when the clock stands still or
    goes back; the other 62 bits are random.
    """
    global _last_tick, _random
    with _lock:
        # One tick is 1/4096 ms, the 12 bits after the version.
        tick = time.time_ns() * 4096 // 1_000_000
        _last_tick = tick = tick if tick > _last_tick else _last_tick + 1
        if not _random:
            _random = os.urandom(_RANDOM_BYTES)
        random, _random = int.from_bytes(_random[:8], "big"), _random[8:]
    # Eight digits, four; the version and three; the variant (0b10) and four in all; twelve.
    return (
        f"{tick >> 28 & 0xFFFFFFFF:08x}-{tick >> 12 & 0xFFFF:04x}-7{tick & 0xFFF:03x}"
        f"-{0x8000 | random >> 48 & 0x3FFF:04x}-{random & 0xFFFFFFFFFFFF:012x}"
    )


def _after_fork() -> None:
    global _lock, _random
    _lock, _random = threading.Lock(), b""  # the child must not have the parent's random bytes


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
