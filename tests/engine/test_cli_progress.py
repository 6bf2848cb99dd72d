import io

import pytest

from jiyi.progress import Progress
from jiyi.terminal import counted, cut


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("jiyi.progress.time.perf_counter", lambda: now[0])
    monkeypatch.setenv("TERM", "xterm")
    return now


def test_counts_rate_share_and_time_left(clock: list[float]) -> None:
    terminal = Terminal()
    with Progress("memories", terminal) as progress:
        clock[0] = 10
        progress.update(2_000, 0.25)
        assert terminal.getvalue() == "\r2,000 memories  200/s  25%  30 s left\x1b[K"
        clock[0] = 300
        progress.update(60_000, 0.5)
        assert terminal.getvalue().endswith("\r60,000 memories  200/s  50%  5 min 0 s left\x1b[K")
        clock[0] = 9_000
        progress.update(1_800_000, 0.5)
        assert terminal.getvalue().endswith("2 h 30 min left\x1b[K")
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_without_a_known_end(clock: list[float]) -> None:
    terminal = Terminal()
    progress = Progress("memories", terminal)
    clock[0] = 2
    progress.update(10)
    assert terminal.getvalue() == "\r10 memories  5/s\x1b[K"


def test_writes_seldom(clock: list[float]) -> None:
    terminal = Terminal()
    progress = Progress("memories", terminal)
    for i in range(1_000):
        clock[0] = i / 1_000
        progress.update(i)
    assert terminal.getvalue().count("\r") == 10


def test_nothing_in_a_pipe_or_on_a_dumb_terminal(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    with Progress("memories", pipe) as progress:
        progress.update(5, 0.5)
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with Progress("memories", terminal) as progress:
        progress.update(5, 0.5)
    assert (pipe.getvalue(), terminal.getvalue()) == ("", "")


@pytest.mark.parametrize(
    ("line", "columns", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("徒步", 4, "徒步"),
        ("徒步路", 4, "徒…"),
        ("a  b", 9, "a  b"),
        ("", 0, ""),
    ],
)
def test_cut(line: str, columns: int, shown: str) -> None:
    assert cut(line, columns) == shown


def test_counted() -> None:
    assert [counted(n, "memory", "memories") for n in (0, 1, 2_000)] == ["0 memories", "1 memory", "2,000 memories"]
