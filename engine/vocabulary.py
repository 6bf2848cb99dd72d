"""A namespace's vocabulary: from terms to the small ids that kernels work with."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels.lookup import numbers_of

# The first terms are sorted at once, but for those of a memory or two.
_FEW: Final = 256


class Vocabulary:
    """Terms (64-bit hashes) to ids. Sorted arrays for the settled ones, a dictionary for the new.

    Writers add to it while views read: the arrays are replaced together, and an id that a view does not know yet
    stands in none of its rows.
    """

    def __init__(self, terms: NDArray[np.uint64] | None = None, ids: NDArray[np.int64] | None = None) -> None:
        self._sorted = (
            np.empty(0, dtype=np.uint64) if terms is None else terms,
            np.empty(0, dtype=np.int64) if ids is None else ids,
        )
        self._new: dict[int, int] = {}
        self._by_id: NDArray[np.uint64] | None = None
        self.size = len(self._sorted[0])

    def find(self, terms: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the id of each term, -1 for the unknown."""
        if not self.size:
            return np.full(len(terms), -1, dtype=np.int64)
        if not len(self._sorted[0]):
            get = self._new.get
            return np.array([get(term, -1) for term in terms.tolist()], dtype=np.int64)
        ids = numbers_of(*self._sorted, terms)
        if self._new:
            unknown, new = (ids < 0).nonzero()[0], self._new
            ids[unknown] = [new.get(term, -1) for term in terms[unknown].tolist()]
        return ids

    def ids_for(self, terms: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the id of each distinct term, ascending, and the terms that are new, in the order of their new ids."""
        ids = self.find(terms)
        unknown = (ids < 0).nonzero()[0]
        if len(unknown) == 0:
            return ids, terms[:0]
        new_ids = np.arange(self.size, self.size + len(unknown), dtype=np.int64)
        ids[unknown] = new_ids
        new_terms = terms[unknown]
        if self.size == 0 and len(terms) > _FEW:
            self._sorted = (new_terms, new_ids)
        else:
            self._new.update(zip(new_terms.tolist(), new_ids.tolist(), strict=True))
        self.size += len(unknown)
        return ids, new_terms

    @property
    def unsettled(self) -> int:
        """How many terms are not sorted in yet."""
        return len(self._new)

    def by_id(self) -> NDArray[np.uint64]:
        """Return the term of every id."""
        terms = np.zeros(self.size, dtype=np.uint64)
        known_terms, known_ids = self._sorted
        terms[known_ids] = known_terms
        for term, term_id in list(self._new.items()):
            if term_id < len(terms):
                terms[term_id] = term
        return terms

    def terms_of(self, ids: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Return the term of each id. What was looked up is kept until there are new ones."""
        terms = self._by_id
        if terms is None or (len(ids) and int(ids.max()) >= len(terms)):
            terms = self._by_id = self.by_id()
        return terms[ids]

    def settled(self) -> Vocabulary:
        """Return the same vocabulary with its new terms sorted in. Views of the old one keep the old one."""
        if not self._new:
            return self
        terms = self.by_id()
        order = np.argsort(terms)
        return Vocabulary(terms[order], order.astype(np.int64))

    def bytes(self) -> int:
        """Return how much memory it takes."""
        # A dictionary entry of two Python integers is about 120 bytes. 8 are for the way back from an id (`terms_of`),
        # looked up or not: what a partition takes is counted when it is loaded.
        return 24 * len(self._sorted[0]) + 120 * len(self._new)
