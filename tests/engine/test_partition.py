"""A partition against a plain list of memories: what it counts, what it shows, and that views never change."""

from __future__ import annotations

import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import jiyi.partition
from jiyi.analysis import analyse
from jiyi.errors import StoreError
from jiyi.ledger import LABEL_BITS, column_row
from jiyi.memory import Memory
from jiyi.partition import Partition, View, rows_of
from jiyi.terms import BIGRAM, WORD, _hash, date_terms, is_sort, speaker_terms, text_terms
from jiyi.text import tokenize
from tests.engine.embedders import HashTable

NAMESPACE = 3
DIM = 8
EMBEDDER = HashTable(DIM)
START = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = "cat cats dog bird running ran 猫 猫狗 东京 京都 GPU 👍".split()


def _memory(random_: random.Random) -> Memory:
    return Memory(
        text=" ".join(random_.choices(WORDS, k=random_.randrange(6))),
        timestamp=START + timedelta(days=random_.randrange(5)),
        speaker=random_.choice([None, "Ana", "李"]),
        session=random_.choice([None, "s1", "s2"]),
        expires_at=random_.choice([None, START + timedelta(days=random_.randrange(9))]),
    )


class Model:
    """The partition and the list that it must agree with."""

    def __init__(self, dim: int | None = DIM) -> None:
        self.partition = Partition(NAMESPACE, dim, 0)
        self.rows: list[tuple[int, Memory, bytes | None]] = []
        self.live: list[bool] = []
        self.sequence = 0
        self.sequence_done = 0

    def append(self, memories: list[Memory]) -> None:
        derived = analyse(memories, [None] * len(memories), EMBEDDER, EMBEDDER)
        columns = []
        for memory, row in zip(memories, derived, strict=True):
            self.sequence += 1
            columns.append(column_row(NAMESPACE << LABEL_BITS | self.sequence, memory, row))
            self.rows.append((self.sequence, memory, row.vector))
            self.live.append(True)
        self.partition.apply(self.sequence, rows=columns, vectors=[[row.vector for row in derived]])

    def end(self, positions: list[int]) -> None:
        labels = [self.rows[i][0] for i in positions]
        self.sequence += max(len(positions), 1)
        for i in positions:
            self.live[i] = False
        self.partition.apply(self.sequence, ended=np.array(labels, np.int64))

    def alive(self) -> list[Memory]:
        return [memory for (_, memory, _), live in zip(self.rows, self.live, strict=True) if live]


def _voiced(memory: Memory) -> str:
    """What the token table is asked for: who says it is part of what is said."""
    return memory.text if memory.speaker is None else f"{memory.speaker}: {memory.text}"


def _said(memory: Memory) -> list[int]:
    return text_terms(memory.text)


def _everything(memory: Memory) -> list[int]:
    return [
        *text_terms(memory.text),
        *date_terms(memory.timestamp),
        *(speaker_terms(memory.speaker) if memory.speaker else []),
    ]


