"""What a model knows: `OnnxCrossEncoder.knows`, and the scripts behind it. And the cache of scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jiyi.models.onnx_cross_encoder import OnnxCrossEncoder
from jiyi.models.score_cache import ScoreCache, pair_key
from jiyi.models.scripts import script_of, scripts_of_languages, scripts_of_vocabulary
from tests.models.tiny_onnx import make_folder, unigram


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its vocabulary has Latin letters and two dozen Han characters, as BERT's English one has some 700."""
    return make_folder(tmp_path_factory.mktemp("readable") / "tiny", outputs=1)


def knows(folder: Path, text: str, *languages: str) -> float:
    return OnnxCrossEncoder(folder, device="cpu", threads=1, languages=languages).knows(text)


@pytest.mark.parametrize(
    ("text", "languages", "share"),
    [
        ("I love my cat", ("en",), 1.0),
        ("我喜欢喝茶", ("en",), 0.0),
        ("我喜欢喝茶", ("zh",), 1.0),
        ("我喜欢喝茶", ("en", "zh"), 1.0),
        ("我喜欢喝茶", ("*",), 1.0),
        ("部署gpu", ("en",), 3 / 5),
        ("部署gpu", ("zh",), 2 / 5),
        ("馬 cat", ("*",), 3 / 4),
        ("привет", ("en",), 0.0),
        ("привет", ("*",), 0.0),
        ("naïve", ("en",), 1.0),
        ("2026-01-01, 9:30?!", ("en",), 1.0),
        ("", ("en",), 1.0),
        ("cat 👩‍👩‍👧", ("en",), 1.0),
        ("\ud83d\ude00 馬cat\udc00", ("*",), 3 / 4),
        ("cat", ("xx",), 1.0),
        ("我", ("en", "xx"), 1.0),
    ],
)
def test_share_of_letters(folder: Path, text: str, languages: tuple[str, ...], share: float) -> None:
    assert knows(folder, text, *languages) == pytest.approx(share)


def test_manifest_has_the_languages(tmp_path: Path) -> None:
    english = make_folder(tmp_path / "en", outputs=1, manifest={"languages": ["en"]})
    both = make_folder(tmp_path / "both", outputs=1, manifest={"languages": ["en", "zh"]}, tokenizer=unigram())
    assert OnnxCrossEncoder(english, device="cpu").knows("我喜欢喝茶") == 0.0
    assert OnnxCrossEncoder(both, device="cpu").knows("我喜欢喝茶") == 1.0


def test_long_text_is_judged_by_its_beginning(folder: Path) -> None:
    assert knows(folder, "cat " * 600 + "我" * 1_000_000, "en") == 1.0


@pytest.mark.parametrize(
    ("letter", "script"),
    [
        ("a", "LATIN"), ("é", "LATIN"), ("Ａ", "LATIN"), ("ß", "LATIN"), ("我", "CJK"), ("〇", ""), ("豈", "CJK"),
        ("𠀀", "CJK"), ("あ", "HIRAGANA"), ("ｱ", "KATAKANA"), ("한", "HANGUL"), ("ж", "CYRILLIC"), ("α", "GREEK"),
        ("ก", "THAI"), ("1", ""), (" ", ""), ("!", ""), ("😀", ""), ("\ufffd", ""), ("\ue000", ""),
    ],
)  # fmt: skip
def test_scripts(letter: str, script: str) -> None:
    assert script_of(letter) == script


def test_scripts_of_languages() -> None:
    assert scripts_of_languages(["en", "de"]) == {"LATIN"}
    assert scripts_of_languages(["zh-TW", "EN"]) == {"CJK", "LATIN"}
    assert scripts_of_languages(["ja"]) == {"CJK", "HIRAGANA", "KATAKANA"}
    assert scripts_of_languages(["*"]) is None
    assert scripts_of_languages([]) is None


def test_vocabulary_of_single_characters_was_not_made_for_their_script() -> None:
    english = [f"##{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(500)]
    stray = [chr(0x4E00 + i) for i in range(700)] + [chr(0x430 + i) for i in range(32)]
    assert scripts_of_vocabulary([*english, *stray]) == {"LATIN"}
    chinese = [chr(0x4E00 + i) for i in range(7_000)]
    assert scripts_of_vocabulary([*english, *chinese]) == {"LATIN", "CJK"}
    assert scripts_of_vocabulary(["a", "cat", "我"]) == {"LATIN", "CJK"}


def test_keys_tell_pairs_apart() -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("a\ud800", "b"), ("a?", "b"), ("a\x00", "b")]
    assert len({pair_key(*pair) for pair in pairs}) == len(pairs)
    assert {len(pair_key(*pair)) for pair in pairs} == {16}


def test_cache_forgets_what_was_unused_for_longest() -> None:
    cache = ScoreCache(2)
    cache.put(b"a", 1.0)
    cache.put(b"b", 2.0)
    assert cache.get(b"a") == 1.0
    cache.put(b"c", 3.0)
    assert (cache.get(b"a"), cache.get(b"b"), cache.get(b"c")) == (1.0, None, 3.0)
    assert len(cache) == 2


@pytest.mark.parametrize("most", [-1, True, 2.0, None])
def test_bad_cache(most: Any) -> None:
    with pytest.raises(ValueError, match="cache_pairs"):
        ScoreCache(most)
