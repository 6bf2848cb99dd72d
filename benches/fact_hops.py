"""What following facts does for questions that take two, and whether it harms those that take one or none.

`python benches/fact_hops.py [preset …]` prints recall@1 and @5 in percent and the time of a question, with `fact_hops`
off and on, over `fact_questions/`: four people's facts and talk, two in English and two in Chinese, written for this.
The share was chosen on Ana and 小明 alone; Omar and 李伟 were kept for measuring.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jiyi
from jiyi.evaluation import Question, read_eval_set

_CATEGORIES = ("two facts", "one fact", "turn")


def main() -> None:
    eval_set = read_eval_set(Path(__file__).parent / "fact_questions")
    now = max(memory.timestamp for memory in eval_set.memories)
    heads = [f"{category + ' R@1/R@5':>18s}" for category in _CATEGORIES]
    print(f"{'preset':10s} {'hops':4s} {'people':12s}", *heads, "  p50 ms")
    for preset in sys.argv[1:] or ["fast"]:
        with jiyi.open(preset=preset) as engine:
            engine.add_many(eval_set.memories)
            for hops in (0, 1):
                places: dict[tuple[str, str], list[int]] = {}
                times_s: dict[str, list[float]] = {}
                for asked in eval_set.questions:
                    started = time.perf_counter()
                    hits = engine.search(asked.query, namespace=asked.namespace, k=10, now=now, fact_hops=hops)
                    times_s.setdefault(asked.namespace, []).append(time.perf_counter() - started)
                    places.setdefault((asked.namespace, asked.category), []).append(_place(asked, hits.ids))
                for people, times in times_s.items():
                    cells = [f"{_recalls(places[people, category]):>18s}" for category in _CATEGORIES]
                    print(
                        f"{preset:10s} {hops:<4d} {people:12s}", *cells, f"{1000 * sorted(times)[len(times) // 2]:8.2f}"
                    )


def _place(question: Question, ids: list[str]) -> int:
    return ids.index(question.relevant[0]) + 1 if question.relevant[0] in ids else sys.maxsize


def _recalls(places: list[int]) -> str:
    return " / ".join(f"{100 * sum(place <= k for place in places) / len(places):.0f}" for k in (1, 5))


if __name__ == "__main__":
    main()
