"""Which text each joins: the most similar (the first of equals) of the earlier ones that joined none themselves."""

from collections.abc import Sequence

from tests.oracles.jaccard import jaccard


def near_copies(
    orders: Sequence[Sequence[int]],
    vectors: Sequence[Sequence[float] | None],
    min_jaccard: float,
    min_cosine: float,
) -> list[int]:
    joined: list[int] = []
    for row, (order, vector) in enumerate(zip(orders, vectors, strict=True)):
        candidates = []
        for other in range(row):
            similarity = jaccard(order, orders[other])
            if joined[other] != other or not order or similarity < min_jaccard:
                continue
            other_vector = vectors[other]
            if (vector is None) != (other_vector is None):
                continue
            if vector is not None and other_vector is not None:
                cosine = 0.0
                for a, b in zip(vector, other_vector, strict=True):
                    cosine += float(a) * float(b)
                if cosine < min_cosine:
                    continue
            if [t for t in order if t in orders[other]] == [t for t in orders[other] if t in order]:
                candidates.append((-similarity, other))
        joined.append(min(candidates)[1] if candidates else row)
    return joined
