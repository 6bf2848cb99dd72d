"""The command as a process: pipes, terminals, locales, and deaths."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest

import jiyi

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes, terminals and signals of POSIX")

JIYI = [sys.executable, "-m", "jiyi"]
TEXT = "周末喜欢去徒步 😀"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with jiyi.open(tmp_path / "store", embedder=None) as engine:
        engine.add_many([{"id": f"m{i}", "text": f"{TEXT} {i}"} for i in range(5_000)])
    return tmp_path / "store"


def numbered_lines() -> Iterator[bytes]:
    for i in range(10_000_000):
        yield json.dumps({"id": f"m{i}", "text": f"number {i}"}).encode() + b"\n"


def stored_ids(folder: Path) -> list[str]:
    with jiyi.open(folder, embedder=None) as engine:
        assert engine.verify() == []
        return [memory.id for memory in engine.list()]


def test_a_reader_that_stops_early_is_no_error(store: Path) -> None:
    process = subprocess.Popen([*JIYI, "list", "--store", store], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert TEXT.encode() in process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""


def test_chinese_in_any_locale(store: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    environment = {**os.environ, **plain}
    argv = [*JIYI, "list", "--store", store, "--limit", "1"]
    done = subprocess.run(argv, capture_output=True, env=environment, check=True)
    assert TEXT in done.stdout.decode("utf-8")
    done = subprocess.run([*JIYI, "list", "--store", store / "没有"], capture_output=True, env=environment)
    assert done.returncode == 1
    assert done.stderr.startswith(b"jiyi: there is no store in ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_the_output(store: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*JIYI, "list", "--store", store], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b"jiyi: No space left on device\n"


def feed(process: subprocess.Popen[bytes], terminal: int, at_least: int) -> int:
    """Feed an ingest until its progress line reports so many as stored; return what it reported last."""
    assert process.stdin is not None
    os.set_blocking(terminal, False)
    seen = b""
    deadline = time.monotonic() + 60
    for line in numbered_lines():
        process.stdin.write(line)
        try:
            seen += os.read(terminal, 65536)
        except BlockingIOError:
            continue
        reported = [int(found.replace(b",", b"")) for found in re.findall(rb"\r([\d,]+) memories stored", seen)]
        if reported and reported[-1] >= at_least:
            return reported[-1]
        assert time.monotonic() < deadline
    raise AssertionError("the lines ran out")


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """An ingest into `tmp_path` from a pipe, with its standard error on a terminal."""
    terminal, its_end = os.openpty()
    argv = [*JIYI, "ingest", "-", "--store", tmp_path, "--embedder", "none"]
    environment = {**os.environ, "TERM": "xterm"}
    # A shell starts what it puts in the background with Ctrl-C ignored, and children inherit that: not this one.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=its_end, env=environment)
    finally:
        signal.signal(signal.SIGINT, inherited)
    os.close(its_end)
    yield process, terminal
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        with suppress(BrokenPipeError):  # what was buffered for a process that is dead
            stream.close()
    os.close(terminal)


def test_what_was_reported_survives_kill_9(tmp_path: Path, ingest: tuple[subprocess.Popen[bytes], int]) -> None:
    process, terminal = ingest
    reported = feed(process, terminal, at_least=3_000)
    process.send_signal(signal.SIGKILL)
    process.wait()
    ids = stored_ids(tmp_path)
    assert len(ids) >= reported
    assert ids == [f"m{i}" for i in range(len(ids))]


def test_control_c_says_what_is_stored(tmp_path: Path, ingest: tuple[subprocess.Popen[bytes], int]) -> None:
    process, terminal = ingest
    feed(process, terminal, at_least=1_000)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    os.set_blocking(terminal, True)
    said = os.read(terminal, 65536).decode()
    found = re.search(r"jiyi: interrupted; ([\d,]+) memories of this run are stored", said)
    assert found is not None
    assert len(stored_ids(tmp_path)) == int(found[1].replace(",", ""))


def test_sigterm_ends_it_like_control_c(tmp_path: Path, ingest: tuple[subprocess.Popen[bytes], int]) -> None:
    process, terminal = ingest
    feed(process, terminal, at_least=1_000)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130


def test_no_progress_in_a_pipe(tmp_path: Path) -> None:
    content = b"".join(islice(numbered_lines(), 2_500))
    argv = [*JIYI, "ingest", "-", "--store", tmp_path, "--embedder", "none"]
    done = subprocess.run(argv, input=content, capture_output=True, check=True)
    assert done.stderr == b""
    assert done.stdout.startswith(b"stored 2,500 memories in ")
    assert b"\r" not in done.stdout


def test_a_closed_input(tmp_path: Path) -> None:
    command = f'{sys.executable} -m jiyi ingest - --store "{tmp_path}" --embedder none <&-'
    done = subprocess.run(command, shell=True, capture_output=True)
    assert done.returncode == 1
    assert done.stderr == b"jiyi: standard input: it is closed; name a file\n"


def test_a_closed_output(store: Path) -> None:
    done = subprocess.run(f'{sys.executable} -m jiyi list --store "{store}" >&-', shell=True, capture_output=True)
    assert done.stderr == b""
    assert done.returncode == 0
