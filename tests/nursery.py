"""A process that has jiyi and its kernels loaded, and forks a child for whatever code a test wants run elsewhere.

To start Python, import Numba and load the kernels takes seconds; to fork takes milliseconds. In all but that a child is
as one of its own: argv, environment, working folder, standard streams, exit handlers and exit status are what a new
interpreter would have. What is about the start itself (imports, hash seeds, resident memory) needs a new one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

ROOT = Path(__file__).parent.parent


class Started:
    """A child that is running, or has run; used as a `subprocess.Popen` is."""

    def __init__(self, reply: socket.socket, code: str, out: IO[bytes], err: IO[bytes]) -> None:
        self._reply = reply
        self._code = code
        self._files = (out, err)
        self.pid = int(reply.recv(100))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, None while it runs."""
        with suppress(TimeoutError):
            self._wait(0.0)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end and return what it printed, as output and as errors.

        Raises:
            subprocess.TimeoutExpired: it runs on.
        """
        try:
            self._wait(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(self._code, timeout or 0, *self._said()) from None
        self._reply.close()
        said = self._said()
        for file in self._files:
            file.close()
        return said

    def _said(self) -> tuple[str, str]:
        out, err = (os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in self._files)
        return out, err

    def _wait(self, timeout: float | None) -> None:
        if self.returncode is None:
            ready, _, _ = select.select([self._reply], [], [], timeout)
            if not ready:
                raise TimeoutError
            self.returncode = int(self._reply.recv(100))


class Nursery:
    """Starts children; from any thread."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.nursery", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},  # no threads before it forks
        )
        theirs.close()
        if self._socket.recv(100) != b"ready":
            raise RuntimeError("the nursery did not start")

    def start(self, code: str, arguments: list[str], environment: dict[str, str]) -> Started:
        """Run code in a forked child, with arguments as `sys.argv[1:]`."""
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (closed when they were read)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, tempfile.TemporaryFile() as request:
            wanted = {"code": code, "arguments": arguments, "environment": environment, "cwd": str(Path.cwd())}
            request.write(json.dumps(wanted).encode())
            request.flush()
            descriptors = [theirs.fileno(), request.fileno(), out.fileno(), err.fileno()]
            with self._lock:
                socket.send_fds(self._socket, [b"fork"], descriptors)
        return Started(ours, code, out, err)

    def run(
        self, code: str, arguments: list[str], environment: dict[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run code in a forked child to its end, or for so long; return how it ended and what it printed.

        Raises:
            subprocess.TimeoutExpired: it did not end in time, and was killed.
        """
        started = self.start(code, arguments, environment)
        try:
            out, err = started.communicate(timeout)
        except subprocess.TimeoutExpired:
            started.kill()
            started.communicate()
            raise
        assert started.returncode is not None
        return subprocess.CompletedProcess(arguments, started.returncode, out, err)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _load() -> None:
    """Load and compile what the children use; leave no thread, no engine and no connection."""
    import gc

    import hnswlib
    import tantivy

    import jiyi
    from tests.engine import embedders

    jiyi.warmup()
    with tempfile.TemporaryDirectory() as folder, jiyi.open(folder, embedder=embedders.HashTable()) as engine:
        engine.add_many(["kernels are compiled", "before anything forks"])
        engine.search("compiled kernels")
    del engine
    assert hnswlib is not None
    assert tantivy is not None
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork on demand. Returns in the children, with what they are to do, and None when nobody asks any more."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 100, 4)
        if not message:
            return None
        if os.fork() == 0:
            control.close()
            return _keep(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        # Keepers that have ended. Each waits for one child, so that a child that hangs holds up nobody else.
        with suppress(ChildProcessError):
            while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is not None:
                pass


def _keep(reply: int, request: int, out: int, err: int) -> dict[str, Any]:
    """Fork the child, in which this returns, wait for it and tell how it ended."""
    pid = os.fork()
    if pid == 0:
        with os.fdopen(request, "rb") as file:
            file.seek(0)
            wanted: dict[str, Any] = json.load(file)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for descriptor in (reply, out, err):
            os.close(descriptor)
        return wanted
    with socket.socket(fileno=reply) as told:
        try:
            told.send(str(pid).encode())
            _, status = os.waitpid(pid, 0)
            told.send(str(os.waitstatus_to_exitcode(status)).encode())
        finally:
            os._exit(0)


def _become(wanted: dict[str, Any]) -> types.CodeType:
    """Look like an interpreter that was started for the code."""
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["cwd"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.argv = ["-c", *wanted["arguments"]]
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return compile(wanted["code"], "<string>", "exec")


if __name__ == "__main__":
    warnings.simplefilter("error")
    with socket.socket(fileno=int(sys.argv[1])) as control:
        _load()
        control.send(b"ready")
        task = _serve(control)
    if task is not None:  # here, not in a function: it ends as the interpreter does, through all exit handlers
        code = _become(task)
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(code, vars(sys.modules["__main__"]))
