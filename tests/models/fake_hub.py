"""A hub of one repository on this machine, as far as `huggingface_hub` asks for files."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """What the server gives, and what it was asked for."""

    def __init__(self, files: dict[str, bytes], *, break_after: int | None = None, status: int | None = None) -> None:
        self.files = files
        self.break_after = break_after
        """Bytes of the first answer to a GET of a large file, before the connection is cut."""
        self.status = status
        """An HTTP status for everything."""
        self.requests: list[tuple[str, str, str | None]] = []
        """Method, path and Range of every request."""
        self.address = ""


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve a hub at `hub.address` while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            hub.requests.append((self.command, self.path, self.headers.get("Range")))
            repository, _, rest = self.path.lstrip("/").partition("/resolve/")
            content = hub.files.get(rest.partition("/")[2]) if repository == "owner/repo" else None
            if content is None or hub.status is not None:
                self.send_response(hub.status or 404)
                if hub.status is None:
                    code = "EntryNotFound" if repository == "owner/repo" else "RepoNotFound"
                    self.send_header("X-Error-Code", code)
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = int((self.headers.get("Range") or "bytes=0-")[6:].split("-")[0])
            self.send_response(206 if start else 200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("Accept-Ranges", "bytes")
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            if not body:
                return
            if hub.break_after is not None and len(content) > hub.break_after and not start:
                self.wfile.write(content[: hub.break_after])
                self.wfile.flush()
                self.connection.close()
                return
            self.wfile.write(content[start:])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
