import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels import topk
from tests.oracles import topk as oracle


def f32(*values) -> np.ndarray:
    return np.array(values, np.float32)


def all_of(n: int) -> np.ndarray:
    return np.ones(n, np.uint8)


def test_best_first_and_ties_to_the_lower_row():
    rows, scores = topk.top_k(np.array([0.1, 0.9, 0.5, 0.9, 0.5]), all_of(5), 4)
    assert rows.tolist() == [1, 3, 2, 4]
    assert scores.tolist() == [0.9, 0.9, 0.5, 0.5]


def test_above_is_strict():
    rows, _ = topk.top_k(np.array([0.0, 0.5, -0.5, 1e-300]), all_of(4), 4, above=0.0)
    assert rows.tolist() == [1, 3]


def test_nan_and_minus_infinity_are_never_returned():
    rows, scores = topk.top_k(np.array([math.nan, 1.0, -math.inf, math.inf, math.nan]), all_of(5), 5)
    assert rows.tolist() == [3, 1]
    assert scores.tolist() == [math.inf, 1.0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scores_keep_their_dtype(dtype):
    rows, scores = topk.top_k(np.array([0.25, 0.75], dtype), all_of(2), 1)
    assert (rows.dtype, scores.dtype) == (np.int64, dtype)
    assert (rows.tolist(), scores.tolist()) == ([1], [0.75])


@pytest.mark.parametrize("k", [0, 1, 3, 50])
def test_k_beyond_what_is_eligible_gives_what_there_is(k):
    rows, scores = topk.top_k(np.arange(5.0), np.array([1, 0, 1, 0, 1], np.uint8), k)
    assert rows.tolist() == [4, 2, 0][:k]
    assert scores.tolist() == [4.0, 2.0, 0.0][:k]


@given(
    scores=st.lists(st.sampled_from([0.0, -0.0, 0.25, 0.5, -1.0]) | st.floats(allow_nan=False), max_size=80),
    k=st.integers(0, 90),
    seed=st.integers(0, 99),
    above=st.sampled_from([-math.inf, 0.0, 0.25]),
)
def test_agrees_with_the_oracle(scores, k, seed, above):
    eligible = np.random.default_rng(seed).integers(0, 2, len(scores) + 3).astype(np.uint8)
    rows, best = topk.top_k(np.array(scores, np.float64), eligible, k, above=above)
    assert rows.tolist() == oracle.top_k(scores, eligible.tolist(), k, above)
    assert best.tolist() == [scores[row] for row in rows]


def test_corner_scores(corner_scores, read_only):
    n = len(corner_scores)
    rows, _ = topk.top_k(read_only(corner_scores), read_only(all_of(n)), n)
    assert rows.tolist() == oracle.top_k(corner_scores.tolist(), [1] * n, n)


def test_dense_spelled_out():
    vectors = f32([1, 0], [0.6, 0.8], [0, 1], [-1, 0])
    rows, scores = topk.dense_top_k(vectors, f32(1, 0), all_of(4), 3)
    assert rows.tolist() == [0, 1, 2]
    assert scores.tolist() == f32(1, 0.6, 0).tolist()
    assert scores.dtype == np.float32


def test_dense_reads_only_eligible_rows():
    rows, _ = topk.dense_top_k(f32([3], [2], [1]), f32(1), np.array([0, 1, 1, 1, 1], np.uint8), 9)
    assert rows.tolist() == [1, 2]


def test_dense_copies_tie_to_the_lower_row():
    vectors = np.repeat(np.random.default_rng(0).standard_normal((1, 77)).astype(np.float32), 40, axis=0)
    rows, scores = topk.dense_top_k(vectors, vectors[0], all_of(40), 7)
    assert rows.tolist() == list(range(7))
    assert len(set(scores.tolist())) == 1


def test_dense_never_returns_a_row_with_nan():
    rows, _ = topk.dense_top_k(f32([1, 0], [math.nan, 1], [0.5, 0]), f32(1, 0), all_of(3), 3)
    assert rows.tolist() == [0, 2]


@pytest.mark.parametrize("d", [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 255, 256, 1023])
def test_dense_rows_are_bit_identical_to_the_scan(d):
    rng = np.random.default_rng(d)
    vectors = rng.standard_normal((37, d)).astype(np.float32)
    query = rng.standard_normal(d).astype(np.float32)
    rows, scores = topk.dense_top_k(vectors, query, all_of(37), 37)
    assert len(rows) == 37
    assert topk.dense_rows(vectors, rows, query).tobytes() == scores.tobytes()
    for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
        assert score == pytest.approx(oracle.dot(vectors[row].tolist(), query.tolist()), abs=1e-4)


def test_dense_rows_keep_the_order_asked_for():
    assert topk.dense_rows(f32([1], [2], [3]), np.array([2, 0, 2]), f32(2)).tolist() == [6.0, 2.0, 6.0]
    assert topk.dense_rows(f32([1]), np.empty(0, np.int64), f32(2)).shape == (0,)


def test_dense_of_no_rows():
    rows, scores = topk.dense_top_k(np.empty((0, 4), np.float32), f32(1, 2, 3, 4), all_of(0), 5)
    assert (rows.shape, scores.shape) == ((0,), (0,))


def test_unit_rows_of_corner_rows(corner_rows, read_only):
    unit, nonzero = topk.unit_rows(read_only(corner_rows))
    assert nonzero.tolist() == [0, 1, 1, 1, 1, 1, 1, 1, 0]
    for got, vector in zip(unit.tolist(), corner_rows.tolist(), strict=True):
        assert got == pytest.approx(oracle.unit(vector), abs=1e-7)
    assert np.linalg.norm(unit[nonzero == 1], axis=1) == pytest.approx(1.0, abs=1e-6)


def test_unit_rows_leave_the_input_alone():
    vectors = f32([3, 4])
    unit, _ = topk.unit_rows(vectors)
    assert vectors.tolist() == [[3.0, 4.0]]
    assert unit.tolist() == f32([0.6, 0.8]).tolist()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("row", "column"), [(0, 0), (37, 11), (99, 15)])
