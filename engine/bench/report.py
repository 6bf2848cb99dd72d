"""Figures as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from jiyi.bench.measure import PERCENTILES, Figures


def table(every: Sequence[Figures]) -> str:
    """Return everything that was measured, a block for each namespace."""
    return "\n\n".join(_block(figures) for figures in every)


def _block(figures: Figures) -> str:
    lines = [f"{figures.memories:,} memories, {figures.queries:,} queries"]
    if figures.ingest_per_second is not None:
        lines.append(f"ingest      {figures.ingest_per_second:>10,.0f} memories/s, searchable")
    lines.append(f"first search{figures.first_ms:>10,.1f} ms")
    lines.append(f"{'ms':<12}" + "".join(f"{f'p{percent}':>10}" for percent in PERCENTILES))
    for stage, values in figures.stages.items():
        lines.append(f"{stage:<12}" + "".join(f"{values[f'p{percent}']:>10.3f}" for percent in PERCENTILES))
    for one in figures.throughput:
        threads = "1 thread" if one.threads == 1 else f"{one.threads} threads"
        lines.append(f"{threads:<12}{one.per_second:>10,.0f} searches/s, p99 {one.p99_ms:.2f} ms")
    total = sum(figures.memory_bytes.values())
    parts = ", ".join(f"{part} {size / max(figures.memories, 1):,.0f}" for part, size in figures.memory_bytes.items())
    lines.append(f"memory      {total / max(figures.memories, 1):>10,.0f} bytes a memory ({parts})")
    if figures.disk_bytes:
        lines.append(f"disk        {figures.disk_bytes / 1e6:>10,.1f} MB, the whole store")
    lines.append("plans       " + (", ".join(f"{plan} {count:,}" for plan, count in figures.plans.items()) or "none"))
    lines.extend(f"note        {note}" for note in figures.notes)
    return "\n".join(lines)
