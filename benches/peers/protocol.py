"""How the driver talks to one side of a comparison: JSON lines over the pipes of a process.

    driver: {"task": "mmr", "data": "FOLDER", ...}    side: {"answer": …, "setup_s": 1.2}
    driver: {"calls": 40}                             side: {"median_s": 0.0012}

A side builds its task once, answers it once for the driver to compare, and then measures rounds whenever it is told to,
so that two sides take turns. The end of the input ends it. Whatever a library prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

WARM_S = 0.1
ROUND_S = 0.1


class Work(NamedTuple):
    """What a side does for a task."""

    call: Callable[[int], Any]
    """Answer case i, of `cases`."""
    cases: int
    answer: Any = None
    """JSON to compare with the other side's; None: what `call` gives for every case."""
    figures: dict[str, float] | None = None
    """What setting up measured, such as seconds to ingest."""


Task = Callable[[Path, dict[str, Any]], Work]


def texts_in(folder: Path, name: str = "texts") -> list[Any]:
    """Read a JSON file of the data."""
    values: list[Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return values


def serve(tasks: dict[str, Task]) -> None:
    """Answer the driver until it hangs up."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library's greetings are no answers

    def reply(**values: Any) -> None:
        print(json.dumps(values), file=out, flush=True)

    asked = json.loads(sys.stdin.readline())
    start = time.perf_counter()
    work = tasks[asked["task"]](Path(asked["data"]), asked)
    answers = [work.call(i) for i in range(work.cases)] if work.answer is None else work.answer
    reply(answer=answers, setup_s=time.perf_counter() - start, **(work.figures or {}))
    for line in sys.stdin:
        reply(median_s=statistics.median(timed(work, json.loads(line)["calls"])))


def timed(work: Work, calls: int) -> Sequence[float]:
    """Seconds of each of at least so many calls, which take the cases in turn, after some that are not counted.

    A process that has just waited for the other side starts with cold caches and a slow clock: without warming up, a
    call of 10 µs measures as 40.
    """
    times: list[float] = []
    start = time.perf_counter()
    i = 0
    while time.perf_counter() - start < WARM_S or i == 0:
        work.call(i % work.cases)
        i += 1
    start = time.perf_counter()
    while len(times) < calls or (time.perf_counter() - start < ROUND_S and len(times) < 100 * calls):
        before = time.perf_counter()
        work.call(len(times) % work.cases)
        times.append(time.perf_counter() - before)
    return times
