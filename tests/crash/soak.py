"""Many kills, one after another: `python -m tests.crash.soak --kills 1000`.

Half of them sweep one script: the child is killed before each of its file operations in turn, or in the middle of a
write. The others strike other scripts, at a random file operation or at a random instant. A run that is stopped goes
on where it was if it is given a state file. Ends with 1 if anything was lost, and prints how to see it again.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.crash import faults
from tests.crash.child import Work
from tests.crash.faults import Fault
from tests.crash.script import every_kind
from tests.crash.server import Server
from tests.crash.trials import Outcome, at_random, trial


@dataclass(frozen=True, slots=True)
class Plan:
    """One kill: of which script, how, and where."""

    seed: int
    how: str
    at: int
    indexed: bool
    durability: str
    thorough: bool

    def run(self, server: Server, base: Path) -> Outcome:
        calls = every_kind(self.seed)
        fault = Fault(self.how, self.at) if self.how in ("kill", "torn") else None
        work = Work(str(base / "trial" / "store"), calls, fault=fault, indexed=self.indexed, durability=self.durability)
        kill = at_random(random.Random(self.at), len(calls)) if self.how == "instant" else None
        return trial(server, work, kill=kill, thorough=self.thorough)


def operations(server: Server, base: Path, seed: int, indexed: bool, durability: str = "process") -> int:
    """Return how many file operations a script makes when nothing stops it."""
    outcome = Plan(seed, "kill", 0, indexed, durability, False).run(server, base)
    if outcome.wrong or outcome.counted is None:
        raise RuntimeError(f"the script {seed} fails by itself: {outcome.wrong}")
    return outcome.counted


def plans(server: Server, base: Path, kills: int, seed: int) -> Iterator[Plan]:
    """Yield so many plans, the same for a seed but for what background threads add to the file operations."""
    rng = random.Random(seed)
    swept = operations(server, base, seed, indexed=True)
    stride = max(1, -(-2 * swept // max(kills, 1)))
    made = 0
    for at in range(1, swept + 1, stride):
        if made < kills:
            made += 1
            yield Plan(seed, rng.choice(["kill", "kill", "torn"]), at, True, "process", made % 5 == 0)
    while made < kills:
        script, indexed = seed + 1 + rng.randrange(10_000), rng.random() < 0.4
        durability = rng.choice(["process", "process", "power"])
        most = 700 if indexed else 400
        for _ in range(min(4, kills - made)):
            made += 1
            how = rng.choice(["kill", "torn", "instant", "instant"])
            at = rng.randrange(1, most) if how != "instant" else rng.randrange(2**31)
            yield Plan(script, how, at, indexed, durability, made % 5 == 0)


def main() -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path, help="a file that lets a run that was stopped go on")
    options = parser.parse_args()
    reason = faults.why_not()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    done = _taken_up(options.state, options.seed)
    totals = {"kills": 0, "ended before": 0, "acknowledged": 0, "calls": 0, "wrong": 0}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Server(faults.build(Path(folder))) as server:
        base = Path(folder)
        for i, plan in enumerate(plans(server, base, options.kills, options.seed)):
            if i < len(done):
                result = done[i]
            else:
                outcome = plan.run(server, base)
                result = {
                    "kills": int(outcome.killed),
                    "ended before": int(not outcome.killed),
                    "acknowledged": outcome.acknowledged,
                    "calls": outcome.calls,
                    "wrong": len(outcome.wrong),
                }
                for line in outcome.wrong:
                    print(f"\n{plan}\n  {line}", flush=True)
                _keep(options.state, options.seed, i, result)
            for name, value in result.items():
                totals[name] += value
            rate = (i + 1 - len(done)) / max(time.monotonic() - begun, 1e-9)
            if sys.stdout.isatty() or i % 100 == 99:
                print(
                    f"\r{i + 1} of {options.kills}, {totals['wrong']} wrong, {rate:.1f} a second ", end="", flush=True
                )
    print(
        f"\n{totals['kills']} kills ({totals['ended before']} scripts had ended before theirs), "
        f"{totals['calls']} calls and {totals['acknowledged']} added memories acknowledged, "
        f"{totals['wrong']} things lost, half there or left over; no store was repaired by hand"
    )
    return 1 if totals["wrong"] else 0


def _taken_up(state: Path | None, seed: int) -> list[dict[str, int]]:
    if state is None or not state.exists():
        return []
    lines = [json.loads(line) for line in state.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return [line["result"] for i, line in enumerate(lines) if (line["seed"], line["i"]) == (seed, i)]


def _keep(state: Path | None, seed: int, i: int, result: dict[str, int]) -> None:
    if state is None:
        return
    state.parent.mkdir(parents=True, exist_ok=True)
    with state.open("w" if i == 0 else "a", encoding="utf-8") as file:
        file.write(json.dumps({"seed": seed, "i": i, "result": result}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
