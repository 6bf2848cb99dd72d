"""A static embedder: a text's vector is the weighted mean of its tokens' rows in one small table.

No network runs, so a text costs microseconds. The table is multilingual-e5-small's, distilled by
`models/build/build_static.py` as model2vec does it (Tulkens & van Dongen 2024), the rows weighted by
a / (a + p) with p the token's frequency (SIF; Arora, Liang & Ma 2017).
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.models.files import MANIFEST, ModelFilesError, read_manifest, verify_files
from jiyi.models.table_tokenizer import TableTokenizer

__all__ = ["SHIPPED_FOLDER", "StaticEmbedder"]

SHIPPED_FOLDER: Final = Path(__file__).parent / "weights"
KIND: Final = "static-token-table"
CODES: Final = "codes.npy"
LEVELS: Final = "levels.npy"
SCALES: Final = "scales.npy"
WEIGHTS: Final = "weights.npy"
PIECE_SCORES: Final = "piece_scores.npy"
KEYS: Final = "keys.txt"
SIMPLIFIED: Final = "simplified.txt"
_DTYPES: Final = {CODES: "|u1", LEVELS: "|i1", SCALES: "<f4", WEIGHTS: "<f4", PIECE_SCORES: "<f4"}


class StaticEmbedder:
    """Embeds text with a token table; an `Embedder` and a `TokenTable`. Safe to share between threads."""

    _shipped: StaticEmbedder | None = None
    _lock = threading.Lock()

    def __init__(self, folder: Path) -> None:
        """Load and verify the table in a folder (about 0.3 s for the shipped one).

        Raises:
            ModelFilesError: a file is missing or damaged, or the folder holds a model of another kind.
        """
        manifest = read_manifest(folder)
        if manifest.kind != KIND:
            raise ModelFilesError(folder / MANIFEST, f"describes a model of kind {manifest.kind[:80]!r}, not {KIND!r}")
        contents = verify_files(folder, manifest)
        missing = {*_DTYPES, KEYS, SIMPLIFIED} - contents.keys()
        if missing:
            raise ModelFilesError(folder / MANIFEST, f"does not list {', '.join(sorted(missing))}")
        arrays = {name: _array(folder / name, contents.pop(name)) for name in _DTYPES}
        keys = contents[KEYS].decode("utf-8").split("\n")[:-1]
        shapes = {name: array.shape for name, array in arrays.items()}
        expected = dict.fromkeys(_DTYPES, (manifest.rows,)) | {CODES: (manifest.rows, manifest.dim // 2), LEVELS: (16,)}
        if shapes != expected or len(keys) != manifest.rows:
            raise ModelFilesError(folder, f"has arrays of shapes {shapes} and {len(keys)} keys, not {expected}")
        self._name = manifest.name
        self._table = decode(arrays[CODES], arrays[LEVELS])
        self._scales: NDArray[np.float32] = arrays[SCALES]
        self._weights: NDArray[np.float32] = arrays[WEIGHTS]
        self._inverse_norms = _inverse_norms(self._table)
        pairs = contents[SIMPLIFIED].decode("utf-8").split("\n")[:-1]
        self._tokenizer = TableTokenizer(keys, arrays[PIECE_SCORES], {pair[0]: pair[1] for pair in pairs})

    @staticmethod
    def _unlock() -> None:
        """In a forked child: whoever was loading the table is not here."""
        StaticEmbedder._lock = threading.Lock()

    @classmethod
    def load(cls) -> StaticEmbedder:
        """Return the table that ships with jiyi, loaded once a process."""
        with StaticEmbedder._lock:
            if StaticEmbedder._shipped is None:
                StaticEmbedder._shipped = StaticEmbedder(SHIPPED_FOLDER)
            return StaticEmbedder._shipped

    @property
    def name(self) -> str:
        """Name that a store's manifest keeps."""
        return self._name

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return int(self._table.shape[1])

    @property
    def table(self) -> NDArray[np.int8]:
        """int8 array of shape (rows, dim): row r's vector is `table[r] * scales[r]`."""
        return self._table

    @property
    def scales(self) -> NDArray[np.float32]:
        """float32 array of shape (rows,)."""
        return self._scales

    @property
    def inverse_norms(self) -> NDArray[np.float32]:
        """float32 array of shape (rows,): `table[r] * inverse_norms[r]` is a unit vector."""
        return self._inverse_norms

    @property
    def weights(self) -> NDArray[np.float32]:
        """float32 array of shape (rows,) in [0, 1]: a / (a + frequency)."""
        return self._weights

    def token_rows(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Cut texts into table rows (see `TokenTable.token_rows`)."""
        _check_texts(texts)
        return self._tokenizer.rows_of_texts(texts)

    def embed_rows(self, indptr: NDArray[np.int64], rows: NDArray[np.uint32]) -> NDArray[np.float32]:
        """Embed texts already cut (see `TokenTable.embed_rows`)."""
        from jiyi.kernels.pooling import mean_rows

        vectors: NDArray[np.float32] = mean_rows(self._table, self._scales, indptr, rows, self._weights)
        return vectors

    def embed_weighted(self, rows: NDArray[np.uint32], weights: NDArray[np.float64]) -> NDArray[np.float32]:
        """Embed one text with the caller's weights (see `TokenTable.embed_weighted`)."""
        from jiyi.kernels.pooling import mean_rows

        if rows.shape != weights.shape or rows.ndim != 1:
            raise ValueError(
                f"rows and weights must be flat and of one length, got shapes {rows.shape}, {weights.shape}"
            )
        each = np.arange(rows.size, dtype=np.uint32)
        whole = np.array([0, rows.size], dtype=np.int64)
        means = mean_rows(self._table[rows], self._scales[rows], whole, each, weights.astype(np.float32))
        vector: NDArray[np.float32] = means[0]
        return vector

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts (see `Embedder.embed`)."""
        return self.embed_rows(*self.token_rows(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a query as if it were a memory (see `Embedder.embed_query`)."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector

    def coverage(self, text: str) -> float:
        """Return the share of a text's letters and digits that the table knows, in [0, 1]; 1 if it has none."""
        return self._tokenizer.coverage(text)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=StaticEmbedder._unlock)


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise TypeError("texts must be a sequence of str, got one str: write [text]")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{i}] must be a str, got {type(text).__name__}")


