"""Several threads mix every call of one engine, and everything that they see is held against a model.

    python -m tests.stress.threads --seconds 120 --threads 8 --seed 1

Prints how often each call was made; exits with 1 and says what was wrong if anything was.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import json
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import jiyi
from tests.engine.embedders import HashEmbedder, HashTable
from tests.stress.history import History, Place

#: Everybody's; the third is large enough for indexes only now and then.
SHARED: Final = ("common", "team/a", "team/b")
WORDS: Final = (
    "river mountain kettle violin harbour lantern orchard granite 京都 徒步 龙井茶 服务器 saffron meadow".split()
)
_EXPIRED: Final = "2020-01-02T00:00:00Z"
_MOST_OWN: Final = 120

# What another thread is allowed to make a call fail with: one reindex at a time.
_BUSY: Final = "a reindex of this store is running"


class Stress:
    """One engine, its model, and the threads at work."""

    def __init__(self, engine: jiyi.Engine, folder: Path | None, seed: int, scratch: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.scratch = scratch
        self.history = History()
        self.calls: Counter[str] = Counter()
        self.seconds: dict[str, float] = defaultdict(float)
        self.plans: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.stop = threading.Event()
        self.began: dict[int, int] = {}
        self.expired: set[Place] = set()
        self._seed = seed

    def run(self, threads: int, seconds: float) -> None:
        workers = [
            threading.Thread(target=self._work, args=(number,), name=f"stress-{number}") for number in range(threads)
        ]
        for worker in workers:
            worker.start()
        deadline = time.monotonic() + seconds
        while not self.stop.wait(1.0) and time.monotonic() < deadline:
            self.history.forget_before(min(self.began.values(), default=0))
        self.stop.set()
        for worker in workers:
            worker.join(120)
            if worker.is_alive():
                self.wrong.append(f"{worker.name} hangs")
                faulthandler.dump_traceback(all_threads=True)
        if not self.wrong:
            self._finish()

    def _work(self, number: int) -> None:
        worker = Worker(self, number, random.Random(f"{self._seed}/{number}"))
        try:
            while not self.stop.is_set():
                self.began[number] = self.history.tick()
                name, step = worker.step()
                started = time.perf_counter()
                step()
                self.calls[name] += 1
                self.seconds[name] += time.perf_counter() - started
        except BaseException:
            self.wrong.append(f"thread {number}: {traceback.format_exc()}")
            self.stop.set()
        finally:
            self.began.pop(number, None)

    def check(self, wrong: Iterable[str]) -> None:
        lines = list(wrong)
        if lines:
            raise AssertionError("\n".join(lines[:5]))

    def _finish(self) -> None:
        """Nobody is at work any more: everything must be exactly as the model says, also after opening again."""
        self.engine.compact()
        living = {place: text for place, text in self.history.living().items() if place not in self.expired}
        self._exactly(self.engine, living)
        self.engine.flush()
        error = self.engine.stats()["index_error"]
        if error is not None:
            self.wrong.append(f"an index could not be built: {error}")
        self._exactly(self.engine, living)
        self.engine.close()
        if self.folder is not None:
            with jiyi.open(self.folder, embedder=None) as engine:
                self._exactly(engine, living)

    def _exactly(self, engine: jiyi.Engine, living: dict[Place, str]) -> None:
        found = {(memory.namespace, memory.id): memory.text for memory in engine.list(namespace=None)}
        if found != living:
            self.wrong.append(
                f"{len(found)} memories are there and {len(living)} should be: too many "
                f"{sorted(found.items() - living.items())[:5]}, too few {sorted(living.items() - found.items())[:5]}"
            )
        if engine.count(namespace=None) != len(living):
            self.wrong.append(f"count says {engine.count(namespace=None)}, {len(living)} memories are there")
        self.wrong.extend(engine.verify())
        for (namespace, memory_id), text in list(living.items())[:: max(1, len(living) // 200)]:
            # Its own number stands in each text, so words alone must find it.
            hits = engine.search(text, namespace=namespace, k=3, preset="keyword", recency_weight=0.0)
            if memory_id not in hits.ids:
                self.wrong.append(f"{namespace}/{memory_id} {text!r} is not found by its own text: {hits.ids}")


class Worker:
    """One thread's memories, and its next call."""

    def __init__(self, stress: Stress, number: int, rng: random.Random) -> None:
        self.stress, self.engine, self.history = stress, stress.engine, stress.history
        self.number = number
        self.rng = rng
        self.own = f"own/{number}"
        self._made = 0
        folder = stress.folder is not None
        self._steps: dict[str, tuple[int, Callable[[], None]]] = {
            "add": (30, self.add),
            "add_many": (20, self.add_many),
            "update": (15, self.update),
            "delete": (25, self.delete),
            "forget": (2, self.forget),
            "erase": (1, self.erase),
            "retain": (1, self.retain),
            "reinforce": (6, self.reinforce),
            "outcome": (3, self.outcome),
            "add_messages": (4, self.add_messages),
            "distill": (1, self.distill),
            "consolidate": (2, self.consolidate),
            "get": (15, self.get),
            "count": (15, self.count),
            "list": (10, self.list),
            "facts": (5, self.facts),
            "neighbors": (5, self.neighbors),
            "namespaces": (4, self.namespaces),
            "search": (60, self.search),
            "search_filtered": (15, self.search_filtered),
            "search_several": (10, self.search_several),
            "search_many": (10, self.search_many),
            "search_own": (10, self.search_own),
            "replay": (2, self.replay),
            "build_context": (6, self.build_context),
            "flush": (1, self.engine.flush),
            "compact": (1, self.compact),
            "reindex": (1, self.reindex),
            "snapshot": (1 if folder else 0, self.snapshot),
            "verify": (1, self.verify),
            "stats": (2, self.stats),
            "asearch": (4, self.asynchronous),
        }

    def step(self) -> tuple[str, Callable[[], None]]:
        names = list(self._steps)
        (name,) = self.rng.choices(names, [self._steps[name][0] for name in names])
        return name, self._steps[name][1]

    # ------------------------------------------------------------------------------------------------- helpers

    def _memory(self, namespace: str, **fields: Any) -> dict[str, Any]:
        self._made += 1
        number = f"n{self.number}x{self._made}"
        text = f"{' '.join(self.rng.choices(WORDS, k=self.rng.randrange(2, 9)))} {number}"
        memory = {"text": text, "id": number, "namespace": namespace, "metadata": {"owner": self.number}}
        if self.rng.random() < 0.3:
            memory["session"] = f"s{self.rng.randrange(4)}"
        return memory | fields

    def _write(self, memories: list[dict[str, Any]]) -> None:
        texts = {(memory["namespace"], memory["id"]): memory["text"] for memory in memories}
        self.history.writing(texts, self.number)
        if len(memories) == 1 and self.rng.random() < 0.7:
            assert self.engine.add(memories[0]) == memories[0]["id"]
        else:
            assert self.engine.add_many(memories) == [memory["id"] for memory in memories]
        self.history.written(texts)

    def _end(self, namespace: str, ids: list[str], call: Callable[[], int]) -> None:
        places = [(namespace, memory_id) for memory_id in ids]
        self.history.ending(places)
        gone = call()
        self.history.ended(places)
        assert gone == len(ids), f"{gone} of {len(ids)} memories went"

    def _any_own(self, namespace: str) -> str | None:
        owned = [i for i in self.history.owned(self.number, namespace) if (namespace, i) not in self.stress.expired]
        return self.rng.choice(owned) if owned else None

    def _check_hits(self, hits: jiyi.Hits, k: int, namespaces: Iterable[str], began: int) -> None:
        ended = self.history.tick()
        memories = hits.memories
        places = [(memory.namespace, memory.id) for memory in memories]
        assert len(hits) <= k, f"{len(hits)} hits for k = {k}"
        assert len(set(places)) == len(places), f"twice: {places}"
        assert {memory.namespace for memory in memories} <= set(namespaces), f"of others: {places}"
        seen = [(place, memory.text) for place, memory in zip(places, memories, strict=True)]
        self.stress.check(self.history.impossible(seen, began, ended))
        assert not any(place in self.stress.expired for place in places), f"expired: {places}"
        self.stress.plans.update(f"{leg} {plan}" for leg, plan in hits.plans.items())
        assert not any("failed" in reason.reason for reason in hits.degraded), hits.degraded

    # ------------------------------------------------------------------------------------------------- writing

    def add(self) -> None:
        memory = self._memory(self.rng.choice(SHARED))
        if self.rng.random() < 0.05:
            memory["expires_at"] = _EXPIRED
            self.stress.expired.add((memory["namespace"], memory["id"]))
        self._write([memory])
        self._crowd(memory["namespace"])

    def add_many(self) -> None:
        namespace = self.rng.choice(SHARED)
        memories = [self._memory(namespace) for _ in range(self.rng.randrange(1, 30))]
        if self.rng.random() < 0.3 and (known := self._any_own(namespace)) is not None:
            memories[0]["id"] = known  # replaces it
        self._write(memories)
        self._crowd(namespace)

    def _crowd(self, namespace: str) -> None:
        """Keep the number of memories about what it is. Those that are expired are for compacting."""
        owned = [i for i in self.history.owned(self.number, namespace) if (namespace, i) not in self.stress.expired]
        if len(owned) > _MOST_OWN:
            ids = owned[: _MOST_OWN // 3]
            self._end(namespace, ids, lambda: self.engine.delete(ids, namespace=namespace))

    def update(self) -> None:
        namespace = self.rng.choice(SHARED)
        memory_id = self._any_own(namespace)
        if memory_id is None:
            return
        text = f"{' '.join(self.rng.choices(WORDS, k=4))} {memory_id} again{self.rng.randrange(10**6)}"
        place = (namespace, memory_id)
        self.history.writing({place: text}, self.number)
        assert self.engine.update(memory_id, namespace=namespace, text=text).text == text
        self.history.written([place])
        assert self.engine.get(memory_id, namespace=namespace).text == text

    def delete(self) -> None:
        namespace = self.rng.choice(SHARED)
        memory_id = self._any_own(namespace)
        if memory_id is None:
            return
        text = self.history.owned(self.number, namespace)[memory_id]
        self._end(namespace, [memory_id], lambda: self.engine.delete([memory_id, "unknown"], namespace=namespace))
        assert memory_id not in self.engine.search(text, namespace=namespace, k=10).ids
        assert self.engine.delete(memory_id, namespace=namespace) == 0

    def forget(self) -> None:
        namespace = self.rng.choice(SHARED)
        wanted = self._some_own(namespace)
        where = {"metadata.owner": self.number, "id": {"in": wanted}}
        assert self.engine.forget(where, namespace=namespace, dry_run=True) == len(wanted)
        self._end(namespace, wanted, lambda: self.engine.forget(where, namespace=namespace))

    def _some_own(self, namespace: str) -> list[str]:
        owned = self.history.owned(self.number, namespace)
        kept = [memory_id for memory_id in owned if (namespace, memory_id) not in self.stress.expired]
        return self.rng.sample(kept, min(len(kept), 5))

    def erase(self) -> None:
        namespace = self.rng.choice(SHARED)
        wanted = self._some_own(namespace)
        places = [(namespace, memory_id) for memory_id in wanted]
        self.history.ending(places)
        try:
            gone = self.engine.erase(wanted, namespace=namespace, wait_s=20)
            assert gone == len(wanted), (gone, wanted)
        except jiyi.StoreError as error:  # somebody reads all the time: the memories are deleted all the same
            if "the memories are deleted" not in str(error):
                raise
            self.stress.calls["erase, bytes left"] += 1
        self.history.ended(places)

    def retain(self) -> None:
        # In the thread's own namespace, since limits count over all owners.
        self._write([self._memory(self.own, kind="archival") for _ in range(3)])
        owned = self.history.owned(self.number, self.own)
        self._end(
            self.own,
            list(owned),
            lambda: (
                sum(self.engine.retain({"archival": {"max_count": 0}}, namespace=self.own).values())
                + self.engine.forget({}, namespace=self.own)
            ),
        )

    def reinforce(self) -> None:
        namespace = self.rng.choice(SHARED)
        memory_id = self._any_own(namespace)
        if memory_id is not None:
            assert self.engine.reinforce(memory_id, namespace=namespace) == 1
            assert self.engine.get(memory_id, namespace=namespace).uses >= 1

    def outcome(self) -> None:
        memory = self._memory(self.own, kind="procedural", title="brew", steps=["boil", "pour"])
        self._write([memory])
        assert self.engine.outcome(memory["id"], success=self.rng.random() < 0.5, namespace=self.own) == 1
        found = self.engine.get(memory["id"], namespace=self.own)
        assert found.successes + found.failures == 1
        self._end(self.own, [memory["id"]], lambda: self.engine.delete(memory["id"], namespace=self.own))

    def add_messages(self) -> None:
        session = f"talk{self.number}-{self._made}"
        said = [{"role": "user", "content": f"{self.rng.choice(WORDS)} {session} {i}"} for i in range(4)]
        namespace = f"{self.own}/talk"
        assert len(self.engine.add_messages(said[:3], session=session, namespace=namespace)) == 3
        assert len(self.engine.add_messages(said, session=session, namespace=namespace)) == 1
        assert len(self.engine.add_messages(said, session=session, namespace=namespace)) == 0
        hits = self.engine.search(said[1]["content"], namespace=namespace, neighbors=1, k=1, preset="keyword")
        assert hits.memories[0].text == said[1]["content"], hits
        assert self.engine.forget({"session": session}, namespace=namespace) == 4
        self._made += 1

    def distill(self) -> None:
        namespace = f"{self.own}/distilled"
        self.engine.add_many([f"likes {word}" for word in self.rng.sample(WORDS, 3)], namespace=namespace)
        done = self.engine.distill(
            extractor=lambda memories: [f"in short: {memories[-1].text}"], namespace=namespace, name="short"
        )
        assert not done.failed, done
        assert self.engine.count(namespace=namespace, where={"kind": "semantic"}) >= 1
        assert self.engine.forget({}, namespace=namespace) >= 4

    def consolidate(self) -> None:
        namespace = f"{self.own}/merged"
        self._made += 1
        text = f"the {self.rng.choice(WORDS)} stands by the {self.rng.choice(WORDS)} since morning"
        memories = [{"text": text, "id": f"m{i}", "timestamp": f"2024-01-0{i + 1}T00:00:00Z"} for i in range(3)]
        self.engine.add_many(memories, namespace=namespace)
        self.engine.consolidate(namespace=namespace)
        assert self.engine.count(namespace=namespace) == 1
        assert self.engine.search(text, namespace=namespace).ids == ["m2"]
        assert self.engine.unconsolidate("m2", namespace=namespace) == 3
        assert sorted(self.engine.search(text, namespace=namespace, diversity="none").ids) == ["m0", "m1", "m2"]
        assert self.engine.forget({}, namespace=namespace) == 3

    # ------------------------------------------------------------------------------------------------- reading

    def get(self) -> None:
        namespace = self.rng.choice(SHARED)
        owned = self.history.owned(self.number, namespace)
        if owned:
            memory_id = self.rng.choice(list(owned))
            try:
                found = self.engine.get(memory_id, namespace=namespace).text
            except jiyi.NotFoundError:
                assert (namespace, memory_id) in self.stress.expired  # and compacted by now
            else:
                assert found == owned[memory_id]

    def count(self) -> None:
        namespace = self.rng.choice(SHARED)
        where = {"expires_at": {"exists": False}}
        began = self.history.tick()
        count = self.engine.count(namespace=namespace, where=where)
        ended = self.history.tick()
        self.stress.check(self.history.miscounted(count, began, ended, namespace, set(self.stress.expired)))

    def list(self) -> None:
        namespace = self.rng.choice(SHARED)
        owner = self.rng.choice((None, self.number))
        where = None if owner is None else {"metadata.owner": owner}
        began = self.history.tick()
        found = self.engine.list(namespace=namespace, where=where)
        ended = self.history.tick()
        self.stress.check(
            self.history.impossible(
                (((m.namespace, m.id), m.text) for m in found if (m.namespace, m.id) not in self.stress.expired),
                began,
                ended,
            )
        )
        places = {(memory.namespace, memory.id) for memory in found}
        assert len(places) == len(found)
        self.stress.check(self.history.missing(places | self.stress.expired, began, ended, namespace, owner))

    def facts(self) -> None:
        self._made += 1
        subject = f"person{self.number}-{self._made}"
        for city, day in (("Kyoto", 1), ("Oslo", 2)):
            self.engine.add(
                {
                    "subject": subject,
                    "predicate": "lives in",
                    "object": city,
                    "kind": "semantic",
                    "timestamp": f"2024-01-0{day}T00:00:00Z",
                },
                namespace=f"{self.own}/facts",
            )
        held = self.engine.facts(subject=subject, namespace=f"{self.own}/facts")
        assert [fact.object for fact in held] == ["Oslo"], held
        every = self.engine.facts(subject=subject, namespace=f"{self.own}/facts", history=True)
        assert [fact.object for fact in every] == ["Kyoto", "Oslo"], every
        near = self.engine.neighbors(subject, namespace=f"{self.own}/facts")
        assert [neighbor.entity.casefold() for neighbor in near] == ["oslo"], near
        assert self.engine.forget({"subject": subject}, namespace=f"{self.own}/facts") == 2
        assert self.engine.neighbors(subject, namespace=f"{self.own}/facts") == []

    def neighbors(self) -> None:
        assert self.engine.neighbors("nobody", namespace=self.rng.choice(SHARED)) == []

    def namespaces(self) -> None:
        began = self.history.tick()
        held = self.engine.namespaces(list(SHARED))
        ended = self.history.tick()
        assert set(held) <= set(SHARED)
        for namespace in SHARED:
            if not any(place[0] == namespace for place in list(self.stress.expired)):
                self.stress.check(self.history.miscounted(held.get(namespace, 0), began, ended, namespace))

    def _query(self) -> str:
        return " ".join(self.rng.choices(WORDS, k=self.rng.randrange(1, 4)))

    def search(self) -> None:
        namespace, k = self.rng.choice(SHARED), self.rng.choice((1, 5, 20))
        options = self.rng.choice(
            (
                {},
                {"preset": "keyword"},
                {"preset": "dense"},
                {"dense_plan": "indexed", "keyword_plan": "indexed"},
                {"dense_plan": "exact", "keyword_plan": "exact"},
                {"reinforcement": "last_use"},
                {"rerank": ("bm25",)},
                {"neighbors": 2},
                {"as_of": "2100-01-01T00:00:00Z"},
            )
        )
        plain = self.rng.random() < 0.3
        if plain:
            options = {"diversity": "none"}
        began = self.history.tick()
        hits = self.engine.search(self._query(), namespace=namespace, k=k, **options)
        self._check_hits(hits, k, [namespace], began)
        if plain:
            assert hits.scores == sorted(hits.scores, reverse=True)
        if self.rng.random() < 0.1:
            assert hits.explain()
            json.loads(hits.explain("json"))

    def search_own(self) -> None:
        """What this thread has written, it finds."""
        namespace = self.rng.choice(SHARED)
        memory_id = self._any_own(namespace)
        if memory_id is None:
            return
        text = self.history.owned(self.number, namespace)[memory_id]
        began = self.history.tick()
        hits = self.engine.search(text, namespace=namespace, k=5, preset="keyword", recency_weight=0.0)
        self._check_hits(hits, 5, [namespace], began)
        assert memory_id in hits.ids, f"{memory_id} {text!r} is not among {[m.text for m in hits.memories]}"

    def search_filtered(self) -> None:
        namespace, owner = self.rng.choice(SHARED), self.rng.randrange(8)
        where: dict[str, Any] = self.rng.choice(
            ({"metadata.owner": owner}, {"session": "s1"}, {"kind": {"in": ["episodic", "archival"]}})
        )
        began = self.history.tick()
        hits = self.engine.search(self._query(), namespace=namespace, k=10, where=where)
        self._check_hits(hits, 10, [namespace], began)
        if "metadata.owner" in where:
            assert {memory.metadata["owner"] for memory in hits.memories} <= {owner}
        if "session" in where:
            assert {memory.session for memory in hits.memories} <= {"s1"}

    def search_several(self) -> None:
        began = self.history.tick()
        if self.rng.random() < 0.5:
            hits = self.engine.search(self._query(), namespace="team/*", k=10)
            self._check_hits(hits, 10, SHARED[1:], began)
        else:
            hits = self.engine.search(self._query(), namespace=list(SHARED), k=10)
            self._check_hits(hits, 10, SHARED, began)

    def search_many(self) -> None:
        namespace = self.rng.choice(SHARED)
        queries = [self._query() for _ in range(self.rng.randrange(1, 6))]
        began = self.history.tick()
        for hits in self.engine.search_many(queries, namespace=namespace, k=5):
            self._check_hits(hits, 5, [namespace], began)

    def replay(self) -> None:
        hits = self.engine.search(self._query(), namespace=self.own)
        assert self.engine.replay(hits.query_record).same or self.stress.calls["reindex"], "an answer has changed"

    def build_context(self) -> None:
        namespace = self.rng.choice(SHARED)
        began = self.history.tick()
        context = self.engine.build_context(
            [self._query(), self._query()], namespace=namespace, reinforce=self.rng.random() < 0.3
        )
        ended = self.history.tick()
        seen = [((m.namespace, m.id), m.text) for m in context.memories]
        self.stress.check(self.history.impossible(seen, began, ended))
        assert {place[0] for place, _ in seen} <= {namespace}

    def asynchronous(self) -> None:
        async def main() -> None:
            namespace = self.rng.choice(SHARED)
            memory = self._memory(namespace)
            place = (namespace, memory["id"])
            self.history.writing({place: memory["text"]}, self.number)
            await self.engine.aadd(memory)
            self.history.written([place])
            began = self.history.tick()
            query = self._query()
            every = await asyncio.gather(*(self.engine.asearch(query, namespace=namespace, k=5) for _ in range(3)))
            for hits in every:
                self._check_hits(hits, 5, [namespace], began)

        asyncio.run(main())

    # ------------------------------------------------------------------------------------------------- upkeep

    def compact(self) -> None:
        self.engine.compact()

    def reindex(self) -> None:
        embedder = self.rng.choice((HashEmbedder(24, "hash-24"), HashTable(32), HashEmbedder(16, "hash-16")))
        try:
            self.engine.reindex(embedder)
        except jiyi.StoreError as error:
            if _BUSY not in str(error):
                raise

    def snapshot(self) -> None:
        dest = self.stress.scratch / f"snapshot-{self.number}-{self._made}"
        self._made += 1
        began = self.history.tick()
        self.engine.snapshot(dest)
        ended = self.history.tick()
        with jiyi.open(dest, embedder=None, read_only=True) as copy:
            assert copy.verify() == []
            for namespace in SHARED:
                found = copy.list(namespace=namespace)
                places = {(memory.namespace, memory.id) for memory in found}
                self.stress.check(
                    self.history.impossible(
                        (((m.namespace, m.id), m.text) for m in found if (namespace, m.id) not in self.stress.expired),
                        began,
                        ended,
                    )
                )
                self.stress.check(self.history.missing(places | self.stress.expired, began, ended, namespace))
        shutil.rmtree(dest)

    def verify(self) -> None:
        assert self.engine.verify() == []

    def stats(self) -> None:
        stats = self.engine.stats()
        assert stats["memories"] >= 0
        assert stats["index_error"] is None, stats


def stress(folder: Path | None, *, threads: int, seconds: float, seed: int, budget_mb: float = 1024) -> Stress:
    """Let threads work on one engine for a time; see `Stress.wrong`."""
    config = jiyi.IndexConfig(dense_rows=150, keyword_rows=200)
    engine = jiyi.open(folder, embedder=HashTable(), index_config=config, memory_budget_mb=budget_mb)
    with tempfile.TemporaryDirectory() as scratch:
        run = Stress(engine, folder, seed, Path(scratch))
        run.run(threads, seconds)
        engine.close()
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", action="store_true", help="a store in memory, instead of one in a folder")
    parser.add_argument("--budget-mb", type=float, default=1024, help="so small that namespaces are unloaded: 0.5")
    arguments = parser.parse_args()
    faulthandler.enable()
    jiyi.warmup()  # compiling is no part of the time
    with tempfile.TemporaryDirectory() as parent:
        folder = None if arguments.memory else Path(parent) / "store"
        run = stress(
            folder,
            threads=arguments.threads,
            seconds=arguments.seconds,
            seed=arguments.seed,
            budget_mb=arguments.budget_mb,
        )
    calls = {name: f"{n} in {run.seconds[name]:.1f} s" for name, n in run.calls.most_common()}
    print(json.dumps({"calls": calls, "plans": dict(run.plans), "wrong": run.wrong}, indent=1))
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
