"""Puts an ONNX graph together, node by node, with the package onnx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["MICROSOFT", "GraphBuilder"]

MICROSOFT: Final = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""


class GraphBuilder:
    """Collects nodes and constants; a value is known by its name, which is what every method returns."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: NDArray[Any] | np.generic) -> str:
        """Add an array once; a name that exists is the same array."""
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def signed_nibbles(self, name: str, values: NDArray[np.int8]) -> str:
        """Add an int4 array, two values a byte, the first in the low nibble; values -8 to 7, the last axis even."""
        packed = (values[..., ::2] & 15) | (values[..., 1::2] << 4)
        self._constants[name] = helper.make_tensor(
            name, TensorProto.INT4, values.shape, packed.astype(np.uint8).tobytes(), raw=True
        )
        return name

    def node(self, operator: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: Any) -> str:
        """Add a node of one output; an input "" is one that is left out."""
        self._nodes.append(helper.make_node(operator, list(inputs), [output], domain=domain, **attributes))
        return output

    def model(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> onnx.ModelProto:
        """Return the model of all that was added."""
        graph = helper.make_graph(
            self._nodes, name, list(inputs), list(outputs), initializer=list(self._constants.values())
        )
        # Opset 21 is the first with int4; ir_version is what goes with it.
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="jiyi")
