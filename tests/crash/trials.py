"""One trial: a child at work, its end, and whether everything is as it must be."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.check import check_snapshots, check_store
from tests.crash.child import Work
from tests.crash.model import Model, Refused
from tests.crash.script import Call
from tests.crash.server import Server

# A call of these does its work in several steps, of which the first is what the user sees.
_DONE_THOUGH_FAILED = frozenset({"compact", "erase", "reindex", "reopen", "consolidate", "flush", "snapshot"})


@dataclass(slots=True)
class Outcome:
    """What came of a trial."""

    killed: bool = False
    acknowledged: int = 0
    """Memories that had been acknowledged by then."""
    calls: int = 0
    failed: int = 0
    """Calls that raised StoreError."""
    wrong: list[str] = field(default_factory=list)
    causes: list[list[str]] = field(default_factory=list)
    counted: int | None = None
    """File operations, if the child came to its end."""
    acted: int | None = None


class Follower:
    """Keeps a model in step with what a child reports."""

    def __init__(self, work: Work) -> None:
        self.calls: list[Call] = work.calls
        self.states: list[Model] = [Model(work.embedder)]
        """What the store may hold: several after a call of several steps has failed."""
        self.begun: int | None = None
        self.snapshots: dict[str, list[Model]] = {}
        self.outcome = Outcome()

    def take(self, line: dict[str, Any]) -> None:
        wrong = self.outcome.wrong
        if "begun" in line:
            self.begun = line["begun"]
            call = self.call(self.begun)
            if call is not None and call["call"] == "snapshot":
                self.snapshots[call["name"]] = [state.copy() for state in self.states]
        elif "done" in line or "refused" in line:
            self.outcome.calls += 1
            call = self.call(self.begun)
            answers = [_applied(state, call) for state in self.states]
            expected = {"error": line["error"]} if "refused" in line else {"answer": line["answer"]}
            fitting = [state for state, answer in answers if answer == expected]
            if not fitting:
                wrong.append(
                    f"{call} answered {expected}, not {[answer for _, answer in answers]} {line.get('message')}"
                )
                fitting = [state for state, _ in answers]
            self.states = fitting
            if "done" in line and call is not None and call["call"] in ("add", "add_many"):
                self.outcome.acknowledged += len(call.get("items", [0]))
            self.begun = None
        elif "failed" in line:
            self.outcome.failed += 1
            self.outcome.causes.append(line["causes"])
            call = self.call(self.begun)
            if line["error"] != "StoreError":
                name = "open" if call is None else call["call"]
                wrong.append(f"{name} raised {line['error']}: {line['message']} {line['where']}")
            if not any(":" in cause for cause in line["causes"]):
                wrong.append(f"no OSError is behind {line['causes']}: {line['message']}")
            if call is not None and call["call"] in _DONE_THOUGH_FAILED:
                self.states = [*self.states, *(_applied(state, call)[0] for state in self.states)]
            if "state" in line:
                seen = [state for state in self.states if state.state() == line["state"]]
                if not seen:
                    wrong.append(f"after {call} has failed ({line['message']}) it is half there: {len(line['state'])}")
                else:
                    self.states = seen
                wrong.extend(f"after {call} has failed: {lost} is not found" for lost in line["lost"])
            self.begun = None
        elif "over" in line:
            self.outcome.counted, self.outcome.acted = line["over"], line["acted"]
        elif "crashed" in line:
            wrong.append(line["crashed"])

    def take_mark(self, what: str, i: int) -> None:
        """Take the beginning or the end of a call from a record, in which answers are not."""
        call = self.call(i)
        if what == "begun":
            self.take({"begun": i})
        elif what == "refused":
            self.begun = None
        else:
            self.states = [_applied(state, call)[0] for state in self.states]
            self.begun = None

    def call(self, i: int | None) -> Call | None:
        return self.calls[i] if i is not None and 0 <= i < len(self.calls) else None

    def allowed(self) -> list[Model]:
        """What the store may hold now: what was begun and not acknowledged is there, or it is not."""
        call = self.call(self.begun)
        return [*self.states, *(_applied(state, call)[0] for state in self.states if call is not None)]


def _applied(state: Model, call: Call | None) -> tuple[Model, dict[str, Any]]:
    if call is None:
        return state, {"answer": None}
    after = state.copy()
    try:
        return after, {"answer": after.apply(call)}
    except Refused as refused:
        return state, {"error": str(refused)}


def trial(
    server: Server,
    work: Work,
    *,
    kill: Callable[[dict[str, Any]], float | None] | None = None,
    thorough: bool = True,
) -> Outcome:
    """Run a child in an empty folder and check what it left.

    Args:
        work: its folder's parent is emptied before.
        kill: told of each line of the report; returns the seconds after which the child is killed, once.
    """
    folder = Path(work.folder)
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.parent.mkdir(parents=True)
    follower = Follower(work)
    run = server.start(work)
    armed = kill is not None
    for line in run.report():
        follower.take(line)
        if armed and kill is not None and (delay_s := kill(line)) is not None:
            armed = False
            end = time.perf_counter() + delay_s
            while time.perf_counter() < end:
                pass
            run.kill()
    outcome = follower.outcome
    outcome.killed = run.status == -9
    if run.status not in (0, -9, 70):
        outcome.wrong.append(f"the child ended with {run.status}")
    outcome.wrong += check_store(folder, follower.allowed(), indexed=work.indexed, thorough=thorough)
    outcome.wrong += check_snapshots(folder.parent, follower.snapshots)
    return outcome


def at_random(rng: random.Random, calls: int) -> Callable[[dict[str, Any]], float | None]:
    """Return a `kill` that waits for a random call to begin, and a moment more."""
    which, delay_s = rng.randrange(-1, calls), rng.choice([0.0, 0.001, 0.003, 0.01]) * rng.random()
    return lambda line: delay_s if line.get("begun") == which else None
