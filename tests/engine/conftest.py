"""Engines without a model for every test of the engine, and embedders that need no files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import jiyi
from tests.engine.embedders import HashEmbedder, HashTable
from tests.nursery import ROOT, Nursery


@pytest.fixture
def engine() -> Iterator[jiyi.Engine]:
    """An empty engine in memory, without an embedder."""
    with jiyi.open(embedder=None) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a store may be made."""
    return tmp_path / "store"


@pytest.fixture
def hash_embedder() -> HashEmbedder:
    return HashEmbedder()


@pytest.fixture
def hash_table() -> HashTable:
    return HashTable()


Child = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Child:
    """Run Python code in another process, with the arguments given, and return what it printed.

    It is forked from one that has jiyi loaded. `fresh=True` is for tests of the start itself, of hash seeds or of
    resident memory: a new interpreter.
    """

    def run(
        code: str, *arguments: object, env: dict[str, str] | None = None, timeout: float = 120, fresh: bool = False
    ) -> subprocess.CompletedProcess[str]:
        words, environment = [str(argument) for argument in arguments], {**os.environ, **(env or {})}
        code = f"import sys\n{code}"
        nursery: Nursery | None = None if fresh else request.getfixturevalue("nursery")
        if nursery is not None:
            return nursery.run(code, words, environment, timeout)
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}", *words],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment,
            check=False,
        )

    return run
