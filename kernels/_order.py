"""Order by score: best first, ties to the smaller key. One rule for every kernel that returns a ranking."""

from __future__ import annotations

from typing import Any

from jiyi.kernels._jit import int64, jit


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
    """Sort the first `held` pairs in place, best first: few by insertion, more by a heap."""
    if held <= 64:
        for i in range(1, held):
            score, key, place = scores[i], keys[i], i
            while place > 0 and is_better(score, key, scores[place - 1], keys[place - 1]):
                scores[place], keys[place] = scores[place - 1], keys[place - 1]
                place -= 1
            scores[place], keys[place] = score, key
        return
    for start in range(held // 2 - 1, -1, -1):
        sift_down(scores, keys, start, held)
    sort_heap(scores, keys, held)


@jit()
def keep_best(scores: Any, keys: Any, held: Any, k: Any) -> None:
    """Bring the k best of the first `held` pairs to the front, the k-th to place k − 1; 0 < k ≤ held.

    Quickselect (Hoare 1961, Algorithm 65: Find), which sorts what is left should it not come to an end.
    """
    low, high, rounds = 0, held - 1, 0
    while low < high:
        rounds += 1
        if rounds > 64:
            sort_best_first(scores[low : high + 1], keys[low : high + 1], high + 1 - low)
            return
        middle = (low + high) >> 1
        if is_better(scores[middle], keys[middle], scores[low], keys[low]):
            _swap(scores, keys, low, middle)
        if is_better(scores[high], keys[high], scores[low], keys[low]):
            _swap(scores, keys, low, high)
        if is_better(scores[middle], keys[middle], scores[high], keys[high]):
            _swap(scores, keys, middle, high)  # the middle one of the three is the last now
        score, key, place = scores[high], keys[high], low
        for i in range(low, high):
            # Without a branch on the data, of which every second would be mispredicted.
            better = (scores[i] > score) | ((scores[i] == score) & (keys[i] < key))
            _swap(scores, keys, i, place)
            place += int64(better)
        _swap(scores, keys, place, high)
        if place == k - 1:
            return
        if place > k - 1:
            high = place - 1
        else:
            low = place + 1


@jit()
def _swap(scores: Any, keys: Any, a: Any, b: Any) -> None:
    scores[a], scores[b] = scores[b], scores[a]
    keys[a], keys[b] = keys[b], keys[a]
