import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels import decay
from tests.oracles import decay as oracle

DAY_S = 86_400.0
CURVES = ["exponential", "linear", "logarithmic"]


def f64(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def test_first_seed_half_lives():
    week = 7 * DAY_S
    assert decay.exponential(f64(0.0, week, 2 * week), week).tolist() == [1.0, 1 / 2, 1 / 4]


def test_future_ages_are_age_zero():
    ages = f64(-1 * DAY_S, -365 * DAY_S, -8000 * 365 * DAY_S, 0.0, 15 * DAY_S, 30 * DAY_S, 90 * DAY_S)
    got = decay.exponential(ages, 30 * DAY_S)
    assert got.tolist() == pytest.approx([1.0, 1.0, 1.0, 1.0, 0.7071068, 0.5, 0.125], abs=1e-7)


def test_a_short_half_life_does_not_overflow_in_the_future():
    assert decay.exponential(f64(-365 * DAY_S, -1e308, -math.inf), 1.0).tolist() == [1.0, 1.0, 1.0]


def test_a_long_past_is_zero():
    assert decay.exponential(f64(1e308, math.inf), 1e-300).tolist() == [0.0, 0.0]
    assert decay.linear(f64(1e308, math.inf), 1.0).tolist() == [0.0, 0.0]
    assert decay.logarithmic(f64(math.inf), 1.0).tolist() == [0.0]


def test_linear_spelled_out():
    assert decay.linear(f64(-5.0, 0.0, 25.0, 100.0, 101.0), 100).tolist() == [1.0, 1.0, 1 - 25 / 100, 0.0, 0.0]


def test_logarithmic_spelled_out():
    got = decay.logarithmic(f64(-5.0, 0.0, 10.0), 10.0)
    assert got.tolist() == pytest.approx([1.0, 1.0, 1 / math.log(math.e + 1)])


@pytest.mark.parametrize("curve", CURVES)
@given(
    ages=st.lists(st.floats(-1e12, 1e12), max_size=20),
    scale_s=st.floats(1e-3, 1e10),
)
def test_agrees_with_the_oracle(curve, ages, scale_s):
    got = getattr(decay, curve)(np.array(ages, np.float64), scale_s)
    assert got.tolist() == pytest.approx([getattr(oracle, curve)(age, scale_s) for age in ages], abs=1e-12)
    assert ((got >= 0.0) & (got <= 1.0)).all()


@pytest.mark.parametrize("curve", CURVES)
def test_empty_and_read_only(curve, read_only):
    assert getattr(decay, curve)(f64(), 1.0).shape == (0,)
    assert getattr(decay, curve)(read_only(f64(0.0)), 1.0)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("curve", CURVES)
def test_nan_is_refused_by_index(curve):
    with pytest.raises(ValueError, match=r"age_s\[1\] is nan"):
        getattr(decay, curve)(f64(0.0, math.nan), 1.0)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("scale_s", [0.0, -1.0, math.inf, math.nan])
def test_scale_out_of_range_is_refused(curve, scale_s):
    with pytest.raises(ValueError, match=r"_s is .*, allowed is a finite number"):
        getattr(decay, curve)(f64(1.0), scale_s)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("scale_s", ["7", None, True])
def test_scale_of_another_type_is_refused(curve, scale_s):
    with pytest.raises(TypeError, match="allowed is a finite number"):
        getattr(decay, curve)(f64(1.0), scale_s)


@given(
    ages=st.lists(st.floats(-1e9, 1e9), max_size=20),
    half_s=st.floats(1e-3, 1e9),
    floor=st.floats(0.0, 1.0),
    data=st.data(),
)
def test_by_kind_each_has_its_curve_to_the_bit(ages, half_s, floor, data):
    kinds = data.draw(st.lists(st.integers(0, 3), min_size=len(ages), max_size=len(ages)))
    curves = np.array([0, *(decay.CURVES[curve] for curve in CURVES)], np.uint8)
    got = decay.aged(f64(*ages), np.array(kinds, np.uint8), curves, np.full(4, half_s), np.full(4, floor))
    wanted = [
        1.0 if kind == 0 else max(floor, float(getattr(decay, CURVES[kind - 1])(f64(age), half_s)[0]))
        for age, kind in zip(ages, kinds, strict=True)
    ]
    assert got.tolist() == wanted


def test_by_kind_what_is_refused():
    one = np.zeros(1, np.uint8)
    with pytest.raises(ValueError, match="allowed are numbers"):
        decay.aged(f64(math.nan), one, one, f64(1.0), f64(0.0))
    with pytest.raises(ValueError, match=r"kinds\[0\] is 1"):
        decay.aged(f64(1.0), one + np.uint8(1), one, f64(1.0), f64(0.0))
    with pytest.raises(ValueError, match="curve for every kind"):
        decay.aged(f64(1.0), one, one + np.uint8(4), f64(1.0), f64(0.0))
    with pytest.raises(ValueError, match="kinds has length 1"):
        decay.aged(f64(), one, one, f64(1.0), f64(0.0))
