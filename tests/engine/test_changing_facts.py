"""The set of facts that change, and that recency lets the newer one win without losing the older."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from changing_facts import FOLDER, NOW, Bench

from jiyi.config import DEFAULT
from jiyi.evaluation import EvalSet, read_eval_set

DAY_S = 86_400.0
LANGUAGES = ("english", "chinese")


@pytest.fixture(scope="module")
def eval_set() -> EvalSet:
    return read_eval_set(FOLDER)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench("fast") as opened:
        yield opened


def test_every_fact_is_told_twice(eval_set: EvalSet) -> None:
    told: dict[tuple[str, str], dict[str, float]] = {}
    for memory in eval_set.memories:
        assert memory.timestamp < NOW
        assert memory.session is memory.subject is None
        if memory.metadata:
            key = (memory.namespace, memory.metadata["fact"])
            told.setdefault(key, {})[memory.metadata["stated"]] = memory.timestamp.timestamp()
    assert len(told) == 40
    for times in told.values():
        assert set(times) == {"old", "new"}
        assert 7 * DAY_S <= times["new"] - times["old"] <= 800 * DAY_S
    assert sum(not memory.metadata for memory in eval_set.memories) == 40
    assert len({memory.text for memory in eval_set.memories}) == len(eval_set.memories) == 120


def test_questions_about_the_present_ask_for_the_newer_and_those_about_the_past_for_the_older(
    eval_set: EvalSet,
) -> None:
    assert eval_set.unknown_relevant() == 0
    stated = {memory.id: memory.metadata.get("stated") for memory in eval_set.memories}
    asked: Counter[tuple[str, str | None]] = Counter()
    for question in eval_set.questions:
        (wanted,) = question.relevant
        asked[question.category, stated[wanted]] += 1
    assert asked == {
        ("english, present", "new"): 20,
        ("english, past", "old"): 11,
        ("chinese, present", "new"): 20,
        ("chinese, past", "old"): 11,
    }


@pytest.mark.parametrize("kind", ["episodic", "semantic"])
def test_recency_as_it_ships_lets_the_newer_one_win_more_often(bench: Bench, kind: str) -> None:
    off, on = bench.measured(kind, recency_weight=0.0), bench.measured(kind)
    assert DEFAULT.recency_weight > 0
    for language in LANGUAGES:
        # At 0.45, words alone decide: half the time for the older one.
        assert off[f"{language}, present"][1] < 0.5
        assert on[f"{language}, present"][1] >= off[f"{language}, present"][1] + 0.15


@pytest.mark.parametrize("kind", ["episodic", "semantic"])
def test_the_older_one_is_still_found(bench: Bench, kind: str) -> None:
    for language in LANGUAGES:
        assert bench.measured(kind)[f"{language}, past"][1] >= 0.9


def test_a_half_life_of_months_tells_apart_what_changed_months_ago(bench: Bench) -> None:
    days, months = (
        bench.measured(aging={}, ageless_kinds=(), recency_weight=0.1, half_life_s=n * DAY_S) for n in (7, 90)
    )
    for language in LANGUAGES:
        assert months[f"{language}, present"][1] > days[f"{language}, present"][1]


def test_what_does_not_age_is_told_apart_by_words_alone(bench: Bench) -> None:
    off, on = bench.measured("archival", recency_weight=0.0), bench.measured("archival", recency_weight=0.1)
    assert "archival" in DEFAULT.ageless_kinds
    assert off == on
