"""What an evaluation reads: LoCoMo's JSON, TREC's runs and judgements, settings in files."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jiyi.config import DEFAULT, PRESETS, Aging
from jiyi.evaluation import (
    EvalSetError,
    Question,
    configured,
    evaluate,
    read_configuration,
    read_eval_set,
    read_locomo,
    read_qrels,
    read_run,
    write_run,
)
from jiyi.jsonl import BadLineError

# ------------------------------------------------------------------------------------------------------- LoCoMo

CONVERSATIONS: list[dict[str, Any]] = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Nora",
            "speaker_b": "Tom",
            "session_10_date_time": "12:05 am on 1 January, 2024",
            "session_10": [{"speaker": "Tom", "dia_id": "D10:1", "text": "Happy new year! I moved to Oslo."}],
            "session_2_date_time": "12:30 pm on 29 February, 2024",
            "session_2": [
                {"speaker": "Nora", "dia_id": "D2:1", "text": "I adopted a greyhound called Biscuit."},
                {
                    "speaker": "Tom",
                    "dia_id": "D2:2",
                    "text": "",
                    "blip_caption": "a dog asleep on a sofa",
                    "img_url": [],
                },
                {"speaker": "Nora", "dia_id": "D2:3", "text": "There he is!", "blip_caption": "a dog with a ball"},
                {"speaker": "Tom", "dia_id": "D2:4", "text": " "},
            ],
            "session_3_date_time": "9:00 am on 3 March, 2024",
            "session_4_date_time": "9:00 am on 4 March, 2024",
            "session_4": [],
        },
        "qa": [
            {"question": "What is the dog called?", "answer": "Biscuit", "evidence": ["D2:1"], "category": 4},
            {"question": "When did Tom move?", "answer": "2024", "evidence": ["D10:1"], "category": 2},
            {"question": "What pets and homes?", "answer": "x", "evidence": ["D2:1; D:10:01", "D2:1"], "category": 1},
            {"question": "Would Nora like a park?", "answer": "yes", "evidence": ["D2:9", "D", "D2:3"], "category": 3},
            {"question": "What did Tom adopt?", "adversarial_answer": "a dog", "evidence": ["D2:1"], "category": 5},
            {"question": "Nothing says so", "answer": "?", "evidence": [], "category": 4},
        ],
        "event_summary": {},
    },
    {
        "sample_id": "conv-2",
        "conversation": {
            "session_1_date_time": "2024-05-01T20:00:00+08:00",
            "session_1": [{"speaker": "小明", "dia_id": "D1:1", "text": "我昨天买了一把吉他。"}],
        },
        "qa": [{"question": "小明买了什么？", "answer": "吉他", "evidence": "D1:1", "category": 4}],
    },
]


@pytest.fixture
def locomo(tmp_path: Path) -> Path:
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(CONVERSATIONS, ensure_ascii=False), encoding="utf-8")
    return path


def test_turns_of_locomo_become_memories(locomo: Path) -> None:
    memories = {memory.id: memory for memory in read_locomo(locomo).memories}
    assert list(memories) == ["conv-1/D2:1", "conv-1/D2:2", "conv-1/D2:3", "conv-1/D10:1", "conv-2/D1:1"]
    turn = memories["conv-1/D2:3"]
    assert (turn.namespace, turn.session, turn.speaker, turn.kind) == ("conv-1", "s2", "Nora", "episodic")
    assert turn.text == "There he is! [image: a dog with a ball]"
    assert turn.timestamp == datetime(2024, 2, 29, 12, 30, 2, tzinfo=UTC)
    assert memories["conv-1/D2:2"].text == "[image: a dog asleep on a sofa]"
    assert memories["conv-1/D10:1"].timestamp == datetime(2024, 1, 1, 0, 5, tzinfo=UTC)
    assert memories["conv-2/D1:1"].timestamp == datetime(2024, 5, 1, 12, tzinfo=UTC)


def test_questions_of_locomo_have_their_evidence_and_category(locomo: Path) -> None:
    found = read_eval_set(locomo)
    assert [(q.qid, q.relevant, q.category) for q in found.questions] == [
        ("conv-1/q0", ("conv-1/D2:1",), "single-hop"),
        ("conv-1/q1", ("conv-1/D10:1",), "temporal"),
        ("conv-1/q2", ("conv-1/D2:1", "conv-1/D10:1"), "multi-hop"),
        ("conv-1/q3", ("conv-1/D2:3",), "open-domain"),
        ("conv-1/q4", ("conv-1/D2:1",), "adversarial"),
        ("conv-1/q5", (), "single-hop"),
        ("conv-2/q0", ("conv-2/D1:1",), "single-hop"),
    ]
    assert found.left_out == 2  # "D2:9" and "D"
    assert found.unknown_relevant() == 0
    assert {q.namespace for q in found.questions} == {"conv-1", "conv-2"}
    run = evaluate(found, embedder=None)
    assert run.ranked["conv-2/q0"] == ["conv-2/D1:1"]
    assert run.scores["all"]["n"] == 5


def test_one_conversation_needs_no_list(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(CONVERSATIONS[1]), encoding="utf-8")
    assert len(read_locomo(path).memories) == 1


def _without_sessions(conversations: list[Any]) -> None:
    conversations[0]["conversation"] = {"speaker_a": "Nora"}


def _set(*path: Any) -> Any:
    *way, last, value = path

    def change(conversations: list[Any]) -> None:
        target: Any = conversations
        for step in way:
            target = target[step]
        target[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without_sessions, "conversation conv-1: conversation holds no session_1"),
        (_set(0, "conversation", None), "conversation must be a JSON object, got NoneType"),
        (_set(0, "conversation", "session_2", {}), "session_2 must be a list of turns, got dict"),
        (_set(0, "conversation", "session_2", 0, "dia_id", "two"), "session_2, turn 0: dia_id is 'two'"),
        (_set(0, "conversation", "session_2", 0, "dia_id", None), "session_2, turn 0: the id of a turn must be text"),
        (_set(0, "conversation", "session_2", 0, "text", 5), "session_2, turn 0: text must be text, got int"),
        (_set(0, "conversation", "session_2", 0, "speaker", 5), "session_2, turn 0: speaker must be text"),
        (_set(0, "conversation", "session_2_date_time", "soon"), "session_2_date_time is 'soon'; it must be such as"),
        (_set(0, "conversation", "session_2_date_time", "1:00 pm on 8 Mai, 2023"), "'Mai' is no month"),
        (_set(0, "conversation", "session_2_date_time", "13:00 pm on 8 May, 2023"), "hours with am and pm"),
        (_set(0, "conversation", "session_2_date_time", "1:00 pm on 31 June, 2023"), "day is out of range"),
        (_set(0, "conversation", "session_2_date_time", None), "session_2_date_time is None"),
        (_set(0, "qa", {}), "qa must be a list of questions, got dict"),
        (_set(0, "qa", 1, "question", 7), "qa 1: question must be text, got int"),
        (_set(0, "qa", 1, "category", "2"), "qa 1: category must be a number"),
        (_set(0, "qa", 1, "evidence", [3]), "qa 1: the id of a turn must be text"),
        (_set(1, "sample_id", "conv-1"), "another one has this sample_id"),
        (_set(1, "sample_id", 5), "conversation 1: sample_id must be text"),
        (_set(1, "text"), "conversation 1: it must be a JSON object, got str"),
    ],
)
def test_what_is_wrong_with_a_locomo_file_is_told(tmp_path: Path, change: Any, said: str) -> None:
    conversations = copy.deepcopy(CONVERSATIONS)
    change(conversations)
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(conversations), encoding="utf-8")
    with pytest.raises(EvalSetError) as caught:
        read_locomo(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_not_json_is_no_eval_set(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "talks.json"
    path.write_bytes(content)
    with pytest.raises(EvalSetError, match="is not JSON"):
        read_eval_set(path)


# --------------------------------------------------------------------------------------------------------- TREC


def test_trec_judgements(tmp_path: Path) -> None:
    path = tmp_path / "qrels"
    path.write_text("301 0 b 1\n301 0 a 2\n301 0 c 0\n\n302\t0\td\t-1\n", encoding="utf-8")
    assert read_qrels(path) == [
        Question("301", "default", "", ("b", "a"), "trec"),
        Question("302", "default", "", (), "trec"),
    ]


def test_a_trec_run_is_sorted_by_score_and_ties_by_the_last_id(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text(
        "301 Q0 low 1 0.5 t\n301 Q0 high 2 2e1 t\n301 Q0 a 3 3 t\n301 Q0 b 4 3.0 t\n302 Q0 x 1 -1 t\n", encoding="utf-8"
    )
    assert read_run(path) == {"301": ["high", "b", "a", "low"], "302": ["x"]}


def test_a_run_of_json_lines_is_what_was_written(tmp_path: Path) -> None:
    ranked = {"一": ["甲", "乙"], "2": []}
    write_run(tmp_path / "run.jsonl", ranked)
    assert read_run(tmp_path / "run.jsonl") == ranked
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbf\n  " + (tmp_path / "run.jsonl").read_bytes())
    assert read_run(tmp_path / "bom") == ranked


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"301 Q0 a 1 0.5", "line 1: has 5 columns; it must be `qid Q0 id rank score tag`"),
        (b"\n301 Q0 a 1 good t", "line 2: score is 'good'; it must be a number"),
        (b"301 Q0 a 1 nan t", "line 1: score is 'nan'"),
        (b"301 Q0 \xff 1 1 t", "line 1: is not UTF-8"),
        (b'{"qid": "1", "ranked": []}\n{"qid": "1", "ranked": []}', "line 2: the qid '1' was there before"),
        (b'{"qid": 1, "ranked": []}', "line 1: qid must be text, got int"),
        (b'{"qid": "1", "ranked": "a"}', "line 1: ranked must be a list of ids"),
        (b'{"qid": "1", "ranked": [1]}', "line 1: ranked must be a list of ids"),
        (b'{"qid": "1"', "line 1: is not JSON"),
    ],
)
def test_bad_lines_of_a_run(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "run"
    path.write_bytes(content)
    with pytest.raises(BadLineError) as caught:
        read_run(path)
    assert said in str(caught.value)


@pytest.mark.parametrize("content", ["301 0 a", "301 0 a b c", "301 0 a yes", "301 0 a inf"])
def test_bad_lines_of_judgements(tmp_path: Path, content: str) -> None:
    path = tmp_path / "qrels"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadLineError, match=r"line 1: (has .* columns|relevance is .*; it must be a number)"):
        read_qrels(path)


def test_empty_files_are_neither(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"\xef\xbb\xbf \n\n")
    with pytest.raises(EvalSetError, match="holds no run"):
        read_run(path)
    with pytest.raises(EvalSetError, match="holds no judgements"):
        read_qrels(path)


# ----------------------------------------------------------------------------------------------------- settings


def test_settings_from_json_and_toml(tmp_path: Path) -> None:
    (tmp_path / "quiet.json").write_text('{"preset": "balanced", "recency_weight": 0, "budget_ms": 40}')
    quiet = read_configuration(tmp_path / "quiet.json")
    assert (quiet.name, quiet.preset, quiet.budget_ms) == ("quiet", "balanced", 40)
    assert quiet.config == PRESETS["balanced"].with_overrides({"recency_weight": 0})
    (tmp_path / "own.TOML").write_text(
        'ageless_kinds = ["archival"]\nhalf_life_s = inf\nrerank = ["bm25"]\n[aging.semantic]\nfloor = 0.5\n'
    )
    own = read_configuration(tmp_path / "own.TOML")
    assert own.preset is None
    assert own.config.aging == {"semantic": Aging(floor=0.5)}
    assert (own.config.rerank, own.config.half_life_s) == (("bm25",), float("inf"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("c.json", '{"speed": 1}', "unknown search setting 'speed'"),
        ("c.json", '{"mmr_lambda": 2}', "mmr_lambda is 2; it must be from 0 to 1"),
        ("c.json", '{"mmr_lambda": "x"}', "mmr_lambda must be a number"),
        ("c.json", '{"preset": "finest"}', "unknown preset 'finest'"),
        ("c.json", '{"name": "x"}', "'name' is no setting"),
        ("c.json", "[]", "must hold an object of settings, got list"),
        ("c.json", "{", "is not JSON"),
        ("c.toml", "a = ", "is not TOML"),
        ("c.yaml", "a: 1", "must end in .json or .toml"),
    ],
)
def test_a_bad_file_of_settings_is_named(tmp_path: Path, name: str, content: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises((TypeError, ValueError)) as caught:
        read_configuration(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_configurations_start_somewhere_and_change() -> None:
    assert configured().config is DEFAULT
    assert (configured().name, configured(preset="late").name, configured(config=DEFAULT).name) == (
        "fast",
        "late",
        "config",
    )
    changed = configured(preset="best", budget_ms=50).changed("mine", {"rerank_weight": 0.5, "budget_ms": None})
    assert (changed.name, changed.preset, changed.budget_ms) == ("mine", "best", None)
    assert changed.config == PRESETS["best"].with_overrides({"rerank_weight": 0.5})
    with pytest.raises(ValueError, match="a preset or a config, not both"):
        configured(preset="fast", config=DEFAULT)
