"""One rule for exit codes: 2 where the command line asks for what cannot be, 1 where work fails, 0 when it is done."""

from __future__ import annotations

import argparse
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import jiyi
from jiyi.cli import main
from jiyi.cli.app import _with_options, build_parser
from jiyi.ledger import FILE_NAME

DONE, FAILED, USAGE = 0, 1, 2

# {store}: a store; {snap}: a snapshot of it; {nothing}: nowhere; {there}: a folder that holds a letter; {file}: a file.
CASES: list[tuple[int, str]] = [
    # A target that is there already.
    (USAGE, "export --store {store} --out {file}"),
    (USAGE, "snapshot {there} --store {store}"),
    (USAGE, "snapshot {file} --store {store}"),
    (USAGE, "snapshot {store}/inside --store {store}"),
    (USAGE, "restore {snap} --store {store}"),
    (USAGE, "restore {snap} --store {there} --overwrite"),
    (USAGE, "restore {snap} --store {snap}"),
    (USAGE, "verify --repair {there} --store {store}"),
    # What is to be read is not there, or is something else.
    (FAILED, "list --store {nothing}"),
    (FAILED, "search tea --store {nothing}"),
    (FAILED, "context tea --store {nothing}"),
    (FAILED, "stats --store {nothing}"),
    (FAILED, "verify --store {nothing}"),
    (FAILED, "verify --repair {nothing}2 --store {nothing}"),
    (FAILED, "compact --store {nothing}"),
    (FAILED, "snapshot {nothing}2 --store {nothing}"),
    (FAILED, "export --store {nothing}"),
    (FAILED, "reindex --store {nothing}"),
    (FAILED, "delete x --store {nothing}"),
    (FAILED, "restore {nothing} --store {nothing}2"),
    (FAILED, "restore {there} --store {nothing}2"),
    (FAILED, "ingest {nothing} --store {nothing}2"),
    (FAILED, "export nobody --store {store}"),
    (FAILED, "reindex --rollback --store {store}"),
    (FAILED, "reindex --queries {nothing} --store {store}"),
    # Nothing can be written there.
    (FAILED, "export --store {store} --out {nothing}/x.jsonl"),
    (FAILED, "snapshot {file}/below --store {store}"),
    (FAILED, "restore {snap} --store {file}/below"),
    (FAILED, "verify --repair {file}/below --store {store}"),
    # Options and values.
    (USAGE, "list"),
    (USAGE, "list --store {store} --limit -1"),
    (USAGE, "list --store {store} --order sideways"),
    (USAGE, "search --store {store}"),
    (USAGE, "search tea --store {store} --preset slow"),
    (USAGE, "context tea --store {store} --set speed=1"),
    (USAGE, "delete --store {store}"),
    (USAGE, "compact --store {store} --max-age soon"),
    (USAGE, "export --store {store} --format csv"),
    (USAGE, "export --store {store} --out {nothing}.csv"),
    (USAGE, "ingest {file} --store {nothing} --max-rejects -1"),
    (USAGE, "reindex --store {store} --batch-size 0 --plan"),
    (USAGE, "reindex --store {store} --min-overlap 7 --plan"),
    (USAGE, "eval"),
    (USAGE, "bench --count 0"),
    (USAGE, "nonsense"),
    # And what works.
    (DONE, "list --store {store}"),
    (DONE, "stats --store {store}"),
    (DONE, "verify --store {store}"),
    (DONE, "export --store {store} --out {nothing}.jsonl"),
    (DONE, "snapshot {nothing} --store {store}"),
    (DONE, "restore {snap} --store {nothing}"),
    (DONE, "verify --repair {nothing} --store {store}"),
    (DONE, "delete nobody --store {store}"),
    (DONE, "compact --store {store}"),
    (DONE, "ingest {file} --store {nothing} --embedder none --progress none"),
]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.delenv("JIYI_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    with jiyi.open(tmp_path / "store", embedder=None) as engine:
        engine.add("tea", id="tea")
        engine.snapshot(tmp_path / "snap")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "letter").write_text("dear")
    (tmp_path / "file.jsonl").write_text('{"text": "tea"}\n')
    names = {"store": "store", "snap": "snap", "there": "there", "file": "file.jsonl", "nothing": "nothing"}
    return {name: tmp_path / path for name, path in names.items()}


