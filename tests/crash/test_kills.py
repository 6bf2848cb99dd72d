"""A process that is killed at any instant loses nothing that it acknowledged, and leaves nothing half done."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash import faults
from tests.crash.check import check_store
from tests.crash.child import Work
from tests.crash.faults import Fault
from tests.crash.model import Model, Refused
from tests.crash.script import every_kind
from tests.crash.server import Server
from tests.crash.soak import Plan, operations, plans
from tests.crash.trials import trial

pytestmark = pytest.mark.skipif(faults.why_not() is not None, reason=faults.why_not() or "")


def _work(folder: Path, calls: list[dict[str, object]], **settings: object) -> Work:
    return Work(str(folder / "trial" / "store"), calls, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("indexed", [False, True])
def test_a_script_that_nobody_stops_is_followed_by_the_model(tmp_path: Path, server: Server, indexed: bool) -> None:
    calls = every_kind(4)
    outcome = trial(server, _work(tmp_path, calls, fault=Fault("kill", 0), indexed=indexed))
    assert outcome.wrong == []
    assert not outcome.killed
    assert outcome.calls == len(calls) + 2  # and opening, and closing
    assert outcome.counted is not None
    assert outcome.counted > 150


def test_the_model_knows_what_scripts_do() -> None:
    """Each kind of call is there, some are refused, some memories are merged: the scripts are worth running."""
    kinds, refused, hidden = set(), 0, 0
    for seed in range(60):
        model = Model("hash-a")
        for call in every_kind(seed):
            kinds.add(call["call"])
            try:
                model.apply(call)
            except Refused:
                refused += 1
            hidden = max(hidden, len(model.hidden))
    assert len(kinds) == 14
    assert refused
    assert hidden > 1


@pytest.mark.parametrize("how", ["kill", "torn"])
def test_killed_between_file_operations(tmp_path: Path, server: Server, how: str) -> None:
    seed = {"kill": 11, "torn": 12}[how]
    indexed = how == "kill"
    most = operations(server, tmp_path, seed, indexed)
    rng = random.Random(seed)
    killed = 0
    for i, at in enumerate(sorted(rng.sample(range(1, most), 18))):
        outcome = Plan(seed, how, at, indexed, "process", thorough=i % 9 == 0).run(server, tmp_path)
        assert outcome.wrong == [], (at, most)
        killed += outcome.killed
    assert killed > 12


def test_killed_at_random_instants(tmp_path: Path, server: Server) -> None:
    rng = random.Random(5)
    killed = 0
    for i in range(14):
        plan = Plan(rng.randrange(1000), "instant", rng.randrange(2**31), i % 3 == 0, "process", thorough=i % 7 == 0)
        outcome = plan.run(server, tmp_path)
        assert outcome.wrong == [], plan
        killed += outcome.killed
    assert killed > 7


def test_what_is_missing_is_found_out(tmp_path: Path, server: Server) -> None:
    """The harness can fail: a model that expects one memory more is told so."""
    calls = every_kind(4)
    work = _work(tmp_path, calls)
    assert trial(server, work).wrong == []
    calls[0]["items"] = [*calls[0]["items"], calls[0]["items"][0] | {"id": "never"}]  # type: ignore[misc]
    model = Model("hash-a")
    for call in calls:
        with suppress(Refused):
            model.apply(call)
    assert check_store(Path(work.folder), [model], indexed=False, thorough=False)


@pytest.mark.slow
def test_killed_two_hundred_times(tmp_path: Path, server: Server) -> None:
    for plan in plans(server, tmp_path, 200, seed=7):
        assert plan.run(server, tmp_path).wrong == [], plan
