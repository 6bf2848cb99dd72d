"""Whether a text is Chinese, for what is written about it and compared with it in its own language."""

from __future__ import annotations

import re
from typing import Final

_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_KANA: Final = re.compile("[\u3041-\u30ff]")
_SPACED_WORD: Final = re.compile(r"[^\W\d_\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\U00020000-\U000323af]+")


def is_chinese(text: str) -> bool:
    """Whether a text is Chinese: more Han characters than words of spaced scripts, and no kana."""
    return not text.isascii() and len(_HAN.findall(text)) > len(_SPACED_WORD.findall(text)) and not _KANA.search(text)
