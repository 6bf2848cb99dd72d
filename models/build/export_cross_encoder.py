"""Turn trained weights of the cross-encoder into what ships: `model.onnx` in int8, `tokenizer.json`, `manifest.json`.

    python -m jiyi.models.build.export_cross_encoder --weights big.safetensors --tokenizer FILE --name rerank-en \\
        --out models/weights/rerank-en [--precision fp32]

Needs safetensors and onnx, no torch. Linear layers are 7-bit weights with a scale for each output channel and 8-bit
activations with a scale for each position (`quantized_linear`), so that a pair's score does not depend on its batch.
Words keep 4 bits in blocks of 32. The head is `joint_encoder`'s, node by node.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from jiyi.models.build.onnx_graph import MICROSOFT, GraphBuilder
from jiyi.models.build.precision import Precision, checked_precision
from jiyi.models.build.quantized_linear import Linear

__all__ = ["TrainedWeights", "cross_encoder_model"]

_BLOCK = 32
_PARTS = {"q": 0, "k": 1, "v": 2}
_NAMES = {"ao": "mix", "fi": "inner", "fo": "outer", "aln": "mix_norm", "oln": "norm"}


class TrainedWeights:
    """The tensors of a trained network, under the names that the graph's layers have ("l0.q.w")."""

    def __init__(self, tensors: Mapping[str, NDArray[np.float32]], sizes: Mapping[str, str]) -> None:
        self.tensors = tensors
        self.layers, self.heads = int(sizes["layers"]), int(sizes["heads"])
        self.hidden, self.inner = int(sizes["hidden"]), int(sizes["feed_forward"])
        self.positions, self.epsilon = int(sizes["positions"]), float(sizes["epsilon"])

    def vector(self, name: str) -> NDArray[np.float32]:
        """Return a bias or the weight of a normalisation."""
        return self._tensor(name)

    def matrix(self, name: str, columns: int) -> NDArray[np.float32]:
        """Return the weights of a linear layer, shape (outputs, columns)."""
        matrix = self._tensor(name)
        if matrix.shape[1] != columns:
            raise ValueError(f"{name} has {matrix.shape[1]} columns, not {columns}")
        return matrix

    def quantized(self, name: str, columns: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Return a matrix in 4 bits, value = (nibble - 8) x scale of its block of 32, each scale the best of a few."""
        return nibbles_of(self.matrix(name, columns))

    def _tensor(self, name: str) -> NDArray[np.float32]:
        layer, part, end = name.split(".")
        kind = {"w": "weight", "b": "bias"}[end]
        if part in _PARTS:
            whole = self.tensors[f"layers.{layer[1:]}.qkv.{kind}"]
            return np.ascontiguousarray(whole[_PARTS[part] * self.hidden : (_PARTS[part] + 1) * self.hidden])
        return self.tensors[f"layers.{layer[1:]}.{_NAMES[part]}.{kind}"]


def nibbles_of(matrix: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Quantise a matrix to 4 bits in blocks of 32, each block with the scale of least squared error among a few.

    Returns:
        scales: float32 array of shape (rows, columns / 32).
        nibbles: uint8 array of shape (rows, columns), values 0 to 15; value = (nibble - 8) x scale.
    """
    blocks = matrix.reshape(len(matrix), -1, _BLOCK)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[:, :, None], axis=2)[:, :, 0]
    best = np.full(extreme.shape, np.inf, np.float32)
    scales, nibbles = np.zeros_like(extreme), np.zeros(blocks.shape, np.uint8)
    for steps in (8.0, 7.6, 7.2, 6.8, 6.4, 6.0):
        # The level of the largest magnitude is -8, the one that has no opposite.
        scale = np.where(extreme == 0, 1.0, extreme / -steps).astype(np.float32)
        levels = np.clip(np.rint(blocks / scale[:, :, None]), -8, 7)
        error = np.square(levels * scale[:, :, None] - blocks).sum(axis=2)
        better = error < best
        best[better], scales[better] = error[better], scale[better]
        nibbles[better] = (levels + 8).astype(np.uint8)[better]
    return scales, nibbles.reshape(matrix.shape)


