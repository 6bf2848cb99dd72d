"""The scripts in `models/build/`: not installed, so they are loaded from the tree."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("scipy", reason="needs the extra build-models")
HIDDEN, FEED_FORWARD, LAYERS, HEADS, POSITIONS = 32, 64, 2, 4, 8
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁a", "徒"]


@pytest.fixture(scope="module")
def build() -> Iterator[ModuleType]:
    folder = str(Path(__file__).parents[2] / "models" / "build")
    sys.path.insert(0, folder)
    try:
        import build_static

        yield build_static
    finally:
        sys.path.remove(folder)


def pack(matrix: NDArray[np.int8], scale: float) -> bytes:
    """4-bit blocks of a matrix of whole numbers from -8 to 7."""
    out = b""
    for block in matrix.reshape(-1, 32).tolist():
        out += np.float16(scale).tobytes()
        out += bytes((block[i] + 8) | (block[i + 16] + 8) << 4 for i in range(16))
    return out


@pytest.fixture(scope="module")
def tensors() -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(3)
    shapes: dict[str, tuple[int, ...]] = {"emb.word": (len(PIECES), HIDDEN), "emb.pos": (POSITIONS * HIDDEN,)}
    shapes |= {"emb.type": (2 * HIDDEN,), "emb.ln.w": (HIDDEN,), "emb.ln.b": (HIDDEN,)}
    for layer in range(LAYERS):
        for name, (rows, columns) in {
            "q": (HIDDEN, HIDDEN),
            "k": (HIDDEN, HIDDEN),
            "v": (HIDDEN, HIDDEN),
            "ao": (HIDDEN, HIDDEN),
            "fi": (FEED_FORWARD, HIDDEN),
            "fo": (HIDDEN, FEED_FORWARD),
        }.items():
            shapes[f"l{layer}.{name}.w"] = (rows, columns)
            shapes[f"l{layer}.{name}.b"] = (rows,)
        for name in ("aln", "oln"):
            shapes[f"l{layer}.{name}.w"] = shapes[f"l{layer}.{name}.b"] = (HIDDEN,)
    return {
        name: rng.integers(-8, 8, shape) * 0.0625 if len(shape) == 2 else rng.standard_normal(shape).astype("f4") * 0.5
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="module")
def model_file(tensors: dict[str, NDArray[np.float64]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = "".join(PIECES).encode()
    ends = np.cumsum([0] + [len(piece.encode()) for piece in PIECES]).astype("<u4")
    head = b"E5S1" + struct.pack("<i", 1)
    head += struct.pack("<7ifi", HIDDEN, LAYERS, HEADS, FEED_FORWARD, len(PIECES), POSITIONS, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, len(text)) + ends.tobytes()
    head += np.arange(len(PIECES), dtype="<f4").tobytes() + text
    head += struct.pack("<iI", 1, 5) + b"skip!" + struct.pack("<i", len(tensors))
    bodies = {
        name: pack(np.round(value / 0.0625).astype(np.int8), 0.0625)
        if value.ndim == 2
        else value.astype("<f4").tobytes()
        for name, value in tensors.items()
    }
    at = len(head) + sum(2 + len(name) + 21 for name in tensors)
    for name, value in tensors.items():
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", value.ndim == 2, value.size, at, len(bodies[name]))
        at += len(bodies[name])
    path = tmp_path_factory.mktemp("e5s1") / "tiny.bin"
    path.write_bytes(head + b"".join(bodies.values()))
    return path


def test_reader_finds_everything(build: ModuleType, model_file: Path, tensors: dict[str, NDArray[np.float64]]) -> None:
    weights = build.read_e5s1(model_file)
    assert weights.pieces == PIECES
    assert weights.scores.tolist() == [0, 1, 2, 3, 4, 5]
    assert weights.names() == list(tensors)
    assert (weights.config.bos, weights.config.pad, weights.config.eos, weights.config.unk) == (0, 1, 2, 3)
    for name, value in tensors.items():
        read = weights.matrix(name, value.shape[1]) if value.ndim == 2 else weights.vector(name)
        np.testing.assert_allclose(read, value, atol=1e-7)
    with pytest.raises(ValueError, match="not float32"):
        weights.vector("emb.word")
    with pytest.raises(ValueError, match="not a 4-bit matrix"):
        weights.matrix("emb.pos", HIDDEN)


def test_reader_refuses_other_formats(build: ModuleType, model_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.bin"
    other.write_bytes(b"GGUF" + model_file.read_bytes()[4:])
    with pytest.raises(ValueError, match="GGUF"):
        build.read_e5s1(other)


def oracle(tensors: dict[str, NDArray[np.float64]], ids: list[int]) -> NDArray[np.float64]:
    """BERT's forward pass spelled out in float64, one position at a time."""

    def norm(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        return (x - x.mean()) / math.sqrt(x.var() + 1e-12) * tensors[f"{name}.w"] + tensors[f"{name}.b"]

    def linear(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        return tensors[f"{name}.w"] @ x + tensors[f"{name}.b"]

    position = tensors["emb.pos"].reshape(POSITIONS, HIDDEN)
    states = [
        norm(tensors["emb.word"][piece] + position[i] + tensors["emb.type"][:HIDDEN], "emb.ln")
        for i, piece in enumerate(ids)
    ]
    size = HIDDEN // HEADS
    for layer in range(LAYERS):
        p = f"l{layer}."
        keys = [linear(x, p + "k") for x in states]
        values = [linear(x, p + "v") for x in states]
        after = []
        for x in states:
            query, mixed = linear(x, p + "q"), np.zeros(HIDDEN)
            for head in range(HEADS):
                part = slice(head * size, (head + 1) * size)
                weights = np.exp([query[part] @ key[part] / math.sqrt(size) for key in keys])
                mixed[part] = sum(w * value[part] for w, value in zip(weights / weights.sum(), values, strict=True))
            x = norm(x + linear(mixed, p + "ao"), p + "aln")
            inner = np.array([0.5 * y * (1 + math.erf(y / math.sqrt(2))) for y in linear(x, p + "fi")])
            after.append(norm(x + linear(inner, p + "fo"), p + "oln"))
        states = after
    return np.array(states)


def test_forward_pass_is_berts(build: ModuleType, model_file: Path, tensors: dict[str, NDArray[np.float64]]) -> None:
    model = build.E5Model(build.read_e5s1(model_file))
    ids = [[0, 4, 5, 2], [0, 5, 5, 2], [0, 3, 4, 2]]
    states = model.hidden_states(np.array(ids))
    assert states.dtype == np.float32
    for got, text in zip(states, ids, strict=True):
        np.testing.assert_allclose(got, oracle(tensors, text), atol=2e-4)
    pooled = model.mean_pooled([(4, 5), (4,), (5, 5), ()], batch_pieces=4)
    for got, text in zip(pooled, [[0, 4, 5, 2], [0, 4, 2], [0, 5, 5, 2], [0, 2]], strict=True):
        np.testing.assert_allclose(got, oracle(tensors, text).mean(axis=0), atol=2e-4)
    with pytest.raises(ValueError, match="8 positions"):
        model.hidden_states(np.zeros((1, 9), np.int64))


def test_codes_come_back_near_what_they_were(build: ModuleType) -> None:
    from jiyi.models.static import decode

    vectors = np.random.default_rng(1).standard_normal((50, build.DIM)) * np.geomspace(0.01, 100, 50)[:, None]
    codes, levels, scales = build.encode(vectors)
    decoded = decode(codes, levels) * scales[:, None]
    assert codes.shape == (50, build.DIM // 2)
    assert levels.dtype == np.int8
    # The rotation keeps every dot product; four bits keep 99 % of a normal variable's variance.
    cosines = (decoded @ decoded.T) / np.outer(*[np.linalg.norm(decoded, axis=1)] * 2)
    expected = (vectors @ vectors.T) / np.outer(*[np.linalg.norm(vectors, axis=1)] * 2)
    np.testing.assert_allclose(cosines, expected, atol=0.05)
    again = build.encode(vectors)
    assert all(np.array_equal(a, b) for a, b in zip((codes, levels, scales), again, strict=True))


def test_whitened_axes_have_variance_one(build: ModuleType) -> None:
    raw = np.random.default_rng(2).standard_normal((2000, 300)).astype(np.float32) * np.geomspace(1, 50, 300)
    whitened = build.whiten(raw.astype(np.float32))
    assert whitened.shape == (2000, build.DIM)
    np.testing.assert_allclose(whitened.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(whitened.T @ whitened / 2000, np.eye(build.DIM), atol=1e-6)


@pytest.mark.parametrize(
    ("british", "american"),
    [
        ("favourite", "favorite"),
        ("neighbourhood", "neighborhood"),
        ("centred", "centered"),
        ("theatres", "theaters"),
        ("travelling", "traveling"),
        ("analysed", "analyzed"),
        ("defence", "defense"),
        ("paediatric", "pediatric"),
        ("jewellery", "jewelry"),
        ("four", None),
        ("hour", None),
        ("red", None),
        ("exercise", None),
        ("rolling", None),
    ],
)
def test_american_spelling(build: ModuleType, british: str, american: str | None) -> None:
    from rows import american_spelling

    assert american_spelling(british) == american
