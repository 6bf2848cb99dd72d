"""`jiyi eval`: how well a set of questions is answered, what each setting is worth, and how long it takes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jiyi.cli.errors import CommandError, UsageError, arguments
from jiyi.cli.options import Commands, add_embedder, add_json, add_now, add_settings, moment, setting
from jiyi.cli.output import note
from jiyi.config import DEFAULT
from jiyi.paths import shown
from jiyi.progress import Progress
from jiyi.quoted import quoted
from jiyi.terminal import counted

if TYPE_CHECKING:
    from jiyi.evaluation import Configuration, EvalRun, EvalSet, Evaluator, Question
    from jiyi.evaluation.report import Compared

#: Options that ask an engine, by the name of what they set; a run made elsewhere is only scored.
_ASKING: Final = {
    "--preset": "preset",
    "--config": "config",
    "--set": "settings",
    "--presets": "presets",
    "--compare": "compare",
    "--ablate": "ablate",
    "--plot": "plot",
    "--run": "out",
    "--recency": "recency",
    "--mmr": "mmr",
    "--now": "now",
}


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "eval",
        help="measure retrieval on a set of questions",
        description="Store the memories of an eval set in a temporary store, ask every question in its namespace, and "
        "print recall, nDCG and MRR (over all but adversarial questions, and by category) and how long a question "
        "takes. Differences are those of the same questions, with the 95 % interval of a paired bootstrap.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "set", metavar="SET", nargs="?", help="a folder with memories.jsonl and queries.jsonl, or LoCoMo's own JSON"
    )
    parser.add_argument("--run", metavar="OUT.jsonl", dest="out", help='write {"qid", "ranked"} lines')
    parser.add_argument("--k", metavar="N", type=int, default=50, help="ids ranked for each question (50)")
    add_settings(parser)
    parser.add_argument("--config", metavar="FILE", help="settings from a .json or .toml file, instead of --preset")
    parser.add_argument("--recency", choices=("on", "off"), help="whether newer memories gain, in every configuration")
    parser.add_argument("--mmr", choices=("on", "off"), help="whether near-copies lose, in every configuration")
    others = parser.add_argument_group("compare")
    others.add_argument(
        "--compare",
        metavar="WITH",
        action="append",
        default=[],
        help="also measure a preset, a file of settings, or this with one SETTING=VALUE changed, and print the "
        "differences; may be given again",
    )
    others.add_argument("--against", metavar="RUN", help="the same for a run in a file (--run's lines, or TREC's)")
    others.add_argument("--ablate", action="store_true", help="measure without each ingredient in turn")
    others.add_argument(
        "--presets", metavar="A,B,…", help="measure several presets or files of settings, the first being the baseline"
    )
    others.add_argument(
        "--plot",
        metavar="FILE",
        help="draw quality against time into a .png, .svg or .pdf (needs the extra: pip install 'jiyi[plot]')",
    )
    elsewhere = parser.add_argument_group("score a run that was made elsewhere")
    elsewhere.add_argument("--run-in", metavar="RUN", help="score this run and ask nothing")
    elsewhere.add_argument("--qrels", metavar="FILE", help="TREC's judgements, in place of SET")
    add_now(parser, "by default that of the newest memory of the question's namespace: the talk has just ended")
    add_embedder(parser)
    add_json(parser, "print one JSON object")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    if args.run_in is not None:
        return _score(args)
    if args.qrels is not None:
        raise UsageError("--qrels judges a run that was made elsewhere; name it with --run-in")
    if args.set is None:
        raise UsageError(
            "no eval set was named: a folder with memories.jsonl and queries.jsonl, LoCoMo's JSON, "
            "or --qrels and --run-in"
        )
    return _measure(args)


# ----------------------------------------------------------------------------------------------- runs made elsewhere


def _score(args: argparse.Namespace) -> int:
    from jiyi.evaluation import read_qrels, read_run, score  # not above: it loads Numba; `jiyi --help` needs none
    from jiyi.evaluation.report import difference_table, scores_table

    asking = [option for option, name in _ASKING.items() if getattr(args, name)]
    if asking:
        raise UsageError(f"--run-in is scored as it is, without asking anything; leave out {asking[0]}")
    if (args.qrels is None) == (args.set is None):
        raise UsageError("--run-in needs the questions: SET or --qrels, one of them")
    questions = _read(args.set).questions if args.qrels is None else read_qrels(args.qrels)
    ranked = read_run(args.run_in)
    _tell_unknown(questions, ranked, args.run_in)
    scores = score(questions, ranked)
    against = _against(args.against, questions, ranked)
    name = Path(args.run_in).name
    if args.json:
        record: dict[str, Any] = {"name": name, "scores": scores, "questions": len(questions)}
        _print_json(record, against, {})
        return 0
    lines = scores_table(scores)
    for one in against:
        lines += ["", *difference_table(one.name, name, one, scores)]
    print("\n".join(lines))
    return 0


def _tell_unknown(questions: Sequence[Question], ranked: Mapping[str, Sequence[str]], path: str) -> None:
    unknown = ranked.keys() - {question.qid for question in questions}
    if unknown:
        note(f"{counted(len(unknown), 'qid', 'qids')} of {path} are of no question, such as {quoted(min(unknown))}")


# ------------------------------------------------------------------------------------------------------- measuring


def _measure(args: argparse.Namespace) -> int:
    from jiyi.evaluation import Evaluator, ablations, draw_frontier, write_run
    from jiyi.pictures import check_picture

    path = Path(args.set)
    if args.out is not None and not Path(args.out).absolute().parent.is_dir():
        raise CommandError(f"cannot write {args.out}: its folder does not exist")
    with arguments():
        this, others = _configurations(args)
        without = ablations(this) if args.ablate else {}
        if args.plot is not None:
            check_picture(args.plot)
    eval_set = _read(args.set)
    if not eval_set.questions:
        raise CommandError(f"{path / 'queries.jsonl' if path.is_dir() else path} holds no questions")
    _tell_gaps(eval_set)
    with (
        _Shown() as shown,
        arguments(),
        Evaluator(
            eval_set,
            k=args.k,
            now=moment(args.now),
            embedder=None if args.embedder == "none" else args.embedder,
            told=shown,
        ) as evaluator,
    ):
        for configuration in [this, *others]:  # what is wrong is told before the work, not after
            evaluator.check(configuration)
        run = _asked(evaluator, this)
        if args.out is not None:
            write_run(args.out, run.ranked)
        compared = [_compared(eval_set.questions, run, _asked(evaluator, other)) for other in others]
        ablated = {
            name: _compared(eval_set.questions, run, evaluator.run(configuration))
            for name, configuration in without.items()
        }
    against = _against(args.against, eval_set.questions, run.ranked)
    if args.plot is not None:
        draw_frontier([run, *(one.run for one in compared if one.run is not None)], args.plot, path.name)
    if args.json:
        _print_json(run.to_dict(), [*compared, *against], ablated)
    else:
        print(_text(run, compared, against, ablated, presets=args.presets is not None))
    return 0


def _configurations(args: argparse.Namespace) -> tuple[Configuration, list[Configuration]]:
    """What is measured, and what it is compared with."""
    from jiyi.evaluation import configured, read_configuration
    from jiyi.evaluation.configuration import preset_or_file

    given = dict(args.settings)
    for option, value, name in (("--recency", args.recency, "recency_weight"), ("--mmr", args.mmr, "diversity")):
        if value is not None and name in given:
            raise UsageError(f"{option} and --set {name} say the same thing; give one of them")
    if args.presets is not None:
        single = [option for option in ("--preset", "--config", "--set") if getattr(args, _ASKING[option])]
        if single:
            raise UsageError(f"--presets names every configuration; leave out {single[0]}, or put it into a file")
        names = [name.strip() for name in args.presets.split(",") if name.strip()]
        if not names:
            raise UsageError("--presets names nothing; write --presets fast,balanced,best")
        this, *others = [_switched(preset_or_file(name), args) for name in names]
    else:
        if args.config is not None and args.preset is not None:
            raise UsageError('give --preset or --config, not both; a file of settings may say "preset" itself')
        start = configured(preset=args.preset) if args.config is None else read_configuration(args.config)
        this, others = _switched(start.changed(start.name, given), args), []
    for name in args.compare:
        if "=" in name:
            try:
                key, value = setting(name)
            except argparse.ArgumentTypeError as error:
                raise UsageError(f"--compare: {error}") from None
            others.append(this.changed(name, {key: value}))
        else:
            others.append(_switched(preset_or_file(name), args))
    return this, others


def _switched(configuration: Configuration, args: argparse.Namespace) -> Configuration:
    """The configuration with --recency and --mmr turned into their settings."""
    changes: dict[str, Any] = {}
    for given, name, off in ((args.recency, "recency_weight", 0.0), (args.mmr, "diversity", "none")):
        configured = getattr(configuration.config, name)
        if given == "off":
            changes[name] = off
        elif given == "on" and configured == off:
            changes[name] = getattr(DEFAULT, name)
    return configuration.changed(configuration.name, changes)


def _read(given: str) -> EvalSet:
    from jiyi.evaluation import read_eval_set

    path = Path(given)
    if not path.is_dir() and not path.is_file():
        raise CommandError(
            f"{shown(path)} is no folder and no file; an eval set is a folder with memories.jsonl and queries.jsonl, "
            "or LoCoMo's JSON"
        )
    return read_eval_set(path)


def _tell_gaps(eval_set: EvalSet) -> None:
    unknown = eval_set.unknown_relevant()
    if unknown:
        note(f"{counted(unknown, 'relevant id is', 'relevant ids are')} of no memory in the question's namespace")
    if eval_set.left_out:
        note(f"{counted(eval_set.left_out, 'piece', 'pieces')} of evidence name no turn and were left out")


def _asked(evaluator: Evaluator, configuration: Configuration) -> EvalRun:
    run = evaluator.run(configuration)
    for reason, count in run.degraded.items():
        note(f"{run.name}: {count:,} of {len(run.ranked):,} questions: {reason}")
    return run


def _compared(questions: Sequence[Question], run: EvalRun, other: EvalRun) -> Compared:
    from jiyi.evaluation import changed, compare
    from jiyi.evaluation.report import Compared

    return Compared(
        other.name, other.scores, compare(questions, run.ranked, other.ranked), changed(run.ranked, other.ranked), other
    )


def _against(path: str | None, questions: Sequence[Question], ranked: Mapping[str, Sequence[str]]) -> list[Compared]:
    """The run of --against, if there is one."""
    from jiyi.evaluation import changed, compare, read_run, score
    from jiyi.evaluation.report import Compared

    if path is None:
        return []
    other = read_run(path)
    _tell_unknown(questions, other, path)
    kept = {question.qid for question in questions}
    other = {qid: ids for qid, ids in other.items() if qid in kept}
    return [
        Compared(Path(path).name, score(questions, other), compare(questions, ranked, other), changed(ranked, other))
    ]


# -------------------------------------------------------------------------------------------------------- printing


def _print_json(record: dict[str, Any], compared: Sequence[Compared], ablated: Mapping[str, Compared]) -> None:
    if compared:
        record["compared"] = [one.to_dict() for one in compared]
    if ablated:
        record["without"] = {name: one.to_dict() for name, one in ablated.items()}
    print(json.dumps(record, ensure_ascii=False))


def _text(
    run: EvalRun,
    compared: Sequence[Compared],
    against: Sequence[Compared],
    ablated: Mapping[str, Compared],
    *,
    presets: bool,
) -> str:
    from jiyi.evaluation.report import (
        ablation_tables,
        difference_rows,
        difference_table,
        presets_table,
        scores_table,
        timings,
    )

    lines = [*scores_table(run.scores), "", *timings(run)]
    if compared:
        lines += ["", *presets_table([run, *(one.run for one in compared if one.run is not None)])]
    if presets and compared:
        for group in [name for name in ("all", "adversarial") if name in run.scores]:
            lines += ["", f"others − {run.name}, in points, with the 95 % interval of a paired bootstrap: {group}"]
            lines += difference_rows({one.name: one for one in compared}, group, "configuration", run.scores)
        compared = []
    for one in [*compared, *against]:
        lines += ["", *difference_table(one.name, run.name, one, run.scores)]
    if ablated:
        lines += ["", *ablation_tables(run.name, ablated, run.scores)]
    return "\n".join(lines)


class _Shown:
    """Progress on a terminal, a line of its own for each thing that is counted. A context manager."""

    def __init__(self) -> None:
        self._what = ""
        self._progress: Progress | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        if what != self._what:
            self._clear()
            self._what, self._progress = what, Progress(what)
        if self._progress is not None:
            self._progress.update(done, done / total if total else None)

    def _clear(self) -> None:
        if self._progress is not None:
            self._progress.clear()

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()
