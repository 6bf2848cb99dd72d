"""`jiyi stats`, `verify`, `compact`, `snapshot` and `warmup`: how a store is, and keeping it well."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, Final

import jiyi
from jiyi.cli.errors import CommandError, arguments
from jiyi.cli.options import Commands, add_json, add_now, add_store, moment, open_store
from jiyi.memory import KINDS
from jiyi.progress import Progress
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
        description="Copy a store into a new folder, consistently, while others read and write it.",
    )
    snapshot.add_argument("dest", metavar="DEST", help="a folder that does not exist or is empty")
    add_store(snapshot)
    snapshot.set_defaults(run=_snapshot)

    reindex = commands.add_parser(
        "reindex",
        help="embed every memory anew",
        description="Embed every memory with another embedder (or again with the same), then use that one. The store "
        "can be read meanwhile. A run that was stopped goes on where it was.",
    )
    reindex.add_argument("--embedder", metavar="NAME", help="its name or folder; by default the store's own")
    add_store(reindex)
    reindex.set_defaults(run=_reindex)

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
    with open_store(args) as engine:
        count = engine.count(namespace=None)
        damage = engine.verify()
    for line in damage:
        print(line)
    if damage:
        faults = counted(len(damage), "fault", "faults")
        raise CommandError(f"{faults} in {count:,} memories; bring the store back from a snapshot or an export")
    print(f"all {count:,} memories are as they were written")
    return 0


def _of_kind(text: str) -> tuple[str, str]:
    kind, equals, value = text.partition("=")
    if not equals or kind.strip() not in KINDS:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} must begin with a kind: {'=, '.join(KINDS)}=")
    return kind.strip(), value.strip()


def _age(text: str) -> tuple[str, float]:
    kind, value = _of_kind(text)
    number, unit_s = (value[:-1], _UNITS_S[value[-1]]) if value and value[-1] in _UNITS_S else (value, 1.0)
    try:
        return kind, float(number) * unit_s
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value[:80]!r} must be an age such as 90d, 12h or 3600") from None


def _count(text: str) -> tuple[str, int]:
    kind, value = _of_kind(text)
    try:
        return kind, int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value[:80]!r} must be a whole number") from None


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
    with open_store(args) as engine, arguments():
        folder = engine.snapshot(args.dest)
    print(f"copied to {folder}")
    return 0


def _reindex(args: argparse.Namespace) -> int:
    started = time.perf_counter()
    with open_store(args, embedder="default", write=True) as engine, Progress("memories embedded") as progress:
        with arguments():
            count = engine.reindex(
                args.embedder, progress=lambda done, whole: progress.update(done, done / whole if whole else None)
            )
        model = engine.stats()["embedder"]
    print(f"embedded {counted(count, 'memory', 'memories')} with {model} in {time.perf_counter() - started:.1f} s")
    return 0


def _warmup(args: argparse.Namespace) -> int:
    started = time.perf_counter()
    count = jiyi.warmup()
    print(f"{count} kernels ready in {time.perf_counter() - started:.1f} s")
    return 0
