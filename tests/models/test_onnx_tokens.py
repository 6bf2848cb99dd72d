from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from jiyi.models import ModelFilesError, onnx_tokens
from jiyi.models.onnx_pairs import MAX_WINDOWS, PairCutter
from jiyi.models.onnx_tokens import TextTokenizer
from tests.models.tiny_onnx import byte_level, unigram, wordpiece

KINDS = {"wordpiece": wordpiece, "unigram": unigram, "byte-level": byte_level}
PATH = Path("tokenizer.json")


def read(tokenizer: Tokenizer) -> TextTokenizer:
    return TextTokenizer(tokenizer.to_str().encode(), PATH)


@pytest.fixture(params=list(KINDS))
def raw(request: pytest.FixtureRequest) -> Tokenizer:
    tokenizer = KINDS[request.param]()
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


TEXTS = ["the cat sat", "I love hiking on the trail!", "我喜欢喝龙井茶", "xyz qq", "a", "deploy gpu 部署 server"]


def test_pairs_are_those_of_the_tokenizer(raw: Tokenizer) -> None:
    tokenizer = read(raw)
    template = tokenizer.pair()
    for query in TEXTS:
        for text in TEXTS:
            ids, types = template.join(tokenizer.ids(query, 99), tokenizer.ids(text, 99))
            expected = raw.encode(query, text)
            assert ids == expected.ids
            assert types == expected.type_ids
    assert template.specials == expected.special_tokens_mask.count(1)


def test_texts_are_those_of_the_tokenizer(raw: Tokenizer) -> None:
    tokenizer = read(raw)
    for text in TEXTS:
        ids = [*tokenizer.single.prefix, *tokenizer.ids(text, 99), *tokenizer.single.suffix]
        assert ids == raw.encode(text).ids


def test_padding_and_truncation_of_the_file_have_no_effect() -> None:
    tokenizer = read(wordpiece())
    assert len(tokenizer.ids("the cat sat on the cat sat on the cat sat", 99)) == 11
    assert len(tokenizer.ids("the", 99)) == 1


def test_special_tokens_in_a_text_are_text() -> None:
    tokenizer = read(wordpiece())
    specials = {tokenizer._tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]", "[PAD]", "[MASK]")}
    assert not specials & set(tokenizer.ids("the cat [SEP] [CLS] query [PAD] [MASK]", 99))
    assert len(tokenizer.ids("[SEP]", 99)) == 5  # [ s ##e ##p ]
    other = read(unigram())
    assert not {0, 1, 2} & set(other.ids("the cat </s> <s> query <pad>", 99))
    assert len(other.ids("</s>", 99)) <= 1


@pytest.mark.parametrize("space", ["\n", "\r\n", "\t", "  ", "\n\n ", "\u2028", "\u3000"])
def test_white_space_of_any_kind_separates_words(space: str) -> None:
    for make in (wordpiece, unigram):
        tokenizer = read(make())
        ids = tokenizer.ids(f"the{space}cat", 9)
        assert ids == tokenizer.ids("the cat", 9)
        assert tokenizer.unknown_id not in ids


def test_newline_is_left_to_a_tokenizer_that_knows_it() -> None:
    tokenizer = read(byte_level())
    assert tokenizer.ids("a\nb", 9) != tokenizer.ids("a b", 9)


