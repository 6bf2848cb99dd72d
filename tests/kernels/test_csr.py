import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.kernels import csr
from tests.oracles import csr as oracle


def pointers(rows) -> np.ndarray:
    return np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)


def flat(rows, dtype) -> np.ndarray:
    return np.array([value for row in rows for value in row], dtype)


values = st.integers(0, 5) | st.integers(0, 2**64 - 1)


@given(rows=st.lists(st.lists(values, max_size=90), max_size=6))
def test_count_sorted_rows_agrees_with_the_oracle(rows):
    indptr, kept, counts = csr.count_sorted_rows(pointers(rows), flat(rows, np.uint64))
    got = [
        list(zip(kept[start:end].tolist(), counts[start:end].tolist(), strict=True))
        for start, end in zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)
    ]
    assert got == [oracle.count_sorted(row) for row in rows]
    assert (indptr.dtype, kept.dtype, counts.dtype) == (np.int64, np.uint64, np.uint16)


def test_counts_saturate():
    rows = [[7] * 65_540 + [9]]
    _, kept, counts = csr.count_sorted_rows(pointers(rows), flat(rows, np.uint64))
    assert (kept.tolist(), counts.tolist()) == ([7, 9], [65_535, 1])


@given(rows=st.lists(st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 20), max_size=100), max_size=5))
def test_sort_rows_agrees_with_the_oracle(rows):
    ids = flat(rows, np.uint32)
    freqs = np.arange(len(ids), dtype=np.uint16)  # where each id came from, so that stability shows
    ids.flags.writeable = freqs.flags.writeable = False
    indptr = pointers(rows)
    got_ids, got_freqs = csr.sort_rows(indptr, ids, freqs)
    pairs = list(zip(ids.tolist(), freqs.tolist(), strict=True))
    spans = list(zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True))
    expected = [pair for start, end in spans for pair in oracle.sort_pairs(pairs[start:end])]
    assert list(zip(got_ids.tolist(), got_freqs.tolist(), strict=True)) == expected


def test_bad_arguments():
    with pytest.raises(ValueError, match="indptr must run from 0 to 2"):
        csr.count_sorted_rows(np.array([0, 3]), np.array([1, 2], np.uint64))
    with pytest.raises(TypeError, match="values has dtype int64"):
        csr.count_sorted_rows(np.array([0, 2]), np.array([1, 2]))
    with pytest.raises(ValueError, match="freqs has length 1, allowed is 2"):
        csr.sort_rows(np.array([0, 2]), np.array([1, 2], np.uint32), np.array([1], np.uint16))


class TestNumberValues:
    @given(st.lists(st.sampled_from([0, 1, 2, 3, 2**32, 2**63, 2**64 - 1]), max_size=60))
    def test_numbers_stand_for_values_in_order_of_appearance(self, values: list[int]) -> None:
        given_values = np.array(values, dtype=np.uint64)
        numbers, distinct = csr.number_values(given_values)
        assert distinct.tolist() == list(dict.fromkeys(values))
        assert distinct[numbers].tolist() == values

    def test_bad_input(self) -> None:
        with pytest.raises(TypeError):
            csr.number_values(np.array([1, 2], dtype=np.int64))


class TestGatherRows:
    @given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=8), st.data())
    def test_named_rows_without_unwanted_ids(self, rows: list[list[int]], data: st.DataObject) -> None:
        wanted = np.array(data.draw(st.lists(st.integers(0, 1), min_size=8, max_size=8)), dtype=np.uint8)
        named = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else []
        pointers_, ids = csr.gather_rows(pointers(rows), flat(rows, np.uint32), wanted, np.array(named, dtype=np.int64))
        found = [ids[pointers_[i] : pointers_[i + 1]].tolist() for i in range(len(named))]
        assert found == [[token for token in rows[row] if token < 8 and wanted[token]] for row in named]

    @pytest.mark.parametrize("row", [-1, 2, 10**9])
    def test_a_row_out_of_range(self, row: int) -> None:
        rows = [[1, 2], [3]]
        with pytest.raises(ValueError, match=rf"rows\[1\] is {row}, allowed is 0 to 1"):
            csr.gather_rows(pointers(rows), flat(rows, np.uint32), np.ones(4, np.uint8), np.array([0, row]))


@given(rows=st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=9), max_size=6))
def test_lists_become_one_array_and_pointers(rows):
    indptr, ids = csr.csr_of_lists(rows)
    assert (indptr.tolist(), ids.tolist()) == (pointers(rows).tolist(), flat(rows, np.uint32).tolist())
    assert (indptr.dtype, ids.dtype) == (np.int64, np.uint32)


def test_lists_of_anything_else_are_refused():
    with pytest.raises(TypeError, match=r"lists\[1\] is 'ab', allowed are lists of integers"):
        csr.csr_of_lists([[1], "ab"])
    with pytest.raises(TypeError, match=r"lists\[0\] is \[1\.5\], allowed are lists of integers"):
        csr.csr_of_lists([[1.5]])
    for number in (-1, 2**32):
        with pytest.raises(ValueError, match=r"lists\[0\] holds a number that is not one of 0 to 4294967295"):
            csr.csr_of_lists([[number]])
