import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels.lending import lent_by_previous


def oracle(rows: list[int], relevance: list[float], previous: list[int], lengths: list[int], share: float, full: int):
    of_row = dict(zip(rows, relevance, strict=True))
    lent = []
    for row in rows:
        before = of_row.get(previous[row], 0.0) if previous[row] >= 0 else 0.0
        lent.append(before * (share * min(1.0, lengths[row] / full)) if before > 0 and share > 0 else math.nan)
    return lent


@given(st.data())
def test_same_as_the_formula(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 30))
    rows = sorted(data.draw(st.sets(st.integers(0, n - 1))))
    relevance = [data.draw(st.floats(0, 1)) for _ in rows]
    previous = [data.draw(st.integers(-1, n - 1)) for _ in range(n)]
    lengths = [data.draw(st.integers(0, 20)) for _ in range(n)]
    share, full = data.draw(st.floats(0, 1)), data.draw(st.integers(1, 12))
    lent = lent_by_previous(
        np.array(rows, np.int64),
        np.array(relevance, np.float64),
        np.array(previous, np.int64),
        np.array(lengths, np.uint32),
        share,
        full,
    )
    np.testing.assert_array_equal(lent, np.array(oracle(rows, relevance, previous, lengths, share, full), np.float64))


def test_an_answer_of_full_length_borrows_the_share_and_a_short_one_less() -> None:
    rows, relevance = np.array([0, 1, 3]), np.array([1.0, 0.0, 0.5])
    previous, lengths = np.array([-1, 0, 1, 2]), np.array([9, 8, 8, 4], np.uint32)
    assert lent_by_previous(rows, relevance, previous, lengths, 0.8, 8).tolist()[1] == 0.8
    lengths[1] = 2
    assert lent_by_previous(rows, relevance, previous, lengths, 0.8, 8).tolist()[1] == pytest.approx(0.2)
    # Row 3 comes after row 2, which is no candidate.
    assert math.isnan(lent_by_previous(rows, relevance, previous, lengths, 0.8, 8)[2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": np.array([0, 4])}, r"rows\[1\] is 4"),
        ({"rows": np.array([-1, 0])}, r"rows\[0\] is -1"),
        ({"share": 1.5}, "share is 1.5"),
        ({"full_length": 0}, "full_length is 0"),
        ({"relevance": np.ones(3)}, "relevance has length 3"),
        ({"lengths": np.ones(1, np.uint32)}, "lengths has length 1"),
    ],
)
def test_bad_input(change: dict, message: str) -> None:
    arguments = {
        "rows": np.array([0, 1]),
        "relevance": np.ones(2),
        "previous": np.array([-1, 0]),
        "lengths": np.ones(2, np.uint32),
        "share": 0.8,
        "full_length": 8,
    }
    with pytest.raises(ValueError, match=message):
        lent_by_previous(**(arguments | change))
