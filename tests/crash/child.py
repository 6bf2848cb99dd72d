"""What a forked child does: it runs a script on a store, and reports the start and the end of each call."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import jiyi
from tests.crash.faults import Fault, Faults
from tests.crash.model import Item, item_of
from tests.crash.script import DIMENSIONS, FIRST_EMBEDDER, Call
from tests.engine.embedders import HashEmbedder

#: Found by no exact plan: namespaces of a handful get a graph and a Tantivy index.
TINY = jiyi.IndexConfig(dense_rows=6, keyword_rows=6, rebuild_fraction=0.2)


class CachedEmbedder(HashEmbedder):
    """Texts come again and again."""

    made: dict[tuple[int, str], Any] = {}  # noqa: RUF012 - shared on purpose: the same for equal dimensions

    def embed_query(self, text: str) -> Any:
        place = self.dim, text
        if place not in self.made:
            self.made[place] = super().embed_query(text)
        return self.made[place]


def embedder_named(name: str) -> CachedEmbedder:
    return CachedEmbedder(DIMENSIONS[name], name)


@dataclass(frozen=True, slots=True)
class Work:
    """What a child is to do."""

    folder: str
    calls: list[Call]
    fault: Fault | None = None
    heal_after: int = 1
    """Calls that fail before the fault goes away."""
    indexed: bool = False
    durability: str = "process"
    embedder: str = FIRST_EMBEDDER
    trace: str | None = None
    """Where to record every file operation."""
    watched: str | None = None
    """The folder whose operations count, if it is not the store's alone."""
    limit_file_bytes: int | None = None
    """Set with RLIMIT_FSIZE when the script begins to be run; lifted as a fault is."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Work:
        values = json.loads(text)
        fault = values.pop("fault")
        return cls(**values, fault=None if fault is None else Fault(**fault))


class Child:
    """One run of a script.

    Lines of the report, as JSON: {"begun": i}, {"done": i, "answer": …}, {"refused": i, "error": name},
    {"failed": i, "error", "causes", "state", "lost"}, {"healed": i}, {"over": …}; i counts from 0, -1 is opening.
    """

    def __init__(self, work: Work, report: Callable[[dict[str, Any]], None], faults: Faults | None) -> None:
        self.work = work
        self.report = report
        self.faults = faults
        self.embedder = work.embedder
        self.engine: jiyi.Engine | None = None
        self.failures = 0
        self.broken = False

    def open(self) -> None:
        self.engine = jiyi.open(
            self.work.folder,
            embedder=embedder_named(self.embedder),
            durability=self.work.durability,  # type: ignore[arg-type]
            index_config=TINY if self.work.indexed else None,
        )

    def run(self) -> None:
        trace = -1 if self.work.trace is None else os.open(self.work.trace, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        if self.faults is not None and self.work.fault is not None:
            self.faults.arm(self.work.watched or self.work.folder, self.work.fault, trace)
            self.broken = self.work.fault.how in ("once", "on", "short")
        while self.engine is None:
            if not self.attempt(-1, self.open):
                return
        if self.work.limit_file_bytes is not None:
            self.limit(self.work.limit_file_bytes)
            self.broken = True
        for i, call in enumerate(self.work.calls):
            if not self.attempt(i, lambda call=call: self.do(call)):
                return
        self.attempt(len(self.work.calls), self.engine.close)
        if self.faults is not None:
            self.report({"over": self.faults.counted, "acted": self.faults.acted})

    def attempt(self, i: int, work: Callable[[], Any]) -> bool:
        """Do one call and report it; False when there is no going on."""
        self.report({"begun": i})
        if self.faults is not None:
            self.faults.mark(f"begun {i}")
        try:
            answer = work()
        except (jiyi.StoreError, OSError) as error:
            self.failures += 1
            self.failed(i, error)
            if self.broken and self.failures >= self.work.heal_after:
                self.heal(i)
            elif not self.broken and self.failures > 20:
                return False
            if self.engine is None and i == len(self.work.calls) - 1:
                return False
        except (jiyi.JiyiError, ValueError) as error:
            if self.faults is not None:
                self.faults.mark(f"refused {i}")
            self.report({"refused": i, "error": type(error).__name__, "message": str(error)})
        else:
            if self.faults is not None:
                self.faults.mark(f"done {i}")
            self.report({"done": i, "answer": answer})
        return True

    def heal(self, i: int) -> None:
        assert self.faults is not None
        self.faults.disarm()
        self.limit(-1)
        self.broken = False
        self.report({"healed": i})

    @staticmethod
    def limit(size: int) -> None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def failed(self, i: int, error: BaseException) -> None:
        causes: list[str] = []
        cause: BaseException | None = error
        while cause is not None:
            number = getattr(cause, "errno", None)
            causes.append(type(cause).__name__ + ("" if number is None else f":{number}"))
            cause = cause.__cause__
        told = {
            "failed": i,
            "error": type(error).__name__,
            "message": str(error),
            "causes": causes,
            "where": traceback.format_tb(error.__traceback__)[-1],
        }
        if self.engine is None:  # it could not be opened, or not again
            self.report(told)
            if i >= 0 and self.work.calls[i]["call"] == "reopen":
                self.reopen_until_it_works(i)
            return
        state = [item_of(memory) for memory in self.engine.list(namespace=None)]
        self.report({**told, "state": state, "lost": unfound(self.engine, state)})

    def reopen_until_it_works(self, i: int) -> None:
        for _ in range(20):
            try:
                self.open()
                return
            except (jiyi.StoreError, OSError) as error:
                self.failures += 1
                self.failed(-1, error)
                if self.failures >= self.work.heal_after and self.broken:
                    self.heal(i)

    def do(self, call: Call) -> Any:
        assert self.engine is not None
        engine, rest = self.engine, {name: value for name, value in call.items() if name != "call"}
        match call["call"]:
            case "add":
                memory, vector = as_memory(rest["item"])
                return engine.add(memory, vector=vector)
            case "add_many":
                made = [as_memory(item) for item in rest["items"]]
                return engine.add_many([memory for memory, _ in made], vectors=[vector for _, vector in made])
            case "update":
                return item_of(engine.update(rest["id"], namespace=rest["namespace"], **rest["fields"]))
            case "delete":
                return engine.delete(rest["ids"], namespace=rest["namespace"])
            case "erase":
                return engine.erase(rest["ids"], namespace=rest["namespace"])
            case "forget":
                return engine.forget({"session": rest["session"]}, namespace=rest["namespace"])
            case "compact":
                return engine.compact()
            case "reinforce":
                return engine.reinforce(rest["ids"], namespace=rest["namespace"], now=rest["now"])
            case "reindex":
                report = engine.reindex(embedder_named(rest["embedder"]), sample=3)
                self.embedder = rest["embedder"]
                return report.memories
            case "consolidate":
                return engine.consolidate(namespace=rest["namespace"]).removed
            case "unconsolidate":
                return engine.unconsolidate(rest["ids"], namespace=rest["namespace"])
            case "snapshot":
                engine.snapshot(Path(self.work.folder).parent / rest["name"])
                return None
            case "flush":
                if self.work.indexed:
                    for name in engine.namespaces():
                        engine.search("", namespace=name)
                engine.flush()
                return None
            case "reopen":
                engine.close()
                self.engine = None
                self.open()
                return None
            case other:
                raise NotImplementedError(other)


def as_memory(item: Item) -> tuple[jiyi.Memory, Any]:
    fields = {name: value for name, value in item.items() if name != "vector"}
    vector = item["vector"]
    return jiyi.Memory(**fields), None if vector is None else np.array(vector, np.float32)


def unfound(engine: jiyi.Engine, state: list[Item], most: int = 6) -> list[str]:
    """Ids of some memories that a search for them does not find, by either leg."""
    now = 1_900_000_000
    living = [item for item in state if item["expires_at"] is None or item["expires_at"] > now]
    lost: list[str] = []
    plain = {"k": 10, "now": now, "diversity": "none", "recency_weight": 0.0, "neighbor_share": 0.0}
    with engine._store.ledger.reading() as connection:
        keys = {
            (name, memory_id): key
            for name, memory_id, key in connection.execute(
                "SELECT n.name, m.id, m.key FROM memories m JOIN namespaces n ON n.namespace = m.namespace"
            )
        }
    for item in living[:: max(1, len(living) // most)]:
        name = item["namespace"]
        found = engine.search(item["text"], namespace=name, preset="keyword", **plain)
        if item["text"] not in [hit.memory.text for hit in found]:
            lost.append(f"{name}/{item['id']} by its words")
        stored = engine._store.ledger.vector(keys[name, item["id"]])
        if stored is None or engine._store.mismatch is not None:
            lost.append(f"{name}/{item['id']} has no vector")
            continue
        vector = np.frombuffer(stored, np.float32)
        found = engine.search("zzz", namespace=name, preset="dense", query_vector=vector, **plain)
        texts = [hit.memory.text for hit in found]
        if item["text"] not in texts:
            lost.append(f"{name}/{item['id']} by its vector")
    return lost


def main(work: Work, out: int, faults: Faults | None) -> None:
    """Run in a fork: never returns."""

    def report(line: dict[str, Any]) -> None:
        os.write(out, (json.dumps(line) + "\n").encode())

    status = 0
    try:
        Child(work, report, faults).run()
    except BaseException:
        report({"crashed": traceback.format_exc()})
        status = 70
    finally:
        os._exit(status)
