"""Rows of values, sorted, with and without their repeats."""

from collections import Counter
from collections.abc import Sequence


def count_sorted(row: Sequence[int]) -> list[tuple[int, int]]:
    return sorted((value, min(count, 65_535)) for value, count in Counter(row).items())


def sort_pairs(row: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(row, key=lambda pair: pair[0])
