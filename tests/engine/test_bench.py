"""`jiyi bench`: what it measures, what it prints, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import jiyi
from jiyi.bench.corpus import queries, texts
from jiyi.bench.made_up import fill, queries_from
from jiyi.bench.measure import measure
from jiyi.bench.picture import draw
from jiyi.bench.report import table
from jiyi.cli import main

STAGES = ["query", "recall", "fuse", "recency", "diversify", "fetch", "total"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "store"
    with jiyi.open(folder) as engine:
        fill(engine, 60)
        engine.add("周末去徒步，越野路线", namespace="ana")
    return folder


def test_figures_are_those_of_the_searches(store: Path) -> None:
    asked = list(queries(7))
    with jiyi.open(store, read_only=True) as engine:
        told: list[float] = []
        figures = measure(engine, asked, threads=(1, 3), report=told.append)
        assert (figures.memories, figures.queries) == (60, 7)
        assert list(figures.stages) == STAGES
        for values in figures.stages.values():
            assert 0 <= values["p50"] <= values["p95"] <= values["p99"]
        assert figures.stages["total"]["p50"] >= max(figures.stages[stage]["p50"] for stage in STAGES[:-1]) > 0
        assert figures.plans == {"dense exact": 7, "keyword exact": 7}
        assert [one.threads for one in figures.throughput] == [1, 3]
        assert all(one.per_second > 0 and one.p99_ms > 0 for one in figures.throughput)
        assert told == sorted(told)
        assert told[-1] == pytest.approx(1)
        view = engine._store.partition("default").view  # type: ignore[union-attr]
        assert figures.memory_bytes["vectors"] >= view.vectors.nbytes == 60 * 256 * 4  # type: ignore[union-attr]
        assert figures.memory_bytes["codes"] >= 60 * 260
        assert sum(figures.memory_bytes.values()) == engine._store.partition("default").bytes()  # type: ignore[union-attr]
        assert figures.disk_bytes > 60 * 1024


def test_an_error_in_a_thread_is_raised(store: Path) -> None:
    class Once:
        name = "once"
        calls = 0

    with jiyi.open(store, read_only=True) as engine:
        with pytest.raises(TypeError, match="no_such_setting"):
            measure(engine, ["a"], settings={"no_such_setting": 1})
        with pytest.raises(ValueError, match="no queries"):
            measure(engine, [])


def test_made_up_texts_are_the_same_every_time_and_in_two_languages() -> None:
    some = list(texts(200))
    assert some == list(texts(200))
    assert len(set(some)) == 200
    chinese = [text for text in some if any("一" <= character <= "鿿" for character in text)]
    assert 20 < len(chinese) < 120


def test_queries_of_a_store_are_the_beginnings_of_its_memories(store: Path) -> None:
    with jiyi.open(store, read_only=True) as engine:
        assert queries_from(engine, "ana", 5) == ["周末去徒步 越野路线"]
        some = queries_from(engine, "default", 10)
        assert len(some) == 10 == len(set(some))
        assert some == queries_from(engine, "default", 10)
        assert all(len(query.split()) <= 8 for query in some)
        assert queries_from(engine, "nobody", 10) == []


def test_a_table_says_all_there_is(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--store", str(store), "--count", "5", "--threads", "2", "-k", "3"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("60 memories, 5 queries\n")
    for word in (*STAGES, "p50", "p95", "p99", "2 threads", "bytes a memory", "the whole store", "dense exact 5"):
        assert word in printed
    assert "ingest" not in printed


def test_json_and_a_picture_of_made_up_memories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "latency.png"
    arguments = ["bench", "--sizes", "40,80", "--count", "3", "--threads", "0", "--json", "--plot", str(picture)]
    assert main(arguments) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [one["memories"] for one in figures] == [40, 80]
    assert all(one["ingest_per_second"] > 0 and one["throughput"] == [] for one in figures)
    assert list(figures[0]["ms"]) == STAGES
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_queries_of_a_file_and_what_was_skipped(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "queries.txt"
    file.write_text("hiking routes\n\nสวัสดี\n", encoding="utf-8")
    arguments = ["bench", "--store", str(store), "--queries", str(file), "--preset", "fast"]
    assert main([*arguments, "--threads", "0"]) == 0
    printed = capsys.readouterr().out
    assert "2 queries" in printed
    assert "knows nothing of this query; only keywords were searched" in printed


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--sizes", "0"], 2, "from 1 to"),
        (["--sizes", "ten"], 2, "whole numbers"),
        (["--threads", "-1"], 2, "from 0 to"),
        (["--count", "0"], 2, "at least 1"),
        (["--store", "x", "--sizes", "5"], 2, "made-up"),
        (["--store", "/nowhere"], 1, "there is no store"),
        (["--plot", "latency.txt"], 2, "must end in"),
        (["--set", "nothing=1", "--sizes", "5"], 2, "nothing"),
    ],
)
def test_what_is_refused(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_files_without_queries_and_stores_without_memories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    jiyi.open(tmp_path / "store").close()
    for given, said in (("empty", "holds no queries"), ("bytes", "not UTF-8")):
        assert main(["bench", "--sizes", "5", "--queries", str(tmp_path / given)]) == 1
        assert said in capsys.readouterr().err
    assert main(["bench", "--store", str(tmp_path / "store")]) == 1
    assert "no memories in 'default'" in capsys.readouterr().err


def test_pictures_of_one_size_and_of_another_kind(store: Path, tmp_path: Path) -> None:
    with jiyi.open(store, read_only=True) as engine:
        figures = measure(engine, ["hiking"], threads=())
    draw([figures], tmp_path / "one.svg")
    assert "60" in (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert table([figures, figures]).count("60 memories") == 2
    assert np.isfinite(figures.first_ms)
