"""How each kind ages, by its own half-life, curve and floor."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import jiyi
from jiyi import Aging, SearchConfig
from jiyi.memory import KINDS

DAY_S = 86400.0
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def recencies(engine: jiyi.Engine, **settings: Any) -> dict[str, float]:
    hits = engine.search("tea 茶", now=NOW, k=10, **settings)
    return {hit.memory.kind: hit.factors["recency"] for hit in hits}


@pytest.fixture
def kinds(engine: jiyi.Engine) -> jiyi.Engine:
    engine.add_many([{"text": f"tea 茶 {kind}", "kind": kind, "timestamp": NOW - timedelta(days=14)} for kind in KINDS])
    return engine


def test_by_default_what_somebody_is_and_how_to_do_things_do_not_age(kinds: jiyi.Engine) -> None:
    assert recencies(kinds) == {"episodic": 0.25, "semantic": 0.25, "archival": 1.0, "procedural": 1.0}


def test_each_kind_has_its_own(kinds: jiyi.Engine) -> None:
    aging = {
        "episodic": {"floor": 0.4},
        "semantic": Aging(half_life_s=28 * DAY_S, curve="linear"),
        "procedural": Aging(half_life_s=14 * DAY_S),
    }
    assert recencies(kinds, aging=aging) == pytest.approx(
        {"episodic": 0.4, "semantic": 0.75, "archival": 1.0, "procedural": 0.5}
    )
    config = SearchConfig(aging=aging, half_life_s=14 * DAY_S)  # type: ignore[arg-type]
    assert recencies(kinds, config=config)["episodic"] == pytest.approx(0.5)
    assert hash(config) is not None


def test_settings_of_aging_are_checked() -> None:
    for aging, error, message in (
        ({"dreams": Aging()}, ValueError, "kinds are episodic"),
        ({"semantic": {"halflife": 3}}, ValueError, "half_life_s, curve, floor"),
        ({"semantic": 3}, TypeError, "an Aging or a mapping"),
        ([("semantic", Aging())], TypeError, "must map kinds"),
        ({"semantic": {"floor": 1.5}}, ValueError, "floor is 1.5"),
        ({"semantic": {"floor": True}}, TypeError, "floor must be a number"),
        ({"semantic": {"half_life_s": 0}}, ValueError, "half_life_s is 0"),
        ({"semantic": {"half_life_s": 1e300}}, ValueError, "at most 1e15"),
        ({"semantic": {"curve": "steep"}}, ValueError, "curve is 'steep'"),
    ):
        with pytest.raises(error, match=message):
            SearchConfig(aging=aging)  # type: ignore[arg-type]


def test_a_kind_that_never_ages(kinds: jiyi.Engine) -> None:
    assert recencies(kinds, aging={"semantic": {"half_life_s": float("inf")}})["semantic"] == 1.0
