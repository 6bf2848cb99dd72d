"""Runs what may take the process down in a forked child, and says how it ended."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable


def in_child(trial: Callable[[], str], *, seconds: int = 60) -> str:
    """Return what a trial returned; raise AssertionError if the child died, hung or raised anything else.

    Args:
        trial: runs in a child of this process; what it opens and changes is not seen here.
        seconds: after so long it counts as hung.
    """
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads; the child touches none
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reads)
            signal.alarm(seconds)  # its default action ends the child
            said = trial()
            with os.fdopen(writes, "wb") as pipe:
                pipe.write(said.encode("utf-8", "replace"))
            code = 0
        except BaseException as error:
            with os.fdopen(writes, "wb") as pipe:
                pipe.write(
                    f"{type(error).__module__}.{type(error).__name__}: {error}".encode("utf-8", "replace")[:4000]
                )
        finally:
            os._exit(code)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code >= 0, f"the child was ended by {signal.Signals(-code).name}"
    assert code == 0, f"the child raised {said}"
    return said