def test_first_nonfinite_row(bad, row, column, read_only):
    vectors = np.random.default_rng(0).standard_normal((100, 16)).astype(np.float32)
    assert topk.first_nonfinite_row(vectors) == -1
    vectors[row, column] = bad
    assert topk.first_nonfinite_row(read_only(vectors)) == row == oracle.first_nonfinite_row(vectors.tolist())


def test_first_nonfinite_row_of_corner_rows(corner_rows):
    assert topk.first_nonfinite_row(corner_rows) == -1
    assert topk.first_nonfinite_row(np.empty((0, 3), np.float32)) == -1
    with np.errstate(over="ignore"):
        overflowed = np.array([[1.0], [1e300]]).astype(np.float32)
    assert topk.first_nonfinite_row(overflowed) == 1


def test_memory_mapped_vectors(tmp_path):
    vectors = np.random.default_rng(0).standard_normal((20, 8)).astype(np.float32)
    np.save(tmp_path / "v.npy", vectors)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r", allow_pickle=False)
    query = vectors[3].copy()
    expected = topk.dense_top_k(vectors, query, all_of(20), 5)
    got = topk.dense_top_k(mapped, query, all_of(20), 5)
    assert got[0].tolist() == expected[0].tolist()
    assert got[1].tolist() == expected[1].tolist()


def test_bad_arguments():
    vectors, query = np.ones((3, 4), np.float32), np.ones(4, np.float32)
    with pytest.raises(ValueError, match="query has dimension 3, allowed is 4"):
        topk.dense_top_k(vectors, query[:3].copy(), all_of(3), 1)
    with pytest.raises(ValueError, match="query has dimension 5, allowed is 4"):
        topk.dense_rows(vectors, np.array([0]), np.ones(5, np.float32))
    with pytest.raises(ValueError, match=r"query\[2\] is nan"):
        topk.dense_top_k(vectors, f32(1, 1, math.nan, 1), all_of(3), 1)
    with pytest.raises(ValueError, match=r"query\[0\] is inf"):
        topk.dense_rows(vectors, np.array([0]), f32(math.inf, 1, 1, 1))
    with pytest.raises(ValueError, match=r"rows\[1\] is 3, allowed is 0 to 2"):
        topk.dense_rows(vectors, np.array([0, 3]), query)
    with pytest.raises(ValueError, match=r"rows\[0\] is -1"):
        topk.dense_rows(vectors, np.array([-1]), query)
    with pytest.raises(ValueError, match="eligible has length 2, allowed is at least 3"):
        topk.dense_top_k(vectors, query, all_of(2), 1)
    with pytest.raises(TypeError, match="vectors has dtype float64"):
        topk.unit_rows(vectors.astype(np.float64))
    with pytest.raises(ValueError, match="k is -1, allowed is an integer of at least 0"):
        topk.top_k(np.ones(2), all_of(2), -1)
    for k in (1.5, "2", None, True):
        with pytest.raises(TypeError, match=r"k is .*, allowed is an integer"):
            topk.top_k(np.ones(2), all_of(2), k)
    with pytest.raises(TypeError, match="eligible has dtype bool"):
        topk.top_k(np.ones(2), np.ones(2, np.bool_), 1)
    with pytest.raises(ValueError, match="above is NaN"):
        topk.top_k(np.ones(2), all_of(2), 1, above=math.nan)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.98, 1.0])
def test_dense_over_many_rows_of_which_some_count(share):
    rng = np.random.default_rng(5)
    vectors = rng.integers(-3, 4, (1_000, 9)).astype(np.float32)  # small integers: exact in any order, with ties
    query = rng.integers(-3, 4, 9).astype(np.float32)
    eligible = (rng.random(1_000) < share).astype(np.uint8)
    rows, scores = topk.dense_top_k(vectors, query, eligible, 70)
    exact = vectors.astype(np.int64) @ query.astype(np.int64)
    expected = sorted(np.flatnonzero(eligible).tolist(), key=lambda row: (-exact[row], row))[:70]
    assert rows.tolist() == expected
    assert scores.tolist() == exact[expected].tolist()
