from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels.pool import pool_rows

ROWS = st.lists(st.integers(0, 9), unique=True, max_size=10)


@given(ROWS, ROWS, st.integers(0, 12), st.lists(st.integers(-1, 12), min_size=10, max_size=10), st.integers(0, 1023))
def test_against_sets(a: list[int], b: list[int], leading: int, following: list[int], mask: int) -> None:
    eligible = [mask >> row & 1 for row in range(10)]
    wanted = {*a, *b}
    for row in a[:leading] + b[:leading]:
        if 0 <= following[row] < 10 and eligible[following[row]]:
            wanted.add(following[row])
    rows = pool_rows(
        np.array(a, np.int64),
        np.array(b, np.int64),
        leading,
        np.array(following, np.int64),
        np.array(eligible, np.uint8),
    )
    assert rows.tolist() == sorted(wanted)


@pytest.mark.parametrize("row", [-1, 4])
def test_a_row_that_is_none(row: int) -> None:
    with pytest.raises(ValueError, match=f"a row is {row}, allowed is 0 to 3"):
        pool_rows(np.array([0, row]), np.array([1]), 1, np.full(4, -1), np.ones(4, np.uint8))


def test_columns_of_spare_length_and_other_dtypes() -> None:
    following = np.array([1, 2, 3, 0, 7])
    assert pool_rows(np.array([2]), np.empty(0, np.int64), 1, following, np.ones(3, np.uint8)).tolist() == [2]
    with pytest.raises(ValueError, match="following"):
        pool_rows(np.array([0]), np.array([0]), 1, np.array([0]), np.ones(3, np.uint8))
    with pytest.raises(TypeError, match="int64"):
        pool_rows(np.array([0], np.int32), np.array([0]), 1, following, np.ones(3, np.uint8))
