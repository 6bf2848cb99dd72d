"""`jiyi reindex`: another embedder for a store, or its terms anew; made for cron and for Kubernetes jobs."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from jiyi.cli.errors import CommandError, UsageError, arguments
from jiyi.cli.options import Commands, add_json, add_store, open_store, opened
from jiyi.cli.output import note
from jiyi.progress import Progress
from jiyi.reindex import TOKENIZERS, ReindexJob
from jiyi.reindex_events import Event, Progressed, ReindexPlan, ReindexReport, Started, as_record
from jiyi.terminal import counted


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "reindex",
        help="embed every memory anew",
        description="Embed every memory with another embedder (or again with the same), compare the answers, then use "
        "that one. The store can be read meanwhile. A run that was stopped, even by kill -9, goes on where it was when "
        "it is called again with the same embedder.",
        epilog="Exit code 0: done. 1: failed, or refused by --min-overlap (--force then switches at once). 2: wrong "
        "usage. 130: interrupted (SIGINT or SIGTERM); call it again.",
        allow_abbrev=False,
    )
    parser.add_argument("--embedder", metavar="NAME", help="its name or folder; by default the store's own")
    parser.add_argument(
        "--tokenizer",
        choices=TOKENIZERS,
        help="cut texts into terms anew with this version's tokenizer; without --embedder, vectors stay as they are",
    )
    parser.add_argument("--batch-size", metavar="N", type=int, help="memories embedded in one call (1024)")
    parser.add_argument("--limit-rate", metavar="N", type=float, help="memories a second at most")
    parser.add_argument("--keep", action="store_true", help="keep the old generation, for --rollback")
    parser.add_argument(
        "--min-overlap", metavar="SHARE", type=float, help="refuse to switch below this mean overlap@10 (0 to 1)"
    )
    parser.add_argument("--force", action="store_true", help="switch whatever the comparison and the disk say")
    parser.add_argument(
        "--queries",
        metavar="FILE",
        help="to compare by: lines of text, or JSON lines with query and namespace; - is standard input (default: what "
        "stored memories begin with)",
    )
    parser.add_argument("--sample", metavar="N", type=int, default=100, help="how many stored ones (100; 0 for none)")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--plan", action="store_true", help="only say how many, how long and how much disk")
    instead.add_argument("--rollback", action="store_true", help="go back to the generation that --keep has kept")
    instead.add_argument("--drop-kept", action="store_true", help="drop the generation that --keep has kept")
    add_store(parser)
    add_json(parser, "print what happens as JSON lines")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    with _terminated_as_interrupted():
        if args.rollback:
            return _roll_back(args)
        if args.drop_kept:
            return _drop_kept(args)
        return _reindex(args)


def _reindex(args: argparse.Namespace) -> int:
    queries = None if args.queries is None else _queries(args.queries)
    with open_store(args, embedder="default", write=True) as engine, Progress("memories") as progress:

        def told(event: Event) -> None:
            if args.json:
                print(json.dumps(as_record(event), ensure_ascii=False), flush=True)
            if isinstance(event, Progressed):
                fraction = event.done / event.total if event.total else None
                progress.update(event.done, fraction, rate=event.rate, left_s=event.seconds_left)
            elif isinstance(event, Started) and event.resumed and not args.json:
                note(f"goes on after {event.done:,} of {event.memories:,} memories")

        with arguments():
            job = ReindexJob(
                engine,
                args.embedder,
                tokenizer=args.tokenizer,
                batch_size=args.batch_size,
                limit_rate=args.limit_rate,
                keep=args.keep,
                min_overlap=args.min_overlap,
                force=args.force,
                queries=queries,
                sample=args.sample,
                on_event=told,
            )
        if args.plan:
            return _say_plan(args, job.plan())
        try:
            report = job.run()
        except (TypeError, ValueError) as error:  # what the embedder returned
            raise CommandError(str(error)) from error
    if report.refused is not None:
        raise CommandError(f"not switched: {report.refused}")
    if not args.json:
        print(_summary(report))
    return 0


def _summary(report: ReindexReport) -> str:
    parts = [
        f"embedded {counted(report.memories, 'memory', 'memories')} with {report.embedder} in {report.seconds:.1f} s"
    ]
    if report.embedded < report.memories:
        parts.append(f"{report.memories - report.embedded:,} by an earlier run")
    comparison = report.comparison
    if comparison is not None:
        parts.append(
            f"overlap@10 {comparison.overlap_at_10:.3f} over {counted(comparison.queries, 'query', 'queries')}, score "
            f"shift {comparison.score_shift:+.3f}"
        )
    if report.kept:
        parts.append("the old generation is kept")
    return "; ".join(parts)


def _say_plan(args: argparse.Namespace, plan: ReindexPlan) -> int:
    if args.json:
        print(json.dumps(as_record(plan), ensure_ascii=False))
        return 0
    what = f"embed with {plan.embedder}" if plan.embeds else "take over as they are"
    done = f", {plan.done:,} of them done" if plan.done else ""
    time_left = "unknown" if plan.seconds is None else f"about {plan.seconds:,.0f} s at {plan.rate:,.0f} a second"
    free = "" if plan.free_bytes is None else f" of {plan.free_bytes / 1e6:,.0f} MB free"
    print(
        f"{counted(plan.memories, 'memory', 'memories')} to {what}{done}; {time_left}; "
        f"{plan.disk_bytes / 1e6:,.1f} MB{free}"
    )
    return 0


def _roll_back(args: argparse.Namespace) -> int:
    with open_store(args, embedder="default", write=True) as engine, Progress("memories") as progress, arguments():
        report = engine.rollback(
            args.embedder,
            keep=args.keep,
            progress=lambda done, whole: progress.update(done, done / whole if whole else None),
        )
    if args.json:
        print(json.dumps(as_record(report), ensure_ascii=False))
    else:
        brought = f"; {report.embedded:,} written since were brought along" if report.embedded else ""
        print(f"back to {report.embedder} for {counted(report.memories, 'memory', 'memories')}{brought}")
    return 0


def _drop_kept(args: argparse.Namespace) -> int:
    with open_store(args, embedder="default", write=True) as engine:
        dropped = engine.drop_kept()
    if args.json:
        print(json.dumps({"event": "dropped", "dropped": dropped}))
    else:
        print("dropped the kept generation" if dropped else "there was no kept generation")
    return 0


def _queries(path: str) -> list[str | dict[str, Any]]:
    found: list[str | dict[str, Any]] = []
    with opened(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                text = line.decode("utf-8").strip()
                record = json.loads(text) if text.startswith("{") else text
            except ValueError as error:
                raise UsageError(f"{path}: line {number} is neither text nor a JSON object: {error}") from None
            if record:
                found.append(record)
    if not found:
        raise UsageError(f"{path} holds no queries")
    return found


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM, by which Kubernetes and cron end a job, end it as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