def cross_encoder_model(weights: TrainedWeights, precision: Precision) -> onnx.ModelProto:
    """Build the network.

    Returns:
        A model with inputs `input_ids`, `attention_mask` and `token_type_ids`, int64 of shape (n, length), and the
        output `logits`, float32 of shape (n, 1).
    """
    graph = GraphBuilder()
    linear = Linear(graph, weights, precision)

    def vector(name: str) -> str:
        return graph.constant(name, weights.vector(name))

    def add_and_norm(x: str, skip: str, bias: str, norm: str, output: str) -> str:
        parts = [x, skip, vector(f"{norm}.w"), vector(f"{norm}.b"), vector(bias)]
        return graph.node("SkipLayerNormalization", parts, output, MICROSOFT, epsilon=weights.epsilon)

    mask = graph.node("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
    x = _embeddings(graph, weights, precision)
    for i in range(weights.layers):
        p = f"l{i}."
        q, k, v = (linear(x, p + name, weights.hidden) for name in "qkv")
        bias = graph.constant(p + "qkv.b", np.concatenate([weights.vector(f"{p}{name}.b") for name in "qkv"]))
        heads = graph.node("MultiHeadAttention", [q, k, v, bias, mask], p + "heads", MICROSOFT, num_heads=weights.heads)
        x = add_and_norm(linear(heads, p + "ao", weights.hidden), x, p + "ao.b", p + "aln", p + "attended")
        inner = graph.node("BiasGelu", [linear(x, p + "fi", weights.hidden), vector(p + "fi.b")], p + "in", MICROSOFT)
        x = add_and_norm(linear(inner, p + "fo", weights.inner, after_gelu=True), x, p + "fo.b", p + "oln", p + "out")
    _head(graph, weights, x)
    shape = ["batch", "length"]
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in names]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])]
    return graph.model("cross-encoder", inputs, outputs)


def _embeddings(graph: GraphBuilder, weights: TrainedWeights, precision: Precision) -> str:
    """Add the sum of word, position and part embeddings, normalised."""
    words = weights.tensors["words.weight"]
    if precision == "fp32":
        embedded = graph.node("Gather", [graph.constant("words", words), "input_ids"], "embedded_words")
    else:
        scales, nibbles = nibbles_of(words)
        rows = [graph.signed_nibbles("words", nibbles.astype(np.int8) - 8), "input_ids"]
        embedded = graph.node(
            "GatherBlockQuantized",
            [*rows, graph.constant("words.scales", scales)],
            "embedded_words",
            MICROSOFT,
            block_size=_BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )
    first = graph.constant("first", np.array([0], np.int64))
    length = graph.node("Shape", ["input_ids"], "length", start=1, end=2)
    table = graph.constant("places", weights.tensors["places.weight"])
    places = graph.node("Slice", [table, first, length], "places_of")
    parts = graph.node(
        "Gather", [graph.constant("parts", weights.tensors["parts.weight"]), "token_type_ids"], "part_of"
    )
    total = graph.node("Add", [graph.node("Add", [embedded, places], "placed"), parts], "embedded")
    norm = [graph.constant(f"norm.{end}", weights.tensors[f"norm.{end}"]) for end in ("weight", "bias")]
    return graph.node("LayerNormalization", [total, *norm], "normalised", axis=-1, epsilon=weights.epsilon)


