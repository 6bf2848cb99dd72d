"""Cuts pairs of query and text for a cross-encoder: the query whole, the text in windows where it is long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from jiyi.models.onnx_tokens import TextTokenizer, TokenIds

__all__ = ["PairCutter", "PairRows"]

# A text of more windows is read no further: with 512 tokens, after some 2,200 of them.
MAX_WINDOWS: Final = 8


@dataclass(frozen=True, slots=True)
class PairRows:
    """What a model is shown for a pair: one row, or one for each window of a long text.

    Attributes:
        ids: token ids of each row, special ones included.
        types: token types of each row, as many.
    """

    ids: Sequence[TokenIds]
    types: Sequence[TokenIds]


class PairCutter:
    """Cuts pairs for one model. Safe to share between threads."""

    def __init__(self, tokenizer: TextTokenizer, max_tokens: int) -> None:
        """Read the template of a pair from the tokenizer.

        Args:
            tokenizer: the model's.
            max_tokens: tokens a row may have, special ones included.

        Raises:
            ModelFilesError: the tokenizer has no template for pairs.
        """
        self._tokenizer = tokenizer
        self._template = tokenizer.pair()
        self._room = max_tokens - self._template.specials
        self._query_room = self._room // 2

    def query(self, query: str) -> TokenIds:
        """Cut a query: all of it, or the last tokens that fit half of a row (its end says what is asked)."""
        return self._tokenizer.last_ids(query, self._query_room)

    def texts(self, texts: Sequence[str], *, parallel: bool = False) -> list[TokenIds]:
        """Cut texts, as far as windows beside the shortest query would read them."""
        most = self._room + (MAX_WINDOWS - 1) * (self._room // 2)
        return self._tokenizer.ids_many(texts, most, parallel=parallel)

    def rows(self, query: TokenIds, text: TokenIds) -> PairRows:
        """Join a query and a text, both cut.

        A text that does not fit beside the query is shown in windows, each half covered by the next, the last one
        ending with the text; at most 8.
        """
        room = self._room - len(query)
        step = max(1, room // 2)
        text = text[: room + (MAX_WINDOWS - 1) * step]
        last = max(0, len(text) - room)
        joined = [self._template.join(query, text[start : start + room]) for start in [*range(0, last, step), last]]
        return PairRows([ids for ids, _ in joined], [types for _, types in joined])
