"""How much of a text a model can read: by the scripts it was made for and by the tokens it does not know."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from jiyi.models.onnx_tokens import TextTokenizer, whole_text
from jiyi.models.scripts import script_of, scripts_of_languages, scripts_of_vocabulary

__all__ = ["ReadableLetters"]

# Characters looked at: what a text is written in shows well before.
MOST_CHARS: Final = 2_000


class ReadableLetters:
    """Judges texts for one model. Safe to share between threads."""

    def __init__(self, tokenizer: TextTokenizer, languages: tuple[str, ...]) -> None:
        """Judge by a tokenizer, and by languages (ISO 639-1 codes, "*" for any) where any are given."""
        self._tokenizer = tokenizer
        self._languages = languages

    def known_share(self, text: str) -> float:
        """Return the share of a text's letters that the model can read.

        A letter can be read when its script is one of the model's (its languages', else those its vocabulary was made
        for: BERT's English one holds Han characters that it never learnt) and its token is not the unknown one. Of a
        long text the first 2,000 characters count.

        Returns:
            A number in [0, 1]; 1 for a text without letters.
        """
        text = whole_text(text[:MOST_CHARS])
        letters = [i for i, letter in enumerate(text) if script_of(letter)]
        if not letters:
            return 1.0
        readable = {i for i in letters if self._scripts is None or script_of(text[i]) in self._scripts}
        for start, end in self._tokenizer.unknown_spans(text):
            readable.difference_update(range(start, end))
        return len(readable) / len(letters)

    @cached_property
    def _scripts(self) -> frozenset[str] | None:
        """Scripts the model reads, None for any; found out when first asked for."""
        if self._languages:
            return scripts_of_languages(self._languages)
        return scripts_of_vocabulary(self._tokenizer.vocabulary())
