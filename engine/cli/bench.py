"""`jiyi bench`: how long searches take, here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jiyi
from jiyi.cli.errors import CommandError, UsageError, arguments
from jiyi.cli.options import Commands, add_json, add_namespace, add_settings, add_store, open_store, opened, settings_of
from jiyi.progress import Progress
from jiyi.quoted import quoted

if TYPE_CHECKING:
    from jiyi.bench.measure import Figures

_SIZES: Final = "1000,10000"
_THREADS: Final = "1,2,4"
_MOST: Final = 10_000_000


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "bench",
        help="measure how long searches take, on made-up memories or on a store",
        description="Measure searches: percentiles by stage, throughput by threads, memory by part. Without --store on "
        "made-up memories, in memory; with it on that store, which is only read.",
        allow_abbrev=False,
    )
    add_store(parser)
    add_namespace(parser, "default", "of the store (default)")
    parser.add_argument("--sizes", metavar="N,N", help=f"how many made-up memories, one run each ({_SIZES})")
    parser.add_argument(
        "--queries",
        metavar="FILE",
        help='one query a line, "-" for standard input (default: made up, or the beginnings of the store\'s memories)',
    )
    parser.add_argument("--count", metavar="N", type=int, default=400, help="at most so many queries (%(default)s)")
    parser.add_argument("-k", type=int, default=5, help="hits a search (%(default)s)")
    parser.add_argument("--threads", metavar="N,N", default=_THREADS, help="searching at once (%(default)s; 0: none)")
    add_settings(parser)
    parser.add_argument("--plot", metavar="FILE.png", type=Path, help="draw a picture, too (needs Matplotlib)")
    add_json(parser, "print the figures as JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from jiyi.bench.picture import draw
    from jiyi.bench.report import table
    from jiyi.pictures import check_picture

    if args.count < 1:
        raise UsageError(f"--count is {args.count}; it must be at least 1")
    if args.store is not None and args.sizes is not None:
        raise UsageError("--sizes is for made-up memories; leave it out with --store")
    with arguments():
        if args.plot is not None:
            check_picture(args.plot)
    every = list(_measured(args))
    if args.json:
        print(json.dumps([figures.to_dict() for figures in every], ensure_ascii=False, indent=2))
    else:
        print(table(every))
    if args.plot is not None:
        draw(every, args.plot)
        if not args.json:
            print(f"\ndrawn to {args.plot}")
    return 0


def _measured(args: argparse.Namespace) -> Iterator[Figures]:
    from jiyi.bench.corpus import queries as made_up
    from jiyi.bench.made_up import fill, queries_from
    from jiyi.bench.measure import measure

    given = None if args.queries is None else _queries(args.queries, args.count)
    threads = [count for count in _numbers(args.threads, "--threads", 0, 1_000) if count]
    settings = settings_of(args)
    with Progress("% measured") as progress, arguments():

        def show(fraction: float) -> None:
            progress.update(round(100 * fraction), fraction)

        if args.store is not None:
            with open_store(args, embedder="default") as engine:
                queries = given or queries_from(engine, args.namespace, args.count)
                if not queries:
                    held = ", ".join(map(quoted, islice(engine.namespaces(), 3))) or "none at all"
                    empty = f"there are no memories in {quoted(args.namespace)} to measure with"
                    raise CommandError(f"{empty}; pass --namespace: there is {held}")
                yield measure(
                    engine, queries, namespace=args.namespace, k=args.k, settings=settings, threads=threads, report=show
                )
            return
        jiyi.warmup()
        queries = given or list(made_up(args.count))
        for size in _numbers(args.sizes or _SIZES, "--sizes", 1, _MOST):
            with jiyi.open() as engine:
                rate = fill(engine, size)
                yield measure(
                    engine,
                    queries,
                    k=args.k,
                    settings=settings,
                    threads=threads,
                    ingest_per_second=rate,
                    report=show,
                )


def _queries(path: str, count: int) -> list[str]:
    with opened(path) as stream:
        try:
            lines = (line.decode("utf-8").strip() for line in stream)
            found = list(islice((line for line in lines if line), count))
        except UnicodeDecodeError:
            raise CommandError(f"{path} is not UTF-8; convert it") from None
    if not found:
        raise CommandError(f"{path} holds no queries; write one a line")
    return found


def _numbers(text: str, option: str, least: int, most: int) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} is {quoted(text)}; write whole numbers with commas between them") from None
    if not all(least <= number <= most for number in numbers):
        raise UsageError(f"{option} is {quoted(text)}; each must be from {least:,} to {most:,}")
    return numbers
