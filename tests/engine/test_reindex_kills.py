"""A reindex, and going back, killed by kill -9 at every step: what comes of it is what an uninterrupted one makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def _run(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "tests.engine.reindex_kills", "--store", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_killed_at_every_step(tmp_path: Path) -> None:
    assert "every answer and row held" in _run(tmp_path, "--kills", "24")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_more_steps(tmp_path: Path, seed: int) -> None:
    _run(tmp_path, "--kills", "100", "--memories", "1000", "--seed", str(seed))


@pytest.mark.slow
def test_a_hundred_thousand_killed_at_random(tmp_path: Path) -> None:
    options = ("--memories", "100000", "--batch-size", "1024", "--embedder", "e5-static-256", "--at", "random")
    _run(tmp_path, "--kills", "20", *options)
