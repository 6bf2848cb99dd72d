import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels import normalize
from tests.oracles import normalize as oracle

FUNCTIONS = [normalize.minmax, normalize.zscore, normalize.rank_scores]
finite = st.floats(allow_nan=False, allow_infinity=False)


def f64(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def test_minmax_spelled_out():
    y = normalize.minmax(f64(2.0, 5.0, 3.0))
    assert y.tolist() == [(2 - 2) / (5 - 2), (5 - 2) / (5 - 2), (3 - 2) / (5 - 2)]


def test_minmax_of_a_constant_or_single_list_is_one():
    assert normalize.minmax(f64(0.0)).tolist() == [1.0]
    assert normalize.minmax(f64(-3.0, -3.0)).tolist() == [1.0, 1.0]


def test_minmax_does_not_overflow():
    assert normalize.minmax(f64(1e308, -1e308, 0.0)).tolist() == [1.0, 0.0, 0.5]
    largest = np.finfo(np.float64).max
    assert normalize.minmax(f64(largest, -largest)).tolist() == [1.0, 0.0]


def test_zscore_spelled_out():
    deviation = ((1.0 + 0.0 + 1.0) / 3) ** 0.5  # of 1, 2, 3 around 2
    assert normalize.zscore(f64(1.0, 2.0, 3.0)) == pytest.approx([-1 / deviation, 0.0, 1 / deviation])


@pytest.mark.parametrize("value", [0.0, 0.1, 1e300, -7.0])
def test_zscore_of_a_constant_is_zero(value):
    assert normalize.zscore(np.full(7, value)).tolist() == [0.0] * 7


def test_rank_scores_spelled_out():
    assert normalize.rank_scores(f64(0.9, 0.1, 0.5)).tolist() == [3 / 3, 1 / 3, 2 / 3]
    assert normalize.rank_scores(f64(3.0, 1.0, 3.0, 2.0)).tolist() == [4 / 4, 1 / 4, 4 / 4, 2 / 4]
    assert normalize.rank_scores(f64(0.5, 0.5, 0.5)).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", ["minmax", "zscore", "rank_scores"])
def test_corner_scores_agree_with_the_oracle(name, corner_scores, read_only):
    got = getattr(normalize, name)(read_only(corner_scores))
    assert got.dtype == np.float64
    assert got.tolist() == pytest.approx(getattr(oracle, name)(corner_scores.tolist()), abs=1e-12)


@pytest.mark.parametrize("name", ["minmax", "zscore", "rank_scores"])
@given(x=st.lists(finite, max_size=30))
def test_agrees_with_the_oracle(name, x):
    got = getattr(normalize, name)(np.array(x, np.float64))
    assert got.tolist() == pytest.approx(getattr(oracle, name)(x), abs=1e-9)


@given(x=st.lists(finite, min_size=1, max_size=30))
def test_minmax_stays_in_range_and_keeps_the_order(x):
    y = normalize.minmax(np.array(x, np.float64))
    assert y.min() >= 0.0
    assert y.max() == 1.0
    order = np.argsort(x, kind="stable")
    assert (np.diff(y[order]) >= 0.0).all()


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_is_refused_by_index(function, bad):
    with pytest.raises(ValueError, match=r"x\[2\] is -?(nan|inf), allowed are finite numbers"):
        function(f64(1.0, 2.0, bad, 4.0))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_wrong_arrays_are_refused(function):
    with pytest.raises(TypeError, match="dtype float32, allowed is a C-contiguous float64"):
        function(np.ones(3, np.float32))
    with pytest.raises(TypeError, match="x is list"):
        function([1.0, 2.0])
    with pytest.raises(ValueError, match=r"shape \(2, 2\)"):
        function(np.ones((2, 2)))
    with pytest.raises(ValueError, match="not contiguous"):
        function(np.ones(6)[::2])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_input_is_left_alone(function):
    x = f64(3.0, 1.0, 2.0)
    function(x)
    assert x.tolist() == [3.0, 1.0, 2.0]
