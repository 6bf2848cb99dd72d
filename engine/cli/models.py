"""`jiyi models`: which embedders and cross-encoders there are, and how to get more."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jiyi.cli.errors import CommandError, UsageError, arguments
from jiyi.cli.options import Commands, add_json, text_of
from jiyi.cli.output import note
from jiyi.explain import aligned
from jiyi.models.build.precision import E5_SMALL, PRECISIONS, checked_precision, e5_name
from jiyi.models.errors import ModelUnavailableError
from jiyi.models.files import ModelFilesError
from jiyi.models.known import KNOWN, Known
from jiyi.quoted import quoted

if TYPE_CHECKING:
    from jiyi.models.records import ModelRecord

_BUILDABLE: Final = "e5-small"
_BUILT: Final = {"role": "embedder", **E5_SMALL, "needs": "pip install 'jiyi[e5]'"}


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command and its own commands to the parser."""
    models = commands.add_parser(
        "models",
        help="list, pull, build and add models",
        description="Embedders and cross-encoders: those on this machine, and those that can be had. What is pulled or "
        "built goes into the folder that JIYI_CACHE names, else into the user's cache.",
        allow_abbrev=False,
    )
    parts = models.add_subparsers(
        dest="part", metavar="COMMAND", title="commands", required=True, parser_class=type(models)
    )
    listing = _part(parts, "list", _list, "show the models on this machine and those that can be had")
    add_json(listing)
    info = _part(parts, "info", _info, "show what is known of one model", name="the model")
    add_json(info, "print one JSON object")
    pull = _part(
        parts, "pull", _pull, "download a model from the Hugging Face hub", name="a name of `jiyi models list`"
    )
    pull.add_argument("--again", action="store_true", help="ask the hub even if the model is there")
    build = _part(parts, "build", _build, "make e5-small, without a network", name=_BUILDABLE)
    build.add_argument(
        "--precision",
        metavar="P",
        default=PRECISIONS[0],
        help=f"{', '.join(PRECISIONS)} (%(default)s): int4 is exact and smallest, int8 fastest",
    )
    build.add_argument("--again", action="store_true", help="build it even if it is there")
    _part(parts, "path", _path, "print the folder of a model", name="a model on this machine")
    add = _part(parts, "add", _add, "give a name to a model in a folder of your own", name="the name it gets")
    add.add_argument("folder", metavar="FOLDER", help="holds model.onnx and tokenizer.json; it stays where it is")
    add.add_argument(
        "--role", choices=("embedder", "cross-encoder"), help="what it is, where that is not seen by itself"
    )


def _part(
    parts: Commands[argparse.ArgumentParser], command: str, run: Any, what: str, *, name: str | None = None
) -> argparse.ArgumentParser:
    parser = parts.add_parser(command, help=what, description=f"{what[0].upper()}{what[1:]}.", allow_abbrev=False)
    if name is not None:
        parser.add_argument("name", metavar="NAME", help=name)
    parser.set_defaults(run=run)
    return parser


@contextmanager
def _models() -> Iterator[None]:
    """Turn what a model's name or state makes impossible into the command's error."""
    try:
        with arguments():
            yield
    except ModelUnavailableError as error:
        raise CommandError(str(error)) from error


# ----------------------------------------------------------------------------------------------------------- list, info


def _list(args: argparse.Namespace) -> int:
    from jiyi.models.records import available

    records = available()
    here = {record.name for record in records}
    to_pull = [known for known in KNOWN.values() if known.name not in here]
    to_build = [name for name in (_BUILDABLE,) if name not in here]
    if args.json:
        for record in records:
            print(json.dumps(record.to_dict() | {"available": record.problem is None}, ensure_ascii=False))
        for name in to_build:
            print(json.dumps({"name": name, **_BUILT, "origin": "build", "available": False}, ensure_ascii=False))
        for known in to_pull:
            print(json.dumps(_known_dict(known) | {"origin": "pull", "available": False}, ensure_ascii=False))
        _tell_damage(records)
        return 0
    rows = [["name", "role", "from", "languages", "size", "licence"]]
    rows += [
        [
            record.name,
            record.role or "?",
            record.origin if record.problem is None else f"{record.origin}, damaged",
            _languages(record.languages),
            _megabytes(record.bytes),
            record.licence or "-",
        ]
        for record in records
    ]
    languages = _languages(tuple(E5_SMALL["languages"]))
    rows += [[name, "embedder", "to build", languages, "60 MB", E5_SMALL["licence"]] for name in to_build]
    rows += [
        [known.name, _role(known), "to pull", _languages(known.languages), "-", _licence(known)] for known in to_pull
    ]
    print("\n".join(aligned(rows)))
    _tell_damage(records)
    return 0


def _tell_damage(records: Sequence[ModelRecord]) -> None:
    """Tell what cannot be loaded and what to do, and what is wrong with the list of the user's own models."""
    from jiyi.models.cache import added_models
    from jiyi.models.registry import advice_for

    for record in records:
        if record.problem is not None:
            note(f"{record.name} cannot be loaded: {record.problem}; {advice_for(record)}")
    try:
        added_models()
    except ModelFilesError as error:
        note(f"models that were added are not listed: {error}")


