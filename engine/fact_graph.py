"""The facts of a namespace as a graph in memory: entities are its nodes, facts the edges between them.

Entities and predicates are told apart by a 64-bit hash of their `entity_key`, as terms are by theirs. The graph grows
behind what readers were given and never forgets an edge: which facts count is for the reader's view to say.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.columns import Column
from jiyi.memory import entity_key
from jiyi.stopwords import CHINESE, ENGLISH
from jiyi.terms import word_term
from jiyi.text import tokenize
from jiyi.vocabulary import Vocabulary

Ints = NDArray[np.int64]
FactRow = tuple[int, str, str, str]
"""A row of the partition, and the subject, predicate and object that it states."""

#: An entity of more tokens than this is never looked for in a query.
LONGEST_NAME: Final = 32
# Of an entity that very much is known about, so many of the latest stored facts are looked at, to keep a search quick.
MOST_OF_NAMED: Final = 10_000
# Of a longer query the rest names nothing.
_MOST_TOKENS: Final = 2_000
# As many that are new are looked through one by one, and a quarter of those that are sorted.
_UNSORTED: Final = 1_000
# FNV's prime for 64 bits: odd, so that multiplying by it loses nothing.
_PRIME: Final = 0x100000001B3
_MASK: Final = (1 << 64) - 1
_NOT_A_NAME: Final = ENGLISH | frozenset(CHINESE)
_NOTHING: Final = np.empty(0, dtype=np.int64)


def _hash_of(name: str) -> int:
    return int.from_bytes(blake2b(entity_key(name).encode(), digest_size=8).digest(), "little")


def _tokens_of(text: str) -> list[str]:
    return [token.removesuffix("'s") for token in tokenize(text)]


def _name_hash(name: str) -> tuple[int, int]:
    """The length in tokens and the hash of what names an entity in a query; (0, 0) when nothing can."""
    tokens = _tokens_of(name)
    if not 0 < len(tokens) <= LONGEST_NAME or _NOT_A_NAME.issuperset(tokens):
        return 0, 0
    mixed = 0
    for token in tokens:
        mixed = (mixed * _PRIME + word_term(token)) & _MASK
    return len(tokens), mixed


@dataclass(frozen=True, slots=True)
class Facts:
    """What a reader sees of the graph: f facts in the order they were stored. Never changes."""

    rows: Ints
    """Shape (f,), ascending: rows of the partition."""
    subjects: Ints
    """Shape (f,): numbers of entities, below `n_entities`."""
    objects: Ints
    predicates: NDArray[np.uint64]
    """Shape (f,): hashes."""
    n_entities: int
    names: Ints
    """Shape (n_entities,): the number of the name by which a query can name the entity; -1 for none."""
    lengths: tuple[int, ...]
    """How many tokens such names have, longest first."""
    indptr: Ints
    """By entity, where the facts about it begin in `edges`. Entities and facts behind these are scanned for."""
    edges: Ints
    """Positions of facts, by entity and then ascending."""
    n_sorted: int
    """How many facts stand there."""
    _entities: Vocabulary
    _names: Vocabulary

    def entity(self, name: str) -> int:
        """Return the number of an entity; -1 when no fact knows it."""
        number = int(self._entities.find(np.array([_hash_of(name)], dtype=np.uint64))[0])
        return number if number < self.n_entities else -1

    def matching(self, subject: str | None, predicate: str | None, object: str | None) -> NDArray[np.bool_]:
        """Return which facts have these (None: any). Shape (f,)."""
        chosen = np.ones(len(self.rows), dtype=bool)
        if subject is not None:
            chosen &= self.subjects == self.entity(subject)
        if predicate is not None:
            chosen &= self.predicates == np.uint64(_hash_of(predicate))
        if object is not None:
            chosen &= self.objects == self.entity(object)
        return chosen

    def marked(self, entities: Ints) -> NDArray[np.bool_]:
        """Return True for these. Shape (n_entities,)."""
        marked = np.zeros(self.n_entities, dtype=bool)
        marked[entities] = True
        return marked

    def about(self, entities: Ints, most: int) -> Ints:
        """Return the positions, ascending, of the facts that have one of these as subject or object.

        Of an entity of more facts the latest stored count, at least `most`.
        """
        known = entities[entities < len(self.indptr) - 1]
        ends = self.indptr[known + 1]
        starts = np.maximum(self.indptr[known], ends - most)
        parts = [self.edges[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        if self.n_sorted < len(self.rows):
            subjects, objects = self.subjects[self.n_sorted :], self.objects[self.n_sorted :]
            wanted = self.marked(entities)
            parts.append(np.flatnonzero(wanted[subjects] | wanted[objects]) + self.n_sorted)
        if len(parts) <= 1:
            return parts[0] if parts else _NOTHING
        positions = np.sort(np.concatenate(parts))
        return positions[np.append(True, positions[1:] != positions[:-1])] if len(positions) else positions

    def eligible(self, positions: Ints, eligible: NDArray[np.uint8]) -> Ints:
        """Return those of the facts whose rows are eligible; rows behind the last are not."""
        positions = positions[self.rows[positions] < len(eligible)]
        kept: Ints = positions[eligible[self.rows[positions]] == 1]
        return kept

    def named_in(self, text: str, eligible: NDArray[np.uint8]) -> Ints:
        """Return the entities, ascending, that a text names, of those that eligible facts are about.

        A name is found where its tokens stand in a row, words by their stems. Of names that overlap the longest counts,
        then the first.

        Args:
            text: anything.
            eligible: by row of the partition, 1 or 0. What other facts are about names nothing, so that a fact which is
                gone, filtered out or of the future hides no shorter name.
        """
        tokens = _tokens_of(text)[:_MOST_TOKENS]
        lengths = [length for length in self.lengths if length <= len(tokens)]
        if not lengths:
            return _NOTHING
        terms = np.array([word_term(token) for token in tokens], dtype=np.uint64)
        numbers = self._names.find(np.concatenate(_windows(terms, lengths)))
        hits = np.flatnonzero(numbers >= 0)
        if len(hits) == 0:
            return _NOTHING
        # Another thread may just have numbered names that this graph does not have. The last is -1, no name.
        possible = np.zeros(max(self._names.size, int(numbers.max()) + 1) + 1, dtype=bool)
        possible[numbers[hits]] = True
        entities = np.flatnonzero(possible[self.names])
        facts = self.eligible(self.about(entities, MOST_OF_NAMED), eligible)
        living = self.marked(self.subjects[facts]) | self.marked(self.objects[facts])
        possible[:] = False
        possible[self.names[entities[living[entities]]]] = True
        hits = hits[possible[numbers[hits]]]
        free, found = [True] * len(tokens), np.zeros(len(possible), dtype=bool)
        bounds = np.cumsum([0] + [len(tokens) - length + 1 for length in lengths])
        of_length = np.searchsorted(bounds, hits, side="right") - 1
        for start, length, number in zip(
            (hits - bounds[of_length]).tolist(), of_length.tolist(), numbers[hits].tolist(), strict=True
        ):
            end = start + lengths[length]
            if all(free[start:end]):
                free[start:end] = [False] * (end - start)
                found[number] = True
        return np.flatnonzero(found[self.names])


def _windows(terms: NDArray[np.uint64], lengths: Sequence[int]) -> list[NDArray[np.uint64]]:
    """Hashes of all names that could stand in a text: by length, in the order given, and then by where they begin."""
    hashes: dict[int, NDArray[np.uint64]] = {}
    mixed = np.zeros(len(terms) + 1, dtype=np.uint64)
    for length in range(1, lengths[0] + 1):
        mixed = mixed[:-1] * np.uint64(_PRIME) + terms[length - 1 :]
        hashes[length] = _with_length(mixed, length)
    return [hashes[length] for length in lengths]


def _with_length(mixed: NDArray[np.uint64], length: int) -> NDArray[np.uint64]:
    """Hashes of names of one length, told from those of another."""
    hashes: NDArray[np.uint64] = mixed ^ np.uint64(length << 32)
    return hashes


class FactGraph:
    """The graph of one partition. Writers hold `lock`; what `facts` gave stays as it was.

    Attributes:
        n: rows of the partition that were read into it, those without facts included.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n = 0
        self._rows = Column(np.int64)
        self._subjects = Column(np.int64)
        self._objects = Column(np.int64)
        self._predicates = Column(np.uint64)
        self._names_of = Column(np.int64)
        self._entities = Vocabulary()
        self._names = Vocabulary()
        self._lengths: tuple[int, ...] = ()
        self._indptr, self._edges, self._n_sorted = np.zeros(1, dtype=np.int64), _NOTHING, 0
        self._facts: Facts | None = None

    def facts(self) -> Facts:
        """Return the graph as it is now."""
        if self._facts is None:
            self._facts = Facts(
                rows=self._rows.shown(),
                subjects=self._subjects.shown(),
                objects=self._objects.shown(),
                predicates=self._predicates.shown(),
                n_entities=self._names_of.size,
                names=self._names_of.shown(),
                lengths=self._lengths,
                indptr=self._indptr,
                edges=self._edges,
                n_sorted=self._n_sorted,
                _entities=self._entities,
                _names=self._names,
            )
        return self._facts

    def extend(self, facts: Sequence[FactRow], n: int) -> None:
        """Add facts, rows ascending and above all before; from here on n rows of the partition are known."""
        self.n = n
        if not facts:
            return
        rows, subjects, predicates, objects = zip(*facts, strict=True)
        names = list(dict.fromkeys((*subjects, *objects)))
        hashes = np.array([_hash_of(name) for name in names], dtype=np.uint64)
        numbers, first_of_new = _numbered(self._entities, hashes)
        self._extend_names([names[i] for i in first_of_new])
        number_of = dict(zip(names, numbers.tolist(), strict=True))
        hash_of = {name: _hash_of(name) for name in dict.fromkeys(predicates)}
        self._subjects.extend(np.array([number_of[name] for name in subjects], dtype=np.int64))
        self._objects.extend(np.array([number_of[name] for name in objects], dtype=np.int64))
        self._predicates.extend(np.array([hash_of[name] for name in predicates], dtype=np.uint64))
        self._rows.extend(np.array(rows, dtype=np.int64))
        self._entities, self._names = _settled(self._entities), _settled(self._names)
        if self._rows.size - self._n_sorted > _UNSORTED + self._n_sorted // 4:
            self._sort()
        self._facts = None

    def _sort(self) -> None:
        """List the facts about each entity; a self-loop is about it once."""
        n = self._rows.size
        subjects, objects = self._subjects.shown(), self._objects.shown()
        apart = np.flatnonzero(subjects != objects)
        entities = np.concatenate((subjects, objects[apart]))
        positions = np.concatenate((np.arange(n, dtype=np.int64), apart))
        self._edges = positions[np.lexsort((positions, entities))]
        self._indptr = np.zeros(self._names_of.size + 1, dtype=np.int64)
        np.cumsum(np.bincount(entities, minlength=self._names_of.size), out=self._indptr[1:])
        self._n_sorted = n

    def _extend_names(self, entities: Sequence[str]) -> None:
        """Number the names of entities that are new, in the order of their numbers."""
        hashes = [_name_hash(entity) for entity in entities]
        lengths = np.array([length for length, _ in hashes], dtype=np.int64)
        mixed = np.array([mixed for _, mixed in hashes], dtype=np.uint64)
        numbers = np.full(len(entities), -1, dtype=np.int64)
        for length in set(lengths.tolist()) - {0}:
            of_length = np.flatnonzero(lengths == length)
            numbers[of_length], _ = _numbered(self._names, _with_length(mixed[of_length], length))
        self._names_of.extend(numbers)
        self._lengths = tuple(sorted({*self._lengths, *lengths.tolist()} - {0}, reverse=True))

    def bytes(self) -> int:
        """Return about how much memory it takes."""
        columns = [column for column in vars(self).values() if isinstance(column, Column)]
        arrays: list[NDArray[Any]] = [*(column.values for column in columns), self._edges, self._indptr]
        return sum(array.nbytes for array in arrays) + self._entities.bytes() + self._names.bytes()


def _numbered(vocabulary: Vocabulary, hashes: NDArray[np.uint64]) -> tuple[Ints, list[int]]:
    """The number of each hash, and the first place of each that is new, in the order of the new numbers."""
    distinct, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    before = vocabulary.size
    numbers, _ = vocabulary.ids_for(distinct)
    new = np.flatnonzero(numbers >= before)
    return numbers[inverse], first[new[np.argsort(numbers[new])]].tolist()


def _settled(vocabulary: Vocabulary) -> Vocabulary:
    """The vocabulary, sorted anew when many of its terms are not."""
    return vocabulary.settled() if vocabulary.unsettled > _UNSORTED + vocabulary.size // 4 else vocabulary
