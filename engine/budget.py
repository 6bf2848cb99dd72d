"""How many tokens a text costs: an estimate, or the caller's own count."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final

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


def checked_counter(count_tokens: Callable[[str], int] | None) -> Callable[[str], int]:
    """Return the caller's counter with its answers checked, or `estimate_tokens` for None.

    Raises:
        TypeError: At once if it cannot be called; when it counts, if it returns anything but a whole number.
        ValueError: When it counts, if it returns a number below 0.
    """
    if count_tokens is None:
        return estimate_tokens
    if not callable(count_tokens):
        raise TypeError(
            f"count_tokens is {type(count_tokens).__name__}; pass a function that takes a text and returns its "
            "number of tokens, or None for an estimate"
        )

    def count(text: str) -> int:
        answer: Any = count_tokens(text)
        try:
            if isinstance(answer, bool):
                raise TypeError
            tokens = operator.index(answer)
        except TypeError:
            raise TypeError(
                f"count_tokens returned {answer!r:.80} ({type(answer).__name__}); it must return a whole number, "
                "such as len(tokenizer.encode(text))"
            ) from None
        if tokens < 0:
            raise ValueError(f"count_tokens returned {tokens}; it must return a number of at least 0")
        return tokens

    return count
