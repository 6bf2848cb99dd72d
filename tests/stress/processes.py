"""One writer that is killed again and again, readers that follow it, and others who want its place.

    python -m tests.stress.processes --seconds 120 --seed 1

Memories are numbered; the writer adds at the top and deletes at the bottom, and says on a board (a small file that all
have mapped) what it is about to do and what it has done. From that every reader knows what it must find and what it
cannot. Prints what was done; exits with 1 and says what was wrong if anything was.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

import jiyi  # noqa: E402
from tests.engine.embedders import HashEmbedder, HashTable  # noqa: E402
from tests.nursery import Nursery, Started  # noqa: E402

SPACES: Final = ("even", "odd")
WINDOW: Final = 600
CONFIG: Final = jiyi.IndexConfig(dense_rows=100, keyword_rows=100)
EMBEDDERS: Final[dict[str, Any]] = {"hash-table": HashTable(), "hash-16": HashEmbedder(16, "hash-16")}
# So old a write must be seen without being asked for.
_BEHIND_S: Final = 1.0


class Board:
    """Numbers that all processes see. The writer alone changes all but `stop`.

    announced, added: every memory below `added` was stored, none from `announced` on was begun.
    deleting, deleted: every memory below `deleted` is gone, none from `deleting` on is being deleted.
    """

    _FIELDS = ("announced", "added", "deleting", "deleted", "writer", "stop", "ready")

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(8 * len(self._FIELDS)))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def __getitem__(self, name: str) -> int:
        return int(struct.unpack_from("<q", self._map, 8 * self._FIELDS.index(name))[0])

    def __setitem__(self, name: str, value: int) -> None:
        struct.pack_into("<q", self._map, 8 * self._FIELDS.index(name), value)


def space(number: int) -> str:
    return SPACES[number % 2]


def text(number: int) -> str:
    return f"entry number{number} in the {('red', 'green', 'blue')[number % 3]} book"


def number_of(memory: jiyi.Memory) -> int:
    number = int(memory.id[1:])
    assert (memory.namespace, memory.text) == (space(number), text(number)), memory
    return number


# ---------------------------------------------------------------------------------------------------- writer


def write(folder: Path, board: Board, rng: random.Random, done: Counter[str]) -> None:
    """Take the folder as soon as it can be had, check what the last writer has left, go on."""
    engine = _taken(folder, board)
    board["writer"] = os.getpid()
    there = sorted(number_of(memory) for memory in engine.list(namespace=None))
    lowest, top = (there[0], there[-1] + 1) if there else (board["added"], board["added"])
    assert there == list(range(lowest, top)), "what is stored has gaps"
    assert board["deleted"] <= lowest <= board["deleting"], (board["deleted"], lowest, board["deleting"])
    assert board["added"] <= top <= board["announced"], (board["added"], top, board["announced"])
    assert engine.verify() == []
    board["deleting"] = board["deleted"] = lowest
    board["added"] = board["announced"] = top

    def add() -> None:
        nonlocal top
        numbers = range(top, top + rng.randrange(1, 25))
        memories = [{"text": text(n), "id": f"n{n}", "namespace": space(n)} for n in numbers]
        board["announced"] = numbers.stop
        engine.add_many(memories)
        board["added"] = top = numbers.stop
        board["ready"] = 1  # it may be killed from here on

    def one_by_one(call: Callable[..., int] = engine.delete) -> None:
        nonlocal lowest
        for number in range(lowest, min(lowest + rng.randrange(1, 6), top)):
            board["deleting"] = number + 1
            assert call(f"n{number}", namespace=space(number)) == 1
            board["deleted"] = lowest = number + 1

    def erase(ids: str, namespace: str) -> int:
        with contextlib.suppress(jiyi.StoreError):  # a reader keeps bytes in the files; it is deleted all the same
            return engine.erase(ids, namespace=namespace, wait_s=2)
        return 1

    def shrink() -> None:
        while top - lowest > WINDOW and not board["stop"]:
            one_by_one()

    calls: dict[str, tuple[int, Callable[[], Any]]] = {
        "add": (50, add),
        "delete": (30, one_by_one),
        "shrink": (10, shrink),
        "compact": (2, engine.compact),
        "erase": (1, lambda: one_by_one(erase)),
        "flush": (2, engine.flush),
        "search": (20, lambda: engine.search("entry red", namespace=rng.choice(SPACES))),
        "reindex": (1, lambda: engine.reindex(EMBEDDERS[rng.choice(list(EMBEDDERS))])),
        "verify": (1, engine.verify),
    }
    while not board["stop"]:
        (name,) = rng.choices(list(calls), [weight for weight, _ in calls.values()])
        calls[name][1]()
        done[name] += 1
    assert engine.count(namespace=None) == top - lowest
    engine.close()


def _taken(folder: Path, board: Board) -> jiyi.Engine:
    while True:
        try:
            engine = jiyi.open(folder, embedder=EMBEDDERS["hash-table"], index_config=CONFIG)
            if engine.stats()["embedder"] not in (None, "hash-table"):
                name = engine.stats()["embedder"]
                engine.close()
                engine = jiyi.open(folder, embedder=EMBEDDERS[name], index_config=CONFIG)
        except jiyi.StoreLockedError:  # somebody who contends had it for a moment
            if board["stop"]:
                sys.exit(0)
            time.sleep(0.01)
        else:
            return engine


# ---------------------------------------------------------------------------------------------------- readers


def read(folder: Path, board: Board, rng: random.Random, done: Counter[str]) -> None:
    """Follow the writer, opening anew now and then."""
    while not board["stop"]:
        with jiyi.open(folder, embedder=None, read_only=True, index_config=CONFIG) as engine:
            done["open"] += 1
            until = time.monotonic() + rng.uniform(0.2, 6)
            if rng.random() < 0.5:
                _follow(engine, board, rng, done, until, at_once=True)
                continue
            # Several threads may leave each other behind, by no more than is promised.
            wrong: list[BaseException] = []

            def work(seed: int, engine: jiyi.Engine = engine, until: float = until, wrong: Any = wrong) -> None:
                try:
                    _follow(engine, board, random.Random(seed), done, until, at_once=False)
                except BaseException as error:
                    wrong.append(error)

            threads = [threading.Thread(target=work, args=(rng.random(),)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if wrong:
                raise wrong[0]


def _follow(
    engine: jiyi.Engine, board: Board, rng: random.Random, done: Counter[str], until: float, *, at_once: bool
) -> None:
    known: deque[tuple[float, int]] = deque()
    while not board["stop"] and time.monotonic() < until:
        before = {name: board[name] for name in ("added", "deleted")}
        refreshed = at_once or rng.random() < 0.1
        if refreshed and rng.random() < 0.5:
            engine.refresh()
        now = time.monotonic()
        known.append((now, before["added"]))
        while len(known) > 1 and known[1][0] < now - _BEHIND_S:
            known.popleft()
        # What must be seen: at once, or what was there a second ago.
        top = before["added"] if at_once else (known[0][1] if known[0][0] < now - _BEHIND_S else 0)
        wanted = rng.randrange(before["deleted"], max(top, before["deleted"] + 1))
        kind = rng.choice(("search", "search", "search", "get", "list", "several"))
        if kind == "search":
            found = engine.search(f"number{wanted}", namespace=space(wanted), k=5, preset="keyword").memories
        elif kind == "several":
            found = engine.search(f"number{wanted}", namespace=list(SPACES), k=5, preset="keyword").memories
        elif kind == "list":
            found = engine.list(namespace=space(wanted), limit=50)
        else:
            try:
                found = [engine.get(f"n{wanted}", namespace=space(wanted))]
            except jiyi.NotFoundError:
                found = []
        after = {name: board[name] for name in ("announced", "deleting")}
        numbers = [number_of(memory) for memory in found]
        lowest = before["deleted"] if at_once or kind in ("get", "list") else 0
        assert len(set(numbers)) == len(numbers), numbers
        assert all(lowest <= n < after["announced"] for n in numbers), (kind, lowest, numbers, after)
        if kind != "list" and after["deleting"] <= wanted < top:
            assert wanted in numbers, (kind, wanted, numbers, before, after)
            done["found"] += 1
        done[kind] += 1


def contend(folder: Path, board: Board, rng: random.Random, done: Counter[str]) -> None:
    """Ask for the writer's place again and again."""
    while not board["stop"]:
        writer = board["writer"]
        try:
            engine = jiyi.open(folder, embedder=None)
        except jiyi.StoreLockedError as error:
            path, holder = error.path, error.holder
        else:
            assert engine.verify() == []
            engine.close()
            done["had it"] += 1
            continue
        assert path == str(folder)
        assert holder
        done["refused"] += 1
        done["named"] += f"process {writer} " in holder
        time.sleep(rng.uniform(0, 0.05))


