"""What durability costs: adds a second with durability="process" and "power", one by one and in batches.

    python benches/durability.py [--folder DIR] [--memories 0]

Texts of a dozen words into one namespace that is in memory, from one thread, with the shipped table. Beside them, what
SQLite alone takes for rows of the same size, one a transaction. What an fsync costs depends on the disk that the folder
is on; medians of rounds in which all take turns.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import jiyi
from jiyi.schema import FORMAT_VERSION, SCHEMA

_WORDS: Final = "rain tea train garden budget deploy review hiking 茶 山 雨 周末 会议 部署 花园 火车".split()
_MODES: Final[tuple[Literal["process", "power"], ...]] = ("process", "power")
_BATCHES: Final = (1, 10, 100, 1_000)
_ROUNDS: Final = 5
_PAGE_BYTES: Final = 8_192


def text(i: int) -> str:
    return " ".join(_WORDS[(i * step + step) % len(_WORDS)] for step in range(3, 15)) + f" {i}"


def fsync_ms(folder: Path, count: int) -> float:
    """Return the median milliseconds of appending 4 KiB to a file and flushing it to the disk."""
    times = []
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(count):
            begun = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(times)


def bare(path: Path, synchronous: str) -> tuple[sqlite3.Connection, Callable[[int], None]]:
    """Return a ledger of its own, and what puts a memory's rows into it: what no engine on SQLite can do without."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in (f"page_size = {_PAGE_BYTES}", "journal_mode = WAL", f"synchronous = {synchronous}"):
        connection.execute(f"PRAGMA {pragma}")
    connection.executescript(SCHEMA.format(format=FORMAT_VERSION, store="bare"))
    terms, freqs, tokens, vector = (os.urandom(size) for size in (176, 44, 56, 1_024))

    def put(i: int) -> None:
        key, now_us = 1 << 40 | i + 1, 1_700_000_000_000_000 + i
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "INSERT INTO memories (key, namespace, id, kind, timestamp_us, checksum, text) "
            "VALUES (?, 1, ?, 0, ?, ?, ?)",
            (key, f"0199f0d2-0000-7000-8000-{i:012x}", now_us, -i, text(i)),
        )
        connection.execute(
            "INSERT INTO columns (key, kind, timestamp_us, session, terms, freqs, tokens, checksum, vector) "
            "VALUES (?, 0, ?, 0, ?, ?, ?, ?, ?)",
            (key, now_us, terms, freqs, tokens, -i, vector),
        )
        connection.execute("UPDATE manifest SET value = ? WHERE key = 'sequence'", (i + 1,))
        connection.execute("COMMIT")

    return connection, put


def many_a_second(add: Callable[[int], None], batch: int, seconds: float, first: int) -> tuple[float, int]:
    """Add for a while; return memories a second, and the number of the next text."""
    begun, i = time.perf_counter(), first
    while (passed := time.perf_counter() - begun) < seconds:
        add(i)
        i += batch
    return (i - first) / passed, i


def adder(engine: jiyi.Engine, batch: int) -> Callable[[int], None]:
    """Return what adds so many texts from a number on, in one call."""

    def add(i: int) -> None:
        if batch == 1:
            engine.add(text(i))
        else:
            engine.add_many([text(j) for j in range(i, i + batch)])

    return add


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the stores are made, if not in a temporary folder")
    parser.add_argument("--memories", type=int, default=0, help="how many are there before")
    parser.add_argument("--seconds", type=float, default=1.0, help=f"for each of {_ROUNDS} rounds of each row")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        folder = Path(made)
        print(f"an fsync after 4 KiB takes {fsync_ms(folder, 50):.2f} ms in {folder.parent}")
        engines = {mode: jiyi.open(folder / mode, durability=mode) for mode in _MODES}
        next_text = dict.fromkeys(_MODES, 0)
        for mode, engine in engines.items():
            while next_text[mode] < options.memories:
                adder(engine, 1_000)(next_text[mode])
                next_text[mode] += 1_000
            engine.add(text(next_text[mode]))
            engine.search("a first search loads the namespace")
        alone = {mode: bare(folder / f"{mode}.sqlite", "FULL" if mode == "power" else "NORMAL") for mode in _MODES}
        for batch in _BATCHES:
            rates: dict[str, list[float]] = {mode: [] for mode in _MODES}
            bares: dict[str, list[float]] = {mode: [] for mode in _MODES}
            bare_next = dict.fromkeys(_MODES, 0)
            for mode in _MODES:  # what is compiled or filled at the first call is not what is measured
                _, next_text[mode] = many_a_second(adder(engines[mode], batch), batch, 0.2, next_text[mode])
            for _ in range(_ROUNDS):
                for mode in _MODES:  # in turn, so that whatever else the machine does is shared
                    add = adder(engines[mode], batch)
                    rate, next_text[mode] = many_a_second(add, batch, options.seconds, next_text[mode])
                    rates[mode].append(rate)
                    if batch == 1:
                        rate, bare_next[mode] = many_a_second(alone[mode][1], 1, options.seconds / 2, bare_next[mode])
                        bares[mode].append(rate)
            if batch == 1:
                print(_line("SQLite alone", bares))
            print(_line("single adds" if batch == 1 else f"batches of {batch:,}", rates))
        for connection, _ in alone.values():
            connection.close()
        for engine in engines.values():
            engine.close()


def _line(what: str, rates: dict[str, list[float]]) -> str:
    process, power = (statistics.median(rates[mode]) for mode in _MODES)
    return f"{what:>16}: process {process:8.0f} memories/s, power {power:8.0f}, {process / power:.2f} times"


if __name__ == "__main__":
    main()
