"""`jiyi ingest`: files into a store."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jiyi
from jiyi.cli.errors import CommandError, arguments
from jiyi.cli.options import Commands, add_embedder, add_json, add_namespace, add_store, store_folder
from jiyi.cli.output import note
from jiyi.ledger import FILE_NAME
from jiyi.memory import FIELDS, checked_name
from jiyi.progress import Progress
from jiyi.quoted import quoted
from jiyi.terminal import counted

if TYPE_CHECKING:
    from jiyi.engine import Engine
    from jiyi.ingest import IngestJob, IngestStatus

_FAILED: Final = 1
_INTERRUPTED: Final = 130
_EVERY_S: Final = 1.0


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "ingest",
        help="store the memories of files",
        description="Store the memories of files: JSON lines, Parquet or Arrow, plain or compressed by gzip or zstd. "
        f"Only text is required; there are also {', '.join(name for name in FIELDS if name != 'text')}, vector. A "
        "memory whose id exists is replaced, or left alone when it is the same. Rows that are wrong are listed in a "
        "file and the job goes on. A job that was stopped goes on where it was when it is run again.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help='files, folders, or patterns in quotes; "-" for standard input'
    )
    add_store(parser)
    add_namespace(parser, None, 'of rows that do not say their own ("default")')
    add_embedder(parser)
    parser.add_argument(
        "--format", choices=("jsonl", "parquet", "arrow"), help="what the files are (told by their first bytes)"
    )
    parser.add_argument(
        "--rejects",
        metavar="FILE",
        help="where rows that are wrong are listed, with their number and the reason, if there are any "
        "(NAME.rejects.jsonl in the working folder)",
    )
    parser.add_argument("--max-rejects", metavar="N", type=int, help="stop, and fail, at the row that is one more")
    parser.add_argument("--strict", action="store_true", help="stop, and fail, at the first row that is wrong")
    parser.add_argument("--dry-run", action="store_true", help="check everything and store nothing")
    parser.add_argument("--restart", action="store_true", help="do not go on where a job was stopped")
    parser.add_argument("--no-index", action="store_true", help="leave building indexes to whoever opens it next")
    parser.add_argument(
        "--progress",
        choices=("auto", "json", "none"),
        default="auto",
        help="json: a line of JSON a second on standard error (auto: a line on a terminal)",
    )
    add_json(parser, "print the result as JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    # Not above: it loads Numba, which `jiyi --help` does not need.
    from jiyi.files.sources import find_sources
    from jiyi.ingest import IngestJob

    folder = store_folder(args)
    with arguments():
        if args.namespace is not None:
            checked_name(args.namespace, "the namespace")
        if args.max_rejects is not None and args.max_rejects < 0:
            raise ValueError(f"--max-rejects is {quoted(args.max_rejects)}; it must be at least 0")
    sources, _ = find_sources(args.files)  # before a store is made for files that there are not
    rejects = args.rejects or _rejects_name(sources[0].path)
    started = time.perf_counter()
    job: IngestJob | None = None
    try:
        with _stopped_by_sigterm(), _shown(args.progress) as show:
            with arguments():
                engine = _engine(args, folder)
            with engine:
                with arguments():
                    job = IngestJob(
                        engine,
                        args.files,
                        namespace=args.namespace,
                        format=args.format,
                        rejects=rejects,
                        max_rejects=args.max_rejects,
                        strict=args.strict,
                        dry_run=args.dry_run,
                        restart=args.restart,
                        progress=show,
                    )
                for name in job.again:
                    note(f"{name} was named twice; it is read once")
                resumed = sum(1 for planned in job.plan() if planned.resumes_after or planned.ended)
                if resumed and not args.restart:
                    note(
                        f"going on where an earlier run stopped in {counted(resumed, 'file', 'files')}; "
                        "--restart reads from the beginning"
                    )
                status = job.run()
                read_s = time.perf_counter() - started
                if not args.dry_run and not args.no_index:
                    engine.flush()
    except KeyboardInterrupt:
        stored = 0 if job is None else job.status().stored
        again = "" if "-" in args.files else "; run it again to go on"
        raise CommandError(
            f"interrupted; {counted(stored, 'memory', 'memories')} of this run are stored{again}", _INTERRUPTED
        ) from None
    return _told(args, status, read_s, time.perf_counter() - started)


def _engine(args: argparse.Namespace, folder: Path) -> Engine:
    embedder = None if args.embedder == "none" else args.embedder
    if not args.dry_run:
        return jiyi.open(folder, embedder=embedder)
    if (folder / FILE_NAME).exists():
        return jiyi.open(folder, embedder=embedder, read_only=True)
    return jiyi.open(embedder=embedder)


def _told(args: argparse.Namespace, status: IngestStatus, read_s: float, seconds: float) -> int:
    """Print how it went, in one line; return the exit code."""
    taken = status.stored + status.unchanged + status.skipped_rows
    nothing = status.rejected > 0 and taken == 0
    failed = bool(status.failed) or status.state == "stopped" or nothing
    if args.json:
        record: dict[str, Any] = status.to_dict() | {
            "dry_run": args.dry_run,
            "seconds": round(seconds, 3),
            "ingest_seconds": round(read_s, 3),
            "per_second": round(status.stored / read_s, 1),
        }
        print(json.dumps(record, ensure_ascii=False))
    elif not nothing or args.dry_run:
        print(_summary(args, status, read_s))
    for reason in status.failed[1:] if status.failed else ():
        note(reason)
    if status.failed:
        raise CommandError(_with(status.failed[0], "the rest is stored" if taken else "nothing was stored"), _FAILED)
    if status.state == "stopped":
        raise CommandError(
            f"stopped after {counted(status.rejected, 'reject', 'rejects')}; the first: {status.rejects[0]}", _FAILED
        )
    if nothing:
        raise CommandError(
            f"no row could be taken, {counted(status.rejected, 'was', 'were')} wrong (listed in "
            f"{status.rejects_file}); the first: {status.rejects[0]}",
            _FAILED,
        )
    if status.rejects:
        note(f"{counted(status.rejected, 'row is', 'rows are')} wrong, the first: {status.rejects[0]}")
    return _FAILED if failed else 0


def _with(reason: str, more: str) -> str:
    return f"{reason}; {more}"


def _summary(args: argparse.Namespace, status: IngestStatus, read_s: float) -> str:
    done = "would store" if args.dry_run else "stored"
    parts = [f"{done} {counted(status.stored, 'memory', 'memories')}"]
    if status.replaced:
        parts.append(f"{status.replaced:,} of them in place of others")
    if status.unchanged:
        parts.append(f"{status.unchanged:,} unchanged")
    if status.rejected:
        parts.append(f"{status.rejected:,} rejected ({status.rejects_file})")
    return f"{', '.join(parts)} in {read_s:.1f} s ({status.stored / read_s:,.0f}/s)"


def _rejects_name(path: Path | None) -> str:
    """What the reject file is called when nobody said: after the first file, in the working folder."""
    name = "stdin" if path is None else path.name
    for suffix in reversed(Path(name).suffixes[-2:]):
        name = name.removesuffix(suffix)
    return f"{name or 'ingest'}.rejects.jsonl"


@contextmanager
def _shown(how: str) -> Iterator[Any]:
    """What shows the status of a job while it runs."""
    if how == "none":
        yield None
        return
    if how == "json":
        last = [0.0]

        def tell(status: IngestStatus) -> None:
            now = time.perf_counter()
            if now - last[0] >= _EVERY_S or status.state != "running":
                last[0] = now
                rate, fraction = status.rows / max(status.seconds, 1e-6), status.fraction
                left = None if not fraction else round(status.seconds / fraction - status.seconds, 1)
                record = {"event": "progress", **status.to_dict(), "rows_per_second": round(rate, 1), "left_s": left}
                print(json.dumps(record, ensure_ascii=False), file=sys.stderr, flush=True)

        yield tell
        return
    with Progress("memories stored") as progress:
        yield lambda status: progress.update(status.stored + status.unchanged, status.fraction)


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM, by which schedulers end jobs, do what Ctrl-C does: end between two transactions, and say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
