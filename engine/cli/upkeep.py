"""`jiyi stats`, `verify`, `compact`, `snapshot` and `warmup`: how a store is, and keeping it well."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, Final

import jiyi
from jiyi.cli.errors import CommandError, arguments
from jiyi.cli.options import Commands, add_json, add_now, add_store, moment, open_store, store_folder
from jiyi.ledger import FILE_NAME
from jiyi.memory import KINDS
from jiyi.paths import shown
from jiyi.progress import Progress
from jiyi.quoted import quoted
from jiyi.terminal import counted

_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    stats = commands.add_parser("stats", help="show what a store holds", description="Show what a store is and holds.")
    add_store(stats)
    add_json(stats, "print one JSON object")
    stats.set_defaults(run=_stats)

    verify = commands.add_parser(
        "verify",
        help="check every memory against its checksum",
        description="Check that every memory is as it was written. Exit code 1, and a line for each fault, if not.",
        allow_abbrev=False,
    )
    verify.add_argument(
        "--repair",
        metavar="OUT",
        help="save every memory that can be read into a new store, in the folder OUT; the damaged one stays as it is",
    )
    add_store(verify)
    verify.set_defaults(run=_verify)

    compact = commands.add_parser(
        "compact",
        help="remove what expired, is too old or too much, and free the space",
        description="Remove expired memories, those that are older than --max-age, and of more than --max-count (in "
        "each namespace) the least useful; then give the free space back.",
        allow_abbrev=False,
    )
    add_store(compact)
    for option, metavar, read, what in (
        ("--max-age", "KIND=AGE", _age, "such as episodic=90d (s, m, h, d, w); may be given again"),
        ("--max-count", "KIND=N", _count, "such as episodic=10000; may be given again"),
    ):
        compact.add_argument(option, metavar=metavar, type=read, action="append", default=[], help=what)
    compact.add_argument("--dry-run", action="store_true", help="only say how many would go")
    add_now(compact, "the present")
    compact.set_defaults(run=_compact)

    snapshot = commands.add_parser(
        "snapshot",
        help="copy a store while it is in use",
        description="Copy a store into a new folder, consistently, while others read and write it. One that was "
        "stopped, even by kill -9, goes on when it is called again with the same DEST.",
    )
    snapshot.add_argument("dest", metavar="DEST", help="a folder that does not exist or is empty")
    add_store(snapshot)
    snapshot.set_defaults(run=_snapshot)

    restore = commands.add_parser(
        "restore",
        help="make a store of a snapshot",
        description="Make a store of a snapshot, which is checked and stays as it is. The store is there when it is "
        "whole, all at once.",
        allow_abbrev=False,
    )
    restore.add_argument("snapshot", metavar="SNAPSHOT", help="the folder that `jiyi snapshot` made")
    add_store(restore)
    restore.add_argument("--overwrite", action="store_true", help="replace the store that is there")
    restore.set_defaults(run=_restore)

    warmup = commands.add_parser(
        "warmup",
        help="compile the kernels ahead of the first query",
        description="Compile the kernels and keep them in Numba's cache, so that no later query waits for it.",
    )
    warmup.set_defaults(run=_warmup)


def _stats(args: argparse.Namespace) -> int:
    with open_store(args) as engine:
        stats = engine.stats()
        namespaces = engine.namespaces()
    if args.json:
        print(json.dumps(stats | {"by_namespace": namespaces}, ensure_ascii=False))
        return 0
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in stats["kinds"].items() if count)
    model = "none yet" if stats["embedder"] is None else f"{stats['embedder']}, {stats['dim']} dimensions"
    rows = {
        "path": stats["path"],
        "memories": f"{stats['memories']:,}" + (f" ({kinds})" if kinds else ""),
        "namespaces": f"{len(namespaces):,}" + (f" ({_largest(namespaces)})" if namespaces else ""),
        "vectors": model,
        "changes": f"{stats['sequence']:,}",
        "disk": f"{stats['disk_bytes'] / 1e6:,.1f} MB",
    }
    for name, value in rows.items():
        print(f"{name:12}{value}")
    return 0


def _largest(namespaces: dict[str, int], most: int = 5) -> str:
    ordered = sorted(namespaces.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name[:40]} {count:,}" for name, count in ordered[:most])
    return shown + (", …" if len(ordered) > most else "")


def _verify(args: argparse.Namespace) -> int:
    if args.repair is not None:
        return _repair(args)
    with open_store(args) as engine:
        count = engine.count(namespace=None)
        damage = engine.verify()
    for line in damage:
        print(line)
    if damage:
        faults = counted(len(damage), "fault", "faults")
        raise CommandError(
            f"{faults} in {count:,} memories; `jiyi verify --repair OUT` saves what can be read into a new store, and "
            "`jiyi restore` brings a snapshot back"
        )
    print(f"all {count:,} memories are as they were written")
    return 0


def _repair(args: argparse.Namespace) -> int:
    if not (store_folder(args) / FILE_NAME).is_file():
        raise CommandError(f"there is no store in {shown(store_folder(args))}; name the folder of the damaged one")
    with arguments(), Progress("memories saved") as progress:
        saved = jiyi.salvage(
            store_folder(args), args.repair, progress=lambda done, whole: progress.update(done, done / whole)
        )
    for lost in saved.lost:
        print(f"lost: {lost}")
    for note in saved.notes:
        print(note)
    if saved.merged:
        print(f"saved {counted(saved.merged, 'memory', 'memories')} that had been merged into others")
    if saved.without_vectors:
        print(f"{counted(saved.without_vectors, 'memory has', 'memories have')} lost the vector; `jiyi reindex` helps")
    print(f"saved {counted(saved.saved, 'memory', 'memories')} to {saved.folder}; {len(saved.lost):,} are lost")
    return 0


def _of_kind(text: str) -> tuple[str, str]:
    kind, equals, value = text.partition("=")
    if not equals or kind.strip() not in KINDS:
        raise argparse.ArgumentTypeError(f"{quoted(text)} must begin with a kind: {'=, '.join(KINDS)}=")
    return kind.strip(), value.strip()


def _age(text: str) -> tuple[str, float]:
    kind, value = _of_kind(text)
    number, unit_s = (value[:-1], _UNITS_S[value[-1]]) if value and value[-1] in _UNITS_S else (value, 1.0)
    try:
        return kind, float(number) * unit_s
    except ValueError:
        raise argparse.ArgumentTypeError(f"{quoted(value)} must be an age such as 90d, 12h or 3600") from None


def _count(text: str) -> tuple[str, int]:
    kind, value = _of_kind(text)
    try:
        return kind, int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{quoted(value)} must be a whole number") from None


def _compact(args: argparse.Namespace) -> int:
    policy: dict[str, dict[str, Any]] = {}
    for setting, limits in (("max_age_s", args.max_age), ("max_count", args.max_count)):
        for kind, limit in limits:
            policy.setdefault(kind, {})[setting] = limit
    with arguments(), open_store(args, write=not args.dry_run, retention=policy) as engine:
        count = engine.compact(now=moment(args.now), dry_run=args.dry_run)
        size = engine.stats()["disk_bytes"]
    print(f"{'would remove' if args.dry_run else 'removed'} {counted(count, 'memory', 'memories')}", end="")
    print("" if args.dry_run else f"; the store takes {size / 1e6:,.1f} MB")
    return 0


def _snapshot(args: argparse.Namespace) -> int:
    with open_store(args) as engine, Progress("rows copied") as progress, arguments():
        folder = engine.snapshot(
            args.dest, progress=lambda done, whole: progress.update(done, done / whole if whole else None)
        )
    print(f"copied to {folder}")
    return 0


def _restore(args: argparse.Namespace) -> int:
    if not (Path(args.snapshot) / FILE_NAME).is_file():
        raise CommandError(f"there is no snapshot in {shown(args.snapshot)}; name the folder that `jiyi snapshot` made")
    with arguments():
        folder = jiyi.restore(args.snapshot, store_folder(args), overwrite=args.overwrite)
    print(f"restored to {folder}")
    return 0


def _warmup(args: argparse.Namespace) -> int:
    started = time.perf_counter()
    count = jiyi.warmup()
    print(f"{count} kernels ready in {time.perf_counter() - started:.1f} s")
    return 0
