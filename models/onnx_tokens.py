"""From text to the token ids an ONNX model takes: each text cut by itself, special tokens by the model's template.

The tokenizer file's own padding and truncation are switched off: a batch's arrays are built elsewhere, so that no state
of the tokenizer decides what a model sees. Texts are encoded one by one, except beside a GPU. `encode_batch` hands its
work to threads that a forked child does not have: with TOKENIZERS_PARALLELISM set the child hangs, without it the
library warns on standard error at every fork. On two busy cores it was no faster than the loop (92 and 100 µs a text).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jiyi.models.files import ModelFilesError

__all__ = ["PairTemplate", "SingleTemplate", "TextTokenizer", "TokenIds", "whole_text"]

TokenIds = list[int]

PARALLEL_TEXTS: Final = 256
"""Below this many texts, handing them to other threads is not worth it."""

# No more of a text is read than this many characters a token wanted: 4 to 5 are usual in English, 1 to 2 in Chinese.
CHARS_PER_TOKEN: Final = 16
_PAD_NAMES: Final = ("[PAD]", "<pad>", "<|endoftext|>")
_UNKNOWN_NAMES: Final = ("[UNK]", "<unk>")
_ADVICE: Final = "use the tokenizer.json that belongs to the model"
_PROBES: Final = ("a", "1", "的", ".")
_CANNOT_CUT: Final = "cannot cut a text into tokens"


@contextmanager
def _library_errors(path: Path, what: str) -> Iterator[None]:
    """Say of a fault inside the library which file it comes from.

    It raises ValueError for some and bare Exception for others; what its authors did not expect of a file is a panic,
    which no `except Exception` catches. What it says of it may quote the text.
    """
    try:
        yield
    except ModelFilesError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise  # KeyboardInterrupt and the like
        said = str(error).strip() or type(error).__name__
        raise ModelFilesError(path, f"{what} ({said[:80]})", _ADVICE) from None


@dataclass(frozen=True, slots=True)
class SingleTemplate:
    """Special tokens around one text, and the types of its tokens."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """Special tokens around and between two texts, each part with its token types."""

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    prefix_types: tuple[int, ...]
    middle_types: tuple[int, ...]
    suffix_types: tuple[int, ...]
    first_type: int
    second_type: int

    @property
    def specials(self) -> int:
        """How many tokens of a pair are the template's."""
        return len(self.prefix) + len(self.middle) + len(self.suffix)

    def join(self, first: TokenIds, second: TokenIds) -> tuple[TokenIds, TokenIds]:
        """Return ids and types of a pair already cut, both of the same length."""
        types = [*self.prefix_types, *[self.first_type] * len(first), *self.middle_types]
        types += [*[self.second_type] * len(second), *self.suffix_types]
        return [*self.prefix, *first, *self.middle, *second, *self.suffix], types


