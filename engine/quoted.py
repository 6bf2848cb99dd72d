"""How error messages show what they were given: short, whatever it is."""

from __future__ import annotations

from typing import Final

#: No more of a value than so many characters stands in a message: it may be somebody's diary.
MOST: Final = 80
_LONGEST_NUMBER_BITS: Final = 256


def quoted(value: object) -> str:
    """Return a value as messages show it, cut to 80 characters.

    Never raises: of what has no such form (lists inside lists without end, a number of more digits than Python writes
    out, an object whose own `repr` fails) only the type is named.

    >>> quoted("tea"), quoted([1, 2]), quoted(10**5000)
    ("'tea'", '[1, 2]', 'a whole number of 16610 bits')
    """
    if isinstance(value, str):
        return str.__repr__(value[:MOST])[:MOST]
    if isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER_BITS:
        return f"a whole number of {value.bit_length()} bits"
    try:
        return repr(value)[:MOST]
    except Exception:  # RecursionError, ValueError, or whatever somebody's own class raises
        return f"something of the type {type(value).__name__[:40]}"
