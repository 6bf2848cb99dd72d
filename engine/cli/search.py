"""`jiyi search`, `jiyi replay` and `jiyi context`: what an agent asks a store."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jiyi.cli.errors import CommandError, arguments
from jiyi.cli.options import (
    Commands,
    add_embedder,
    add_json,
    add_namespaces,
    add_now,
    add_settings,
    add_store,
    add_where,
    moment,
    only_namespace,
    open_store,
    opened,
    searched_namespaces,
    settings_of,
    text_of,
)
from jiyi.cli.output import memory_line, note, print_line
from jiyi.context import FORMATS, ORDERS, ContextConfig, one_line
from jiyi.jsonl import read_lines
from jiyi.query import BuiltQuery
from jiyi.query_record import QueryRecord

if TYPE_CHECKING:
    from jiyi.hits import Hits


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    search = commands.add_parser(
        "search", help="find memories", description="Find the memories that belong to a query.", allow_abbrev=False
    )
    search.add_argument("query", metavar="QUERY", help="anything; its words are never read as a query language")
    search.add_argument("--k", metavar="N", type=int, default=5, help="how many (5)")
    search.add_argument(
        "--neighbors", metavar="N", type=int, default=0, help="also show so many turns on each side of a hit (0)"
    )
    search.add_argument("--explain", action="store_true", help="show every number behind every rank")
    search.add_argument(
        "--plot",
        metavar="FILE",
        help="draw what adds to each score into a .png, .svg or .pdf (needs the extra: pip install 'jiyi[plot]')",
    )
    search.add_argument("--record", metavar="FILE", help="write all that `jiyi replay` needs to a new file")
    _add_shared(search)
    add_json(search, "print one JSON object a hit; with --explain also the numbers behind its rank")
    search.set_defaults(run=_search)

    replay = commands.add_parser(
        "replay",
        help="run a recorded query again",
        description="Run a query of `jiyi search --record FILE` again, as of then, and say what changed since. The "
        "exit code is 1 if the answer is not the same.",
        allow_abbrev=False,
    )
    replay.add_argument("file", metavar="FILE", help='the record; "-" for standard input')
    replay.add_argument("--explain", action="store_true", help="show every number behind every rank of today")
    add_store(replay)
    add_embedder(replay)
    add_json(replay, "print one JSON object: same, changes, ids, scores")
    replay.set_defaults(run=_replay)

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
        "--procedure-slots",
        metavar="N",
        type=int,
        default=default.procedure_slots,
        help="procedures that have to do with it (%(default)s)",
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
    context.add_argument(
        "--last-messages",
        metavar="N",
        type=int,
        default=default.last_messages,
        help="of the conversation, for the query (%(default)s)",
    )
    context.add_argument(
        "--neighbors",
        metavar="N",
        type=int,
        default=default.neighbors,
        help="turns on each side of a hit, where the budget has room (%(default)s)",
    )
    context.add_argument(
        "--reinforce", action="store_true", help="note that these memories were used, so that they age later"
    )
    _add_shared(context)
    add_json(context, "print one JSON object: text, tokens, query, memories, turns, left_out")
    context.set_defaults(run=_context)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_namespaces(parser, 'whose memories ("default")')
    add_where(parser)
    add_now(parser, "now")
    add_settings(parser)
    add_embedder(parser)


def _search(args: argparse.Namespace) -> int:
    query = text_of(args.query, "the query")
    record = None if args.record is None else Path(args.record)
    if record is not None and record.exists():
        raise CommandError(f"{record} exists; name a new file")
    with arguments(), open_store(args, embedder=args.embedder) as engine:
        several = args.namespace is not None and only_namespace(args) is None
        hits = engine.search(
            query,
            namespace=searched_namespaces(args),
            k=args.k,
            where=args.where,
            now=moment(args.now),
            neighbors=args.neighbors,
            **settings_of(args),
        )
        if args.plot is not None:
            hits.plot(args.plot)
    if record is not None:
        with record.open("x", encoding="utf-8", newline="\n") as out:
            out.write(hits.query_record.to_json() + "\n")
    _print_hits(hits, as_json=args.json, explain=args.explain, with_namespace=several)
    return 0


def _replay(args: argparse.Namespace) -> int:
    with opened(args.file) as stream:
        text = stream.read()
    try:
        record = QueryRecord.from_json(text)
    except (TypeError, ValueError) as error:
        raise CommandError(f"{'standard input' if args.file == '-' else args.file}: {error}") from None
    with arguments(), open_store(args, embedder=args.embedder) as engine:
        replay = engine.replay(record)
    hits = replay.hits
    if args.json:
        answer = {"same": replay.same, "changes": replay.changes, "ids": hits.ids, "scores": hits.scores}
        print(json.dumps(answer, ensure_ascii=False))
    elif args.explain:
        print(hits.explain())
    if not args.json:
        for change in replay.changes:
            print(one_line(change))
    if not replay.same:
        raise CommandError("the answer is not the same as then")
    if not args.json:
        print("the same answer as then")
    return 0


def _print_hits(hits: Hits, *, as_json: bool, explain: bool, with_namespace: bool) -> None:
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
            for turn in hit.before:
                print_line(f"       ↑    {memory_line(turn, with_namespace=with_namespace)}")
            print_line(f"{hit.rank:2}  {hit.score:.3f}  {memory_line(hit.memory, with_namespace=with_namespace)}")
            for turn in hit.after:
                print_line(f"       ↓    {memory_line(turn, with_namespace=with_namespace)}")
    for degraded in hits.degraded:
        note(str(degraded))


def _context(args: argparse.Namespace) -> int:
    messages = _messages(args.messages) if args.message is None else [text_of(args.message, "the message")]
    with arguments():
        config = ContextConfig(**{field.name: getattr(args, field.name) for field in fields(ContextConfig)})
        with open_store(args, embedder=args.embedder, write=args.reinforce) as engine:
            context = engine.build_context(
                messages,
                namespace=searched_namespaces(args),
                where=args.where,
                now=moment(args.now),
                config=config,
                reinforce=args.reinforce,
                **settings_of(args),
            )
    if args.json:
        query = context.query or BuiltQuery("")
        record = {
            "text": context.text,
            "tokens": context.tokens,
            "query": query.text,
            "kept": [kept._asdict() for kept in query.reasons],
            "dropped": [dropped._asdict() for dropped in query.dropped],
            "memories": [memory.to_dict() for memory in context.memories],
            "turns": [turn.to_dict() for turn in context.turns],
            "left_out": [left_out._asdict() for left_out in context.left_out],
            "degraded": [degraded._asdict() for degraded in context.degraded],
        }
        print(json.dumps(record, ensure_ascii=False))
    elif context.text:
        print(context.text)
    else:
        note("no memory fits; the context is empty")
    if not args.json:
        for degraded in context.degraded:
            note(str(degraded))
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
