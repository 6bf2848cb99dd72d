"""Which installed fonts can draw a text: Matplotlib draws an empty box for what the first it is given does not have."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_BASE: Final = "DejaVu Sans"  # comes with Matplotlib
# Looked into first: fonts made for Chinese and Japanese on Linux, macOS and Windows. Any other that has the
# characters will do as well.
_USUAL: Final = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti SC",
    "STHeiti",
    "Microsoft YaHei",
    "SimHei",
    "SimSun",
    "Noto Sans CJK JP",
    "Droid Sans Fallback",
    "Arial Unicode MS",
)
# Emoji are pictures of one size; a font of last resort has every character, as a box.
_NO_LETTERS: Final = ("emoji", "last resort", "lastresort")


def fonts_for(text: str) -> tuple[list[str], frozenset[str]]:
    """Return families that together draw a text, in the order to try them, and the characters that none has."""
    needed = {character for character in text if not character.isspace()}
    families: list[str] = []
    for family, path in _installed():
        has = needed & _characters_of(path)
        if has or not families:
            families.append(family)
            needed -= has
        if not needed:
            break
    return families, frozenset(needed)


def _installed() -> list[tuple[str, str]]:
    """Each family with the file of its upright regular font: Matplotlib's own first, then the usual ones."""
    from matplotlib.font_manager import fontManager

    files: dict[str, list[tuple[int, str]]] = {}
    for font in fontManager.ttflist:
        if font.style == "normal" and not any(word in font.name.lower() for word in _NO_LETTERS):
            weight = font.weight if isinstance(font.weight, int) else 400
            files.setdefault(font.name, []).append((abs(weight - 400), font.fname))
    places = {name: place for place, name in enumerate((_BASE, *_USUAL))}
    names = sorted(files, key=lambda name: (places.get(name, len(places)), name))
    return [(name, min(files[name])[1]) for name in names]


@lru_cache(maxsize=512)
def _characters_of(path: str) -> frozenset[str]:
    """The characters that a font has; none for one that cannot be read or scaled."""
    from matplotlib.font_manager import get_font

    try:
        font = get_font(path)
        return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()
    except (OSError, RuntimeError, ValueError):
        return frozenset()
