"""Hits as a table that is pleasant to read in a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from jiyi.config import SearchConfig

if TYPE_CHECKING:
    from jiyi.hits import Hits

_TEXT_WIDTH: Final = 40


def explain(hits: Hits, config: SearchConfig | None) -> str:
    """Return the table that `Hits.explain` promises."""
    lines = [f"query: {clipped(hits.text, 100)}"]
    if len(hits) == 0:
        lines.append("nothing found")
    else:
        rows = [hit.factors for hit in hits]
        signals = rows[0]["signals"]
        heads = ["#", "score", *(f"{name}·{factor['weight']:.2f}" for name, factor in signals.items())]
        with_recency = "recency" in rows[0] and config is not None and config.recency_weight > 0
        if with_recency and config is not None:
            heads.append(f"recency·{config.recency_weight:.2f}")
        heads.extend(f"{name} (rerank)" for name in rows[0].get("reranked", {}))
        with_lent = any(_is_lent(row) for row in rows)
        if with_lent:
            heads.append("turn before")
        with_mmr = any("mmr" in row for row in rows)
        if with_mmr:
            heads.append("like above")
        heads += ["id", "memory"]
        table = [heads]
        for hit, row in zip(hits, rows, strict=True):
            cells = [str(hit.rank), f"{hit.score:.3f}", *(_signal(factor) for factor in row["signals"].values())]
            if with_recency:
                cells.append(f"{row['recency']:.2f} ({age(row['age_s'])})")
            if with_lent:
                cells.append(f"lends {row['lent']:.2f}" if _is_lent(row) else "–")
            cells.extend(_signal(factor) for factor in row.get("reranked", {}).values())
            if with_mmr:
                cells.append(_mmr(row.get("mmr")))
            cells += [clipped(hit.memory.id, 14), f"{hit.memory.kind[:4]} {clipped(hit.memory.text, _TEXT_WIDTH)}"]
            table.append(cells)
        lines += aligned(table)
    lines.append("  ".join(f"{stage} {ms:.2f}" for stage, ms in hits.timings_ms.items()) + "  ms")
    lines += [f"degraded: {degraded}" for degraded in hits.degraded]
    return "\n".join(lines)


def _is_lent(row: Mapping[str, Any]) -> bool:
    """Whether the relevance is what the turn before it lends, and not the memory's own."""
    return row["lent"] is not None and bool(row["lent"] == row["relevance"])


def _signal(factor: Mapping[str, Any]) -> str:
    if factor["raw"] is None:
        return f"    –     →{factor['normalized']:.2f}"
    return f"{factor['raw']:5.2f} #{factor['rank']:<3d}→{factor['normalized']:.2f}"


def _mmr(factor: Mapping[str, Any] | None) -> str:
    if factor is None or factor["because_of"] is None:
        return "–"
    return f"{factor['penalty']:.2f} {clipped(factor['because_of'], 14)}"


def age(seconds: float) -> str:
    """Return an age in its largest fitting unit: "3 d", "5 h"."""
    for unit, length in (("y", 365.25 * 86400), ("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def width(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for an East Asian wide character or an emoji."""
    return sum(
        0 if unicodedata.combining(c) or c == "\ufe0f" else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def clipped(text: str, columns: int) -> str:
    """Return one line of at most so many columns; control and format characters become spaces."""
    line = " ".join("".join(c if unicodedata.category(c)[0] != "C" else " " for c in text[: 4 * columns]).split())
    if width(line) <= columns:
        return line
    taken, used = [], 0
    for character in line:
        used += width(character)
        if used > columns - 1:
            break
        taken.append(character)
    return "".join(taken) + "…"


def aligned(table: Sequence[Sequence[str]], gap: str = "  ") -> list[str]:
    """Return the rows of a table as lines with aligned columns, a rule under the head."""
    widths = [max(width(row[column]) for row in table) for column in range(len(table[0]))]
    lines = [
        gap.join(cell + " " * (size - width(cell)) for cell, size in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    return [lines[0], "─" * max(map(width, lines)), *lines[1:]]
