"""Compile every kernel ahead of the first query."""

from __future__ import annotations

import importlib
import pkgutil

import jiyi.kernels


def warmup() -> int:
    """Compile every kernel, or load it from the cache, so that no query pays for it.

    Returns:
        How many kernels are ready. Seconds the first time on a machine, a fraction of one afterwards; calling it again
        is free. Safe from any thread.
    """
    for module in pkgutil.iter_modules(jiyi.kernels.__path__):
        importlib.import_module(f"jiyi.kernels.{module.name}")
    from jiyi.kernels import _jit  # not above: importing this file alone must not load Numba

    return _jit.compile_all()
