"""Every Python example of the documentation runs as it stands, from top to bottom of its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").glob("*.md")])
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[int, str]]:
    """The line each example starts on, and its code."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in _BLOCK.finditer(text)]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    for line, code in blocks(page):
        padded = "\n" * (line - 1) + code  # so that a traceback names the line of the page
        exec(compile(padded, str(page), "exec"), names)


def test_there_are_examples() -> None:
    assert sum(len(blocks(page)) for page in PAGES) > 10