def _info(args: argparse.Namespace) -> int:
    from jiyi.models.records import find
    from jiyi.models.registry import advice_for

    name = text_of(args.name, "NAME")
    record, known = find(name), KNOWN.get(name)
    if record is None and known is None and name != _BUILDABLE:
        raise UsageError(f"there is no model {quoted(name)}; `jiyi models list` shows those there are")
    rows: dict[str, Any] = {"name": name}
    if known is not None:
        rows |= _known_dict(known)
    if record is not None:
        told = {key: value for key, value in record.to_dict().items() if value not in (None, [], "")}
        rows |= told | {"available": record.problem is None}
        if record.problem is not None:
            rows["how"] = advice_for(record)
    else:
        rows |= _BUILT if known is None else {}
        rows["available"] = False
        rows["how"] = f"jiyi models {'pull' if known is not None else 'build'} {name}"
    if args.json:
        print(json.dumps(rows, ensure_ascii=False))
        return 0
    if known is not None:
        rows["revision"] = known.revision or "not pinned"
        rows["sha256"] = known.sha256 or "not pinned"
        rows["licence"] = _licence(known)
    rows["languages"] = _languages(tuple(rows.get("languages", ())))
    for key, value in rows.items():
        print(f"{key:16}{_shown(value)}")
    return 0


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value in (None, "") else f"{value:,}" if isinstance(value, int) else str(value)


def _known_dict(known: Known) -> dict[str, Any]:
    return {
        "name": known.name,
        "role": _role(known),
        "languages": list(known.languages),
        "licence": known.licence,
        "commercial": known.commercial,
        "max_tokens": known.max_tokens,
        "repository": known.repository,
        "file": known.file,
        "revision": known.revision,
        "sha256": known.sha256,
    } | {
        key: getattr(known, key)
        for key in ("dim", "pooling", "query_prefix", "passage_prefix", "activation", "note")
        if getattr(known, key)
    }


def _role(known: Known) -> str:
    return known.kind.removeprefix("onnx-")


def _licence(known: Known) -> str:
    return (known.licence or "-") + ("" if known.commercial else " (not for commercial use)")


def _languages(languages: tuple[str, ...]) -> str:
    return "about 100" if languages == ("*",) else " ".join(languages) or "-"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size else "-"


# ------------------------------------------------------------------------------------------- pull, build, path and add


def _pull(args: argparse.Namespace) -> int:
    from jiyi.models.hub import pull

    name = text_of(args.name, "NAME")
    if name == _BUILDABLE:
        raise UsageError(f"{name} is built, not pulled: `jiyi models build {name}`")
    known = KNOWN.get(name)
    if known is not None and not known.commercial:
        note(f"{name} has the licence {known.licence}: not for commercial use")
    with _models(), _Steps() as steps:
        folder = pull(name, again=args.again, asking=lambda: steps.tell(f"asking the hub for {name}"))
    print(folder)
    return 0


def _build(args: argparse.Namespace) -> int:
    from jiyi.models.build.export_e5 import build_e5_small

    name = text_of(args.name, "NAME")
    with _models():
        precision = checked_precision(args.precision)
        if name not in (_BUILDABLE, e5_name(precision)):
            raise UsageError(f"there is no recipe for {quoted(name)}; `jiyi models build` makes {_BUILDABLE}")
        with _Steps() as steps:
            folder = build_e5_small(precision, again=args.again, progress=steps.show)
    print(folder)
    return 0


class _Steps:
    """The step that a build is at, on a terminal; nothing in a pipe."""

    def __init__(self) -> None:
        self._enabled = sys.stderr.isatty()

    def show(self, done: int, steps: int, what: str) -> None:
        """Show what comes next."""
        if self._enabled:
            print(
                f"\r{done + 1}/{steps}  {what} ...\x1b[K" if done < steps else "\r\x1b[K",
                end="",
                file=sys.stderr,
                flush=True,
            )

    def tell(self, what: str) -> None:
        """Show the only step there is, in a pipe as well: it may take half a minute to find that nothing answers."""
        if self._enabled:
            self.show(0, 1, what)
        else:
            note(what)

    def __enter__(self) -> _Steps:
        return self

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _path(args: argparse.Namespace) -> int:
    from jiyi.models.minilm import MINILM, minilm_folder
    from jiyi.models.records import find

    name = text_of(args.name, "NAME")
    record = find(name)
    if record is None:
        raise CommandError(f"{_not_here(name)}")
    print(minilm_folder() if name == MINILM and record.origin == "package" else record.folder)
    return 0


def _not_here(name: str) -> str:
    if name in KNOWN:
        return f"{name} is not on this machine; `jiyi models pull {name}` downloads it"
    if name == _BUILDABLE:
        return f"{name} is not on this machine; `jiyi models build {name}` makes it"
    return f"there is no model {quoted(name)}; `jiyi models list` shows those there are"


def _add(args: argparse.Namespace) -> int:
    from jiyi.models.adding import add

    folder = Path(args.folder)
    if not folder.is_dir():
        raise CommandError(f"{folder} is no folder; a model is a folder with model.onnx and tokenizer.json")
    with _models():
        record: ModelRecord = add(text_of(args.name, "NAME"), folder, role=args.role)
    print(f"{record.name}: {record.role}, {record.folder}")
    return 0
