"""`jiyi demo`."""

from __future__ import annotations

import argparse

from jiyi.cli.options import Commands


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="see what it does, on six weeks of somebody's memories",
        description="Store six weeks of somebody's memories, ask them questions in two languages, show two scenes.",
        allow_abbrev=False,
    )
    parser.add_argument("--store", metavar="DIR", help="keep the store in this folder (default: a temporary one)")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from jiyi.demo import show  # the demo's texts are loaded only here

    show(args.store)
    return 0
