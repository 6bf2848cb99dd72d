from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.models.onnx_batches import encoder_feeds, pad, plan_batches

LENGTHS = st.lists(st.integers(1, 600), max_size=80)


def padded(lengths: list[int], batches: list[list[int]]) -> int:
    return sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)


@given(LENGTHS, st.integers(1, 2_000), st.one_of(st.none(), st.integers(1, 9)))
def test_every_row_is_in_one_batch_within_the_limits(
    lengths: list[int], most_tokens: int, most_rows: int | None
) -> None:
    batches = plan_batches(lengths, most_tokens=most_tokens, most_rows=most_rows)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or len(batch) * longest <= most_tokens
        assert most_rows is None or len(batch) <= most_rows
        assert all(longest <= max(1.25 * lengths[i], lengths[i] + 4) for i in batch)
    assert [batch[0] for batch in batches] == sorted(batch[0] for batch in batches)
    assert all(batch == sorted(batch) for batch in batches)


@given(LENGTHS)
def test_order_of_the_input_does_not_change_the_cost(lengths: list[int]) -> None:
    cost = padded(lengths, plan_batches(lengths, most_tokens=512))
    assert padded(lengths[::-1], plan_batches(lengths[::-1], most_tokens=512)) == cost
    assert cost <= sum(max(1.25 * length, length + 4) for length in lengths)


def test_one_long_row_pays_for_itself_only() -> None:
    lengths = [20] * 31 + [512]
    batches = plan_batches(lengths, most_tokens=512)
    assert padded(lengths, batches) == sum(lengths)
    in_one = padded(lengths, [list(range(32))])
    assert in_one / sum(lengths) > 14


def test_best_row_is_in_the_first_batch() -> None:
    assert plan_batches([40, 10, 41, 10, 500], most_tokens=512) == [[0, 2], [1, 3], [4]]
    assert plan_batches([500, 3], most_tokens=512) == [[0], [1]]


def test_one_row_a_batch() -> None:
    assert plan_batches([3, 3, 3], most_tokens=512, most_rows=1) == [[0], [1], [2]]


def test_no_rows() -> None:
    assert plan_batches([], most_tokens=512) == []


def test_pad() -> None:
    rows = [[1, 2, 3], [4], []]
    assert pad(rows, 9).tolist() == [[1, 2, 3], [4, 9, 9], [9, 9, 9]]


@pytest.mark.parametrize("types", [None, [[0, 0, 1], [1]]])
def test_feeds(types: list[list[int]] | None) -> None:
    feeds = encoder_feeds([[5, 6, 7], [8]], 1, types)
    assert feeds["input_ids"].tolist() == [[5, 6, 7], [8, 1, 1]]
    assert feeds["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert feeds["token_type_ids"].tolist() == ([[0, 0, 1], [1, 0, 0]] if types else [[0, 0, 0], [0, 0, 0]])
    assert feeds["position_ids"].tolist() == [[0, 1, 2], [0, 1, 2]]
