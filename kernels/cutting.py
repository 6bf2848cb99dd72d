"""Cut many texts at once: words, and runs of characters that are read one by one, told by a class for each code point.

The rule is the regular expression `R+ | L+(?:'(?:s|t|d|m|ll|re|ve)(?!L))? | S`, R standing for a character of a run, L
for a letter and S for one that stands alone: an apostrophe holds an English contraction together and separates
elsewhere. Each character of a run is a segment of its own.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import int64, jit, reads, uint8, uint32, writes

#: Classes of code points. A code point that is not classified yet stops the kernel.
SEPARATOR: Final = 0
LETTER: Final = 1
RUN: Final = 2
ALONE: Final = 3
UNKNOWN: Final = 255

#: Kinds of segments: a word (or a character that stands alone), the first character of a run, a later one.
WORD: Final = 0
RUN_FIRST: Final = 1
RUN_NEXT: Final = 2

#: How many code points there are.
CODE_POINTS: Final = 0x110000

_APOSTROPHE = 0x27
_S, _T, _D, _M, _L, _R, _E, _V = (ord(letter) for letter in "stdmlrev")


class Cut(NamedTuple):
    """The segments of n texts, in text order.

    Attributes:
        indptr: shape (n + 1,), int64: text i's segments are [indptr[i], indptr[i + 1]).
        starts, ends: shape (m,), int64: where a segment lies among the code points.
        kinds: shape (m,), uint8: WORD, RUN_FIRST or RUN_NEXT.
    """

    indptr: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    kinds: NDArray[np.uint8]


def cut(codes: NDArray[np.uint32], bounds: NDArray[np.int64], classes: NDArray[np.uint8]) -> Cut | int:
    """Cut texts into segments.

    Args:
        codes: shape (c,), uint32: the code points of all texts, one behind the other, each below 0x110000.
        bounds: shape (n + 1,), int64, ascending from 0 to c: text i is codes[bounds[i] : bounds[i + 1]].
        classes: shape (0x110000,), uint8: SEPARATOR, LETTER, RUN, ALONE or UNKNOWN for each code point.

    Returns:
        The segments; or the first code point whose class is UNKNOWN: classify it and call again. Empty texts have no
        segments. O(c).

    Raises:
        TypeError: an array of another dtype.
        ValueError: another shape, not contiguous, bounds that do not run from 0 to c, or a number that is no code
            point.
    """
    size = _check.array(codes, _check.U32, 1, "codes")
    if _check.array(bounds, _check.I64, 1, "bounds") == 0 or bounds[0] != 0 or bounds[-1] != size:
        raise ValueError(f"bounds must run from 0 to {size}, the number of codes: pass the bounds of these codes")
    _check.length(_check.array(classes, _check.U8, 1, "classes"), CODE_POINTS, "classes", "all code points")
    indptr = np.zeros(len(bounds), np.int64)
    starts, ends, kinds = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.uint8)
    unknown = int(_cut_kernel(codes, bounds, classes, indptr, starts, ends, kinds))
    if unknown >= 0:
        if codes[unknown] >= CODE_POINTS:
            raise ValueError(f"codes[{unknown}] is {codes[unknown]}, allowed is 0 to {CODE_POINTS - 1}: encode a text")
        return int(codes[unknown])
    count = int(indptr[-1])
    return Cut(indptr, starts[:count], ends[:count], kinds[:count])


@jit((reads(uint32), reads(int64), reads(uint8), writes(int64), writes(int64), writes(int64), writes(uint8)))
def _cut_kernel(codes: Any, bounds: Any, classes: Any, indptr: Any, starts: Any, ends: Any, kinds: Any) -> Any:
    for i in range(len(codes)):
        if codes[i] >= CODE_POINTS or classes[codes[i]] == UNKNOWN:
            return i
    count = 0
    for text in range(len(bounds) - 1):
        i, stop = bounds[text], bounds[text + 1]
        while i < stop:
            of = classes[codes[i]]
            start = i
            i += 1
            if of == SEPARATOR:
                continue
            kind = WORD
            if of == LETTER:
                while i < stop and classes[codes[i]] == LETTER:
                    i += 1
                i = _contracted(codes, i, stop, classes)
            elif of == RUN:
                inside = start > bounds[text] and classes[codes[start - 1]] == RUN
                kind = RUN_NEXT if inside else RUN_FIRST
            starts[count], ends[count], kinds[count] = start, i, kind
            count += 1
        indptr[text + 1] = count
    return -1


@jit()
def _contracted(codes: Any, i: Any, stop: Any, classes: Any) -> Any:
    """Where a word ends whose letters end at i: behind the contraction, if there is one."""
    if i + 1 >= stop or codes[i] != _APOSTROPHE:
        return i
    first = codes[i + 1]
    end = i
    if first in (_S, _T, _D, _M):
        end = i + 2
    elif i + 2 < stop:
        second = codes[i + 2]
        if (first == _L and second == _L) or (second == _E and first in (_R, _V)):
            end = i + 3
    if end > i and end < stop and classes[codes[end]] == LETTER:
        return i
    return end
