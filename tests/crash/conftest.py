"""One warm process that forks the children of all crash tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash import faults
from tests.crash.server import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    reason = faults.why_not()
    if reason is not None:
        pytest.skip(reason)
    with Server(faults.build(tmp_path_factory.mktemp("faults"))) as started:
        yield started
