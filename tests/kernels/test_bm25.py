import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels import bm25, bm25_top_k, postings
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
        built = postings.build_postings(self.indptr, self.ids, self.freqs, self.lengths, n_base, vocabulary_size)
        self.postings = postings.Postings(*map(freeze, built))
        self.average = sum(map(int, self.lengths[:n])) / n if n else 0.0

    def df(self, query, **options):
        return postings.document_frequencies(
            np.array(query, np.uint32), self.postings, self.n_base, self.indptr, self.ids, self.n, self.live, **options
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

    def top_k(self, query, weights, k, average=None, **parameters):
        return bm25_top_k.bm25_top_k(
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
            k,
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
    assert corpus.postings.shapes.tolist() == [1 * 256 + 3, 0 * 256 + 3, 1024 - 1 + 7]  # of lengths 3, 3 and 7
    assert [part.dtype for part in corpus.postings] == [np.int64, np.uint32, np.uint16]


@pytest.mark.parametrize("freq", [1, 2, 4, 5, 64_511, 64_512, 64_513, 65_535])
@pytest.mark.parametrize("length", [4, 254, 255, 256, 257, 70_000])
def test_every_shape_scores_as_its_frequency_and_length(freq, length):
    """However long a row is and however often it holds a term: by postings, by the row and by the formula."""
    corpus = Corpus([{0: freq}, {0: freq}], n_base=1)
    corpus.lengths[:] = length
    corpus.postings = postings.build_postings(corpus.indptr, corpus.ids, corpus.freqs, corpus.lengths, 1, 1)
    scores = corpus.scores([0], [1.5], average=300.0)
    counted = {0: min(freq, 64_512)}
    assert scores.tolist() == pytest.approx(
        [oracle.score([0], [1.5], counted, length, 300.0, 1.2, 0.75)] * 2, rel=1e-12
    )
    assert scores[0] == scores[1]
    assert corpus.of_rows([0], [0], [1.5], average=300.0)[0] == scores[0]
    rows, best = corpus.top_k([0], [1.5], 2, average=300.0)
    assert (rows.tolist(), best.tolist()) == ([0, 1], scores.tolist())


def freq_of(shape):
    return shape // 256 + 1 if shape < 1024 else shape - 1023


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
        pairs = list(zip(corpus.postings.rows.tolist(), map(freq_of, corpus.postings.shapes.tolist()), strict=True))
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
    rows, scores = corpus.top_k([0], [1.0], 3)
    assert (rows.tolist(), scores.tobytes()) == best_of_all(corpus, [0], [1.0], 3)


def test_read_only_columns_with_spare_capacity(read_only):
    rows = [{0: 1, 3: 2}, {3: 1}, {1: 1}]
    frozen = Corpus(rows, n_base=2, spare=6, freeze=read_only)
    plain = Corpus(rows, n_base=2)
    assert frozen.scores([1, 3], [1.0, 2.0]).tobytes() == plain.scores([1, 3], [1.0, 2.0]).tobytes()
    assert frozen.top_k([1, 3], [1.0, 2.0], 2)[0].tolist() == plain.top_k([1, 3], [1.0, 2.0], 2)[0].tolist()
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
        postings.build_postings(corpus.indptr, corpus.ids, corpus.freqs, corpus.lengths, 2, 1)
    with pytest.raises(ValueError, match="indptr has length 5, allowed is at least n \\+ 1 = 10"):
        postings.build_postings(corpus.indptr, corpus.ids, corpus.freqs, corpus.lengths, 9, 5)
    with pytest.raises(ValueError, match=r"freqs\[1\] is 0, allowed is at least 1"):
        postings.build_postings(corpus.indptr, corpus.ids, np.array([1, 0], np.uint16), corpus.lengths, 2, 2)
    with pytest.raises(ValueError, match="lengths has length 1, allowed is at least 2"):
        postings.build_postings(corpus.indptr, corpus.ids, corpus.freqs, corpus.lengths[:1].copy(), 2, 2)
    corpus.n_base = 3
    with pytest.raises(ValueError, match="n_base is 3, allowed is 0 to n = 2"):
        corpus.df([0])


def test_the_best_spelled_out():
    corpus = Corpus([{0: 1}, {1: 1}, {0: 3, 1: 1}, {0: 1}, {2: 1}], n_base=4)
    rows, scores = corpus.top_k([0, 1], [1.0, 2.0], 4)
    everything = corpus.scores([0, 1], [1.0, 2.0])
    assert rows.tolist() == [2, 1, 0, 3]  # 0 and 3 are equal: the lower row first; 4 shares nothing
    assert scores.tobytes() == everything[rows].tobytes()
    assert [part.dtype for part in (rows, scores)] == [np.int64, np.float64]
    assert corpus.top_k([0, 1], [1.0, 2.0], 0)[0].tolist() == corpus.top_k([], [], 3)[0].tolist() == []
    assert corpus.top_k([0], [0.0], 3)[0].tolist() == []  # a score of 0 is no match
    assert Corpus([]).top_k([1], [1.0], 5)[0].shape == (0,)


def best_of_all(corpus, query, weights, k, **parameters):
    """The k best rows by the scores of all: what `bm25_top_k` must give without computing those."""
    scores = corpus.scores(query, weights, **parameters)
    rows = sorted(np.flatnonzero(scores > 0).tolist(), key=lambda row: (-scores[row], row))[:k]
    return rows, scores[rows].tobytes()


@given(rows=rows_strategy, data=st.data())
def test_the_best_are_those_of_all_scores(rows, data):
    live = data.draw(st.lists(st.integers(0, 1), min_size=len(rows), max_size=len(rows)))
    query = data.draw(st.sets(st.integers(0, 12), max_size=6).map(sorted))
    weights = data.draw(st.lists(st.floats(0.0, 16.0), min_size=len(query), max_size=len(query)))
    k = data.draw(st.integers(0, 14))
    corpus = Corpus(rows, data.draw(st.integers(0, len(rows))), live=live, spare=data.draw(st.sampled_from([0, 3])))
    got_rows, got_scores = corpus.top_k(query, weights, k)
    assert (got_rows.tolist(), got_scores.tobytes()) == best_of_all(corpus, query, weights, k)


@pytest.mark.parametrize("seed", range(12))
def test_the_best_of_many_rows_are_those_of_all_scores(seed):
    """Over several blocks, with tokens that nearly every row holds (and which are then left out) and tokens that few
    hold, many equal rows, rows that do not count, long rows, and a tail without postings."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3_000, 12_000))
    vocabulary = int(rng.choice([8, 60, 3_000]))
    share = np.minimum(1.0, rng.choice([0.4, 1.0, 3.0]) / np.arange(1, vocabulary + 1) ** rng.choice([0.6, 1.0]))
    share[: rng.integers(0, 3)] = 1.0
    tokens = np.flatnonzero(share > 0)
    rows = []
    for _ in range(n):
        held = tokens[rng.random(vocabulary) < share]
        rows.append(dict.fromkeys(held.tolist(), 1) | ({int(held[0]): int(rng.integers(1, 9))} if len(held) else {}))
    live = (rng.random(n) < rng.choice([0.02, 0.7, 1.0])).astype(int).tolist()
    corpus = Corpus(rows, n_base=int(n * rng.choice([0.5, 0.9, 1.0])), live=live, vocabulary_size=vocabulary)
    if seed % 3 == 0:
        corpus.lengths[:] += rng.integers(0, 600, n).astype(np.uint32)
        corpus.postings = postings.build_postings(
            corpus.indptr, corpus.ids, corpus.freqs, corpus.lengths, corpus.n_base, vocabulary
        )
    for size in (1, 3, 8, 30):
        query = np.unique(np.minimum(rng.zipf(1.3, size) - 1, vocabulary + 2)).tolist()
        weights = bm25.idf(corpus.df(query), n)
        for k in (1, 10, 50, n):
            for parameters in ({}, {"k1": 0.9, "b": 0.4}, {"k1": 0.0}):
                rows, scores = corpus.top_k(query, weights, k, **parameters)
                assert (rows.tolist(), scores.tobytes()) == best_of_all(corpus, query, weights, k, **parameters)


def test_lists_are_counted_without_reading_where_all_their_rows_are_live():
    corpus = Corpus([{0: 1, 2: 1}, {2: 7}, {0: 1}, {0: 2, 9: 1}], n_base=2, live=[1, 1, 0, 1])
    assert corpus.df([0, 2, 9]).tolist() == corpus.df([0, 2, 9], base_is_live=True).tolist() == [2, 2, 1]


def test_bad_arguments_of_the_best():
    corpus = Corpus([{0: 1}, {1: 1}], n_base=1, spare=2)
    with pytest.raises(ValueError, match=r"query_ids\[1\] is 0 after 1, allowed are ascending unique ids"):
        corpus.top_k([1, 0], [1.0, 1.0], 1)
    with pytest.raises(ValueError, match="weights has length 1, allowed is 2"):
        corpus.top_k([0, 1], [1.0], 1)
    for weight in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"weights\[1\] is {weight}, allowed are finite numbers of at least 0"):
            corpus.top_k([0, 1], [1.0, weight], 1)
    with pytest.raises(ValueError, match="k is -1"):
        corpus.top_k([0], [1.0], -1)
    with pytest.raises(ValueError, match=r"k1 is -1\.0"):
        corpus.top_k([0], [1.0], 1, k1=-1)
    for name, array, error, message in (
        ("live", np.ones(4, np.bool_), TypeError, "eligible has dtype bool"),
        ("live", np.ones(1, np.uint8), ValueError, "eligible has length 1, allowed is at least 2"),
        ("lengths", np.ones(1, np.uint32), ValueError, "lengths has length 1, allowed is at least 2"),
        ("freqs", np.ones(1, np.uint16), ValueError, "freqs has length 1, allowed is at least 2"),
        ("ids", np.zeros(1, np.uint32), ValueError, "indptr spans 0 to 2, allowed is 0 to 1, the length of ids"),
        ("indptr", np.zeros(2, np.int64), ValueError, r"indptr has length 2, allowed is at least n \+ 1 = 3"),
        ("indptr", np.zeros(6, np.int64)[::2], ValueError, "indptr is not contiguous"),
        ("ids", [0, 1], TypeError, "ids is list"),
    ):
        whole = getattr(corpus, name)
        setattr(corpus, name, array)
        with pytest.raises(error, match=message):
            corpus.top_k([0], [1.0], 1)
        if name == "live" and error is ValueError:
            with pytest.raises(ValueError, match="live has length 1, allowed is at least 2"):
                corpus.df([0])
        setattr(corpus, name, whole)
    shorter = corpus.postings._replace(shapes=corpus.postings.shapes[:0].copy())
    corpus.postings = shorter
    with pytest.raises(ValueError, match=r"postings\.shapes has length 0, allowed is 1"):
        corpus.top_k([0], [1.0], 1)
    corpus.n_base = 3
    with pytest.raises(ValueError, match="n_base is 3, allowed is 0 to n = 2"):
        corpus.top_k([0], [1.0], 1)
