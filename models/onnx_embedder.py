"""Embeds text with any ONNX encoder: pooled over its tokens, batched by length, the same whatever stands beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.models.files import ModelFilesError
from jiyi.models.onnx_batches import BATCH_TOKENS, encoder_feeds, plan_batches
from jiyi.models.onnx_folder import EMBEDDER, POOLINGS, OnnxFolder, read_onnx_folder
from jiyi.models.onnx_session import DAMAGED, Session, open_session
from jiyi.models.onnx_tokens import TextTokenizer, TokenIds

__all__ = ["OnnxEmbedder"]

# Texts cut into tokens before the first runs: enough to find neighbours of like length, few enough to hold.
CHUNK: Final = 4_096
# Below this a vector has no direction left to scale to length 1.
_TINY_NORM: Final = 1e-12


class OnnxEmbedder:
    """An `Embedder` over a folder with `model.onnx` and `tokenizer.json`. Safe to share between threads.

    A text is read up to `max_tokens`; what is longer is cut at its end. Texts without a token (empty, blank, control
    characters only) have a zero row. Identical texts are embedded once a call.

    The same text has the same vector whatever the batch: to 1e-4 with fp32 weights (half precision, which only a GPU
    takes, rounds at 1e-3). A model whose activations are quantised with one scale a batch (dynamic int8) runs one text
    at a time on the CPU, which is as fast there and makes its vectors equal to the bit: in batches of 16 texts of like
    length, a six-layer model's had a cosine of as little as 0.95 to what they were alone.

    Attributes:
        degraded: what was asked for and could not be had, one sentence each.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        device: str = "auto",
        threads: int | None = None,
        pooling: str | None = None,
        normalize: bool | None = None,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
        max_tokens: int | None = None,
        name: str | None = None,
    ) -> None:
        """Load a model.

        Args:
            folder: as `read_onnx_folder` reads it; what it says holds unless an argument says otherwise.
            device: "auto", "cpu", "cuda" or "cuda:N" (see `open_session`).
            threads: threads it may use; None takes the cores the process may use.
            pooling: "mean" (over a text's tokens), "cls" (the first) or "last".
            normalize: scale vectors to length 1.
            query_prefix: put before a query, such as "query: ".
            passage_prefix: put before a memory.
            max_tokens: at which a text is cut, special tokens included, at least 8.
            name: what stores remember; None takes the manifest's, or the folder's name with a digest of the model and
                of these settings.

        Raises:
            ValueError: an argument is not one of those allowed.
            ModelFilesError: a file is missing or damaged, or the folder holds a model of another kind.
        """
        told = read_onnx_folder(folder, EMBEDDER)
        self._folder = _told_otherwise(told, pooling, normalize, query_prefix, passage_prefix, max_tokens)
        self._session: Session = open_session(told.model, device=device, threads=threads)
        self._tokenizer = TextTokenizer(told.tokenizer, told.model.parent / "tokenizer.json", told.pad_id)
        self._output, self._pooled = _choose_output(self._session)
        self._name = name or _name(self._folder, told)
        self.degraded = self._session.degraded
        self._batch_tokens = BATCH_TOKENS[self._session.device.partition(":")[0]]
        self._batch_rows = 1 if self._session.shared_scale and self._session.device == "cpu" else None
        prefixes = {self._folder.query_prefix, self._folder.passage_prefix}
        self._prefix_tokens = {prefix: len(self._tokenizer.ids(prefix, 64)) for prefix in prefixes}
        self._dim = self._find_dim()

    @property
    def name(self) -> str:
        """Name that a store's manifest keeps."""
        return self._name

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return self._dim

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed memories, with the passage prefix.

        Args:
            texts: n texts, anything at all.

        Returns:
            float32 array of shape (n, dim): unit rows (as the model gives them with `normalize` off); a zero row for a
            text without tokens.

        Raises:
            TypeError: `texts` is one string, or holds something that is not a string.
            FloatingPointError: the model gave a number that is not finite (half precision overflowed).
        """
        return self._embed(_checked(texts), self._folder.passage_prefix)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a query, with the query prefix: float32 array of shape (dim,), a zero one without tokens."""
        vector: NDArray[np.float32] = self._embed(_checked([text]), self._folder.query_prefix)[0]
        return vector

    def _embed(self, texts: list[str], prefix: str) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self._dim), np.float32)
        places: dict[str, list[int]] = {}
        for i, text in enumerate(texts):
            places.setdefault(text, []).append(i)
        distinct = list(places)
        for start in range(0, len(distinct), CHUNK):
            chunk = distinct[start : start + CHUNK]
            for text, vector in zip(chunk, self._vectors(chunk, prefix), strict=True):
                vectors[places[text]] = vector
        return vectors

    def _vectors(self, texts: Sequence[str], prefix: str) -> NDArray[np.float32]:
        """Embed texts of one chunk, all distinct."""
        rows = self._rows(texts, prefix)
        known = [i for i, row in enumerate(rows) if row is not None]
        tokens = [row for row in rows if row is not None]
        batches = plan_batches([len(row) for row in tokens], most_tokens=self._batch_tokens, most_rows=self._batch_rows)
        feeds = [encoder_feeds([tokens[i] for i in batch], self._tokenizer.pad_id) for batch in batches]
        vectors = np.zeros((len(texts), self._dim), np.float32)
        for batch, output in zip(batches, self._session.run_many(feeds, self._output), strict=True):
            for i, hidden in zip(batch, output, strict=True):
                vectors[known[i]] = hidden if self._pooled else self._pool(hidden[: len(tokens[i])])
        if not np.isfinite(vectors).all():
            raise FloatingPointError(f"{self._name} gave a vector that is not finite; run it in full precision")
        if self._folder.normalize:
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            np.divide(vectors, norms, out=vectors, where=norms > _TINY_NORM)
        return vectors

    def _rows(self, texts: Sequence[str], prefix: str) -> list[TokenIds | None]:
        """Return each text's ids with special tokens, or None where the text itself has no token."""
        single = self._tokenizer.single
        room = self._folder.max_tokens - len(single.prefix) - len(single.suffix)
        parallel = self._session.device != "cpu"
        rows: list[TokenIds | None] = []
        for text, ids in zip(
            texts, self._tokenizer.ids_many([prefix + text for text in texts], room, parallel=parallel), strict=True
        ):
            blank = not text or text.isspace()
            if blank or (len(ids) <= self._prefix_tokens[prefix] and not self._tokenizer.ids(text, 1)):
                rows.append(None)
            else:
                rows.append([*single.prefix, *ids, *single.suffix])
        return rows

    def _pool(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Pool one text's own tokens, float32 array of shape (length, dim): what padding holds is never read."""
        if self._folder.pooling == "mean":
            mean: NDArray[np.float32] = hidden.mean(axis=0)
            return mean
        pooled: NDArray[np.float32] = hidden[0 if self._folder.pooling == "cls" else -1]
        return pooled

    def _find_dim(self) -> int:
        """The output's last dimension, or what one short text gives where the model leaves that open."""
        declared = self._session.outputs[self._output][-1]
        if declared is None:
            single = self._tokenizer.single
            row = [*single.prefix, self._tokenizer.pad_id, *single.suffix]
            declared = self._session.run(encoder_feeds([row], self._tokenizer.pad_id), self._output).shape[-1]
        if self._folder.dim not in (None, declared):
            reason = f"gives vectors of {declared} numbers, its manifest says {self._folder.dim}"
            raise ModelFilesError(self._session.path, reason, DAMAGED)
        return int(declared)


def _checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str | bytes):
        raise TypeError("texts is one string; a sequence of strings is wanted, such as [text]")
    texts = list(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {i} is a {type(text).__name__}, not a string")
    return texts


def _told_otherwise(
    folder: OnnxFolder,
    pooling: str | None,
    normalize: bool | None,
    query_prefix: str | None,
    passage_prefix: str | None,
    max_tokens: int | None,
) -> OnnxFolder:
    if pooling not in (None, *POOLINGS):
        raise ValueError(f"pooling is {pooling!r:.80}; it can be {', '.join(map(repr, POOLINGS))}")
    if max_tokens is not None and not 8 <= max_tokens <= folder.max_tokens:
        raise ValueError(f"max_tokens is {max_tokens!r:.80}; this model takes 8 to {folder.max_tokens}")
    settings: dict[str, Any] = {
        "pooling": pooling,
        "normalize": normalize,
        "query_prefix": query_prefix,
        "passage_prefix": passage_prefix,
        "max_tokens": max_tokens,
    }
    return replace(folder, **{key: value for key, value in settings.items() if value is not None})


def _name(folder: OnnxFolder, told: OnnxFolder) -> str:
    """Vectors of other settings are other vectors: those an argument changed are part of the name."""
    if folder == told:
        return folder.name
    settings = (folder.pooling, folder.normalize, folder.query_prefix, folder.passage_prefix, folder.max_tokens)
    return f"{folder.name}+{hashlib.sha256(repr(settings).encode()).hexdigest()[:8]}"


def _choose_output(session: Session) -> tuple[str, bool]:
    """Return the output to read, and whether the model has pooled it already."""
    for names, rank, pooled in (
        (("last_hidden_state", "token_embeddings"), 3, False),
        ((), 3, False),
        (("sentence_embedding", "pooler_output"), 2, True),
        ((), 2, True),
    ):
        for name, shape in session.outputs.items():
            if len(shape) == rank and (name in names or not names):
                return name, pooled
    shapes = ", ".join(f"{name} {shape}" for name, shape in session.outputs.items())
    raise ModelFilesError(session.path, f"has no output of vectors ({shapes})", "use a model that embeds text")
