"""A partition: one namespace in memory, as columns.

Rows are memories in the order they were stored; a row never moves and never changes while the partition is loaded,
except that it dies. Searches read a `View`, an immutable picture of the columns at one sequence number: writers
append behind its last row and publish a new view, so readers never lock and never wait. While nobody reads, the writer
only notes a few new rows; the next to look at the view takes them in, or waits for the thread that is at it.

The first `n_base` rows are *settled*: postings (which rows hold a term) were built over them. The rows behind
are scanned. When the tail has grown past a share of the base, the writer settles it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from jiyi.chains import Chains
from jiyi.columns import Column
from jiyi.errors import StoreError
from jiyi.fact_graph import FactGraph
from jiyi.filter_columns import FilterColumns
from jiyi.kernels.csr import gather_rows, number_values, sort_rows
from jiyi.kernels.late_interaction import token_frequencies
from jiyi.kernels.postings import Postings, build_postings, document_frequencies
from jiyi.kernels.quantized import quantize_rows
from jiyi.kernels.topk import unit_rows
from jiyi.ledger import LABEL_MASK, ColumnRow, UsageRow
from jiyi.memory import Memory
from jiyi.terms import BIGRAM, WORD, is_sort
from jiyi.usage import Usage
from jiyi.vocabulary import Vocabulary

# Chosen, not measured: settling again when the tail is a quarter of the base keeps the work of a long ingest to a few
# times that of one build, and spares small namespaces it altogether.
_SETTLE_ROWS: Final = 2_000
_SETTLE_FRACTION: Final = 0.25

Array = NDArray[Any]

# Up to so many rows are added one by one: from there on, arrays of all are quicker (`benches/durability.py`).
_FEW: Final = 4
# Rows that may wait for somebody to ask for them: some hundred microseconds' work.
_MOST_NOTED: Final = 64
# Of terms: words, characters and bigrams have this bit clear, dates and speakers have it set.
_SAID_BY_TEXT: Final = np.uint64(2)
# Rows after which a partition counts as grown, whatever they hold, and new terms.
_GROWN: Final = 64

_F32: Final = np.dtype(np.float32)
_U16: Final = np.dtype(np.uint16)
_U32: Final = np.dtype(np.uint32)
_U64: Final = np.dtype(np.uint64)
_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Rows:
    """New rows on their way into a partition, as arrays."""

    labels: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    timestamps_s: NDArray[np.float64]
    expires_s: NDArray[np.float64]
    """Infinity where a memory does not expire."""
    sessions: NDArray[np.int64]
    """A hash of the session's name, 0 for none."""
    facts: NDArray[np.int64]
    """A hash of what facts that supersede each other share, 0 for none."""
    term_indptr: NDArray[np.int64]
    terms: NDArray[np.uint64]
    freqs: NDArray[np.uint16]
    token_indptr: NDArray[np.int64]
    tokens: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.labels)


