"""Trials of damage: a store with a byte flipped or an end cut off, asked everything in a child process."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import jiyi
from jiyi import IndexConfig, Memory

CONFIG: Final = IndexConfig(dense_rows=20, keyword_rows=20)
QUERIES: Final = ("green tea in the morning", "越野路线 徒步", "deploy release", "Lyon")
NAMESPACES: Final = ("ana", "小明", "default")
_LIMIT_S: Final = 120


def fill(engine: jiyi.Engine) -> None:
    """Store memories of every kind, in both languages, merged, used, superseded, replaced, deleted."""
    rng = np.random.default_rng(7)

    def vectors(count: int) -> list[Any]:
        return list(rng.normal(size=(count, 8)).round(3))

    for namespace in NAMESPACES[:2]:
        engine.add_many(
            [
                Memory(
                    text=f"note {i} about green tea in the morning, 周末徒步路线第{i}条 " + "long ways " * (i % 7),
                    id=f"n{i}",
                    namespace=namespace,
                    timestamp=1_760_000_000 + 3_600 * i,
                    session=f"s{i // 5}",
                    speaker="Ana" if i % 2 else "助手",
                    metadata={"i": i, "tags": ["茶", "tea"]},
                )
                for i in range(40)
            ],
            vectors=vectors(40),
        )
        engine.add(Memory.fact("Ana", "lives in", "Lyon", id="f1", namespace=namespace, timestamp=1_760_000_000))
        engine.add(Memory.fact("Ana", "lives in", "Oslo", id="f2", namespace=namespace, timestamp=1_761_000_000))
        engine.add(
            Memory.procedure(
                "Deploy", ["run the tests", "打标签"], use_when="a release is due", id="p", namespace=namespace
            )
        )
        engine.add(
            Memory(text="喜欢越野徒步", kind="archival", id="a", namespace=namespace, timestamp=0, expires_at=4e9),
            vector=vectors(1)[0],
        )
        engine.delete(["n3"], namespace=namespace)
        engine.update("n4", namespace=namespace, text="note 4 was changed, 改过了")
        engine.reinforce(["n5", "a"], namespace=namespace, now=1_761_000_000)
        engine.outcome(["p"], success=True, namespace=namespace, now=1_761_000_000)
    engine.add_many(
        [{"text": "I drink green tea in the morning", "id": f"c{i}", "timestamp": 1_760_000_000 + i} for i in range(2)],
        vectors=[[1.0] * 8] * 2,
    )
    engine.consolidate()


def questions(engine: jiyi.Engine) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Everything that is asked of a store, by name."""
    for name in NAMESPACES:
        yield f"list {name}", lambda name=name: [m.to_dict() for m in engine.list(namespace=name)]
        yield f"count {name}", lambda name=name: engine.count(namespace=name)
        yield f"facts {name}", lambda name=name: [m.to_dict() for m in engine.facts(namespace=name, now=1_762_000_000)]
        for memory_id in ("n0", "n5", "n39", "f2", "p", "a", "c1", "none"):
            yield f"get {name} {memory_id}", lambda name=name, i=memory_id: engine.get(i, namespace=name).to_dict()
    yield "namespaces", lambda: engine.namespaces()
    for name in NAMESPACES:
        for i, query in enumerate(QUERIES):
            vector = np.random.default_rng(i).normal(size=8)
            yield (
                f"search {name} {query}",
                lambda name=name, query=query, vector=vector: _answer(
                    engine.search(query, namespace=name, k=8, now=1_762_000_000, query_vector=vector)
                ),
            )


def _answer(hits: Any) -> dict[str, Any]:
    hits_told = [str(told) for told in hits.degraded]
    return {
        "told": [told for told in hits_told if told.startswith("recall")],
        "hits": [[hit.memory.to_dict(), round(hit.score, 5)] for hit in hits],
    }


