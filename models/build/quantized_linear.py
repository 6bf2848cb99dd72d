"""The three ways that a linear layer of the exported model is stored and computed (see `Precision`).

In int8, activations have a scale for each *position*. ONNX Runtime's own dynamic quantisation has one scale for a whole
batch: there a text's vector depends on its neighbours, here it does not, and it comes nearer to float32 (mean vectors
of random pieces: cosine .998 for .996), for 8 % of the time. Large channels are smoothed first (`calibration`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from jiyi.models.build.calibration import smoothing_factors
from jiyi.models.build.e5s1 import BLOCK
from jiyi.models.build.layer_weights import LayerWeights
from jiyi.models.build.onnx_graph import MICROSOFT, GraphBuilder
from jiyi.models.build.precision import Precision

__all__ = ["Linear"]

# Seven bits: a processor without VNNI adds two products in 16 bits, and eight would overflow there.
_WEIGHT_LEVELS: Final = 63
# A GELU is never below -0.17, so 20 of its 256 levels are enough for what is negative; other values lie around 0.
_GELU_ZERO: Final = 20
_GELU_LEAST: Final = 0.17


class Linear:
    """Adds linear layers to a graph, biases left to the next node, which adds them as it goes."""

    def __init__(
        self,
        graph: GraphBuilder,
        weights: LayerWeights,
        precision: Precision,
        maxima: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        self.inputs: dict[str, str] = {}
        """Name of each layer that was added, and of the value that it reads."""
        self._graph = graph
        self._weights = weights
        self._precision = precision
        self._maxima = maxima or {}
        self._smoothed: dict[str, tuple[str, NDArray[np.float32]]] = {}
        self._quantized: dict[str, tuple[str, str, str]] = {}

    def __call__(self, x: str, name: str, columns: int, *, after_gelu: bool = False) -> str:
        """Add x · Wᵀ.

        Args:
            x: a float32 value of shape (..., columns).
            name: the layer's name in the file, "l0.q".
            columns: inputs of the layer.
            after_gelu: whether x is what a GELU returned.
        """
        self.inputs[name] = x
        if self._precision == "int4":
            return self._blocks(x, name, columns)
        if self._precision == "fp32":
            matrix = self._weights.matrix(f"{name}.w", columns)
            weight = self._graph.constant(f"{name}.weight", np.ascontiguousarray(matrix.T))
            return self._graph.node("MatMul", [x, weight], f"{name}.product")
        return self._integers(x, name, columns, after_gelu)

    def _blocks(self, x: str, name: str, columns: int) -> str:
        scales, nibbles = self._weights.quantized(f"{name}.w", columns)
        rows = len(nibbles)
        packed = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).reshape(rows, columns // BLOCK, BLOCK // 2)
        return self._graph.node(
            "MatMulNBits",
            [x, self._graph.constant(f"{name}.blocks", packed), self._graph.constant(f"{name}.scales", scales.ravel())],
            f"{name}.product",
            MICROSOFT,
            K=columns,
            N=rows,
            bits=4,
            block_size=BLOCK,
            accuracy_level=1,  # activations stay float32
        )

    def _integers(self, x: str, name: str, columns: int, after_gelu: bool) -> str:
        matrix = self._weights.matrix(f"{name}.w", columns)
        if name in self._maxima and not after_gelu:
            x, factors = self._smooth(x, name, columns)
            matrix = matrix * factors
        scales = np.maximum(np.abs(matrix).max(axis=1), 1e-9) / _WEIGHT_LEVELS
        levels = np.rint(matrix / scales[:, None]).astype(np.int8)
        values, value_scales, zero = self._quantize(x, after_gelu)
        product = self._graph.node(
            "MatMulIntegerToFloat",
            [
                values,
                self._graph.constant(f"{name}.weight", np.ascontiguousarray(levels.T)),
                self._graph.constant("one", np.float32(1)),
                self._graph.constant(f"{name}.scales", scales.astype(np.float32)),
                zero,
            ],
            f"{name}.unscaled",
            MICROSOFT,
        )
        return self._graph.node("Mul", [product, value_scales], f"{name}.product")

    def _smooth(self, x: str, name: str, columns: int) -> tuple[str, NDArray[np.float32]]:
        """Divide the channels of a value by factors, once for all layers that read it."""
        if x not in self._smoothed:
            prefix, _, part = name.rpartition(".")
            layers = [f"{prefix}.{other}" for other in ("qkv" if part in "qkv" else [part])]
            factors = smoothing_factors(self._weights, layers, columns, self._maxima[name])
            inverse = self._graph.constant(f"{x}.inverse", np.float32(1) / factors)
            self._smoothed[x] = self._graph.node("Mul", [x, inverse], f"{x}.smooth"), factors
        return self._smoothed[x]

    def _quantize(self, x: str, after_gelu: bool) -> tuple[str, str, str]:
        """Quantise a value once, however many layers read it: uint8 values, scales by position, zero point."""
        if x in self._quantized:
            return self._quantized[x]
        graph = self._graph
        last_axis = graph.constant("last_axis", np.array([-1], np.int64))
        if after_gelu:
            zero, least = _GELU_ZERO, _GELU_LEAST / _GELU_ZERO * (255 - _GELU_ZERO)
            largest = graph.node("ReduceMax", [x, last_axis], f"{x}.largest", keepdims=1)
        else:
            zero, least = 128, 1e-9
            magnitude = graph.node("Abs", [x], f"{x}.magnitude")
            largest = graph.node("ReduceMax", [magnitude, last_axis], f"{x}.largest", keepdims=1)
        bounded = graph.node("Max", [largest, graph.constant(f"least_{zero}", np.float32(least))], f"{x}.range")
        step = graph.constant(f"step_{zero}", np.float32(1 / (255 - zero)))
        scales = graph.node("Mul", [bounded, step], f"{x}.scales")
        levels = graph.node("Round", [graph.node("Div", [x, scales], f"{x}.divided")], f"{x}.rounded")
        shifted = graph.node("Add", [levels, graph.constant(f"zero_{zero}", np.float32(zero))], f"{x}.shifted")
        values = graph.node("Cast", [shifted], f"{x}.levels", to=TensorProto.UINT8)
        self._quantized[x] = values, scales, graph.constant(f"zero_point_{zero}", np.array(zero, np.uint8))
        return self._quantized[x]