def _check(model: Model, view: View) -> None:
    memories = [memory for _, memory, _ in model.rows]
    alive = model.alive()
    assert (view.n, view.n_live, view.sequence) == (len(memories), len(alive), model.sequence)
    assert view.labels.tolist() == [label for label, _, _ in model.rows]
    assert view.live.tolist() == [int(live) for live in model.live]
    assert view.timestamps_s.tolist() == [memory.timestamp.timestamp() for memory in memories]
    assert view.expires_s.tolist() == [np.inf if m.expires_at is None else m.expires_at.timestamp() for m in memories]
    assert view.expiring == any(memory.expires_at is not None for memory in memories)
    assert view.lengths.tolist() == [len(_said(memory)) for memory in memories]
    expected = sum(len(_said(memory)) for memory in alive) / len(alive) if alive else 0.0
    assert view.average_length == pytest.approx(expected, abs=1e-12)
    # Document frequencies, of every term that ever was and of one that never was.
    terms = sorted({term for memory in memories for term in _everything(memory)})
    ids = view.term_ids_of(np.array(terms, np.uint64))
    known = view.terms_by_id()[ids].tolist()
    assert sorted(known) == terms
    frequencies = Counter(term for memory in alive for term in set(_everything(memory)))
    assert view.document_frequencies(ids).tolist() == [frequencies[term] for term in known]
    assert view.term_ids_of(np.array([_hash("unheard", WORD)], np.uint64)).tolist() == []
    # The terms of every row, with frequencies.
    by_id = view.terms_by_id().tolist()
    for row, memory in enumerate(memories):
        start, end = view.term_indptr[row : row + 2]
        row_ids = view.term_ids[start:end].tolist()
        assert row_ids == sorted(set(row_ids))
        assert dict(zip([by_id[i] for i in row_ids], view.term_freqs[start:end].tolist(), strict=True)) == Counter(
            _everything(memory)
        )
    # Word sets for Jaccard: words and characters, stemmed; no bigrams, dates or speakers.
    rows = np.arange(view.n, dtype=np.int64)[::-1]
    indptr, words = view.words_of(rows)
    for i, row in enumerate(rows):
        wanted = {term for term in _said(memories[row]) if not is_sort(np.array([term], np.uint64), BIGRAM)[0]}
        assert {by_id[w] for w in words[indptr[i] : indptr[i + 1]].tolist()} == wanted
    # Token frequencies over live rows, of tokens that are there and of others.
    tokens = np.unique(
        np.concatenate((EMBEDDER.token_rows(WORDS)[1], np.array([0, 511, 5_000_000], np.uint32)))
    ).astype(np.uint32)
    held = Counter(token for memory in alive for token in set(EMBEDDER.token_rows([_voiced(memory)])[1].tolist()))
    assert view.token_frequencies(tokens).tolist() == [held[token] for token in tokens.tolist()]
    # Vectors are unit rows, and zero where nothing is known; there are none where no live row was given one.
    assert view.has_vector.tolist() == [int(bool(tokenize(_voiced(memory)))) for memory in memories]
    if view.vectors is None:
        assert not any(vector for live, (_, _, vector) in zip(model.live, model.rows, strict=True) if live)
        return
    given = np.array([np.frombuffer(vector or bytes(4 * DIM), np.float32) for _, _, vector in model.rows]).reshape(
        -1, DIM
    )
    np.testing.assert_allclose(view.vectors, given, atol=1e-6)


@pytest.mark.parametrize("settle_rows", [1, 7, 2_000])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_counts_agree_with_a_plain_list(monkeypatch: pytest.MonkeyPatch, settle_rows: int, seed: int) -> None:
    monkeypatch.setattr(jiyi.partition, "_SETTLE_ROWS", settle_rows)
    random_ = random.Random(seed)
    model = Model()
    _check(model, model.partition.view)
    for _ in range(25):
        if random_.random() < 0.6 or not model.rows:
            model.append([_memory(random_) for _ in range(random_.randrange(9))])
        else:
            model.end(random_.sample(range(len(model.rows)), min(3, len(model.rows))))
        _check(model, model.partition.view)
    assert (model.partition.view.n_base > 0) == (settle_rows < 100)


def _columns(view: View) -> dict[str, Any]:
    arrays = {name: getattr(view, name) for name in View.__dataclass_fields__ if not name.startswith("_")}
    copied = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arrays.items()}
    # Links may come to name rows that were stored later; a view counts those as none.
    for links in ("previous", "next"):
        copied[links] = np.where(copied[links] < view.n, copied[links], -1)
    copied["postings"] = tuple(np.array(part) for part in view.postings)
    return copied


