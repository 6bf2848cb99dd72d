"""Which of multilingual-e5-small's 250,002 pieces are kept, and a tokenizer of those.

A piece is kept if all its characters are: Latin, Han, kana, bopomofo, digits, punctuation, symbols. A text of such
characters can only be cut into such pieces, so it is cut as the whole vocabulary would cut it.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import Any, Final

from jiyi.models.build.e5s1 import E5Config

__all__ = ["kept_pieces", "tokenizer_json"]

WORD_START: Final = "\u2581"
# Chinese writes names, loan words and の in kana; all of it is 1 MB, so Japanese is read too.
_SCRIPTS: Final = (
    *("LATIN", "CJK", "IDEOGRAPHIC", "KANGXI", "BOPOMOFO", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA"),
    *("COMBINING", "VARIATION SELECTOR", "MODIFIER LETTER", "FEMININE ORDINAL", "MASCULINE ORDINAL"),
)
_MEANT_LITERALLY: Final = "\uf8f0"  # private use: in no text that means anything to the model


def kept_pieces(pieces: Sequence[str], config: E5Config) -> list[int]:
    """Return the ids of the pieces to keep: bos, pad, eos and unk, which get ids 0 to 3, then the others in order."""
    special = [config.bos, config.pad, config.eos, config.unk]
    cache: dict[str, bool] = {}

    def kept(character: str) -> bool:
        known = cache.get(character)
        if known is None:
            known = cache[character] = _kept_character(character)
        return known

    others = (
        i
        for i, piece in enumerate(pieces)
        if i not in special and piece != "<mask>" and (all(map(kept, piece)) or _greek_letter(piece))
    )
    return special + list(others)


def _kept_character(character: str) -> bool:
    if unicodedata.category(character)[0] not in "LM":
        return True
    return unicodedata.name(character, "").startswith(_SCRIPTS)


def _greek_letter(piece: str) -> bool:
    """Single Greek letters are symbols in English and Chinese texts; Greek words are not read."""
    letter = piece.removeprefix(WORD_START)
    return len(letter) == 1 and unicodedata.name(letter, "").startswith("GREEK")


def tokenizer_json(pieces: Sequence[tuple[str, float]], *, max_tokens: int) -> str:
    """Return a `tokenizer.json` of the package tokenizers: a unigram model that writes <s> text </s>.

    Args:
        pieces: the kept pieces and their log probabilities, in the order of their new ids; bos, pad, eos, unk first.
        max_tokens: where longer texts are cut, <s> and </s> counted.
    """
    bos, pad, eos, unk = (piece for piece, _ in pieces[:4])
    data: dict[str, Any] = {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": max_tokens, "strategy": "LongestFirst", "stride": 0},
        "padding": None,
        "added_tokens": [],  # none: these are found in the texts themselves, where "</s>" is only text
        "normalizer": {"type": "Sequence", "normalizers": _normalizers((bos, pad, eos, unk))},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": WORD_START, "prepend_scheme": "always", "split": True},
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special(bos), _sequence("A"), _special(eos)],
            "pair": [_special(bos), _sequence("A"), _special(eos), _special(eos), _sequence("B"), _special(eos)],
            "special_tokens": {
                token: {"id": token, "ids": [i], "tokens": [token]} for i, token in ((0, bos), (2, eos))
            },
        },
        "decoder": {"type": "Metaspace", "replacement": WORD_START, "prepend_scheme": "always", "split": True},
        "model": {"type": "Unigram", "unk_id": 3, "vocab": [list(pair) for pair in pieces], "byte_fallback": False},
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _normalizers(special: Sequence[str]) -> list[dict[str, Any]]:
    """What SentencePiece's nmt_nfkc does, by the file's own table of single characters: NFKC but for what is here."""
    return [
        _replace(r"[\x01-\x08\x0B\x0E-\x1F\x7F\x8F\x9F]", "", regex=True),
        _replace(r"[\t\n\f\r\x{85}\x{1680}\x{200B}-\x{200F}\x{2028}\x{2029}\x{2581}\x{FEFF}\x{FFFD}]", " ", regex=True),
        # The wide tilde that ends many a Chinese sentence is a piece of its own.
        _replace("～", _MEANT_LITERALLY),
        {"type": "NFKC"},
        _replace(_MEANT_LITERALLY, "～"),
        # A special piece is never made from text.
        *(_replace(token, f"{token[0]} {token[1:]}") for token in special),
    ]


def _replace(pattern: str, content: str, *, regex: bool = False) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def _special(token: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": 0}}


def _sequence(name: str) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": 0}}
