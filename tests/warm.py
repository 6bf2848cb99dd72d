"""Compiles every kernel into Numba's cache, on all cores: processes that start together would each compile all of them.

python -m tests.warm
"""

from __future__ import annotations

import importlib
import multiprocessing
import pkgutil

import jiyi.kernels
from jiyi.models.cores import usable_cores


def compile_part(part: int, parts: int) -> None:
    """Compile every parts-th kernel."""
    for module in pkgutil.iter_modules(jiyi.kernels.__path__):
        importlib.import_module(f"jiyi.kernels.{module.name}")
    from jiyi.kernels import _jit

    for dispatcher, signatures in _jit._declared[part::parts]:
        _jit._compile(dispatcher, signatures)


def main() -> None:
    parts = usable_cores()
    with multiprocessing.get_context("spawn").Pool(parts) as pool:
        pool.starmap(compile_part, [(part, parts) for part in range(parts)], chunksize=1)


if __name__ == "__main__":
    main()
