import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels import late_interaction
from tests.conftest import token_columns
from tests.oracles import late_interaction as oracle


def make_table(size: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    table = np.random.default_rng(seed).integers(-127, 128, (size, d)).astype(np.int8)
    if size > 3:
        table[3] = 0  # a token without a vector
    return table, inverse(table)


def inverse(table: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(table.astype(np.float64), axis=1)
    return np.where(norms > 0, 1 / np.where(norms > 0, norms, 1), 0).astype(np.float32)


def unit_queries(q: int, d: int, seed: int = 1) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((q, d))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_spelled_out(columns):
    table = np.array([[100, 0], [0, 50], [-3, -4]], np.int8)
    query = np.array([[1.0, 0.0], [0.6, 0.8]], np.float32)
    indptr, rows = columns([[0, 1], [2], [], [1, 1]])
    got = late_interaction.max_sim(
        query, np.array([2.0, 3.0]), table, inverse(table), indptr, rows, np.arange(4, dtype=np.int64)
    )
    assert got.tolist() == pytest.approx([2.0 * 1.0 + 3.0 * max(0.6, 0.8), 0.0, 0.0, 2.0 * 0.0 + 3.0 * 0.8], abs=1e-6)


@pytest.mark.parametrize("d", [1, 3, 16, 33, 256])
@pytest.mark.parametrize("q", [0, 1, 5])
def test_agrees_with_the_oracle(d, q, columns, read_only):
    rng = np.random.default_rng(d + q)
    table, inverse_norms = make_table(50, d)
    texts = [rng.integers(0, 50, size).tolist() for size in rng.integers(0, 12, 40)]
    query, weights = unit_queries(q, d), rng.random(q)
    wanted = rng.integers(0, 40, 60)
    indptr, rows = columns(texts, spare=4)
    arguments = [query, weights, table, inverse_norms, indptr, rows, wanted]
    got = late_interaction.max_sim(*map(read_only, arguments))
    expected = [
        oracle.max_sim(query.tolist(), weights.tolist(), table.tolist(), inverse_norms.tolist(), texts[text])
        for text in wanted
    ]
    assert got.tolist() == pytest.approx(expected, abs=3e-5)
    assert got.tobytes() == late_interaction.max_sim(*arguments).tobytes()


def test_equal_texts_score_the_same_whatever_stands_beside_them(columns):
    table, inverse_norms = make_table(300, 64)
    rng = np.random.default_rng(5)
    texts = [rng.integers(0, 300, 9).tolist() for _ in range(100)]
    texts[50] = texts[0][::-1]
    indptr, rows = columns(texts)
    query, weights = unit_queries(4, 64), rng.random(4)
    everything = late_interaction.max_sim(
        query, weights, table, inverse_norms, indptr, rows, np.arange(100, dtype=np.int64)
    )
    alone = late_interaction.max_sim(query, weights, table, inverse_norms, indptr, rows, np.array([50, 7]))
    assert everything[0] == everything[50] == alone[0]
    assert everything[7] == alone[1]


def test_no_candidates_and_no_tokens(columns):
    table, inverse_norms = make_table(5, 8)
    query, weights = unit_queries(2, 8), np.ones(2)
    indptr, rows = columns([[], []])
    none = late_interaction.max_sim(query, weights, table, inverse_norms, indptr, rows, np.empty(0, np.int64))
    assert none.shape == (0,)
    assert late_interaction.max_sim(query, weights, table, inverse_norms, indptr, rows, np.array([1, 0])).tolist() == [
        0.0,
        0.0,
    ]


@given(texts=st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=10), data=st.data())
def test_token_frequencies_agree_with_the_oracle(texts, data):
    live = data.draw(st.lists(st.integers(0, 1), min_size=len(texts), max_size=len(texts)))
    query = data.draw(st.sets(st.integers(0, 12), max_size=8).map(sorted))
    indptr, rows = token_columns(texts, spare=2)
    got = late_interaction.token_frequencies(
        np.array(query, np.uint32), indptr, rows, len(texts), np.array([*live, 1, 1], np.uint8)
    )
    assert got.tolist() == [oracle.token_frequency(token, texts, live) for token in query]


def test_a_text_counts_once_however_often_it_holds_the_token(columns, read_only):
    indptr, rows = columns([[7, 7, 7], [7, 1], [1]])
    got = late_interaction.token_frequencies(
        read_only(np.array([1, 7], np.uint32)), read_only(indptr), read_only(rows), 3, np.ones(3, np.uint8)
    )
    assert got.tolist() == [2, 2]


def test_bad_arguments(columns):
    table, inverse_norms = make_table(5, 8)
    query, weights = unit_queries(2, 8), np.ones(2)
    indptr, rows = columns([[0], [1, 5]], spare=1)

    def call(wanted, query=query, weights=weights):
        return late_interaction.max_sim(query, weights, table, inverse_norms, indptr, rows, np.array(wanted))

    assert call([0]).shape == (1,)
    with pytest.raises(ValueError, match=r"table_rows\[2\] is 5, allowed is 0 to 4"):
        call([0, 1])
    for text in (-1, 2, 3):
        with pytest.raises(ValueError, match=rf"rows\[1\] is {text}, allowed is"):
            call([0, text])
    with pytest.raises(ValueError, match="query_vectors has dimension 9, allowed is 8"):
        call([0], query=unit_queries(2, 9))
    with pytest.raises(ValueError, match="query_weights has length 3, allowed is 2"):
        call([0], weights=np.ones(3))
    with pytest.raises(ValueError, match=r"query_rows\[1\] is 1 after 1, allowed are ascending"):
        late_interaction.token_frequencies(np.array([1, 1], np.uint32), indptr, rows, 2, np.ones(2, np.uint8))
    with pytest.raises(ValueError, match="live has length 1, allowed is at least 2"):
        late_interaction.token_frequencies(np.array([1], np.uint32), indptr, rows, 2, np.ones(1, np.uint8))
