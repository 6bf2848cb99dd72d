from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from jiyi.kernels.near_copies import near_copies
from tests.conftest import token_columns
from tests.oracles import near_copies as oracle

Vector = Sequence[float] | None


def found(
    orders: Sequence[Sequence[int]],
    vectors: Sequence[Vector] | None = None,
    min_jaccard: float = 0.8,
    min_cosine: float = 0.9,
) -> list[int]:
    return near_copies(*arrays(orders, vectors), min_jaccard, min_cosine).tolist()


def arrays(
    orders: Sequence[Sequence[int]], vectors: Sequence[Vector] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32], NDArray[np.int64]]:
    """Texts as the kernel takes them: tokens numbered by rarity."""
    tokens = [token for order in orders for token in order]
    rarest = sorted(set(tokens), key=lambda token: (tokens.count(token), token))
    ranks = [[rarest.index(token) for token in order] for order in orders]
    indptr, ids = token_columns([sorted(order) for order in ranks])
    dim = next((len(vector) for vector in vectors or () if vector is not None), 0)
    matrix = np.zeros((len(orders), dim), np.float32)
    has_vector = np.zeros(len(orders), np.int64)
    for row, vector in enumerate(vectors or ()):
        if vector is not None:
            matrix[row], has_vector[row] = vector, 1
    order = np.array([token for ranked in ranks for token in ranked], np.uint32)
    return indptr, ids, order, matrix, has_vector


def test_a_copy_joins_the_first_that_said_it():
    assert found([[1, 2, 3], [4, 5], [1, 2, 3], [4, 5], [1, 2, 3]]) == [0, 1, 0, 1, 0]


def test_no_texts_and_empty_ones():
    assert found([]) == []
    assert found([[], []]) == [0, 1]
    assert found([[], [1], [], [1]]) == [0, 1, 2, 1]


def test_groups_do_not_chain():
    """B is near A and C is near B; C is not near A, and B leads no group."""
    a, b, c = [0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]
    assert found([a, b, c], min_jaccard=0.6) == [0, 0, 2]
    assert found([b, a, c], min_jaccard=0.6) == [0, 0, 0]


def test_the_most_similar_and_then_the_earliest_is_joined():
    assert found([[0, 1, 2, 3], [1, 2, 3, 5, 6], [0, 1, 2, 3, 5, 6]], min_jaccard=0.6)[2] == 1
    assert found([[0, 1, 2], [1, 2, 3], [0, 1, 2, 3]], min_jaccard=0.7)[2] == 0


def test_the_same_words_in_another_order_say_something_else():
    assert found([[1, 2, 3], [3, 2, 1]], min_jaccard=0.5) == [0, 1]
    assert found([[1, 2, 3, 4], [1, 9, 2, 3]], min_jaccard=0.5) == [0, 0]


def test_vectors_have_a_say():
    near, far = (1.0, 0.0), (0.8, 0.6)
    assert found([[1, 2], [1, 2]], [near, near]) == [0, 0]
    assert found([[1, 2], [1, 2]], [near, far]) == [0, 1]
    assert found([[1, 2], [1, 2]], [near, far], min_cosine=0.7) == [0, 0]
    assert found([[1, 2], [1, 2], [1, 2]], [None, near, None]) == [0, 1, 0]


def test_the_threshold_itself_counts():
    assert found([[0, 1, 2, 3, 4], [0, 1, 2, 3]], min_jaccard=0.8) == [0, 0]
    assert found([[0, 1, 2, 3], [0, 1, 2]], min_jaccard=np.nextafter(0.75, 1)) == [0, 1]


texts = st.lists(st.lists(st.integers(0, 9), unique=True, max_size=8), max_size=14)
mutations = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 7), st.integers(0, 9)), max_size=14)


@given(texts, mutations, st.sampled_from([0.3, 0.5, 0.6, 0.8, 1.0]), st.data())
def test_agrees_with_the_oracle(base, changes, min_jaccard, data):
    orders = [list(order) for order in base]
    for which, place, token in changes:  # near-copies, which random texts seldom are
        copy = list(orders[which % len(orders)]) if orders else []
        copy[place : place + 1] = [token] if token not in copy else []
        orders.append(copy)
    angles = st.none() | st.sampled_from([0.0, 0.3, 0.6, 3.0])
    drawn = data.draw(st.lists(angles, min_size=len(orders), max_size=len(orders)))
    vectors = [None if angle is None else (float(np.cos(angle)), float(np.sin(angle))) for angle in drawn]
    single = [None if vector is None else np.array(vector, np.float32) for vector in vectors]
    assert found(orders, vectors, min_jaccard, 0.9) == oracle.near_copies(orders, single, min_jaccard, 0.9)


def test_many_of_one_mould_are_not_compared_in_pairs():
    """Two words of their own and five that all have: 200 million pairs, of which one is a copy."""
    n = 20_000
    own, common = np.arange(2 * n, dtype=np.uint32).reshape(n, 2), np.arange(5, dtype=np.uint32) + 2 * n
    ids = np.concatenate((own, np.tile(common, (n, 1))), axis=1)
    ids[-1] = ids[7]
    indptr = np.arange(0, ids.size + 1, 7)
    joined = near_copies(
        indptr, ids.ravel(), ids.ravel(), np.zeros((n, 0), np.float32), np.zeros(n, np.int64), 0.8, 0.9
    )
    assert joined[-1] == 7
    assert joined[:-1].tolist() == list(range(n - 1))


def test_bad_arguments():
    good = arrays([[1, 2], [1, 2]])
    for place, bad, message in (
        (0, np.array([0, 2, 4], np.int32), "indptr has dtype int32"),
        (1, np.array([0, 1, 0, 1], np.int64), "ids has dtype int64"),
        (2, np.array([0, 1], np.uint32), "order has length 2"),
        (3, np.zeros((3, 2), np.float32), "vectors has length 3"),
        (4, np.zeros(1, np.int64), "has_vector has length 1"),
        (1, np.array([0, 1, 0, 9], np.uint32), "the largest of ids is 9"),
    ):
        given = [*good]
        given[place] = bad
        with pytest.raises((TypeError, ValueError), match=message):
            near_copies(*given, 0.8, 0.9)
    for thresholds, message in (((0.0, 0.5), "min_jaccard is 0.0"), ((0.5, 1.5), "min_cosine is 1.5")):
        with pytest.raises(ValueError, match=message):
            near_copies(*good, *thresholds)
    with pytest.raises(ValueError, match="min_jaccard is nan"):
        near_copies(*good, float("nan"), 0.5)
