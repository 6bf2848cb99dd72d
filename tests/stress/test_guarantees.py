"""Every test that docs/guarantees.md names as showing a promise is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_the_test_that_shows_a_promise_exists(file: str, name: str) -> None:
    path = ROOT / file
    assert path.exists(), file
    assert re.search(rf"^(async )?def {name}\(", path.read_text(encoding="utf-8"), re.MULTILINE), name


def test_every_promise_names_a_test() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith("| promise")]
    assert len(promises) > 20
    for row in promises:
        assert re.search(r"`tests/[\w/]+\.py::\w+`", row), row