def ask(folder: Path) -> dict[str, Any]:
    """Open a store and ask everything; the answers, with errors of jiyi's as {"error": …}."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            engine = jiyi.open(folder, embedder=None, index_config=CONFIG)
        except jiyi.JiyiError as error:
            return {"open": {"error": f"{type(error).__name__}: {error}"}}
    answers: dict[str, Any] = {}
    if any(issubclass(warning.category, jiyi.LostWritesWarning) for warning in warned):
        answers["warned"] = True
    with engine:
        for name, question in questions(engine):
            try:
                answers[name] = question()
            except jiyi.JiyiError as error:
                answers[name] = {"error": f"{type(error).__name__}: {error}"}
        answers["verify"] = engine.verify()
    return answers


RIGHT: Final = "right"
NAMED: Final = "named"
BY_VERIFY: Final = "named by verify alone"


def judge(answers: dict[str, Any], expected: dict[str, Any]) -> str:
    """Return how a trial ended: right, named, or what is wrong with it."""
    if "crash" in answers:
        return str(answers["crash"])
    if "error" in answers.get("open", {}):
        return NAMED
    outcome = RIGHT
    for name, wanted in expected.items():
        got = answers.get(name)
        if name == "verify" or got == wanted:
            continue
        error = got.get("error", "") if isinstance(got, dict) else ""
        told = isinstance(got, dict) and got.get("told")
        if (error and not error.startswith("NotFoundError")) or told or answers.get("warned"):
            outcome = NAMED if outcome == RIGHT else outcome
        elif answers.get("verify"):
            outcome = BY_VERIFY
        else:
            return f"{name} is {str(got)[:200]} and not {str(wanted)[:200]}"
    return outcome


def in_child(folder: Path) -> dict[str, Any]:
    """Ask in a forked child, so that neither a native crash nor a hang takes the tests along."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            answers = ask(folder)
        except BaseException:
            answers = {"crash": traceback.format_exc()[-1500:]}
        with os.fdopen(writing, "w") as out:
            json.dump(answers, out)
            out.flush()
        os._exit(0)
    os.close(writing)
    content = b""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            content = b'{"crash": "hangs"}'
            break
        part = os.read(reading, 1 << 20)
        if not part:
            break
        content += part
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    if not content:
        return {"crash": f"the process died: status {status}"}
    found: dict[str, Any] = json.loads(content)
    return found


@dataclass(frozen=True)
class Trial:
    """One way to damage one file."""

    file: str
    how: str
    at: int
    value: int = 0

    def apply(self, folder: Path) -> None:
        path = folder / self.file
        content = bytearray(path.read_bytes())
        if self.how == "cut":
            content = content[: self.at]
        elif self.how == "blank":
            content[self.at : self.at + 512] = bytes(len(content[self.at : self.at + 512]))
        else:
            content[self.at] ^= self.value
        path.write_bytes(content)


def trials(folder: Path, file: str, count: int, seed: int = 0) -> list[Trial]:
    """So many ways to damage a file: of ten, six flips, two cuts, two runs of 512 bytes that become zeros."""
    rng = random.Random(f"{seed}/{file}")
    size = (folder / file).stat().st_size
    found: list[Trial] = []
    for i in range(count if size else 0):
        how = ("flip", "flip", "flip", "cut", "blank")[i % 5]
        found.append(Trial(file, how, rng.randrange(size), rng.randrange(1, 256)))
    return found


def files(folder: Path) -> list[str]:
    """The names of a store's files."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def run(store: Path, work: Path, expected: dict[str, Any], count: int, only: str = "") -> dict[str, dict[str, int]]:
    """Try every file of a store whose name begins so; how the trials ended, by file."""
    counts: dict[str, dict[str, int]] = {}
    for file in files(store):
        if not file.startswith(only):
            continue
        for trial in trials(store, file, count):
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(store, work)
            trial.apply(work)
            outcome = judge(in_child(work), expected)
            if outcome not in (RIGHT, NAMED, BY_VERIFY):
                outcome = f"WRONG {trial}: {outcome}"
            of_file = counts.setdefault(file, {})
            of_file[outcome] = of_file.get(outcome, 0) + 1
    shutil.rmtree(work, ignore_errors=True)
    return counts


def closed_store(folder: Path) -> dict[str, Any]:
    """Make a store that was closed, with indexes; return the right answers."""
    with jiyi.open(folder, embedder=None, dim=8, index_config=CONFIG) as engine:
        fill(engine)
        engine.flush()
    answers = ask(folder)
    assert answers["verify"] == []
    return answers


def crashed_store(folder: Path, work: Path) -> dict[str, Any]:
    """Make a store whose process died, with a log; return the right answers."""
    with jiyi.open(work, embedder=None, dim=8, index_config=CONFIG) as engine:
        engine.add("first", id="first", namespace="other")
        engine.flush()
        fill(engine)
        engine._store.settle_indexes()
        shutil.copytree(work, folder)
    shutil.copytree(folder, work, dirs_exist_ok=True)
    answers = ask(work)
    assert answers["verify"] == []
    shutil.rmtree(work)
    return answers
