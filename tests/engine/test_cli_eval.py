"""`jiyi eval` beyond the plain case: several configurations, runs made elsewhere, settings in files."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jiyi.cli import main
from jiyi.evaluation import INGREDIENTS
from tests.engine.test_evaluation_files import CONVERSATIONS

Run = Callable[..., tuple[int, str, str]]

MEMORIES = [
    {"id": f"tea-{i}", "text": text, "timestamp": f"2026-01-{i + 1:02}"}
    for i, text in enumerate(["green tea in the morning", "green tea in the evening", "tea with milk", "绿茶不加糖"])
]
QUERIES = [
    {"qid": "1", "query": "green tea", "relevant": ["tea-0"], "category": "en"},
    {"qid": "2", "query": "绿茶", "relevant": ["tea-3"], "category": "中文"},
    {"qid": "3", "query": "milk", "relevant": ["tea-2"], "category": "adversarial"},
]


def lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "memories.jsonl").write_text(lines(MEMORIES), encoding="utf-8")
    (tmp_path / "queries.jsonl").write_text(lines(QUERIES), encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `jiyi eval`; give its exit code, standard output and standard error."""

    def call(*argv: object) -> tuple[int, str, str]:
        code = main(["eval", *map(str, argv)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def failing(run: Run, code: int, *argv: object) -> str:
    got, out, err = run(*argv)
    assert (got, out, err.count("\n")) == (code, "", 1)
    return err


def test_the_plain_case_stays_plain(run: Run, folder: Path) -> None:
    code, out, err = run(folder, "--embedder", "none")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 9  # head, rule, four groups, a blank line, two of times
    assert "3 questions for 50 ids each" in out
    assert "p99" in out


def test_compare_prints_both_and_their_difference(run: Run, folder: Path) -> None:
    code, out, err = run(folder, "--embedder", "none", "--compare", "keyword", "--compare", "recency_weight=0")
    assert (code, err) == (0, "")
    assert "keyword − fast, in points" in out
    assert "recency_weight=0 − fast, in points" in out
    # Without recency the older of two equal ones comes first, and that is what the first question asks for.
    row = next(line for line in out.split("recency_weight=0 − fast")[1].splitlines() if line.startswith("all"))
    assert row.split() == ["all", "recall@1", "50.00", "100.00", "+50.00", "[+0.00,", "+100.00]"]


def test_compare_as_json(run: Run, folder: Path) -> None:
    record = json.loads(run(folder, "--embedder", "none", "--json", "--compare", "recency_weight=0")[1])
    assert record["name"] == "fast"
    (other,) = record["compared"]
    assert (other["name"], other["changed"], other["questions"]) == ("recency_weight=0", 1, 3)
    assert other["differences"]["en"]["recall@1"] == {"mean": 1, "low": 1, "high": 1}
    assert other["differences"]["all"]["recall@1"]["mean"] == 0.5
    assert other["p99_ms"] > 0


def test_ablate_lists_every_ingredient(run: Run, folder: Path) -> None:
    code, out, _ = run(folder, "--ablate")
    assert code == 0
    assert "fast without each ingredient − fast" in out
    assert "1 questions, adversarial" in out
    listed = {line.split("  ")[0] for line in out.splitlines()}
    idle = next(line for line in out.splitlines() if line.startswith("changes no ranking here: "))
    named = listed | set(idle.removeprefix("changes no ranking here: ").split(", "))
    assert set(INGREDIENTS) - {"rerank"} <= named
    assert "rerank" not in named
    assert {"recency", "keyword"} <= listed
    record = json.loads(run(folder, "--embedder", "none", "--ablate", "--json")[1])
    assert list(record["without"]) == [name for name in INGREDIENTS if name != "rerank"]
    assert record["without"]["recency"]["differences"]["en"]["recall@1"]["mean"] == 1


def test_a_file_of_settings_beside_presets(run: Run, folder: Path) -> None:
    (folder / "calm.toml").write_text('preset = "keyword"\nrecency_weight = 0\n')
    code, out, _ = run(folder, "--presets", f"fast, keyword,{folder / 'calm.toml'}")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert {"fast", "keyword", "calm"} <= rows.keys()
    assert "others − fast" in out
    assert "e5-static-256" in out
    one = json.loads(run(folder, "--config", folder / "calm.toml", "--json")[1])
    assert one["name"] == "calm"
    assert one["scores"]["all"]["recall@1"] == 1
    both = json.loads(run(folder, "--presets", f"keyword,{folder / 'calm.toml'}", "--recency", "off", "--json")[1])
    assert both["scores"] == one["scores"] == both["compared"][0]["scores"]  # the switch is for all
    assert both["compared"][0]["changed"] == 0


def test_against_a_run_of_before(run: Run, folder: Path) -> None:
    before = folder / "before.jsonl"
    assert run(folder, "--embedder", "none", "--run", before, "--recency", "off")[0] == 0
    code, out, err = run(folder, "--embedder", "none", "--against", before)
    assert (code, err) == (0, "")
    assert "before.jsonl − fast, in points" in out
    record = json.loads(run(folder, "--embedder", "none", "--against", before, "--json")[1])
    assert record["compared"][0]["differences"]["all"]["recall@1"]["mean"] == 0.5


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs the extra plot")
def test_a_plot_of_presets(run: Run, folder: Path) -> None:
    picture = folder / "frontier.svg"
    assert run(folder, "--presets", "fast,keyword", "--plot", picture)[0] == 0
    assert all(f"<!-- {name} -->" in picture.read_text(encoding="utf-8") for name in ("fast", "keyword"))


def test_locomos_own_json(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(CONVERSATIONS), encoding="utf-8")
    code, out, err = run(path, "--embedder", "none")
    assert code == 0
    assert "2 pieces of evidence name no turn and were left out" in err
    assert {"all", "adversarial", "multi-hop", "temporal"} <= {line.split()[0] for line in out.splitlines() if line}


def test_a_trec_run_is_scored_without_a_store(run: Run, tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("1 0 a 1\n1 0 b 0\n2 0 c 1\n")
    (tmp_path / "good").write_text("1 Q0 a 1 9 t\n1 Q0 b 2 8 t\n2 Q0 c 1 3 t\n9 Q0 c 1 3 t\n")
    (tmp_path / "bad").write_text("1 Q0 b 1 9 t\n1 Q0 a 2 8 t\n")
    code, out, err = run("--qrels", tmp_path / "qrels", "--run-in", tmp_path / "bad", "--against", tmp_path / "good")
    assert code == 0
    assert "1 qid of" in err
    assert "such as '9'" in err
    rows = [line.split() for line in out.splitlines()]
    assert ["all", "2", "0.00", *["50.00"] * 4, "31.55", "25.00"] in rows
    assert not any(row and row[0] == "trec" for row in rows)  # the one category is all there is
    assert "good − bad, in points" in out
    args = ("--qrels", tmp_path / "qrels", "--run-in", tmp_path / "good", "--json")
    assert json.loads(run(*args)[1])["scores"]["all"]["ndcg@10"] == 1


def test_a_run_made_elsewhere_over_a_set(run: Run, folder: Path) -> None:
    (folder / "run.jsonl").write_text(lines([{"qid": "1", "ranked": ["tea-0"]}]))
    record = json.loads(run(folder, "--run-in", folder / "run.jsonl", "--json")[1])
    assert record["scores"]["all"]["recall@1"] == 0.5
    assert (record["name"], record["questions"]) == ("run.jsonl", 3)


@pytest.mark.parametrize(
    ("code", "options", "said"),
    [
        (2, ("--compare", "finest"), "unknown preset 'finest'"),
        (2, ("--compare", "speed=1"), "unknown search setting 'speed'"),
        (2, ("--compare", "=1"), "must be SETTING=VALUE"),
        (1, ("--compare", "gone.json"), "gone.json: No such file"),
        (1, ("--against", "gone.jsonl"), "gone.jsonl: No such file"),
        (2, ("--presets", " , "), "--presets names nothing"),
        (2, ("--presets", "fast", "--set", "rrf_k=1"), "leave out --set"),
        (2, ("--preset", "fast", "--config", "x.json"), "give --preset or --config, not both"),
        (2, ("--config", "settings.yaml"), "must end in .json or .toml"),
        (2, ("--plot", "picture.bmp"), "must end in .png, .svg, .pdf"),
        (2, ("--qrels", "qrels"), "name it with --run-in"),
        (2, ("--run-in", "run", "--ablate"), "leave out --ablate"),
        (2, ("--run-in", "run", "--qrels", "qrels"), "SET or --qrels, one of them"),
        (2, ("--set", "rerank=no-such-model"), "no-such-model"),
        (2, ("--compare", "rerank=no-such-model"), "no-such-model"),
    ],
)
def test_bad_options(run: Run, folder: Path, code: int, options: tuple[str, ...], said: str) -> None:
    assert said in failing(run, code, folder, "--embedder", "none", *options)


def test_nothing_to_measure(run: Run, tmp_path: Path) -> None:
    assert "no eval set was named" in failing(run, 2)
    assert "SET or --qrels, one of them" in failing(run, 2, "--run-in", "x")
    (tmp_path / "talks.json").write_text("[]")
    assert "holds no questions" in failing(run, 1, tmp_path / "talks.json")
    (tmp_path / "talks.json").write_text("memories")
    assert "is not JSON" in failing(run, 1, tmp_path / "talks.json")
