"""Ids: UUID version 7, in the order of making, distinct whatever happens."""

from __future__ import annotations

import os
import threading
import time
import uuid

import pytest

import jiyi.ids
from jiyi.ids import new_id


def test_is_a_uuid_of_version_7_of_this_moment() -> None:
    before = time.time_ns() // 1_000_000
    text = new_id()
    value = uuid.UUID(text)
    assert str(value) == text
    assert value.version == 7
    assert value.variant == uuid.RFC_4122
    # A tick ahead is possible when many were made in this very millisecond.
    assert before <= value.int >> 80 <= time.time_ns() // 1_000_000 + 1_000


def test_later_ids_sort_after_earlier_ones() -> None:
    made = [new_id() for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_order_holds_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_id()
    monkeypatch.setattr(jiyi.ids.time, "time_ns", lambda: 1_000_000_000)
    assert new_id() > first


def test_threads_get_distinct_ids() -> None:
    made: list[list[str]] = [[] for _ in range(4)]

    def work(own: list[str]) -> None:
        own.extend(new_id() for _ in range(3_000))

    threads = [threading.Thread(target=work, args=(own,)) for own in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for own in made for one in own}) == 12_000
    assert all(own == sorted(own) for own in made)


def test_the_rest_is_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jiyi.ids, "_random", b"")
    monkeypatch.setattr(os, "urandom", lambda n: bytes(8) + b"\xff" * (n - 8))
    assert new_id().endswith("-8000-000000000000")
    assert new_id().endswith("-bfff-ffffffffffff")
