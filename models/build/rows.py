"""Which tokens get a row: Chinese words and characters, English words, and pieces for the rest of Latin script."""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from american import american_spelling
from e5s1 import E5Weights

__all__ = ["Row", "RowPlan", "choose_rows", "simplified_characters"]

WORD_START: Final = "\u2581"
_HAN_WORD: Final = re.compile("[\u3007\u3400-\u4dbf\u4e00-\u9fff]{1,4}")
_LATIN_PIECE: Final = re.compile(f"{WORD_START}?[A-Za-z0-9]+")


@dataclass(frozen=True)
class RowPlan:
    """How many tokens of each sort get a row; measured on Chinese and English memory sets (see the model card)."""

    han_words: int = 40_000
    """Words of two to four characters, by jieba's frequency."""
    english_words: int = 40_000
    """Words of SymSpell's frequency list; American spellings come on top."""
    start_pieces: int = 10_000
    """Pieces that start a word and are not among the English words, by their unigram score: other Latin languages."""
    longest_inner_piece: int = 4
    """Letters of the longest piece that continues a word."""


@dataclass(frozen=True)
class Row:
    """One row of the table before it has a vector."""

    key: str
    pieces: tuple[int, ...]
    """What the network reads, without bos and eos."""
    frequency: float
    """Share of running text, in the language it belongs to."""
    piece_score: float
    """Unigram log probability where the key is a piece, else NaN."""


def simplified_characters(opencc: Path) -> dict[str, str]:
    """Return traditional Han characters and their simplified forms, from OpenCC's table.

    Characters of GB 2312 are left alone: "著" and "乾" are also simplified spellings of their own.
    """
    pairs: dict[str, str] = {}
    for line in opencc.read_text(encoding="utf-8").splitlines():
        traditional, _, forms = line.partition("\t")
        simplified = forms.split(" ")[0]
        if len(traditional) == len(simplified) == 1 and traditional != simplified and not _in_gb2312(traditional):
            pairs[traditional] = simplified
    return pairs


def _in_gb2312(character: str) -> bool:
    try:
        character.encode("gb2312")
    except UnicodeEncodeError:
        return False
    return True


def _read_counts(path: Path) -> list[tuple[str, int]]:
    lines = (line.split() for line in path.read_text(encoding="utf-8-sig").splitlines())
    return sorted(((fields[0], int(fields[1])) for fields in lines), key=lambda pair: (-pair[1], pair[0]))


def _tokenize(weights: E5Weights, words: Sequence[str]) -> list[tuple[int, ...]]:
    from tokenizers import Tokenizer
    from tokenizers.models import Unigram
    from tokenizers.pre_tokenizers import Metaspace

    vocabulary = list(zip(weights.pieces, weights.scores.tolist(), strict=True))
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=weights.config.unk))
    tokenizer.pre_tokenizer = Metaspace()
    return [tuple(encoded.ids) for encoded in tokenizer.encode_batch(list(words), add_special_tokens=False)]


def choose_rows(
    weights: E5Weights, jieba_dictionary: Path, symspell_dictionary: Path, simplified: dict[str, str], plan: RowPlan
) -> list[Row]:
    """Return the rows in table order: Han by frequency, English words by frequency, then pieces by id."""
    words = _han_counts(weights, jieba_dictionary, simplified, plan) + _english_counts(symspell_dictionary, plan)
    pieces = _latin_pieces(weights)
    start_rank = 0
    taken = {key for key, _ in words}
    piece_rows: list[Row] = []
    for key, piece in pieces.items():
        if key in taken:
            continue
        if key.startswith(WORD_START) and len(key) > 4 and not key[1:].isdigit():
            start_rank += 1
            if start_rank > plan.start_pieces:
                continue
        elif not key.startswith(WORD_START) and len(key) > plan.longest_inner_piece and not key.isdigit():
            continue
        score = float(weights.scores[piece])
        piece_rows.append(Row(key, (piece,), float(np.exp(score)), score))
    # A word that is one piece is forwarded as that piece.
    spellings = [key.removeprefix(WORD_START) for key, _ in words]
    rows = [
        Row(
            key,
            (pieces[key],) if key in pieces else ids,
            frequency,
            float(weights.scores[pieces[key]]) if key in pieces else float("nan"),
        )
        for (key, frequency), ids in zip(words, _tokenize(weights, spellings), strict=True)
    ]
    return rows + piece_rows


def _han_counts(
    weights: E5Weights, dictionary: Path, simplified: dict[str, str], plan: RowPlan
) -> list[tuple[str, float]]:
    table = str.maketrans(simplified)
    counts: dict[str, int] = {}
    every = _read_counts(dictionary)
    for word, count in every:
        # NFKC as the reader folds: a compatibility character would never be looked up.
        word = unicodedata.normalize("NFKC", word).translate(table)
        if _HAN_WORD.fullmatch(word):
            counts[word] = counts.get(word, 0) + count
    for piece in weights.pieces:
        character = piece.removeprefix(WORD_START).translate(table)
        if len(character) == 1 and _HAN_WORD.fullmatch(character):
            counts.setdefault(character, 1)
    total = sum(count for _, count in every)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    longer = [pair for pair in ordered if len(pair[0]) > 1][: plan.han_words]
    single = [pair for pair in ordered if len(pair[0]) == 1]
    return [(word, count / total) for word, count in longer + single]


def _english_counts(dictionary: Path, plan: RowPlan) -> list[tuple[str, float]]:
    every = _read_counts(dictionary)
    total = sum(count for _, count in every)
    known = {word for word, _ in every}
    counts: dict[str, int] = {}
    for word, count in every[: plan.english_words]:
        if re.fullmatch("[a-z]+", word):
            counts.setdefault(word, count)
            american = american_spelling(word)
            if american is not None and american not in known:
                counts.setdefault(american, count)
    return [(WORD_START + word, count / total) for word, count in counts.items()]


def _latin_pieces(weights: E5Weights) -> dict[str, int]:
    """Return lower-cased Latin pieces and their ids: the piece itself, or the one written with capitals."""
    pieces: dict[str, int] = {}
    known = set(weights.pieces)
    for piece, text in enumerate(weights.pieces):
        lower = text.lower()
        if _LATIN_PIECE.fullmatch(text) and (text == lower or (lower not in known and lower not in pieces)):
            pieces[lower] = piece
    return pieces
