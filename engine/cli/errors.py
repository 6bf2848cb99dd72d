"""What a command raises when it was called wrongly, or cannot go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jiyi.errors import JiyiError


class UsageError(Exception):
    """The command line is wrong: exit code 2."""


class CommandError(JiyiError):
    """The command cannot do what was asked: exit code 1, unless said."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        self.exit_code = exit_code
        super().__init__(message)


@contextmanager
def arguments() -> Iterator[None]:
    """Turn what the engine says of wrong arguments, which came from the command line, into a `UsageError`."""
    try:
        yield
    except JiyiError:
        raise
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
