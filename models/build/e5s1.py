"""Read an `E5S1` file (4-bit multilingual-e5-small) and run it in float32 with numpy.

An `E5S1` file is little-endian: the magic and a version word; the shape (`E5Config`); the pieces with their
unigram scores; a normalisation table; then named tensors. A matrix is rows of blocks of 32 weights, each a
float16 scale and 16 bytes whose low nibbles are weights 0 to 15 and whose high nibbles are weights 16 to 31,
value = (nibble - 8) x scale. A vector is float32.

The network is an ordinary post-norm BERT encoder with exact GELU (Devlin et al. 2019). Positions start at 0:
the file has 512 of them, and the model it comes from is no XLM-R in this respect, although its pieces are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK", "E5Config", "E5Model", "E5Weights", "read_e5s1"]

BLOCK = 32
_BLOCK_BYTES = 2 + BLOCK // 2


@dataclass(frozen=True)
class E5Config:
    """The shape of the network and its special pieces."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    word_rows: int
    positions: int
    types: int
    layer_norm_eps: float
    bos: int
    eos: int
    pad: int
    unk: int


@dataclass(frozen=True)
class E5Weights:
    """An `E5S1` file in memory; tensors are decoded when asked for.

    Attributes:
        config: shape and special pieces.
        pieces: text of each piece, by id; `▁` (U+2581) marks a word's start.
        scores: float32 array of shape (pieces,), unigram log probabilities.
    """

    config: E5Config
    pieces: list[str]
    scores: NDArray[np.float32]
    _data: memoryview
    _directory: dict[str, tuple[int, int, int]]

    def names(self) -> list[str]:
        """Return the tensors' names, in file order."""
        return list(self._directory)

    def vector(self, name: str) -> NDArray[np.float32]:
        """Return a float32 tensor as it is stored, flat."""
        count, offset, size = self._directory[name]
        if size != 4 * count:
            raise ValueError(f"tensor {name!r} is not float32: {count} values in {size} bytes")
        return np.frombuffer(self._data, "<f4", count, offset)

    def blocks(self, name: str, columns: int) -> NDArray[np.uint8]:
        """Return a 4-bit matrix undecoded: uint8 array of shape (rows, bytes a row)."""
        count, offset, size = self._directory[name]
        row_bytes = columns // BLOCK * _BLOCK_BYTES
        rows = size // row_bytes
        if rows * row_bytes != size or rows * columns != count:
            raise ValueError(f"tensor {name!r} is not a 4-bit matrix of {columns} columns: {count} in {size} bytes")
        return np.frombuffer(self._data, np.uint8, size, offset).reshape(rows, row_bytes)

    def matrix(self, name: str, columns: int) -> NDArray[np.float32]:
        """Return a 4-bit matrix decoded: float32 array of shape (rows, columns)."""
        return decode_blocks(self.blocks(name, columns))

    def quantized(self, name: str, columns: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Return a 4-bit matrix as its parts, value = (nibble - 8) x scale of its block.

        Returns:
            scales: float32 array of shape (rows, columns / 32), each one of float16's values.
            nibbles: uint8 array of shape (rows, columns), values 0 to 15.
        """
        return _split_blocks(self.blocks(name, columns))


def decode_blocks(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode rows of 4-bit blocks, uint8 of shape (n, bytes a row), to float32 of shape (n, columns)."""
    scales, nibbles = _split_blocks(blocks)
    values = nibbles.reshape(*scales.shape, BLOCK).astype(np.float32)
    values -= 8.0
    values *= scales[:, :, None]
    return values.reshape(len(blocks), -1)


def _split_blocks(blocks: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    n = len(blocks)
    packed = np.ascontiguousarray(blocks).reshape(n, -1, _BLOCK_BYTES)
    scales = np.ascontiguousarray(packed[:, :, :2]).view("<f2")[:, :, 0].astype(np.float32)
    halves = packed[:, :, 2:]
    return scales, np.concatenate([halves & 15, halves >> 4], axis=2).reshape(n, -1)


def read_e5s1(path: Path) -> E5Weights:
    """Read an `E5S1` file.

    Raises:
        ValueError: the file is of another format or version, is cut short, or its blocks are not of 32 weights.
    """
    try:
        return _read(path, memoryview(path.read_bytes()))
    except struct.error as error:
        raise ValueError(f"{path}: the file is cut short ({error})") from error


def _read(path: Path, data: memoryview) -> E5Weights:
    magic, version = struct.unpack_from("<4si", data, 0)
    if magic != b"E5S1" or version != 1:
        raise ValueError(f"{path}: got magic {magic!r} version {version}, this reads b'E5S1' version 1")
    *shape, eps, block = struct.unpack_from("<7ifi", data, 8)
    if block != BLOCK:
        raise ValueError(f"{path}: got blocks of {block} weights, this reads blocks of {BLOCK}")
    at = 44
    pieces_n, bos, eos, pad, unk, text_bytes = struct.unpack_from("<5iQ", data, at)
    at += 28
    offsets = np.frombuffer(data, "<u4", pieces_n + 1, at)
    at += 4 * (pieces_n + 1)
    scores = np.frombuffer(data, "<f4", pieces_n, at)
    at += 4 * pieces_n
    text = bytes(data[at : at + text_bytes])
    at += text_bytes
    bounds = offsets.tolist()
    pieces = [text[a:b].decode("utf-8") for a, b in pairwise(bounds)]
    _, table_bytes = struct.unpack_from("<iI", data, at)
    at += 8 + table_bytes
    (tensors,) = struct.unpack_from("<i", data, at)
    at += 4
    directory: dict[str, tuple[int, int, int]] = {}
    for _ in range(tensors):
        (length,) = struct.unpack_from("<H", data, at)
        name = bytes(data[at + 2 : at + 2 + length]).decode("utf-8")
        _, count, offset, size = struct.unpack_from("<BIQQ", data, at + 2 + length)
        directory[name] = (count, offset, size)
        at += 2 + length + 21
    hidden, layers, heads, feed_forward, word_rows, positions, types = shape
    config = E5Config(
        hidden=hidden,
        layers=layers,
        heads=heads,
        feed_forward=feed_forward,
        word_rows=word_rows,
        positions=positions,
        types=types,
        layer_norm_eps=eps,
        bos=bos,
        eos=eos,
        pad=pad,
        unk=unk,
    )
    return E5Weights(config, pieces, scores, data, directory)


class E5Model:
    """The encoder's forward pass in float32, for short texts in batches of one length."""

    def __init__(self, weights: E5Weights) -> None:
        """Decode every tensor but the word rows, which stay packed (384 MB otherwise).

        Raises:
            ImportError: SciPy is missing, which only this reference needs.
        """
        from scipy.special import erf  # not above: reading the file needs none

        self._erf = erf
        c = weights.config
        self.config = c
        self.weights = weights
        self._word = weights.blocks("emb.word", c.hidden)
        self._position = weights.vector("emb.pos").reshape(c.positions, c.hidden)
        self._type = weights.vector("emb.type").reshape(c.types, c.hidden)[0]
        self._norm = (weights.vector("emb.ln.w"), weights.vector("emb.ln.b"))
        self._layers = [self._layer(f"l{i}.") for i in range(c.layers)]

    def _layer(self, prefix: str) -> dict[str, NDArray[np.float32]]:
        w, c = self.weights, self.config

        def transposed(name: str, columns: int) -> NDArray[np.float32]:
            return np.ascontiguousarray(w.matrix(f"{prefix}{name}.w", columns).T)

        return {
            "qkv": np.ascontiguousarray(np.concatenate([transposed(n, c.hidden) for n in "qkv"], axis=1)),
            "qkv.b": np.concatenate([w.vector(f"{prefix}{n}.b") for n in "qkv"]),
            "ao": transposed("ao", c.hidden),
            "fi": transposed("fi", c.hidden),
            "fo": transposed("fo", c.feed_forward),
            **{f"{n}.b": w.vector(f"{prefix}{n}.b") for n in ("ao", "fi", "fo", "aln", "oln")},
            **{f"{n}.w": w.vector(f"{prefix}{n}.w") for n in ("aln", "oln")},
        }

    def _layer_norm(
        self, x: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        x = x - x.mean(axis=-1, keepdims=True)
        variance = np.einsum("ij,ij->i", x, x)[:, None] / np.float32(x.shape[-1])
        x *= 1.0 / np.sqrt(variance + np.float32(self.config.layer_norm_eps))
        x *= weight
        x += bias
        return x

    def hidden_states(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the last layer's states.

        Args:
            ids: int64 array of shape (n, length): pieces of n texts of one length, bos and eos included.

        Returns:
            float32 array of shape (n, length, hidden).
        """
        c = self.config
        n, length = ids.shape
        if length > c.positions:
            raise ValueError(f"got texts of {length} pieces, the model has {c.positions} positions: cut the texts")
        head = c.hidden // c.heads
        x = decode_blocks(self._word[ids.ravel()])
        x += np.tile(self._position[:length] + self._type, (n, 1))
        x = self._layer_norm(x, *self._norm)
        for p in self._layers:
            qkv: NDArray[np.float32] = x @ p["qkv"]
            qkv += p["qkv.b"]
            q, k, v = np.moveaxis(qkv.reshape(n, length, 3, c.heads, head), (2, 3), (0, 2))
            logits = np.matmul(q, np.swapaxes(k, -1, -2))
            logits *= np.float32(head**-0.5)
            logits -= logits.max(axis=-1, keepdims=True)
            np.exp(logits, out=logits)
            logits /= logits.sum(axis=-1, keepdims=True)
            heads = np.swapaxes(np.matmul(logits, v), 1, 2).reshape(n * length, c.hidden)
            mixed: NDArray[np.float32] = heads @ p["ao"]
            mixed += p["ao.b"]
            mixed += x
            x = self._layer_norm(mixed, p["aln.w"], p["aln.b"])
            inner: NDArray[np.float32] = x @ p["fi"]
            inner += p["fi.b"]
            gate = self._erf(inner * np.float32(0.5**0.5))
            gate += 1.0
            inner *= gate
            inner *= 0.5
            outer: NDArray[np.float32] = inner @ p["fo"]
            outer += p["fo.b"]
            outer += x
            x = self._layer_norm(outer, p["oln.w"], p["oln.b"])
        return x.reshape(n, length, c.hidden)

    def mean_pooled(self, texts: Sequence[Iterable[int]], batch_pieces: int = 768) -> NDArray[np.float32]:
        """Return the mean state of each text, bos and eos included, not normalised.

        Args:
            texts: the pieces of each text, without bos and eos.
            batch_pieces: pieces a batch; small batches stay in the cache.

        Returns:
            float32 array of shape (len(texts), hidden).
        """
        rows = [[self.config.bos, *text, self.config.eos] for text in texts]
        lengths = np.array([len(row) for row in rows])
        pooled = np.zeros((len(rows), self.config.hidden), np.float32)
        for length in np.unique(lengths):
            where = np.flatnonzero(lengths == length)
            step = max(1, batch_pieces // int(length))
            for start in range(0, len(where), step):
                part = where[start : start + step]
                pooled[part] = self.hidden_states(np.array([rows[i] for i in part], np.int64)).mean(axis=1)
        return pooled
