"""Every command through `main`, with good, bad and hostile input."""

import gzip
import io
import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import jiyi
from jiyi.cli import main

Run = Callable[..., tuple[int, str, str]]
Failing = Callable[..., str]

HIKING = "周末喜欢去徒步，特别是越野路线"
MEMORIES = [
    {"id": "hike", "namespace": "ana", "timestamp": "2026-03-01", "text": HIKING, "kind": "archival"},
    {
        "id": "ts",
        "namespace": "ana",
        "timestamp": "2026-03-02",
        "text": "rewriting it in TypeScript",
        "session": "s1",
    },
    {"id": "py", "namespace": "ana", "timestamp": "2026-03-03", "text": "我也在学 Python", "metadata": {"n": 1}},
    {"id": "tea", "namespace": "bo", "timestamp": "2026-03-04", "text": "green tea, no sugar", "sources": ["x"]},
]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in a folder of its own; give its exit code, standard output and standard error."""
    monkeypatch.delenv("JIYI_STORE", raising=False)
    working = tmp_path / "working"  # where reject files appear
    working.mkdir()
    monkeypatch.chdir(working)

    def call(*argv: object, stdin: bytes | None = None) -> tuple[int, str, str]:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(arg) for arg in argv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def failing(run: Run) -> Failing:
    """Run a command that must fail with this exit code; give the one line that it says."""

    def call(code: int, *argv: object, stdin: bytes | None = None) -> str:
        got, out, err = run(*argv, stdin=stdin)
        assert (got, out) == (code, "")
        assert err.startswith("jiyi: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        return err

    return call


def lines(records: list[dict]) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    with jiyi.open(folder, embedder=None) as engine:
        engine.add_many(MEMORIES)
    return folder


def stored(folder: Path) -> list[str]:
    with jiyi.open(folder, embedder=None, read_only=True) as engine:
        return [memory.id for memory in engine.list(namespace=None)]


class TestUsage:
    def test_help_and_version(self, run: Run) -> None:
        code, out, _ = run("--help")
        assert code == 0
        for command in "demo ingest search context list export delete stats verify snapshot warmup eval".split():
            assert command in out
            code, help_of_it, _ = run(command, "--help")
            assert code == 0
            assert "usage: jiyi " + command in help_of_it
        assert run("--version") == (0, f"jiyi {jiyi.__version__}\n", "")

    @pytest.mark.parametrize(
        ("argv", "said"),
        [
            ((), "no command was given"),
            (("fly",), "invalid choice: 'fly'"),
            (("search",), "required: QUERY"),
            (("search", "x", "--loud"), "unrecognized arguments: --loud"),
            (("search", "x", "--store", "s", "--k", "many"), "invalid int value: 'many'"),
            (("search", "x"), "pass --store DIR or set JIYI_STORE"),
            (("search", "x", "--store", ""), "pass --store DIR or set JIYI_STORE"),
            (("ingest", "f.jsonl"), "pass --store DIR or set JIYI_STORE"),
            (("search", "x", "--store", "s", "--where", "{kind"), "is not JSON"),
            (("search", "x", "--store", "s", "--where", "[" * 5000), "is not JSON"),
            (("search", "x", "--store", "s", "--where", "[1]"), "must be a JSON object"),
            (("search", "x", "--store", "s", "--set", "recency_weight"), "must be SETTING=VALUE"),
            (("delete", "--store", "s"), "delete needs an ID or --where"),
            (("context", "--store", "s"), "one of the arguments MESSAGE --messages is required"),
            (("context", "hi", "--messages", "f", "--store", "s"), "not allowed with"),
            (("context", "hi", "--format", "pdf", "--store", "s"), "invalid choice: 'pdf'"),
        ],
    )
    def test_wrong_usage(self, failing: Failing, argv: tuple[str, ...], said: str) -> None:
        assert said in failing(2, *argv)

    @pytest.mark.parametrize(
        ("argv", "said"),
        [
            (("--where", '{"color": "red"}'), "unknown field 'color'"),
            (("--where", '{"kind": {"like": "a"}}'), "unknown operator 'like'"),
            (("--where", '{"timestamp": {"gte": "soon"}}'), "not an ISO 8601 time"),
            (("--set", "speed=9"), "unknown search setting 'speed'"),
            (("--set", "recency_weight=2"), "it must be from 0 to 1"),
            (("--set", "recency_weight=much"), "must be a number"),
            (("--set", "recency_weight=nan"), "it must be from 0 to 1"),
            (("--preset", "finest"), "unknown preset 'finest'"),
            (("--k", "-1"), "k is -1"),
            (("--now", "yesterday"), "not an ISO 8601 time"),
            (("--now", "1767225600000"), "looks like milliseconds"),
            (("--namespace", ""), "namespace is empty"),
            (("--embedder", "gpt"), "there is no embedder 'gpt'"),
        ],
    )
    def test_what_the_engine_refuses_is_wrong_usage(
        self, failing: Failing, store: Path, argv: tuple[str, ...], said: str
    ) -> None:
        if "--embedder" not in argv:
            argv = (*argv, "--embedder", "none")
        assert said in failing(2, "search", "x", "--store", store, *argv)

    @pytest.mark.parametrize(
        "argv", ["search x", "context x", "list", "export", "delete x", "stats", "verify", "snapshot x"]
    )
    def test_a_store_that_is_not_there_is_not_made(self, failing: Failing, tmp_path: Path, argv: str) -> None:
        said = failing(1, *argv.split(), "--store", tmp_path / "nowhere")
        assert "there is no store in" in said
        assert "jiyi ingest" in said
        assert not (tmp_path / "nowhere").exists()

    def test_the_store_from_the_environment(self, run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JIYI_STORE", str(store))
        assert "all 4 memories" in run("verify")[1]

    def test_a_damaged_store_is_one_line(self, failing: Failing, store: Path) -> None:
        (store / "ledger.sqlite").write_bytes(b"this is no database" * 1000)
        for extra in store.glob("ledger.sqlite-*"):
            extra.unlink()
        failing(1, "list", "--store", store)

    def test_an_interrupt(self, failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted() -> int:
            raise KeyboardInterrupt

        monkeypatch.setattr(jiyi, "warmup", interrupted)
        assert failing(130, "warmup") == "jiyi: interrupted\n"

    def test_a_fault_of_our_own(self, failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken() -> int:
            raise ZeroDivisionError("two\nlines")

        monkeypatch.setattr(jiyi, "warmup", broken)
        assert "unexpected ZeroDivisionError: two lines" in failing(1, "warmup")
        monkeypatch.setenv("JIYI_TRACEBACK", "1")
        with pytest.raises(ZeroDivisionError):
            main(["warmup"])


class TestIngest:
    def ingest(self, run: Run, content: bytes, store: Path, *options: object) -> tuple[int, str, str]:
        return run("ingest", "-", "--store", store, "--embedder", "none", *options, stdin=content)

    def test_from_a_file_and_again(self, run: Run, tmp_path: Path) -> None:
        path, store = tmp_path / "m.jsonl", tmp_path / "store"
        path.write_bytes(lines(MEMORIES))
        for said in ("stored 4 memories in ", "stored 0 memories, 4 unchanged in "):
            code, out, err = run("ingest", path, "--store", store, "--embedder", "none")
            assert (code, err) == (0, "")
            assert out.startswith(said)
            assert stored(store) == ["hike", "ts", "py", "tea"]

    def test_as_json(self, run: Run, tmp_path: Path) -> None:
        out = self.ingest(run, lines(MEMORIES), tmp_path, "--json")[1]
        assert json.loads(out)["stored"] == 4

    def test_namespace_of_lines_without_one(self, run: Run, tmp_path: Path) -> None:
        content = lines([{"text": "a"}, {"text": "b", "namespace": None}, {"text": "c", "namespace": "bo"}])
        self.ingest(run, content, tmp_path, "--namespace", "ana")
        with jiyi.open(tmp_path, embedder=None) as engine:
            assert engine.namespaces() == {"ana": 2, "bo": 1}

    @pytest.mark.parametrize(
        ("content", "count"),
        [
            (b"", 0),
            (b"\n  \n\r\n", 0),
            (b'\xef\xbb\xbf{"text": "after a byte order mark"}\n', 1),
            (b'{"text": "a"}\r\n{"text": "b"}', 2),
            (b'\n\n{"text": "a"}\n\n', 1),
            ('{"text": "line\u2028separator"}\n'.encode(), 1),
        ],
    )
    def test_shapes_of_files(self, run: Run, tmp_path: Path, content: bytes, count: int) -> None:
        code, out, err = self.ingest(run, content, tmp_path)
        assert (code, err) == (0, "")
        assert f"stored {count} memor{'y' if count == 1 else 'ies'} in " in out
        assert len(stored(tmp_path)) == count

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            (b"{", "is not JSON"),
            (b"nonsense", "is not JSON"),
            (b'{"text": "a"} {"text": "b"}', "is not JSON"),
            (b"[]", "must be a JSON object"),
            (b"null", "got null"),
            (b'"text"', "got str"),
            (b"{}", "the field text is missing"),
            (b'{"text": null}', "the field text is missing"),
            (b'{"text": 5}', "text must be text, got int"),
            (b'{"text": "a", "txet": "b"}', "unknown field 'txet'"),
            (b'{"text": "a", "text": "b"}', "holds the field 'text' twice"),
            (b'{"text": "a", "metadata": {"x": 1, "x": 1}}', "holds the field 'x' twice"),
            (b'{"text": "a", "kind": "dream"}', "kind is 'dream'"),
            (b'{"text": "a", "id": 7}', "id must be text, got int"),
            (b'{"text": "a", "id": ""}', "id is empty"),
            (b'{"text": "a", "timestamp": "noon"}', "not an ISO 8601 time"),
            (b'{"text": "a", "timestamp": 1767225600000}', "looks like milliseconds"),
            (b'{"text": "a", "timestamp": NaN}', "holds NaN"),
            (b'{"text": "a", "timestamp": 1e999}', "not a finite number"),
            (b'{"text": "a", "metadata": {"x": Infinity}}', "holds Infinity"),
            (b'{"text": "a", "metadata": []}', "metadata must be a mapping"),
            (b'{"text": "a", "metadata": {"n": ' + b"9" * 5000 + b"}}", "digit"),
            (b'{"text": "a", "metadata": ' + b'{"a":' * 100 + b"1" + b"}" * 100 + b"}", "nested deeper"),
            (b"[" * 200_000, "nested too deep"),
            (b'{"text": "\\ud800"}', "half a surrogate pair"),
            (b'{"text": "\xff"}', "is not UTF-8 (byte 0xff at position 10)"),
            ('{"text": "a"}'.encode("utf-16"), "is not UTF-8"),
            (b"\x00\x00", "is not JSON"),
            (b'{"text": "a", "vector": [1, NaN]}', "holds NaN"),
            (b'{"text": "a", "vector": [1, 1e999]}', "NaN or infinity"),
            (b'{"text": "a", "vector": [1e300]}', "NaN or infinity"),
            (b'{"text": "a", "vector": [[1, 2]]}', "one-dimensional"),
            (b'{"text": "a", "vector": {}}', "must be numbers"),
            (b'{"text": "a", "vector": []}', "not empty"),
        ],
    )
    def test_a_bad_line(
        self, failing: Failing, run: Run, tmp_path: Path, folder: Path, bad: bytes, reason: str
    ) -> None:
        content = b'{"id": "one", "text": "a"}\n\n' + bad + b'\n{"id": "four", "text": "d"}\n'
        said = failing(1, "ingest", "-", "--store", tmp_path, "--embedder", "none", "--strict", stdin=content)
        assert "standard input, line 3: " in said
        assert reason in said
        assert "the memory before it is stored" in said
        assert stored(tmp_path) == ["one"]
        code, out, err = self.ingest(run, content, folder, "--rejects", tmp_path / "rejects")
        assert code == 0
        assert out.startswith(f"stored 2 memories, 1 rejected ({tmp_path / 'rejects'}) in ")
        assert "1 row is wrong, the first: standard input, line 3: " in err
        assert stored(folder) == ["one", "four"]
        reject = json.loads((tmp_path / "rejects").read_text(encoding="utf-8"))
        assert (reject["source"], reject["line"]) == ("standard input", 3)
        assert reason in reject["reason"]
        assert len(reject["content"]) <= 80

    def test_a_bad_first_line(self, failing: Failing, tmp_path: Path) -> None:
        said = failing(1, "ingest", "-", "--store", tmp_path, "--embedder", "none", "--strict", stdin=b"{}\n")
        assert "line 1" in said
        assert "nothing was stored" in said

    def test_vectors(self, run: Run, tmp_path: Path) -> None:
        records = [{"id": name, "text": name, "vector": vector} for name, vector in (("a", [1, 0]), ("b", [0.0, 2.5]))]
        assert self.ingest(run, lines(records), tmp_path)[0] == 0
        with jiyi.open(tmp_path, embedder=None) as engine:
            assert engine.stats()["dim"] == 2
            assert engine.search("?", query_vector=[0, 1], recency_weight=0).ids[0] == "b"

    def test_a_vector_of_another_length(self, failing: Failing, tmp_path: Path) -> None:
        content = lines([{"id": "a", "text": "a", "vector": [1, 0]}, {"text": "b", "vector": [1, 0, 0]}])
        said = failing(1, "ingest", "-", "--store", tmp_path, "--embedder", "none", "--strict", stdin=content)
        assert "line 2" in said
        assert "3 dimensions" in said
        assert "have 2" in said
        assert stored(tmp_path) == ["a"]

    def test_several_batches(self, run: Run, tmp_path: Path) -> None:
        content = lines([{"id": f"m{i}", "text": f"memory {i}"} for i in range(2_345)])
        assert "stored 2,345 memories" in self.ingest(run, content, tmp_path)[1]
        assert stored(tmp_path) == [f"m{i}" for i in range(2_345)]

    def test_a_bad_line_in_a_later_batch(self, failing: Failing, tmp_path: Path) -> None:
        content = lines([{"id": f"m{i}", "text": "x"} for i in range(1_200)]) + b"oops\n"
        said = failing(1, "ingest", "-", "--store", tmp_path, "--embedder", "none", "--strict", stdin=content)
        assert "line 1201" in said
        assert "the 1,200 memories before it are stored" in said
        assert len(stored(tmp_path)) == 1_200

    def test_a_line_of_ten_megabytes(self, run: Run, tmp_path: Path) -> None:
        text = "龙井茶 " + "green tea " * 1_000_000
        assert self.ingest(run, lines([{"id": "long", "text": text}]), tmp_path)[0] == 0
        with jiyi.open(tmp_path, embedder=None) as engine:
            assert engine.get("long").text == text
            assert engine.search("龙井茶").ids == ["long"]

    def test_a_line_without_end(self, failing: Failing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("jiyi.jsonl.LONGEST_LINE_BYTES", 2**20)
        content = b'{"text": "' + b"x" * 2**21
        assert "line 1: is over 1 MiB long" in failing(
            1, "ingest", "-", "--store", tmp_path, "--embedder", "none", stdin=content
        )

    def test_several_files_and_a_pattern(self, run: Run, tmp_path: Path) -> None:
        for name in ("b.jsonl", "a.jsonl", "c.jsonl"):
            (tmp_path / name).write_bytes(lines([{"id": name, "text": name}]))
        argv = (
            "ingest",
            tmp_path / "c.jsonl",
            f"{tmp_path}/*.jsonl",
            "--store",
            tmp_path / "store",
            "--embedder",
            "none",
        )
        code, out, err = run(*argv)
        assert (code, out[:18]) == (0, "stored 3 memories ")
        assert err.endswith("c.jsonl was named twice; it is read once\n")
        assert stored(tmp_path / "store") == ["c.jsonl", "a.jsonl", "b.jsonl"]

    def test_rejects_by_default(self, run: Run, tmp_path: Path) -> None:
        path = tmp_path / "day.jsonl"
        path.write_bytes(lines(MEMORIES) + b"oops\n")
        code, out, err = run("ingest", path, "--store", tmp_path / "store", "--embedder", "none", "--json")
        record = json.loads(out)
        assert (code, record["stored"], record["rejected"], record["state"]) == (0, 4, 1, "done")
        assert record["rejects_file"] == "day.rejects.jsonl"
        assert json.loads(Path("day.rejects.jsonl").read_text(encoding="utf-8"))["line"] == 5
        assert "1 row is wrong, the first: " in err

    def test_nothing_but_rejects_is_a_failure(self, failing: Failing, tmp_path: Path) -> None:
        said = failing(1, "ingest", "-", "--store", tmp_path, "--embedder", "none", stdin=b"GIF89a\n\x01\x02\n")
        assert "no row could be taken, 2 were wrong (listed in stdin.rejects.jsonl)" in said

    def test_max_rejects(self, run: Run, failing: Failing, tmp_path: Path) -> None:
        content = b"oops\n" * 3 + lines(MEMORIES)
        code, _, err = self.ingest(run, content, tmp_path, "--max-rejects", "2")
        assert code == 1
        assert err.startswith("jiyi: stopped after 3 rejects; the first: standard input, line 1: ")
        assert self.ingest(run, content, tmp_path, "--max-rejects", "3")[0] == 0
        assert "at least 0" in failing(2, "ingest", "-", "--store", tmp_path, "--max-rejects", "-1", stdin=b"")

    def test_dry_run(self, run: Run, tmp_path: Path, store: Path) -> None:
        nowhere = tmp_path / "nowhere"
        assert self.ingest(run, lines(MEMORIES), nowhere, "--dry-run")[1].startswith("would store 4 memories in ")
        assert not nowhere.exists()
        out = self.ingest(run, lines([*MEMORIES, {"text": "new"}]), store, "--dry-run")[1]
        assert out.startswith("would store 1 memory, 4 unchanged in ")
        assert len(stored(store)) == 4

    def test_progress_as_json(self, run: Run, tmp_path: Path) -> None:
        code, _, err = self.ingest(run, lines(MEMORIES), tmp_path, "--progress", "json")
        told = [json.loads(line) for line in err.splitlines()]
        assert code == 0
        assert (told[-1]["event"], told[-1]["state"], told[-1]["stored"]) == ("progress", "done", 4)

    def test_a_damaged_file_among_others(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(MEMORIES))[:-20])
        (tmp_path / "b.jsonl").write_bytes(lines([{"id": "b", "text": "b"}]))
        code, out, err = run("ingest", tmp_path, "--store", tmp_path / "store", "--embedder", "none")
        assert code == 1
        assert out.startswith("stored ")
        assert "a.jsonl.gz: is cut off" in err
        assert err.endswith("; the rest is stored\n")
        assert "b" in stored(tmp_path / "store")

    def test_a_format_that_is_not_the_files(self, failing: Failing, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow", reason="reading Parquet needs the extra `files`")
        (tmp_path / "m.jsonl").write_bytes(lines(MEMORIES))
        argv = ("ingest", tmp_path / "m.jsonl", "--store", tmp_path / "store", "--format", "parquet", "--json")
        assert main([str(each) for each in argv]) == 1

    @pytest.mark.parametrize("name", ["missing.jsonl", "."])
    def test_a_file_that_cannot_be_read_makes_no_store(self, failing: Failing, tmp_path: Path, name: str) -> None:
        store = tmp_path / "store"
        failing(1, "ingest", tmp_path / name, "--store", store, "--embedder", "none")
        assert not store.exists()

    def test_the_store_is_a_file(self, failing: Failing, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        said = failing(1, "ingest", "-", "--store", tmp_path / "file", "--embedder", "none", stdin=b"")
        assert "is a file; a store is a folder" in said

    def test_while_another_writes(self, failing: Failing, run: Run, store: Path) -> None:
        with jiyi.open(store, embedder=None):
            said = failing(1, "ingest", "-", "--store", store, "--embedder", "none", stdin=b'{"text": "x"}')
            assert "open for writing by" in said
            assert run("list", "--store", store)[0] == 0  # reading goes on
        assert len(stored(store)) == 4


class TestSearch:
    def search(self, run: Run, store: Path, *argv: object) -> str:
        code, out, err = run("search", *argv, "--store", store, "--namespace", "ana", "--embedder", "none")
        assert (code, err) == (0, "")
        return out

    def test_text(self, run: Run, store: Path) -> None:
        out = self.search(run, store, "徒步", "--k", "1")
        assert out.count("\n") == 1
        assert "hike  周末喜欢去徒步，特别是越野路线" in out
        assert "2026-03-01  archival" in out

    def test_json(self, run: Run, store: Path) -> None:
        hits = [json.loads(line) for line in self.search(run, store, "TypeScript Python", "--json").splitlines()]
        assert [hit["rank"] for hit in hits] == list(range(1, len(hits) + 1))
        assert {hit["memory"]["id"] for hit in hits} >= {"ts", "py"}
        assert "factors" not in hits[0]
        explained = json.loads(self.search(run, store, "TypeScript", "--json", "--explain").splitlines()[0])
        assert explained["factors"]["signals"]["keyword"]["rank"] == 1

    def test_explain(self, run: Run, store: Path) -> None:
        out = self.search(run, store, "TypeScript", "--explain")
        assert out.startswith("query: TypeScript\n")
        assert "keyword·1.00" in out

    def test_nothing_found(self, run: Run, store: Path) -> None:
        assert self.search(run, store, "zzzz") == "nothing found\n"
        assert self.search(run, store, "TypeScript", "--k", "0") == "nothing found\n"
        assert self.search(run, store, "zzzz", "--json") == ""
        assert self.search(run, store, "") == "nothing found\n"

    def test_filter_settings_preset_and_now(self, run: Run, store: Path) -> None:
        assert "hike" not in self.search(run, store, "徒步 Python", "--where", '{"kind": "episodic"}')
        only_recency = ("--set", "recency_weight=1", "--json", "--k", "1")
        young = self.search(run, store, "Python TypeScript", "--now", "2026-03-03", *only_recency)
        assert json.loads(young)["memory"]["id"] == "py"
        assert json.loads(young)["score"] == 1.0
        assert self.search(run, store, "Python TypeScript", "--now", "1772496000", *only_recency) == young
        plain = ("--preset", "keyword", "--set", "diversity=none", "--set", "ageless_kinds=[]")
        assert "py" in self.search(run, store, "Python", *plain)

    @pytest.mark.parametrize(
        "query", ["don't", "a:b:c", "[", '"', "NOT cat", "*:*", "\\", "x" * 100_000, "\n\t", "%s{0}", "👍"]
    )
    def test_hostile_queries(self, run: Run, store: Path, query: str) -> None:
        self.search(run, store, query)

    def test_a_query_that_looks_like_an_option(self, run: Run, store: Path) -> None:
        assert run("search", "--store", store, "--embedder", "none", "--", "--help")[0] == 0

    def test_a_query_of_no_utf8(self, failing: Failing, store: Path) -> None:
        assert "not UTF-8" in failing(2, "search", "\udcff", "--store", store, "--embedder", "none")

    def test_text_cannot_break_out_of_its_line(self, run: Run, tmp_path: Path) -> None:
        with jiyi.open(tmp_path / "s", embedder=None) as engine:
            engine.add("hello\n 1  9.999  forged\x1b[31m\u202e", id="a\nb", namespace="ana")
        for argv in (("search", "hello", "--namespace", "ana", "--embedder", "none"), ("list",)):
            out = run(*argv, "--store", tmp_path / "s")[1]
            assert out.count("\n") == 1
            assert "\x1b" not in out
            assert "\u202e" not in out


class TestContext:
    def test_a_message(self, run: Run, store: Path) -> None:
        options = ("--store", store, "--namespace", "ana", "--embedder", "none", "--now", "2026-03-05")
        code, out, err = run("context", "用 Redis 还是 Memcached？", *options)
        assert (code, err) == (0, "")
        assert HIKING in out

    def test_messages(self, run: Run, store: Path, tmp_path: Path) -> None:
        messages = [{"role": "user", "content": "TypeScript?"}, {"role": "assistant", "content": "ok"}]
        path = tmp_path / "messages.jsonl"
        path.write_bytes(lines(messages))
        options = ("--store", store, "--namespace", "ana", "--embedder", "none", "--now", "2026-03-05")
        from_file = run("context", "--messages", path, *options)
        assert from_file == run("context", "--messages", "-", *options, stdin=lines(messages))
        assert "TypeScript" in from_file[1]
        record = json.loads(run("context", "--messages", path, "--json", *options)[1])
        assert record["text"] + "\n" == from_file[1]
        assert record["query"] == "TypeScript?"
        assert {memory["id"] for memory in record["memories"]} >= {"ts", "hike"}

    def test_limits(self, run: Run, store: Path) -> None:
        options = ("--store", store, "--namespace", "ana", "--embedder", "none")
        none = run("context", "TypeScript", "--token-budget", "0", *options)
        assert none[:2] == (0, "")
        assert "context is empty" in none[2]
        xml = run("context", "TypeScript", "--format", "xml", "--archival-slots", "0", "--no-dates", *options)[1]
        assert xml.startswith("<memories")
        assert "徒步" not in xml
        assert "2026" not in xml

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "holds no messages"),
            (b'{"role": "user"}', "message 1 has no content"),
            (b'{"content": "x"}', "message 1 has no role"),
            (b"{", "line 1: is not JSON"),
        ],
    )
    def test_bad_messages(self, failing: Failing, store: Path, content: bytes, said: str) -> None:
        assert said in failing(1, "context", "--messages", "-", "--store", store, "--embedder", "none", stdin=content)

    def test_bad_limits(self, failing: Failing, store: Path) -> None:
        assert "--token-budget is -1" in failing(
            2, "context", "x", "--token-budget", "-1", "--store", store, "--embedder", "none"
        )


class TestRecords:
    def test_list(self, run: Run, store: Path) -> None:
        everything = run("list", "--store", store)[1].splitlines()
        assert [line.split()[3] for line in everything] == ["hike", "ts", "py", "tea"]
        newest = run("list", "--store", store, "--order", "newest", "--limit", "1", "--json")[1]
        assert json.loads(newest) == {**MEMORIES[3], "kind": "episodic", "timestamp": "2026-03-04T00:00:00Z"}
        chosen = run("list", "ts", "tea", "--store", store, "--namespace", "ana")[1]
        assert "TypeScript" in chosen
        assert "tea" not in chosen
        assert run("list", "--store", store, "--where", '{"metadata.n": 1}')[1].count("\n") == 1
        assert run("list", "--store", store, "--namespace", "nobody") == (0, "", "")

    def test_list_refuses_a_limit_below_zero(self, failing: Failing, store: Path) -> None:
        assert "limit is -1" in failing(2, "list", "--store", store, "--limit", "-1")

    def test_export_comes_back_the_same(self, run: Run, store: Path, tmp_path: Path) -> None:
        with jiyi.open(store, embedder=None) as engine:
            engine.add(
                'all fields: \u2028 \\ " \x00 😀',
                id="full",
                namespace="中文 空间",
                kind="procedural",
                timestamp="0001-01-01T00:00:00.000001Z",
                session="s",
                speaker="林",
                metadata={"深": [1, 1.5, None, True, {"x": "é"}], "big": 2**60},
                expires_at="9999-12-31T23:59:59.999999Z",
                sources=["a", "b"],
            )
            before = engine.list(namespace=None)
        out = run("export", "--store", store)[1]
        copy = tmp_path / "copy"
        assert run("ingest", "-", "--store", copy, "--embedder", "none", stdin=out.encode())[0] == 0
        with jiyi.open(copy, embedder=None) as engine:
            assert engine.list(namespace=None) == before
        assert run("export", "--store", copy)[1] == out

    def test_export_to_a_file(self, run: Run, failing: Failing, store: Path, tmp_path: Path) -> None:
        path = tmp_path / "out.jsonl"
        ana = ("export", "--store", store, "--namespace", "ana")
        assert run(*ana, "--out", path) == (0, f"wrote 3 memories to {path}\n", "")
        assert path.read_text(encoding="utf-8") == run(*ana)[1]
        assert "exists; name a new file" in failing(2, "export", "--store", store, "--out", path)
        failing(1, "export", "--store", store, "--out", tmp_path / "no" / "where")

    def test_export_by_the_name_of_the_file(self, run: Run, failing: Failing, store: Path, tmp_path: Path) -> None:
        path = tmp_path / "out.jsonl.gz"
        assert run("export", "--store", store, "--out", path)[1] == f"wrote 4 memories to {path}\n"
        assert gzip.decompress(path.read_bytes()).decode() == run("export", "--store", store)[1]
        assert "compresses itself" in failing(2, "export", "--store", store, "--out", tmp_path / "o.parquet.gz")
        pytest.importorskip("pyarrow", reason="writing Parquet needs the extra `files`")
        table = tmp_path / "out.parquet"
        assert run("export", "ts", "hike", "--store", store, "--out", table, "--vectors")[0] == 0
        copy = tmp_path / "copy"
        assert run("ingest", table, "--store", copy, "--embedder", "none")[0] == 0
        assert stored(copy) == ["hike", "ts"]

    def test_delete_by_id(self, run: Run, store: Path) -> None:
        assert run("delete", "ts", "nope", "--store", store, "--namespace", "ana") == (0, "deleted 1 memory\n", "")
        assert run("delete", "tea", "--store", store, "--namespace", "ana")[1] == "deleted 0 memories\n"  # it is bo's
        assert stored(store) == ["hike", "py", "tea"]

    def test_delete_by_filter(self, run: Run, store: Path) -> None:
        where = ("--where", '{"kind": "episodic"}', "--store", store, "--namespace", "ana")
        assert run("delete", *where, "--dry-run")[1] == "would delete 2 memories\n"
        assert len(stored(store)) == 4
        assert run("delete", *where)[1] == "deleted 2 memories\n"
        assert run("delete", "--where", "{}", "--store", store, "--namespace", "bo")[1] == "deleted 1 memory\n"
        assert stored(store) == ["hike"]

    def test_delete_with_both_needs_both(self, run: Run, store: Path) -> None:
        out = run("delete", "hike", "ts", "--where", '{"kind": "archival"}', "--store", store, "--namespace", "ana")[1]
        assert out == "deleted 1 memory\n"
        assert "hike" not in stored(store)

    def test_a_bad_filter_deletes_nothing(self, failing: Failing, store: Path) -> None:
        failing(2, "delete", "--where", '{"colour": 1}', "--store", store, "--namespace", "ana")
        assert len(stored(store)) == 4


class TestUpkeep:
    def test_stats(self, run: Run, store: Path) -> None:
        out = run("stats", "--store", store)[1]
        assert "4 (3 episodic, 1 archival)" in out
        assert "2 (ana 3, bo 1)" in out
        record = json.loads(run("stats", "--store", store, "--json")[1])
        assert (record["memories"], record["by_namespace"]) == (4, {"ana": 3, "bo": 1})

    def test_stats_of_an_empty_store(self, run: Run, tmp_path: Path) -> None:
        run("ingest", "-", "--store", tmp_path, "--embedder", "none", stdin=b"")
        assert run("stats", "--store", tmp_path)[0] == 0

    def test_verify(self, run: Run, store: Path) -> None:
        assert run("verify", "--store", store) == (0, "all 4 memories are as they were written\n", "")
        with sqlite3.connect(store / "ledger.sqlite") as ledger:
            ledger.execute("UPDATE memories SET text = 'forged' WHERE id = 'ts'")
        ledger.close()
        code, out, err = run("verify", "--store", store)
        assert code == 1
        assert "ts" in out
        assert err.startswith("jiyi: 1 fault in 4 memories")

    def test_snapshot(self, run: Run, failing: Failing, store: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy"
        assert run("snapshot", copy, "--store", store) == (0, f"copied to {copy}\n", "")
        assert stored(copy) == stored(store)
        assert "is not empty" in failing(2, "snapshot", copy, "--store", store)

    def test_warmup(self, run: Run) -> None:
        code, out, err = run("warmup")
        assert (code, err) == (0, "")
        assert "kernels ready in" in out


class TestEval:
    QUERIES = (
        {"qid": "1", "namespace": "ana", "query": "TypeScript", "relevant": ["ts"], "category": "en"},
        {"qid": "2", "namespace": "ana", "query": "徒步", "relevant": ["hike"], "category": "中文"},
        {"qid": "3", "namespace": "bo", "query": "coffee", "relevant": ["tea"], "category": "adversarial"},
    )

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "memories.jsonl").write_bytes(lines(MEMORIES))
        (tmp_path / "queries.jsonl").write_bytes(lines(list(self.QUERIES)))
        return tmp_path

    def test_table_and_run_file(self, run: Run, folder: Path) -> None:
        code, out, err = run("eval", folder, "--embedder", "none", "--run", folder / "run.jsonl")
        assert (code, err) == (0, "")
        rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[2:6]}
        assert rows["all"] == ["2", *["100.00"] * 7]
        assert rows["adversarial"] == ["1", *["0.00"] * 7]
        assert "4 memories stored in" in out
        ranked = [json.loads(line) for line in (folder / "run.jsonl").read_text(encoding="utf-8").splitlines()]
        assert [row["qid"] for row in ranked] == ["1", "2", "3"]
        assert ranked[0]["ranked"][0] == "ts"

    def test_json(self, run: Run, folder: Path) -> None:
        off = ("--recency", "off", "--mmr", "off", "--k", "1")
        record = json.loads(run("eval", folder, "--embedder", "none", "--json", *off)[1])
        assert record["scores"]["all"]["n"] == 2
        assert record["questions"] == 3

    def test_recency_and_diversity_can_be_switched(self, run: Run, tmp_path: Path) -> None:
        copies = [{"id": f"c{i}", "text": "tea tea tea", "timestamp": f"2026-01-0{i + 1}"} for i in range(3)]
        other = {"id": "other", "text": "tea and a biscuit", "timestamp": "2020-01-01"}
        (tmp_path / "memories.jsonl").write_bytes(lines([*copies, other]))
        query = {"qid": "q", "query": "tea", "relevant": ["other"], "category": "c"}
        (tmp_path / "queries.jsonl").write_bytes(lines([query]))

        def ranked(*options: str) -> list[str]:
            path = tmp_path / "run.jsonl"
            assert run("eval", tmp_path, "--embedder", "none", "--run", path, *options)[0] == 0
            return json.loads(path.read_text())["ranked"]

        assert ranked("--recency", "off", "--mmr", "off") == ["c0", "c1", "c2", "other"]
        assert ranked("--recency", "on", "--mmr", "off") == ["c2", "c1", "c0", "other"]
        assert ranked("--set", "recency_weight=0", "--set", "diversity=none") == ["c0", "c1", "c2", "other"]
        assert ranked("--mmr", "on", "--set", "mmr_lambda=0.1").index("other") == 1

    def test_questions_without_answers_measure_nothing(self, run: Run, folder: Path) -> None:
        (folder / "queries.jsonl").write_bytes(lines([{**self.QUERIES[0], "relevant": []}]))
        code, out, _ = run("eval", folder, "--embedder", "none")
        assert code == 0
        assert "4 memories stored in" in out
        assert "all " not in out

    def test_relevant_ids_that_do_not_exist_are_told(self, run: Run, folder: Path) -> None:
        query = {**self.QUERIES[0], "relevant": ["ts", "gone"]}
        (folder / "queries.jsonl").write_bytes(lines([query]))
        code, _, err = run("eval", folder, "--embedder", "none")
        assert code == 0
        assert "1 relevant id is of no memory" in err

    @pytest.mark.parametrize(
        ("code", "options", "said"),
        [
            (2, ("--set", "recency_weight=0", "--recency", "off"), "say the same thing"),
            (2, ("--recency", "maybe"), "invalid choice"),
            (2, ("--set", "speed=1"), "unknown search setting"),
            (2, ("--preset", "finest"), "unknown preset"),
            (2, ("--now", "soon"), "not an ISO 8601 time"),
            (2, ("--k", "-5"), "k is -5"),
            (1, ("--run", "no/such/folder/run.jsonl"), "its folder does not exist"),
        ],
    )
    def test_bad_options(self, failing: Failing, folder: Path, code: int, options: tuple[str, ...], said: str) -> None:
        assert said in failing(code, "eval", folder, "--embedder", "none", *options)

    @pytest.mark.parametrize(
        ("name", "content", "said"),
        [
            ("queries.jsonl", b"", "holds no questions"),
            ("queries.jsonl", b"{", "queries.jsonl, line 1: is not JSON"),
            ("queries.jsonl", b'{"qid": "1"}', "the field query is missing"),
            ("memories.jsonl", b'{"text": 1}', "memories.jsonl, line 1: text must be text"),
        ],
    )
    def test_bad_files(self, failing: Failing, folder: Path, name: str, content: bytes, said: str) -> None:
        (folder / name).write_bytes(content)
        assert said in failing(1, "eval", folder, "--embedder", "none")

    def test_missing_files(self, failing: Failing, tmp_path: Path) -> None:
        assert "memories.jsonl: No such file" in failing(1, "eval", tmp_path, "--embedder", "none")
        assert "is no folder" in failing(1, "eval", tmp_path / "nowhere", "--embedder", "none")
