"""Means of every metric over the questions of a set, over all and by category.

The formulas are those of `jiyi.metrics`. Questions of the category "adversarial" (their evidence is about somebody
else) are measured apart and are in no mean over all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from jiyi.evaluation.sets import Question
from jiyi.metrics import ndcg_at, recall_at, reciprocal_rank_at

ADVERSARIAL: Final = "adversarial"

#: Name of the group of all questions but adversarial ones.
ALL: Final = "all"

#: What is measured, in the order it is shown.
METRICS: Final[Mapping[str, Callable[[Sequence[str], Sequence[str]], float]]] = {
    **{f"recall@{k}": partial(recall_at, k) for k in (1, 5, 10, 20, 50)},
    "ndcg@10": partial(ndcg_at, 10),
    "mrr@10": partial(reciprocal_rank_at, 10),
}


def groups_of(questions: Sequence[Question]) -> dict[str, list[Question]]:
    """Return the questions that can be scored, by group: "all" (but adversarial ones), then each category."""
    scored = [question for question in questions if question.relevant]
    groups = {ALL: [question for question in scored if question.category != ADVERSARIAL]}
    for category in sorted({question.category for question in scored}):
        groups[category] = [question for question in scored if question.category == category]
    return {group: members for group, members in groups.items() if members}


def values_of(questions: Sequence[Question], ranked: Mapping[str, Sequence[str]]) -> dict[str, list[float]]:
    """Return, by metric, the value of each question, in order; one that was not answered scores 0."""
    return {
        name: [metric(question.relevant, ranked.get(question.qid, ())) for question in questions]
        for name, metric in METRICS.items()
    }


def score(questions: Sequence[Question], ranked: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Return the mean of every metric over all questions but adversarial ones, and over each category.

    A question that was not answered scores 0; one without relevant ids counts nowhere; a group without questions is
    left out. Each group also has "n", its number of questions.
    """
    return {
        group: {name: sum(values) / len(members) for name, values in values_of(members, ranked).items()}
        | {"n": len(members)}
        for group, members in groups_of(questions).items()
    }