@pytest.mark.parametrize(("code", "line"), CASES, ids=[line for _, line in CASES])
def test_every_command_keeps_to_it(
    places: dict[str, Path], capsys: pytest.CaptureFixture[str], code: int, line: str
) -> None:
    def contents() -> dict[str, bytes]:
        kept = (places["file"], places["there"] / "letter")
        return {str(path): path.read_bytes() for path in kept}

    before = contents()
    assert main([word.format(**places) for word in line.split()]) == code
    printed = capsys.readouterr()
    if code == DONE:
        assert printed.err == ""
    else:
        assert printed.out == ""
        assert printed.err.startswith("jiyi: ")
        assert printed.err.count("\n") == 1
        assert "unexpected" not in printed.err
    assert contents() == before
    with jiyi.open(places["store"], embedder=None, read_only=True) as engine:
        assert engine.get("tea").text == "tea"


def test_every_command_is_among_them() -> None:
    (commands,) = [a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    named = {line.split()[0] for _, line in CASES}
    assert set(commands.choices) - named == {"demo", "models", "replay", "warmup"}  # none of these has such a target


def test_damage_is_a_failure(places: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(places["store"] / FILE_NAME)) as connection, connection:
        connection.execute("UPDATE memories SET text = 'milk'")
    (places["store"] / "ledger.sums").unlink(missing_ok=True)
    for line in ("verify", "list", "export", "snapshot {nothing}"):
        assert main([word.format(**places) for word in line.split()] + ["--store", str(places["store"])]) == FAILED, (
            line
        )
    assert not places["nothing"].exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("restore {snap} --store {store}", "name a new folder for the store, or give --overwrite"),
        ("reindex --rollback --store {store}", "reindex with --keep first"),
        ("list --store {store} --limit -1", "--limit is -1; it must be at least 0"),
        ("reindex --store {store} --min-overlap 7 --plan", "--min-overlap is 7.0; it must be"),
        ("reindex --store {store} --batch-size 0 --plan", "--batch-size is 0; it must be"),
    ],
)
def test_what_is_said_names_options(
    places: dict[str, Path], capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert main([word.format(**places) for word in line.split()]) != 0
    assert said in capsys.readouterr().err


def test_only_what_the_command_has_is_taken_for_an_option() -> None:
    options = {"keep": "--keep", "embedder": "--embedder", "min_overlap": "--min-overlap", "limit": "--limit"}
    for message, expected in {
        "reindex with keep=True first": "reindex with --keep first",
        "open it with embedder=None": "open it with --embedder none",
        "below min_overlap=0.5; it": "below --min-overlap 0.5; it",
        "limit is -1": "--limit is -1",
        "line 3: limit is 5": "line 3: limit is 5",
        "'keep=True' is no id": "'keep=True' is no id",
        "open it with read_only=True": "open it with read_only=True",
    }.items():
        assert _with_options(message, options) == expected
    assert _with_options("keep=True", {}) == "keep=True"


def test_rejects_stop_a_job_at_the_row(places: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = '{"text": "tea"}\n', "oops\n"
    places["file"].write_text(good * 3 + bad + good * 2 + bad + good * 4 + bad * 5)
    store = str(places["nothing"])
    arguments = ["ingest", str(places["file"]), "--store", store, "--embedder", "none", "--json"]
    assert main([*arguments, "--max-rejects", "1"]) == FAILED
    printed = capsys.readouterr()
    record = json.loads(printed.out)
    assert (record["state"], record["stored"], record["rejected"]) == ("stopped", 5, 2)
    assert "stopped after 2 rejects; the first: " in printed.err
    assert main([*arguments, "--max-rejects", "7", "--restart"]) == DONE
    assert json.loads(capsys.readouterr().out)["stored"] == 4
