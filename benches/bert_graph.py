"""A BERT as an ONNX graph, built node by node: any size, weights given or random, fp32 or fp16.

Tests and benches need models of many shapes without a hub and without torch; the `onnx` package is all this takes.
The graph has the operators that exporters write (LayerNormalization, GELU by Erf, attention in single products), so
that ONNX Runtime fuses it as it does theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Weights = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class BertShape:
    """Sizes of a BERT, under the names its config.json gives them (shortened)."""

    layers: int = 6
    width: int = 384
    heads: int = 12
    inner: int = 1536
    vocabulary: int = 30_522
    positions: int = 512
    types: int = 2


MINILM_6 = BertShape()
BERT_BASE = BertShape(layers=12, width=768, heads=12, inner=3072)
BERT_LARGE = BertShape(layers=24, width=1024, heads=16, inner=4096)


def random_weights(shape: BertShape, *, seed: int = 0, outputs: int | None = None) -> dict[str, NDArray[np.float32]]:
    """Weights under the names of a BERT checkpoint, scaled so that activations stay near 1; a head when asked for."""
    rng = np.random.default_rng(seed)

    def normal(*size: int, scale: float) -> NDArray[np.float32]:
        return rng.standard_normal(size, dtype=np.float32) * np.float32(scale)

    weights = {
        "embeddings.word_embeddings.weight": normal(shape.vocabulary, shape.width, scale=0.5),
        "embeddings.position_embeddings.weight": normal(shape.positions, shape.width, scale=0.1),
        "embeddings.token_type_embeddings.weight": normal(shape.types, shape.width, scale=0.1),
    }

    def linear(name: str, out: int, size: int) -> None:
        weights[f"{name}.weight"] = normal(out, size, scale=size**-0.5)
        weights[f"{name}.bias"] = normal(out, scale=0.05)

    def norm(name: str) -> None:
        weights[f"{name}.weight"] = np.ones(shape.width, np.float32)
        weights[f"{name}.bias"] = np.zeros(shape.width, np.float32)

    norm("embeddings.LayerNorm")
    for i in range(shape.layers):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", shape.width, shape.width)
        linear(f"{layer}.attention.output.dense", shape.width, shape.width)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", shape.inner, shape.width)
        linear(f"{layer}.output.dense", shape.width, shape.inner)
        norm(f"{layer}.output.LayerNorm")
    if outputs is not None:
        linear("pooler.dense", shape.width, shape.width)
        linear("classifier", outputs, shape.width)
    return weights


class _Graph:
    """Collects nodes and weights; every value is named after the node that makes it."""

    def __init__(self, dtype: type[np.floating[Any]]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.dtype = dtype

    def add(self, op: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        output = output or f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def weight(self, name: str, value: NDArray[Any]) -> str:
        if name not in self.weights:
            value = value.astype(self.dtype) if np.issubdtype(value.dtype, np.floating) else value
            self.weights[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def number(self, value: float) -> str:
        return self.weight(f"number_{value}", np.array(value, np.float32))

    def ints(self, *values: int) -> str:
        return self.weight(f"ints_{'_'.join(map(str, values))}", np.array(values, np.int64))


def bert(
    shape: BertShape,
    weights: Weights,
    *,
    half: bool = False,
    token_types: bool = True,
    position_ids: bool = False,
    integers: type[np.signedinteger[Any]] = np.int64,
) -> onnx.ModelProto:
    """Build the model.

    Args:
        shape: its sizes.
        weights: as `random_weights` names them; with "classifier.weight" of shape (outputs, width) the output is
            `logits` (n, outputs) from the first token (through the pooler where there is one), without it
            `last_hidden_state` (n, length, width).
        half: weights and arithmetic in float16; the output is float32 all the same.
        token_types: whether the model has the input `token_type_ids`; without it all are 0.
        position_ids: whether positions are an input.
        integers: dtype of the inputs, np.int64 or np.int32.

    Returns:
        The model, opset 17, with both dimensions of its inputs dynamic.
    """
    graph = _Graph(np.float16 if half else np.float32)
    hidden = _embed(graph, weights, token_types, position_ids)
    mask = graph.add("Cast", ["attention_mask"], to=TensorProto.FLOAT16 if half else TensorProto.FLOAT)
    mask = graph.add("Unsqueeze", [mask, graph.ints(1, 2)])
    # -10,000 and not the lowest float: it has to exist in float16 too.
    mask = graph.add("Mul", [graph.add("Sub", [graph.number(1.0), mask]), graph.number(-10_000.0)])
    for i in range(shape.layers):
        hidden = _layer(graph, weights, shape, f"encoder.layer.{i}", hidden, mask)
    if "classifier.weight" in weights:
        first = graph.add("Gather", [hidden, graph.weight("zero", np.array(0, np.int64))], axis=1)
        if "pooler.dense.weight" in weights:
            first = graph.add("Tanh", [_linear(graph, weights, "pooler.dense", first)])
        output, sizes = _linear(graph, weights, "classifier", first), ["n", len(weights["classifier.weight"])]
        name = "logits"
    else:
        output, sizes, name = hidden, ["n", "length", shape.width], "last_hidden_state"
    graph.add("Cast", [output], name, to=TensorProto.FLOAT)
    integer = TensorProto.INT32 if integers is np.int32 else TensorProto.INT64
    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * token_types + ["position_ids"] * position_ids
    model = helper.make_graph(
        graph.nodes,
        "bert",
        [helper.make_tensor_value_info(name, integer, ["n", "length"]) for name in names],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)],
        list(graph.weights.values()),
    )
    return helper.make_model(model, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _embed(graph: _Graph, weights: Weights, token_types: bool, position_ids: bool) -> str:
    def table(name: str, ids: str) -> str:
        return graph.add("Gather", [graph.weight(name, weights[f"embeddings.{name}.weight"]), ids])

    words = table("word_embeddings", "input_ids")
    if position_ids:
        positions = table("position_embeddings", "position_ids")
    else:
        length = graph.add("Gather", [graph.add("Shape", ["input_ids"]), graph.weight("one", np.array(1, np.int64))])
        zero, one = graph.weight("zero", np.array(0, np.int64)), graph.weight("one", np.array(1, np.int64))
        positions = table("position_embeddings", graph.add("Range", [zero, length, one]))
    ids = "token_type_ids" if token_types else graph.add("Sub", ["input_ids", "input_ids"])
    both = graph.add("Add", [words, table("token_type_embeddings", ids)])
    return _norm(graph, weights, "embeddings.LayerNorm", graph.add("Add", [both, positions]))


def _linear(graph: _Graph, weights: Weights, name: str, value: str) -> str:
    product = graph.add("MatMul", [value, graph.weight(f"{name}.weight", weights[f"{name}.weight"].T)])
    return graph.add("Add", [product, graph.weight(f"{name}.bias", weights[f"{name}.bias"])])


def _norm(graph: _Graph, weights: Weights, name: str, value: str) -> str:
    names = [graph.weight(f"{name}.{part}", weights[f"{name}.{part}"]) for part in ("weight", "bias")]
    return graph.add(
        "LayerNormalization", [value, *names], axis=-1, epsilon=1e-12 if graph.dtype is np.float32 else 1e-6
    )


def _layer(graph: _Graph, weights: Weights, shape: BertShape, name: str, hidden: str, mask: str) -> str:
    size = shape.width // shape.heads

    def heads(part: str, order: list[int]) -> str:
        value = _linear(graph, weights, f"{name}.attention.self.{part}", hidden)
        value = graph.add("Reshape", [value, graph.ints(0, 0, shape.heads, size)])
        return graph.add("Transpose", [value], perm=order)

    scores = graph.add("MatMul", [heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1])])
    scores = graph.add("Add", [graph.add("Mul", [scores, graph.number(size**-0.5)]), mask])
    mixed = graph.add("MatMul", [graph.add("Softmax", [scores], axis=-1), heads("value", [0, 2, 1, 3])])
    mixed = graph.add("Transpose", [mixed], perm=[0, 2, 1, 3])
    mixed = graph.add("Reshape", [mixed, graph.ints(0, 0, shape.width)])
    mixed = _linear(graph, weights, f"{name}.attention.output.dense", mixed)
    hidden = _norm(graph, weights, f"{name}.attention.output.LayerNorm", graph.add("Add", [mixed, hidden]))
    inner = _linear(graph, weights, f"{name}.intermediate.dense", hidden)
    erf = graph.add("Erf", [graph.add("Div", [inner, graph.number(2**0.5)])])
    gelu = graph.add("Mul", [graph.add("Mul", [inner, graph.add("Add", [erf, graph.number(1.0)])]), graph.number(0.5)])
    outer = _linear(graph, weights, f"{name}.output.dense", gelu)
    return _norm(graph, weights, f"{name}.output.LayerNorm", graph.add("Add", [outer, hidden]))
