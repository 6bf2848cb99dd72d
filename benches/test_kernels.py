"""Every kernel beside a plain Python or NumPy baseline, on the same data in the same run.

    OMP_NUM_THREADS=1 pytest benches/test_kernels.py

The last table gives, for each kernel and size, the median times and how many times faster the kernel is. Both sides
first have to agree on the answer; no time is ever asserted. Each call includes the wrapper and its checks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from jiyi.kernels import (
    bm25,
    decay,
    fusion,
    jaccard,
    late_interaction,
    lending,
    mmr,
    near_copies,
    normalize,
    pooling,
    quantized,
    topk,
)
from jiyi.kernels.bm25_top_k import bm25_top_k
from jiyi.kernels.postings import build_postings, document_frequencies

CANDIDATES = [20, 100, 1_000]
SCANS = [1_000, 10_000, 100_000]
D = 256
VOCABULARY = 30_000


class Case(NamedTuple):
    kernel: Callable[[], Any]
    baseline: Callable[[], Any]
    baseline_name: str
    agree: Callable[[Any, Any], bool] = lambda got, expected: np.allclose(got, expected, atol=1e-5)


class Texts:
    """n texts of 5 to 39 tokens, their frequencies as skewed as those of words."""

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng(n)
        self.n = n
        self.rows = [
            np.unique(np.minimum(rng.zipf(1.3, size), VOCABULARY) - 1).astype(np.uint32)
            for size in rng.integers(5, 40, n)
        ]
        self.indptr = np.concatenate([[0], np.cumsum([len(row) for row in self.rows])]).astype(np.int64)
        self.ids = np.concatenate(self.rows)
        self.freqs = rng.integers(1, 4, len(self.ids)).astype(np.uint16)
        self.lengths = np.add.reduceat(self.freqs, self.indptr[:-1], dtype=np.uint32)
        self.sets = [frozenset(row.tolist()) for row in self.rows]
        self.relevance = rng.random(n)
        self.all = np.ones(n, np.uint8)


_texts: dict[int, Texts] = {}


def texts(n: int) -> Texts:
    if n not in _texts:
        _texts[n] = Texts(n)
    return _texts[n]


def vectors(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, D)).astype(np.float32)


def chosen(n: int) -> int:
    return max(5, min(20, n // 5))


# Jaccard and MMR


def python_jaccard(a: frozenset, b: frozenset) -> float:
    shared = len(a & b)
    return shared / (len(a) + len(b) - shared) if a or b else 0.0


def case_jaccard_one_to_many(n: int) -> Case:
    t = texts(n)
    return Case(
        lambda: jaccard.jaccard_one_to_many(t.rows[0], t.indptr, t.ids),
        lambda: [python_jaccard(t.sets[0], other) for other in t.sets],
        "Python sets",
    )


def case_jaccard_matrix(n: int) -> Case:
    t = texts(n)

    def baseline() -> np.ndarray:
        matrix = np.eye(n)
        for i, a in enumerate(t.sets):
            for j in range(i):
                matrix[i, j] = matrix[j, i] = python_jaccard(a, t.sets[j])
        return matrix

    return Case(lambda: jaccard.jaccard_matrix(t.indptr, t.ids), baseline, "Python sets")


def greedy(relevance: np.ndarray, row: Callable[[int], Any], k: int, lambda_: float) -> list[int]:
    """MMR with NumPy over the candidates, one row of similarities for each choice."""
    penalty = np.zeros(len(relevance))
    left = np.ones(len(relevance), bool)
    order = []
    for _ in range(k):
        score = np.where(left, lambda_ * relevance - (1 - lambda_) * penalty, -np.inf)
        best = int(np.argmax(score))
        order.append(best)
        left[best] = False
        penalty = np.maximum(penalty, row(best))
    return order


def same_order(got: mmr.MmrSelection, expected: list[int]) -> bool:
    return got.order.tolist() == expected


def case_mmr_from_matrix(n: int) -> Case:
    t, k = texts(n), chosen(n)
    matrix = jaccard.jaccard_matrix(t.indptr, t.ids)
    return Case(
        lambda: mmr.mmr_from_matrix(t.relevance, matrix, k, 0.7),
        lambda: greedy(t.relevance, lambda best: matrix[best], k, 0.7),
        "NumPy",
        same_order,
    )


def case_mmr_jaccard(n: int) -> Case:
    t, k = texts(n), chosen(n)
    return Case(
        lambda: mmr.mmr_jaccard(t.relevance, t.indptr, t.ids, k, 0.7),
        lambda: greedy(t.relevance, lambda best: [python_jaccard(t.sets[best], b) for b in t.sets], k, 0.7),
        "NumPy + Python sets",
        same_order,
    )


def case_mmr_cosine(n: int) -> Case:
    t, k, v = texts(n), chosen(n), vectors(n)

    def baseline() -> list[int]:
        unit = v.astype(np.float64)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        return greedy(t.relevance, lambda best: unit @ unit[best], k, 0.7)

    return Case(lambda: mmr.mmr_cosine(t.relevance, v, k, 0.7), baseline, "NumPy", same_order)


# Fusion, normalisation, decay


def python_rrf(lists: list[list[int]], k: float = 60.0) -> list[tuple[int, float]]:
    scores: dict[int, float] = {}
    for ids in lists:
        for rank, identifier in enumerate(dict.fromkeys(ids), start=1):
            scores[identifier] = scores.get(identifier, 0.0) + 1.0 / (k + rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def case_rrf(n: int) -> Case:
    rng = np.random.default_rng(n)
    lists = [rng.permutation(2 * n)[:n].astype(np.int64) for _ in range(2)]
    plain = [ids.tolist() for ids in lists]
    return Case(
        lambda: fusion.rrf(lists),
        lambda: python_rrf(plain),
        "Python dict",
        lambda got, expected: list(zip(got[0].tolist(), got[1].tolist(), strict=True)) == expected,
    )


def case_weighted_lists(n: int) -> Case:
    rng = np.random.default_rng(n)
    lists = [rng.permutation(2 * n)[:n].astype(np.int64) for _ in range(3)]
    scores = [np.sort(rng.random(n))[::-1].copy() for _ in lists]
    pairs = [list(zip(ids.tolist(), values.tolist(), strict=True)) for ids, values in zip(lists, scores, strict=True)]

    def baseline() -> list[tuple[int, float]]:
        totals: dict[int, float] = {}
        for ranked in pairs:
            values = [score for _, score in ranked]
            low = min(values)
            span = max(values) - low
            for identifier, score in ranked:
                totals[identifier] = totals.get(identifier, 0.0) + (score - low) / span
        return sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))

    return Case(
        lambda: fusion.weighted_lists(lists, scores),
        baseline,
        "Python dict",
        lambda got, expected: list(zip(got[0].tolist(), got[1].tolist(), strict=True)) == expected,
    )


def case_minmax_weighted_sum(n: int) -> Case:
    raw, weights = np.random.default_rng(n).random((3, n)), np.array([0.5, 0.3, 0.2])

    def baseline() -> np.ndarray:
        low, high = raw.min(axis=1, keepdims=True), raw.max(axis=1, keepdims=True)
        return weights @ ((raw - low) / (high - low))

    return Case(
        lambda: fusion.minmax_weighted_sum(raw, weights),
        baseline,
        "NumPy",
        lambda got, expected: np.allclose(got[1], expected),
    )


def case_rrf_scores(n: int) -> Case:
    ranks = np.random.default_rng(n).integers(0, n, (3, n))
    return Case(
        lambda: fusion.rrf_scores(ranks), lambda: np.where(ranks > 0, 1.0 / (60.0 + ranks), 0.0).sum(axis=0), "NumPy"
    )


def case_weighted_sum(n: int) -> Case:
    scores, weights = np.random.default_rng(n).random((4, n)), np.array([0.35, 0.35, 0.2, 0.1])
    return Case(lambda: fusion.weighted_sum(scores, weights), lambda: (weights[:, None] * scores).sum(axis=0), "NumPy")


def case_minmax(n: int) -> Case:
    x = texts(n).relevance

    def baseline() -> np.ndarray:
        assert np.isfinite(x).all()
        low, high = x.min(), x.max()
        return (x - low) / (high - low)

    return Case(lambda: normalize.minmax(x), baseline, "NumPy")


def case_zscore(n: int) -> Case:
    x = texts(n).relevance

    def baseline() -> np.ndarray:
        assert np.isfinite(x).all()
        return (x - x.mean()) / x.std()

    return Case(lambda: normalize.zscore(x), baseline, "NumPy")


def case_rank_scores(n: int) -> Case:
    x = texts(n).relevance

    def baseline() -> np.ndarray:
        better = n - np.searchsorted(np.sort(x), x, side="right")
        return (n - better) / n

    return Case(lambda: normalize.rank_scores(x), baseline, "NumPy")


def case_exponential(n: int) -> Case:
    age_s = texts(n).relevance * 1e6
    return Case(
        lambda: decay.exponential(age_s, 604_800.0), lambda: np.exp2(-np.maximum(age_s, 0.0) / 604_800.0), "NumPy"
    )


def case_lent_by_previous(n: int) -> Case:
    rng = np.random.default_rng(n)
    rows = np.sort(rng.permutation(4 * n)[:n]).astype(np.int64)
    previous, lengths = np.arange(-1, 4 * n - 1), rng.integers(1, 40, 4 * n).astype(np.uint32)
    relevance = texts(n).relevance

    def baseline() -> list[float]:
        known = dict(zip(rows.tolist(), relevance.tolist(), strict=True))
        lent = []
        for row in rows.tolist():
            before = known.get(row - 1, 0.0)
            lent.append(before * 0.3 * min(1.0, int(lengths[row]) / 20) if before > 0 else np.nan)
        return lent

    return Case(
        lambda: lending.lent_by_previous(rows, relevance, previous, lengths, 0.3, 20),
        baseline,
        "Python dict",
        lambda got, expected: np.allclose(got, expected, equal_nan=True),
    )


def case_near_copies(n: int) -> Case:
    """Texts of which every fourth is said again; the baseline compares all pairs."""
    rng = np.random.default_rng(n)
    sets = [np.unique(rng.integers(0, 5 * n, 20)) for _ in range(n)]
    for i in range(3, n, 4):
        sets[i] = sets[i - 1]
    held = np.bincount(np.concatenate(sets), minlength=5 * n)
    number = np.empty(5 * n, np.int64)
    number[np.lexsort((np.arange(5 * n), np.where(held == 0, n + 1, held)))] = np.arange(5 * n)  # the rarest first
    rows = [np.sort(number[tokens]).astype(np.uint32) for tokens in sets]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    ids = np.concatenate(rows)
    nothing, none = np.empty((n, 0), np.float32), np.zeros(n, np.int64)
    plain = [frozenset(row.tolist()) for row in rows]

    def baseline() -> list[int]:
        leaders = list(range(n))
        for i, a in enumerate(plain):
            best, joined = 0.0, i
            for j in range(i):
                if leaders[j] == j and (alike := python_jaccard(a, plain[j])) >= 0.8 and alike > best:
                    best, joined = alike, j
            leaders[i] = joined
        return leaders

    return Case(
        lambda: near_copies.near_copies(indptr, ids, ids, nothing, none, 0.8, 0.95),
        baseline,
        "Python sets, all pairs",
        lambda got, expected: got.tolist() == expected,
    )


# Scans


def case_bm25_scores(n: int) -> Case:
    t = texts(n)
    postings = build_postings(t.indptr, t.ids, t.freqs, t.lengths, n, VOCABULARY)
    query = np.array([3, 40, 300, 2_500, 29_000], np.uint32)
    df = document_frequencies(query, postings, n, t.indptr, t.ids, n, t.all)
    weights, average = bm25.idf(df, n), float(t.lengths.mean())
    columns = (t.indptr, t.ids, t.freqs, t.lengths)
    freqs = t.freqs[np.argsort(t.ids, kind="stable")]

    def baseline() -> np.ndarray:
        scores = np.zeros(n)
        for token, weight in zip(query.tolist(), weights.tolist(), strict=True):
            span = slice(postings.indptr[token], postings.indptr[token + 1])
            rows, f = postings.rows[span], freqs[span]
            scores[rows] += weight * f * 2.2 / (f + 1.2 * (0.25 + 0.75 * t.lengths[rows] / average))
        return scores

    return Case(
        lambda: bm25.bm25_scores(query, weights, postings, n, *columns, n, t.all, average, k1=1.2, b=0.75),
        baseline,
        "NumPy over postings",
    )


def python_bm25(t: Texts, n: int, query: list[int], average: float) -> Callable[[], list[float]]:
    bounds = t.indptr.tolist()
    freqs, lengths = t.freqs.tolist(), t.lengths.tolist()
    rows = [dict(zip(t.rows[r].tolist(), freqs[bounds[r] : bounds[r + 1]], strict=True)) for r in range(n)]

    def score_all() -> list[float]:
        scores = []
        for row, length in zip(rows, lengths, strict=False):
            norm, score = 1.2 * (0.25 + 0.75 * length / average), 0.0
            for token in query:
                f = row.get(token)
                if f:
                    score += f * 2.2 / (f + norm)
            scores.append(score)
        return scores

    return score_all


def case_bm25_scan(n: int) -> Case:
    """The same without postings: every row is new."""
    t = texts(n)
    nothing = build_postings(t.indptr, t.ids, t.freqs, t.lengths, 0, 0)
    query, weights, average = np.array([3, 40, 300, 2_500, 29_000], np.uint32), np.ones(5), float(t.lengths.mean())
    columns = (t.indptr, t.ids, t.freqs, t.lengths)
    return Case(
        lambda: bm25.bm25_scores(query, weights, nothing, 0, *columns, n, t.all, average, k1=1.2, b=0.75),
        python_bm25(t, n, query.tolist(), average),
        "Python dicts",
    )


def case_bm25_top_k(n: int) -> Case:
    t = texts(n)
    postings = build_postings(t.indptr, t.ids, t.freqs, t.lengths, n, VOCABULARY)
    query = np.array([3, 40, 300, 2_500, 29_000], np.uint32)
    weights, average = bm25.idf(document_frequencies(query, postings, n, t.indptr, t.ids, n, t.all), n), 20.0
    corpus = (query, weights, postings, n, t.indptr, t.ids, t.freqs, t.lengths, n, t.all, average)

    def baseline() -> Any:
        return topk.top_k(bm25.bm25_scores(*corpus, k1=1.2, b=0.75), t.all, 50, above=0.0)

    return Case(
        lambda: bm25_top_k(*corpus, 50, k1=1.2, b=0.75),
        baseline,
        "bm25_scores and top_k",
        lambda got, expected: all(map(np.array_equal, got, expected)),
    )


def case_bm25_rows(n: int) -> Case:
    t = texts(n)
    query, weights, average = np.array([3, 40, 300, 2_500, 29_000], np.uint32), np.ones(5), float(t.lengths.mean())
    rows, columns = np.arange(n), (t.indptr, t.ids, t.freqs, t.lengths)
    return Case(
        lambda: bm25.bm25_rows(rows, query, weights, *columns, average, k1=1.2, b=0.75),
        python_bm25(t, n, query.tolist(), average),
        "Python dicts",
    )


def case_top_k(n: int) -> Case:
    t = texts(n)

    def baseline() -> np.ndarray:
        masked = np.where(t.all, t.relevance, -np.inf)
        best = np.argpartition(-masked, 50)[:50]
        return best[np.argsort(-masked[best], kind="stable")]

    return Case(
        lambda: topk.top_k(t.relevance, t.all, 50),
        baseline,
        "NumPy argpartition",
        lambda got, expected: got[0].tolist() == expected.tolist(),
    )


def case_dense_top_k(n: int) -> Case:
    v, live = vectors(n), np.ones(n, np.uint8)
    query = v[n // 2].copy()

    def baseline() -> np.ndarray:
        scores = np.where(live, v @ query, -np.inf)
        best = np.argpartition(-scores, 50)[:50]
        return best[np.argsort(-scores[best], kind="stable")]

    return Case(
        lambda: topk.dense_top_k(v, query, live, 50),
        baseline,
        "NumPy V @ q, argpartition",
        lambda got, expected: got[0].tolist() == expected.tolist(),
    )


def case_quantized_top_k(n: int) -> Case:
    v, live = topk.unit_rows(vectors(n))[0], np.ones(n, np.uint8)
    codes, scales = quantized.quantize_rows(v)
    query = v[n // 2] + v[n // 3]
    return Case(
        lambda: quantized.quantized_top_k(codes, scales, v, query, live, 50),
        lambda: topk.dense_top_k(v, query, live, 50),
        "dense_top_k (float32 alone)",
        lambda got, expected: np.array_equal(got[0], expected[0]) and np.array_equal(got[1], expected[1]),
    )


@numba.njit(nogil=True, fastmath={"reassoc", "contract"})
def read_and_sum(v: Any) -> Any:
    total = np.float32(0.0)
    for row in range(v.shape[0]):
        for j in range(v.shape[1]):
            total += v[row, j]
    return total


def case_dense_top_k_beside_reading(n: int) -> Case:
    """How far the scan is from only reading the same bytes."""
    v, live = vectors(n), np.ones(n, np.uint8)
    query = v[n // 2].copy()
    return Case(
        lambda: topk.dense_top_k(v, query, live, 50),
        lambda: read_and_sum(v),
        "Numba read and sum",
        lambda got, total: got[0][0] == n // 2 and np.isfinite(total),
    )


def case_unit_rows(n: int) -> Case:
    v = vectors(n)
    return Case(
        lambda: topk.unit_rows(v)[0],
        lambda: (v / np.linalg.norm(v.astype(np.float64), axis=1, keepdims=True)).astype(np.float32),
        "NumPy",
    )


def case_first_nonfinite_row(n: int) -> Case:
    v = vectors(n)
    return Case(lambda: topk.first_nonfinite_row(v) < 0, lambda: bool(np.isfinite(v).all()), "NumPy")


# The static token table

_table: list[Any] = []


def token_table() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    if not _table:
        rng = np.random.default_rng(0)
        table = rng.integers(-127, 128, (VOCABULARY, D)).astype(np.int8)
        inverse_norms = (1.0 / np.linalg.norm(table.astype(np.float32), axis=1)).astype(np.float32)
        _table.extend([table, inverse_norms, np.full(VOCABULARY, 0.01, np.float32), rng.random(VOCABULARY, np.float32)])
    return tuple(_table)


def case_max_sim(n: int) -> Case:
    t = texts(n)
    table, inverse_norms, _, _ = token_table()
    query = topk.unit_rows(vectors(8))[0]
    weights, rows = np.linspace(1.0, 2.0, 8), np.arange(n)

    def baseline() -> np.ndarray:
        distinct, where = np.unique(t.ids, return_inverse=True)
        cosines = query @ (table[distinct].astype(np.float32) * inverse_norms[distinct][:, None]).T
        best = np.maximum.reduceat(cosines[:, where], t.indptr[:-1], axis=1)
        return weights @ np.maximum(best, 0.0)

    return Case(
        lambda: late_interaction.max_sim(query, weights, table, inverse_norms, t.indptr, t.ids, rows),
        baseline,
        "NumPy unique, matmul, reduceat",
    )


def case_token_frequencies(n: int) -> Case:
    t = texts(n)
    query = np.array([3, 40, 300, 2_500, 29_000], np.uint32)
    owner = np.repeat(np.arange(n), np.diff(t.indptr))

    def baseline() -> list[int]:
        return [len(np.unique(owner[t.ids == token])) for token in query]

    return Case(
        lambda: late_interaction.token_frequencies(query, t.indptr, t.ids, n, t.all), baseline, "NumPy comparisons"
    )


def case_mean_rows(n: int) -> Case:
    t = texts(n)
    table, _, scales, weights = token_table()

    def baseline() -> np.ndarray:
        result = np.zeros((n, D), np.float32)
        for number, row in enumerate(t.rows):
            total = (weights[row] * scales[row]) @ table[row].astype(np.float32)
            result[number] = total / np.linalg.norm(total)
        return result

    return Case(lambda: pooling.mean_rows(table, scales, t.indptr, t.ids, weights), baseline, "NumPy, text by text")


PAIRS = [
    *(
        (case, n)
        for case in (
            case_jaccard_one_to_many,
            case_jaccard_matrix,
            case_mmr_from_matrix,
            case_mmr_jaccard,
            case_mmr_cosine,
            case_rrf,
            case_weighted_lists,
            case_rrf_scores,
            case_weighted_sum,
            case_minmax_weighted_sum,
            case_lent_by_previous,
            case_near_copies,
            case_minmax,
            case_zscore,
            case_rank_scores,
            case_exponential,
            case_bm25_rows,
            case_max_sim,
            case_mean_rows,
        )
        for n in CANDIDATES
    ),
    *(
        (case, n)
        for case in (
            case_bm25_scores,
            case_bm25_top_k,
            case_bm25_scan,
            case_top_k,
            case_dense_top_k,
            case_quantized_top_k,
            case_dense_top_k_beside_reading,
            case_unit_rows,
            case_first_nonfinite_row,
            case_token_frequencies,
        )
        for n in SCANS
    ),
]

_summary: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def summary(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if not _summary:
        return
    with request.config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        print("\n\nkernels beside their baselines (median µs)")
        print(f"{'kernel':<32}{'n':>8}{'kernel':>12}{'baseline':>12}{'faster':>9}  baseline is")
        print("\n".join(_summary))


def median_s(call: Callable[[], Any], limit_s: float = 0.3) -> float:
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 3 or (len(times) < 200 and time.perf_counter() - started < limit_s):
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


@pytest.mark.benchmark(max_time=0.3, min_rounds=3, warmup=False)
@pytest.mark.parametrize(("make", "n"), PAIRS, ids=[f"{make.__name__.removeprefix('case_')}-{n}" for make, n in PAIRS])
def test_kernel(make: Callable[[int], Case], n: int, benchmark: Any) -> None:
    case = make(n)
    assert case.agree(case.kernel(), case.baseline())
    name = make.__name__.removeprefix("case_")
    benchmark.group = name
    baseline_s = median_s(case.baseline)
    benchmark(case.kernel)
    if benchmark.stats is None:  # --benchmark-disable
        return
    kernel_s = benchmark.stats.stats.median
    benchmark.extra_info.update(
        n=n, baseline=case.baseline_name, baseline_us=baseline_s * 1e6, times_faster=baseline_s / kernel_s
    )
    _summary.append(
        f"{name:<32}{n:>8}{kernel_s * 1e6:>12.1f}{baseline_s * 1e6:>12.1f}{baseline_s / kernel_s:>8.1f}×  "
        f"{case.baseline_name}"
    )
