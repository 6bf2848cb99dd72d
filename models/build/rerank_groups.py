"""Groups of one question, texts that answer it and texts that do not: read, varied and cut into batches.

The published groups are mostly encyclopedic sentences. A memory is a line that somebody said, so the groups are varied,
by a seed: some texts get a speaker, some are joined to longer ones, and some groups get a turn that repeats the
question without answering it, which a similarity alone would rank first.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

__all__ = ["Batch", "Group", "batches", "encode", "read_groups", "vary"]

_NAMES = (
    "Anna Ben Carla David Elena Felix Grace Hassan Irene Jonas Karen Leo Maria Nathan Olga Peter Quinn Rosa Samuel "
    "Tina Umar Vera Walter Xenia Yusuf Zoe Alice Brian Chloe Daniel Emma Frank Hannah Ivan Julia Kevin Laura Mark"
).split()
_LONGEST = 128
"""Tokens of a training pair. The network can read 512; attention has learnt those places before."""


@dataclass(frozen=True)
class Group:
    """One question with the texts to rank; the first text is the one that answers it."""

    query: str
    texts: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Batch:
    """Pairs of several groups, group after group, each group with the same number of texts."""

    ids: NDArray[np.int64]
    mask: NDArray[np.int64]
    parts: NDArray[np.int64]
    group_size: int


def read_groups(path: Path, *, without: Iterable[str] = ()) -> list[Group]:
    """Read groups; those whose source starts with a name of `without` are left out."""
    groups = []
    left_out = tuple(without)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if left_out and record["source"].startswith(left_out):
                continue
            texts = tuple(" ".join(text.split()) for text in (record["pos"][0], *record["neg"]))
            groups.append(Group(" ".join(record["q"].split()), texts, record["source"]))
    return groups


def vary(group: Group, others: Sequence[Group], count: int, random_: random.Random) -> Group:
    """Return a group of `count` texts, varied as the module says. The answer stays first."""
    positive, negatives = group.texts[0], list(group.texts[1:])
    # The first ones are the hard ones (found by words in the same conversation or document).
    hard = negatives[: count + 1]
    random_.shuffle(hard)
    chosen = hard[: count - 1]
    while len(chosen) < count - 1:
        chosen.append(random_.choice(random_.choice(others).texts))
    texts = [positive, *chosen]
    spoken = ":" in positive[:20]
    if random_.random() < 0.08:
        pool = [text for text in negatives if text not in chosen] + list(random_.choice(others).texts[1:])
        texts = [_joined(text, pool, random_) for text in texts]
    if not spoken and random_.random() < 0.5:
        names = random_.sample(_NAMES, 2)
        texts = [f"{random_.choice(names)}: {text}" for text in texts]
        spoken = True
    if spoken and random_.random() < 0.1:
        texts[-1] = f"{random_.choice(_NAMES)}: {group.query}"
    return Group(group.query, tuple(texts), group.source)


def _joined(text: str, pool: Sequence[str], random_: random.Random) -> str:
    around = random_.sample(pool, min(len(pool), random_.randint(1, 4)))
    around.insert(random_.randint(0, len(around)), text)
    return " ".join(around)


def encode(tokenizer: Tokenizer, groups: Sequence[Group], longest: int = _LONGEST) -> list[list[tuple[list[int], int]]]:
    """Return for each group its pairs as (ids, length of the first part)."""
    cls, sep = (int(tokenizer.token_to_id(token) or 0) for token in ("[CLS]", "[SEP]"))
    encoded = []
    for group in groups:
        query = tokenizer.encode(group.query, add_special_tokens=False).ids[-(longest // 2) :]
        pairs = []
        for text in group.texts:
            ids = tokenizer.encode(text, add_special_tokens=False).ids[: longest - len(query) - 3]
            pairs.append(([cls, *query, sep, *ids, sep], len(query) + 2))
        encoded.append(pairs)
    return encoded


def batches(
    encoded: Sequence[Sequence[tuple[Sequence[int], int]]], group_count: int, random_: random.Random | None
) -> Iterator[tuple[list[int], Batch]]:
    """Yield batches of groups of like length, in random order when given a source of it, with the groups' places."""
    places = list(range(len(encoded)))
    if random_ is not None:
        random_.shuffle(places)
    longest = [max(len(ids) for ids, _ in pairs) for pairs in encoded]
    stretch = 64 * group_count  # sorted by length within a stretch only, so that each batch stays a fair sample
    cut = []
    for start in range(0, len(places), stretch):
        part = sorted(places[start : start + stretch], key=longest.__getitem__)
        inside = [part[i : i + group_count] for i in range(0, len(part), group_count)]
        if random_ is not None:
            random_.shuffle(inside)
        cut.extend(inside)
    for chosen in cut:
        pairs = [pair for place in chosen for pair in encoded[place]]
        width = max(len(ids) for ids, _ in pairs)
        blank = np.zeros((3, len(pairs), width), np.int64)
        batch = Batch(ids=blank[0], mask=blank[1], parts=blank[2], group_size=len(encoded[chosen[0]]))
        for row, (ids, first) in enumerate(pairs):
            batch.ids[row, : len(ids)] = ids
            batch.mask[row, : len(ids)] = 1
            batch.parts[row, first : len(ids)] = 1
        yield chosen, batch
