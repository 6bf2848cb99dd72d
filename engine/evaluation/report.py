"""Evaluations as text for a terminal: in percent, a column a metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jiyi.evaluation.differences import Difference
from jiyi.evaluation.evaluator import EvalRun
from jiyi.evaluation.scoring import ADVERSARIAL, ALL, METRICS
from jiyi.explain import aligned, clipped

#: What is shown where there is no room for all.
SHORT: Final = ("recall@1", "recall@5", "recall@10", "ndcg@10")

_NAME_WIDTH: Final = 24


@dataclass(frozen=True, slots=True)
class Compared:
    """Another ranking beside this one."""

    name: str
    scores: Mapping[str, Mapping[str, float]]
    differences: Mapping[str, Mapping[str, Difference]]
    """other - this, by group and metric."""
    changed: int
    """Questions whose ranking is another."""
    run: EvalRun | None = None
    """What came out of it, unless it was made elsewhere."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the ranked ids as a JSON object."""
        made: Mapping[str, Any] = {"scores": self.scores} if self.run is None else self.run.to_dict()
        return {
            **made,
            "name": self.name,
            "changed": self.changed,
            "differences": {
                group: {name: {"mean": d.mean, "low": d.low, "high": d.high} for name, d in row.items()}
                for group, row in self.differences.items()
            },
        }


def scores_table(scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the lines of the table of every group and metric; a single category that is all there is stands once."""
    rows = [["group", "n", *METRICS]]
    for group, row in scores.items():
        if group != ALL and len(scores) == 2 and dict(row) == dict(scores.get(ALL, {})):
            continue
        rows.append([clipped(group, 20), f"{row['n']:.0f}", *(_percent(row[name]) for name in METRICS)])
    return _table(rows)


def timings(run: EvalRun) -> list[str]:
    """Return the lines that say what was stored and how long it and the questions took."""
    numbers = run.to_dict()
    spent = (
        f"{numbers['queries_per_s']:,.0f} a second, p50 {numbers['p50_ms']:.2f} ms, p95 {numbers['p95_ms']:.2f} ms, "
        f"p99 {numbers['p99_ms']:.2f} ms"
        if run.timed
        else "times not told: scores of another configuration were remembered"
    )
    return [
        f"{run.memories:,} memories stored in {run.ingest_s:.2f} s; "
        f"{len(run.ranked):,} questions for {run.k} ids each, {spent}",
        f"(kernels ready in {run.warmup_s:.1f} s before that)",
    ]


def presets_table(runs: Sequence[EvalRun]) -> list[str]:
    """Return quality over all questions and latency side by side, a line a configuration."""
    rows = [["configuration", "vectors", *METRICS, "p50 ms", "p95 ms", "p99 ms"]]
    for run in runs:
        group = run.scores.get(ALL) or next(iter(run.scores.values()), None)
        quality = ["–"] * len(METRICS) if group is None else [_percent(group[name]) for name in METRICS]
        times = [f"{run.latency_ms(percentile):.2f}" if run.timed else "–" for percentile in (50, 95, 99)]
        rows.append([clipped(run.name, _NAME_WIDTH), clipped(run.embedder or "none", 20), *quality, *times])
    return _table(rows, left=2)


def difference_table(name: str, this: str, compared: Compared, scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return another ranking beside this one: a line for every group and metric."""
    rows = [["group", "metric", clipped(this, _NAME_WIDTH), clipped(name, _NAME_WIDTH), "difference", "95 % interval"]]
    for group, row in compared.differences.items():
        if group != ALL and len(scores) == 2 and dict(scores[group]) == dict(scores.get(ALL, {})):
            continue
        for metric, d in row.items():
            rows.append(
                [
                    clipped(group, 20) if metric == next(iter(METRICS)) else "",
                    metric,
                    _percent(scores[group][metric]),
                    _percent(compared.scores[group][metric]),
                    f"{100 * d.mean:+.2f}{'*' if d.clear else ' '}",
                    _interval(d),
                ]
            )
    return [_heading(f"{name} − {this}", f"another ranking for {compared.changed:,} questions"), *_table(rows, left=2)]


def ablation_tables(this: str, without: Mapping[str, Compared], scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return what switching each ingredient off does, over all questions and adversarial ones."""
    found: list[str] = []
    working = {name: one for name, one in without.items() if one.changed}
    for group in (ALL, ADVERSARIAL):
        if group not in scores or not working:
            continue
        n = f"{scores[group]['n']:,.0f} questions"
        found += [
            *([""] if found else []),
            _heading(f"{this} without each ingredient − {this}", n if group == ALL else f"{n}, adversarial"),
        ]
        found += difference_rows(working, group, "without", scores)
    idle = [name for name in without if name not in working]
    if idle:
        found.append(f"changes no ranking here: {', '.join(idle)}")
    return found


def difference_rows(
    compared: Mapping[str, Compared], group: str, head: str, scores: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """Return the differences of several rankings over one group, a line each."""
    rows = [[head, "changed", *SHORT], ["–", "", *(_percent(scores[group][name]) for name in SHORT)]]
    for name, one in compared.items():
        cells = []
        for metric in SHORT:
            d = one.differences[group][metric]
            cells.append(f"{100 * d.mean:+.2f}{'*' if d.clear else ' '} {_interval(d)}")
        rows.append([clipped(name, _NAME_WIDTH), f"{one.changed:,}", *cells])
    return _table(rows)


def _heading(what: str, note: str) -> str:
    return f"{what}, in points, with the 95 % interval of a paired bootstrap (* without 0); {note}"


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _interval(d: Difference) -> str:
    return f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}]"


def _table(rows: list[list[str]], left: int = 1) -> list[str]:
    """Lines with the first columns to the left and the numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return aligned(
        [
            [*row[:left], *(cell.rjust(size) for cell, size in zip(row[left:], widths[left:], strict=True))]
            for row in rows
        ]
    )
