"""`jiyi search` and `jiyi context`: what an agent asks a store."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from jiyi.cli.errors import CommandError, arguments
from jiyi.cli.options import (
    Commands,
    add_embedder,
    add_json,
    add_namespace,
    add_now,
    add_settings,
    add_store,
    add_where,
    moment,
    open_store,
    opened,
    settings_of,
    text_of,
)
from jiyi.cli.output import memory_line, note, print_line
from jiyi.context import FORMATS, ORDERS, ContextConfig
from jiyi.jsonl import read_lines

if TYPE_CHECKING:
    from jiyi.hits import Hits


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    search = commands.add_parser(
        "search", help="find memories", description="Find the memories that belong to a query.", allow_abbrev=False
    )
    search.add_argument("query", metavar="QUERY", help="anything; its words are never read as a query language")
    search.add_argument("--k", metavar="N", type=int, default=5, help="how many (5)")
    search.add_argument("--explain", action="store_true", help="show every number behind every rank")
    _add_shared(search)
    add_json(search, "print one JSON object a hit; with --explain also the numbers behind its rank")
    search.set_defaults(run=_search)

    default = ContextConfig()
    context = commands.add_parser(
        "context",
        help="build the text for a prompt",
        description="Build what an agent should be reminded of before it answers, as text for its prompt.",
        allow_abbrev=False,
    )
    said = context.add_mutually_exclusive_group(required=True)
    said.add_argument("message", metavar="MESSAGE", nargs="?", help="what the user said last")
    said.add_argument(
        "--messages",
        metavar="FILE",
        help='a JSON lines file of {"role", "content"}, oldest first; "-" for standard input',
    )
    context.add_argument(
        "--max-memories", metavar="N", type=int, default=default.max_memories, help="hits at most (%(default)s)"
    )
    context.add_argument(
        "--archival-slots",
        metavar="N",
        type=int,
        default=default.archival_slots,
        help="archival memories (%(default)s)",
    )
    context.add_argument(
        "--token-budget",
        metavar="N",
        type=int,
        default=default.token_budget,
        help="tokens of the whole text (%(default)s)",
    )
    context.add_argument("--order", choices=ORDERS, default=default.order, help="of the hits (%(default)s)")
    context.add_argument("--format", choices=FORMATS, default=default.format, help="of the text (%(default)s)")
    context.add_argument(
        "--no-dates", action="store_false", dest="include_dates", help="leave out when things happened"
    )
    _add_shared(context)
    add_json(context, "print one JSON object: text, tokens, query, memories, left_out")
    context.set_defaults(run=_context)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_namespace(parser, "default", 'whose memories ("default")')
    add_where(parser)
    add_now(parser, "now")
    add_settings(parser)
    add_embedder(parser)


def _search(args: argparse.Namespace) -> int:
    query = text_of(args.query, "the query")
    with arguments(), open_store(args, embedder=args.embedder) as engine:
        hits = engine.search(
            query, namespace=args.namespace, k=args.k, where=args.where, now=moment(args.now), **settings_of(args)
        )
    _print_hits(hits, as_json=args.json, explain=args.explain)
    return 0


def _print_hits(hits: Hits, *, as_json: bool, explain: bool) -> None:
    if as_json:
        for record in hits.to_dict()["hits"]:
            if not explain:
                del record["factors"]
            print(json.dumps(record, ensure_ascii=False))
    elif explain:
        print(hits.explain())
        return  # the table tells what was degraded
    elif len(hits) == 0:
        print("nothing found")
    else:
        for hit in hits:
            print_line(f"{hit.rank:2}  {hit.score:.3f}  {memory_line(hit.memory, with_namespace=False)}")
    for degraded in hits.degraded:
        note(str(degraded))


def _context(args: argparse.Namespace) -> int:
    messages = _messages(args.messages) if args.message is None else [text_of(args.message, "the message")]
    with arguments():
        config = ContextConfig(**{field.name: getattr(args, field.name) for field in fields(ContextConfig)})
        with open_store(args, embedder=args.embedder) as engine:
            context = engine.build_context(
                messages,
                namespace=args.namespace,
                where=args.where,
                now=moment(args.now),
                config=config,
                **settings_of(args),
            )
    if args.json:
        record = {
            "text": context.text,
            "tokens": context.tokens,
            "query": None if context.query is None else context.query.text,
            "memories": [memory.to_dict() for memory in context.memories],
            "left_out": [left_out._asdict() for left_out in context.left_out],
        }
        print(json.dumps(record, ensure_ascii=False))
    elif context.text:
        print(context.text)
    else:
        note("no memory fits; the context is empty")
    return 0


def _messages(path: str) -> Sequence[Any]:
    source = "standard input" if path == "-" else path
    with opened(path) as stream:
        messages = [line.record for line in read_lines(stream, source)]
    for number, message in enumerate(messages, start=1):
        if "role" not in message or "content" not in message:
            raise CommandError(f"{source}: message {number} has no {'role' if 'role' not in message else 'content'}")
    if not messages:
        raise CommandError(f"{source} holds no messages")
    return messages
