"""Scores how relevant texts are to queries with any ONNX cross-encoder, best candidates first within a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.models.files import ModelFilesError
from jiyi.models.onnx_batches import BATCH_TOKENS, encoder_feeds, plan_batches
from jiyi.models.onnx_cost import CostEstimate, batch_work
from jiyi.models.onnx_folder import ACTIVATIONS, CROSS_ENCODER, read_onnx_folder
from jiyi.models.onnx_pairs import PairCutter, PairRows
from jiyi.models.onnx_session import Session, open_session
from jiyi.models.onnx_tokens import TextTokenizer, TokenIds
from jiyi.models.readable import ReadableLetters
from jiyi.models.score_cache import ScoreCache, pair_key

__all__ = ["LOWEST_LOGIT", "OnnxCrossEncoder"]

LOWEST_LOGIT: Final = -20.0
"""Score of a pair without a token in its query or its text, before the activation: below what models give a pair (the
ms-marco family ends near -12), and finite, so that scaling a list with it leaves the others apart."""

# Pairs cut into tokens before the first runs; with a deadline few at first, then twice as many each time.
CHUNK: Final = 4_096
FIRST_CHUNK: Final = 8
# Pairs run to learn the speed, where nothing was run before a deadline.
PROBE: Final = 2

_Pair = tuple[str, str]


class OnnxCrossEncoder:
    """A `CrossEncoder` and `BudgetedCrossEncoder` over a folder with `model.onnx` and `tokenizer.json`.

    The query is kept whole, up to half of `max_tokens` (a longer one keeps its last tokens); a text that does not fit
    beside it is scored in windows, each half covered by the next, at most 8, and has the highest of their scores. A
    query or text without a token (empty, blank) scores lowest: `LOWEST_LOGIT`, 0 to three digits after a sigmoid.

    A model of two logits scores the positive one less the other, the log odds; a sigmoid of it is the softmax's
    probability. Equal pairs are scored once, and the scores used last are remembered.

    The same pair has the same score whatever the batch: to 1e-4 with fp32 weights (half precision, which only a GPU
    takes, rounds at 1e-3). A model whose activations are quantised with one scale a batch (dynamic int8) runs one pair
    at a time on the CPU, which is as fast there and makes its scores equal to the bit: in batches of 16 pairs of like
    length a six-layer model's moved by up to 0.05 where all spread over 1.2 (`benches/test_cross_encoder.py`).

    Safe to share between threads.

    Attributes:
        degraded: what was asked for and could not be had, one sentence each.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        device: str = "auto",
        threads: int | None = None,
        cache_pairs: int = 20_000,
        activation: str | None = None,
        max_tokens: int | None = None,
        languages: Sequence[str] | None = None,
        name: str | None = None,
    ) -> None:
        """Load a model.

        Args:
            folder: as `read_onnx_folder` reads it; what it says holds unless an argument says otherwise.
            device: "auto", "cpu", "cuda" or "cuda:N" (see `open_session`).
            threads: threads it may use; None takes the cores the process may use.
            cache_pairs: scores remembered, about 150 bytes each; 0 remembers none.
            activation: "sigmoid" (scores in [0, 1]) or "none" (logits).
            max_tokens: tokens of a pair, special ones included, at least 16.
            languages: ISO 639-1 codes it can read, ["*"] for any; without any, here or in the folder, its vocabulary
                tells.
            name: for explanations; None takes the manifest's, or the folder's name with a digest of the model.

        Raises:
            ValueError: an argument is not one of those allowed.
            ModelFilesError: a file is missing or damaged, or the folder holds a model of another kind.
        """
        told = read_onnx_folder(folder, CROSS_ENCODER)
        if activation not in (None, *ACTIVATIONS):
            raise ValueError(f"activation is {activation!r:.80}; it can be {', '.join(map(repr, ACTIVATIONS))}")
        if max_tokens is not None and not 16 <= max_tokens <= told.max_tokens:
            raise ValueError(f"max_tokens is {max_tokens!r:.80}; this model takes 16 to {told.max_tokens}")
        if isinstance(languages, str):
            raise TypeError(f"languages is one string; a sequence is wanted, such as [{languages[:80]!r}]")
        self._cache = ScoreCache(cache_pairs)
        self._session: Session = open_session(told.model, device=device, threads=threads)
        self._tokenizer = TextTokenizer(told.tokenizer, told.model.parent / "tokenizer.json", told.pad_id)
        self._cutter = PairCutter(self._tokenizer, max_tokens or told.max_tokens)
        self._output = _choose_output(self._session)
        self._positive = 1 if told.positive_logit is None else told.positive_logit
        self._sigmoid = (activation or told.activation) == "sigmoid"
        self._lowest = float(self._activate(np.array([LOWEST_LOGIT]))[0])
        self._letters = ReadableLetters(self._tokenizer, told.languages if languages is None else tuple(languages))
        self._name = name or told.name
        self._cost = CostEstimate()
        self._batch_tokens = BATCH_TOKENS[self._session.device.partition(":")[0]]
        self._batch_rows = 1 if self._session.shared_scale and self._session.device == "cpu" else None
        self.degraded = self._session.degraded

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._name

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Score texts for one query.

        Args:
            query: anything at all.
            texts: n texts, anything at all.

        Returns:
            float32 array of shape (n,): higher is more relevant; in [0, 1] after a sigmoid.

        Raises:
            TypeError: `texts` is one string, or something is not a string.
        """
        if isinstance(texts, str | bytes):
            raise TypeError("texts is one string; a sequence of strings is wanted, such as [text]")
        return self.score_pairs([(query, text) for text in texts])

    def score_pairs(self, pairs: Sequence[_Pair], *, deadline: float | None = None) -> NDArray[np.float32]:
        """Score pairs of query and text, in batches across queries.

        With a deadline pairs are run in the order given, a few at first, then more at a time; a batch that would not be
        done in time by what the ones before it took is not started. Remembered scores cost nothing and always come.

        Args:
            pairs: n pairs (query, text), the best candidates first.
            deadline: a `time.perf_counter()` value; None scores all.

        Returns:
            float32 array of shape (n,): higher is more relevant; NaN for a pair not reached in time.

        Raises:
            TypeError: something is not a pair of strings.
            FloatingPointError: the model gave a number that is not finite (half precision overflowed).
        """
        scores = np.full(len(pairs), np.nan, np.float32)
        places: dict[bytes, list[int]] = {}
        waiting: dict[bytes, _Pair] = {}
        for i, pair in enumerate(pairs):
            query, text = _checked(i, pair)
            key = pair_key(query, text)
            places.setdefault(key, []).append(i)
            if key in waiting:
                continue
            known = self._cache.get(key)
            if known is None and (_blank(query) or _blank(text)):
                known = self._lowest
            if known is None:
                waiting[key] = (query, text)
            else:
                scores[i] = known
                places[key] = []
        for key, score in self._score_waiting(waiting, deadline).items():
            scores[places[key]] = score
        return scores

    def knows(self, text: str) -> float:
        """Return the share of a text's letters that the model can read.

        A letter can be read when its script is one of the model's (its languages', else those its vocabulary was made
        for: BERT's English one holds Han characters that it never learnt) and its token is not the unknown one. Of a
        long text the first 2,000 characters count.

        Returns:
            A number in [0, 1]; 1 for a text without letters.
        """
        return self._letters.known_share(text)

    def _score_waiting(self, waiting: dict[bytes, _Pair], deadline: float | None) -> dict[bytes, float]:
        """Score pairs chunk by chunk, until done or out of time."""
        scores: dict[bytes, float] = {}
        queries: dict[str, TokenIds] = {}
        texts: dict[str, TokenIds] = {}
        size = CHUNK if deadline is None else FIRST_CHUNK
        left = iter(waiting.items())
        if deadline is not None and self._cost.seconds(1.0) is None:
            size = PROBE
        while chunk := dict(islice(left, size)):
            if deadline is not None and time.perf_counter() >= deadline:
                break
            if size >= CHUNK:
                texts.clear()
            new = list(dict.fromkeys(text for _, text in chunk.values() if text not in texts))
            texts.update(zip(new, self._cutter.texts(new, parallel=self._session.device != "cpu"), strict=True))
            cut = {key: self._cut(pair, queries, texts) for key, pair in chunk.items()}
            scores.update(dict.fromkeys((key for key, rows in cut.items() if rows is None), self._lowest))
            rows = {key: rows for key, rows in cut.items() if rows is not None}
            done = self._run(self._fitting(rows, deadline), deadline)
            for key, score in done.items():
                self._cache.put(key, score)
            scores.update(done)
            if len(done) < len(rows):
                if not done:
                    self._cost.doubt()
                break
            size = min(CHUNK, max(FIRST_CHUNK, 2 * size))
        return scores

    def _fitting(self, pairs: dict[bytes, PairRows], deadline: float | None) -> dict[bytes, PairRows]:
        """Return the first pairs, as many as are expected to be done in time."""
        left = None if deadline is None else deadline - time.perf_counter()
        work = 0.0
        for count, rows in enumerate(pairs.values()):
            work += sum(batch_work(1, len(ids)) for ids in rows.ids)
            expected = self._cost.seconds(work)
            if left is not None and expected is not None and expected > left:
                return dict(islice(pairs.items(), count))
        return pairs

    def _cut(self, pair: _Pair, queries: dict[str, TokenIds], texts: dict[str, TokenIds]) -> PairRows | None:
        """Join a pair, its text already cut, its query cut once; None where one of them has no token."""
        query, text = pair
        if query not in queries:
            queries[query] = self._cutter.query(query)
        if not queries[query] or not texts[text]:
            return None
        return self._cutter.rows(queries[query], texts[text])

    def _run(self, pairs: dict[bytes, PairRows], deadline: float | None) -> dict[bytes, float]:
        """Run the rows of some pairs in batches; without those of a pair whose rows were not all reached in time."""
        owners = [key for key, rows in pairs.items() for _ in rows.ids]
        ids = [row for rows in pairs.values() for row in rows.ids]
        types = [row for rows in pairs.values() for row in rows.types]
        batches = plan_batches([len(row) for row in ids], most_tokens=self._batch_tokens, most_rows=self._batch_rows)
        logits = np.zeros(len(ids))
        reached = np.zeros(len(ids), bool)
        # As many at a time as run at once, so that the clock is looked at between them.
        step = len(batches) if deadline is None else max(1, self._session.threads)
        for start in range(0, len(batches), max(1, step)):
            wave = batches[start : start + step]
            work = sum(batch_work(len(batch), max(len(ids[i]) for i in batch)) for batch in wave)
            begun = time.perf_counter()
            if deadline is not None and begun + (self._cost.seconds(work) or 0.0) > deadline:
                break
            pad_id = self._tokenizer.pad_id
            feeds = [encoder_feeds([ids[i] for i in b], pad_id, [types[i] for i in b]) for b in wave]
            for batch, output in zip(wave, self._session.run_many(feeds, self._output), strict=True):
                logits[batch] = self._logits(output)
                reached[batch] = True
            self._cost.observe(work, time.perf_counter() - begun)
        if not np.isfinite(logits).all():
            raise FloatingPointError(f"{self._name} gave a score that is not finite; run it in full precision")
        unreached = {owners[i] for i in np.flatnonzero(~reached)}
        scores: dict[bytes, float] = {}
        for key, score in zip(owners, self._activate(logits).tolist(), strict=True):
            if key not in unreached:
                scores[key] = max(score, scores.get(key, score))
        return scores

    def _logits(self, output: NDArray[Any]) -> NDArray[np.float64]:
        """One number a row: the only logit, or the positive one less the other."""
        values = np.asarray(output, np.float64)
        values = values.reshape(len(values), -1)
        if values.shape[1] == 1:
            return values[:, 0]
        if values.shape[1] == 2:
            difference: NDArray[np.float64] = values[:, self._positive] - values[:, 1 - self._positive]
            return difference
        raise _not_a_cross_encoder(self._session, f"gives {values.shape[1]} numbers a pair")

    def _activate(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1.0 / (1.0 + np.exp(-np.clip(logits, -500, 500))) if self._sigmoid else logits


def _checked(i: int, pair: Any) -> _Pair:
    if isinstance(pair, str) or len(pair) != 2:
        raise TypeError(f"pair {i} is {pair!r:.60}, not a pair of query and text")
    for what, value in zip(("query", "text"), pair, strict=True):
        if not isinstance(value, str):
            raise TypeError(f"the {what} of pair {i} is a {type(value).__name__}, not a string")
    return pair[0], pair[1]


def _blank(text: str) -> bool:
    return not text or text.isspace()


def _choose_output(session: Session) -> str:
    """Return the first output of one or two numbers a row."""
    for name, shape in session.outputs.items():
        if len(shape) == 1 or (len(shape) == 2 and shape[1] in (1, 2, None)):
            return str(name)
    shapes = ", ".join(f"{name} {shape}" for name, shape in session.outputs.items())
    raise _not_a_cross_encoder(session, f"has no output of one or two numbers a pair ({shapes})")


def _not_a_cross_encoder(session: Session, reason: str) -> ModelFilesError:
    return ModelFilesError(session.path, reason, "use a model that scores pairs of query and text")
