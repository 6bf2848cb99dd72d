import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels import jaccard, mmr, topk
from tests.conftest import token_columns
from tests.oracles import jaccard as jaccard_oracle
from tests.oracles import mmr as oracle

TEXTS = {
    "ts2": "building typescript backend api using express framework",
    "ts3": "creating typescript rest api service with express",
    "py": "analyzing data with python typescript integration pipeline",
    "ts1": "writing typescript backend with express for rest api",
}


@pytest.fixture
def first_seed(columns):
    vocabulary = {word: number for number, word in enumerate(sorted(set(" ".join(TEXTS.values()).split())))}
    rows = [sorted({vocabulary[word] for word in text.split()}) for text in TEXTS.values()]
    relevance = np.array([1 / 7, 1 / 7, 1 / 7, 1 / 8])  # Jaccard with the query "TypeScript"
    return relevance, *columns(rows)


def lists(selection: mmr.MmrSelection) -> tuple[list, list, list, list]:
    return tuple(part.tolist() for part in selection)


def test_first_seed_by_token_sets(first_seed):
    relevance, indptr, ids = first_seed
    selection = mmr.mmr_jaccard(relevance, indptr, ids, 3, 0.6)
    assert [list(TEXTS)[c] for c in selection.order] == ["ts2", "py", "ts3"]
    assert selection.score.tolist() == pytest.approx(
        [0.6 * 1 / 7, 0.6 * 1 / 7 - 0.4 * 1 / 13, 0.6 * 1 / 7 - 0.4 * 3 / 11]
    )
    assert selection.score.round(3).tolist() == [0.086, 0.055, -0.023]
    assert selection.penalty.tolist() == pytest.approx([0.0, 1 / 13, 3 / 11])
    assert selection.blocker.tolist() == [-1, 0, 0]


def test_first_seed_leaves_ts1_last(first_seed):
    relevance, indptr, ids = first_seed
    everything = mmr.mmr_jaccard(relevance, indptr, ids, 10, 0.6)
    assert [list(TEXTS)[c] for c in everything.order] == ["ts2", "py", "ts3", "ts1"]
    ts2_and_ts1 = jaccard.jaccard_matrix(indptr, ids)[np.ix_([0, 3], [0, 3])]
    second = mmr.mmr_from_matrix(relevance[[0, 3]], ts2_and_ts1, 2, 0.6)
    assert second.penalty[1] == 4 / 11
    assert second.score[1] == pytest.approx(-0.071, abs=1e-3)  # the seed rounds 4/11 on the way


def test_first_seed_by_matrix(first_seed):
    relevance, indptr, ids = first_seed
    expected = lists(mmr.mmr_jaccard(relevance, indptr, ids, 3, 0.6))
    matrix = jaccard.jaccard_matrix(indptr, ids)
    assert lists(mmr.mmr_from_matrix(relevance, matrix, 3, 0.6)) == expected
    single = mmr.mmr_from_matrix(relevance, matrix.astype(np.float32), 3, 0.6)
    assert single.order.tolist() == expected[0]
    assert single.score.tolist() == pytest.approx(expected[1], abs=1e-7)


scores = st.sampled_from([0.0, 0.5, 1.0]) | st.floats(-10, 10)
lambdas = st.sampled_from([0.0, 0.5, 0.7, 1.0]) | st.floats(0, 1)


@given(data=st.data(), n=st.integers(0, 12), k=st.integers(0, 14), lambda_=lambdas)
def test_matrix_agrees_with_the_oracle(data, n, k, lambda_):
    relevance = data.draw(st.lists(scores, min_size=n, max_size=n))
    row = st.lists(st.sampled_from([0.0, 0.5, 1.0, -1.0]) | st.floats(-1, 1), min_size=n, max_size=n)
    similarity = data.draw(st.lists(row, min_size=n, max_size=n))
    got = mmr.mmr_from_matrix(np.array(relevance, np.float64), np.array(similarity).reshape(n, n), k, lambda_)
    assert lists(got) == oracle.mmr(relevance, similarity, k, lambda_)


@given(data=st.data(), n=st.integers(0, 12), k=st.integers(0, 14), lambda_=lambdas)
def test_jaccard_agrees_with_the_oracle(data, n, k, lambda_):
    relevance = data.draw(st.lists(scores, min_size=n, max_size=n))
    rows = data.draw(st.lists(st.sets(st.integers(0, 9), max_size=6).map(sorted), min_size=n, max_size=n))
    got = mmr.mmr_jaccard(np.array(relevance, np.float64), *token_columns(rows), k, lambda_)
    assert lists(got) == oracle.mmr(relevance, jaccard_oracle.jaccard_matrix(rows), k, lambda_)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("lambda_", [0.0, 0.3, 0.7, 1.0])
