"""How many cores this process may use: its affinity, and its container's quota where one can be read."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

__all__ = ["usable_cores"]

_CGROUP: Final = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Return the cores that this process may use, at least 1.

    `os.cpu_count()` counts the machine's: in a container with a quota of one core on a host of 64, 64 threads take
    turns on one core.

    Args:
        cgroup: where the control groups are mounted; version 2 (`cpu.max`) and version 1 are read.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _quota(cgroup)
    return max(1, min(cores, math.ceil(quota)) if quota else cores)


def _quota(cgroup: Path) -> float | None:
    """Cores a control group allows, or None where there is no limit or none can be read."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text()
        except OSError:
            return None
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max" stands for no limit
        return None
    return cores if cores > 0 else None
