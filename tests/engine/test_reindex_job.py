"""A reindex as a job: generations, comparison and refusal, going back, what is written meanwhile, what goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import jiyi
from jiyi.cli import main
from jiyi.errors import ModelError, StoreError
from jiyi.ledger import FILE_NAME
from jiyi.reindex import Cancelled
from jiyi.reindex_events import CaughtUp, Compared, Done, Event, Failed, Progressed, Refused, Started, Switched
from tests.engine.embedders import HashEmbedder, HashTable
from tests.engine.reindex_kills import text_of

OLD, NEW = HashEmbedder(8, "old"), HashEmbedder(12, "new")
COUNT = 60


def filled(path: Path | None, embedder: Any = OLD, count: int = COUNT) -> jiyi.Engine:
    engine = jiyi.open(path, embedder=embedder)
    engine.add_many([{"text": text_of(i), "id": f"m{i}", "namespace": f"n{i % 2}"} for i in range(count)])
    return engine


def answers(engine: jiyi.Engine) -> list[Any]:
    found = []
    for namespace in ("n0", "n1", "*"):
        for query in ("tea and rain", "徒步 记忆", "number 17"):
            hits = engine.search(query, namespace=namespace, k=10, now="2030-01-01")
            found.append((hits.ids, hits.scores, hits.degraded))
    return found


def states(engine: jiyi.Engine) -> dict[int, str]:
    with engine._store.ledger.reading() as connection:
        return dict(connection.execute("SELECT generation, state FROM generations").fetchall())


def everything(engine: jiyi.Engine) -> list[jiyi.Memory]:
    return engine.list(namespace=None)


def vectors(engine: jiyi.Engine) -> dict[str, bytes]:
    with engine._store.ledger.reading() as connection:
        return dict(connection.execute("SELECT m.id, c.vector FROM memories m JOIN columns c USING (key)").fetchall())


class Watched(HashEmbedder):
    """Calls something before each batch after the first."""

    def __init__(self, then: Callable[[int], None]) -> None:
        super().__init__(12, "new")
        self.calls = 0
        self.then = then

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls += 1
        if self.calls > 1:
            self.then(self.calls)
        return super().embed(texts)


def stop(calls: int) -> None:
    raise RuntimeError("out of memory")


# -------------------------------------------------------------------------------------------- old answers, new ones


def test_the_old_generation_answers_until_the_switch_and_after_going_back(tmp_path: Path) -> None:
    with filled(tmp_path) as engine, jiyi.open(tmp_path, embedder=OLD, read_only=True) as reader:
        before, old_vectors, seen = answers(engine), vectors(engine), []

        def told(event: Event) -> None:
            seen.append(type(event))
            if isinstance(event, Started | Progressed | CaughtUp | Compared):
                assert answers(engine) == before == answers(reader)

        report = jiyi.ReindexJob(engine, NEW, batch_size=16, keep=True, on_event=told).run()
        assert seen == [Started, *[Progressed] * 4, CaughtUp, Compared, Switched, Done]
        assert report.switched
        assert report.kept
        assert (report.memories, report.embedded, report.embedder) == (COUNT, COUNT, "new")
        assert answers(engine) == answers(filled(None, NEW))
        assert answers(engine) != before
        assert [d.stage for d in reader.search("tea", namespace="n0").degraded] == [
            "dense"
        ]  # it was opened with the old
        assert list(states(engine).values()) == ["kept"]
        assert engine.verify() == []
        back = engine.rollback()
        assert (back.embedded, back.embedder, back.kept) == (0, "old", False)
        assert answers(engine) == before == answers(reader)
        assert vectors(engine) == old_vectors
        assert states(engine) == {}
        with pytest.raises(StoreError, match="no kept generation"):
            engine.rollback()


def test_loaded_namespaces_stay_loaded_with_what_was_written_meanwhile(tmp_path: Path) -> None:
    with filled(tmp_path) as engine:
        before = answers(engine)

        def told(event: Event) -> None:
            if isinstance(event, Compared):  # after the new generation's namespaces were loaded
                engine.add("a zebra at last", id="late", namespace="n0")
                engine.delete("m0", namespace="n0")

        jiyi.ReindexJob(engine, NEW, batch_size=16, on_event=told).run()
        assert engine.stats()["loaded_namespaces"] == 2
        assert engine.search("a zebra at last", namespace="n0", k=1).ids == ["late"]
        assert engine.search(text_of(0), namespace="n0", k=COUNT).ids.count("m0") == 0
        assert answers(engine) != before
        warm = answers(engine)
        with jiyi.open(tmp_path, embedder=NEW, read_only=True) as reader:
            assert answers(reader) == warm


def test_going_back_brings_along_what_was_written_since(tmp_path: Path) -> None:
    expected = filled(None)
    with filled(tmp_path) as engine:
        engine.reindex(NEW, keep=True)
        for each in (engine, expected):
            each.add_many([{"text": f"later {i}", "id": f"l{i}", "namespace": "n1"} for i in range(20)])
            each.update("m3", text="changed since", namespace="n1")
            each.delete(["m4", "m6"], namespace="n0")
        assert engine.verify() == []
    with jiyi.open(tmp_path, embedder=NEW) as engine:
        told: list[tuple[int, int]] = []
        with pytest.raises(ModelError, match=r"kept generation is of 'old'"):
            engine.rollback()
        with pytest.raises(ModelError, match=r"not of 'other'"):
            engine.rollback(HashEmbedder(8, "other"))
        report = engine.rollback(OLD, keep=True, progress=lambda done, whole: told.append((done, whole)))
        assert report.embedded == 21
        assert told[-1][1] == 21
        assert answers(engine) == answers(expected)
        assert engine.verify() == []
        engine.rollback()  # and forth again: it was kept, and its model is at hand
        assert engine.stats()["embedder"] == "new"
        assert engine.verify() == []


def test_the_callers_vectors_come_back(tmp_path: Path) -> None:
    with jiyi.open(tmp_path, embedder=None) as engine:
        engine.add_many([f"t{i}" for i in range(20)], vectors=np.eye(20, 5) + 1)
        first = engine.search("t3", query_vector=[1, 2, 1, 1, 1], k=5, now="2030-01-01").scores
        engine.reindex(NEW, keep=True)
        engine.add("t20")
        assert engine.search("t3").degraded == ()
        engine.rollback()
        assert engine.delete(engine.search("t20", k=1).ids) == 1
        assert engine.search("t3", query_vector=[1, 2, 1, 1, 1], k=5, now="2030-01-01").scores == first


def test_only_the_last_generation_is_kept(tmp_path: Path) -> None:
    with filled(tmp_path) as engine:
        engine.reindex(NEW, keep=True)
        engine.reindex(HashTable(16, "third"), keep=True)
        assert len(states(engine)) == 1
        assert engine.drop_kept()
        assert not engine.drop_kept()
        assert states(engine) == {}
        tables = engine._store.ledger
        with tables.reading() as connection:
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert not [name for name in names if name.startswith("columns_")]


# ------------------------------------------------------------------------------------------------------ comparison


def test_refused_below_an_overlap_and_switched_by_force_at_once(tmp_path: Path) -> None:
    events: list[Event] = []
    with filled(tmp_path) as engine:
        before = answers(engine)
        report = jiyi.ReindexJob(engine, NEW, min_overlap=1.0, on_event=events.append).run()
        assert isinstance(events[-1], Refused)
        assert not report.switched
        assert report.refused is not None
        assert "below min_overlap=1" in report.refused
        assert report.comparison is not None
        assert 0 < report.comparison.overlap_at_10 < 1
        assert report.comparison.source == "stored"
        assert report.embedder == "old"
        assert answers(engine) == before
        assert list(states(engine).values()) == ["building"]
        forced = engine.reindex(NEW, min_overlap=1.0, force=True)
        assert (forced.switched, forced.embedded) == (True, 0)
        assert forced.comparison is not None
        assert forced.comparison.overlap_at_10 == pytest.approx(report.comparison.overlap_at_10, abs=0.02)
        again = engine.reindex(HashEmbedder(12, "new"), min_overlap=1.0)  # the same model: the same answers
        assert again.switched
        assert again.comparison is not None
        assert (again.comparison.overlap_at_10, again.comparison.same_first) == (1.0, 1.0)
        assert again.comparison.score_shift == 0


def test_the_comparison_is_what_two_stores_answer(tmp_path: Path) -> None:
    queries = [{"query": "tea and rain", "namespace": "n1"}, {"query": "chess night", "namespace": "n1"}]
    overlaps, shifts = [], []
    fresh = filled(None, NEW)
    with filled(tmp_path) as engine:
        for query in queries:
            old, new = (each.search(query["query"], namespace="n1", k=10) for each in (engine, fresh))
            overlaps.append(len(set(old.ids) & set(new.ids)) / 10)
            scores = dict(zip(new.ids, new.scores, strict=True))
            shifts += [scores[i] - s for i, s in zip(old.ids, old.scores, strict=True) if i in scores]
        comparison = engine.reindex(NEW, queries=queries).comparison
        assert comparison is not None
        assert (comparison.queries, comparison.source) == (2, "given")
        assert comparison.overlap_at_10 == pytest.approx(np.mean(overlaps))
        assert comparison.score_shift == pytest.approx(np.mean(shifts), abs=1e-4)
        assert comparison.score_shift_abs == pytest.approx(np.mean(np.abs(shifts)), abs=1e-4)


def test_what_cannot_be_compared_is_refused_where_an_overlap_is_asked_for(tmp_path: Path) -> None:
    filled(tmp_path).close()
    with jiyi.open(tmp_path, embedder=NEW) as engine:  # the old model cannot be had
        report = engine.reindex(min_overlap=0.5)
        assert not report.switched
        assert "'old', cannot be had" in str(report.refused)
        assert engine.reindex(min_overlap=0.5, force=True).switched
        assert engine.reindex(sample=0).not_compared == "sample=0"


# ---------------------------------------------------------------------------------------------- written meanwhile


def test_adds_updates_deletes_and_erasures_meanwhile(tmp_path: Path) -> None:
    with filled(tmp_path) as engine:

        def change(calls: int) -> None:
            if calls > 6:  # while it catches up
                return
            engine.add_many([{"text": f"new {calls} {i}", "id": f"a{calls}-{i}", "namespace": "n0"} for i in range(9)])
            engine.update(f"m{calls}", text=f"changed {calls}", namespace=f"n{calls % 2}")
            engine.delete(f"m{calls + 20}", namespace=f"n{calls % 2}")
            engine.erase(f"m{calls + 40}", namespace=f"n{calls % 2}")

        report = engine.reindex(Watched(change), batch_size=10, keep=True)
        assert report.memories == engine.count(namespace=None)
        assert engine.verify() == []
        assert vectors(engine) == {m.id: NEW.embed_query(m.text).tobytes() for m in everything(engine)}
        expected = answers(engine)
    with jiyi.open(tmp_path, embedder=NEW) as engine:
        assert answers(engine) == expected


def test_nothing_of_what_is_erased_stays_in_any_generation(tmp_path: Path) -> None:
    with filled(tmp_path) as engine:
        engine.reindex(NEW, keep=True)
        with pytest.raises(RuntimeError, match="out of memory"):
            engine.reindex(Watched(stop), batch_size=50)
        assert sorted(states(engine).values()) == ["building", "kept"]
        engine.erase("m2", namespace="n0")
        engine.flush()
        content = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        for embedder in (OLD, NEW):
            assert embedder.embed_query(text_of(2)).tobytes() not in content
            assert embedder.embed_query(text_of(4)).tobytes() in content


def test_writers_that_race_with_the_switch(tmp_path: Path) -> None:
    """What was embedded by the old model before the switch, and written after it, is embedded again."""
    failed: list[str] = []
    done = threading.Event()
    with filled(tmp_path) as engine:

        def write(who: int) -> None:
            i = 0
            while not done.is_set():
                engine.add(f"tea {who} {i}", id=f"w{who}-{i}", namespace="n0")
                i += 1

        def read() -> None:
            while not done.is_set():
                for namespace in ("n0", "*"):
                    hits = engine.search("tea and rain", namespace=namespace)
                    if hits.degraded or not np.isfinite(hits.scores).all():
                        failed.append(str(hits.degraded))

        threads = [threading.Thread(target=write, args=(1,)), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        try:
            for embedder in (NEW, OLD, HashTable(16, "t"), OLD):
                engine.reindex(embedder, batch_size=16, sample=4)
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert failed == []
        assert {len(vector) for vector in vectors(engine).values()} == {4 * OLD.dim}
        assert vectors(engine) == {m.id: OLD.embed_query(m.text).tobytes() for m in everything(engine)}
        assert engine.verify() == []


# --------------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (lambda n: np.full((n, 12), np.nan, np.float32), ValueError, "NaN or infinity for memory 0 of a batch"),
        (lambda n: np.zeros((n, 5), np.float32), jiyi.DimensionError, "has 5 dimensions"),
        (lambda n: np.zeros((n + 1, 12), np.float32), ValueError, "it must be one row each"),
        (lambda n: ["x"] * n, TypeError, "must be numbers"),
    ],
)
def test_an_embedder_that_returns_nonsense_midway(tmp_path: Path, returned: Any, error: Any, message: str) -> None:
    class Broken(HashEmbedder):
        calls = 0

        def embed(self, texts: Sequence[str]) -> Any:
            self.calls += 1
            return super().embed(texts) if self.calls == 1 else returned(len(texts))

    events: list[Event] = []
    with filled(tmp_path) as engine:
        before = answers(engine)
        job = jiyi.ReindexJob(engine, Broken(12, "new"), batch_size=25, on_event=events.append)
        with pytest.raises(error, match=message):
            job.run()
        assert job.status().state == "failed"
        assert isinstance(events[-1], Failed)
        assert answers(engine) == before
        assert engine.verify() == []
        with pytest.raises(StoreError, match="runs only once"):
            job.run()
        assert engine.reindex(NEW).embedded == COUNT - 25


def test_another_model_of_the_same_name_does_not_go_on(tmp_path: Path) -> None:
    with filled(tmp_path) as engine:
        with pytest.raises(RuntimeError):
            engine.reindex(Watched(stop), batch_size=25)
        other = HashEmbedder(12, "new")
        other.embed = lambda texts: -NEW.embed(texts)  # type: ignore[method-assign]
        assert engine.reindex(other).embedded == COUNT


def test_a_disk_that_fills_up_midway(tmp_path: Path) -> None:
    with filled(tmp_path) as engine:
        before = answers(engine)
        writer = engine._store.ledger._connections.writer

        def fill(calls: int) -> None:
            pages = writer.execute("PRAGMA page_count").fetchone()[0]
            writer.execute(f"PRAGMA max_page_count = {pages}")

        watched, wide = Watched(fill), HashEmbedder(3_000, "wide")
        wide.embed = lambda texts: (watched.embed(texts), HashEmbedder(3_000).embed(texts))[1]  # type: ignore[method-assign]
        with pytest.raises(StoreError, match="full"):
            engine.reindex(wide, batch_size=10)
        writer.execute("PRAGMA max_page_count = 1000000")
        assert answers(engine) == before
        assert engine.verify() == []
        report = engine.reindex(HashEmbedder(3_000, "wide"))
        assert report.switched
        assert 0 < report.embedded < COUNT


def test_a_disk_that_is_too_small_is_told_before_it_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    with filled(tmp_path) as engine:
        monkeypatch.setattr("jiyi.reindex.shutil.disk_usage", lambda path: usage._replace(free=1000))
        with pytest.raises(StoreError, match=r"takes about .* MB beside .* 0 MB are free"):
            engine.reindex(NEW)
        assert engine.reindex(NEW, force=True).switched


def test_damage_in_the_kept_generation_is_found_and_damaged_rows_are_made_anew(tmp_path: Path) -> None:
    with filled(tmp_path) as engine:
        wanted = answers(filled(None, NEW))
        ledger = engine._store.ledger
        with ledger.changing() as connection:
            connection.execute("UPDATE columns SET terms = zeroblob(length(terms)), kind = 3 WHERE key % 7 = 0")
        engine.reindex(NEW, keep=True)
        assert answers(engine) == wanted
        damaged = engine.verify()
        assert damaged
        assert all("kept" in line for line in damaged)
        assert engine.drop_kept()
        assert engine.verify() == []


# ------------------------------------------------------------------------------------------------ terms, tokenizer


def test_terms_are_renewed_beside_and_vectors_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(tmp_path) as engine:
        wanted, old_vectors = answers(engine), vectors(engine)
        with engine._store.ledger.changing() as connection:  # as an earlier version has cut them
            from jiyi.checksums import columns_checksum
            from jiyi.ledger import COLUMN_FIELDS

            for *row, vector in connection.execute(f"SELECT {COLUMN_FIELDS}, vector FROM columns").fetchall():
                row[6:8] = b"", b""
                checksum = columns_checksum(tuple(row), vector)
                new = "UPDATE columns SET terms = x'', freqs = x'', checksum = ? WHERE key = ?"
                connection.execute(new, (checksum, row[0]))
            connection.execute("UPDATE manifest SET value = '0.0' WHERE key = 'analyzer'")
    monkeypatch.setattr("jiyi.store._RECUT_AT_OPEN", 10)
    with jiyi.open(tmp_path, embedder=OLD) as engine:
        assert [d.stage for d in engine.search("tea", namespace="n0").degraded] == ["keyword"]
        silent = pytest.MonkeyPatch()
        silent.setattr(OLD, "embed", stop)
        report = engine.reindex(tokenizer="current", keep=True)
        silent.undo()
        assert report.switched
        assert answers(engine) == wanted
        assert vectors(engine) == old_vectors
        engine.rollback()
        assert [d.stage for d in engine.search("tea", namespace="n0").degraded] == ["keyword"]
        engine.reindex(NEW)  # any reindex renews them
        assert answers(engine) == answers(filled(None, NEW))
    with pytest.raises(ValueError, match="there is one for all"), jiyi.open(None, embedder=OLD) as engine:
        engine.reindex(tokenizer="whitespace")


# ------------------------------------------------------------------------------------------------- for a scheduler


def test_plan_pause_resume_status(tmp_path: Path) -> None:
    with filled(tmp_path) as engine:
        reached, events = threading.Event(), []

        def told(event: Event) -> None:
            events.append(event)
            if isinstance(event, Progressed) and event.done == 20:
                job.pause()
                reached.set()

        job = jiyi.ReindexJob(engine, NEW, batch_size=10, on_event=told)
        plan = job.plan()
        assert (plan.memories, plan.done, plan.embedder, plan.dim, plan.embeds) == (COUNT, 0, "new", 12, True)
        assert plan.rate is not None
        assert plan.seconds == pytest.approx(COUNT / plan.rate)
        assert 0 < plan.disk_bytes < 1e6 < plan.free_bytes  # type: ignore[operator]
        assert job.status().state == "new"
        thread = threading.Thread(target=job.run)
        thread.start()
        assert reached.wait(30)
        while job.status().state != "paused":
            pass
        status = job.status()
        assert (status.done, status.total) == (20, COUNT)
        assert status.rate is not None
        assert jiyi.ReindexJob(engine, NEW).plan().done == 20
        engine.add("while it waits", namespace="n0")
        job.resume()
        thread.join()
        assert job.status().state == "done"
        assert engine.stats()["embedder"] == "new"
        assert engine.verify() == []
        assert plan.disk_bytes < 3 * (tmp_path / FILE_NAME).stat().st_size
        limited = jiyi.ReindexJob(engine, NEW, limit_rate=2).plan()
        assert limited.seconds == pytest.approx((COUNT + 1) / 2)


def test_cancel_drops_what_is_built(tmp_path: Path) -> None:
    with filled(tmp_path) as engine:
        before = answers(engine)
        job: jiyi.ReindexJob

        def told(event: Event) -> None:
            if isinstance(event, Progressed):
                job.cancel()

        job = jiyi.ReindexJob(engine, NEW, batch_size=10, on_event=told)
        with pytest.raises(Cancelled):
            job.run()
        assert job.status().state == "cancelled"
        assert states(engine) == {}
        with pytest.raises(RuntimeError):
            engine.reindex(Watched(stop), batch_size=10)
        assert list(states(engine).values()) == ["building"]
        jiyi.ReindexJob(engine, NEW).cancel()  # made again after a crash, only to do away with what is left
        assert states(engine) == {}
        assert answers(engine) == before


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"batch_size": True}, ValueError, "batch_size is True"),
        ({"limit_rate": 0}, ValueError, "limit_rate is 0"),
        ({"min_overlap": 1.5}, ValueError, "min_overlap is 1.5"),
        ({"keep": 1}, TypeError, "keep must be True or False"),
        ({"sample": -1}, ValueError, "sample is -1"),
        ({"queries": "tea"}, TypeError, "must be a list of queries"),
        ({"queries": []}, ValueError, "queries is empty"),
        ({"queries": [3]}, TypeError, "query 0 must be a text"),
    ],
)
def test_arguments_are_checked_before_anything_is_done(arguments: dict[str, Any], error: Any, message: str) -> None:
    with filled(None) as engine, pytest.raises(error, match=message):
        engine.reindex(NEW, **arguments)


# ----------------------------------------------------------------------------------------------------- command line


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["reindex", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ("--store", str(tmp_path / "store"))
    with jiyi.open(tmp_path / "store") as engine:
        engine.add_many([text_of(i) for i in range(30)])
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"query": "tea", "namespace": "default"}\nchess and rain\n', encoding="utf-8")
    code, out, _ = run(capsys, *store, "--plan")
    assert code == 0
    assert out.startswith("30 memories to embed with e5-static-256; about ")
    code, out, err = run(capsys, *store, "--keep", "--json", "--queries", str(queries), "--batch-size", "20")
    assert (code, err) == (0, "")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events] == [
        *("started", "progressed", "progressed", "caught_up", "compared", "switched", "done")
    ]
    assert events[-1]["report"]["comparison"]["overlap_at_10"] == 1.0
    assert events[-1]["report"]["comparison"]["queries"] == 2
    code, out, err = run(capsys, *store, "--rollback")
    assert (code, out, err) == (0, "back to e5-static-256 for 30 memories\n", "")
    code, out, err = run(capsys, *store, "--rollback")
    assert (code, out) == (1, "")
    assert "no kept generation" in err
    code, out, _ = run(capsys, *store, "--keep")
    assert code == 0
    assert out.startswith("embedded 30 memories with e5-static-256 in ")
    assert "overlap@10 1.000 over" in out
    assert "the old generation is kept" in out
    assert run(capsys, *store, "--drop-kept") == (0, "dropped the kept generation\n", "")
    for wrong in (("--tokenizer", "x"), ("--batch-size", "0"), ("--min-overlap", "2"), ("--plan", "--rollback")):
        assert run(capsys, *store, *wrong)[0] == 2
    (tmp_path / "none.txt").write_text("\n")
    assert run(capsys, *store, "--queries", str(tmp_path / "none.txt"))[0] == 2


def test_a_refusal_is_exit_code_1_and_force_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, HashEmbedder(8, "a")).close()  # of a model that cannot be had: nothing to compare with
    code, out, err = run(capsys, "--store", str(tmp_path), "--embedder", "e5-static-256", "--min-overlap", "0.2")
    assert (code, out) == (1, "")
    assert "not switched" in err
    code, out, err = run(capsys, "--store", str(tmp_path), "--embedder", "e5-static-256", "--force")
    assert code == 0
    assert "60 by an earlier run" in out
    assert "goes on after 60 of 60" in err


def test_a_termination_is_exit_code_130_and_the_next_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path).close()
    terminated = Watched(lambda calls: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr("jiyi.reindex.load_embedder", lambda name, **_: {"w": terminated, "new": NEW}[name])
    code, _, err = run(capsys, "--store", str(tmp_path), "--embedder", "w", "--batch-size", "25", "--force")
    assert code == 130
    assert "interrupted" in err
    code, out, _ = run(capsys, "--store", str(tmp_path), "--embedder", "new", "--force")
    assert code == 0
    assert "25 by an earlier run" in out


def test_what_an_older_format_had_staged_is_dropped(tmp_path: Path) -> None:
    filled(tmp_path).close()
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.executescript(
        "DROP TABLE generations; DROP TABLE behind; DROP TABLE IF EXISTS ingesting;"
        "CREATE TABLE staged (key INTEGER PRIMARY KEY, vector BLOB);"
        "UPDATE manifest SET value = '2' WHERE key = 'format'; INSERT INTO manifest VALUES ('staged', 'x');"
    )
    connection.close()
    (tmp_path / "ledger.sums").unlink(missing_ok=True)
    with jiyi.open(tmp_path, embedder=OLD) as engine:
        assert "staged" not in engine._store.ledger.manifest()
        assert engine.reindex(NEW).switched
