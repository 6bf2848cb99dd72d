"""A disk that is full, broken or read-only: the call that fails says so, nothing is lost, and work goes on after."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import faults
from tests.crash.child import Work
from tests.crash.faults import CHANGES, CREATE, REOPEN, SYNC, TRUNCATE, WRITE, Fault
from tests.crash.script import every_kind
from tests.crash.server import Server
from tests.crash.trials import trial

pytestmark = pytest.mark.skipif(faults.why_not() is not None, reason=faults.why_not() or "")

_ROOT = Path(__file__).parent.parent.parent

DISKS = {
    "full": (errno.ENOSPC, WRITE | CREATE | TRUNCATE | SYNC),
    "full, and files can be made": (errno.ENOSPC, WRITE),
    "broken": (errno.EIO, CHANGES),
    "not flushed": (errno.EIO, SYNC),
    "read-only": (errno.EROFS, CHANGES | REOPEN),
}


@pytest.mark.parametrize("disk", list(DISKS), ids=lambda disk: disk.replace(", ", "-").replace(" ", "-"))
def test_what_fails_raises_and_the_rest_goes_on(tmp_path: Path, server: Server, disk: str) -> None:
    error, kinds = DISKS[disk]
    rng = random.Random(disk)
    acted = failed = 0
    for i, how in enumerate(["once", "on", "short"]):
        fault = Fault(how, rng.randrange(1, 40 if kinds == SYNC else 300), error, kinds)
        work = Work(
            str(tmp_path / "trial" / "store"),
            every_kind(rng.randrange(1000)),
            fault=fault,
            heal_after=rng.choice([1, 3]),
            indexed=i == 1,
            durability="power" if kinds == SYNC else "process",
        )
        outcome = trial(server, work, thorough=i == 1 and disk == "full")
        assert outcome.wrong == [], work
        acted += outcome.acted or 0
        failed += outcome.failed
    assert acted
    assert failed


def test_no_file_may_grow_beyond_a_limit(tmp_path: Path, server: Server) -> None:
    """RLIMIT_FSIZE: writes come back short, then fail with EFBIG."""
    failed = 0
    for seed in range(3):
        work = Work(
            str(tmp_path / "trial" / "store"),
            every_kind(seed),
            fault=Fault("kill", 0),
            heal_after=3,
            limit_file_bytes=150_000 + 20_000 * seed,
        )
        outcome = trial(server, work, thorough=seed == 0)
        assert outcome.wrong == []
        failed += outcome.failed
        assert all(f"OSError:{errno.EFBIG}" in causes for causes in outcome.causes)
    assert failed


_SMALL_DISK = """
import errno, os, sys
from pathlib import Path
import jiyi
from tests.crash.child import embedder_named, unfound
from tests.crash.model import item_of

disk = Path(sys.argv[1])
if os.system(f"mount -t tmpfs -o size=1200k tmpfs {disk}"):
    print("skip: mounting is not allowed here")
    raise SystemExit
engine = jiyi.open(disk / "store", embedder=embedder_named("hash-a"))
acknowledged, said = [], None
text = "word " * 200
for i in range(5000):
    try:
        acknowledged.append(engine.add(f"{text}{i}", id=f"i{i}", timestamp=1_700_000_000 + i))
    except jiyi.StoreError as error:
        said = error
        break
assert said is not None and said.os_error.errno == errno.ENOSPC, said
assert engine.count() == len(acknowledged) > 20, (engine.count(), len(acknowledged))
assert not unfound(engine, [item_of(memory) for memory in engine.list()])
for call in (lambda: engine.add(text * 50), engine.compact, lambda: engine.snapshot(disk / "copy")):
    try:
        call()
        raise SystemExit("a full disk took more")
    except jiyi.StoreError as error:
        assert error.os_error.errno == errno.ENOSPC, error
assert not (disk / "copy").exists()
assert engine.count() == len(acknowledged)
print("full at", len(acknowledged))
os.system(f"mount -o remount,size=40m {disk}")
for i in range(len(acknowledged), len(acknowledged) + 50):
    acknowledged.append(engine.add(f"{text}{i}", id=f"i{i}", timestamp=1_700_000_000 + i))
engine.snapshot(disk / "copy")
engine.compact()
assert engine.verify() == []
engine.close()
with jiyi.open(disk / "store", embedder=embedder_named("hash-a")) as engine:
    assert engine.verify() == []
    assert set(acknowledged[1:]) <= {memory.id for memory in engine.list()}
    if os.system(f"mount -o remount,ro {disk}") == 0:
        try:
            engine.add("more")
            raise SystemExit("a read-only disk took more")
        except jiyi.StoreError as error:
            assert error.os_error.errno == errno.EROFS, error
        assert not unfound(engine, [item_of(memory) for memory in engine.list()])
        try:
            jiyi.open(disk / "store", embedder=None)
        except jiyi.StoreError:
            pass
        with jiyi.open(disk / "copy", embedder=None, read_only=True) as reader:
            assert reader.count() == engine.count()
        os.system(f"mount -o remount,rw {disk}")
    engine.add("more", id="more")
    assert engine.get("more").text == "more"
print("done")
"""


def test_a_small_disk_that_fills_up(tmp_path: Path) -> None:
    """A real file system: a tmpfs of one megabyte, in a mount namespace of its own, which ends with the process."""
    if not Path("/usr/bin/unshare").exists():
        pytest.skip("there is no unshare to mount a small disk with")
    unshare = ["unshare", *([] if os.getuid() == 0 else ["--user", "--map-root-user"]), "--mount"]
    run = subprocess.run(
        [*unshare, sys.executable, "-W", "error", "-c", _SMALL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])},
        check=False,
    )
    if run.stdout.startswith("skip") or "unshare" in run.stderr:
        pytest.skip(f"mounting is not allowed here: {run.stderr.strip()[:200]}")
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith("done\n")
