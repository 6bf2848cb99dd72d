"""Traditional characters and the simplified ones that stand for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jiyi.models import simplified as module
from jiyi.models.files import ModelFilesError
from jiyi.models.simplified import simplified


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我們週末喜歡徒步", "我们周末喜欢徒步"),
        ("後端資料庫", "后端资料库"),
        ("周末喜欢徒步", "周末喜欢徒步"),
        ("hiking", "hiking"),
        ("", ""),
        ("ひらがな 😀", "ひらがな 😀"),
    ],
)
def test_simplified(text: str, expected: str) -> None:
    assert simplified(text) == expected
    assert simplified(expected) == expected


def test_a_damaged_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FILE", tmp_path / "simplified.txt")
    module._table.cache_clear()
    try:
        with pytest.raises(ModelFilesError, match="install jiyi again"):
            simplified("喜歡")
        (tmp_path / "simplified.txt").write_bytes(b"\xff\xfe\n")
        with pytest.raises(ModelFilesError, match="install jiyi again"):
            simplified("喜歡")
    finally:
        module._table.cache_clear()
