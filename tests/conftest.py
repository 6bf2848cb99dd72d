"""Fixtures that every part of the suite shares: corner rows, read-only copies, token sets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

# `from tests.oracles import …` works however pytest is started.
sys.path.insert(0, str(Path(__file__).parent.parent))

# The same examples on every run; no deadline, because the first call of a kernel may compile it.
settings.register_profile("jiyi", deadline=None, derandomize=True, max_examples=30, database=None)
settings.load_profile("jiyi")

if TYPE_CHECKING:
    from tests.nursery import Nursery


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the tests, a file's stay together, and so do all that start processes and threads.

    Those two folders come first: what takes long must not begin when the other process is about to end.
    """
    if not config.pluginmanager.hasplugin("xdist"):
        return
    together = [Path(__file__).parent / name for name in ("crash", "stress")]
    for item in items:
        folder = item.path.parent
        group = folder.name if folder in together else str(item.path.relative_to(Path(__file__).parent))
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: item.path.parent not in together)


TokenColumns = tuple[NDArray[np.int64], NDArray[np.uint32]]

CORNER_SCORES: dict[str, list[float]] = {
    "empty": [],
    "one": [0.25],
    "one zero": [0.0],
    "constant": [0.5, 0.5, 0.5],
    "all zero": [0.0, 0.0, 0.0, 0.0],
    "negative": [-3.0, -1.0, -2.0],
    "ties at both ends": [1.0, 0.0, 1.0, 0.0, 0.5],
    "signed zeros": [0.0, -0.0, 1.0],
    "huge": [1e308, -1e308, 0.0],
    "tiny": [5e-324, 0.0, 1e-320],
    "nearly equal": [1.0, 1.0 + 2**-52, 1.0],
}

CORNER_TOKEN_SETS: dict[str, list[list[int]]] = {
    "no rows": [],
    "one empty row": [[]],
    "only empty rows": [[], [], []],
    "one row": [[3, 5]],
    "copies": [[1, 2], [1, 2], [1, 2]],
    "disjoint": [[1], [2], [3]],
    "subset and empty": [[1, 2, 3], [2], [], [1, 2, 3]],
    "largest ids": [[0, 4294967295], [4294967295], [0]],
}


@pytest.fixture(params=list(CORNER_SCORES), ids=lambda name: name.replace(" ", "-"))
def corner_scores(request: pytest.FixtureRequest) -> NDArray[np.float64]:
    """Finite score lists at the edges: empty, one, equal, huge, tiny."""
    return np.array(CORNER_SCORES[request.param], np.float64)


@pytest.fixture(params=list(CORNER_TOKEN_SETS), ids=lambda name: name.replace(" ", "-"))
def corner_token_sets(request: pytest.FixtureRequest) -> list[list[int]]:
    """Token sets at the edges: none, empty, equal, disjoint, the largest ids."""
    return CORNER_TOKEN_SETS[request.param]


@pytest.fixture
def corner_rows() -> NDArray[np.float32]:
    """Vectors at the edges, finite: zero, unit, equal, scaled copy, opposite, tiny, huge."""
    return np.array(
        [
            [0.0, 0.0, 0.0, 0.0],
            [1.0, 0.0, 0.0, 0.0],
            [1.0, 0.0, 0.0, 0.0],
            [3.0, 0.0, 0.0, 0.0],
            [-1.0, 0.0, 0.0, 0.0],
            [1e-25, 1e-25, 0.0, 0.0],
            [1e30, 0.0, -1e30, 0.0],
            [0.5, 0.5, 0.5, 0.5],
            [-0.0, 0.0, -0.0, 0.0],
        ],
        np.float32,
    )


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery | None]:
    """One warm process that forks the children of all tests, started by the first that asks; None outside Linux."""
    from tests.nursery import Nursery

    if sys.platform != "linux":
        yield None
        return
    with Nursery() as started:
        yield started


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


@pytest.fixture
def read_only() -> Callable[[NDArray[Any]], NDArray[Any]]:
    """A copy of an array that refuses to be written to, like a memory-mapped column."""
    return _read_only


def token_columns(rows: Sequence[Sequence[int]], spare: int = 0) -> TokenColumns:
    indptr = np.zeros(len(rows) + 1 + spare, np.int64)
    indptr[1 : len(rows) + 1] = np.cumsum([len(row) for row in rows])
    ids = np.array([token for row in rows for token in row] + [4_000_000_000] * spare, np.uint32)
    if spare:
        indptr[len(rows) + 1 :] = 2**62  # beyond the rows there is garbage, as in a column that has room to grow
    return indptr, ids


@pytest.fixture
def columns() -> Callable[..., TokenColumns]:
    """Rows of tokens as (indptr, ids); `spare` > 0 adds that much capacity, filled with garbage."""
    return token_columns