def _array(path: Path, content: bytes) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    except ValueError as error:
        raise ModelFilesError(path, f"is not a .npy file ({error})") from error
    if array.dtype.str != _DTYPES[path.name] or not array.flags.c_contiguous:
        raise ModelFilesError(path, f"holds {array.dtype.str}, not C-contiguous {_DTYPES[path.name]}")
    return array


def decode(codes: NDArray[np.uint8], levels: NDArray[np.int8]) -> NDArray[np.int8]:
    """Unpack a table that is stored with 4 bits a coordinate, the even one in the low nibble.

    Sixteen well-placed levels lose nothing that retrieval can measure and halve the package.

    Args:
        codes: uint8 array of shape (rows, dim / 2).
        levels: int8 array of shape (16,).

    Returns:
        int8 array of shape (rows, dim).
    """
    byte = np.arange(256)
    pairs = np.stack([levels[byte & 15], levels[byte >> 4]], axis=1).view(np.int16).ravel()
    table: NDArray[np.int8] = pairs[codes].view(np.int8)
    return table


def _inverse_norms(table: NDArray[np.int8], step: int = 8192) -> NDArray[np.float32]:
    norms = np.empty(len(table), dtype=np.float32)
    for start in range(0, len(table), step):
        part = table[start : start + step].astype(np.float32)
        norms[start : start + step] = np.einsum("ij,ij->i", part, part)
    inverse: NDArray[np.float32] = np.reciprocal(np.sqrt(np.maximum(norms, 1, dtype=np.float32)))
    return inverse