def test_views_stay_as_they_were_while_writers_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jiyi.partition, "_SETTLE_ROWS", 10)
    random_ = random.Random(5)
    model = Model()
    kept: list[tuple[View, dict[str, Any], NDArray[np.int64], NDArray[np.int64]]] = []
    terms = np.array(sorted({term for word in WORDS for term in text_terms(word)}), np.uint64)
    tokens = np.unique(EMBEDDER.token_rows(WORDS)[1])

    def counts(view: View) -> NDArray[np.int64]:
        by_id = view.terms_by_id()
        ids = view.term_ids_of(terms)
        found = dict(zip(by_id[ids].tolist(), view.document_frequencies(ids).tolist(), strict=True))
        return np.array([found.get(term, 0) for term in terms.tolist()])

    for _ in range(30):
        model.append([_memory(random_) for _ in range(4)])
        model.end(random_.sample(range(len(model.rows)), 1))
        view = model.partition.view
        kept.append((view, _columns(view), counts(view), view.token_frequencies(tokens)))
    for view, columns, term_counts, token_counts in kept:
        for name, value in _columns(view).items():
            np.testing.assert_equal(value, columns[name], err_msg=name)
        # A term that came later stands in none of the view's rows.
        assert counts(view).tolist() == term_counts.tolist()
        assert view.token_frequencies(tokens).tolist() == token_counts.tolist()


def test_rows_of_labels_are_the_live_ones() -> None:
    model = Model()
    random_ = random.Random(1)
    model.append([_memory(random_) for _ in range(5)])  # labels 1 to 5
    model.end([2])  # sequence 6
    model.append([_memory(random_) for _ in range(2)])  # labels 7 and 8
    view = model.partition.view
    assert view.rows_of_labels(np.array([1, 3, 5, 6, 7, 9, 99], np.int64)).tolist() == [0, 4, 5]
    assert view.rows_of_labels(np.empty(0, np.int64)).tolist() == []


def test_ending_what_is_dead_or_unknown_changes_nothing() -> None:
    model = Model()
    random_ = random.Random(1)
    model.append([_memory(random_) for _ in range(4)])
    model.end([1])
    before = model.partition.view.average_length
    model.end([1])
    model.partition.apply(model.sequence, ended=np.array([77, 2, 2], np.int64))
    _check(model, model.partition.view)
    assert model.partition.view.average_length == before


def test_rows_of_nothing() -> None:
    assert len(rows_of([])) == 0
    partition = Partition(1, None, 0)
    partition.apply(5, rows=[])
    assert (partition.view.n, partition.view.sequence, partition.view.vectors) == (0, 5, None)


def test_damaged_columns_are_a_store_error_that_names_the_label() -> None:
    memory = Memory(text="cat")
    row = analyse([memory], [None], None, None)[0]
    *first, terms, freqs, tokens = column_row(key := NAMESPACE << LABEL_BITS | 41, memory, row)
    for damaged in ((terms[:-1], freqs, tokens), (terms, freqs[:-2], tokens), (terms, freqs, b"123")):
        with pytest.raises(StoreError, match=r"label 41 .*verify"):
            rows_of([(*first, *damaged)])  # type: ignore[list-item]
    partition = Partition(NAMESPACE, DIM, 0)
    with pytest.raises(StoreError, match="8 floats"):
        partition.apply(1, rows=[column_row(key, memory, row)], vectors=[[b"1234"]])


def test_sessions_are_linked_by_time_and_then_as_stored() -> None:
    model = Model()
    times = [3, 1, 2, 2, 5, 4]
    model.append(
        [Memory(text=f"w{i}", session="s", timestamp=START + timedelta(days=day)) for i, day in enumerate(times)]
    )
    model.append(
        [Memory(text="alone"), Memory(text="other", session="t"), Memory(text="first", session="s", timestamp=START)]
    )
    view = model.partition.view
    # by time: 8, 1, 2, 3, 0, 5, 4
    assert view.previous.tolist() == [3, 8, 1, 2, 5, 0, -1, -1, -1]
    assert view.next.tolist() == [5, 2, 3, 0, -1, 4, -1, -1, 1]


@pytest.mark.parametrize("seed", range(4))
def test_links_are_those_of_a_partition_loaded_afresh(seed: int) -> None:
    """The dead are in no session: an answer must not change when the store is opened again."""
    random_ = random.Random(seed)
    model = Model()
    for _ in range(12):
        model.append([_memory(random_) for _ in range(random_.randrange(5))])
        if model.rows:
            model.end(random_.sample(range(len(model.rows)), 1))
        afresh = Model()
        afresh.append(model.alive())
        alive = [row for row, live in enumerate(model.live) if live]
        place = {row: i for i, row in enumerate(alive)} | {-1: -1}
        view = model.partition.view
        assert [
            place.get(row, "dead") for row in view.previous[alive].tolist()
        ] == afresh.partition.view.previous.tolist()
        assert [place.get(row, "dead") for row in view.next[alive].tolist()] == afresh.partition.view.next.tolist()


