"""What is fuzzed: functions of bytes that raise only where jiyi is wrong. Hypothesis and Atheris call the same ones.

What a stranger's bytes may lead to is a right answer, or an error of those in `CLEAR`, in few words.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

import jiyi
from jiyi.cli.options import setting
from jiyi.filters import holds, parse_where
from jiyi.ingest import read_memories
from jiyi.jsonl import BadLineError
from jiyi.models.files import ModelFilesError
from tests.fuzz.source import Source

CLEAR: Final = (ValueError, TypeError, jiyi.JiyiError, ModelFilesError)
NOW: Final = "2026-06-01"
_LONGEST_MESSAGE: Final = 1_300


@contextmanager
def clearly() -> Iterator[None]:
    """Let a clear error pass, and nothing else."""
    try:
        yield
    except CLEAR as error:
        assert len(str(error)) < _LONGEST_MESSAGE, str(error)[:300]  # noqa: PT017


@cache
def engine() -> jiyi.Engine:
    """One that all trials share: what one leaves behind is there in the next."""
    opened = jiyi.open(embedder=None, dim=4)
    opened.add("green tea", id="1", namespace="kept", metadata={"a": 1, "b": [1, "x"]}, vector=[1, 0, 0, 0])
    return opened


def texts(content: bytes) -> None:
    """A text is kept to the last character, and found by itself and by any query."""
    source, store = Source(content), engine()
    query, text = source.text(), source.text() + source.rest().decode("utf-8", "replace")
    store.forget({}, namespace="t")
    with clearly():
        store.add(text, id="x", namespace="t", timestamp=NOW)
        assert store.get("x", namespace="t").text == text
        assert store.count(namespace="t", where={"text": text}) == 1
        hits = store.search(text, namespace="t", now=NOW)
        assert hits.ids in ([], ["x"])
        hits.explain()
        json.dumps(hits.to_dict())
    with clearly():
        hits = store.search(query, namespace="kept", now=NOW, k=3)
        assert set(hits.ids) <= {"1"}
        assert all(0 <= score <= 1 and math.isfinite(score) for score in hits.scores)
        assert jiyi.QueryRecord.from_dict(hits.query_record.to_dict()).ids == tuple(hits.ids)
    with clearly():
        assert isinstance(store.build_context([text, query], namespace="kept", now=NOW).text, str)


def names(content: bytes) -> None:
    """Ids, namespaces, sessions and speakers are told apart to the last character, or refused."""
    source, store = Source(content), engine()
    given = {name: source.text() for name in ("id", "namespace", "session", "speaker")}
    with clearly():
        memory = jiyi.Memory(text="tea", timestamp=NOW, **given)
        store.add(memory)
        assert store.get(memory.id, namespace=memory.namespace) == memory
        assert memory.id in store.search("tea", namespace=jiyi.exact_namespace(memory.namespace), now=NOW, k=50).ids
        assert store.scoped(memory.namespace).count(where={"session": memory.session, "id": memory.id}) == 1
        assert store.delete(memory.id, namespace=memory.namespace) == 1


def metadata(content: bytes) -> None:
    """Metadata comes back as it was, or is refused."""
    source, store = Source(content), engine()
    given = source.value(6)
    with clearly():
        store.add("tea", id="x", namespace="m", metadata=given)
        kept = store.get("x", namespace="m").metadata
        assert kept == ({} if given is None else given)
        assert jiyi.Memory.from_dict(json.loads(store.get("x", namespace="m").to_json())).metadata == kept


def filters(content: bytes) -> None:
    """A filter says the same of every memory in SQL, in columns, and in plain Python."""
    source, store = Source(content), engine()
    with clearly():
        store.add("tea", id="x", namespace="f", metadata=source.value(3), timestamp=NOW, session=source.word() or None)
    where = source.value(5)
    with clearly():
        test = parse_where(where).test
        every = store.list(namespace="f")
        wanted = [memory.id for memory in every if holds(test, memory)]
        assert [memory.id for memory in store.list(namespace="f", where=where)] == wanted
        assert store.count(namespace="f", where=where) == len(wanted)
        assert store.search("tea", namespace="f", where=where, now=NOW).ids == wanted
        assert store.forget(where, namespace="f", dry_run=True) == len(wanted)


def lines(content: bytes) -> None:
    """A line of a file is a memory, or an error that names it."""
    source = Source(content)
    if source.byte() % 2:
        line = source.rest()
    else:
        record = {"text": source.text(), source.word(): source.value(), source.word(): source.value()}
        line = json.dumps(record).encode()
    try:
        for read in read_memories(io.BytesIO(line), "f", dim=4):
            again = jiyi.Memory.from_dict(json.loads(read.memory.to_json()))
            assert again == read.memory
    except BadLineError as error:
        assert str(error).startswith("f, line ")  # noqa: PT017
        assert len(str(error)) < _LONGEST_MESSAGE  # noqa: PT017


def configurations(content: bytes) -> None:
    """A setting of the command line, and a record of a query, are taken or refused."""
    source, store = Source(content), engine()
    names = [*jiyi.QueryRecord.__slots__, "recency_weight", "diversity", "rerank", "aging", "rrf_k", "mmr_window", "k"]
    name = names[source.byte() % len(names)]
    value = source.value()
    with clearly():
        import argparse

        try:
            read = dict([setting(f"{name}={json.dumps(value) if source.byte() % 2 else source.text()}")])
        except argparse.ArgumentTypeError:
            return
        assert len(store.search("tea", namespace="kept", now=NOW, **read)) <= 5
    record = store.search("tea", namespace="kept", now=NOW).query_record.to_dict()
    with clearly():
        changed = {**record, name: value}
        assert store.replay(jiyi.QueryRecord.from_dict(changed)).hits is not None


def vectors(content: bytes) -> None:
    """A vector is found by itself, or refused, or without direction."""
    source, store = Source(content), engine()
    kinds = ("<f4", "<f8", "<f2", "<i8", "|u1", "|b1", "<c8", "<M8[s]")
    raw = source.bytes(64)
    dtype = np.dtype(kinds[source.byte() % len(kinds)])
    given: Any = np.frombuffer(raw[: len(raw) // dtype.itemsize * dtype.itemsize], dtype)
    if source.byte() % 4 == 0:
        given = source.value()
    with clearly(), np.errstate(all="ignore"):
        store.add("x", id="v", namespace="v", vector=given)
        hits = store.search("nothing alike", namespace="v", query_vector=given, now=NOW)
        assert hits.ids in (["v"], [])
        assert all(math.isfinite(score) for score in hits.scores)
        assert np.asarray(given).any() == bool(hits.ids) or not np.linalg.norm(np.asarray(given, np.float32))


def tokenizers(content: bytes) -> None:
    """Bytes are a tokenizer, or a named fault of its file."""
    from jiyi.models.onnx_tokens import TextTokenizer

    source = Source(content)
    whole = _tokenizer()
    if source.byte() % 4 == 0:
        changed = source.rest()
    else:
        parts = bytearray(whole)
        for _ in range(1 + source.byte() % 4):
            at = (source.byte() << 8 | source.byte()) % len(parts)
            parts[at : at + source.byte() % 8] = source.bytes(8)
        changed = bytes(parts)
    with clearly():
        tokenizer = TextTokenizer(changed, Path("tokenizer.json"))
        assert len(tokenizer.ids("green tea 的 [SEP]", 8)) <= 8
        tokenizer.pair()


@cache
def _tokenizer() -> bytes:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "green", "tea", "的", "1", ".", "##s"]
    made: Any = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens(pieces[:4])
    text: str = made.to_str()
    return text.encode()


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    target.__name__: target for target in (texts, names, metadata, filters, lines, configurations, vectors, tokenizers)
}
