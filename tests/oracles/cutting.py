"""Cutting texts, numbering words and looking up the longest keys, spelled out."""

import re
from collections.abc import Mapping, Sequence


def cut(text: str, letters: str, runs: str, alone: str) -> list[tuple[str, int]]:
    """Segments and their kinds: 0 for a word, 1 for the first character of a run, 2 for a later one."""
    pattern = rf"(?P<run>[{runs}]+)|[{letters}]+(?:'(?:s|t|d|m|ll|re|ve)(?![{letters}]))?|[{alone}]"
    found: list[tuple[str, int]] = []
    for match in re.finditer(pattern, text):
        if match["run"]:
            found.extend((character, 1 if i == 0 else 2) for i, character in enumerate(match["run"]))
        else:
            found.append((match.group(), 0))
    return found


def number(words: Sequence[object], known: dict[object, int]) -> list[int]:
    """The number of each word; those that are new get the next ones."""
    return [known.setdefault(word, len(known)) for word in words]


def match(
    segments: Sequence[tuple[str, int]], rows_of_word: Mapping[str, Sequence[int]], keys: Mapping[str, int]
) -> list[int]:
    """Rows of words, and of the longest keys in runs."""
    rows: list[int] = []
    i = 0
    while i < len(segments):
        text, kind = segments[i]
        if kind == 0:
            rows.extend(rows_of_word[text])
            i += 1
            continue
        end = i + 1
        while end < len(segments) and segments[end][1] == 2:
            end += 1
        run = "".join(character for character, _ in segments[i:end])
        longest = next(run[:n] for n in range(len(run), 0, -1) if run[:n] in keys or n == 1)
        if longest in keys:
            rows.append(keys[longest])
        i += len(longest)
        if i < end:
            segments = [*segments[:i], (segments[i][0], 1), *segments[i + 1 :]]
    return rows
