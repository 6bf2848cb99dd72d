"""Time-ordered ids (UUID version 7, RFC 9562) for memories that come without one."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

_lock: Final = threading.Lock()
_last_tick = 0


def new_id() -> str:
    """Return a new UUIDv7 as text: later ids sort after earlier ones, within a process strictly.

    48 bits are the time in milliseconds and 12 the fraction of one, counted on when the clock stands still or
    goes back; the other 62 bits are random.
    """
    global _last_tick
    with _lock:
        # One tick is 1/4096 ms, the 12 bits after the version.
        _last_tick = tick = max(time.time_ns() * 4096 // 1_000_000, _last_tick + 1)
    random = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    value = (tick >> 12 & ((1 << 48) - 1)) << 80 | 0x7 << 76 | (tick & 0xFFF) << 64 | 0b10 << 62 | random
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