def test_cosine_agrees_with_the_oracle(seed, lambda_):
    rng = np.random.default_rng(seed)
    n, d = 30, 19
    relevance, vectors = rng.random(n), rng.standard_normal((n, d)).astype(np.float32)
    vectors *= rng.choice([1e-20, 1.0, 1e15], (n, 1)).astype(np.float32)
    vectors[7] = 0.0
    got = mmr.mmr_cosine(relevance, vectors, 12, lambda_)
    expected = oracle.mmr(relevance.tolist(), oracle.cosine_matrix(vectors.tolist()), 12, lambda_)
    assert (got.order.tolist(), got.blocker.tolist()) == (expected[0], expected[3])
    assert got.score.tolist() == pytest.approx(expected[1], abs=1e-12)
    assert got.penalty.tolist() == pytest.approx(expected[2], abs=1e-12)


def test_corner_sets(corner_token_sets, columns, read_only):
    n = len(corner_token_sets)
    relevance = np.linspace(1.0, 0.0, n)
    indptr, ids = columns(corner_token_sets)
    got = mmr.mmr_jaccard(read_only(relevance), read_only(indptr), read_only(ids), n, 0.7)
    assert lists(got) == oracle.mmr(relevance.tolist(), jaccard_oracle.jaccard_matrix(corner_token_sets), n, 0.7)


def test_corner_rows(corner_rows, read_only):
    n = len(corner_rows)
    got = mmr.mmr_cosine(read_only(np.zeros(n)), read_only(corner_rows), n, 0.0)
    assert sorted(got.order.tolist()) == list(range(n))
    by_candidate = dict(zip(got.order.tolist(), zip(got.penalty, got.blocker, strict=True), strict=True))
    assert by_candidate[0] == by_candidate[8] == (0.0, -1)  # zero rows are like nothing
    assert by_candidate[4][0] < 1.0  # the opposite of a row is not its copy
    assert (got.penalty >= 0.0).all()
    assert (got.penalty <= 1.0).all()


@pytest.mark.parametrize("seed", range(5))
def test_lambda_one_is_top_k(seed, columns):
    rng = np.random.default_rng(seed)
    n = 40
    relevance = rng.integers(0, 10, n) / 10  # with ties
    indptr, ids = columns([[1, 2, 3]] * n)
    expected, _ = topk.top_k(relevance, np.ones(n, np.uint8), 15)
    vectors = np.ones((n, 8), np.float32)
    assert mmr.mmr_jaccard(relevance, indptr, ids, 15, 1.0).order.tolist() == expected.tolist()
    assert mmr.mmr_cosine(relevance, vectors, 15, 1.0).order.tolist() == expected.tolist()
    assert mmr.mmr_from_matrix(relevance, np.ones((n, n)), 15, 1).order.tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_at_lambda_zero_a_copy_never_beats_a_distinct_item(seed, columns):
    rng = np.random.default_rng(seed)
    distinct = rng.permutation(8)
    rows = [[int(i), 100, 101] for i in distinct]
    copies = rng.integers(0, 8, 8)
    order = rng.permutation(16)
    everything = [(rows + [rows[c] for c in copies])[i] for i in order]
    relevance = rng.random(16)
    got = mmr.mmr_jaccard(relevance, *columns(everything), 16, 0.0).order.tolist()
    assert len({tuple(everything[c]) for c in got[:8]}) == 8

    vectors = rng.standard_normal((8, 48)).astype(np.float32)
    everything = np.concatenate([vectors, vectors[copies]])[order]
    got = mmr.mmr_cosine(relevance, everything, 16, 0.0).order.tolist()
    assert len({everything[c].tobytes() for c in got[:8]}) == 8


def test_a_negative_similarity_is_no_reward():
    vectors = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], np.float32)
    got = mmr.mmr_cosine(np.array([1.0, 0.5, 0.5]), vectors, 3, 0.5)
    assert got.order.tolist() == [0, 1, 2]
    assert got.penalty.tolist() == [0.0, 0.0, 0.0]
    assert got.blocker.tolist() == [-1, -1, -1]


