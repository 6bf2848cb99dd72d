"""Where scanning int8 codes first pays: the exact scan of the dense leg, float32 alone beside codes and float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jiyi.kernels.quantized import quantize_rows, quantized_top_k
from jiyi.kernels.topk import dense_top_k, unit_rows

DIM = 256
POOL = 50


@pytest.fixture(params=[1_000, 2_000, 4_000, 10_000, 20_000, 100_000], ids="{:,}".format)
def rows(request: pytest.FixtureRequest) -> Any:
    rng = np.random.default_rng(0)
    vectors, _ = unit_rows(rng.normal(size=(request.param, DIM)).astype(np.float32))
    return vectors, *quantize_rows(vectors), vectors[7] + vectors[11], np.ones(request.param, np.uint8)


def test_float32(rows: Any, benchmark: Any) -> None:
    vectors, _, _, query, eligible = rows
    benchmark(dense_top_k, vectors, query, eligible, POOL)


def test_codes_then_float32(rows: Any, benchmark: Any) -> None:
    vectors, codes, scales, query, eligible = rows
    found, _ = benchmark(quantized_top_k, codes, scales, vectors, query, eligible, POOL)
    assert np.array_equal(found, dense_top_k(vectors, query, eligible, POOL)[0])


def test_numpy_product_and_partition(rows: Any, benchmark: Any) -> None:
    vectors, _, _, query, _ = rows
    benchmark(lambda: np.argpartition(vectors @ query, -POOL)[-POOL:])
