"""What `jiyi models build e5-small --precision` takes, and what it makes."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

__all__ = ["E5_SMALL", "PRECISIONS", "Precision", "checked_precision", "e5_name"]

Precision = Literal["int8", "int4", "fp32"]
"""How linear layers are stored and computed.

- int8: weights of 7 bits and a scale for each output channel, activations of 8 bits. The fastest.
- int4: the original 4-bit blocks, computed in float32. Exact, and the smallest file.
- fp32: float32 weights. Exact, for devices that lack the other two.
"""

PRECISIONS: Final[tuple[Precision, ...]] = get_args(Precision)


E5_SMALL: Final[dict[str, Any]] = {
    "languages": ["en", "zh"],
    "licence": "MIT",
    "max_tokens": 512,
    "dim": 384,
    "pooling": "mean",
    "query_prefix": "query: ",
    "passage_prefix": "passage: ",
}
"""What is known of the model before it is built, in the words of its manifest."""


def checked_precision(precision: str) -> Precision:
    """Return a precision if it is one, else raise a ValueError that lists them."""
    for known in PRECISIONS:
        if precision == known:
            return known
    raise ValueError(f"precision is {precision!r:.80}; it can be {', '.join(PRECISIONS)}")


def e5_name(precision: Precision) -> str:
    """Return the name of the model of a precision: a store does not mix vectors of different ones."""
    return "e5-small" if precision == "int8" else f"e5-small-{precision}"
