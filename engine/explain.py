"""Hits as a table that is pleasant to read in a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from jiyi.config import SearchConfig
from jiyi.contributions import counted

if TYPE_CHECKING:
    from jiyi.hits import Hits

_TEXT_WIDTH: Final = 40


def explain(hits: Hits, config: SearchConfig | None) -> str:
    """Return the table that `Hits.explain` promises."""
    lines = [f"query: {clipped(hits.text, 100)}"]
    if len(hits) == 0 or config is None:
        lines.append("nothing found")
    else:
        lines += aligned(_table(hits, config))
        lines += [f"  {line}" for line in _sums(hits[0].factors, config)]
        if any(_counts_unread(hit.factors) for hit in hits):
            lines.append("  – where a scorer could not read it: it counts there as before rerank does")
        if any("led" in hit.factors for hit in hits):
            lines.append("  where a fact leads to another, → of fact before stands in place of the sum of weight·→")
    lines.append("  ".join(f"{stage} {ms:.2f}" for stage, ms in hits.timings_ms.items()) + "  ms")
    lines += [f"degraded: {degraded}" for degraded in hits.degraded]
    return "\n".join(lines)


def _table(hits: Hits, config: SearchConfig) -> list[list[str]]:
    rows = [hit.factors for hit in hits]
    with_recency = config.recency_weight > 0
    with_lent = any(_is_lent(row) for row in rows)
    with_led = any("led" in row for row in rows)
    with_used = any(_is_used(row) for row in rows)
    with_rerank = "rerank" in rows[0]
    with_mmr = any("mmr" in row for row in rows)
    heads = ["#", "score", *(f"{name}·{factor['weight']:.2f}" for name, factor in rows[0]["signals"].items())]
    if with_lent:
        heads.append("turn before")
    if with_led:
        heads.append("fact before")
    if with_recency:
        heads.append(f"recency·{config.recency_weight:.2f}")
    if with_used:
        heads.append("used")
    if with_rerank:
        heads.append("before rerank")
        heads.extend(f"{name} (rerank)·{factor['weight']:.2f}" for name, factor in rows[0]["reranked"].items())
    if with_mmr:
        heads.append("like above")
    table = [[*heads, "id", "memory"]]
    for hit, row in zip(hits, rows, strict=True):
        cells = [str(hit.rank), f"{hit.score:.3f}"]
        cells.extend(_signal(factor, counted(name, factor, config)) for name, factor in row["signals"].items())
        if with_lent:
            cells.append(f"lends {row['lent']:.2f}" if _is_lent(row) else "–")
        if with_led:
            cells.append(_led(row.get("led")))
        if with_recency:
            cells.append(f"{row['recency']:.2f} ({age(row['age_s'])})")
        if with_used:
            cells.append(_used(row["used"]))
        if with_rerank:
            cells.append(_before(row["rerank"]))
            cells.extend(_scorer(factor, row["rerank"]["looked_at"]) for factor in row["reranked"].values())
        if with_mmr:
            cells.append(_mmr(row.get("mmr")))
        cells += [clipped(hit.memory.id, 14), f"{hit.memory.kind[:4]} {clipped(hit.memory.text, _TEXT_WIDTH)}"]
        table.append(cells)
    return table


def _sums(row: Mapping[str, Any], config: SearchConfig) -> list[str]:
    """How the columns add up."""
    weight = config.recency_weight
    first = "score" if "rerank" not in row else "before rerank"
    lent = "what the turn before lends" + (" + speaker" if "speaker" in row["signals"] else "")
    sums = [f"{first} = the sum of weight·→ (or {lent})"]
    if weight:
        sums[0] = f"{first} = {1 - weight:.2f} × the sum of weight·→ (or {lent}) + {weight:.2f}·recency"
    if "used" in row:
        sums[0] += " + used"
    if "rerank" in row:
        sums.append(
            "score = the sum of the shares → of before rerank and of each scorer, scaled over what was looked at; "
            "× where a scorer did not look at it"
        )
    return sums


def _counts_unread(row: Mapping[str, Any]) -> bool:
    """Whether it has a share by a scorer that gave it no score."""
    return "rerank" in row and row["rerank"]["looked_at"] and any(s["raw"] is None for s in row["reranked"].values())


def _is_lent(row: Mapping[str, Any]) -> bool:
    """Whether what the turn before it lends counts, and not what the memory has by itself."""
    return bool(row["contributions"]["lent"] > 0)


def _led(led: Mapping[str, Any] | None) -> str:
    return "–" if led is None else f"→{led['relevance']:.2f} by {clipped(led['by'] or '?', 14)}"


def _is_used(row: Mapping[str, Any]) -> bool:
    return "used" in row and row["used"]["uses"] > 0


def _used(used: Mapping[str, Any]) -> str:
    tried = f" {used['successes']}✓ {used['failures']}✗" if used["successes"] or used["failures"] else ""
    return f"{used['uses']}×{tried} {used['change']:+.2f}" if used["uses"] else "–"


def _signal(factor: Mapping[str, Any], applied: float) -> str:
    if factor["raw"] is None:
        return f"    –     →{applied:.2f}"
    return f"{factor['raw']:5.2f} #{factor['rank']:<3d}→{applied:.2f}"


def _before(rerank: Mapping[str, Any]) -> str:
    if rerank["looked_at"]:
        return f"{rerank['before']:.2f} →{rerank['before_share']:.2f}"
    return f"{rerank['before']:.2f} ×{rerank['scale']:.2f}"


def _scorer(factor: Mapping[str, Any], looked_at: bool) -> str:
    raw = "    –     " if factor["raw"] is None else f"{factor['raw']:5.2f} #{factor['rank']:<3d}"
    return f"{raw}→{factor['share']:.2f}" if looked_at else raw.rstrip()


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
