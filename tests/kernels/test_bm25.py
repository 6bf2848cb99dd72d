import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels import bm25
from tests.oracles import bm25 as oracle

PARAMETERS = {"k1": 1.2, "b": 0.75}


class Corpus:
    """Rows of {token: frequency} as the kernels' columns, with `spare` rows of capacity filled with garbage."""

    def __init__(self, rows, n_base=0, vocabulary_size=None, live=None, spare=0, freeze=lambda array: array):
        self.rows = [dict(sorted(row.items())) for row in rows]
        n = len(rows)
        self.n, self.n_base = n, n_base
        indptr = np.zeros(n + 1 + spare, np.int64)
        indptr[1 : n + 1] = np.cumsum([len(row) for row in rows])
        indptr[n + 1 :] = 2**62
        tokens = [token for row in self.rows for token in row]
        counts = [count for row in self.rows for count in row.values()]
        self.indptr = freeze(indptr)
        self.ids = freeze(np.array(tokens + [4_000_000_000] * spare, np.uint32))
        self.freqs = freeze(np.array(counts + [65535] * spare, np.uint16))
        self.lengths = freeze(np.array([sum(row.values()) for row in self.rows] + [4_000_000_000] * spare, np.uint32))
        self.live_list = [1] * n if live is None else live
        self.live = freeze(np.array(self.live_list + [1] * spare, np.uint8))
        if vocabulary_size is None:
            vocabulary_size = max([token for row in self.rows[:n_base] for token in row], default=-1) + 1
        built = bm25.build_postings(self.indptr, self.ids, self.freqs, n_base, vocabulary_size)
        self.postings = bm25.Postings(*map(freeze, built))
        self.average = sum(map(int, self.lengths[:n])) / n if n else 0.0

    def df(self, query):
        return bm25.document_frequencies(
            np.array(query, np.uint32), self.postings, self.n_base, self.indptr, self.ids, self.n, self.live
        )

    def scores(self, query, weights, average=None, **parameters):
        return bm25.bm25_scores(
            np.array(query, np.uint32),
            np.array(weights, np.float64),
            self.postings,
            self.n_base,
            self.indptr,
            self.ids,
            self.freqs,
            self.lengths,
            self.n,
            self.live,
            self.average if average is None else average,
            **(PARAMETERS | parameters),
        )

    def of_rows(self, rows, query, weights, average=None, **parameters):
        return bm25.bm25_rows(
            np.array(rows, np.int64),
            np.array(query, np.uint32),
            np.array(weights, np.float64),
            self.indptr,
            self.ids,
            self.freqs,
            self.lengths,
            self.average if average is None else average,
            **(PARAMETERS | parameters),
        )

    def expected(self, query, weights, **parameters):
        p = PARAMETERS | parameters
        return [
            oracle.score(query, weights, row, sum(row.values()), self.average, p["k1"], p["b"]) if live else 0.0
            for row, live in zip(self.rows, self.live_list, strict=True)
        ]


def test_idf_spelled_out():
    got = bm25.idf(np.array([0, 1, 10], np.int64), 10)
    assert got.tolist() == pytest.approx(
        [math.log(1 + 10.5 / 0.5), math.log(1 + 9.5 / 1.5), math.log(1 + 0.5 / 10.5)], rel=1e-14
    )
    assert (got > 0).all()


@given(n_docs=st.integers(0, 10**7), data=st.data())
def test_idf_agrees_with_the_oracle(n_docs, data):
    df = data.draw(st.lists(st.integers(0, n_docs), max_size=10))
    got = bm25.idf(np.array(df, np.int64), n_docs)
    assert got.tolist() == pytest.approx([oracle.idf(value, n_docs) for value in df], rel=1e-8)


@pytest.mark.parametrize("n_base", [0, 1, 2])
def test_score_spelled_out(n_base):
    corpus = Corpus([{0: 2, 1: 1}, {1: 1}], n_base)
    k1, b, average = 1.2, 0.75, 2.0
    expected = [
        1.5 * 2 * (k1 + 1) / (2 + k1 * (1 - b + b * 3 / average))
        + 0.5 * 1 * (k1 + 1) / (1 + k1 * (1 - b + b * 3 / average)),
        0.5 * 1 * (k1 + 1) / (1 + k1 * (1 - b + b * 1 / average)),
    ]
    assert corpus.scores([0, 1], [1.5, 0.5]).tolist() == pytest.approx(expected, rel=1e-14)


