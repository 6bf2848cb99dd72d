"""Kernels hold no state: eight threads at once get what one thread gets, to the bit, on every run."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from jiyi.kernels import bm25, decay, fusion, jaccard, late_interaction, mmr, normalize, pooling, postings, topk
from jiyi.kernels.bm25_top_k import bm25_top_k

THREADS = 8
RNG = np.random.default_rng(0)
N, D, SIZE = 300, 48, 200
SCORES = RNG.random(N)
VECTORS = RNG.standard_normal((N, D)).astype(np.float32)
ALL = np.ones(N, np.uint8)
TOKENS = [np.unique(RNG.integers(0, SIZE, 12)) for _ in range(N)]
INDPTR = np.concatenate([[0], np.cumsum([len(row) for row in TOKENS])]).astype(np.int64)
IDS = np.concatenate(TOKENS).astype(np.uint32)
FREQS = RNG.integers(1, 4, len(IDS)).astype(np.uint16)
LENGTHS = np.full(N, 20, np.uint32)
QUERY = np.array([3, 50, 120], np.uint32)
WEIGHTS = RNG.random(3)
TABLE = RNG.integers(-127, 128, (SIZE, D)).astype(np.int8)
SCALES = RNG.random(SIZE).astype(np.float32)
RANKED = [RNG.permutation(N).astype(np.int64) for _ in range(3)]
ROWS = np.arange(N, dtype=np.int64)
POSTINGS = postings.build_postings(INDPTR, IDS, FREQS, LENGTHS, 200, SIZE)
BM25 = (INDPTR, IDS, FREQS, LENGTHS)

CALLS = {
    "top_k": lambda: topk.top_k(SCORES, ALL, 20),
    "dense_top_k": lambda: topk.dense_top_k(VECTORS, VECTORS[7], ALL, 20),
    "dense_rows": lambda: (topk.dense_rows(VECTORS, ROWS, VECTORS[7]),),
    "unit_rows": lambda: topk.unit_rows(VECTORS),
    "minmax": lambda: (normalize.minmax(SCORES),),
    "zscore": lambda: (normalize.zscore(SCORES),),
    "rank_scores": lambda: (normalize.rank_scores(SCORES),),
    "exponential": lambda: (decay.exponential(SCORES, 0.3),),
    "rrf": lambda: fusion.rrf(RANKED),
    "weighted_sum": lambda: (fusion.weighted_sum(np.stack([SCORES, SCORES]), np.array([0.3, 0.7])),),
    "build_postings": lambda: postings.build_postings(INDPTR, IDS, FREQS, LENGTHS, 200, SIZE),
    "df": lambda: (postings.document_frequencies(QUERY, POSTINGS, 200, INDPTR, IDS, N, ALL),),
    "bm25_scores": lambda: (bm25.bm25_scores(QUERY, WEIGHTS, POSTINGS, 200, *BM25, N, ALL, 20.0, k1=1.2, b=0.75),),
    "bm25_top_k": lambda: bm25_top_k(QUERY, WEIGHTS, POSTINGS, 200, *BM25, N, ALL, 20.0, 20, k1=1.2, b=0.75),
    "bm25_rows": lambda: (bm25.bm25_rows(ROWS, QUERY, WEIGHTS, *BM25, 20.0, k1=1.2, b=0.75),),
    "jaccard_matrix": lambda: (jaccard.jaccard_matrix(INDPTR, IDS),),
    "mmr_jaccard": lambda: mmr.mmr_jaccard(SCORES, INDPTR, IDS, 20, 0.7),
    "mmr_cosine": lambda: mmr.mmr_cosine(SCORES, VECTORS, 20, 0.7),
    "max_sim": lambda: (late_interaction.max_sim(VECTORS[:4], np.ones(4), TABLE, SCALES, INDPTR, IDS, ROWS),),
    "token_frequencies": lambda: (late_interaction.token_frequencies(QUERY, INDPTR, IDS, N, ALL),),
    "mean_rows": lambda: (pooling.mean_rows(TABLE, SCALES, INDPTR, IDS, SCALES),),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_threads_agree(name):
    call = CALLS[name]
    start = Barrier(THREADS)

    def work(_: int) -> list[tuple[bytes, ...]]:
        start.wait()
        return [tuple(part.tobytes() for part in call()) for _ in range(5)]

    expected = tuple(part.tobytes() for part in call())
    with ThreadPoolExecutor(THREADS) as pool:
        for results in pool.map(work, range(THREADS)):
            assert results == [expected] * 5


def test_the_first_call_may_come_from_many_threads_at_once():
    from jiyi.kernels import _jit

    @_jit.jit((_jit.reads(_jit.float64),))
    def total(x):
        result = 0.0
        for value in x:
            result += value
        return result

    _jit._declared.pop()
    start = Barrier(THREADS)

    def work(_: int) -> float:
        start.wait()
        return total(SCORES)

    with ThreadPoolExecutor(THREADS) as pool:
        assert len(set(pool.map(work, range(THREADS)))) == 1
    assert len(total.signatures) == 1
