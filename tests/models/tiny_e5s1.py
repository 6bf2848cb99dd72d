"""Writes a small `E5S1` file of random weights, in the layout that `models/build/e5s1.py` documents."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HIDDEN, FEED_FORWARD, LAYERS, HEADS, POSITIONS = 64, 128, 2, 4, 16
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
PIECES = [
    *SPECIAL,
    *("▁", ",", ".", "～", "~", "1", "2", "▁12", "-", "<", ">", "/", "s", "</s", "!"),
    *("a", "b", "c", "t", "e", "▁a", "▁the", "▁cat", "ca", "at", "é", "query", ":", "▁query", "▁passage"),
    *("今", "天", "今天", "▁今天", "爬", "山", "爬山", "の", "ア", "▁α", "α"),
    *("д", "да", "▁да", "ا", "ال", "한", "αβ", "aд", "<mask>"),
]


def packed(values: NDArray[np.int8], scales: NDArray[np.float16]) -> bytes:
    """4-bit blocks of values -8 to 7 of shape (rows, columns), one scale for each 32 of a row."""
    out = bytearray()
    for block, scale in zip(values.reshape(-1, 32).tolist(), scales.ravel(), strict=True):
        out += scale.tobytes()
        out += bytes((block[i] + 8) | (block[i + 16] + 8) << 4 for i in range(16))
    return bytes(out)


def write_e5s1(path: Path, *, pieces: list[str] = PIECES, seed: int = 0) -> None:
    """Write a file of random weights that is a whole model of its own."""
    rng = np.random.default_rng(seed)
    matrices = {"emb.word": (len(pieces), HIDDEN)}
    vectors = {"emb.pos": POSITIONS * HIDDEN, "emb.type": 2 * HIDDEN, "emb.ln.w": HIDDEN, "emb.ln.b": HIDDEN}
    for layer in range(LAYERS):
        for name in ("q", "k", "v", "ao"):
            matrices[f"l{layer}.{name}.w"] = (HIDDEN, HIDDEN)
            vectors[f"l{layer}.{name}.b"] = HIDDEN
        matrices |= {f"l{layer}.fi.w": (FEED_FORWARD, HIDDEN), f"l{layer}.fo.w": (HIDDEN, FEED_FORWARD)}
        vectors |= {f"l{layer}.fi.b": FEED_FORWARD, f"l{layer}.fo.b": HIDDEN}
        vectors |= {f"l{layer}.{norm}.{part}": HIDDEN for norm in ("aln", "oln") for part in "wb"}
    bodies: dict[str, tuple[int, int, bytes]] = {}
    for name, shape in matrices.items():
        scales = rng.uniform(0.01, 0.05, (shape[0], shape[1] // 32)).astype(np.float16)
        values = rng.integers(-8, 8, shape).astype(np.int8)
        bodies[name] = (1, shape[0] * shape[1], packed(values, scales))
    for name, count in vectors.items():
        value = rng.standard_normal(count) * 0.3 + (1.0 if name.endswith("n.w") else 0.0)
        bodies[name] = (0, count, value.astype("<f4").tobytes())
    text = "".join(pieces).encode()
    ends = np.cumsum([0] + [len(piece.encode()) for piece in pieces]).astype("<u4")
    scores = np.where(np.arange(len(pieces)) < 4, 0.0, -rng.uniform(3, 12, len(pieces))).astype("<f4")
    head = b"E5S1" + struct.pack("<i", 1)
    head += struct.pack("<7ifi", HIDDEN, LAYERS, HEADS, FEED_FORWARD, len(pieces), POSITIONS, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, len(text)) + ends.tobytes() + scores.tobytes() + text
    head += struct.pack("<iI", 0, 0) + struct.pack("<i", len(bodies))
    at = len(head) + sum(2 + len(name) + 21 for name in bodies)
    for name, (packing, count, body) in bodies.items():
        head += struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", packing, count, at, len(body))
        at += len(body)
    path.write_bytes(head + b"".join(body for _, _, body in bodies.values()))
