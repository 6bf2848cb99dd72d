"""`jiyi list`, `jiyi export` and `jiyi delete`: memories as they are stored."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from jiyi.cli.errors import CommandError, UsageError, arguments
from jiyi.cli.options import (
    Commands,
    add_json,
    add_namespace,
    add_namespaces,
    add_store,
    add_where,
    namespaces_of,
    only_namespace,
    open_store,
)
from jiyi.cli.output import memory_line, print_line
from jiyi.paths import shown
from jiyi.progress import Progress
from jiyi.quoted import quoted
from jiyi.terminal import counted


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    listing = commands.add_parser(
        "list", help="show memories", description="Show memories, one a line, expired ones too.", allow_abbrev=False
    )
    _add_choice(listing)
    add_namespaces(listing, "of which namespace (all)")
    listing.add_argument(
        "--order",
        choices=("stored", "newest", "oldest"),
        default="stored",
        help="newest, oldest: by timestamp (%(default)s)",
    )
    listing.add_argument("--limit", metavar="N", type=int, help="at most so many")
    add_json(listing)
    listing.set_defaults(run=_list)

    export = commands.add_parser(
        "export",
        help="write memories to a file",
        description="Write memories, as JSON lines or a table (Parquet, Arrow), that `jiyi ingest` reads back to the "
        "same memories, namespace by namespace, in the order they were stored. "
        "Memories that were merged (consolidate) stand behind the one that stands for them, so that undoing it works.",
        allow_abbrev=False,
    )
    _add_choice(export)
    add_namespaces(export, "of which namespace (all)")
    export.add_argument(
        "--out",
        metavar="FILE",
        help="a new file: .jsonl, .jsonl.gz, .jsonl.zst, .parquet or .arrow (JSON lines on standard output)",
    )
    export.add_argument("--format", choices=("jsonl", "parquet", "arrow"), help="instead of what FILE's name says")
    export.add_argument(
        "--vectors", action="store_true", help="write vectors too (without them the embedder makes them again)"
    )
    export.add_argument(
        "--no-merged", action="store_true", help="of memories that were merged only the one that stands for them"
    )
    export.set_defaults(run=_export)

    delete = commands.add_parser(
        "delete",
        help="forget memories",
        description="Forget memories of one namespace by id, or those that a filter holds for ('{}': all). Nothing is "
        "asked.",
        allow_abbrev=False,
    )
    _add_choice(delete)
    add_namespace(delete, "default", 'whose memories ("default"); exactly one')
    delete.add_argument("--dry-run", action="store_true", help="only say how many would go")
    delete.add_argument(
        "--erase", action="store_true", help="leave no byte of them in the store's files, which are written anew"
    )
    delete.set_defaults(run=_delete)


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", metavar="ID", nargs="*", help="ids of memories")
    add_store(parser)
    add_where(parser)


def _where(args: argparse.Namespace) -> dict[str, Any] | None:
    """The filter of --where and the ids together: both must hold."""
    if not args.ids:
        where: dict[str, Any] | None = args.where
        return where
    by_id = {"id": {"in": args.ids}}
    return by_id if args.where is None else {"and": [by_id, args.where]}


def _list(args: argparse.Namespace) -> int:
    namespace = namespaces_of(args)
    with arguments(), open_store(args) as engine:
        memories = engine.list(namespace=namespace, where=_where(args), order=args.order, limit=args.limit)
    for memory in memories:
        if args.json:
            print(memory.to_json())
        else:
            print_line(memory_line(memory, with_namespace=only_namespace(args) is None))
    return 0


def _export(args: argparse.Namespace) -> int:
    from jiyi.export import export_file, export_stream

    with arguments(), open_store(args) as engine, Progress("memories written") as progress:
        chosen: dict[str, Any] = {"namespace": namespaces_of(args), "where": _where(args), "vectors": args.vectors}
        chosen["merged"] = not args.no_merged
        if args.ids and args.where is None:
            held = {memory.id for memory in engine.list(namespace=namespaces_of(args), where=_where(args))}
            missing = [memory_id for memory_id in args.ids if memory_id not in held]
            if missing:
                raise CommandError(f"there is no memory {quoted(missing[0])}; nothing was written")
        if args.out is None:
            export_stream(engine, sys.stdout.buffer, format=args.format or "jsonl", **chosen)
            return 0
        path = Path(args.out)
        if path.exists():
            raise UsageError(f"{shown(path)} exists; name a new file")
        total = engine.count(namespace=namespaces_of(args), where=_where(args))
        if args.format is None and not path.suffix:
            args.format = "jsonl"
        count = export_file(
            engine,
            path,
            format=args.format,
            progress=lambda done: progress.update(done, done / max(total, done)),
            **chosen,
        )
    print(f"wrote {counted(count, 'memory', 'memories')} to {path}")
    return 0


def _delete(args: argparse.Namespace) -> int:
    if not args.ids and args.where is None:
        raise UsageError("delete needs an ID or --where; --where '{}' stands for every memory of the namespace")
    with arguments(), open_store(args, write=not args.dry_run) as engine:
        if args.erase and not args.dry_run:
            if args.ids and args.where is None:
                count = engine.erase(args.ids, namespace=args.namespace)
            else:
                count = engine.erase(where=_where(args) or {}, namespace=args.namespace)
        else:
            count = engine.forget(_where(args) or {}, namespace=args.namespace, dry_run=args.dry_run)
    done = "would delete" if args.dry_run else "erased" if args.erase else "deleted"
    print(f"{done} {counted(count, 'memory', 'memories')}")
    return 0
