"""Which of many texts say again what an earlier one says: token sets, token order and vectors, without all pairs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jiyi.kernels import _check
from jiyi.kernels._jit import float32, float64, int64, jit, reads, uint32, writes
from jiyi.kernels.jaccard import _shared, ratio

#: Entries of the index that are looked at for one text, and texts that are compared with it, at most: what keeps
#: hundreds of thousands of texts that share their words and are no copies from being compared in pairs.
MOST_ENTRIES: Final = 100_000
MOST_COMPARED: Final = 500


def near_copies(
    indptr: NDArray[np.int64],
    ids: NDArray[np.uint32],
    order: NDArray[np.uint32],
    vectors: NDArray[np.float32],
    has_vector: NDArray[np.int64],
    min_jaccard: float,
    min_cosine: float,
) -> NDArray[np.int64]:
    """Find for each text the earlier one that it is a near-copy of.

    A text joins the text it is most like (by Jaccard; the earliest of equals) among those before it that joined none
    themselves, if J(A, B) ≥ min_jaccard, cos(a, b) ≥ min_cosine and the tokens that both hold stand in the same order.
    Every text of a group is thus a near-copy of its first: groups do not drift apart over members between.

    Candidates come from an index of each text's rarest tokens: sets with J ≥ t share one of their first
    |A| − ⌈t·|A|⌉ + 1 tokens in any common order, and no more than what stands behind it (prefix and positional filter:
    Xiao, Wang, Lin & Yu 2008, Efficient Similarity Joins for Near Duplicate Detection).

    Args:
        indptr: shape (n + 1,), int64: text r's tokens are [indptr[r], indptr[r + 1]).
        ids: shape (nnz,), uint32, ascending and unique within a text, numbered from 0: the lower, the rarer.
        order: shape (nnz,), uint32: the same tokens of each text, as they first stand in it.
        vectors: shape (n, dim), float32, of length 1, or dim = 0.
        has_vector: shape (n,), int64: 1 for texts with a vector. Two without are compared by words alone; one without
            is no copy of one with.
        min_jaccard: above 0, at most 1.
        min_cosine: −1 to 1.

    Returns:
        Shape (n,), int64: the row of the text that each joined, or its own. A text without tokens joins none.
        O(nnz) and what the index gives; `MOST_ENTRIES` and `MOST_COMPARED` bound that for each text.

    Raises:
        TypeError: an array of another dtype.
        ValueError: another shape, not contiguous, an id at or above nnz, or a threshold out of range.
    """
    n = max(_check.array(indptr, _check.I64, 1, "indptr") - 1, 0)
    nnz = _check.csr_of(indptr, ids, n, "ids")
    _check.length(_check.array(order, _check.U32, 1, "order"), nnz, "order", "ids")
    _check.length(_check.array(vectors, _check.F32, 2, "vectors"), n, "vectors", "indptr without its last")
    _check.length(_check.array(has_vector, _check.I64, 1, "has_vector"), n, "has_vector", "vectors")
    if not 0 < min_jaccard <= 1:
        raise ValueError(f"min_jaccard is {min_jaccard}, allowed is above 0 and at most 1")
    if not -1 <= min_cosine <= 1:
        raise ValueError(f"min_cosine is {min_cosine}, allowed is -1 to 1")
    leaders = np.arange(n, dtype=np.int64)
    if n == 0 or nnz == 0:
        return leaders
    vocabulary = int(ids[: indptr[n]].max(initial=0)) + 1
    if vocabulary > nnz:
        raise ValueError(
            f"the largest of ids is {vocabulary - 1}, allowed is below {nnz}, their number: number them from 0"
        )
    _near_copies_kernel(
        indptr, ids, order, vectors, has_vector, float(min_jaccard), float(min_cosine), vocabulary, leaders
    )
    return leaders


@jit()
def _least(share: Any, size: Any) -> Any:
    """⌈share · size⌉, without the ceiling of a rounding error."""
    return np.int64(np.ceil(share * size - 1e-9))


@jit()
def _in_order(
    order: Any, a_start: Any, a_end: Any, b_start: Any, b_end: Any, in_a: Any, mark_a: Any, in_b: Any, mark_b: Any
) -> Any:
    """Whether the tokens that two texts share stand in the same order in both; in_a says which are a's."""
    for j in range(b_start, b_end):
        in_b[order[j]] = mark_b
    i = a_start
    for j in range(b_start, b_end):
        if in_a[order[j]] != mark_a:
            continue  # only b has it
        while i < a_end and in_b[order[i]] != mark_b:
            i += 1
        if i == a_end or order[i] != order[j]:
            return False
        i += 1
    return True