def test_postings_spelled_out():
    corpus = Corpus([{0: 2, 2: 1}, {}, {2: 7}, {0: 1}], n_base=3)
    assert corpus.postings.indptr.tolist() == [0, 1, 1, 3]
    assert corpus.postings.rows.tolist() == [0, 0, 2]
    assert corpus.postings.freqs.tolist() == [2, 1, 7]
    assert [part.dtype for part in corpus.postings] == [np.int64, np.uint32, np.uint16]


rows_strategy = st.lists(st.dictionaries(st.integers(0, 9), st.integers(1, 5), max_size=6), max_size=12)


@given(rows=rows_strategy, data=st.data())
def test_agrees_with_the_oracle_however_the_rows_are_split(rows, data):
    live = data.draw(st.lists(st.integers(0, 1), min_size=len(rows), max_size=len(rows)))
    query = data.draw(st.sets(st.integers(0, 12), max_size=6).map(sorted))
    weights = [0.5 + 0.25 * t for t in range(len(query))]
    results = set()
    for n_base in {0, len(rows) // 2, len(rows)}:
        corpus = Corpus(rows, n_base, live=live, spare=data.draw(st.sampled_from([0, 3])))
        vocabulary = len(corpus.postings.indptr) - 1
        pairs = list(zip(corpus.postings.rows.tolist(), corpus.postings.freqs.tolist(), strict=True))
        pointers = corpus.postings.indptr.tolist()
        assert [pairs[pointers[t] : pointers[t + 1]] for t in range(vocabulary)] == oracle.postings(
            corpus.rows[:n_base], vocabulary
        )
        assert corpus.df(query).tolist() == [oracle.document_frequency(t, corpus.rows, live) for t in query]
        got = corpus.scores(query, weights)
        assert got.tolist() == pytest.approx(corpus.expected(query, weights), rel=1e-12)
        results.add(got.tobytes())
        alive = [row for row in range(len(rows)) if live[row]]
        assert corpus.of_rows(alive, query, weights).tobytes() == got[alive].tobytes()
    assert len(results) == 1  # the split never shows, not even in the last bit


@given(order=st.permutations(range(8)), weights=st.lists(st.floats(0.01, 16.0), min_size=8, max_size=8))
def test_the_numbers_that_terms_have_change_no_bit(order, weights):
    """Two namespaces number the same terms differently, and so does one that is opened again."""
    rows = [{0: 1, 1: 2, 2: 1, 3: 1}, {1: 1, 4: 3, 5: 1}, {t: 1 + t % 3 for t in range(8)}]
    numbered = [{order[t]: freq for t, freq in row.items()} for row in rows]
    there = [weights[order.index(t)] for t in range(8)]
    for n_base in (0, 3):
        plain, other = Corpus(rows, n_base), Corpus(numbered, n_base)
        assert plain.scores(range(8), weights).tobytes() == other.scores(range(8), there).tobytes()


def test_a_term_in_every_row_still_counts():
    corpus = Corpus([{0: 1}, {0: 3}])
    weights = bm25.idf(corpus.df([0]), 2)
    assert (corpus.scores([0], weights) > 0.0).all()


def test_no_rows_no_query_and_empty_rows():
    assert Corpus([]).scores([1], [1.0]).shape == (0,)
    assert Corpus([]).df([1, 5]).tolist() == [0, 0]
    assert Corpus([{1: 1}]).scores([], []).tolist() == [0.0]
    assert Corpus([{1: 1}]).df([]).shape == (0,)
    empty = Corpus([{}, {}], n_base=1)
    assert empty.average == 0.0
    assert empty.scores([0, 3], [1.0, 1.0]).tolist() == [0.0, 0.0]
    assert empty.of_rows([], [0], [1.0]).shape == (0,)


def test_average_length_zero_leaves_length_out():
    corpus = Corpus([{0: 1}, {0: 1, 1: 9}])
    got = corpus.scores([0], [1.0], average=0.0)
    assert got.tolist() == pytest.approx([2.2 / (1 + 1.2)] * 2)
    assert corpus.of_rows([0, 1], [0], [1.0], average=0.0).tobytes() == got.tobytes()


@pytest.mark.parametrize("parameters", [{"k1": 0.0}, {"b": 0.0}, {"b": 1.0}, {"k1": 2.5, "b": 0.4}])
def test_parameters(parameters):
    corpus = Corpus([{0: 2, 1: 1}, {1: 4}, {2: 1}], n_base=2)
    expected = corpus.expected([0, 1], [1.0, 2.0], **parameters)
    assert corpus.scores([0, 1], [1.0, 2.0], **parameters).tolist() == pytest.approx(expected)


def test_query_ids_beyond_the_base_vocabulary():
    corpus = Corpus([{0: 1}, {4_294_967_295: 1}], n_base=1)
    assert corpus.df([0, 7, 4_294_967_295]).tolist() == [1, 0, 1]
    assert (corpus.scores([4_294_967_295], [1.0]) > 0).tolist() == [False, True]


def test_postings_that_cover_more_than_the_base_are_cut():
    """A reader may hold postings of a later state than its row count."""
    corpus = Corpus([{0: 1}, {0: 1}, {0: 2}], n_base=3)
    corpus.n_base = 1
    assert corpus.df([0]).tolist() == [3]
    assert corpus.scores([0], [1.0]).tolist() == pytest.approx(corpus.expected([0], [1.0]))


def test_read_only_columns_with_spare_capacity(read_only):
    rows = [{0: 1, 3: 2}, {3: 1}, {1: 1}]
    frozen = Corpus(rows, n_base=2, spare=6, freeze=read_only)
    plain = Corpus(rows, n_base=2)
    assert frozen.scores([1, 3], [1.0, 2.0]).tobytes() == plain.scores([1, 3], [1.0, 2.0]).tobytes()
    assert frozen.df([1, 3]).tolist() == plain.df([1, 3]).tolist() == [1, 2]
    assert frozen.of_rows([2, 0], [1, 3], [1.0, 2.0]).tobytes() == plain.of_rows([2, 0], [1, 3], [1.0, 2.0]).tobytes()


def test_bad_arguments():
    corpus = Corpus([{0: 1}, {1: 1}], n_base=1, spare=2)
    with pytest.raises(ValueError, match=r"query_ids\[1\] is 0 after 1, allowed are ascending unique ids"):
        corpus.scores([1, 0], [1.0, 1.0])
    with pytest.raises(ValueError, match="allowed are ascending unique ids"):
        corpus.df([1, 1])
    with pytest.raises(ValueError, match="allowed are ascending unique ids"):
        corpus.of_rows([0], [1, 1], [1.0, 1.0])
    with pytest.raises(ValueError, match="weights has length 1, allowed is 2"):
        corpus.scores([0, 1], [1.0])
    for row in (-1, 2, 3, 4):
        with pytest.raises(ValueError, match=rf"rows\[1\] is {row}, allowed is 0 to"):
            corpus.of_rows([0, row], [0, 1], [1.0, 1.0])
    with pytest.raises(ValueError, match=r"k1 is -1\.0"):
        corpus.scores([0], [1.0], k1=-1)
    with pytest.raises(ValueError, match=r"b is 2\.0, allowed is 0 to 1"):
        corpus.scores([0], [1.0], b=2)
    with pytest.raises(ValueError, match="average_length is nan"):
        corpus.scores([0], [1.0], average=math.nan)
    with pytest.raises(ValueError, match=r"df\[1\] is 4, allowed is 0 to n_docs = 3"):
        bm25.idf(np.array([1, 4]), 3)
    with pytest.raises(ValueError, match=r"df\[0\] is -1"):
        bm25.idf(np.array([-1]), 3)
    with pytest.raises(ValueError, match=r"ids\[1\] is 1, allowed is below vocabulary_size = 1"):
        bm25.build_postings(corpus.indptr, corpus.ids, corpus.freqs, 2, 1)
    with pytest.raises(ValueError, match="indptr has length 5, allowed is at least n \\+ 1 = 10"):
        bm25.build_postings(corpus.indptr, corpus.ids, corpus.freqs, 9, 5)
    corpus.n_base = 3
    with pytest.raises(ValueError, match="n_base is 3, allowed is 0 to n = 2"):
        corpus.df([0])


def test_scores_go_where_the_caller_says() -> None:
    corpus = Corpus([{1: 2}, {2: 1}, {1: 1, 2: 1}], n_base=2)
    arguments = (corpus.postings, 2, corpus.indptr, corpus.ids, corpus.freqs, corpus.lengths, 3, corpus.live)
    query = (np.array([1], np.uint32), np.array([2.0]))
    room = np.full(5, 7.0)
    scores = bm25.bm25_scores(*query, *arguments, corpus.average, **PARAMETERS, out=room)
    assert np.shares_memory(scores, room)
    assert scores.tobytes() == bm25.bm25_scores(*query, *arguments, corpus.average, **PARAMETERS).tobytes()
    assert room[3:].tolist() == [7.0, 7.0]
    with pytest.raises(ValueError, match="out has length 2"):
        bm25.bm25_scores(*query, *arguments, corpus.average, **PARAMETERS, out=room[:2])
