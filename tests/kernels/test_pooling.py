import math

import numpy as np
import pytest

from jiyi.kernels import pooling
from tests.oracles import pooling as oracle


def test_spelled_out(columns):
    table = np.array([[10, 0], [0, 20]], np.int8)
    scales, weights = np.array([0.1, 0.05], np.float32), np.array([1.0, 3.0], np.float32)
    indptr, rows = columns([[0, 1], [0], [], [1, 1, 0]])
    mean = pooling.mean_rows(table, scales, indptr, rows, weights, normalize=False)
    assert mean.tolist() == pytest.approx(np.array([[1 / 4, 3 / 4], [1.0, 0.0], [0.0, 0.0], [1 / 7, 6 / 7]]), abs=1e-6)
    unit = pooling.mean_rows(table, scales, indptr, rows, weights)
    norm = math.hypot(1, 3)
    assert unit[0].tolist() == pytest.approx([1 / norm, 3 / norm], abs=1e-6)
    assert unit.dtype == mean.dtype == np.float32


@pytest.mark.parametrize("d", [1, 7, 64, 256])
@pytest.mark.parametrize("normalize", [True, False])
def test_agrees_with_the_oracle(d, normalize, columns, read_only):
    rng = np.random.default_rng(d)
    table = rng.integers(-127, 128, (30, d)).astype(np.int8)
    table[4] = 0
    scales = rng.random(30).astype(np.float32)
    weights = rng.random(30).astype(np.float32)
    weights[5] = 0.0
    texts = [[], [4], [5], [5, 5], *(rng.integers(0, 30, size).tolist() for size in rng.integers(1, 15, 20))]
    indptr, rows = columns(texts)
    got = pooling.mean_rows(*map(read_only, (table, scales, indptr, rows, weights)), normalize=normalize)
    for vector, tokens in zip(got.tolist(), texts, strict=True):
        expected = oracle.mean_rows(table.tolist(), scales.tolist(), tokens, weights.tolist(), normalize)
        assert vector == pytest.approx(expected, rel=1e-5, abs=1e-6)
    if normalize:
        norms = np.linalg.norm(got.astype(np.float64), axis=1)
        assert norms[:4].tolist() == [0.0] * 4
        assert set(norms[4:].round(6).tolist()) <= {0.0, 1.0}
        assert norms.round(6).sum() >= 15


def test_a_text_does_not_depend_on_its_neighbours(columns):
    rng = np.random.default_rng(0)
    table = rng.integers(-127, 128, (100, 96)).astype(np.int8)
    scales, weights = rng.random(100).astype(np.float32), rng.random(100).astype(np.float32)
    texts = [rng.integers(0, 100, 20).tolist() for _ in range(9)]
    together = pooling.mean_rows(table, scales, *columns(texts), weights)
    for text, tokens in enumerate(texts):
        alone = pooling.mean_rows(table, scales, *columns([tokens]), weights)
        assert alone.tobytes() == together[text].tobytes()


def test_no_texts():
    table = np.ones((2, 5), np.int8)
    ones = np.ones(2, np.float32)
    assert pooling.mean_rows(table, ones, np.zeros(1, np.int64), np.empty(0, np.uint32), ones).shape == (0, 5)


def test_bad_arguments(columns):
    table, ones = np.ones((2, 5), np.int8), np.ones(2, np.float32)
    indptr, rows = columns([[0], [1, 2]])
    with pytest.raises(ValueError, match=r"rows\[2\] is 2, allowed is 0 to 1"):
        pooling.mean_rows(table, ones, indptr, rows, ones)
    indptr, rows = columns([[0], [1]])
    with pytest.raises(ValueError, match="scales has length 3, allowed is 2"):
        pooling.mean_rows(table, np.ones(3, np.float32), indptr, rows, ones)
    with pytest.raises(TypeError, match="weights has dtype float64"):
        pooling.mean_rows(table, ones, indptr, rows, np.ones(2))
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="the mean of text 1 is not finite"):
            pooling.mean_rows(table, np.array([1.0, bad], np.float32), indptr, rows, ones)
        with pytest.raises(ValueError, match="the mean of text 1 is not finite"):
            pooling.mean_rows(table, ones, indptr, rows, np.array([1.0, bad], np.float32))
