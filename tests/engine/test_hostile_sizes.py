"""What is very long, very deep or very many takes memory in proportion, and nothing without end.

Bounds are of sizes and counts; a time is never asserted. Each trial that takes memory runs in a child, whose peak is
its own.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import numpy as np
import pytest

import jiyi
from tests.fuzz.forked import in_child

MB = 2**20
NOW = "2026-06-01"


def peak_bytes() -> int:
    """The most memory that this process ever had, as far as the system counts it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


TEN_MB = {
    "words": "word{} ",
    "one word": "x",
    "Chinese": "京都会议",
    "spaces": " ",
    "combining": "e\u0301\u0302",
    "emoji": "👩‍👩‍👧",
    "numbers": "{},",
    "markup": "<a href='x'>&amp;",
    "dates": "in May {} ",
    "brackets": "([{",
}


def ten_megabytes(form: str) -> str:
    pattern = TEN_MB[form]
    if "{}" not in pattern:
        return pattern * (10 * MB // len(pattern.encode()))
    return "".join(pattern.format(i % 20_000) for i in range(10 * MB // len(pattern.format(10_000))))


@pytest.mark.slow
@pytest.mark.parametrize("form", list(TEN_MB))
def test_a_text_of_ten_megabytes_is_stored_and_found_in_bounded_memory(form: str) -> None:
    def trial() -> str:
        text = ten_megabytes(form)
        with jiyi.open() as engine:
            engine.add("tea", id="0")
            engine.search("tea", now=NOW)
            before = peak_bytes()
            engine.add(text, id="1", timestamp=NOW)
            assert engine.get("1").text == text
            hits = engine.search(text[:2_000] or "x", now=NOW)
            assert set(hits.ids) <= {"0", "1"}
            engine.search(text, now=NOW)
            assert len(repr(hits)) < 1_000
            hits.explain()
            assert len(engine.build_context([text], now=NOW).text) < 100_000
            return str((peak_bytes() - before) // MB)

    assert int(in_child(trial, seconds=600)) < 1_000


def test_a_text_of_a_megabyte_and_a_query_of_a_hundred_thousand_tokens(engine: jiyi.Engine) -> None:
    text = " ".join(f"word{i}" for i in range(100_000))
    engine.add(text, id="long", timestamp=NOW)
    engine.add("word77777 is tea", id="short", timestamp=NOW)
    for query in (
        text,
        "的" * 100_000,
        "a" * 100_000,
        "word1 " * 100_000,
        "(" * 100_000,
        "\0" * 100_000,
        "2026-05-01 " * 9_000,
    ):
        hits = engine.search(query, now=NOW)
        assert set(hits.ids) <= {"long", "short"}
        assert len(hits.explain()) < 300_000
    assert engine.search(text, now=NOW).ids[0] == "long"
    assert engine.search("word77777", now=NOW).ids[0] == "short"
    assert engine.search(text, now=NOW, diversity="none", rerank="bm25", where={"id": "short"}).ids == ["short"]


def test_a_query_of_a_hundred_thousand_tokens_with_the_models_that_ship() -> None:
    with jiyi.open() as engine:
        engine.add_many(["tea in Kyoto", "redis index", "京都的茶"])
        text = " ".join(f"word{i} tea 京都" for i in range(25_000))
        for preset in ("fast", "best"):
            hits = engine.search(text, preset=preset, now=NOW)
            assert len(hits) == 3
            assert all(np.isfinite(hits.scores))


@pytest.mark.parametrize("levels", [10, 64, 65, 1_000, 50_000])
def test_metadata_and_filters_are_as_deep_as_is_said_or_refused(engine: jiyi.Engine, levels: int) -> None:
    metadata: object = 1
    where: dict[str, object] = {"id": "x"}
    for _ in range(levels):
        metadata, where = {"a": metadata}, {"not": where}
    if levels <= 64:
        engine.add("tea", id="x", metadata=metadata)
        assert engine.get("x").metadata == metadata
    else:
        with pytest.raises(ValueError, match="nested deeper than 64 levels"):
            engine.add("tea", id="x", metadata=metadata)
    if levels <= 32:
        assert engine.count(where=where) == 1 == len(engine.search("tea", where=where))
    else:
        with pytest.raises(ValueError, match="nested deeper than 32 levels"):
            engine.count(where=where)
        with pytest.raises(ValueError, match="nested deeper than 32 levels"):
            engine.search("tea", where=where)


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_lists_of_a_million_are_taken_or_refused(engine: jiyi.Engine, count: int) -> None:
    million = [str(i) for i in range(count)]
    engine.add_many(["tea"] * 3)
    engine.add("tea", id="77")
    assert engine.delete(million[:10_000]) == 1
    engine.add("tea", id="77")
    assert engine.count(where={"id": {"in": million}}) == 1
    assert engine.search("tea", where={"id": {"in": million}}).ids == ["77"]
    for joined in ("and", "or"):
        with pytest.raises(ValueError, match="too large"):
            engine.count(where={joined: [{"id": "1"}] * max(count, 16_001)})
    with pytest.raises(ValueError, match="too large"):
        engine.search("tea", where={"and": [{"or": [{"id": "1"}] * 200}] * 200})
    with pytest.raises(ValueError, match="characters long"):
        engine.search("tea", namespace="x" * 1_000_000)
    with pytest.raises(ValueError, match="steps"):
        engine.add(jiyi.Memory.procedure("t", ["step"] * 100_000))
    engine.add("numbers", id="n", metadata={"a": list(range(count))})
    assert engine.count(where={"metadata.a": count - 1}) == 1
    assert len(engine.search("tea", k=10**30)) == 4


def make_namespaces(folder: Path, count: int) -> None:
    with jiyi.open(folder, embedder=None) as engine:
        batch = 20_000
        for start in range(0, count, batch):
            engine.add_many(
                [
                    {"text": "tea", "namespace": f"user/{i:07}", "id": "1", "timestamp": NOW}
                    for i in range(start, min(start + batch, count))
                ]
            )


def check_namespaces(folder: Path, count: int) -> str:
    """Work in one of very many namespaces; return by how many bytes the process has grown."""
    with jiyi.open(None, embedder=None) as engine:
        engine.add("tea")
        engine.search("tea")  # what every process has
    before = peak_bytes()
    with jiyi.open(folder, embedder=None) as engine:
        assert engine.add("green tea", namespace="user/0000007", id="2", timestamp=NOW) == "2"
        assert engine.search("green tea", namespace="user/0000007", now=NOW).ids[0] == "2"
        assert engine.search("tea", namespace="user/none", now=NOW).ids == []
        assert engine.count(namespace="user/0000007") == 2
        assert engine.stats()["loaded_namespaces"] == 1
        for i in range(min(count, 200)):
            assert len(engine.search("tea", namespace=f"user/{i:07}", now=NOW)) in (1, 2)
        grown = peak_bytes() - before
        assert len(engine.namespaces(among="user/00000*")) == min(count, 100)
        assert engine.delete_namespace("user/0000005") == 1
        assert engine.stats()["namespaces"] == count - 1
        return str(grown)


def test_thousands_of_namespaces_cost_what_is_used_of_them(tmp_path: Path) -> None:
    make_namespaces(tmp_path / "store", 1_500)
    assert int(in_child(lambda: check_namespaces(tmp_path / "store", 1_500))) < 150 * MB


@pytest.mark.slow
def test_a_million_namespaces_cost_what_is_used_of_them(tmp_path: Path) -> None:
    make_namespaces(tmp_path / "store", 1_000_000)
    assert int(in_child(lambda: check_namespaces(tmp_path / "store", 1_000_000), seconds=900)) < 300 * MB


def test_a_million_fields_and_keys(engine: jiyi.Engine) -> None:
    engine.add("tea", id="1", metadata={str(i): i for i in range(100_000)})
    assert engine.count(where={"metadata.99999": 99_999}) == 1
    assert len(json.loads(engine.get("1").to_json())["metadata"]) == 100_000
    with pytest.raises(ValueError, match="unknown field 'f0'"):
        engine.add({"text": "x", **{f"f{i}": 1 for i in range(100_000)}})
