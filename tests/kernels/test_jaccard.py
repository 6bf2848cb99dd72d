import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels import jaccard
from tests.conftest import token_columns
from tests.oracles import jaccard as oracle

token_sets = st.lists(st.sets(st.integers(0, 30) | st.integers(0, 2**32 - 1), max_size=12).map(sorted), max_size=8)


def u32(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


def test_first_seed():
    """A: typescript api 用 户 写 后 端; B: typescript api 用 户 决 定 开 发: 4 shared of 11."""
    assert jaccard.jaccard(u32(0, 1, 2, 3, 4, 5, 6), u32(0, 1, 2, 3, 7, 8, 9, 10)) == 4 / 11


def test_empty_sets():
    assert jaccard.jaccard(u32(), u32()) == 0.0
    assert jaccard.jaccard(u32(), u32(1)) == 0.0
    assert jaccard.jaccard(u32(1), u32(1)) == 1.0


def test_corner_sets_agree_with_the_oracle(corner_token_sets, columns, read_only):
    indptr, ids = map(read_only, columns(corner_token_sets))
    expected = oracle.jaccard_matrix(corner_token_sets)
    assert jaccard.jaccard_matrix(indptr, ids).tolist() == expected
    for row, values in zip(corner_token_sets, expected, strict=True):
        assert jaccard.jaccard_one_to_many(u32(*row), indptr, ids).tolist() == values


@given(rows=token_sets, query=st.sets(st.integers(0, 30), max_size=12).map(sorted))
def test_agrees_with_the_oracle(rows, query):
    indptr, ids = token_columns(rows)
    assert jaccard.jaccard_matrix(indptr, ids).tolist() == oracle.jaccard_matrix(rows)
    expected = [oracle.jaccard(query, row) for row in rows]
    assert jaccard.jaccard_one_to_many(u32(*query), indptr, ids).tolist() == expected
    assert [jaccard.jaccard(u32(*query), u32(*row)) for row in rows] == expected


def test_rows_of_a_larger_column():
    """The pointers need not start at 0: a window of a column is a view, not a copy."""
    ids = u32(9, 9, 1, 2, 2, 3, 7)
    indptr = np.array([2, 4, 6], np.int64)
    assert jaccard.jaccard_matrix(indptr, ids).tolist() == [[1.0, 1 / 3], [1 / 3, 1.0]]
    assert jaccard.jaccard_one_to_many(u32(1), indptr, ids).tolist() == [1 / 2, 0.0]


def test_bad_arguments():
    with pytest.raises(TypeError, match="a_ids has dtype int64"):
        jaccard.jaccard(np.array([1]), u32(1))
    with pytest.raises(TypeError, match="indptr has dtype int32"):
        jaccard.jaccard_matrix(np.array([0, 1], np.int32), u32(1))
    with pytest.raises(ValueError, match="indptr spans 0 to 5, allowed is 0 to 1"):
        jaccard.jaccard_matrix(np.array([0, 5]), u32(1))
    with pytest.raises(ValueError, match="indptr spans -1 to 1"):
        jaccard.jaccard_one_to_many(u32(1), np.array([-1, 1]), u32(1))
    with pytest.raises(ValueError, match="indptr has length 0"):
        jaccard.jaccard_matrix(np.empty(0, np.int64), u32())


@pytest.mark.parametrize("n", [64, 65, 150])
def test_rows_with_many_common_tokens_and_many_rare_ones(n, columns):
    rng = np.random.default_rng(n)
    rows = [sorted({*rng.choice(100, 50).tolist(), *rng.choice(10_000, 9).tolist()}) for _ in range(n)]
    assert jaccard.jaccard_matrix(*columns(rows)).tolist() == oracle.jaccard_matrix(rows)
