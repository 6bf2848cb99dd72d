"""A store that is written to, searched and compacted for long keeps its size, in memory and on disk.

    python -m tests.stress.soak --operations 1000000 --searches 100000

Prints resident memory and bytes on disk as it goes, and exits with 1 if they end more than a fifth above the steady
state: what they were after the first tenth, when as many memories were alive as at the end.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import jiyi
from jiyi.disk import folder_bytes
from tests.engine.embedders import HashTable

_WORDS = "river mountain kettle violin harbour lantern orchard granite 京都 徒步 龙井茶 服务器 saffron meadow".split()
_ALLOWED = 1.2


@dataclass(frozen=True)
class Report:
    """What a run began and ended with."""

    steady_rss_bytes: int
    rss_bytes: int
    steady_disk_bytes: int
    disk_bytes: int
    count: int
    expected: int

    @property
    def is_steady(self) -> bool:
        small = self.rss_bytes <= _ALLOWED * self.steady_rss_bytes
        return small and self.disk_bytes <= _ALLOWED * self.steady_disk_bytes and self.count == self.expected


def rss_bytes() -> int:
    """Return the resident memory of this process."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status says nothing of memory")


def soak(
    folder: Path,
    *,
    operations: int,
    searches: int,
    live: int = 10_000,
    words: int = 10**5,
    seed: int = 0,
    say: bool = False,
) -> Report:
    """Add, update and delete memories in a window of `live`, search in between, compact now and then.

    Of `words` different words the caches have most after the first tenth only if that was long enough.
    """
    rng = random.Random(seed)
    config = jiyi.IndexConfig(dense_rows=live // 2, keyword_rows=live // 2)
    vectors = HashTable()
    alive: list[str] = []
    made = searched = 0
    steady: tuple[int, int] | None = None
    started = time.monotonic()
    with jiyi.open(folder, embedder=vectors, index_config=config, memory_budget_mb=256) as engine:

        def text() -> str:
            return " ".join(rng.choices(_WORDS, k=rng.randrange(3, 12))) + f" {rng.randrange(words)}"

        def settle() -> tuple[int, int]:
            engine.compact()
            engine.search("river")
            engine.flush()
            return rss_bytes(), folder_bytes(folder)

        done = 0
        next_compact = operations // 10
        while done < operations:
            kind = rng.random()
            if len(alive) < live or kind < 0.35:
                count = min(rng.randrange(1, 40), operations - done)
                ids = [f"m{made + i}" for i in range(count)]
                made += count
                engine.add_many([{"text": text(), "id": memory_id} for memory_id in ids])
                alive.extend(ids)
                done += count
            elif kind < 0.55:
                engine.update(rng.choice(alive), text=text())
                done += 1
            else:
                count = min(len(alive) - live, 60, operations - done)
                if count > 0:
                    assert engine.delete(alive[:count]) == count
                    del alive[:count]
                    done += count
            while searched < done * searches // operations:
                assert len(engine.search(rng.choice(_WORDS), k=5)) == 5
                searched += 1
            if done >= next_compact:
                next_compact += operations // 10
                rss, disk = settle()
                steady = steady or (rss, disk)
                if say:
                    print(
                        f"{done:>9,} operations, {searched:>7,} searches, {time.monotonic() - started:6.0f} s: "
                        f"{engine.count():,} memories, {rss / 2**20:6.1f} MiB resident, {disk / 2**20:6.1f} on disk",
                        flush=True,
                    )
        extra = len(alive) - live
        if extra > 0:
            engine.delete(alive[:extra])
            del alive[:extra]
        rss, disk = settle()
        assert steady is not None
        assert engine.verify() == []
        return Report(steady[0], rss, steady[1], disk, engine.count(), len(alive))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--searches", type=int, default=100_000)
    parser.add_argument("--live", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        report = soak(
            Path(parent) / "store",
            operations=arguments.operations,
            searches=arguments.searches,
            live=arguments.live,
            seed=arguments.seed,
            say=True,
        )
    print(
        f"memory {report.rss_bytes / report.steady_rss_bytes:.2f}, disk "
        f"{report.disk_bytes / report.steady_disk_bytes:.2f} of the steady state; "
        f"{report.count:,} memories, {report.expected:,} expected"
    )
    return 0 if report.is_steady else 1


if __name__ == "__main__":
    sys.exit(main())
