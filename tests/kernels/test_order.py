from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels.order import best_first, moved_to_front


@given(st.lists(st.sampled_from([0.0, -0.0, 0.5, 1.0, -3.0, np.inf, -np.inf]), max_size=40))
def test_best_first_is_a_stable_sort(values: list[float]) -> None:
    scores = np.array(values, dtype=np.float64)
    assert best_first(scores).tolist() == sorted(range(len(values)), key=lambda i: -values[i])


def test_nan_stands_last() -> None:
    assert best_first(np.array([np.nan, 1.0, -1.0])).tolist() == [1, 2, 0]


@given(st.permutations(range(7)), st.lists(st.integers(0, 6), unique=True))
def test_moved_to_front(order: list[int], places: list[int]) -> None:
    moved = moved_to_front(np.array(order, np.int64), np.array(places, np.int64)).tolist()
    front = [order[place] for place in places]
    assert moved == front + [item for item in order if item not in front]


@pytest.mark.parametrize("places", [[3], [-1], [0, 0]])
def test_a_place_that_is_none(places: list[int]) -> None:
    with pytest.raises(ValueError, match="allowed is 0 to 2, each once"):
        moved_to_front(np.arange(3), np.array(places, np.int64))


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match="float64"):
        best_first(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="int64"):
        moved_to_front(np.zeros(3, np.int32), np.zeros(0, np.int64))
