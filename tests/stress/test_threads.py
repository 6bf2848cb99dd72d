"""Eight threads mix every call of one engine; the long runs are `make stress`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.conftest import Child

_CODE = """
import faulthandler, json
faulthandler.enable()
from pathlib import Path
from tests.stress.threads import stress
folder, seconds, budget_mb, seed = sys.argv[1:]
run = stress(None if folder == "memory" else Path(folder), threads=8, seconds=float(seconds), seed=int(seed),
             budget_mb=float(budget_mb))
assert not run.wrong, "\\n".join(run.wrong)
assert sum(run.calls.values()) > 20, run.calls
print("ok")
"""


@pytest.mark.parametrize(
    ("where", "budget_mb"), [("memory", 1024), ("folder", 1024), ("folder", 0.4)], ids=["memory", "folder", "unloading"]
)
def test_every_call_from_eight_threads(folder: Path, child: Child, where: str, budget_mb: float) -> None:
    done = child(_CODE, folder if where == "folder" else "memory", 3, budget_mb, 5, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n"


@pytest.mark.slow
@pytest.mark.parametrize("budget_mb", [1024, 0.4])
def test_threads_at_full_length(folder: Path, child: Child, budget_mb: float) -> None:
    done = child(_CODE, folder, 120, budget_mb, 6, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_threads_with_bounds_checks(folder: Path, child: Child, tmp_path: Path) -> None:
    """Every access of every kernel is checked; compiling all of them takes a minute or two."""
    environment = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONFAULTHANDLER": "1"}
    done = child(f"import jiyi\njiyi.warmup()\n{_CODE}", folder, 60, 1024, 7, env=environment, timeout=900, fresh=True)
    assert done.returncode == 0, done.stderr


def test_the_model_finds_what_is_wrong() -> None:
    """A test of the test: what an engine that is wrong would return is told from what may be returned."""
    from tests.stress.history import History

    history = History()
    place = ("common", "a")
    began = history.tick()
    history.writing({place: "one"}, 0)
    during = history.tick()
    history.written([place])
    assert history.impossible([(place, "one")], began, during) == []
    assert history.impossible([(place, "one")], began, began) != []  # before it was given
    assert history.impossible([(place, "two")], began, during) != []  # another text
    assert history.missing([], during, during, "common") == []  # it may not have been there yet
    now = history.tick()
    assert history.missing([], now, now, "common") != []
    assert history.missing([place], now, now, "common") == []
    assert history.missing([], now, now, "other") == []
    assert history.miscounted(0, now, now, "common") != []
    assert history.miscounted(2, now, now, "common") != []
    assert history.miscounted(1, now, now, "common") == []
    history.writing({place: "two"}, 0)
    updating = history.tick()
    for text in ("one", "two"):
        assert history.impossible([(place, text)], updating, updating) == []
    assert history.missing([], updating, updating, "common") != []  # there as one or the other
    history.written([place])
    updated = history.tick()
    assert history.impossible([(place, "one")], updated, updated) != []  # the old text
    history.ending([place])
    ending = history.tick()
    history.ended([place])
    assert history.miscounted(0, ending, ending, "common") == history.miscounted(1, ending, ending, "common") == []
    ended = history.tick()
    assert history.impossible([(place, "two")], ended, ended) != []  # a deleted memory is back
    assert history.living() == {}
    history.writing({place: "three"}, 0)
    history.written([place])
    assert history.living() == {place: "three"}
    assert history.owned(0, "common") == {"a": "three"}
