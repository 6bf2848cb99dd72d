"""Cold start, each round in a fresh process: importing, and the first search, with kernels cached and without.

    pytest benches/test_cold_start.py

The baseline is the import of what jiyi cannot do without (numpy), and of numba, which it loads at the first search.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from corpus import texts

import jiyi

MEMORIES = 10_000
TIMED = "import time; start = time.perf_counter(); {work}; print(time.perf_counter() - start)"
SEARCH = "import jiyi; engine = jiyi.open({store!r}); assert engine.search({text!r}, k=5)[0].memory.text == {text!r}"


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> str:
    store, lines = tmp_path_factory.mktemp("cold") / "store", list(texts(MEMORIES))
    with jiyi.open(store) as engine:
        for start in range(0, MEMORIES, 2_000):
            engine.add_many(lines[start : start + 2_000])
        engine.flush()
    return SEARCH.format(store=str(store), text=lines[MEMORIES // 2])


def seconds(work: str, cache: Path | None = None) -> float:
    """What a fresh process measures for some work, with its own cache of kernels if one is given."""
    settings = {**os.environ} if cache is None else {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    code = TIMED.format(work=work)
    done = subprocess.run([sys.executable, "-c", code], env=settings, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def measure(benchmark: Any, work: str, rounds: int, *, empty_cache: bool = False) -> None:
    inside: list[float] = []

    def once() -> None:
        if empty_cache:
            with tempfile.TemporaryDirectory() as folder:
                inside.append(seconds(work, Path(folder)))
        else:
            inside.append(seconds(work))

    benchmark.pedantic(once, rounds=rounds, iterations=1, warmup_rounds=0 if empty_cache else 1)
    median = sorted(inside)[len(inside) // 2]
    benchmark.extra_info["inside_the_process_s"] = median
    print(f"\n{benchmark.name}: {median:.3f} s inside the process")


@pytest.mark.parametrize("module", ["numpy", "numba", "jiyi"])
def test_import(module: str, benchmark: Any) -> None:
    measure(benchmark, f"import {module}", 9)


def test_first_search_with_kernels_cached(search: str, benchmark: Any) -> None:
    measure(benchmark, search, 5)


def test_first_search_with_an_empty_cache(search: str, benchmark: Any) -> None:
    """What one call needs is compiled; the rest is not."""
    measure(benchmark, search, 1, empty_cache=True)
