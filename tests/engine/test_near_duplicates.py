"""The set of facts that are stored several times, and that diversification brings more of them into an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from near_duplicates import FOLDER, Bench, K

from jiyi.config import DEFAULT
from jiyi.evaluation import EvalSet, read_eval_set
from jiyi.memory import Memory

LANGUAGES = {"english", "chinese"}


@pytest.fixture(scope="module")
def eval_set() -> EvalSet:
    return read_eval_set(FOLDER)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench("fast") as opened:
        yield opened


def facts(memories: list[Memory]) -> Counter[tuple[str, str]]:
    """How often each fact is stored."""
    return Counter((memory.namespace, memory.metadata["fact"]) for memory in memories if memory.metadata)


def test_every_fact_is_stored_one_to_five_times(eval_set: EvalSet) -> None:
    stored = facts(eval_set.memories)
    assert len(stored) == 40
    assert set(stored.values()) == {1, 2, 3, 4, 5}
    plain = Counter(memory.namespace for memory in eval_set.memories if not memory.metadata)
    assert set(plain.values()) == {20}


def test_no_two_memories_are_the_same(eval_set: EvalSet) -> None:
    for field in ("id", "text"):
        assert len({getattr(memory, field) for memory in eval_set.memories}) == len(eval_set.memories) == 160
    by_namespace = Counter((memory.namespace, memory.timestamp) for memory in eval_set.memories)
    assert set(by_namespace.values()) == {1}


def test_every_question_has_answers_to_fill_the_places(eval_set: EvalSet) -> None:
    assert Counter(question.category for question in eval_set.questions) == dict.fromkeys(LANGUAGES, 12)
    assert eval_set.unknown_relevant() == 0
    by_id = {memory.id: memory for memory in eval_set.memories}
    for question in eval_set.questions:
        answers = [by_id[one] for one in question.relevant]
        assert {memory.namespace for memory in answers} == {question.namespace}
        answered = facts(answers)
        assert len(answered) == K
        assert answered == {key: count for key, count in facts(eval_set.memories).items() if key in answered}


def test_more_distinct_facts_with_diversification_than_without(bench: Bench) -> None:
    without = bench.measured("none")
    assert set(without) == LANGUAGES
    for diversity, lambda_ in ((DEFAULT.diversity, DEFAULT.mmr_lambda), ("jaccard", 0.5), ("cosine", 0.7)):
        assert diversity != "none"
        measured = bench.measured(diversity, DEFAULT.mmr_window, lambda_)
        for language, (distinct, answers) in measured.items():
            assert distinct > without[language][0]
            assert answers >= 3  # others than answers do not take the places over


def test_jaccard_tells_other_facts_from_copies_as_well_as_cosine_does(bench: Bench) -> None:
    for lambda_ in (0.7, 0.5):
        jaccard, cosine = (bench.measured(diversity, 20, lambda_) for diversity in ("jaccard", "cosine"))
        assert sum(facts for facts, _ in jaccard.values()) >= sum(facts for facts, _ in cosine.values())
