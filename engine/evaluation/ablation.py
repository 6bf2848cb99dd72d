"""What each ingredient of a configuration is worth: the same without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jiyi.evaluation.configuration import Configuration

#: By ingredient, the settings that switch it off.
INGREDIENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "keyword": {"keyword_weight": 0.0},
    "dense": {"dense_weight": 0.0},
    "late": {"late_weight": 0.0},
    "neighbors": {"neighbor_share": 0.0},
    "speaker bonus": {"speaker_bonus": 0.0},
    "date bonus": {"date_bonus": 0.0},
    "frequent words": {"frequent_share": 1.0},
    "fact hops": {"fact_hops": 0},
    "recency": {"recency_weight": 0.0},
    "outcomes": {"outcome_weight": 0.0},
    "MMR": {"diversity": "none"},
    "rerank": {"rerank": ()},
}

_SIGNALS: Final = ("keyword", "dense", "late")


def ablations(configuration: Configuration) -> dict[str, Configuration]:
    """Return the configuration without each of its ingredients in turn, by ingredient.

    What it does not use is left out, and so is a signal that is its only one. The weights of the signals that stay are
    scaled to sum to 1, as always.
    """
    config = configuration.config
    used = {
        name: settings
        for name, settings in INGREDIENTS.items()
        if any(getattr(config, setting) != off for setting, off in settings.items())
    }
    signals = [name for name in _SIGNALS if name in used]
    if len(signals) == 1:
        del used[signals[0]]
    return {name: configuration.changed(f"without {name}", settings) for name, settings in used.items()}
