from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jiyi.models import onnx_cross_encoder
from jiyi.models.onnx_cost import CostEstimate, batch_work
from jiyi.models.onnx_cross_encoder import OnnxCrossEncoder
from tests.models.tiny_onnx import make_folder, sentences


class Clock:
    """A clock that a model's own batches move: seconds a padded token, and nothing else."""

    def __init__(self, seconds_per_token: float = 0.001) -> None:
        self.now = 1_000.0
        self.seconds_per_token = seconds_per_token
        self.batches: list[tuple[int, ...]] = []

    def perf_counter(self) -> float:
        return self.now

    def attach(self, model: OnnxCrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
        run = model._session.run

        def timed(feeds: Any, output: str) -> Any:
            self.batches.append(feeds["input_ids"].shape)
            self.now += self.seconds_per_token * feeds["input_ids"].size
            return run(feeds, output)

        monkeypatch.setattr(model._session, "run", timed)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(onnx_cross_encoder, "time", clock)
    return clock


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("deadline") / "tiny", outputs=1, manifest={})


@pytest.fixture
def model(folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> OnnxCrossEncoder:
    model = OnnxCrossEncoder(folder, device="cpu", threads=1)
    clock.attach(model, monkeypatch)
    return model


PAIRS = [("my cat", text) for text in sentences(60)]


def test_ample_time_scores_all(model: OnnxCrossEncoder, folder: Path, clock: Clock) -> None:
    scores = model.score_pairs(PAIRS, deadline=clock.now + 1_000)
    np.testing.assert_allclose(scores, OnnxCrossEncoder(folder, device="cpu").score_pairs(PAIRS), atol=1e-4)


@pytest.mark.parametrize("budget", [0.2, 0.5, 1.0])
def test_stops_in_time_and_best_candidates_come_first(model: OnnxCrossEncoder, clock: Clock, budget: float) -> None:
    model.score("warm", sentences(5, seed=9))
    begun = clock.now
    scores = model.score_pairs(PAIRS, deadline=begun + budget)
    assert clock.now <= begun + budget
    reached = np.flatnonzero(np.isfinite(scores))
    assert 0 < len(reached) < len(PAIRS)
    # All of the first ones, and after them those that shared a batch with one of them.
    assert set(range(len(reached) // 2)) <= set(reached.tolist())
    assert clock.now - begun > budget / 2


def test_more_time_reaches_more(folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for budget in (0.1, 0.3, 0.9, 100.0):
        model = OnnxCrossEncoder(folder, device="cpu", threads=1)
        clock.attach(model, monkeypatch)
        model.score("warm", sentences(5, seed=9))
        counts.append(int(np.isfinite(model.score_pairs(PAIRS, deadline=clock.now + budget)).sum()))
    assert counts == sorted(counts)
    assert counts[0] < counts[1] < counts[2] < counts[3] == len(PAIRS)


def test_deadline_that_has_passed_runs_nothing(model: OnnxCrossEncoder, clock: Clock) -> None:
    for deadline in (clock.now, clock.now - 5, 0.0, float("-inf")):
        assert np.isnan(model.score_pairs(PAIRS, deadline=deadline)).all()
    assert clock.batches == []


def test_remembered_scores_and_blank_texts_come_without_time(model: OnnxCrossEncoder, clock: Clock) -> None:
    known = model.score_pairs(PAIRS[10:20])
    scores = model.score_pairs([*PAIRS, ("my cat", "")], deadline=clock.now)
    assert np.array_equal(scores[10:20], known)
    assert np.isnan(np.delete(scores, [*range(10, 20), 60])).all()
    assert scores[60] == onnx_cross_encoder.LOWEST_LOGIT


def test_what_was_reached_is_remembered(model: OnnxCrossEncoder, clock: Clock) -> None:
    first = model.score_pairs(PAIRS, deadline=clock.now + 0.5)
    second = model.score_pairs(PAIRS, deadline=clock.now + 0.5)
    reached = np.isfinite(first)
    assert np.array_equal(second[reached], first[reached])
    assert np.isfinite(second).sum() > reached.sum()


def test_first_use_probes_with_two_pairs(model: OnnxCrossEncoder, clock: Clock) -> None:
    clock.seconds_per_token = 1.0
    scores = model.score_pairs(PAIRS, deadline=clock.now + 0.001)
    assert sum(rows for rows, _ in clock.batches) <= 2
    assert 1 <= np.isfinite(scores).sum() <= 2


def test_learns_that_the_machine_has_become_slower(model: OnnxCrossEncoder, clock: Clock) -> None:
    model.score_pairs(PAIRS[:20])
    clock.seconds_per_token = 0.004
    for text in sentences(8, seed=3):
        model.score("slower", [text])
    begun = clock.now
    model.score_pairs(PAIRS, deadline=begun + 1.0)
    assert clock.now <= begun + 1.2


def test_one_slow_run_does_not_switch_reranking_off(model: OnnxCrossEncoder, clock: Clock) -> None:
    clock.seconds_per_token = 1.0
    model.score("slow", ["the cat"])
    clock.seconds_per_token = 0.001
    calls = 0
    while not np.isfinite(model.score_pairs(PAIRS, deadline=clock.now + 0.3)).any():
        calls += 1
        assert calls < 100


def test_a_long_text_is_whole_or_not_there(model: OnnxCrossEncoder, folder: Path, clock: Clock) -> None:
    long = " ".join(sentences(12))
    model.score("warm", sentences(5, seed=9))
    scores = model.score_pairs([("my cat", "tea"), ("my cat", long), ("my cat", "dog")], deadline=clock.now + 0.15)
    assert np.isnan(scores[1])
    whole = OnnxCrossEncoder(folder, device="cpu").score("my cat", [long])[0]
    assert model.score("my cat", [long])[0] == pytest.approx(whole, abs=1e-4)


def test_run_that_turns_slow_leaves_the_rest_out(
    model: OnnxCrossEncoder, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate allows for more than there turns out to be time for; one row a batch, windows too."""
    monkeypatch.setattr(model, "_batch_tokens", 64)
    long = " ".join(sentences(12))
    pairs = [("my cat", "tea"), ("my cat", "the dog"), ("my cat", long), ("my cat", "redis index"), ("my cat", "paris")]
    model.score("warm", sentences(5, seed=9))
    clock.seconds_per_token = 0.02
    begun = clock.now
    scores = model.score_pairs(pairs, deadline=begun + 2.0)
    # What was started before it showed may end late; nothing after that was started.
    assert len(clock.batches) < 5 + len(pairs) + 5
    assert np.isfinite(scores[0])
    assert np.isnan(scores[2])
    monkeypatch.undo()
    whole = OnnxCrossEncoder(folder, device="cpu").score_pairs(pairs)
    reached = np.isfinite(scores)
    np.testing.assert_allclose(scores[reached], whole[reached], atol=1e-4)
    np.testing.assert_allclose(model.score_pairs(pairs), whole, atol=1e-4)


def test_cost_is_a_moving_mean() -> None:
    cost = CostEstimate()
    assert cost.seconds(10) is None
    cost.doubt()
    cost.observe(100, 1.0)
    assert cost.seconds(50) == pytest.approx(0.5)
    cost.observe(100, 2.0)
    assert cost.seconds(100) == pytest.approx(1.3)
    cost.doubt()
    assert cost.seconds(100) == pytest.approx(1.17)


def test_work_of_a_batch_is_what_its_longest_row_costs() -> None:
    assert batch_work(32, 512) > 20 * batch_work(32, 20)
    assert batch_work(1, 512) + batch_work(31, 20) < batch_work(32, 512) / 8
    assert batch_work(8, 40) < 8 * batch_work(1, 40)
