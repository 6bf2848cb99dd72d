"""The ONNX graph of multilingual-e5-small, from an `E5S1` file, with the vocabulary cut to some of its pieces.

The word embeddings keep their original 4-bit blocks (`GatherBlockQuantized`) at every precision, so a row is what the
file says to the last bit. Operators of ONNX Runtime's own (domain com.microsoft) do what its optimiser would put there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from jiyi.models.build.calibration import channel_maxima
from jiyi.models.build.e5s1 import BLOCK, E5Weights
from jiyi.models.build.onnx_graph import MICROSOFT, GraphBuilder
from jiyi.models.build.precision import Precision
from jiyi.models.build.quantized_linear import Linear

__all__ = ["e5_model"]


def e5_model(
    weights: E5Weights,
    rows: Sequence[int],
    precision: Precision,
    calibration: Sequence[NDArray[np.int64]] = (),
) -> onnx.ModelProto:
    """Build the encoder.

    Args:
        weights: the file.
        rows: the pieces to keep; row i of the result is piece `rows[i]`.
        precision: how linear layers are computed, see `quantized_linear`.
        calibration: texts as rows of the result, `<s>` and `</s>` included, by which int8 smooths the channels that
            are large (see `calibration`); without any it does not.

    Returns:
        A model with inputs `input_ids` and `attention_mask`, int64 of shape (n, length), length at most the file's
        positions, and the output `last_hidden_state`, float32 of shape (n, length, hidden).
    """
    if precision != "int8" or not calibration:
        return _model(weights, rows, precision, None)[0]
    exact, inputs = _model(weights, rows, "int4", None)
    # Those that read what a normalisation gave: the others have no channels that stand out as far.
    read = {layer: value for layer, value in inputs.items() if layer.rpartition(".")[2] in ("q", "k", "v", "fi")}
    return _model(weights, rows, precision, channel_maxima(exact, calibration, read))[0]


def _model(
    weights: E5Weights, rows: Sequence[int], precision: Precision, maxima: Mapping[str, NDArray[np.float32]] | None
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Build the encoder; also return what each linear layer reads."""
    c = weights.config
    graph = GraphBuilder()
    linear = Linear(graph, weights, precision, maxima)

    def vector(name: str) -> str:
        return graph.constant(name, weights.vector(name))

    def add_and_norm(x: str, skip: str, bias: str, norm: str, output: str) -> str:
        return graph.node(
            "SkipLayerNormalization",
            [x, skip, vector(f"{norm}.w"), vector(f"{norm}.b"), vector(bias)],
            output,
            MICROSOFT,
            epsilon=c.layer_norm_eps,
        )

    mask = graph.node("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
    x = _embeddings(graph, weights, rows)
    for i in range(c.layers):
        p = f"l{i}."
        q, k, v = (linear(x, p + name, c.hidden) for name in "qkv")
        bias = graph.constant(p + "qkv.b", np.concatenate([weights.vector(f"{p}{name}.b") for name in "qkv"]))
        heads = graph.node("MultiHeadAttention", [q, k, v, bias, mask], p + "heads", MICROSOFT, num_heads=c.heads)
        mixed = linear(heads, p + "ao", c.hidden)
        x = add_and_norm(mixed, x, p + "ao.b", p + "aln", p + "attended")
        inner = graph.node("BiasGelu", [linear(x, p + "fi", c.hidden), vector(p + "fi.b")], p + "inner", MICROSOFT)
        outer = linear(inner, p + "fo", c.feed_forward, after_gelu=True)
        x = add_and_norm(outer, x, p + "fo.b", p + "oln", "last_hidden_state" if i == c.layers - 1 else p + "out")
    shape = ["batch", "length"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "attention_mask")]
    outputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [*shape, c.hidden])]
    return graph.model("multilingual-e5-small", inputs, outputs), linear.inputs


def _embeddings(graph: GraphBuilder, weights: E5Weights, rows: Sequence[int]) -> str:
    """Add the sum of word, position and type embeddings, normalised."""
    c = weights.config
    scales, nibbles = weights.quantized("emb.word", c.hidden)
    index = np.asarray(rows, np.int64)
    words = graph.node(
        "GatherBlockQuantized",
        [
            graph.signed_nibbles("emb.word", nibbles[index].astype(np.int8) - 8),
            "input_ids",
            graph.constant("emb.word.scales", scales[index]),
        ],
        "words",
        MICROSOFT,
        block_size=BLOCK,
        gather_axis=0,
        quantize_axis=1,
    )
    table = weights.vector("emb.pos").reshape(c.positions, c.hidden)
    table = table + weights.vector("emb.type").reshape(c.types, c.hidden)[0]
    first = graph.constant("first", np.array([0], np.int64))
    length = graph.node("Shape", ["input_ids"], "length", start=1, end=2)
    positions = graph.node("Slice", [graph.constant("emb.positions", table), first, length], "positions")
    return graph.node(
        "LayerNormalization",
        [
            graph.node("Add", [words, positions], "embedded"),
            graph.constant("emb.ln.w", weights.vector("emb.ln.w")),
            graph.constant("emb.ln.b", weights.vector("emb.ln.b")),
        ],
        "normalised",
        axis=-1,
        epsilon=c.layer_norm_eps,
    )
