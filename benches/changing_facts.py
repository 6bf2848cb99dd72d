"""Facts that change: whether the newer one wins when the question is about the present, and what is left of the older.

`python benches/changing_facts.py [preset …]` prints, by language, over `changing_facts/` (forty facts, each told twice,
days to two years apart, in plain sentences among forty others; written for this), in percent of the questions:

- present ("Where does Ana live?", 40 questions): the newer one stands first of all, and above the older one;
- past ("Where did Ana live before?", 22 questions): the older one stands first, and among the first five.

The memories are stored once as each kind. First come the settings that ship, by kind; then recency weights, half-lives
and curves, which do the same for every kind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import jiyi
from jiyi.evaluation import EvalSet, Question, read_eval_set
from jiyi.memory import KINDS

FOLDER = Path(__file__).parent / "changing_facts"
NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)
_DAY_S = 86_400.0
_WEIGHTS = (0.05, 0.1, 0.2)
_HALF_LIVES = (7, 30, 90, 180, 365)


class Bench:
    """The set, stored in a store of its own as each kind."""

    def __init__(self, preset: str) -> None:
        self.eval_set: EvalSet = read_eval_set(FOLDER)
        self._engine = jiyi.open(preset=preset)
        for kind in KINDS:
            self._engine.add_many(
                [
                    replace(memory, kind=kind, namespace=f"{kind}/{memory.namespace}")
                    for memory in self.eval_set.memories
                ]
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    def measured(self, kind: str = "semantic", **settings: Any) -> dict[str, tuple[float, float]]:
        """Return two shares by category ("english, present"): first of all, and what the module says of the other."""
        found: dict[str, list[tuple[bool, bool]]] = {}
        for question in self.eval_set.questions:
            namespace = f"{kind}/{question.namespace}"
            ids = self._engine.search(question.query, namespace=namespace, k=10, now=NOW, **settings).ids
            found.setdefault(question.category, []).append(_judged(question, ids))
        return {
            category: (sum(a for a, _ in rows) / len(rows), sum(b for _, b in rows) / len(rows))
            for category, rows in found.items()
        }


def _judged(question: Question, ids: list[str]) -> tuple[bool, bool]:
    (wanted,) = question.relevant
    if wanted.endswith("-old"):
        return ids[:1] == [wanted], wanted in ids[:5]
    older = wanted.removesuffix("-new") + "-old"
    places = {name: place for place, name in enumerate(ids)}
    return ids[:1] == [wanted], places.get(wanted, len(ids)) < places.get(older, len(ids))


def _settings() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "recency off", {"recency_weight": 0.0}
    for curve in ("exponential", "logarithmic"):
        for weight in _WEIGHTS:
            for days in _HALF_LIVES:
                name = f"{curve:11s} weight {weight:.2f}, half-life {days:3d} d"
                yield name, {"recency_curve": curve, "recency_weight": weight, "half_life_s": days * _DAY_S}


def main() -> None:
    for preset in sys.argv[1:] or ["fast"]:
        print(
            f"{preset}: present: newer one first of all / above the older; "
            "past: older one first of all / in the first 5"
        )
        with Bench(preset) as bench:
            for kind in KINDS:
                _print(f"as it ships, {kind}", bench.measured(kind))
            for name, settings in _settings():
                _print(name, bench.measured(aging={}, ageless_kinds=(), **settings))


def _print(name: str, shares: dict[str, tuple[float, float]]) -> None:
    cells = (f"{category} {100 * a:3.0f} / {100 * b:3.0f}" for category, (a, b) in shares.items())
    print(f"  {name:46s}", "   ".join(cells))


if __name__ == "__main__":
    main()