# ---------------------------------------------------------------------------------------------------- parent

ROLES: Final = {"writer": write, "reader": read, "contender": contend}


def play(role: str, folder: Path, board: Board, seed: str) -> None:
    """Be one of the processes, until the board says stop; print what was done."""
    faulthandler.enable()
    done: Counter[str] = Counter()
    ROLES[role](folder, board, random.Random(seed), done)
    print(json.dumps(done))


class Processes:
    """The processes of one run: new interpreters, or forked from a nursery, which takes no seconds to start each."""

    def __init__(self, folder: Path, seed: int, nursery: Nursery | None = None) -> None:
        self._nursery = nursery
        self._folder = folder
        self._board_path = folder.with_name("board")
        self._seed = seed
        self._started = 0
        self.board = Board(self._board_path)
        self.done: dict[str, Counter[str]] = {role: Counter() for role in ROLES}
        self.wrong: list[str] = []
        self.kills = 0

    def start(self, role: str) -> subprocess.Popen[str] | Started:
        self._started += 1
        words = ["--play", role, "--folder", str(self._folder), "--seed", f"{self._seed}/{self._started}"]
        if self._nursery is not None:
            code = "from tests.stress.processes import main\nraise SystemExit(main())"
            return self._nursery.start(code, words, dict(os.environ))
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-X", "faulthandler", "-m", "tests.stress.processes", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def end(self, role: str, process: subprocess.Popen[str] | Started, *, killed: bool = False) -> None:
        try:
            out, err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.wrong.append(f"{role} hangs: {err[-3000:]}")
            return
        if killed and process.returncode == -signal.SIGKILL:
            return
        if process.returncode != 0:
            self.wrong.append(f"{role} ended with {process.returncode}: {err[-3000:]}")
        elif out.strip():
            self.done[role].update(json.loads(out))

    def run(
        self, seconds: float, *, kill_every_s: float = 6.0, readers: int = 3, contenders: int = 1, kills: int = 0
    ) -> None:
        """Let them work for so long, and on a slow machine for longer: until so many were killed."""
        rng = random.Random(self._seed)
        jiyi.warmup()  # once, for all: compiling is no part of the time
        with contextlib.suppress(FileExistsError):
            jiyi.open(self._folder, embedder=EMBEDDERS["hash-table"], index_config=CONFIG).close()
        roles = ["writer", *["reader"] * readers, *["contender"] * contenders]
        at_work = [(role, self.start(role)) for role in roles]
        patience = time.monotonic() + 120
        while not self.board["ready"] and time.monotonic() < patience and at_work[0][1].poll() is None:
            time.sleep(0.02)  # starting is no part of the time
        deadline = time.monotonic() + seconds
        patience = deadline + 120

        def is_over() -> bool:
            return time.monotonic() >= (patience if self.kills < kills else deadline)

        while not is_over() and not self.wrong:
            until = time.monotonic() + rng.uniform(0.3, 2 * kill_every_s)
            if self.kills >= kills:
                until = min(until, deadline)
            while time.monotonic() < until and all(process.poll() is None for _, process in at_work):
                time.sleep(0.02)
            for role, process in at_work:
                if process.poll() is not None:
                    self.end(role, process)
                    if not self.wrong:
                        self.wrong.append(f"{role} ended by itself")
            if is_over() or self.wrong:
                break
            i = 0 if rng.random() < 0.7 else rng.randrange(1, len(at_work))
            role, process = at_work[i]
            if role == "writer":  # only one that has written something
                while not self.board["ready"] and process.poll() is None and time.monotonic() < patience:
                    time.sleep(0.01)
                time.sleep(rng.uniform(0, 1))
                self.board["ready"] = 0
            process.kill()
            self.kills += 1
            self.end(role, process, killed=True)
            at_work[i] = (role, self.start(role))
        self.board["stop"] = 1
        for role, process in at_work:
            self.end(role, process)
        if not self.wrong:
            self._check()

    def _check(self) -> None:
        with jiyi.open(self._folder, embedder=None) as engine:
            there = sorted(number_of(memory) for memory in engine.list(namespace=None))
            lowest, top = self.board["deleted"], self.board["added"]
            if there != list(range(lowest, top)) and not self.board["deleting"] > lowest:
                self.wrong.append(f"{len(there)} memories are there, {lowest} to {top} should be")
            self.wrong.extend(engine.verify())
            engine.compact()
            left = [path.name for path in self._folder.rglob("*partial*")]
            if left:
                self.wrong.append(f"killed writers have left {left}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--kill-every-s", type=float, default=6.0)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--play", choices=ROLES)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    if arguments.play:
        play(arguments.play, arguments.folder, Board(arguments.folder.with_name("board")), arguments.seed)
        return 0
    with tempfile.TemporaryDirectory() as parent:
        run = Processes(Path(parent) / "store", int(arguments.seed))
        run.run(arguments.seconds, kill_every_s=arguments.kill_every_s)
    print(json.dumps({"done": run.done, "kills": run.kills, "wrong": run.wrong}, indent=1))
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
