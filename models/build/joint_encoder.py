"""The cross-encoder: a small BERT over query and text together, and a head that starts as late interaction.

    score = w · h[CLS] + b + s₁ · cos(mean of the query's states, mean of the text's) + s₂ · MaxSim

MaxSim is the mean, over the query's tokens, of the best cosine among the text's tokens (Khattab & Zaharia 2020), here
over states of the *joint* encoding. w and b start at 0: before any training the network ranks like a late-interaction
sentence encoder, and training only has to improve on that. The encoder is a post-norm BERT (Devlin et al. 2019).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["JointEncoder", "Shape", "load", "load_sentence_encoder", "save"]


@dataclass(frozen=True)
class Shape:
    """The network's sizes."""

    vocabulary: int = 30_522
    hidden: int = 384
    layers: int = 6
    heads: int = 12
    feed_forward: int = 1536
    positions: int = 512
    epsilon: float = 1e-12


class Layer(nn.Module):  # type: ignore[misc]
    """Self-attention and a feed-forward network, each added to its input and normalised."""

    def __init__(self, shape: Shape) -> None:
        """Make the layer with random weights."""
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.mix = nn.Linear(shape.hidden, shape.hidden)
        self.mix_norm = nn.LayerNorm(shape.hidden, eps=shape.epsilon)
        self.inner = nn.Linear(shape.hidden, shape.feed_forward)
        self.outer = nn.Linear(shape.feed_forward, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=shape.epsilon)

    def forward(self, x: Tensor, bias: Tensor, dropout: float) -> Tensor:
        """Return the next states. x: (n, length, hidden); bias: (n, 1, 1, length), -inf-like at padding."""
        n, length, hidden = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) * (hidden // self.heads) ** -0.5 + bias, dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(n, length, hidden)
        x = self.mix_norm(x + functional.dropout(self.mix(mixed), dropout, self.training))
        inner = functional.gelu(self.inner(x))
        normed: Tensor = self.norm(x + functional.dropout(self.outer(inner), dropout, self.training))
        return normed


class JointEncoder(nn.Module):  # type: ignore[misc]
    """Query and text to one score."""

    def __init__(self, shape: Shape) -> None:
        """Make the network with random weights."""
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.vocabulary, shape.hidden)
        self.places = nn.Embedding(shape.positions, shape.hidden)
        self.parts = nn.Embedding(2, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=shape.epsilon)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.linear = nn.Linear(shape.hidden, 1)
        self.scales = nn.Parameter(torch.tensor([8.0, 12.0]))
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, ids: Tensor, mask: Tensor, parts: Tensor, dropout: float = 0.0) -> Tensor:
        """Return scores of shape (n,).

        Args:
            ids: int64 (n, length): [CLS] query [SEP] text [SEP], padded.
            mask: int64 (n, length), 1 where there is a token.
            parts: int64 (n, length), 0 for [CLS] query [SEP], 1 for text [SEP].
            dropout: share of the sums' terms that are left out while training.
        """
        length = ids.shape[1]
        x = self.words(ids) + self.places.weight[:length] + self.parts(parts)
        x = functional.dropout(self.norm(x), dropout, self.training)
        bias = (1.0 - mask.to(x.dtype))[:, None, None, :] * -1e4
        for layer in self.layers:
            x = layer(x, bias, dropout)
        query, text = _words_of(mask, parts)
        similarity = _cosines(x)
        best = (similarity + (text[:, None, :] - 1.0) * 4.0).amax(dim=2)
        late = (best * query).sum(1) / query.sum(1).clamp(min=1.0)
        mean = functional.cosine_similarity(_mean(x, query), _mean(x, text), dim=1, eps=1e-6)
        score: Tensor = self.linear(x[:, 0]).squeeze(1) + self.scales[0] * mean + self.scales[1] * late
        return score


