"""What is left of a message without what was pasted into it: code, quoted lines, stack traces.

What is pasted is long, and its words are not those that the answer is remembered by. What a user asks about it stays,
and of a stack trace the error. A message that is nothing but pasted keeps its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

#: What can be cut from a message.
TRIMMED: Final = ("code", "quote", "stack trace")

# Inline code up to here is a name ("`REDIS_URL`"), which is what a question is about; beyond it is a line of code.
_LONGEST_INLINE: Final = 40
# So much of what was pasted is kept where a message has nothing else, and so much of a quote that a question is about.
_LONGEST_PASTED: Final = 200

_BREAK: Final = re.compile(r"\r\n|[\r\n]")
_FENCE: Final = re.compile(r"[ ]{0,3}(`{3,}|~{3,})([^`]*)$")
_INLINE: Final = re.compile(rf"(?<!`)`([^`\n]{{{_LONGEST_INLINE + 1},2000}})`(?!`)")
_QUOTED: Final = re.compile(r"\s{0,3}>(?!\s*[=>]?\s*\d+\s*$)")
_ATTRIBUTION: Final = re.compile(r"\s*(?:On\b.{0,120}\bwrote|在.{0,80}写道|.{0,40}写道)\s*[:：]\s*$", re.IGNORECASE)
# The lines of a trace, by what they begin with.
_PYTHON_TRACE: Final = re.compile(r"\s*Traceback \(most recent call last\):\s*$")
_FRAME: Final = re.compile(
    r"\s*File \"[^\"\n]{1,500}\", line \d+"  # Python
    r"|\s+at \S.{0,300}(?:\([^()\n]{0,300}\)|:\d+(?::\d+)?)\s*$"  # Java, JavaScript, .NET
    r"|\s*\.\.\. \d+ (?:more|common frames)"
    r"|\s*(?:from )?\S{1,300}:\d+:in [`'\"]"  # Ruby
    r"|goroutine \d+ \[|\s+\S{1,300}\.go:\d+\b"  # Go
    r"|\s*#\d+ \S.{0,300}"  # PHP, gdb
    r"|\s*\d+: (?:0x[0-9a-f]+ - )?[\w:<>]{3,200}(?:::[\w{}<>]+)+\s*$|\s+at \./\S{1,300}:\d+"  # Rust
)
# One such line may be prose; so many in a row are not.
_FEWEST_FRAMES: Final = 2


class Trimmed(NamedTuple):
    """A text without what was pasted into it."""

    text: str
    cut: tuple[str, ...] = ()
    """What was cut, of `TRIMMED`, in that order."""


def trim(text: str, *, stands_alone: Callable[[str], bool] = bool) -> Trimmed:
    """Cut code, quoted lines and stack traces from a message.

    Args:
        text: The message.
        stands_alone: Whether what is left says what it is about. A question that does not ("Is this right?") keeps the
            beginning of the quote before it.

    Returns:
        Trimmed: Its text is empty only if the message is. O(n).

    >>> trim("Why does this fail?\\n```python\\nredis.get(None)\\n```").text
    'Why does this fail?'
    """
    if "\n" not in text and "\r" not in text and "`" not in text and ">" not in text:
        return Trimmed(text)
    lines = _BREAK.split(text)
    cut: dict[str, list[str]] = {}
    lines = _without_fences(lines, cut)
    lines = _without_quotes(lines, cut)
    lines = _without_traces(lines, cut)
    left = _INLINE.sub(lambda match: _noted(match, cut), "\n".join(lines)) if lines else ""
    if not cut:
        return Trimmed(text)
    left = re.sub(r"\n{2,}", "\n", left).strip()
    if "quote" in cut and not stands_alone(left):
        left = "\n".join(part for part in (_beginning(cut["quote"]), left) if part)
    if not left:
        left = _beginning(next(iter(cut.values()))) or text.strip()[:_LONGEST_PASTED]
    return Trimmed(left, tuple(name for name in TRIMMED if name in cut))


def _beginning(lines: list[str]) -> str:
    return "\n".join(line.strip() for line in lines if line.strip())[:_LONGEST_PASTED].strip()


def _noted(match: re.Match[str], cut: dict[str, list[str]]) -> str:
    cut.setdefault("code", []).append(match.group(1))
    return " "


def _without_fences(lines: list[str], cut: dict[str, list[str]]) -> list[str]:
    """Leave out fenced blocks; a fence that is never closed is none, so that no question after it is lost."""
    closed_by: dict[int, int] = {}
    opened: tuple[int, str] | None = None
    for i, line in enumerate(lines):
        match = _FENCE.match(line)
        if match is None:
            continue
        fence, info = match.group(1), match.group(2).strip()
        if opened is None:
            opened = i, fence
        elif not info and fence[0] == opened[1][0] and len(fence) >= len(opened[1]):
            closed_by[opened[0]] = i
            opened = None
    kept: list[str] = []
    i = 0
    while i < len(lines):
        if i in closed_by:
            cut.setdefault("code", []).extend(lines[i + 1 : closed_by[i]])
            i = closed_by[i] + 1
        else:
            kept.append(lines[i])
            i += 1
    return kept


def _without_quotes(lines: list[str], cut: dict[str, list[str]]) -> list[str]:
    kept: list[str] = []
    for i, line in enumerate(lines):
        if _QUOTED.match(line):
            cut.setdefault("quote", []).append(line.lstrip(" \t>"))
        elif i + 1 < len(lines) and _ATTRIBUTION.match(line) and _QUOTED.match(lines[i + 1]):
            cut.setdefault("quote", [])
        else:
            kept.append(line)
    return kept


def _without_traces(lines: list[str], cut: dict[str, list[str]]) -> list[str]:
    """Leave out the frames of stack traces; the lines that name the error stand around them and stay."""
    kept: list[str] = []
    i = 0
    while i < len(lines):
        start = i
        python = _PYTHON_TRACE.match(lines[i]) is not None
        if python:
            i += 1
        frames = 0
        while i < len(lines):
            if _FRAME.match(lines[i]):
                frames += 1
            elif not (frames and (python or ".go" in lines[i - 1]) and lines[i][:1] in (" ", "\t")):
                break  # the source line of a Python frame is indented and belongs to it
            i += 1
        if frames >= (1 if python else _FEWEST_FRAMES):
            cut.setdefault("stack trace", []).extend(lines[start:i])
        else:
            kept.extend(lines[start : max(i, start + 1)])
            i = max(i, start + 1)
    return kept
