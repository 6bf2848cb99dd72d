"""Parses the command line, runs one command, turns whatever goes wrong into one line and an exit code."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import jiyi
from jiyi.cli import bench, demo, evaluate, ingest, models, records, reindex, search, upkeep
from jiyi.cli.errors import CommandError, UsageError
from jiyi.errors import JiyiError
from jiyi.models.files import ModelFilesError
from jiyi.paths import shown

_DONE: Final = 0
_FAILED: Final = 1
_WRONG_USAGE: Final = 2
_INTERRUPTED: Final = 130
_LONGEST_WORD: Final = 70

_GROUPS: Final = (demo, ingest, search, records, upkeep, reindex, evaluate, bench, models)


class _Parser(argparse.ArgumentParser):
    """Raises what argparse would print over several lines."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = _Parser(
        prog="jiyi",
        description="A memory for AI agents, in one folder: stores what matters, finds it again, says why.",
        epilog="The store is a folder, given with --store DIR or the environment variable JIYI_STORE.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"jiyi {jiyi.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=_Parser)
    for group in _GROUPS:
        group.add_to(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: what stands after `jiyi` on the command line; taken from there when left out.
    """
    if sys.stdout is None:  # it was closed before the start
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - it stays open until the process ends
    _speak_utf8()
    options: dict[str, str] = {}
    try:
        code = _run(sys.argv[1:] if argv is None else argv, options)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)  # the reader has seen all that it wanted
        return _DONE
    except KeyboardInterrupt:
        return _say("interrupted", _INTERRUPTED)
    except UsageError as error:
        return _say(_with_options(str(error), options), _WRONG_USAGE)
    except CommandError as error:
        return _say(_with_options(str(error), options), error.exit_code)
    except (JiyiError, ModelFilesError) as error:
        return _say(_with_options(str(error), options), _FAILED)
    except OSError as error:
        _discard(sys.stdout)  # a full disk behind it would be reported a second time at exit
        place = f"{shown(str(error.filename))}: " if error.filename is not None else ""
        return _say(f"{place}{error.strerror or error}", _FAILED)
    except Exception as error:
        if os.environ.get("JIYI_TRACEBACK"):
            raise
        fault = "a fault of jiyi, please report it; JIYI_TRACEBACK=1 shows where"
        return _say(f"unexpected {type(error).__name__}: {error!s:.80} ({fault})", _FAILED)
    return code


def _run(argv: Sequence[str], options: dict[str, str]) -> int:
    """Run a command. Its options, by the names that they have in Python, are put into `options`."""
    parser = build_parser()
    try:
        args = parser.parse_args(argv)
    except UsageError as error:
        raise UsageError(_shortened(str(error), argv)) from None
    except SystemExit as stop:  # --help and --version, after they have printed
        return int(stop.code or _DONE)
    if args.command is None:
        raise UsageError("no command was given; try `jiyi demo`, or see `jiyi --help`")
    options.update(_options_of(parser, args.command))
    code: int = args.run(args)
    return code


def _options_of(parser: argparse.ArgumentParser, command: str) -> dict[str, str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found = action.choices[command]._actions
            return {each.dest: each.option_strings[-1] for each in found if each.option_strings}
    return {}


def _with_options(message: str, options: dict[str, str]) -> str:
    """A message of the engine, which names arguments as Python has them, with the options that they come from."""
    if not options:
        return message
    names = "|".join(map(re.escape, options))
    message = re.sub(rf"^({names})(?= (?:is|must)\b)", lambda found: options[found[1]], message)
    return re.sub(
        rf"(?<![\w.'\"-])({names})=(True|None|(?=[\d.]))",
        lambda found: options[found[1]] + {"True": "", "None": " none"}.get(found[2], " "),
        message,
    )


def _shortened(message: str, argv: Sequence[str]) -> str:
    """A message of argparse without what is long in the command line, which it quotes whole: it may be a memory."""
    for word in {*argv, *(word.partition("=")[2] for word in argv)}:
        if len(word) > _LONGEST_WORD:
            for form in (word, repr(word)[1:-1], word.strip()):
                message = message.replace(form, form[:_LONGEST_WORD] + "…")
    return message


def _say(message: str, code: int) -> int:
    line = " ".join(message.split())
    try:
        print(f"jiyi: {line}", file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)
    return code


def _speak_utf8() -> None:
    """Print Chinese whatever the locale: UTF-8, and "?" for what even that cannot hold."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def _discard(stream: object) -> None:
    """Send what is left in a stream's buffer nowhere, so that the interpreter does not fail on it at exit."""
    if isinstance(stream, io.TextIOWrapper):
        try:
            target = stream.fileno()
        except OSError:
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target)
        os.close(nowhere)