def rows_of(column_rows: Sequence[ColumnRow]) -> Rows:
    """Turn the ledger's rows of one namespace into arrays."""

    def compressed(blobs: Sequence[bytes], dtype: Any) -> tuple[NDArray[np.int64], Array]:
        itemsize = np.dtype(dtype).itemsize
        sizes = np.fromiter(map(len, blobs), np.int64, len(blobs))
        whole = sizes % itemsize == 0
        if not whole.all():
            _refuse_damaged(keys[int(np.argmin(whole))])
        indptr = np.zeros(len(blobs) + 1, dtype=np.int64)
        np.cumsum(sizes // itemsize, out=indptr[1:])
        return indptr, np.frombuffer(b"".join(blobs), dtype=dtype)

    keys, kinds, timestamps, expires, sessions, facts, terms, freqs, tokens = (
        list(zip(*column_rows, strict=True))[:9] if column_rows else ((),) * 9  # the ledger's end in a checksum
    )
    term_indptr, term_values = compressed(terms, np.uint64)
    freq_indptr, freq_values = compressed(freqs, np.uint16)
    token_indptr, token_values = compressed(tokens, np.uint32)
    paired = term_indptr == freq_indptr
    if not paired.all():
        _refuse_damaged(keys[int(np.argmin(paired)) - 1])
    return Rows(
        labels=np.array(keys, dtype=np.int64) & LABEL_MASK,
        kinds=np.array(kinds, dtype=np.uint8),
        timestamps_s=np.array(timestamps, dtype=np.float64) / 1e6,
        expires_s=np.array([np.inf if us is None else us / 1e6 for us in expires], dtype=np.float64),
        sessions=np.array(sessions, dtype=np.int64),
        facts=np.array(facts, dtype=np.int64),
        term_indptr=term_indptr,
        terms=term_values,
        freqs=freq_values,
        token_indptr=token_indptr,
        tokens=token_values,
    )


def _values(key: int, content: bytes, dtype: np.dtype[Any]) -> Array:
    if len(content) % dtype.itemsize:
        _refuse_damaged(key)
    return np.frombuffer(content, dtype)


def _refuse_damaged(key: int) -> NoReturn:
    raise StoreError(f"the columns of label {key & LABEL_MASK} are damaged; verify() lists all that are")


def _refuse_length(dim: int) -> NoReturn:
    raise StoreError(f"vectors of the store are not {dim} floats long; verify() lists what is damaged")


@dataclass(frozen=True, slots=True)
class View:
    """What a search sees: n rows, in the order they were stored. Never changes."""

    sequence: int
    n: int
    n_base: int
    n_live: int
    live: NDArray[np.uint8]
    labels: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    timestamps_s: NDArray[np.float64]
    expires_s: NDArray[np.float64]
    expiring: bool
    """Whether any row has a finite `expires_s`."""
    previous: NDArray[np.int64]
    """The live row before it in its session, by time and then as stored; -1 for none. May name a row stored since."""
    next: NDArray[np.int64]
    """The live row after it in its session, likewise."""
    newer_facts: NDArray[np.int64] | None
    """The live row that states its fact anew, likewise; None when no fact of the namespace was ever stated anew."""
    facts: NDArray[np.int64] | None
    """By row, a hash of what facts that supersede each other share, 0 for none; None when no row states a fact."""
    usage: Usage | None
    """How rows were used; None when none was."""
    vectors: NDArray[np.float32] | None
    """Unit rows, shape (n, dim); None when no live row was stored with a vector."""
    codes: NDArray[np.int8]
    """The same in int8, shape (n, dim): what an exact scan reads first."""
    code_scales: NDArray[np.float32]
    has_vector: NDArray[np.uint8]
    """1 for rows whose vector has a direction."""
    all_have_vectors: bool
    """Whether that is every row, dead ones included."""
    n_unembedded: int
    """How many live rows were stored without a vector (one of nothing but zeros is a vector)."""
    term_indptr: NDArray[np.int64]
    term_ids: NDArray[np.uint32]
    term_freqs: NDArray[np.uint16]
    term_is_word: NDArray[np.uint8]
    """By term id: words and characters, which Jaccard compares; not bigrams, dates or speakers."""
    lengths: NDArray[np.uint32]
    average_length: float
    postings: Postings
    token_indptr: NDArray[np.int64]
    tokens: NDArray[np.uint32]
    _vocabulary: Vocabulary
    _base_live: NDArray[np.uint8]
    _base_has_dead: bool
    """Whether any settled row is dead, as postings do not tell."""
    _base_died: bool
    """Whether any has died since it was settled, which the token counts do not show."""
    _base_token_counts: NDArray[np.int64]
    _unembedded: NDArray[np.uint8]

    def current(self) -> NDArray[np.uint8]:
        """Return 1 for live rows that no newer fact supersedes."""
        if self.newer_facts is None:
            return self.live
        newer = self.newer_facts
        # What was stored after this view was made supersedes nothing in it.
        return self.live & ~((newer >= 0) & (newer < self.n)).view(np.uint8) & np.uint8(1)

    def recallable(self, now_s: float) -> NDArray[np.uint8]:
        """Return 1 for rows that a search may return at a moment: current ones that have not expired."""
        return self.current() & (self.expires_s > now_s) if self.expiring else self.current()

    def as_of(self, moment_s: float) -> View:
        """Return the namespace as it stood at a moment: without what happened after it, and counted without that.

        A fact is superseded there if it was by then. What was deleted since is not there. O(n).
        """
        live = self.live & (self.timestamps_s <= moment_s).view(np.uint8)
        newer = self.newer_facts
        if newer is not None:
            later = newer >= 0
            later[later] = newer[later] < self.n
            newer = np.where(later, newer, -1)
            newer[later] = np.where(self.timestamps_s[newer[later]] <= moment_s, newer[later], -1)
        n_live = int(np.count_nonzero(live))
        return replace(
            self,
            live=live,
            n_live=n_live,
            newer_facts=newer,
            usage=None if self.usage is None else self.usage.as_of(moment_s),
            average_length=float(self.lengths[live == 1].sum(dtype=np.int64)) / n_live if n_live else 0.0,
            n_unembedded=int(np.count_nonzero(live & self._unembedded)),
            _base_has_dead=True,
            _base_died=True,
        )

    def term_ids_of(self, terms: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Return the ids, ascending, of those terms that some memory of the namespace holds."""
        ids = self._vocabulary.find(terms)
        return np.sort(ids[ids >= 0]).astype(np.uint32)

    def find_terms(self, terms: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the id of each term, -1 for those that no memory of the namespace holds."""
        return self._vocabulary.find(terms)

    def terms_of(self, term_ids: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Return the term (64-bit hash) of each id."""
        return self._vocabulary.terms_of(term_ids)

    @property
    def live_length(self) -> int:
        """How long the live rows are together."""
        # Exact: below 2^50 tokens, rounding makes up for what the division lost.
        return round(self.average_length * self.n_live)

    @property
    def embedded(self) -> bool:
        """Whether there are rows with vectors."""
        return self.vectors is not None and self.n > 0

    def terms_by_id(self) -> NDArray[np.uint64]:
        """Return the term (64-bit hash) of every term id."""
        return self._vocabulary.by_id()

    def rows_of_labels(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of those labels that are live here. Labels must ascend."""
        return _live_rows(self.labels, self.live, labels)

    def document_frequencies(self, term_ids: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return in how many live rows each term (ascending, distinct) stands."""
        return document_frequencies(
            term_ids,
            self.postings,
            self.n_base,
            self.term_indptr,
            self.term_ids,
            self.n,
            self.live,
            base_is_live=not self._base_has_dead,
        )

    def token_frequencies(self, tokens: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return in how many live rows each token (ascending, distinct) stands: counted when settled, scanned since."""
        settled = tokens < len(self._base_token_counts)
        counts = np.zeros(len(tokens), dtype=np.int64)
        counts[settled] = self._base_token_counts[tokens[settled]]
        if self.n > self.n_base:
            tail = slice(self.n_base, None)
            counts += token_frequencies(
                tokens, self.token_indptr[tail], self.tokens, self.n - self.n_base, self.live[tail]
            )
        if self._base_died:
            died: NDArray[np.uint8] = self._base_live & (self.live[: self.n_base] ^ np.uint8(1))
            counts -= token_frequencies(tokens, self.token_indptr, self.tokens, self.n_base, died)
        return counts

    def words_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Return the words and characters of rows as sets in compressed rows, for Jaccard."""
        return gather_rows(self.term_indptr, self.term_ids, self.term_is_word, np.ascontiguousarray(rows))


def _live_rows(all_labels: NDArray[np.int64], live: NDArray[np.uint8], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    rows = np.searchsorted(all_labels, labels)
    inside = rows < len(all_labels)
    rows, labels = rows[inside], labels[inside]
    rows = rows[all_labels[rows] == labels]
    alive: NDArray[np.int64] = rows[live[rows] == 1].astype(np.int64)
    return alive


class Partition:
    """The columns of one namespace, and the view that searches read. Writers must hold the engine's write lock."""

    def __init__(self, namespace: int, dim: int | None, sequence: int, generation: int = 0) -> None:
        self.namespace = namespace
        self.dim = dim
        self.filters = FilterColumns()
        self._labels = Column(np.int64)
        self._kinds = Column(np.uint8)
        self._timestamps_s = Column(np.float64)
        self._expires_s = Column(np.float64)
        self._links = Chains()
        self._facts = Chains()
        """Of all rows, once one of them states a fact."""
        self._stating = False
        self._restated = False
        self.graph = FactGraph()
        """Filled when somebody asks (`facts.graph_of`)."""
        self._usage: Usage | None = None
        self._vectors = None if dim is None else Column(np.float32, dim)
        self._codes = Column(np.int8, dim or 0)
        self._code_scales = Column(np.float32)
        self._has_vector = Column(np.uint8)
        self._unembedded = Column(np.uint8)
        self._term_indptr = Column(np.int64)
        self._term_indptr.extend(np.zeros(1, dtype=np.int64))
        self._term_ids = Column(np.uint32)
        self._term_freqs = Column(np.uint16)
        self._term_is_word = Column(np.uint8)
        self._lengths = Column(np.uint32)
        self._token_indptr = Column(np.int64)
        self._token_indptr.extend(np.zeros(1, dtype=np.int64))
        self._tokens = Column(np.uint32)
        self._vocabulary = Vocabulary()
        self._living = Column(np.uint8)
        self._live: NDArray[np.uint8] = self._living.shown()
        self._n_unembedded = 0
        self._n_live = 0
        self._live_length = 0
        self._expiring = False
        self._all_have_vectors = dim is not None
        self._n_base = 0
        self._base_live = self._live
        self._base_has_dead = False
        self._base_died = False
        self._base_token_counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._postings = build_postings(
            self._term_indptr.shown(),
            self._term_ids.shown(),
            self._term_freqs.shown(),
            self._lengths.shown(),
            0,
            0,
        )
        self._columns = [value for value in vars(self).values() if isinstance(value, Column)]
        self._counted_at: tuple[int, ...] = ()
        self.sequence = sequence
        self.generation = generation
        """Of the ledger's columns, which one these are."""
        self.asked_for = True
        """Whether somebody has asked for it since the last view: what is written next is shown at once."""
        self._taking_in = threading.Lock()
        self._noted: list[tuple[ColumnRow, bytes | None]] = []
        self._view = self._make_view()

    def apply(
        self,
        sequence: int,
        *,
        ended: NDArray[np.int64] | None = None,
        rows: Sequence[ColumnRow] = (),
        vectors: Iterable[Sequence[bytes | None]] = (),
        usage: Sequence[UsageRow] = (),
        memories: Sequence[Memory] = (),
        damaged: Sequence[int] = (),
        may_wait: bool = False,
    ) -> bool:
        """Let rows die and add others behind the last, and publish both as one view; return whether that was done.

        Args:
            sequence: the ledger's sequence number that the view will show.
            ended: labels of rows that die, old ones or new; those that are unknown or dead are passed over.
            rows: what was stored, oldest first, as the ledger has it; what stands behind the tokens is not looked at.
            vectors: theirs, in parts: float32 bytes, or None for a row without.
            usage: how rows, old ones or new, were used by now.
            memories: what was stored, once more, for the columns of filters (`filters`); not needed without any.
            damaged: keys of rows that die as well. Looked at last: it may grow while the vectors are read.
            may_wait: new rows that are all there is to tell may be noted only, as long as nobody asks for the partition
                (`asked_for`): the next who does takes them in, many at once in a tenth of the time.

        Raises:
            StoreError: a row is not one that was written.
        """
        with self._taking_in:
            alone = ended is None and not (usage or damaged or self.filters)
            if may_wait and alone and not self.asked_for and len(self._noted) + len(rows) <= _MOST_NOTED:
                self._noted.extend(zip(rows, chain.from_iterable(vectors), strict=True))
                self.sequence = sequence
                return False
            self.asked_for = False
            if self._noted:  # first, so that nobody who looks meanwhile has to wait for the rest
                self._take_in()
                self._show()
            self._apply(ended, rows, vectors, usage, memories, damaged)
            self.sequence = sequence
            self._show()
            tail = len(self._live) - self._n_base
            if tail > max(_SETTLE_ROWS, self._n_base * _SETTLE_FRACTION):
                self._settle()
                self._show()
        return True

    @property
    def view(self) -> View:
        """What searches see: everything that was stored when it is asked for."""
        if self._noted:
            with self._taking_in:
                if self._noted:
                    self._take_in()
                    self._show()
        return self._view

    def _take_in(self) -> None:
        """Add the rows that were noted. Settling them is the writer's, as it takes longer: nobody waits for that."""
        self._add([row for row, _ in self._noted], [[vector for _, vector in self._noted]])
        if self._usage is not None:
            self._usage = self._usage.extended(len(self._live))

    def _show(self) -> None:
        self._view = self._make_view()
        self._noted.clear()  # after that: who finds none takes the view

    def _add(self, rows: Sequence[ColumnRow], vectors: Iterable[Sequence[bytes | None]]) -> None:
        if len(rows) > _FEW:
            self._extend(rows_of(rows), vectors)
        else:
            for row, vector in zip(rows, chain.from_iterable(vectors), strict=True):
                self._append(row, vector)

    def _apply(
        self,
        ended: NDArray[np.int64] | None,
        rows: Sequence[ColumnRow],
        vectors: Iterable[Sequence[bytes | None]],
        usage: Sequence[UsageRow],
        memories: Sequence[Memory],
        damaged: Sequence[int],
    ) -> None:
        if rows:
            self._add(rows, vectors)
            if self.filters:
                self.filters.extend(memories, len(self._live))
        if ended is not None:
            self._end(_live_rows(self._labels.shown(), self._live, np.unique(ended)))
        if damaged:
            labels = np.unique(np.array(damaged, dtype=np.int64) & LABEL_MASK)
            self._end(_live_rows(self._labels.shown(), self._live, labels))
        if usage or self._usage is not None:
            self._use(sorted(usage))

    def _use(self, usage: Sequence[UsageRow]) -> None:
        before = self._usage or Usage.none(0)
        labels = np.array([key & LABEL_MASK for key, *_ in usage], dtype=np.int64)
        held = np.isin(labels, self._labels.shown())
        rows = np.searchsorted(self._labels.shown(), labels[held])
        told = [row for row, here in zip(usage, held.tolist(), strict=True) if here]
        self._usage = before.extended(len(self._live)).changed(rows, told)

    def _end(self, rows: NDArray[np.int64]) -> None:
        if len(rows) == 0:
            return
        self._living.replace(self._live.copy())
        self._live = self._living.shown()
        self._live[rows] = 0
        self._n_unembedded -= int(np.count_nonzero(self._unembedded.shown()[rows]))
        if rows[0] < self._n_base:
            self._base_has_dead = self._base_died = True
        self._links.remove(rows.tolist(), self._live)
        if self._stating:
            self._facts.remove(rows.tolist(), self._live)
        self._n_live -= len(rows)
        self._live_length -= int(self._lengths.shown()[rows].sum(dtype=np.int64))

    def _extend(self, rows: Rows, vectors: Iterable[Sequence[bytes | None]]) -> None:
        n = len(rows)
        self._labels.extend(rows.labels)
        self._kinds.extend(rows.kinds)
        self._timestamps_s.extend(rows.timestamps_s)
        self._expires_s.extend(rows.expires_s)
        self._expiring = self._expiring or bool(np.isfinite(rows.expires_s).any())
        self._extend_vectors(n, vectors)
        self._extend_terms(rows)
        self._token_indptr.extend(rows.token_indptr[1:] + self._tokens.size)
        self._tokens.extend(rows.tokens)
        self._living.extend(np.ones(n, dtype=np.uint8))
        self._live = self._living.shown()
        self._n_live += n
        self._links.extend(rows.sessions, rows.timestamps_s, self._live)
        if rows.facts.any():
            self._state_facts(len(self._live) - n)
        if self._stating:
            self._facts.extend(rows.facts, rows.timestamps_s, self._live)
            self._restated = self._restated or bool((self._facts.next.shown() >= 0).any())

    def _state_facts(self, n: int) -> None:
        """Have the first n rows, none of which states a fact, before the first that does."""
        if not self._stating:
            self._stating = True
            self._facts.extend(np.zeros(n, dtype=np.int64), self._timestamps_s.shown()[:n], self._live)

    def _append(self, row: ColumnRow, vector: bytes | None) -> None:
        """Add one row: what `_extend` does with many, without arrays of one element."""
        key, kind, timestamp_us, expires_us, session, fact, term_bytes, freq_bytes, token_bytes = row[:9]
        terms, freqs = _values(key, term_bytes, _U64), _values(key, freq_bytes, _U16)
        tokens = _values(key, token_bytes, _U32)
        if len(terms) != len(freqs):
            _refuse_damaged(key)
        if vector and self.dim is not None and len(vector) != 4 * self.dim:
            _refuse_length(self.dim)
        timestamp_s = timestamp_us / 1e6
        self._labels.append(key & LABEL_MASK)
        self._kinds.append(kind)
        self._timestamps_s.append(timestamp_s)
        if expires_us is None:
            self._expires_s.append(_NEVER)
        else:
            self._expires_s.append(expires_us / 1e6)
            self._expiring = True
        self._append_vector(vector)
        ids, new_terms = self._vocabulary.ids_for(terms)
        order = ids.argsort()
        self._term_ids.extend(ids[order])
        self._term_freqs.extend(freqs[order])
        self._term_indptr.append(self._term_ids.size)
        if len(new_terms):
            self._term_is_word.extend(is_sort(new_terms, WORD))
        # A memory's length is what it says: its words, characters and bigrams, not its date or speaker.
        length = sum(freqs[(terms & _SAID_BY_TEXT) == 0].tolist())
        self._lengths.append(length)
        self._live_length += length
        self._tokens.extend(tokens)
        self._token_indptr.append(self._tokens.size)
        self._living.append(1)
        self._live = self._living.shown()
        self._n_live += 1
        self._links.append(session, timestamp_s, self._live)
        if fact:
            self._state_facts(len(self._live) - 1)
            self._restated = self._facts.append(fact, timestamp_s, self._live) or self._restated
        elif self._stating:
            self._facts.append(0, timestamp_s, self._live)

    def _extend_vectors(self, count: int, parts: Iterable[Sequence[bytes | None]]) -> None:
        if self._vectors is None or self.dim is None:
            self._has_vector.extend(np.zeros(count, dtype=np.uint8))
            self._unembedded.extend(np.ones(count, dtype=np.uint8))
            self._n_unembedded += count
            return
        self._vectors.reserve(self._vectors.size + count)
        self._codes.reserve(self._codes.size + count)
        blank = bytes(4 * self.dim)
        for part in parts:
            content = b"".join(vector or blank for vector in part)
            if len(content) != len(blank) * len(part):
                _refuse_length(self.dim)
            self._keep_vectors(self._vectors, np.frombuffer(content, dtype=np.float32).reshape(len(part), self.dim))
            without = np.array([vector is None for vector in part], dtype=np.uint8)
            self._unembedded.extend(without)
            self._n_unembedded += int(np.count_nonzero(without))

    def _append_vector(self, vector: bytes | None) -> None:
        without = vector is None
        self._unembedded.append(without)
        self._n_unembedded += without
        if self._vectors is None or self.dim is None:
            self._has_vector.append(0)
            return
        self._keep_vectors(self._vectors, np.frombuffer(vector or bytes(4 * self.dim), _F32).reshape(1, self.dim))

    def _keep_vectors(self, vectors: Column, given: NDArray[np.float32]) -> None:
        unit, nonzero = unit_rows(given)
        codes, scales = quantize_rows(unit)
        vectors.extend(unit)
        self._codes.extend(codes)
        self._code_scales.extend(scales)
        self._has_vector.extend(nonzero)
        self._all_have_vectors = self._all_have_vectors and bool(nonzero.all())

    def _extend_terms(self, rows: Rows) -> None:
        numbers, distinct = number_values(rows.terms)
        ascending = np.argsort(distinct)
        ascending_ids, new_terms = self._vocabulary.ids_for(distinct[ascending])
        id_of_number = np.empty(len(distinct), dtype=np.uint32)
        id_of_number[ascending] = ascending_ids
        ids, freqs = sort_rows(rows.term_indptr, id_of_number[numbers], rows.freqs)
        self._term_is_word.extend(is_sort(new_terms, WORD))
        # A memory's length is what it says: its words, characters and bigrams, not its date or speaker.
        said = is_sort(rows.terms, WORD) | is_sort(rows.terms, BIGRAM)
        total = np.zeros(len(rows.terms) + 1, dtype=np.int64)
        np.cumsum(np.where(said, rows.freqs, 0), out=total[1:])
        self._live_length += int(total[-1])
        self._lengths.extend((total[rows.term_indptr[1:]] - total[rows.term_indptr[:-1]]).astype(np.uint32))
        self._term_indptr.extend(rows.term_indptr[1:] + self._term_ids.size)
        self._term_ids.extend(ids)
        self._term_freqs.extend(freqs)

    def _settle(self) -> None:
        n = len(self._live)
        self._vocabulary = self._vocabulary.settled()
        indptr, ids, freqs = self._term_indptr.shown(), self._term_ids.shown(), self._term_freqs.shown()
        self._postings = build_postings(indptr, ids, freqs, self._lengths.shown(), n, self._vocabulary.size)
        self._base_live = self._live
        self._base_has_dead = self._n_live < n
        self._base_died = False
        tokens = self._tokens.shown()
        if len(tokens):
            present = np.unique(tokens)
            counts = np.zeros(int(present[-1]) + 1, dtype=np.int64)
            counts[present] = token_frequencies(present, self._token_indptr.shown(), tokens, n, self._live)
            self._base_token_counts = counts
        self._n_base = n

    def _make_view(self) -> View:
        # By what this namespace holds, not by whether another of the store has vectors.
        vectors = self._vectors if self._n_unembedded < self._n_live else None
        return View(
            sequence=self.sequence,
            n=len(self._live),
            n_base=self._n_base,
            n_live=self._n_live,
            live=self._live,
            labels=self._labels.shown(),
            kinds=self._kinds.shown(),
            timestamps_s=self._timestamps_s.shown(),
            expires_s=self._expires_s.shown(),
            expiring=self._expiring,
            previous=self._links.previous.shown(),
            next=self._links.next.shown(),
            newer_facts=self._facts.next.shown() if self._restated else None,
            facts=self._facts.groups() if self._stating else None,
            usage=self._usage,
            vectors=None if vectors is None else vectors.shown(),
            codes=self._codes.shown(),
            code_scales=self._code_scales.shown(),
            has_vector=self._has_vector.shown(),
            all_have_vectors=self._all_have_vectors,
            n_unembedded=self._n_unembedded,
            term_indptr=self._term_indptr.shown(),
            term_ids=self._term_ids.shown(),
            term_freqs=self._term_freqs.shown(),
            term_is_word=self._term_is_word.shown(),
            lengths=self._lengths.shown(),
            average_length=self._live_length / self._n_live if self._n_live else 0.0,
            postings=self._postings,
            token_indptr=self._token_indptr.shown(),
            tokens=self._tokens.shown(),
            _vocabulary=self._vocabulary,
            _base_live=self._base_live,
            _base_has_dead=self._base_has_dead,
            _base_died=self._base_died,
            _base_token_counts=self._base_token_counts,
            _unembedded=self._unembedded.shown(),
        )

    def bytes_by_part(self) -> dict[str, int]:
        """Return how much memory the parts of the columns take, as allocated."""
        parts = {
            "vectors": [] if self._vectors is None else [self._vectors],
            "codes": [self._codes, self._code_scales],
            "terms": [self._term_indptr, self._term_ids, self._term_freqs],
            "tokens": [self._token_indptr, self._tokens],
        }
        sizes = {part: sum(column.values.nbytes for column in columns) for part, columns in parts.items()}
        sizes["postings"] = sum(array.nbytes for array in self._postings)
        sizes["vocabulary"] = self._vocabulary.bytes() + self._base_token_counts.nbytes
        columns = sum(column.values.nbytes for column in self._columns)
        sizes["other"] = (
            columns
            - sum(sizes[part] for part in parts)
            + self._links.bytes()
            + self._facts.bytes()
            + self.graph.bytes()
            + self.filters.bytes()
            + (0 if self._usage is None else self._usage.bytes())
        )
        return sizes

    def has_grown(self) -> bool:
        """Return whether it takes more memory than when `bytes` was last asked for, some kilobytes aside."""
        return self._counted_at != self._extent()

    def _extent(self) -> tuple[int, ...]:
        return (
            len(self._labels.values),
            len(self._term_ids.values),
            len(self._tokens.values),
            self._vocabulary.size // _GROWN,
            self._n_base,
            len(self._live) // _GROWN,
        )

    def bytes(self) -> int:
        """Return how much memory the columns take, as allocated."""
        self._counted_at = self._extent()
        return sum(self.bytes_by_part().values())
