"""Some rows of several namespaces as one small view, in the order that they were stored across them.

Rows of different namespaces are numbered by different vocabularies and count their neighbours by different rows. A
slice takes what stages after recall ask of some rows out of one namespace's columns, terms by their hashes and
neighbours by their labels, which no two memories of a store share; `gathered` numbers those of several slices anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.candidates import Ints
from jiyi.kernels.csr import sort_rows
from jiyi.kernels.postings import Postings
from jiyi.partition import View
from jiyi.terms import WORD, is_sort
from jiyi.usage import Usage
from jiyi.vocabulary import Vocabulary

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Slice:
    """m rows of one namespace."""

    labels: Ints
    """Shape (m,), ascending."""
    kinds: NDArray[np.uint8]
    timestamps_s: NDArray[np.float64]
    lengths: NDArray[np.uint32]
    previous: Ints
    """Label of the memory before it in its session, -1 for none."""
    following: Ints
    """Label of the one after it, -1 for none that a search may return."""
    usage: Usage | None
    vectors: NDArray[np.float32] | None
    has_vector: NDArray[np.uint8]
    term_indptr: Ints
    terms: NDArray[np.uint64]
    term_freqs: NDArray[np.uint16]
    token_indptr: Ints
    tokens: NDArray[np.uint32]


def taken(view: View, rows: Ints, eligible: NDArray[np.uint8]) -> Slice:
    """Return some rows, ascending, of a view."""
    term_indptr, (term_ids, term_freqs) = _csr_rows(view.term_indptr, (view.term_ids, view.term_freqs), rows)
    token_indptr, (tokens,) = _csr_rows(view.token_indptr, (view.tokens,), rows)
    following = following_rows(view, rows, eligible)
    return Slice(
        labels=view.labels[rows],
        kinds=view.kinds[rows],
        timestamps_s=view.timestamps_s[rows],
        lengths=view.lengths[rows],
        previous=_labels(view, view.previous[rows]),
        following=_labels(view, following),
        usage=None if view.usage is None else view.usage.of(rows),
        vectors=None if view.vectors is None else view.vectors[rows],
        has_vector=view.has_vector[rows],
        term_indptr=term_indptr,
        terms=view.terms_of(term_ids),
        term_freqs=term_freqs,
        token_indptr=token_indptr,
        tokens=tokens,
    )


def following_rows(view: View, rows: Ints, eligible: NDArray[np.uint8]) -> Ints:
    """Return the row that comes next in the session of each; -1 for none that may be returned."""
    following = view.next[rows]
    here = (following >= 0) & (following < view.n)
    here[here] = eligible[following[here]] == 1
    return np.where(here, following, -1)


def _labels(view: View, rows: Ints) -> Ints:
    # A row that was stored after the view was made is none to it.
    here = (rows >= 0) & (rows < view.n)
    labels = np.full(len(rows), -1, dtype=np.int64)
    labels[here] = view.labels[rows[here]]
    return labels


def gathered(
    slices: Sequence[Slice],
    labels: Ints,
    *,
    known_terms: NDArray[np.uint64],
    average_length: float,
    dim: int | None,
    with_usage: bool,
) -> View:
    """Return a view of the rows with these labels, in their order.

    Args:
        slices: that hold them.
        labels: ascending, each once.
        known_terms: terms to number even if no row holds them.
        average_length: of all memories that they are scored among.
        dim: of the vectors; None for a store without.
        with_usage: whether rows tell how they were used: when any memory of the namespaces was.
    """
    every = _joined([part.labels for part in slices], np.int64)
    order = np.argsort(every, kind="stable")
    rows = order[np.searchsorted(every, labels, sorter=order)]
    m = len(rows)

    def column(name: str, dtype: Any) -> Array:
        return _joined([getattr(part, name) for part in slices], dtype)[rows]

    term_indptr, terms, freqs = _csr(slices, "term_indptr", ("terms", np.uint64), ("term_freqs", np.uint16), rows=rows)
    token_indptr, tokens = _csr(slices, "token_indptr", ("tokens", np.uint32), rows=rows)
    vocabulary, ids = np.unique(np.concatenate((known_terms, terms)), return_inverse=True)
    term_ids, term_freqs = sort_rows(term_indptr, ids[len(known_terms) :].astype(np.uint32), freqs)
    before = column("previous", np.int64)
    previous = np.searchsorted(labels, before)
    inside = np.minimum(previous, max(m - 1, 0))
    has_vector = column("has_vector", np.uint8)
    return View(
        sequence=0,
        n=m,
        n_base=0,
        n_live=m,
        live=np.ones(m, dtype=np.uint8),
        labels=labels,
        kinds=column("kinds", np.uint8),
        timestamps_s=column("timestamps_s", np.float64),
        expires_s=np.full(m, np.inf),
        expiring=False,
        previous=np.where(labels[inside] == before, inside, -1) if m else previous,
        next=np.full(m, -1, dtype=np.int64),
        newer_facts=None,
        facts=None,
        usage=_usage(slices, rows) if with_usage else None,
        vectors=None if dim is None else _vectors(slices, dim)[rows],
        codes=np.empty((0, 0), dtype=np.int8),
        code_scales=np.empty(0, dtype=np.float32),
        has_vector=has_vector,
        all_have_vectors=bool(has_vector.all()),
        n_unembedded=0,
        term_indptr=term_indptr,
        term_ids=term_ids,
        term_freqs=term_freqs,
        term_is_word=is_sort(vocabulary, WORD).astype(np.uint8),
        lengths=column("lengths", np.uint32),
        average_length=average_length,
        postings=_NO_POSTINGS,
        token_indptr=token_indptr,
        tokens=tokens,
        _vocabulary=Vocabulary(vocabulary, np.arange(len(vocabulary), dtype=np.int64)),
        _base_live=np.empty(0, dtype=np.uint8),
        _base_has_dead=False,
        _base_died=False,
        _base_token_counts=np.empty(0, dtype=np.int64),
        _unembedded=np.zeros(m, dtype=np.uint8),
    )


_NO_POSTINGS = Postings(np.zeros(1, np.int64), np.empty(0, np.uint32), np.empty(0, np.uint16))


def _joined(parts: Sequence[Array], dtype: Any) -> Array:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)


def _csr(slices: Sequence[Slice], pointers: str, *columns: tuple[str, Any], rows: Ints) -> tuple[Array, ...]:
    """Some rows of compressed columns, numbered over all slices."""
    sizes = _joined([np.diff(getattr(part, pointers)) for part in slices], np.int64)
    indptr = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=indptr[1:])
    values = [_joined([getattr(part, name) for part in slices], dtype) for name, dtype in columns]
    indptr, chosen = _csr_rows(indptr, values, rows)
    return indptr, *chosen


def _csr_rows(indptr: Ints, columns: Sequence[Array], rows: Ints) -> tuple[Ints, list[Array]]:
    """Some rows of compressed columns that share their pointers."""
    starts = indptr[rows]
    sizes = indptr[rows + 1] - starts
    pointers = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(sizes, out=pointers[1:])
    places = np.repeat(starts - pointers[:-1], sizes) + np.arange(pointers[-1])
    return pointers, [column[places] for column in columns]


def _vectors(slices: Sequence[Slice], dim: int) -> NDArray[np.float32]:
    parts = [
        np.zeros((len(part.labels), dim), dtype=np.float32) if part.vectors is None else part.vectors for part in slices
    ]
    return np.concatenate(parts) if parts else np.empty((0, dim), dtype=np.float32)


def _usage(slices: Sequence[Slice], rows: Ints) -> Usage:
    parts = [Usage.none(len(part.labels)) if part.usage is None else part.usage for part in slices]
    if not parts:
        return Usage.none(0)
    return Usage(
        np.concatenate([part.uses for part in parts]),
        np.concatenate([part.last_used_s for part in parts]),
        np.concatenate([part.successes for part in parts]),
        np.concatenate([part.failures for part in parts]),
    ).of(rows)