def test_one_view_shows_what_ended_and_what_came() -> None:
    """A replaced memory is never absent: both changes are published as one view."""
    model = Model()
    random_ = random.Random(4)
    model.append([_memory(random_) for _ in range(3)])
    new = _memory(random_)
    [row] = analyse([new], [None], EMBEDDER, EMBEDDER)
    columns = [column_row(NAMESPACE << LABEL_BITS | 5, new, row)]
    model.partition.apply(5, ended=np.array([2], np.int64), rows=columns, vectors=[[row.vector]])
    model.rows.append((5, new, row.vector))
    model.live[1] = False
    model.live.append(True)
    model.sequence = 5
    _check(model, model.partition.view)


def test_bytes_are_what_is_allocated() -> None:
    model = Model()
    empty = model.partition.bytes()
    model.append([_memory(random.Random(i)) for i in range(500)])
    view = model.partition.view
    assert view.vectors is not None
    assert model.partition.bytes() >= empty + view.vectors.nbytes + view.term_ids.nbytes + view.tokens.nbytes


def _noted(model: Model, memories: list[Memory]) -> bool:
    """Append as a writer does whose rows may wait; return whether they were shown at once."""
    derived = analyse(memories, [None] * len(memories), EMBEDDER, EMBEDDER)
    columns = []
    for memory, row in zip(memories, derived, strict=True):
        model.sequence += 1
        columns.append(column_row(NAMESPACE << LABEL_BITS | model.sequence, memory, row))
        model.rows.append((model.sequence, memory, row.vector))
        model.live.append(True)
    vectors = [[row.vector for row in derived]]
    return model.partition.apply(model.sequence, rows=columns, vectors=vectors, may_wait=True)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_is_only_noted_is_seen_by_whoever_looks(seed: int) -> None:
    random_ = random.Random(seed)
    model = Model()
    for _ in range(12):
        model.partition.asked_for = random_.random() < 0.2
        asked, shown = model.partition.asked_for, 0
        for _ in range(random_.randrange(1, 9)):
            shown += _noted(model, [_memory(random_) for _ in range(random_.randrange(1, 3))])
        assert shown == asked
        assert model.partition.sequence == model.sequence
        if random_.random() < 0.3:
            model.end(random_.sample(range(len(model.rows)), 2))
        _check(model, model.partition.view)


def test_not_more_than_so_many_are_only_noted() -> None:
    model = Model()
    model.partition.asked_for = False
    shown = [_noted(model, [Memory(text=f"cat {i}")]) for i in range(jiyi.partition._MOST_NOTED + 2)]
    assert shown == [False] * jiyi.partition._MOST_NOTED + [True, False]
    _check(model, model.partition.view)


def test_threads_that_look_at_noted_rows_see_them_all() -> None:
    model = Model(None)
    view = model.partition.view
    seen: list[int] = []
    problems: list[str] = []
    written = threading.Event()

    def look() -> None:
        while not written.is_set():
            least = model.sequence_done
            n = model.partition.view.n
            if n < least:
                problems.append(f"{n} of {least}")
            seen.append(n)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    rows = [Memory(text=f"cat {i}") for i in range(300)]
    derived = analyse(rows, [None] * len(rows), None, None)
    for i, (memory, row) in enumerate(zip(rows, derived, strict=True), start=1):
        columns = [column_row(NAMESPACE << LABEL_BITS | i, memory, row)]
        model.partition.asked_for = i % 7 == 0
        model.partition.apply(i, rows=columns, vectors=[[None]], may_wait=True)
        model.sequence_done = i
    written.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert view.n == 0
    assert model.partition.view.labels.tolist() == list(range(1, 301))
    assert seen
