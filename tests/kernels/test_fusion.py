import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels import fusion
from jiyi.kernels.fusion import minmax_weighted_sum, weighted_sum
from jiyi.kernels.normalize import minmax
from tests.oracles import fusion as oracle

A, B, C = 1, 2, 3


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_rrf_spelled_out():
    ids, scores = fusion.rrf([i64(A, B, C), i64(C, A)])
    expected = {A: 1 / (60 + 1) + 1 / (60 + 2), C: 1 / (60 + 3) + 1 / (60 + 1), B: 1 / (60 + 2)}
    assert ids.tolist() == [A, C, B]
    assert scores.tolist() == [expected[A], expected[C], expected[B]]


def test_second_seed_k_of_one():
    ids, scores = fusion.rrf([i64(A, B)], k=1)
    assert ids.tolist() == [A, B]
    assert scores.tolist() == [1 / (1 + 1), 1 / (1 + 2)]


def test_an_id_counts_once_per_list():
    ids, scores = fusion.rrf([i64(A, B, B, B), i64(C, A)])
    assert ids.tolist() == [A, C, B]
    assert scores.tolist() == pytest.approx([0.03252247, 0.01639344, 0.01612903], abs=1e-8)


def test_ranks_are_counted_after_repeats_are_removed():
    ids, scores = fusion.rrf([i64(A, B, B, B, C)])
    assert ids.tolist() == [A, B, C]
    assert scores.tolist() == [1 / 61, 1 / 62, 1 / 63]


def test_ties_go_to_the_smaller_id():
    ids, scores = fusion.rrf([i64(9, -4), i64(-4, 9), i64(2**62), i64(-(2**62))], k=1)
    assert ids.tolist() == [-4, 9, -(2**62), 2**62]
    assert scores.tolist() == [1 / 2 + 1 / 3, 1 / 3 + 1 / 2, 1 / 2, 1 / 2]


def test_weights():
    ids, scores = fusion.rrf([i64(A), i64(B), i64(C)], k=0.0, weights=[0.25, 2, 0.0])
    assert ids.tolist() == [B, A, C]
    assert scores.tolist() == [2.0, 0.25, 0.0]


@pytest.mark.parametrize("lists", [[], [np.empty(0, np.int64)], [np.empty(0, np.int64)] * 3])
def test_nothing_to_fuse(lists):
    ids, scores = fusion.rrf(lists)
    assert (ids.shape, ids.dtype) == ((0,), np.int64)
    assert (scores.shape, scores.dtype) == ((0,), np.float64)


@given(
    lists=st.lists(
        st.lists(st.integers(-5, 20) | st.integers(-(2**63), 2**63 - 1), max_size=20), min_size=1, max_size=5
    ),
    k=st.sampled_from([0.0, 1.0, 60.0]),
)
def test_rrf_agrees_with_the_oracle(lists, k):
    weights = [1.0 + 0.5 * number for number in range(len(lists))]
    ids, scores = fusion.rrf([np.array(ids, np.int64) for ids in lists], k=k, weights=weights)
    assert (ids.tolist(), scores.tolist()) == oracle.rrf(lists, k, weights)


def test_rrf_scores_spelled_out():
    ranks = np.array([[1, 2, 0], [0, 1, 0]], np.int64)
    assert fusion.rrf_scores(ranks, k=1).tolist() == [1 / 2, 1 / 3 + 1 / 2, 0.0]
    assert fusion.rrf_scores(ranks, weights=np.array([0.0, 1.0])).tolist() == [0.0, 1 / 61, 0.0]


@given(ranks=st.integers(0, 4).flatmap(lambda n: st.lists(st.lists(st.integers(0, 9), min_size=n, max_size=n))))
def test_rrf_scores_agree_with_the_oracle(ranks):
    n = len(ranks[0]) if ranks else 3
    got = fusion.rrf_scores(np.array(ranks, np.int64).reshape(len(ranks), n))
    assert got.tolist() == oracle.rrf_scores(ranks, n)


def test_weighted_sum_spelled_out():
    scores = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
    assert fusion.weighted_sum(scores, np.array([0.7, 0.3])).tolist() == [0.7, 0.3, 0.7 * 0.5 + 0.3 * 0.5]


@given(data=st.data(), signals=st.integers(0, 4), n=st.integers(0, 8))
def test_weighted_sum_agrees_with_the_oracle(data, signals, n):
    number = st.floats(-100, 100)
    scores = data.draw(st.lists(st.lists(number, min_size=n, max_size=n), min_size=signals, max_size=signals))
    weights = data.draw(st.lists(number, min_size=signals, max_size=signals))
    got = fusion.weighted_sum(np.array(scores, np.float64).reshape(signals, n), np.array(weights, np.float64))
    assert got.tolist() == pytest.approx(oracle.weighted_sum(scores, weights, n))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weighted_sum_names_the_candidate_without_a_number(bad):
    with pytest.raises(ValueError, match="the sum of candidate 1 is"):
        fusion.weighted_sum(np.array([[0.0, bad], [1.0, 1.0]]), np.array([0.5, 0.5]))


