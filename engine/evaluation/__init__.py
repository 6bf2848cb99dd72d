"""Measures retrieval: eval sets and runs of several forms, metrics, paired comparison, ablation, quality and latency.

`jiyi eval` is this on the command line.
"""

from jiyi.evaluation.ablation import INGREDIENTS, ablations
from jiyi.evaluation.configuration import Configuration, configured, read_configuration
from jiyi.evaluation.differences import Difference, changed, compare
from jiyi.evaluation.evaluator import EvalRun, Evaluator, evaluate
from jiyi.evaluation.frontier import draw_frontier
from jiyi.evaluation.locomo import read_locomo
from jiyi.evaluation.runs import read_qrels, read_run, write_run
from jiyi.evaluation.scoring import ADVERSARIAL, METRICS, score
from jiyi.evaluation.sets import EvalSet, EvalSetError, Question, read_eval_set

__all__ = [
    "ADVERSARIAL",
    "INGREDIENTS",
    "METRICS",
    "Configuration",
    "Difference",
    "EvalRun",
    "EvalSet",
    "EvalSetError",
    "Evaluator",
    "Question",
    "ablations",
    "changed",
    "compare",
    "configured",
    "draw_frontier",
    "evaluate",
    "read_configuration",
    "read_eval_set",
    "read_locomo",
    "read_qrels",
    "read_run",
    "score",
    "write_run",
]
