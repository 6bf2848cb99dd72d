"""A process that has everything loaded and forks a child for every trial: a kill costs milliseconds, not seconds.

Nothing is open when it forks: an engine, a connection or a thread of its would not live on in the child.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from tests.crash.child import Work

_ROOT = Path(__file__).parent.parent.parent


class Run:
    """A child that is running, or has run."""

    def __init__(self, server: Server, pid: int, lines: int) -> None:
        self._server = server
        self._lines = os.fdopen(lines, encoding="utf-8")
        self.pid = pid
        self.status: int | None = None

    def report(self) -> Iterator[dict[str, Any]]:
        """Yield what the child reports, until it ends. A line that was cut short by its death is left out."""
        for line in self._lines:
            if line.endswith("\n"):
                yield json.loads(line)
        self._lines.close()
        self.status = self._server.wait()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class Server:
    """Starts children, one at a time.

    Args:
        library: the fault layer, see `faults.build`; None for none.
    """

    def __init__(self, library: Path | None) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        if library is not None:
            environment["LD_PRELOAD"] = str(library)
        command = [sys.executable, "-W", "error", "-m", "tests.crash.server", str(theirs.fileno()), str(library or "")]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, cwd=_ROOT)
        theirs.close()
        if self._socket.recv(100) != b"ready":
            raise RuntimeError("the server of the crash tests did not start")

    def start(self, work: Work) -> Run:
        reading, writing = os.pipe()
        path = Path(work.folder).parent / "work.json"
        path.write_text(work.to_json(), encoding="utf-8")
        socket.send_fds(self._socket, [os.fsencode(path)], [writing])
        os.close(writing)
        return Run(self, int(self._socket.recv(100)), reading)

    def wait(self) -> int:
        if self._socket.recv(100) != b"ended":
            raise RuntimeError("the server of the crash tests has ended")
        self._socket.send(b"reap")
        return int(self._socket.recv(100))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(control: socket.socket, library: str) -> None:
    import gc
    import tempfile

    import hnswlib
    import tantivy

    import jiyi
    from tests.crash.child import embedder_named, main
    from tests.crash.faults import Faults

    jiyi.warmup()
    with tempfile.TemporaryDirectory() as folder, jiyi.open(folder, embedder=embedder_named("hash-a")) as engine:
        engine.add_many(["kernels are compiled", "before anything forks"])
        engine.search("compiled kernels")
    del engine
    faults = Faults(library) if library else None
    assert hnswlib is not None
    assert tantivy is not None
    assert threading.active_count() == 1
    gc.freeze()
    control.send(b"ready")
    while True:
        path, descriptors, _, _ = socket.recv_fds(control, 4096, 1)
        if not path:
            return
        work = Work.from_json(Path(os.fsdecode(path)).read_text(encoding="utf-8"))
        pid = os.fork()
        if pid == 0:
            control.close()
            main(work, descriptors[0], faults)
        os.close(descriptors[0])
        control.send(str(pid).encode())
        # Until it is asked for, the child stays a zombie: nobody else gets its id, and a late kill hits nobody.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        control.send(b"ended")
        control.recv(100)
        _, status = os.waitpid(pid, 0)
        control.send(str(os.waitstatus_to_exitcode(status)).encode())


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as control:
        _serve(control, sys.argv[2])
