"""The cross-encoder that ships: its files, its scores, what it prefers and what it cannot read."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import jiyi
from jiyi.config import SHIPPED_CROSS_ENCODER
from jiyi.models import BudgetedCrossEncoder, CrossEncoder, load_cross_encoder
from jiyi.models.static import SHIPPED_FOLDER

FOLDER = SHIPPED_FOLDER / SHIPPED_CROSS_ENCODER
QUERY = "When did Caroline join the pottery class?"
TEXTS = (
    "Caroline: I signed up for a pottery course last March and I love it!",
    "Melanie: When did you join the pottery class?",
    "Caroline: The kids had so much fun at the beach yesterday.",
    "The committee published its third report on climate and health in 1998.",
)
CANONICAL = (13.3295, 6.1496, 8.6908, 7.17)


@pytest.fixture(scope="module")
def model() -> BudgetedCrossEncoder:
    loaded = load_cross_encoder(SHIPPED_CROSS_ENCODER, device="cpu")
    assert isinstance(loaded, BudgetedCrossEncoder)
    return loaded


def test_canonical_scores(model: CrossEncoder) -> None:
    assert model.score(QUERY, TEXTS).tolist() == pytest.approx(CANONICAL, abs=1e-3)


def test_a_score_does_not_depend_on_the_batch(model: CrossEncoder) -> None:
    from jiyi.models.onnx_cross_encoder import OnnxCrossEncoder

    fresh = OnnxCrossEncoder(FOLDER, device="cpu", cache_pairs=0)
    alone = [float(fresh.score(QUERY, [text])[0]) for text in TEXTS]
    long = " ".join(TEXTS) * 4
    together = fresh.score(QUERY, [*TEXTS, long, *TEXTS])
    assert together[:4].tolist() == pytest.approx(alone, abs=1e-4)
    assert together[5:].tolist() == pytest.approx(alone, abs=1e-4)


def test_the_answer_comes_before_what_repeats_the_question(model: CrossEncoder) -> None:
    answers = model.score(
        "What is my dog called?",
        ["What is your dog called?", "My dog is called Biscuit.", "The weather is called off.", "Dogs are animals."],
    )
    assert int(np.argmax(answers)) == 1


def test_a_text_longer_than_the_model_is_read_to_its_end(model: CrossEncoder) -> None:
    filler = "The committee met again and nothing of note was said. " * 100
    with_answer, without = model.score(QUERY, [filler + TEXTS[0], filler])
    assert with_answer > without + 1


@pytest.mark.parametrize(("text", "known"), [("he moved to Oslo", 1.0), ("他搬到了奥斯陆", 0.0), ("", 1.0)])
def test_it_knows_that_it_reads_english(model: BudgetedCrossEncoder, text: str, known: float) -> None:
    assert model.knows(text) == known


def test_best_answers_a_chinese_question_and_says_that_it_was_not_reranked() -> None:
    with jiyi.open(None) as engine:
        engine.add_many(["周末喜欢去徒步", "I moved to Oslo in May", "数据库用的是 PostgreSQL"])
        chinese = engine.search("喜欢什么运动", preset="best")
        assert "cannot read the language" in str(chinese.degraded[0])
        assert chinese.ids == engine.search("喜欢什么运动", preset="balanced", now=None).ids
        english = engine.search("Where did I move?", preset="best")
        assert english[0].memory.text == "I moved to Oslo in May"
        assert english[0].factors["reranked"][SHIPPED_CROSS_ENCODER]["raw"] is not None
        assert "count by their first-stage score" in str(english.degraded[0])


def test_importing_jiyi_and_searching_fast_opens_no_session() -> None:
    code = (
        "import sys, jiyi; e = jiyi.open(None); e.add('tea'); e.search('tea');"
        "assert 'onnxruntime' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
