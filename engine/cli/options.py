"""Options that several commands share: the store, the namespace, filters and settings."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import jiyi
from jiyi.cli.errors import CommandError, UsageError
from jiyi.config import DEFAULT, PRESETS, SETTINGS
from jiyi.ledger import FILE_NAME
from jiyi.paths import shown
from jiyi.quoted import quoted
from jiyi.spaces import checked_namespaces, only_name

if TYPE_CHECKING:
    from jiyi.engine import Engine

#: What `add_subparsers` returns, to which every group adds its commands.
Commands = argparse._SubParsersAction  # argparse has no public name for it

_STORE_VARIABLE: Final = "JIYI_STORE"
#: Settings that hold several names, separated by commas on the command line.
_SEVERAL: Final = frozenset(name for name in SETTINGS if isinstance(getattr(DEFAULT, name), tuple))


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add --store."""
    parser.add_argument("--store", metavar="DIR", help=f"the store's folder (or set {_STORE_VARIABLE})")


def add_embedder(parser: argparse.ArgumentParser) -> None:
    """Add --embedder."""
    parser.add_argument(
        "--embedder",
        metavar="NAME",
        default="default",
        help='makes the vectors; "none": only those that come with the memories (default: the table that ships)',
    )


def add_namespace(parser: argparse.ArgumentParser, default: str | None, what: str) -> None:
    """Add --namespace."""
    parser.add_argument("--namespace", metavar="NAME", default=default, help=what)


def add_namespaces(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --namespace for a command that reads several; `namespaces_of` returns them."""
    parser.add_argument(
        "--namespace",
        metavar="NAME",
        action="append",
        help=f"{what}; may be given again; a prefix ends in *, and a name that does so in \\*",
    )


def namespaces_of(args: argparse.Namespace) -> str | list[str] | None:
    """Return what --namespace says, as the engine takes it; None when it is not there."""
    given: list[str] | None = args.namespace
    return given[0] if given is not None and len(given) == 1 else given


def searched_namespaces(args: argparse.Namespace) -> str | list[str]:
    """Return what --namespace says, as the engine takes it; "default" when it is not there."""
    given = namespaces_of(args)
    return "default" if given is None else given


def only_namespace(args: argparse.Namespace) -> str | None:
    """Return the one namespace that --namespace names; None when it names several, a prefix or nothing."""
    given = namespaces_of(args)
    return None if given is None else only_name(checked_namespaces(given))


def add_where(parser: argparse.ArgumentParser) -> None:
    """Add --where."""
    parser.add_argument(
        "--where",
        metavar="JSON",
        type=_json_object,
        help='a filter: \'{"kind": "archival", "timestamp": {"gte": "2026-03-01"}}\'',
    )


def add_json(parser: argparse.ArgumentParser, what: str = "print JSON lines") -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help=what)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add --preset and --set."""
    parser.add_argument("--preset", metavar="NAME", help=f"settings by name: {', '.join(PRESETS)}")
    parser.add_argument(
        "--set",
        metavar="SETTING=VALUE",
        action="append",
        default=[],
        type=setting,
        dest="settings",
        help="one setting of the search, such as recency_weight=0, diversity=none or rerank=bm25,rerank-en; may be "
        "given again",
    )


def add_now(parser: argparse.ArgumentParser, default: str) -> None:
    """Add --now."""
    parser.add_argument(
        "--now", metavar="TIME", help=f"the moment that ages count from, ISO 8601 or epoch seconds ({default})"
    )


def moment(given: str | None) -> str | float | None:
    """Return the value of --now as the engine takes it: text that is a number counts as epoch seconds."""
    if given is None:
        return None
    try:
        return float(given)
    except ValueError:
        return given


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return what --preset and --set say, as keywords of `search`."""
    return {"preset": args.preset, **dict(args.settings)}


def text_of(value: str, what: str) -> str:
    """Return a text of the command line as UTF-8, whatever the locale; refuse it if its bytes are none."""
    try:
        return os.fsencode(value).decode("utf-8")
    except UnicodeError:
        raise UsageError(f"{what} is not UTF-8; check the terminal's encoding") from None


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        example = '{"kind": "archival"}'
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not JSON ({error}); write {example}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f'{quoted(text)} must be a JSON object such as {{"kind": "archival"}}')
    return value


def setting(text: str) -> tuple[str, Any]:
    """Return the name and value of SETTING=VALUE; a value is read as JSON, as a number, or as it stands.

    A setting that holds several names takes them with commas between; nothing at all is none of them.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{quoted(text)} must be SETTING=VALUE, such as recency_weight=0")
    name, read = name.strip(), _value(value.strip())
    if name in _SEVERAL and isinstance(read, str):
        read = tuple(part.strip() for part in read.split(",") if part.strip())
    return name, read


def _value(text: str) -> Any:
    for read in (json.loads, float):
        try:
            value = read(text)
        except (ValueError, RecursionError):
            continue
        return tuple(value) if isinstance(value, list) else value
    return text


# ---------------------------------------------------------------------------------------------------- stores, files


def store_folder(args: argparse.Namespace) -> Path:
    """Return the folder of --store or JIYI_STORE; there is no other default, so that nothing is written unasked."""
    given = args.store or os.environ.get(_STORE_VARIABLE)
    if not given:
        raise UsageError(f"no store was named; pass --store DIR or set {_STORE_VARIABLE}")
    return Path(given)


def open_store(
    args: argparse.Namespace, *, embedder: str | None = None, write: bool = False, **settings: Any
) -> Engine:
    """Open the store that must exist; by default only to read, so that it may be in use elsewhere.

    Args:
        args: with `store`.
        embedder: "none" or None for commands that need no vectors.
        write: take the store's lock.
        **settings: more of `jiyi.open`.
    """
    folder = store_folder(args)
    if not (folder / FILE_NAME).exists():
        raise CommandError(f"there is no store in {shown(folder)}; `jiyi ingest FILE.jsonl --store DIR` makes one")
    return jiyi.open(folder, embedder=None if embedder == "none" else embedder, read_only=not write, **settings)


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open a file to read bytes from; "-" is standard input."""
    if path == "-":
        if sys.stdin is None:
            raise CommandError("standard input is closed; name a file")
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as stream:
        yield stream
