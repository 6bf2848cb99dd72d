from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels.lookup import numbers_of

VALUES = st.integers(0, 2**64 - 1) | st.integers(0, 20)


@given(st.dictionaries(VALUES, st.integers(0, 2**40), max_size=30), st.lists(VALUES, max_size=30))
def test_against_a_dictionary(known: dict[int, int], values: list[int]) -> None:
    keys = sorted(known)
    found = numbers_of(
        np.array(keys, np.uint64), np.array([known[key] for key in keys], np.int64), np.array(values, np.uint64)
    )
    assert found.tolist() == [known.get(value, -1) for value in values]


def test_arrays_that_do_not_belong_together() -> None:
    with pytest.raises(ValueError, match="numbers has length 1"):
        numbers_of(np.zeros(2, np.uint64), np.zeros(1, np.int64), np.zeros(1, np.uint64))
    with pytest.raises(TypeError, match="uint64"):
        numbers_of(np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(1, np.uint64))
