"""Texts to measure with: those that `jiyi bench` makes up."""

from jiyi.bench.corpus import queries, texts

__all__ = ["queries", "texts"]
