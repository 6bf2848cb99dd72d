"""What durability costs: adds a second with durability="process" and "power", one by one and in batches.

`python benches/durability.py [--folder DIR]`; what an fsync costs depends on the disk that the folder is on.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final, Literal

import jiyi

_WORDS: Final = "rain tea train garden budget deploy review hiking 茶 山 雨 周末 会议 部署 花园 火车".split()
_MODES: Final[tuple[Literal["process", "power"], ...]] = ("process", "power")


def text(i: int) -> str:
    return " ".join(_WORDS[(i * step + step) % len(_WORDS)] for step in range(3, 15)) + f" {i}"


def fsync_ms(folder: Path, count: int) -> float:
    """Return the median milliseconds of appending 4 KiB to a file and flushing it to the disk."""
    import os

    times = []
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(count):
            begun = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(times)


def adds_a_second(engine: jiyi.Engine, batch: int, seconds: float, first: int) -> tuple[float, int]:
    """Add for a while; return memories a second, and the number of the next text."""
    begun, i = time.perf_counter(), first
    while (passed := time.perf_counter() - begun) < seconds:
        if batch == 1:
            engine.add(text(i))
        else:
            engine.add_many([text(j) for j in range(i, i + batch)])
        i += batch
    return (i - first) / passed, i


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, help="where the stores are made, if not in a temporary folder")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each of five rounds of each row")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        folder = Path(made)
        print(f"an fsync after 4 KiB takes {fsync_ms(folder, 50):.2f} ms in {folder.parent}")
        engines = {mode: jiyi.open(folder / mode, durability=mode) for mode in _MODES}
        next_text = dict.fromkeys(_MODES, 0)
        for batch in (1, 100):
            rates: dict[str, list[float]] = {mode: [] for mode in _MODES}
            for mode in _MODES:  # what is compiled or filled at the first call is not what is measured
                _, next_text[mode] = adds_a_second(engines[mode], batch, 0.2, next_text[mode])
            for _ in range(5):
                for mode in _MODES:  # in turn, so that whatever else the machine does is shared
                    rate, next_text[mode] = adds_a_second(engines[mode], batch, options.seconds, next_text[mode])
                    rates[mode].append(rate)
            process, power = (statistics.median(rates[mode]) for mode in _MODES)
            what = "single adds" if batch == 1 else f"batches of {batch}"
            print(f"{what:>15}: process {process:8.0f} memories/s, power {power:8.0f}, {process / power:.2f} times")
        for engine in engines.values():
            engine.close()


if __name__ == "__main__":
    main()