def _words_of(mask: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
    """1.0 at the query's tokens and at the text's, special tokens left out."""
    kept, second = mask.to(torch.float32), (parts * mask).to(torch.float32)
    first = kept - second
    after = functional.pad(kept[:, 1:], (0, 1))  # the last token is [SEP]
    starts = functional.pad(second[:, 1:], (0, 1)) * first  # so is the last of the first part
    text = second * after
    query = first - starts
    query = torch.cat((torch.zeros_like(query[:, :1]), query[:, 1:]), dim=1)  # and [CLS]
    return query, text


def _cosines(x: Tensor) -> Tensor:
    unit = x / x.square().sum(-1, keepdim=True).clamp(min=1e-12).sqrt()
    return unit @ unit.transpose(1, 2)


def _mean(x: Tensor, weights: Tensor) -> Tensor:
    total = (weights[:, None, :] @ x).squeeze(1)
    return total / weights.sum(1, keepdim=True).clamp(min=1.0)


def load_sentence_encoder(folder: Path, layers: int) -> JointEncoder:
    """Return a network that starts from the first layers of a BERT sentence encoder (`model.safetensors`)."""
    weights = load_file(folder / "model.safetensors")
    shape = Shape(layers=layers)
    network = JointEncoder(shape)
    state = network.state_dict()
    state["words.weight"] = weights["embeddings.word_embeddings.weight"]
    state["places.weight"] = weights["embeddings.position_embeddings.weight"]
    # A sentence encoder has only ever seen the first part.
    state["parts.weight"] = weights["embeddings.token_type_embeddings.weight"][:1].repeat(2, 1)
    for end in ("weight", "bias"):
        state[f"norm.{end}"] = weights[f"embeddings.LayerNorm.{end}"]
        for i in range(layers):
            of, to = f"encoder.layer.{i}.", f"layers.{i}."
            parts = [weights[f"{of}attention.self.{name}.{end}"] for name in ("query", "key", "value")]
            state[f"{to}qkv.{end}"] = torch.cat(parts)
            for name, source in (
                ("mix", "attention.output.dense"),
                ("mix_norm", "attention.output.LayerNorm"),
                ("inner", "intermediate.dense"),
                ("outer", "output.dense"),
                ("norm", "output.LayerNorm"),
            ):
                state[f"{to}{name}.{end}"] = weights[f"{of}{source}.{end}"]
    network.load_state_dict(state)
    return network


def save(network: JointEncoder, path: Path) -> None:
    """Write the weights and the shape, whole or not at all."""
    aside = path.with_suffix(".tmp")
    shape = {name: str(value) for name, value in asdict(network.shape).items()}
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, aside, metadata=shape)
    aside.replace(path)


def load(path: Path, layers: tuple[int, ...] | None = None, feed_forward: int | None = None) -> JointEncoder:
    """Return a saved network, or a start for a smaller one.

    Args:
        path: what `save` wrote.
        layers: which of its layers are kept; all of them when None.
        feed_forward: how many inner units of each layer are kept: those with the largest product of the norms of the
            weights into them and out of them.
    """
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        metadata: dict[str, str] = file.metadata()
        state: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    sizes: dict[str, Any] = {name: int(value) for name, value in metadata.items() if name != "epsilon"}
    kept = tuple(range(sizes["layers"])) if layers is None else layers
    for name in [name for name in state if name.startswith("layers.")]:
        tensor, (_, number, rest) = state.pop(name), name.split(".", 2)
        if int(number) in kept:
            state[f"new.{kept.index(int(number))}.{rest}"] = tensor
    state = {name.replace("new.", "layers.", 1): tensor for name, tensor in state.items()}
    if feed_forward is not None:
        sizes["feed_forward"] = feed_forward
        for i in range(len(kept)):
            _narrow(state, f"layers.{i}.", feed_forward)
    network = JointEncoder(Shape(**{**sizes, "layers": len(kept), "epsilon": float(metadata["epsilon"])}))
    network.load_state_dict(state)
    return network


def _narrow(state: dict[str, Any], layer: str, units: int) -> None:
    into, out = state[f"{layer}inner.weight"], state[f"{layer}outer.weight"]
    strongest = (into.norm(dim=1) * out.norm(dim=0)).topk(units).indices.sort().values
    state[f"{layer}inner.weight"] = into[strongest]
    state[f"{layer}inner.bias"] = state[f"{layer}inner.bias"][strongest]
    state[f"{layer}outer.weight"] = out[:, strongest]
