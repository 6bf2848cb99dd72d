"""Ids, namespaces, texts and paths of ten thousand characters in every call that can fail: what is said stays short."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import jiyi
from jiyi import asynchronous, export, ingest
from jiyi.cli import main
from tests.engine.test_hostile_leaks import told

# No stretch of it stands in it twice, and every character is longer where it is shown.
LONG = "".join(f"{i}\x01é\n" for i in range(2_500))[:10_000]
NAME = LONG.replace("\n", "")[:512]
PATH = "/".join("folder%04d" % i for i in range(900))[:10_000]  # noqa: UP031 - each is ten characters

#: Below a file nothing can be made.
FILE = __file__ + "/"
# As long as a path may be, or nearly.
LEGAL = PATH[:3_000]

#: What a message says itself, with lists of what there is; and what of it is somebody's.
MOST_IN_ALL = 1_200
MOST_QUOTED = 80
MOST_OF_A_PATH = 200

Call = Callable[[jiyi.Engine], object]

CALLS: dict[str, list[Call]] = {
    "add": [
        lambda e: e.add(LONG, id=LONG),
        lambda e: e.add(LONG, namespace=LONG),
        lambda e: e.add(LONG, kind=LONG),
        lambda e: e.add(LONG, session=LONG),
        lambda e: e.add(LONG, speaker=LONG),
        lambda e: e.add(LONG, timestamp=LONG),
        lambda e: e.add(LONG, expires_at=LONG),
        lambda e: e.add(LONG, sources=[LONG]),
        lambda e: e.add(LONG, sources=LONG),
        lambda e: e.add(LONG, metadata=LONG),  # type: ignore[arg-type]
        lambda e: e.add(LONG, metadata={LONG: {LONG: object()}}),
        lambda e: e.add(LONG, metadata={LONG: {LONG: 2**80}}),
        lambda e: e.add(LONG + "\ud800"),
        lambda e: e.add(LONG, vector=[LONG]),  # type: ignore[list-item]
        lambda e: e.add({"text": LONG, LONG: LONG}),
        lambda e: e.add({"text": LONG, "subject": LONG, "kind": "semantic"}),
        lambda e: e.add({"text": LONG, "steps": [LONG, 5], "kind": "procedural"}),
        lambda e: e.add({"text": LONG, "uses": LONG}),
    ],
    "add_many": [
        lambda e: e.add_many(LONG),
        lambda e: e.add_many([LONG, {"text": LONG, LONG: 1}]),
        lambda e: e.add_many([LONG], vectors=LONG),  # type: ignore[arg-type]
        lambda e: e.add_many([{"text": LONG, "id": NAME}], vectors=[[float("nan")] * 4]),
    ],
    "add_messages": [
        lambda e: e.add_messages([{"role": LONG, "content": {LONG: LONG}}], session="s"),
        lambda e: e.add_messages([{"role": "user", "content": LONG, "timestamp": LONG}], session="s"),
        lambda e: e.add_messages(LONG, session="s"),
        lambda e: e.add_messages([LONG], session=LONG),
        lambda e: e.add_messages([LONG], session="s", roles=[5, LONG]),  # type: ignore[list-item]
    ],
    "update": [
        lambda e: e.update(LONG),
        lambda e: e.update(NAME, namespace=NAME, text=LONG),
        lambda e: e.update("a", **{LONG: 1}),
        lambda e: e.update("a", timestamp=LONG),
    ],
    "get": [lambda e: e.get(LONG), lambda e: e.get(NAME), lambda e: e.get("a", namespace=NAME)],
    "delete": [lambda e: e.delete([LONG]), lambda e: e.delete("a", namespace=LONG)],
    "forget": [lambda e: e.forget({LONG: LONG}), lambda e: e.forget({}, namespace=NAME[:500] + "*")],
    "erase": [
        lambda e: e.erase(LONG),
        lambda e: e.erase(where={LONG: 1}),
        lambda e: e.erase([], wait_s=LONG),  # type: ignore[arg-type]
        lambda e: e.erase(NAME[:300], namespace="m"),
    ],
    "delete_namespace": [lambda e: e.delete_namespace(LONG), lambda e: e.delete_namespace(NAME[:500] + "*")],
    "retain": [
        lambda e: e.retain({LONG: {LONG: 1}}),  # type: ignore[dict-item]
        lambda e: e.retain({"episodic": {LONG: 1}}),  # type: ignore[dict-item]
        lambda e: e.retain(namespace=LONG),
    ],
    "reinforce": [lambda e: e.reinforce(LONG), lambda e: e.reinforce("a", now=LONG)],
    "outcome": [
        lambda e: e.outcome("a", success=LONG),  # type: ignore[arg-type]
        lambda e: e.outcome(NAME[:300], success=True, namespace="m"),
    ],
    "distill": [
        lambda e: e.distill(extractor=LONG),  # type: ignore[arg-type]
        lambda e: e.distill(extractor=lambda _: [], batch=LONG),
        lambda e: e.distill(extractor=lambda _: [], name=LONG),
        lambda e: e.distill({LONG: 1}, extractor=lambda _: []),
    ],
    "consolidate": [
        lambda e: e.consolidate({LONG: 1}),
        lambda e: e.consolidate(namespace=LONG),
        lambda e: e.consolidate(jaccard=LONG),  # type: ignore[arg-type]
    ],
    "unconsolidate": [lambda e: e.unconsolidate(LONG), lambda e: e.unconsolidate("a", namespace=LONG)],
    "scoped": [
        lambda e: e.scoped(LONG),
        lambda e: e.scoped(NAME).add({"text": LONG, "namespace": NAME[:400]}),
        lambda e: e.scoped(NAME).get(LONG),
        lambda e: e.scoped(NAME).search(LONG, namespace=LONG),
    ],
    "count": [lambda e: e.count(where={LONG: 1}), lambda e: e.count(namespace=LONG)],
    "list": [
        lambda e: e.list(order=LONG),
        lambda e: e.list(limit=LONG),  # type: ignore[arg-type]
        lambda e: e.list(where={"kind": {LONG: 1}}),
        lambda e: e.list(where={"kind": LONG}),
        lambda e: e.list(where={"metadata." + LONG: {"gt": [LONG]}}),
        lambda e: e.list(where={"timestamp": {"gte": LONG}}),
    ],
    "facts": [lambda e: e.facts(subject=LONG), lambda e: e.facts(as_of=LONG)],
    "neighbors": [lambda e: e.neighbors(LONG), lambda e: e.neighbors("a", hops=LONG)],  # type: ignore[arg-type]
    "namespaces": [lambda e: e.namespaces(LONG), lambda e: e.namespaces([LONG])],
    "search": [
        lambda e: e.search([LONG]),  # type: ignore[arg-type]
        lambda e: e.search(LONG, namespace=LONG),
        lambda e: e.search(LONG, k=LONG),  # type: ignore[arg-type]
        lambda e: e.search(LONG, now=LONG),
        lambda e: e.search(LONG, preset=LONG),
        lambda e: e.search(LONG, **{LONG: 1}),
        lambda e: e.search(LONG, rerank=LONG),
        lambda e: e.search(LONG, query_vector=LONG),  # type: ignore[arg-type]
        lambda e: e.search(LONG, budget_ms=LONG),  # type: ignore[arg-type]
        lambda e: e.search(LONG, neighbors=LONG),  # type: ignore[arg-type]
        lambda e: e.search(LONG, aging={LONG: {LONG: 1}}),
    ],
    "search_many": [lambda e: e.search_many(LONG), lambda e: e.search_many([[LONG]])],  # type: ignore[list-item]
    "replay": [
        lambda e: e.replay({"query_record": LONG}),
        lambda e: e.replay({LONG: LONG}),
        lambda e: e.replay(LONG),  # type: ignore[arg-type]
        lambda e: e.replay(e.search(LONG, namespace=NAME).query_record.to_dict() | {"store": LONG}),
    ],
    "build_context": [
        lambda e: e.build_context([{"role": "user", "content": {LONG: LONG}}]),
        lambda e: e.build_context([LONG], format=LONG),
        lambda e: e.build_context([LONG], **{LONG: 1}),
        lambda e: e.build_context([LONG], namespace=NAME, count_tokens=LONG),
        lambda e: e.build_context([LONG], token_budget=LONG),
    ],
    "compact": [lambda e: e.compact(now=LONG)],
    "reindex": [
        lambda e: e.reindex(LONG),
        lambda e: e.reindex(tokenizer=LONG),
        lambda e: e.reindex("default", batch_size=LONG),  # type: ignore[arg-type]
        lambda e: e.reindex("default", min_overlap=LONG),  # type: ignore[arg-type]
        lambda e: e.reindex("default", queries=[{LONG: LONG}]),
        lambda e: e.reindex(PATH),
    ],
    "rollback": [lambda e: e.rollback(LONG)],
    "snapshot": [lambda e: e.snapshot(PATH), lambda e: e.snapshot(LONG), lambda e: e.snapshot(PATH + "\0")],
    "open": [
        lambda e: jiyi.open(PATH, embedder=None),
        lambda e: jiyi.open(PATH, embedder=None, read_only=True),
        lambda e: jiyi.open(embedder=LONG),
        lambda e: jiyi.open(embedder=PATH),
        lambda e: jiyi.open(preset=LONG),
        lambda e: jiyi.open(device=LONG),
        lambda e: jiyi.open(durability=LONG),  # type: ignore[arg-type]
        lambda e: jiyi.open(retention={LONG: {}}),
    ],
    "restore": [lambda e: jiyi.restore(PATH, "x"), lambda e: jiyi.restore(LONG, PATH)],
    "salvage": [lambda e: jiyi.salvage(PATH, "x"), lambda e: jiyi.salvage(LONG, PATH)],
    "export_file": [
        lambda e: export.export_file(e, PATH + "/x.jsonl"),
        lambda e: export.export_file(e, LONG),
        lambda e: export.export_file(e, "x.jsonl", format=LONG),  # type: ignore[arg-type]
        lambda e: export.export_file(e, "x.jsonl", where={LONG: 1}),
        lambda e: export.export_file(e, "x.jsonl", namespace=LONG),
        lambda e: export.export_file(LONG, "x.jsonl"),  # type: ignore[arg-type]
    ],
    "ingest_files": [
        lambda e: ingest.ingest_files(e, PATH),
        lambda e: ingest.ingest_files(e, [LONG]),
        lambda e: ingest.ingest_files(e, PATH + "/*"),
        lambda e: ingest.ingest_files(e, "x", format=LONG),
        lambda e: ingest.ingest_files(e, "x", namespace=LONG),
        lambda e: ingest.ingest_files(e, "x", max_rejects=LONG),
        lambda e: ingest.ingest_files(LONG, "x"),  # type: ignore[arg-type]
    ],
    "Memory": [
        lambda e: jiyi.Memory.fact(LONG, LONG, LONG),
        lambda e: jiyi.Memory.procedure(LONG, LONG),
        lambda e: jiyi.Memory.from_dict({LONG: LONG}),
    ],
}


for _call in (
    lambda e: e.snapshot(FILE + LEGAL),
    lambda e: e.reindex(LEGAL),
    lambda e: jiyi.open(FILE + LEGAL, embedder=None),
    lambda e: jiyi.open(LEGAL, embedder=None, read_only=True),
    lambda e: jiyi.open(embedder=LEGAL),
    lambda e: jiyi.restore(LEGAL, "x"),
    lambda e: jiyi.salvage(LEGAL, "x"),
    lambda e: export.export_file(e, LEGAL + "/x.jsonl"),
    lambda e: ingest.ingest_files(e, LEGAL),
    lambda e: ingest.ingest_files(e, LEGAL + "/*"),
    lambda e: ingest.ingest_files(e, [e._store.folder / "ledger.sqlite"], rejects=FILE + LEGAL),
):
    CALLS.setdefault("a long path", []).append(_call)

# Nothing that one could say wrongly, or what does the same as one above in a thread.
_ELSEWHERE = {"close", "flush", "refresh", "verify", "stats", "drop_kept", "config", "retention", "adistill"}


def _runs(text: str, given: str) -> int:
    """The longest stretch of what was given that stands in a text."""
    longest, start = 0, 0
    while start < len(given):
        size = longest + 1
        while start + size <= len(given) and given[start : start + size] in text:
            longest, size = size, size + 1
        start += 1
    return longest


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[jiyi.Engine]:
    with jiyi.open(tmp_path_factory.mktemp("lengths") / "store", embedder=None, dim=4) as engine:
        engine.add("tea", id="a")
        engine.add(LONG.replace("\n", " "), id=NAME, namespace=NAME)
        engine.add(LONG, id=NAME[:300], namespace="m")
        yield engine


@pytest.mark.parametrize("name", list(CALLS))
def test_what_is_said_is_short(store: jiyi.Engine, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = 0
    for place, call in enumerate(CALLS[name]):
        try:
            call(store)
        except (ValueError, TypeError, jiyi.JiyiError, OSError) as error:
            refused += 1
            for said in told(error):
                what = f"{name} {place}: {len(said)} characters: {said[:300]!r}"
                if isinstance(error, OSError) and not isinstance(error, jiyi.JiyiError):
                    pytest.fail(f"not told by jiyi: {what}")
                if said is str(error) or not isinstance(error.__cause__, OSError):  # the system names the whole path
                    assert len(said) <= MOST_IN_ALL, what
                    assert _runs(said[:MOST_IN_ALL], LONG[:2_000]) <= MOST_QUOTED, what
                    assert _runs(said[:MOST_IN_ALL], PATH[:4_000]) <= MOST_OF_A_PATH, what
    assert refused > 0, name


def test_every_public_call_is_here() -> None:
    public = {name for name, _ in inspect.getmembers(jiyi.Engine) if not name.startswith("_")}
    public -= {name for name, _ in inspect.getmembers(asynchronous.Asynchronous) if not name.startswith("_")}
    assert public - set(CALLS) - _ELSEWHERE == set()


COMMANDS = [
    "export --store {store} --out {path}/x.jsonl",
    "export --store {path}",
    "list --store {legal}",
    "ingest {legal} --store {store}",
    "ingest {store}/ledger.sqlite --store {file}{legal}",
    "snapshot {file}{legal} --store {store}",
    "restore {store} --store {file}{legal}",
    "export --store {store} --out {legal}/x.jsonl",
    "eval {legal}",
    "bench --queries {legal}",
    "reindex --store {store} --queries {legal}",
    "snapshot {path} --store {store}",
    "restore {path} --store {store}2",
    "restore {store} --store {path}",
    "verify --store {path}",
    "verify --repair {path} --store {store}",
    "ingest {path} --store {store}",
    "ingest {store}/ledger.sqlite --store {path}",
    "list --store {path}",
    "reindex --store {store} --queries {path}",
    "reindex --store {store} --embedder {path}",
    "eval {path}",
    "search tea --store {path}",
    "search tea --store {store} --namespace {long}",
    "delete {long} --store {store}",
    "list {long} --store {store}",
    "{long}",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_so_is_what_a_command_says(
    store: jiyi.Engine, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with jiyi.open("small", embedder=None) as engine:
        engine.add("tea")
    long = LONG.replace("\n", "")
    main(
        [
            word.format(store=tmp_path / "small", path=PATH, legal=LEGAL, file=FILE, long=long)
            for word in line.split(" ")
        ]
    )
    said = capsys.readouterr().err
    assert len(said) <= MOST_IN_ALL, said[:300]
    assert _runs(said, LEGAL[-2_000:]) <= MOST_OF_A_PATH
    assert _runs(said, long[:2_000]) <= MOST_QUOTED
