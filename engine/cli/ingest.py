"""`jiyi ingest`: a JSON lines file into a store."""

from __future__ import annotations

import argparse
import json
import os
import stat
import time
from typing import IO

import jiyi
from jiyi.cli.errors import CommandError, arguments
from jiyi.cli.options import Commands, add_embedder, add_json, add_namespace, add_store, opened, store_folder
from jiyi.memory import FIELDS, checked_name
from jiyi.progress import Progress
from jiyi.terminal import counted


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "ingest",
        help="store the memories of a JSON lines file",
        description="Store the memories of a JSON lines file, one object a line. Only text is required; there are also "
        f"{', '.join(name for name in FIELDS if name != 'text')}, vector. A memory whose id exists is replaced.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help='the file; "-" for standard input')
    add_store(parser)
    add_namespace(parser, None, 'of lines that do not say their own ("default")')
    add_embedder(parser)
    add_json(parser, "print the result as JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from jiyi.ingest import ingest  # not above: it loads Numba, which `jiyi --help` does not need

    folder = store_folder(args)
    if args.namespace is not None:
        with arguments():
            checked_name(args.namespace, "the namespace")
    source = "standard input" if args.file == "-" else args.file
    stored = 0
    started = time.perf_counter()
    with opened(args.file) as stream, Progress("memories stored") as progress:
        size = _size(stream)

        def show(count: int, end: int) -> None:
            nonlocal stored
            stored = count
            progress.update(count, end / size if size else None)

        try:
            with arguments():
                engine = jiyi.open(folder, embedder=None if args.embedder == "none" else args.embedder)
            with engine:
                stored = ingest(engine, stream, source, namespace=args.namespace, stored=show)
                engine.flush()
        except KeyboardInterrupt:
            progress.clear()
            raise CommandError(
                f"interrupted; the first {stored:,} memories of {source} are stored", exit_code=130
            ) from None
    seconds = time.perf_counter() - started
    if args.json:
        print(json.dumps({"stored": stored, "seconds": round(seconds, 3), "per_second": round(stored / seconds, 1)}))
    else:
        print(f"stored {counted(stored, 'memory', 'memories')} in {seconds:.1f} s ({stored / seconds:,.0f}/s)")
    return 0


def _size(stream: IO[bytes]) -> int | None:
    """Bytes of a regular file; None for a pipe."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
