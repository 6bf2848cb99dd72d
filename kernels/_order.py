"""Order by score: best first, ties to the smaller key. One rule for every kernel that returns a ranking."""

from __future__ import annotations

from typing import Any

from jiyi.kernels._jit import jit


@jit()
def is_better(score_a: Any, key_a: Any, score_b: Any, key_b: Any) -> Any:
    """Whether (score_a, key_a) stands before (score_b, key_b)."""
    return score_a > score_b or (score_a == score_b and key_a < key_b)


@jit()
def sift_down(scores: Any, keys: Any, start: Any, end: Any) -> None:
    """Restore the heap [start, end) whose root is the worst pair, after the pair at start was replaced."""
    parent = start
    score, key = scores[start], keys[start]
    while True:
        child = 2 * parent + 1
        if child >= end:
            break
        if child + 1 < end and is_better(scores[child], keys[child], scores[child + 1], keys[child + 1]):
            child += 1
        if not is_better(score, key, scores[child], keys[child]):
            break
        scores[parent], keys[parent] = scores[child], keys[child]
        parent = child
    scores[parent], keys[parent] = score, key


@jit()
def offer(scores: Any, keys: Any, held: Any, capacity: Any, score: Any, key: Any) -> Any:
    """Offer a pair to the heap of the `capacity` best; return how many it holds now. Capacity must be above 0."""
    if held < capacity:
        child = held
        while child > 0:  # sift up: a worse pair rises towards the root
            parent = (child - 1) // 2
            if not is_better(scores[parent], keys[parent], score, key):
                break
            scores[child], keys[child] = scores[parent], keys[parent]
            child = parent
        scores[child], keys[child] = score, key
        return held + 1
    if is_better(score, key, scores[0], keys[0]):
        scores[0], keys[0] = score, key
        sift_down(scores, keys, 0, held)
    return held


@jit()
def sort_heap(scores: Any, keys: Any, held: Any) -> None:
    """Turn the heap in the first `held` places into a list, best first."""
    for end in range(held - 1, 0, -1):
        score, key = scores[0], keys[0]
        scores[0], keys[0] = scores[end], keys[end]
        scores[end], keys[end] = score, key
        sift_down(scores, keys, 0, end)


@jit()
def sort_best_first(scores: Any, keys: Any, held: Any) -> None:
    """Sort the first `held` pairs in place, best first (heap sort)."""
    for start in range(held // 2 - 1, -1, -1):
        sift_down(scores, keys, start, held)
    sort_heap(scores, keys, held)
