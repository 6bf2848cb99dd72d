"""With durability="power" nothing that was acknowledged is lost when the power fails: only what was flushed is left."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.crash import faults
from tests.crash.check import check_snapshots, check_store
from tests.crash.child import Work
from tests.crash.faults import Fault
from tests.crash.power import Operation, lay_out, left_by_power_loss, marks, read_trace
from tests.crash.script import Call, every_kind
from tests.crash.server import Server
from tests.crash.trials import Follower, trial

pytestmark = pytest.mark.skipif(faults.why_not() is not None, reason=faults.why_not() or "")


def _recorded(base: Path, server: Server, seed: int, durability: str, indexed: bool) -> tuple[Work, list[Operation]]:
    trace = base / "trace"
    trace.unlink(missing_ok=True)
    base.mkdir(exist_ok=True)
    folder = base / "trial" / "store"
    work = Work(
        str(folder),
        every_kind(seed),
        fault=Fault("kill", 0),
        indexed=indexed,
        durability=durability,
        trace=str(trace),
        watched=str(folder.parent),
    )
    assert trial(server, work).wrong == []
    return work, list(read_trace(trace))


def _lost(base: Path, work: Work, operations: list[Operation], rng: random.Random, keep: float) -> list[str]:
    follower = Follower(work)
    for mark in marks(operations):
        what, _, number = mark.partition(" ")
        follower.take_mark(what, int(number))
    disk = base / "disk"
    shutil.rmtree(disk, ignore_errors=True)
    disk.mkdir()
    lay_out(left_by_power_loss(operations, rng, keep), Path(work.folder).parent, disk)
    wrong = check_snapshots(disk, follower.snapshots) if keep == 0 else []
    return wrong + check_store(disk / "store", follower.allowed(), indexed=work.indexed, thorough=False)


def _cuts(operations: list[Operation], rng: random.Random, count: int) -> list[int]:
    return sorted(rng.sample(range(1, len(operations)), min(count, len(operations) - 1)))


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_what_was_acknowledged_survives_a_power_loss(tmp_path: Path, server: Server, keep: float) -> None:
    rng = random.Random(keep)
    work, operations = _recorded(tmp_path, server, 21, "power", indexed=keep > 0)
    for cut in _cuts(operations, rng, 8):
        assert _lost(tmp_path, work, operations[:cut], rng, keep) == [], cut


def test_without_it_the_last_calls_may_be_lost(tmp_path: Path, server: Server) -> None:
    """The simulation can fail: with durability="process" it loses what was acknowledged last, and never half of it."""
    rng = random.Random(0)
    work, operations = _recorded(tmp_path, server, 22, "process", indexed=False)
    found = [_lost(tmp_path, work, operations[:cut], rng, 0.0) for cut in _cuts(operations, rng, 6)]
    assert any(found)


@pytest.mark.slow
def test_a_power_loss_at_many_places(tmp_path: Path, server: Server) -> None:
    rng = random.Random(9)
    for seed in range(30, 36):
        work, operations = _recorded(tmp_path, server, seed, "power", indexed=seed % 2 == 0)
        for cut in _cuts(operations, rng, 30):
            keep = rng.choice([0.0, 0.3, 0.9])
            assert _lost(tmp_path, work, operations[:cut], rng, keep) == [], (seed, cut, keep)
        calls: list[Call] = work.calls
        assert calls
