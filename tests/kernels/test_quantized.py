import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jiyi.kernels.quantized import quantize_rows, quantized_top_k
from jiyi.kernels.topk import dense_top_k

VALUES = st.floats(-1, 1, width=32, allow_subnormal=False)


def same_as_the_float32_scan(vectors: np.ndarray, query: np.ndarray, eligible: np.ndarray, k: int) -> None:
    codes, scales = quantize_rows(vectors)
    rows, scores = quantized_top_k(codes, scales, vectors, query, eligible, k)
    expected_rows, expected_scores = dense_top_k(vectors, query, eligible, k)
    assert rows.tolist() == expected_rows.tolist()
    assert scores.tobytes() == expected_scores.tobytes()


@given(st.data())
def test_any_vectors(data: st.DataObject) -> None:
    n, d = data.draw(st.integers(0, 40)), data.draw(st.integers(1, 20))
    vectors = data.draw(hnp.arrays(np.float32, (n, d), elements=VALUES))
    query = data.draw(hnp.arrays(np.float32, d, elements=VALUES))
    eligible = data.draw(hnp.arrays(np.uint8, n, elements=st.integers(0, 1)))
    same_as_the_float32_scan(vectors, query, eligible, data.draw(st.integers(0, n + 3)))


@pytest.mark.parametrize("k", [1, 10, 50])
def test_many_rows_close_together(k: int) -> None:
    rng = np.random.default_rng(0)
    middle = rng.normal(size=64)
    vectors = (middle + 1e-3 * rng.normal(size=(3_000, 64))).astype(np.float32)
    vectors[::7] = vectors[0]
    for query in (middle.astype(np.float32), rng.normal(size=64).astype(np.float32)):
        same_as_the_float32_scan(vectors, query, np.ones(3_000, np.uint8), k)


@pytest.mark.parametrize("size", [1e-30, 1e-6, 1e6, 1e18])
def test_sizes_far_from_one(size: float) -> None:
    vectors = (size * np.random.default_rng(1).normal(size=(200, 16))).astype(np.float32)
    same_as_the_float32_scan(vectors, np.ones(16, np.float32), np.ones(200, np.uint8), 9)


def test_codes_are_off_by_half_a_step_at_most() -> None:
    vectors = np.random.default_rng(2).normal(size=(50, 33)).astype(np.float32)
    vectors[3] = 0
    codes, scales = quantize_rows(vectors)
    off = np.abs(codes * scales[:, None].astype(np.float64) - vectors)
    assert (off <= scales[:, None] * 0.5001).all()
    assert scales[3] == 0
    assert not codes[3].any()


def test_bad_input() -> None:
    vectors = np.ones((4, 8), np.float32)
    codes, scales = quantize_rows(vectors)
    query, eligible = np.ones(8, np.float32), np.ones(4, np.uint8)
    with pytest.raises(ValueError, match="dimension 3, allowed is 8"):
        quantized_top_k(codes, scales, vectors, np.ones(3, np.float32), eligible, 2)
    with pytest.raises(ValueError, match=r"(?i)nan"):
        quantized_top_k(codes, scales, vectors, np.full(8, np.nan, np.float32), eligible, 2)
    with pytest.raises(ValueError, match="eligible"):
        quantized_top_k(codes, scales, vectors, query, eligible[:2], 2)
    with pytest.raises(TypeError):
        quantized_top_k(codes, scales, vectors, query.astype(np.float64), eligible, 2)
    with pytest.raises(TypeError):
        quantize_rows(vectors.astype(np.float64))