def test_read_only_lists(read_only):
    ids, _ = fusion.rrf([read_only(i64(A, B)), i64(B)])
    assert ids.tolist() == [B, A]


def test_bad_arguments():
    with pytest.raises(TypeError, match=r"lists\[1\] has dtype int32"):
        fusion.rrf([i64(1), np.array([1], np.int32)])
    with pytest.raises(ValueError, match=r"k is -1\.0, allowed is a finite number of at least 0"):
        fusion.rrf([i64(1)], k=-1)
    with pytest.raises(ValueError, match="weights has length 1, allowed is 2"):
        fusion.rrf([i64(1), i64(2)], weights=[1.0])
    with pytest.raises(ValueError, match=r"weights\[0\] is nan"):
        fusion.rrf([i64(1)], weights=[np.nan])
    with pytest.raises(ValueError, match=r"ranks\[1, 0\] is -1"):
        fusion.rrf_scores(np.array([[1, 2], [-1, 0]], np.int64))
    with pytest.raises(ValueError, match="weights has length 3, allowed is 2"):
        fusion.weighted_sum(np.ones((2, 2)), np.ones(3))


@given(st.data())
def test_minmax_and_sum_in_one_call_is_both_calls_to_the_bit(data: st.DataObject) -> None:
    signals, n = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 12))
    raw = np.array([[data.draw(st.floats(-50, 50)) for _ in range(n)] for _ in range(signals)]).reshape(signals, n)
    weights = np.array([data.draw(st.floats(0, 1)) for _ in range(signals)], np.float64)
    normalized, total = minmax_weighted_sum(raw, weights)
    scaled = np.array([minmax(row) for row in raw]).reshape(signals, n)
    assert normalized.tobytes() == scaled.tobytes()
    assert total.tobytes() == weighted_sum(scaled, weights).tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_minmax_and_sum_refuse_what_is_not_finite(bad: float) -> None:
    with pytest.raises(ValueError, match="signal 1"):
        minmax_weighted_sum(np.array([[0.0, 1.0], [0.0, bad]]), np.ones(2))
    with pytest.raises(ValueError, match="signal 0"):
        minmax_weighted_sum(np.ones((1, 2)), np.array([bad]))


scored = st.lists(st.tuples(st.integers(0, 9), st.floats(-50, 50)), max_size=12)


@given(lists=st.lists(scored, max_size=4), data=st.data())
def test_weighted_lists_agree_with_the_oracle(lists, data):
    weights = data.draw(st.lists(st.floats(0, 2), min_size=len(lists), max_size=len(lists)))
    ids = [i64(*(identifier for identifier, _ in pairs)) for pairs in lists]
    scores = [np.array([score for _, score in pairs], np.float64) for pairs in lists]
    got = fusion.weighted_lists(ids, scores, weights=weights)
    assert [part.tolist() for part in got] == list(oracle.weighted_lists(lists, weights))


def test_weighted_lists_spelled_out():
    ids, sums = fusion.weighted_lists(
        [i64(A, B, C), i64(B, B, A), i64(C)],
        [np.array([9.0, 6.0, 5.0]), np.array([0.9, 0.1, 0.4]), np.array([-3.0])],
        weights=[0.5, 0.3, 0.1],
    )
    # Of two scores of B in one list the first counts; one score alone is the best of its list.
    assert dict(zip(ids.tolist(), sums.tolist(), strict=True)) == pytest.approx({A: 0.5, B: 0.125 + 0.3, C: 0.1})
    assert ids.tolist() == [A, B, C]


@pytest.mark.parametrize("lists", [[], [i64()], [i64(), i64()]])
def test_weighted_lists_of_nothing(lists):
    ids, sums = fusion.weighted_lists(lists, [np.empty(0)] * len(lists))
    assert ids.tolist() == sums.tolist() == []


def test_weighted_lists_refuse_what_does_not_belong_together():
    with pytest.raises(ValueError, match="scores has length 1, allowed is 2"):
        fusion.weighted_lists([i64(1), i64(2)], [np.ones(1)])
    with pytest.raises(ValueError, match=r"scores\[1\] has length 2, allowed is 1"):
        fusion.weighted_lists([i64(1), i64(2)], [np.ones(1), np.ones(2)])
    with pytest.raises(TypeError, match=r"scores\[0\] has dtype float32"):
        fusion.weighted_lists([i64(1)], [np.ones(1, np.float32)])
    with pytest.raises(ValueError, match=r"scores\[1\] holds NaN or infinity"):
        fusion.weighted_lists([i64(1), i64(2)], [np.ones(1), np.array([np.nan])])
