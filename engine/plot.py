"""A picture of hits: what each part of the pipeline adds to their scores, as stacked bars."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jiyi.contributions import LED, LENT, OUTCOME, RECENCY, RERANK
from jiyi.explain import clipped
from jiyi.pictures import check_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from jiyi.hits import Hits

_LABEL_WIDTH: Final = 36
_ROW_INCHES: Final = 0.42
# Okabe & Ito's palette, which people who see red and green alike can tell apart.
_COLORS: Final = {
    "dense": "#0072B2",
    "keyword": "#E69F00",
    "late": "#009E73",
    LENT: "#56B4E9",
    RECENCY: "#F0E442",
    OUTCOME: "#D55E00",
    RERANK: "#CC79A7",
}
_OTHER_COLORS: Final = ("#332288", "#AA4499", "#999933", "#882255")
_NAMES: Final = {LENT: "turn before", LED: "fact before"}
_GREY: Final = "#888888"


@dataclass(frozen=True, slots=True)
class Bars:
    """The numbers of a picture, one entry a hit, best first."""

    labels: list[str]
    """Rank and text."""
    ids: list[str]
    scores: list[float]
    parts: dict[str, list[float]]
    """By part, what it adds to each score; a hit's parts add up to its score."""
    penalties: list[float] | None
    """Likeness to a hit above, 0 to 1, that diversification held against it; None when there was no diversification."""


def bars_of(hits: Hits, max_hits: int) -> Bars:
    """Return what a picture of the first hits shows. Parts that add nothing to any of them are left out."""
    shown = hits[:max_hits]
    rows = [hit.factors for hit in shown]
    names = list(rows[0]["contributions"]) if rows else []
    parts = {name: [float(row["contributions"][name]) for row in rows] for name in names}
    diversified = any("mmr" in row for row in rows)
    return Bars(
        labels=[f"{hit.rank}  {clipped(hit.memory.text, _LABEL_WIDTH)}" for hit in shown],
        ids=[clipped(hit.memory.id, _LABEL_WIDTH) for hit in shown],
        scores=[hit.score for hit in shown],
        parts={name: amounts for name, amounts in parts.items() if any(amounts)},
        penalties=[float(row["mmr"]["penalty"]) if "mmr" in row else 0.0 for row in rows] if diversified else None,
    )


def plot(hits: Hits, path: str | os.PathLike[str], *, max_hits: int = 40) -> Path:
    """Draw hits into a file; see `Hits.plot`."""
    if isinstance(max_hits, bool) or not isinstance(max_hits, int):
        raise TypeError(f"max_hits must be a whole number, got {type(max_hits).__name__}")
    # An image of more rows than that has more pixels than Matplotlib can draw.
    if not 1 <= max_hits <= 500:
        raise ValueError(f"max_hits is {max_hits}; it must be from 1 to 500")
    target = check_picture(path)
    figure = _drawn(bars_of(hits, max_hits), clipped(hits.text, 80), len(hits))
    figure.savefig(target, format=target.suffix[1:].lower(), dpi=120, bbox_inches="tight")
    return target


def _drawn(bars: Bars, query: str, count: int) -> Figure:
    from matplotlib.figure import Figure

    from jiyi.fonts import fonts_for

    families, missing = fonts_for("".join([query, *bars.labels, *bars.ids]))
    notes = [f"the first {len(bars.labels)} of {count} hits"] if count > len(bars.labels) else []
    if missing:
        notes.append("no installed font has some characters (shown as ·); Noto Sans CJK, say, has Chinese")
    title = _without(query, missing)
    labels = [_label(*names, missing) for names in zip(bars.labels, bars.ids, strict=True)]

    # The object interface alone: no pyplot, so no state that is shared with the program around.
    figure = Figure(figsize=(10, 1.8 + _ROW_INCHES * max(len(labels), 2)), layout="constrained")
    widths = [4] if bars.penalties is None else [4, 1]
    axes: Sequence[Axes] = figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0]
    main = axes[0]
    main.set_title(f"query: {title}", loc="left", fontsize=11, family=families, parse_math=False)
    if not labels:
        main.text(0.5, 0.5, "nothing found", ha="center", va="center", transform=main.transAxes)
        main.set_axis_off()
        return figure
    _draw_parts(main, bars)
    main.set_yticks(range(len(labels)), labels=labels, family=families, fontsize=9, parse_math=False)
    main.tick_params(axis="y", length=0)
    figure.legend(
        *main.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=8,
        fontsize=8,
        frameon=False,
        title="; ".join(notes) or None,
        title_fontsize=8,
    )
    if bars.penalties is not None:
        side = axes[1]
        side.barh(range(len(labels)), bars.penalties, color=_GREY, height=0.6)
        side.set_title("like a hit above", fontsize=9)
        side.set_xlim(0, 1)
        side.set_ylim(main.get_ylim())
        side.set_yticks([])
        side.spines[["top", "right"]].set_visible(False)
    return figure


def _label(text: str, memory_id: str, missing: frozenset[str]) -> str:
    """A hit's text as it can be drawn; its id where nothing of it can be."""
    place, _, words = text.partition("  ")
    shown = _without(words, missing)
    return f"{place}  {shown if any(map(str.isalnum, shown)) else _without(memory_id, missing)}"


def _draw_parts(axes: Axes, bars: Bars) -> None:
    """Stack what adds to a score right of zero and what takes from it left; a mark shows the score itself."""
    places = range(len(bars.scores))
    right, left = [0.0] * len(bars.scores), [0.0] * len(bars.scores)
    colors = dict(
        zip([name for name in bars.parts if name not in _COLORS], _OTHER_COLORS * len(bars.parts), strict=False)
    )
    for name, amounts in bars.parts.items():
        starts = [right[i] if amount >= 0 else left[i] for i, amount in enumerate(amounts)]
        axes.barh(
            places,
            amounts,
            left=starts,
            height=0.6,
            color=_COLORS.get(name) or colors[name],
            label=_NAMES.get(name, name),
        )
        for i, amount in enumerate(amounts):
            side = right if amount >= 0 else left
            side[i] += amount
    axes.plot(bars.scores, places, linestyle="none", marker="D", markersize=5, color="black", label="score")
    for place, score in enumerate(bars.scores):
        axes.annotate(
            f"{score:.3f}",
            (max(right[place], score), place),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_ylim(len(bars.scores) - 0.5, -0.5)  # the best hit on top
    axes.margins(x=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("what each part adds to the score", fontsize=9)


def _without(text: str, missing: frozenset[str]) -> str:
    """The text with each run of characters that cannot be drawn as one dot."""
    shown = ""
    for character in text:
        if character not in missing:
            shown += character
        elif not shown.endswith("·"):
            shown += "·"
    return shown
