"""Runs and judgements in files: `{"qid", "ranked"}` lines, and the two formats of TREC.

TREC's qrels are lines of `qid iteration id relevance`, its runs lines of `qid Q0 id rank score tag`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from jiyi.evaluation.sets import EvalSetError, Question
from jiyi.jsonl import BadLineError, read_lines
from jiyi.quoted import quoted

_QRELS: Final = "qid iteration id relevance"
_RUN: Final = "qid Q0 id rank score tag"


def read_qrels(path: str | os.PathLike[str]) -> list[Question]:
    """Read TREC's judgements as questions without text, of the category "trec", in the order of the file.

    What has a relevance above 0 is relevant; how much above counts for nothing.

    Raises:
        BadLineError: a line is not `qid iteration id relevance`.
        EvalSetError: there are no lines.
        FileNotFoundError: there is no such file.
    """
    relevant: dict[str, dict[str, None]] = {}
    for number, (qid, _, memory_id, grade) in _rows(path, _QRELS):
        try:
            judged = float(grade)
        except ValueError:
            judged = math.nan
        if not math.isfinite(judged):
            raise BadLineError(str(path), number, f"relevance is {quoted(grade)}; it must be a number")
        ids = relevant.setdefault(qid, {})
        if judged > 0:
            ids[memory_id] = None
    if not relevant:
        raise EvalSetError(str(path), f"holds no judgements; TREC's qrels are lines of `{_QRELS}`")
    return [Question(qid, "default", "", tuple(ids), "trec") for qid, ids in relevant.items()]


def read_run(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read ids by qid, best first, from `{"qid", "ranked"}` lines or a TREC run; which of them, the first line says.

    A TREC run is sorted as trec_eval does it: by score, the highest first, of equal ones the last id first; the rank
    that it states counts for nothing.

    Raises:
        BadLineError: a line is neither, or a qid of a JSON line was there before.
        EvalSetError: there are no lines.
        FileNotFoundError: there is no such file.
    """
    with Path(path).open("rb") as stream:
        start = next((line.strip() for line in stream if line.strip(b"\xef\xbb\xbf \t\r\n")), b"")
    if not start:
        raise EvalSetError(
            str(path), f'holds no run; one is lines of {{"qid": …, "ranked": [ids]}}, or of TREC\'s `{_RUN}`'
        )
    return _json_run(path) if start.removeprefix(b"\xef\xbb\xbf").startswith(b"{") else _trec_run(path)


def write_run(path: str | os.PathLike[str], ranked: Mapping[str, Sequence[str]]) -> None:
    """Write one `{"qid", "ranked"}` object a line."""
    with Path(path).open("w", encoding="utf-8", newline="\n") as out:
        for qid, ids in ranked.items():
            out.write(json.dumps({"qid": qid, "ranked": list(ids)}, ensure_ascii=False) + "\n")


def _json_run(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    ranked: dict[str, list[str]] = {}
    with Path(path).open("rb") as stream:
        for line in read_lines(stream, str(path)):
            qid, ids = line.record.get("qid"), line.record.get("ranked")
            if not isinstance(qid, str):
                raise BadLineError(str(path), line.number, f"qid must be text, got {type(qid).__name__}")
            if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
                raise BadLineError(str(path), line.number, "ranked must be a list of ids, best first")
            if qid in ranked:
                raise BadLineError(str(path), line.number, f"the qid {quoted(qid)} was there before")
            ranked[qid] = ids
    return ranked


def _trec_run(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    scores: dict[str, dict[str, float]] = {}
    for number, (qid, _, memory_id, _, score, _) in _rows(path, _RUN):
        try:
            value = float(score)
        except ValueError:
            value = math.nan
        if math.isnan(value):
            raise BadLineError(str(path), number, f"score is {quoted(score)}; it must be a number")
        scores.setdefault(qid, {}).setdefault(memory_id, value)
    return {
        qid: [memory_id for memory_id, _ in sorted(ids.items(), key=lambda item: (item[1], item[0]), reverse=True)]
        for qid, ids in scores.items()
    }


def _rows(path: str | os.PathLike[str], columns: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of every line that holds something."""
    with Path(path).open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                cells = line.decode("utf-8-sig" if number == 1 else "utf-8").split()
            except UnicodeDecodeError as error:
                raise BadLineError(str(path), number, f"is not UTF-8 ({error}); convert the file to UTF-8") from None
            if not cells:
                continue
            if len(cells) != len(columns.split()):
                raise BadLineError(str(path), number, f"has {len(cells)} columns; it must be `{columns}`")
            yield number, cells
