"""The demo's memories, messages and questions, read from the files beside this one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from jiyi.evaluation import Question, read_eval_set
from jiyi.jsonl import read_lines
from jiyi.memory import Memory
from jiyi.timestamps import to_datetime

_FOLDER: Final = Path(__file__).parent
NAMESPACE: Final = "lin"


@dataclass(frozen=True, slots=True)
class DemoData:
    """What the demo works on."""

    memories: list[Memory]
    questions: list[Question]
    messages: list[dict[str, Any]]
    """The conversation that the prompt is built for, oldest first."""

    @property
    def now(self) -> datetime:
        """The moment of the last message, from which every age counts."""
        return to_datetime(self.messages[-1]["timestamp"])


def load() -> DemoData:
    """Read the demo's files."""
    eval_set = read_eval_set(_FOLDER)
    with (_FOLDER / "messages.jsonl").open("rb") as stream:
        messages = [line.record for line in read_lines(stream, "messages.jsonl")]
    return DemoData(eval_set.memories, eval_set.questions, messages)
