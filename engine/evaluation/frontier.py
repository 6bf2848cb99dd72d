"""A picture of what quality costs: each configuration's metrics against the time of a question."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jiyi.evaluation.evaluator import EvalRun
from jiyi.evaluation.scoring import ALL
from jiyi.explain import clipped
from jiyi.pictures import check_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN: Final = ("recall@10", "ndcg@10")
_COLORS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#332288", "#999933")


def draw_frontier(runs: Sequence[EvalRun], path: str | os.PathLike[str], title: str = "") -> Path:
    """Draw recall@10 and nDCG@10 over all questions against the median time, with a line up to the 95th percentile.

    Args:
        runs: at least one that was timed and scored.
        path: a file that ends in .png, .svg or .pdf; one that exists is overwritten.
        title: stands above.

    Raises:
        PlotError: Matplotlib is missing.
        ValueError: another ending, or nothing to draw.
        OSError: the file cannot be written.
    """
    target = check_picture(path)
    shown = [run for run in runs if run.timed and run.scores and run.latencies_s]
    if not shown:
        raise ValueError("no configuration was both scored and timed, so there is nothing to draw")
    figure = _drawn(shown, title)
    figure.savefig(target, format=target.suffix[1:].lower(), dpi=120, bbox_inches="tight")
    return target


def _drawn(runs: Sequence[EvalRun], title: str) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    from jiyi.fonts import fonts_for

    names = [clipped(run.name, 30) for run in runs]
    group = ALL if ALL in runs[0].scores else next(iter(runs[0].scores))
    families, _ = fonts_for("".join([title, group, *names]))
    # The object interface alone: no pyplot, so no state that is shared with the program around.
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    for axes, metric in zip(figure.subplots(1, len(_SHOWN)), _SHOWN, strict=True):
        for i, (name, run) in enumerate(zip(names, runs, strict=True)):
            color = _COLORS[i % len(_COLORS)]
            median, slow = run.latency_ms(50), run.latency_ms(95)
            quality = 100 * run.scores[group][metric]
            axes.plot([median, slow], [quality, quality], color=color, linewidth=1.2, marker="|", markevery=[1])
            axes.plot([median], [quality], color=color, marker="o", linestyle="none")
            axes.annotate(
                name,
                (median, quality),
                (0, 7),
                textcoords="offset points",
                fontsize=9,
                family=families,
                color=color,
                parse_math=False,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("ms a question: ● median, | 95th percentile", fontsize=9)
        axes.set_ylabel(f"{metric}, %", fontsize=9)
        axes.margins(x=0.15, y=0.2)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    n = runs[0].scores[group]["n"]
    figure.suptitle(
        f"{clipped(title, 80)} ({group}, {n:.0f} questions)".strip(), fontsize=11, family=families, parse_math=False
    )
    return figure