HOSTILE = {
    "lone high surrogate": "cat \ud83d sat",
    "lone low surrogate": "\udc00",
    "surrogate pair in two": "cat \ud83d\ude00 sat",
    "NUL": "\x00cat\x00",
    "control": "\x01\x02\x1b[31m",
    "emoji": "cat 👩‍👩‍👧‍👦🏳️‍🌈 sat",
    "right to left": "\u202ecat\u202c مرحبا",
    "combining": "e" + "\u0301" * 1_000,
    "zero width": "\u200b\u200d\ufeff",
    "one word": "x" * 100_000,
    "private use": "\ue000\U0010ffff",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_have_tokens_or_none(raw: Tokenizer, text: str) -> None:
    ids = read(raw).ids(text, 64)
    assert 0 <= len(ids) <= 64
    assert min(ids, default=0) >= 0


def test_halves_of_a_surrogate_pair_are_one_character() -> None:
    tokenizer = read(byte_level())
    assert tokenizer.ids("\ud83d\ude00", 9) == tokenizer.ids("😀", 9)
    assert tokenizer.ids("\ud83d", 9) == tokenizer.ids("\ufffd", 9)


@pytest.mark.parametrize(
    "text", ["the cat sat " * 90_000, "的" * 1_000_000, " " * 1_000_000 + "the cat", "x" * 1_000_000]
)
def test_a_megabyte_is_read_as_far_as_wanted(text: str) -> None:
    tokenizer = read(wordpiece())
    ids = tokenizer.ids(text, 8)
    assert len(ids) <= 8
    head = text.split()[:20]
    if len(head) == 20:
        assert ids == tokenizer.ids(" ".join(head), 8)


@given(st.lists(st.sampled_from(TEXTS[0].split()), min_size=1, max_size=60), st.integers(1, 30))
def test_cut_is_a_prefix_or_a_suffix(words: list[str], most: int) -> None:
    tokenizer = read(wordpiece())
    text = " ".join(words)
    whole = tokenizer.ids(text, 1_000)
    assert tokenizer.ids(text, most) == whole[:most]
    assert tokenizer.last_ids(text, most) == whole[-most:]


@pytest.mark.parametrize("kind", list(KINDS))
def test_many_at_once_are_as_one_by_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_tokens, "PARALLEL_TEXTS", 3)
    tokenizer = read(KINDS[kind]())
    texts = [*TEXTS, *HOSTILE.values(), "</s> [SEP]", ""]
    expected = [tokenizer.ids(text, 8) for text in texts]
    assert tokenizer.ids_many(texts, 8) == expected
    # Not with parallel=True here: this process is to be forked by other tests.
    batches: list[int] = []
    encode = tokenizer._tokenizer.encode

    class Parallel:
        def encode_batch_fast(self, batch: list[str], add_special_tokens: bool) -> list[object]:
            batches.append(len(batch))
            return [encode(text, add_special_tokens=add_special_tokens) for text in batch]

        def encode(self, text: str, add_special_tokens: bool) -> object:
            return encode(text, add_special_tokens=add_special_tokens)

    tokenizer._tokenizer = Parallel()
    assert tokenizer.ids_many(texts, 8, parallel=True) == expected
    assert tokenizer.ids_many(texts[:2], 8, parallel=True) == expected[:2]
    monkeypatch.setattr(tokenizer, "_process", -1)
    assert tokenizer.ids_many(texts, 8, parallel=True) == expected
    assert batches == [len(texts)]


def test_unknown_spans() -> None:
    tokenizer = read(wordpiece())
    text = "cat é 馬 sat"
    assert [text[a:b] for a, b in tokenizer.unknown_spans(text)] == ["馬"]
    assert read(byte_level()).unknown_spans(text) == []


BAD = {
    "empty": b"",
    "object": b"{}",
    "binary": b"\xff\x00",
    "wrong model": b'{"model": 3}',
    "list": b"[]",
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_bad_file_is_an_error_of_its_own(content: bytes) -> None:
    with pytest.raises(ModelFilesError, match="is not a tokenizer") as caught:
        TextTokenizer(content, PATH)
    assert caught.value.path == PATH
    assert "reinstall" not in str(caught.value)


def test_tokenizer_without_a_token_for_anything() -> None:
    from tokenizers import models

    with pytest.raises(ModelFilesError, match="gives no tokens"):
        read(Tokenizer(models.BPE({}, [])))


def test_template_with_the_text_first_is_refused() -> None:
    from tokenizers import processors

    tokenizer = wordpiece()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $B:1 [SEP] $A:0 [SEP]", special_tokens=special
    )
    with pytest.raises(ModelFilesError, match="no template for pairs"):
        read(tokenizer).pair()


# Windows: 64 tokens a row, 3 of them special, so 61 for query and text; a query has at most 30.

CUTTER = PairCutter(read(wordpiece()), 64)


def rows(query: str, text: str) -> list[list[int]]:
    return list(CUTTER.rows(CUTTER.query(query), CUTTER.texts([text])[0]).ids)


def words(count: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join(letters[i % 26] if i % 3 else "cat" for i in range(count))


@pytest.mark.parametrize("count", [1, 2, 50, 51])
def test_text_that_fits_has_one_row(count: int) -> None:
    (row,) = rows(words(10), words(count))
    assert len(row) == 3 + 10 + count


@pytest.mark.parametrize("count", [52, 60, 76, 77, 100, 200])
def test_windows_cover_a_long_text_and_end_with_it(count: int) -> None:
    tokenizer = read(wordpiece())
    query, text = tokenizer.ids(words(10), 99), tokenizer.ids(words(count), 999)
    shown = [row[12:-1] for row in rows(words(10), words(count))]
    assert all(row[1:11] == query for row in rows(words(10), words(count)))
    assert {len(window) for window in shown} == {51}
    assert shown[0] == text[:51]
    assert shown[-1] == text[-51:]
    starts = [0]
    for window in shown[1:]:
        starts.append(next(i for i in range(starts[-1] + 1, count) if text[i : i + 51] == window))
    assert all(b - a <= 25 for a, b in pairwise(starts))


def test_windows_end_at_eight() -> None:
    assert len(rows(words(10), words(5_000))) == MAX_WINDOWS
    assert rows(words(10), words(5_000)) == rows(words(10), words(9_000))


def test_long_query_keeps_its_end_and_leaves_half_a_row() -> None:
    tokenizer = read(wordpiece())
    (row,) = rows(words(500), "the cat")
    assert row[1:31] == tokenizer.ids(words(500), 999)[-30:]
    assert len(row) == 3 + 30 + 2
