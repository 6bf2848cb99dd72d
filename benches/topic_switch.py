"""How often a message is rightly, and wrongly, taken for a new topic: by words alone, and with the table that ships.

    python benches/topic_switch.py LOCOMO TALK QUESTIONS

Three eval sets as `jiyi eval` reads them, none of which ships: half of LoCoMo (turns in sessions, English questions),
talk in Chinese whose queries are turns of one side in a row (MADial-Bench), and questions in Chinese on something else
(CMRC 2018). The table holds what the docstring of `jiyi.topic` says.
"""

from __future__ import annotations

import random
import re
import sys
from collections import defaultdict
from itertools import pairwise

from jiyi.evaluation import read_eval_set
from jiyi.models import load_embedder
from jiyi.relatedness import Relatedness
from jiyi.topic import Turn, new_topic

#: What was said before, and the message.
Case = tuple[list[str], str]


def english(folder: str, rng: random.Random) -> dict[str, list[Case]]:
    """Turns after the two before them, and questions after two turns of some session."""
    eval_set = read_eval_set(folder)
    sessions: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    for memory in eval_set.memories:
        sessions[memory.namespace, memory.session].append(re.sub(r"\[image:.*?\]", "", memory.text))
    talks = list(sessions.values())
    return {
        "English, same topic": [(talk[i - 2 : i], talk[i]) for talk in talks for i in range(3, len(talk))],
        "English, unrelated question": [(rng.choice(talks)[3:5], question.query) for question in eval_set.questions],
    }


def chinese(talk: str, questions: str, rng: random.Random) -> dict[str, list[Case]]:
    """Turns of one side in a row; openings of other talks, and unrelated questions, after an opening."""
    turns = [re.split("(?<=[？！。]) ", question.query) for question in read_eval_set(talk).questions]
    openings = [said[0] for said in turns]
    unrelated = [question.query for question in read_eval_set(questions).questions]
    return {
        "Chinese, same topic": [([a], b) for said in turns for a, b in pairwise(said)],
        "Chinese, opening of another talk": [([opening], rng.choice(openings)) for opening in openings],
        "Chinese, unrelated question": [([opening], rng.choice(unrelated)) for opening in openings],
    }


def main() -> None:
    """Print the share of messages that are taken for a new topic."""
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    rng = random.Random(0)
    related = Relatedness(load_embedder("e5-static-256").embed)
    for name, cases in (english(sys.argv[1], rng) | chinese(sys.argv[2], sys.argv[3], rng)).items():
        shares = []
        for how in (None, related):
            left = [
                new_topic(said, [Turn(text, i == 0) for i, text in enumerate(before)], how) for before, said in cases
            ]
            shares.append(100 * sum(topic is not None for topic in left) / len(left))
        print(f"{name:34} {len(cases):5}   words {shares[0]:5.1f} %   with the table {shares[1]:5.1f} %")


if __name__ == "__main__":
    main()
