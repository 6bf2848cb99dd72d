"""`jiyi eval`: how well a set of questions is answered."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jiyi.cli.errors import CommandError, UsageError, arguments
from jiyi.cli.options import Commands, add_embedder, add_json, add_now, add_settings, moment, settings_of
from jiyi.cli.output import note
from jiyi.config import DEFAULT, preset_named
from jiyi.explain import aligned, clipped
from jiyi.progress import Progress
from jiyi.terminal import counted

if TYPE_CHECKING:
    from jiyi.evaluation import EvalRun


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "eval",
        help="measure retrieval on a set of questions",
        description="Store DIR/memories.jsonl in a temporary store, ask every question of DIR/queries.jsonl in its "
        "namespace, and print recall, nDCG and MRR: over all but adversarial questions, and by category.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", metavar="DIR", help="holds memories.jsonl and queries.jsonl")
    parser.add_argument("--run", metavar="OUT.jsonl", dest="out", help='write {"qid", "ranked"} lines')
    parser.add_argument("--k", metavar="N", type=int, default=50, help="ids ranked for each question (50)")
    add_settings(parser)
    parser.add_argument("--recency", choices=("on", "off"), help="whether newer memories gain")
    parser.add_argument("--mmr", choices=("on", "off"), help="whether near-copies lose")
    add_now(parser, "by default that of the newest memory of the question's namespace: the talk has just ended")
    add_embedder(parser)
    add_json(parser, "print one JSON object")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from jiyi.evaluation import (  # not above: it loads Numba; `jiyi --help` needs none
        evaluate,
        read_eval_set,
        write_run,
    )

    folder = Path(args.folder)
    if not folder.is_dir():
        raise CommandError(f"{folder} is no folder; an eval set is a folder with memories.jsonl and queries.jsonl")
    if args.out is not None and not Path(args.out).absolute().parent.is_dir():
        raise CommandError(f"cannot write {args.out}: its folder does not exist")
    with arguments():
        settings = _settings(args)
    eval_set = read_eval_set(folder)
    if not eval_set.questions:
        raise CommandError(f"{folder / 'queries.jsonl'} holds no questions")
    unknown = eval_set.unknown_relevant()
    if unknown:
        note(f"{counted(unknown, 'relevant id is', 'relevant ids are')} of no memory in the question's namespace")
    with arguments(), Progress("questions") as progress:
        run = evaluate(
            eval_set,
            k=args.k,
            now=moment(args.now),
            embedder=None if args.embedder == "none" else args.embedder,
            progress=progress,
            **settings,
        )
    if args.out is not None:
        write_run(args.out, run.ranked)
    for reason, count in run.degraded.items():
        note(f"{count:,} of {len(run.ranked):,} questions: {reason}")
    print(json.dumps(run.to_dict(), ensure_ascii=False) if args.json else _table(run))
    return 0


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Settings of --preset and --set, with --recency and --mmr turned into theirs."""
    settings = settings_of(args)
    preset = DEFAULT if args.preset is None else preset_named(args.preset)
    for option, given, name, off in (
        ("--recency", args.recency, "recency_weight", 0.0),
        ("--mmr", args.mmr, "diversity", "none"),
    ):
        if given is None:
            continue
        if name in settings:
            raise UsageError(f"{option} and --set {name} say the same thing; give one of them")
        configured = getattr(preset, name)
        settings[name] = off if given == "off" else configured if configured != off else getattr(DEFAULT, name)
    return settings


def _table(run: EvalRun) -> str:
    metrics = [name for name in next(iter(run.scores.values()), {}) if name != "n"]
    rows = [["group", "n", *metrics]]
    for group, scores in run.scores.items():
        rows.append([clipped(group, 20), f"{scores['n']:.0f}", *(f"{100 * scores[name]:.2f}" for name in metrics)])
    widths = [max(len(row[column]) for row in rows) for column in range(1, len(rows[0]))]
    table = aligned([[row[0], *(cell.rjust(size) for cell, size in zip(row[1:], widths, strict=True))] for row in rows])
    numbers = run.to_dict()
    timings = (
        f"{run.memories:,} memories stored in {run.ingest_s:.2f} s; {len(run.ranked):,} questions, "
        f"{numbers['queries_per_s']:,.0f} a second, p50 {numbers['p50_ms']:.2f} ms, p95 {numbers['p95_ms']:.2f} ms"
    )
    return "\n".join([*table, "", timings, f"(kernels ready in {run.warmup_s:.1f} s before that)"])
