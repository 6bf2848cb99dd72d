"""Engines without a model for every test of the engine, and embedders that need no files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import jiyi
from tests.engine.embedders import HashEmbedder, HashTable


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
def child(tmp_path: Path) -> Child:
    """Run Python code in another process, with the arguments given, and return what it printed."""
    root = str(Path(__file__).parent.parent.parent)

    def run(
        code: str, *arguments: object, env: dict[str, str] | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        import os

        return subprocess.run(
            [
                sys.executable,
                "-W",
                "error",
                "-c",
                f"import sys; sys.path.insert(0, {root!r})\n{code}",
                *map(str, arguments),
            ],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **(env or {})},
            check=False,
        )

    return run