@jit(
    (
        reads(int64),
        reads(uint32),
        reads(uint32),
        reads(float32, 2),
        reads(int64),
        float64,
        float64,
        int64,
        writes(int64),
    )
)
def _near_copies_kernel(
    indptr: Any,
    ids: Any,
    order: Any,
    vectors: Any,
    has_vector: Any,
    min_jaccard: Any,
    min_cosine: Any,
    vocabulary: Any,
    leaders: Any,
) -> None:
    n = len(leaders)
    # Room for every text's prefix, by token; only texts that lead a group are put in.
    starts = np.zeros(vocabulary + 1, np.int64)
    for row in range(n):
        size = indptr[row + 1] - indptr[row]
        for position in range(indptr[row], indptr[row] + size - _least(min_jaccard, size) + (size > 0)):
            starts[ids[position] + 1] += 1
    for token in range(vocabulary):
        starts[token + 1] += starts[token]
    ends = starts[:vocabulary].copy()
    holders = np.empty(starts[vocabulary], np.int64)
    places = np.empty(starts[vocabulary], np.int64)

    met = np.full(n, -1, np.int64)
    in_row = np.full(vocabulary, -1, np.int64)
    in_other = np.full(vocabulary, -1, np.int64)
    mark = 0
    for row in range(n):
        start, end = indptr[row], indptr[row + 1]
        size = end - start
        if size == 0:
            continue
        for position in range(start, end):
            in_row[ids[position]] = row
        prefix = size - _least(min_jaccard, size) + 1
        best, best_similarity = -1, 0.0
        looked_at, compared = 0, 0
        for i in range(prefix):
            token = ids[start + i]
            for entry in range(starts[token], ends[token]):
                looked_at += 1
                if looked_at > MOST_ENTRIES or compared >= MOST_COMPARED:
                    break
                other = holders[entry]
                if met[other] == row:
                    continue
                met[other] = row
                other_size = indptr[other + 1] - indptr[other]
                # What is left behind the first token that both hold bounds how many they share.
                most = 1 + min(size - i - 1, other_size - places[entry] - 1)
                if ratio(most, size, other_size) < min_jaccard:
                    continue
                compared += 1
                similarity = ratio(_shared(ids, start, end, ids, indptr[other], indptr[other + 1]), size, other_size)
                if similarity < min_jaccard or similarity < best_similarity:
                    continue
                if similarity == best_similarity and best >= 0 and best < other:
                    continue
                if has_vector[row] != has_vector[other]:
                    continue
                if has_vector[row] == 1:
                    cosine = 0.0
                    for column in range(vectors.shape[1]):
                        cosine += np.float64(vectors[row, column]) * np.float64(vectors[other, column])
                    if cosine < min_cosine:
                        continue
                mark += 1
                if _in_order(order, start, end, indptr[other], indptr[other + 1], in_row, row, in_other, mark):
                    best, best_similarity = other, similarity
        if best >= 0:
            leaders[row] = best
            continue
        for i in range(prefix):
            token = ids[start + i]
            holders[ends[token]] = row
            places[ends[token]] = i
            ends[token] += 1
