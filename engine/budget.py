"""How many tokens a text costs: an estimate, the caller's own count, or that of a tokenizer."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

from jiyi.quoted import quoted


class Tokenizer(Protocol):
    """What `tokenizers.Tokenizer`, `tiktoken.Encoding` and the tokenizers of `transformers` have in common."""

    def encode(self, text: str, /) -> Any:
        """Return the tokens of a text: a sequence, or an object that holds it as `ids`."""
        ...


#: What counts tokens: a function, a tokenizer, or "estimate", as does None.
TokenCounter = Callable[[str], int] | Tokenizer | Literal["estimate"] | None


# Han, kana, Hangul, their punctuation and full-width forms; emoji.
_ONE_TOKEN_EACH: Final = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
    "\U0001f300-\U0001faff\U00020000-\U000323af]"
)
_CHARACTERS_PER_TOKEN: Final = 4


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text without a tokenizer.

    One token for each CJK character and each emoji, one for every four other characters, rounded up: near the high
    end of what common tokenizers need for Chinese and for English prose. Code, and scripts that tokenizers cut finely,
    may need up to twice as many; pass your model's own counter where the budget is tight.

    >>> estimate_tokens("周末喜欢去徒步"), estimate_tokens("likes hiking"), estimate_tokens("")
    (7, 3, 0)
    """
    single = 0 if text.isascii() else len(_ONE_TOKEN_EACH.findall(text))
    return single - (single - len(text)) // _CHARACTERS_PER_TOKEN


def checked_counter(count_tokens: TokenCounter) -> Callable[[str], int]:
    """Return the caller's counter with its answers checked, or `estimate_tokens` for "estimate" and None.

    Args:
        count_tokens: A function from a text to its number of tokens, or a tokenizer with `encode(text)`, such as a
            `tokenizers.Tokenizer`. Special tokens that it adds count; those that a text spells out are text.

    Raises:
        TypeError: At once if it can do neither; when it counts, if it returns anything but a whole number.
        ValueError: At once for another text than "estimate", and for a tokenizer that truncates or pads, and so counts
            wrong; when it counts, if it returns a number below 0.
    """
    if count_tokens is None or (isinstance(count_tokens, str) and count_tokens == "estimate"):
        return estimate_tokens
    if isinstance(count_tokens, str):
        raise ValueError(
            f"count_tokens is {quoted(count_tokens)}; it must be a function, a tokenizer with encode(text), or "
            "'estimate'"
        )
    counter = _counter_of(count_tokens)

    def count(text: str) -> int:
        answer: Any = counter(text)
        try:
            if isinstance(answer, bool):
                raise TypeError
            tokens = operator.index(answer)
        except TypeError:
            raise TypeError(
                f"count_tokens returned {quoted(answer)} ({type(answer).__name__}); it must return a whole number, "
                "such as len(tokenizer.encode(text))"
            ) from None
        if tokens < 0:
            raise ValueError(f"count_tokens returned {tokens}; it must return a number of at least 0")
        return tokens

    return count


def _counter_of(count_tokens: Any) -> Callable[[str], Any]:
    # tiktoken's encode refuses text that spells out a special token; encode_ordinary takes it as text.
    encode = getattr(count_tokens, "encode_ordinary", None) or getattr(count_tokens, "encode", None)
    if callable(encode):
        for setting, off in (("truncation", "no_truncation()"), ("padding", "no_padding()")):
            if getattr(count_tokens, setting, None):
                raise ValueError(f"the tokenizer has {setting} on, so that it cannot count; call its {off} first")

        def count_encoded(text: str) -> int:
            encoded: Any = encode(text)
            return len(getattr(encoded, "ids", encoded))

        return count_encoded
    if callable(count_tokens):
        counter: Callable[[str], Any] = count_tokens
        return counter
    raise TypeError(
        f"count_tokens is {type(count_tokens).__name__}; pass a function that takes a text and returns its "
        "number of tokens, a tokenizer with encode(text), or None for an estimate"
    )