class TextTokenizer:
    """Cuts texts into token ids. Safe to share between threads: it has no state that a call changes."""

    def __init__(self, content: bytes, path: Path, pad_id: int | None = None) -> None:
        """Read a `tokenizer.json`.

        Args:
            content: the file's bytes.
            path: where they come from, for messages.
            pad_id: id to pad with; None looks for the usual names, and takes 0 where there is none. It is masked, so
                it only has to exist.

        Raises:
            ModelFilesError: they are no tokenizer.
        """
        from tokenizers import Tokenizer

        self._path = path
        self._process = os.getpid()
        with _library_errors(path, "is not a tokenizer"):
            self._tokenizer: Any = Tokenizer.from_buffer(content)
        with _library_errors(path, "is a tokenizer that cannot be used"):
            self._look_at(pad_id)

    def _look_at(self, pad_id: int | None) -> None:
        """Find out what the file says of special tokens."""
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        # "[SEP]" in a memory's text is text: it must not end the text for the model. A unigram model finds its special
        # tokens in a text by itself, because they stand in its vocabulary: those are dropped.
        self._tokenizer.encode_special_tokens = True
        self.unknown_id = self._unknown_id()
        added = self._tokenizer.get_added_tokens_decoder()
        self._special_ids = {number for number, token in added.items() if token.special} - {self.unknown_id}
        self.pad_id = pad_id if pad_id is not None else self._first_id(_PAD_NAMES, 0)
        self._folds_space = self._must_fold_space()
        self.single = self._single_template()

    def ids(self, text: str, most: int) -> TokenIds:
        """Cut a text, without special tokens.

        Args:
            text: anything: lone surrogates are read as U+FFFD, what only the tokenizer ignores gives no tokens.
            most: how many tokens are wanted, at most. Of a text of more than 16 characters a token wanted, white space
                is folded and the rest left unread.

        Returns:
            The first tokens, at most `most`.
        """
        return self._encode(text, most)[:most]

    def last_ids(self, text: str, most: int) -> TokenIds:
        """Cut a text as `ids` does and return its last tokens, at most `most`."""
        return self._encode(text[-most * CHARS_PER_TOKEN :], most)[-most:]

    def ids_many(self, texts: Sequence[str], most: int, *, parallel: bool = False) -> list[TokenIds]:
        """Cut many texts, each as `ids` does.

        Args:
            texts: anything.
            most: how many tokens are wanted of each, at most.
            parallel: use every core. Only where no fork is to be expected, as beside a GPU: in a child of a process
                that used it, the library's threads are missing; there the loop is taken.
        """
        if not parallel or len(texts) < PARALLEL_TEXTS or os.getpid() != self._process:
            return [self.ids(text, most) for text in texts]
        read = [self._read(text, most) for text in texts]
        with _library_errors(self._path, _CANNOT_CUT):
            encodings = self._tokenizer.encode_batch_fast(read, add_special_tokens=False)
        return [self._plain(encoding.ids)[:most] for encoding in encodings]

    def unknown_spans(self, text: str) -> list[tuple[int, int]]:
        """Return where, in `text`, characters stand that the vocabulary has no token for: (start, end) offsets."""
        if self.unknown_id is None:
            return []
        with _library_errors(self._path, _CANNOT_CUT):
            encoding = self._tokenizer.encode(whole_text(text), add_special_tokens=False)
        return [span for token, span in zip(encoding.ids, encoding.offsets, strict=True) if token == self.unknown_id]

    def vocabulary(self) -> dict[str, int]:
        """Return every token with its id (0.1 s for 250,000 tokens)."""
        vocabulary: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=False)
        return vocabulary

    def pair(self) -> PairTemplate:
        """Return the template of a pair, as the file's post-processor writes it.

        Raises:
            ModelFilesError: the post-processor does not put the first text before the second.
        """
        with _library_errors(self._path, "is a tokenizer that cannot be used"):
            encoding = self._probe(lambda text: self._tokenizer.encode(text, text))
        sources, ids, types = encoding.sequence_ids, encoding.ids, encoding.type_ids
        first = [i for i, source in enumerate(sources) if source == 0]
        second = [i for i, source in enumerate(sources) if source == 1]
        if not first or not second or first[-1] > second[0]:
            raise ModelFilesError(self._path, "has no template for pairs of texts", _ADVICE)
        parts = [slice(0, first[0]), slice(first[-1] + 1, second[0]), slice(second[-1] + 1, len(ids))]
        specials, special_types = ([tuple(values[part]) for part in parts] for values in (ids, types))
        return PairTemplate(
            specials[0],
            specials[1],
            specials[2],
            special_types[0],
            special_types[1],
            special_types[2],
            types[first[0]],
            types[second[0]],
        )

    def _encode(self, text: str, most: int) -> TokenIds:
        with _library_errors(self._path, _CANNOT_CUT):
            return self._plain(self._tokenizer.encode(self._read(text, most), add_special_tokens=False).ids)

    def _read(self, text: str, most: int) -> str:
        """Return as much of a text as `most` tokens need, its white space folded where that matters."""
        text = whole_text(text)
        limit = most * CHARS_PER_TOKEN
        if self._folds_space or len(text) > limit:
            text = " ".join(text[: 4 * limit].split())[:limit]
        return text

    def _plain(self, ids: TokenIds) -> TokenIds:
        """Return ids without those of special tokens."""
        if self._special_ids.isdisjoint(ids):
            return ids
        return [token for token in ids if token not in self._special_ids]

    def _single_template(self) -> SingleTemplate:
        encoding = self._probe(lambda text: self._tokenizer.encode(text))
        own = [i for i, source in enumerate(encoding.sequence_ids) if source == 0]
        return SingleTemplate(tuple(encoding.ids[: own[0]]), tuple(encoding.ids[own[-1] + 1 :]))

    def _probe(self, encode: Any) -> Any:
        """Encode the first probe that gives tokens: an encoding shows the template of any post-processor."""
        for text in _PROBES:
            encoding = encode(text)
            if 0 in encoding.sequence_ids:
                return encoding
        raise ModelFilesError(self._path, "gives no tokens for any text", _ADVICE)

    def _must_fold_space(self) -> bool:
        """Whether white space other than a space is unknown to the vocabulary, or glues words together."""
        joined, spaced, newline = (self._tokenizer.encode(t, add_special_tokens=False).ids for t in _SPACE_PROBES)
        return self.unknown_id in newline or (newline == joined and joined != spaced)

    def _unknown_id(self) -> int | None:
        token = getattr(self._tokenizer.model, "unk_token", None)
        if isinstance(token, str):
            found: int | None = self._tokenizer.token_to_id(token)
            return found
        number = getattr(self._tokenizer.model, "unk_id", None)
        return number if isinstance(number, int) else self._first_id(_UNKNOWN_NAMES, None)

    def _first_id(self, names: Sequence[str], otherwise: Any) -> Any:
        found = (self._tokenizer.token_to_id(name) for name in names)
        return next((token for token in found if token is not None), otherwise)


_SPACE_PROBES: Final = ("ab", "a b", "a\nb")


def whole_text(text: str) -> str:
    """Return text that UTF-8 can hold: halves of a surrogate pair joined, lone ones replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
