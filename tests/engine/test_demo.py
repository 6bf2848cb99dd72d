"""The demo shows what it says it shows, and shows it everywhere alike."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import jiyi
from jiyi.cli import main
from jiyi.demo import DemoData, load, redis_scene, typescript_scene
from jiyi.demo.data import NAMESPACE
from jiyi.demo.scenes import EXPLAINED, HIKING_ID, PYTHON_ID, QUESTIONS
from jiyi.engine import Engine
from jiyi.explain import width
from jiyi.memory import KINDS


@pytest.fixture(scope="module")
def data() -> DemoData:
    return load()


@pytest.fixture(scope="module")
def engine(data: DemoData) -> Iterator[Engine]:
    with jiyi.open() as engine:
        engine.add_many(data.memories)
        yield engine


class TestData:
    def test_is_whole(self, data: DemoData) -> None:
        ids = [memory.id for memory in data.memories]
        assert len(ids) == len(set(ids)) == 206
        assert {memory.kind for memory in data.memories} == set(KINDS)
        assert {memory.namespace for memory in data.memories} == {NAMESPACE}
        assert all(source in ids for memory in data.memories for source in memory.sources)
        assert all(one in ids for question in data.questions for one in question.relevant)

    def test_is_asked_after_everything_that_happened(self, data: DemoData) -> None:
        assert data.now >= max(memory.timestamp for memory in data.memories)


class TestScenes:
    def test_plain_top_k_gives_every_place_to_one_decision(self, engine: Engine, data: DemoData) -> None:
        scene = typescript_scene(engine, data)
        assert set(scene.plain.ids) == {"m004", "m019", "m047"}
        assert PYTHON_ID in scene.jiyi.ids
        assert "Python" in engine.get(PYTHON_ID, namespace=NAMESPACE).text

    def test_who_she_is_reaches_a_prompt_about_redis(self, engine: Engine, data: DemoData) -> None:
        scene = redis_scene(engine, data)
        hiking = engine.get(HIKING_ID, namespace=NAMESPACE)
        assert (hiking.kind, "徒步" in hiking.text) == ("archival", True)
        assert not any("徒步" in memory.text for memory in scene.plain.memories)
        assert hiking.text in scene.context.text
        assert "Redis" in scene.query

    def test_both_replay_the_same(self, engine: Engine, data: DemoData) -> None:
        assert redis_scene(engine, data).context.text == redis_scene(engine, data).context.text
        assert typescript_scene(engine, data).jiyi.scores == typescript_scene(engine, data).jiyi.scores

    @pytest.mark.parametrize(("query", "answer"), [*QUESTIONS.items(), (EXPLAINED, "m158")])
    def test_every_question_shown_is_answered_first(
        self, engine: Engine, data: DemoData, query: str, answer: str
    ) -> None:
        assert engine.search(query, namespace=NAMESPACE, k=2, now=data.now).ids[0] == answer

    def test_some_answers_are_in_the_other_language(self, engine: Engine) -> None:
        def is_english(text: str) -> bool:
            return sum(c.isascii() and c.isalpha() for c in text) > len(text) / 2

        crossed = [
            query
            for query, answer in QUESTIONS.items()
            if is_english(query) != is_english(engine.get(answer, namespace=NAMESPACE).text)
        ]
        assert any(is_english(query) for query in crossed)
        assert any(not is_english(query) for query in crossed)


class TestShown:
    def test_in_a_pipe(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["demo"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert "\x1b" not in out
        assert max(map(width, out.splitlines())) <= 120
        shown = [
            "206 memories",
            "episodic     159",
            "✗ plain  that she is also learning Python",
            "✓ jiyi   that she is also learning Python",
            "✗ plain  “周末喜欢去徒步，特别是越野路线” never reaches the prompt",
            "✓ jiyi   “周末喜欢去徒步，特别是越野路线” reaches the prompt",
            "build_context, p50",
        ]
        places = [out.index(text) for text in shown]
        assert places == sorted(places)

    def test_the_store_can_be_kept_and_shown_again(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        outputs = []
        for _ in range(2):
            assert main(["demo", "--store", str(tmp_path / "kept")]) == 0
            outputs.append(re.sub(r"[\d.]+ m?s|\nquery .*  ms", "", capsys.readouterr().out))
        with jiyi.open(tmp_path / "kept", read_only=True) as engine:
            assert engine.count(namespace=NAMESPACE) == 206
        without_timings = [output.split("── Timings")[0] for output in outputs]
        assert without_timings[0] == without_timings[1]

    def test_nothing_is_left_behind_without_a_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert main(["demo"]) == 0
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
    @pytest.mark.parametrize(
        ("variables", "coloured"),
        [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    )
    def test_colour_only_where_it_is_wanted(
        self, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], coloured: bool
    ) -> None:
        from jiyi.demo.page import Page

        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        assert ("\x1b" in Page().styled("x", "bold")) is coloured
