"""From a string of bytes to values as strangers send them: what a fuzzer changes in the bytes changes the values."""

from __future__ import annotations

import math
from typing import Any, Final

_WORDS: Final = (
    "tea", "green tea", "京都", "don't", "a:b", "AND", "-cat", "\0", "\ud800", "\u202e", "e\u0301", "../x", "*",
    "'; --", "%", "", " ", "\n", "x" * 513, "metadata.a", "metadata.a.b", "metadata.", "kind", "text", "id", "in",
    "lt", "exists", "not", "and", "or", "episodic", "2026-05-01", "9999-12-31T23:59:59Z", "nan", "sources", "gte", "a*",
)  # fmt: skip
_NUMBERS: Final = (
    0,
    1,
    -1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**64,
    10**400,
    0.5,
    -0.0,
    1e308,
    math.inf,
    math.nan,
)


class Source:
    """Hands out what bytes stand for, one value after the other; when they are used up, the plainest there is."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def byte(self) -> int:
        """0 to 255."""
        self._at += 1
        return self._content[self._at - 1] if self._at <= len(self._content) else 0

    def bytes(self, most: int) -> bytes:
        """At most so many bytes."""
        size = self.byte() % (most + 1)
        part = self._content[self._at : self._at + size]
        self._at += size
        return part

    def rest(self) -> bytes:
        """All that is left."""
        part, self._at = self._content[self._at :], len(self._content)
        return part

    def text(self) -> str:
        """Words of any sort, or any characters at all, lone surrogates among them."""
        sort = self.byte()
        if sort < 160:
            return " ".join(_WORDS[self.byte() % len(_WORDS)] for _ in range(1 + sort % 3))
        part = self.bytes(40)
        if sort < 220:
            return part.decode("utf-8", "replace")
        return part[: len(part) // 2 * 2].decode("utf-16-le", "surrogatepass" if sort > 240 else "replace")

    def word(self) -> str:
        """One of the words."""
        return _WORDS[self.byte() % len(_WORDS)]

    def value(self, depth: int = 4) -> Any:
        """Anything that JSON can hold, and numbers that it cannot."""
        sort = self.byte() % (8 if depth else 5)
        if sort == 0:
            return self.text()
        if sort == 1:
            return _NUMBERS[self.byte() % len(_NUMBERS)]
        if sort == 2:
            return (True, False, None)[self.byte() % 3]
        if sort == 3:
            return int.from_bytes(self.bytes(9), "little", signed=True)
        if sort == 4:
            return self.word()
        if sort == 5:
            return [self.value(depth - 1) for _ in range(self.byte() % 5)]
        return {self.word(): self.value(depth - 1) for _ in range(self.byte() % 5)}