def test_spare_capacity_is_not_read(columns):
    rows = [[1, 2], [1, 2, 3], [7]]
    relevance = np.array([0.9, 0.8, 0.1])
    assert lists(mmr.mmr_jaccard(relevance, *columns(rows, spare=5), 3, 0.5)) == lists(
        mmr.mmr_jaccard(relevance, *columns(rows), 3, 0.5)
    )


def test_a_window_of_a_larger_column(columns):
    indptr, ids = columns([[5, 6], [1, 2], [1, 2, 3], [7]])
    got = mmr.mmr_jaccard(np.array([0.9, 0.8, 0.1]), indptr[1:].copy(), ids, 3, 0.5)
    assert lists(got) == lists(mmr.mmr_jaccard(np.array([0.9, 0.8, 0.1]), *columns([[1, 2], [1, 2, 3], [7]]), 3, 0.5))


def test_bad_arguments(columns):
    relevance, matrix = np.array([1.0, 0.5]), np.zeros((2, 2))
    with pytest.raises(ValueError, match=r"lambda_ is 1\.5, allowed is 0 to 1"):
        mmr.mmr_from_matrix(relevance, matrix, 1, 1.5)
    with pytest.raises(ValueError, match="lambda_ is nan"):
        mmr.mmr_from_matrix(relevance, matrix, 1, math.nan)
    with pytest.raises(ValueError, match="k is -2"):
        mmr.mmr_from_matrix(relevance, matrix, -2, 0.5)
    with pytest.raises(ValueError, match=r"similarity has shape \(3, 3\), allowed is \(2, 2\)"):
        mmr.mmr_from_matrix(relevance, np.zeros((3, 3)), 1, 0.5)
    with pytest.raises(ValueError, match=r"similarity\[0, 1\] is NaN"):
        mmr.mmr_from_matrix(relevance, np.array([[1.0, math.nan], [0.0, 1.0]]), 2, 0.5)
    with pytest.raises(TypeError, match="similarity has dtype int64"):
        mmr.mmr_from_matrix(relevance, np.zeros((2, 2), np.int64), 1, 0.5)
    for bad in (math.nan, math.inf):
        broken = np.array([0.5, bad])
        with pytest.raises(ValueError, match=rf"relevance\[1\] is {bad}"):
            mmr.mmr_from_matrix(broken, matrix, 1, 0.5)
        with pytest.raises(ValueError, match=r"relevance\[1\]"):
            mmr.mmr_jaccard(broken, *columns([[1], [2]]), 1, 0.5)
        with pytest.raises(ValueError, match=r"relevance\[1\]"):
            mmr.mmr_cosine(broken, np.ones((2, 2), np.float32), 1, 0.5)
        with pytest.raises(ValueError, match=r"vectors\[0\] holds NaN or infinity"):
            mmr.mmr_cosine(relevance, np.array([[bad, 0.0], [1.0, 1.0]], np.float32), 1, 0.5)
    with pytest.raises(ValueError, match="vectors has length 3, allowed is 2"):
        mmr.mmr_cosine(relevance, np.ones((3, 2), np.float32), 1, 0.5)
    with pytest.raises(ValueError, match="indptr has length 2, allowed is at least"):
        mmr.mmr_jaccard(relevance, *columns([[1]]), 1, 0.5)


@pytest.mark.parametrize("lambda_", [0.0, 0.7])
@pytest.mark.parametrize("relevance", ["differs", "few values", "constant"])
def test_many_candidates_whose_tokens_stand_in_any_order(columns, relevance, lambda_):
    rng = np.random.default_rng(3)
    rows = [rng.permutation(rng.choice(60, rng.integers(0, 25), replace=False)).tolist() for _ in range(90)]
    values = {"differs": rng.random(90), "few values": rng.integers(0, 3, 90) / 2.0, "constant": np.ones(90)}[relevance]
    expected = oracle.mmr(values.tolist(), jaccard_oracle.jaccard_matrix(rows), 40, lambda_)
    assert lists(mmr.mmr_jaccard(values, *columns(rows), 40, lambda_)) == expected


def test_a_vector_that_is_not_finite_is_refused_wherever_it_stands():
    vectors = np.eye(30, dtype=np.float32)
    vectors[29, 3] = np.nan
    with pytest.raises(ValueError, match=r"vectors\[29\] holds NaN or infinity"):
        mmr.mmr_cosine(np.linspace(1.0, 0.0, 30), vectors, 1, 1.0)
