"""Eval sets: memories, and questions with the ids of the memories that answer them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jiyi.errors import JiyiError
from jiyi.ingest import read_memories
from jiyi.jsonl import BadLineError, read_lines
from jiyi.memory import Memory, checked_name
from jiyi.paths import shown
from jiyi.quoted import quoted


class EvalSetError(JiyiError, ValueError):
    """A file is no eval set, or no run."""

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"{shown(source)}: {reason}")


@dataclass(frozen=True, slots=True)
class Question:
    """One line of `queries.jsonl`."""

    qid: str
    namespace: str
    query: str
    relevant: tuple[str, ...]
    """Ids of the memories that answer it; a question without any is asked and not scored."""
    category: str


@dataclass(frozen=True, slots=True)
class EvalSet:
    """An eval set, read and checked."""

    memories: list[Memory]
    questions: list[Question]
    left_out: int = 0
    """Relevant ids of the source that name nothing in it."""

    def unknown_relevant(self) -> int:
        """Return how many relevant ids are of no memory of the question's namespace, and so can never be found."""
        known = {(memory.namespace, memory.id) for memory in self.memories}
        return sum((question.namespace, one) not in known for question in self.questions for one in question.relevant)


def read_eval_set(path: str | os.PathLike[str]) -> EvalSet:
    """Read and check an eval set.

    Args:
        path: a folder with `memories.jsonl` and `queries.jsonl`, or a file in LoCoMo's layout (`read_locomo`).

    Raises:
        BadLineError: a line of either file is wrong.
        EvalSetError: the file is not in LoCoMo's layout.
        FileNotFoundError: a file is missing.
    """
    path = Path(path)
    if path.is_file():
        from jiyi.evaluation.locomo import read_locomo

        return read_locomo(path)
    memories_path, queries_path = path / "memories.jsonl", path / "queries.jsonl"
    with memories_path.open("rb") as stream:
        memories = [line.memory for line in read_memories(stream, str(memories_path))]
    questions: dict[str, Question] = {}
    with queries_path.open("rb") as stream:
        for line in read_lines(stream, str(queries_path)):
            try:
                question = _question(line.record)
                if question.qid in questions:
                    raise ValueError(f"the qid {quoted(question.qid)} was used before; every question needs its own")
            except (TypeError, ValueError) as error:
                raise BadLineError(str(queries_path), line.number, str(error)) from None
            questions[question.qid] = question
    return EvalSet(memories, list(questions.values()))


def _question(record: Mapping[str, Any]) -> Question:
    missing = [name for name in ("qid", "query", "relevant", "category") if name not in record]
    if missing:
        raise ValueError(f"the field {missing[0]} is missing; a question has qid, namespace, query, relevant, category")
    if not isinstance(record["query"], str):
        raise TypeError(f"query must be text, got {type(record['query']).__name__}")
    relevant = record["relevant"]
    if not isinstance(relevant, list):
        raise TypeError(f"relevant must be a list of ids, got {type(relevant).__name__}")
    return Question(
        qid=checked_name(record["qid"], "qid"),
        namespace=checked_name(record.get("namespace", "default"), "namespace"),
        query=record["query"],
        relevant=tuple(checked_name(one, "an id in relevant") for one in relevant),
        category=checked_name(record["category"], "category"),
    )
