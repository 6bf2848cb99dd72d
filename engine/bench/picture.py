"""Figures as a picture: percentiles by size, and where the median goes, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from jiyi.bench.measure import PERCENTILES, TOTAL, Figures

# Okabe & Ito's palette.
_COLORS: Final = ("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#F0E442", "#D55E00", "#CC79A7", "#332288")
_LINES: Final = ("-", "--", ":")


def draw(every: Sequence[Figures], path: Path) -> None:
    """Draw percentile curves by size beside the stages of the median, stacked, into a file.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    sizes = [figures.memories for figures in every]
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    curves, stacks = figure.subplots(1, 2)
    for percent, style in zip(PERCENTILES, _LINES, strict=True):
        values = [figures.stages[TOTAL][f"p{percent}"] for figures in every]
        curves.plot(sizes, values, style, marker="o", color=_COLORS[0], label=f"p{percent}")
    curves.set(xlabel="memories in the namespace", ylabel="ms a search", title="a whole search")
    if len(set(sizes)) > 1:
        curves.set_xscale("log")
    curves.set_xticks(sizes, [f"{size:,}" for size in sizes])
    curves.minorticks_off()
    curves.set_ylim(bottom=0)
    curves.legend()
    places = range(len(every))
    bottoms = [0.0] * len(every)
    stages = list(dict.fromkeys(stage for figures in every for stage in figures.stages if stage != TOTAL))
    for number, stage in enumerate(stages):
        heights = [figures.stages.get(stage, {}).get("p50", 0.0) for figures in every]
        stacks.bar(places, heights, bottom=bottoms, color=_COLORS[number % len(_COLORS)], label=stage)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    stacks.set_xticks(list(places), [f"{size:,}" for size in sizes])
    stacks.set(xlabel="memories in the namespace", ylabel="ms, median of each stage", title="stage by stage")
    stacks.legend(loc="upper left", fontsize=8)
    figure.savefig(path)