def _head(graph: GraphBuilder, weights: TrainedWeights, x: str) -> str:
    """Add the score of `JointEncoder.forward`."""
    node, constant = graph.node, graph.constant
    axis_1, last = constant("axis_1", np.array([1], np.int64)), constant("axis_last", np.array([-1], np.int64))
    one, most = constant("one_f", np.float32(1)), constant("most", np.array([2**31], np.int64))

    def shifted(value: str, output: str) -> str:
        """The mask of what stands before each 1."""
        rest = node("Slice", [value, axis_1, most, axis_1], f"{output}.rest")
        return node("Pad", [rest, constant("pad_end", np.array([0, 0, 0, 1], np.int64))], output)

    kept = node("Cast", ["attention_mask"], "kept", to=TensorProto.FLOAT)
    second = node("Mul", [kept, node("Cast", ["token_type_ids"], "types", to=TensorProto.FLOAT)], "second")
    first = node("Sub", [kept, second], "first_part")
    text = node("Mul", [second, shifted(kept, "after")], "text")
    ends = node("Mul", [shifted(second, "before_second"), first], "ends")
    inside = node("Slice", [node("Sub", [first, ends], "with_cls"), axis_1, most, axis_1], "without_cls")
    query = node("Pad", [inside, constant("pad_start", np.array([0, 1, 0, 0], np.int64))], "query")

    squares = node("ReduceSum", [node("Mul", [x, x], "squares"), last], "square_sums", keepdims=1)
    norms = node("Sqrt", [node("Max", [squares, constant("least", np.float32(1e-12))], "bounded")], "norms")
    unit = node("Div", [x, norms], "unit")
    cosines = node("MatMul", [unit, node("Transpose", [unit], "turned", perm=[0, 2, 1])], "cosines")
    outside = node("Mul", [node("Sub", [text, one], "not_text"), constant("four", np.float32(4))], "outside")
    barred = node("Add", [cosines, node("Unsqueeze", [outside, axis_1], "outside_row")], "barred")
    best = node("ReduceMax", [barred, last], "best", keepdims=0)

    def total(value: str, output: str) -> str:
        return node("ReduceSum", [value, axis_1], output, keepdims=1)

    counts = {part: node("Max", [total(part, f"{part}.sum"), one], f"{part}.count") for part in (query, text)}
    late = node("Div", [total(node("Mul", [best, query], "best_of_query"), "best.sum"), counts[query]], "late")

    def mean(part: str) -> str:
        row = node("MatMul", [node("Unsqueeze", [part, axis_1], f"{part}.row"), x], f"{part}.states")
        return node("Div", [node("Squeeze", [row, axis_1], f"{part}.state"), counts[part]], f"{part}.mean")

    def dot(a: str, b: str, output: str) -> str:
        return total(node("Mul", [a, b], f"{output}.products"), output)

    a, b = mean(query), mean(text)
    lengths = node("Mul", [node("Sqrt", [dot(a, a, "aa")], "a.norm"), node("Sqrt", [dot(b, b, "bb")], "b.norm")], "ab")
    bounded = node("Max", [lengths, constant("least_cosine", np.float32(1e-6))], "ab.bounded")
    cosine = node("Div", [dot(a, b, "dot"), bounded], "cosine")
    scales = weights.tensors["scales"]
    cls = node("Gather", [x, constant("zero", np.array(0, np.int64))], "cls", axis=1)
    weight = constant("linear.weight", np.ascontiguousarray(weights.tensors["linear.weight"].T))
    plain = node("MatMul", [cls, weight], "linear.product")
    biased = node("Add", [plain, constant("linear.bias", weights.tensors["linear.bias"])], "linear")
    near = node("Mul", [cosine, constant("scale_mean", np.float32(scales[0]))], "near")
    found = node("Mul", [late, constant("scale_late", np.float32(scales[1]))], "found")
    return node("Add", [node("Add", [biased, near], "biased_near"), found], "logits")


def read_weights(path: Path) -> TrainedWeights:
    """Read what `joint_encoder.save` wrote."""
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        tensors = {name: np.asarray(file.get_tensor(name), np.float32) for name in file.keys()}  # noqa: SIM118
        return TrainedWeights(tensors, file.metadata())


def write_folder(
    weights: TrainedWeights, tokenizer: Path, folder: Path, precision: Precision, manifest: Mapping[str, Any]
) -> None:
    """Write the three files of a model's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(cross_encoder_model(weights, precision).SerializeToString(deterministic=True))
    settings = json.loads(tokenizer.read_text(encoding="utf-8"))
    settings["padding"] = settings["truncation"] = None
    (folder / "tokenizer.json").write_text(
        json.dumps(settings, ensure_ascii=False, separators=(",", ":")), encoding="utf-8"
    )
    files = {}
    for name in ("model.onnx", "tokenizer.json"):
        content = (folder / name).read_bytes()
        files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    whole = {
        "version": "1",
        "kind": "onnx-cross-encoder",
        "languages": ["en"],
        "max_tokens": weights.positions,
        "activation": "none",
        "precision": precision,
        "layers": weights.layers,
        **manifest,
        "files": files,
    }
    (folder / "manifest.json").write_text(json.dumps(whole, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Read the arguments and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json of the sentence encoder")
    parser.add_argument("--name", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--precision", default="int8", help="int8, int4 or fp32")
    args = parser.parse_args()
    sources = [
        {"what": "all-MiniLM-L6-v2, the start", "licence": "Apache-2.0"},
        {"what": "emorynlp/selqa", "licence": "Apache-2.0"},
        {"what": "HIT-SCIR/Molweni", "licence": "Apache-2.0"},
    ]
    manifest = {"name": args.name, "licence": "Apache-2.0", "sources": sources}
    write_folder(read_weights(args.weights), args.tokenizer, args.out, checked_precision(args.precision), manifest)


if __name__ == "__main__":
    main()
