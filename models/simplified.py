"""Traditional Chinese characters and the simplified ones that stand for them, from OpenCC's table."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from jiyi.models.files import ModelFilesError

__all__ = ["simplified"]

# Not in the file, because simplified Chinese writes these too, if rarely, for words of their own. Where both sides of a
# comparison are brought to one form, that does no harm.
_ALSO: Final = dict(zip("乾吒夥後徵捱摺於榘甯菸薹醣麴麽", "干咤伙后征挨折于矩宁烟苔糖曲么", strict=True))

_FILE: Final = Path(__file__).parent / "weights" / "simplified.txt"


def simplified(text: str) -> str:
    """Return a text with simplified characters in place of traditional ones.

    Raises:
        ModelFilesError: the file that ships is missing or unreadable.
    """
    if text.isascii():
        return text
    table = _table()
    if table.keys().isdisjoint(text):
        return text
    for traditional in table.keys() & set(text):  # few, and a replacement is quicker than translating every character
        text = text.replace(traditional, table[traditional])
    return text


@cache
def _table() -> dict[str, str]:
    """Traditional character to the simplified one; read once a process."""
    try:
        pairs = {line[0]: line[1] for line in _FILE.read_text(encoding="utf-8").splitlines()} | _ALSO
    except (OSError, ValueError, IndexError) as error:
        raise ModelFilesError(_FILE, f"is damaged ({error}); install jiyi again") from error
    return {traditional: pairs.get(character, character) for traditional, character in pairs.items()}
