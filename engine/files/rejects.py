"""The file that tells which rows were not taken, and why: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from jiyi.errors import JiyiError
from jiyi.files.rows import Reject
from jiyi.paths import shown


class RejectFile:
    """Written from the first reject on, so that a job without any makes none.

    Args:
        path: where it will lie. One that is there is written anew, unless the job goes on where another stopped.
        keep: bytes of it that a job which stopped had written by its last checkpoint.
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        self._keep = keep
        self._stream: IO[bytes] | None = None
        self.size = keep

    def add(self, rejects: Iterable[Reject]) -> None:
        """Write rejects, so that they are in the file before the rows beside them are stored.

        Raises:
            JiyiError: the file cannot be written.
        """
        lines = [json.dumps(reject.to_dict(), ensure_ascii=False) for reject in rejects]
        if not lines:
            return
        content = "".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape")
        try:
            if self._stream is None:
                self._stream = self._opened()
            self._stream.write(content)
            self._stream.flush()
        except OSError as error:
            raise JiyiError(
                f"the rows that are wrong cannot be listed in {shown(self.path)} ({error.strerror or error}); "
                "name a file that can be written: --rejects FILE"
            ) from error
        self.size += len(content)

    def _opened(self) -> IO[bytes]:
        if self._keep and self.path.exists() and self.path.stat().st_size >= self._keep:
            stream = self.path.open("r+b")
            stream.truncate(self._keep)
            stream.seek(self._keep)
            return stream
        self._keep = self.size = 0
        return self.path.open("wb")

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
