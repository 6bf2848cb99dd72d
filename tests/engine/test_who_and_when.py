"""Who said it and when it happened: evidence for a query that names it, and for no other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import jiyi
from jiyi import Memory, SearchConfig

NOW = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)
QUIET = {"now": NOW, "recency_weight": 0, "diversity": "none", "neighbor_share": 0}


@pytest.fixture
def talk(engine: jiyi.Engine) -> jiyi.Engine:
    engine.add_many(
        [
            Memory(text="I adopted a puppy from the shelter", speaker="Melanie", id="m", timestamp=NOW),
            Memory(text="I adopted a puppy from the shelter", speaker="Caroline", id="c", timestamp=NOW),
            Memory(text="我养了一只小狗", speaker="小明", id="明", timestamp=NOW),
            Memory(text="我养了一只小狗", speaker="王芳", id="芳", timestamp=NOW),
            Memory(text="The weather is fine", speaker="Caroline", id="w", timestamp=NOW),
        ]
    )
    return engine


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("What puppy did Caroline adopt?", "c"),
        ("What is Melanie's puppy called?", "m"),
        ("小明养了什么狗", "明"),
        ("王芳養的小狗", "芳"),
    ],
)
def test_the_speaker_that_is_named_is_preferred(talk: jiyi.Engine, query: str, first: str) -> None:
    assert talk.search(query, **QUIET).ids[0] == first


def test_the_bonus_is_in_proportion_and_explained(talk: jiyi.Engine) -> None:
    hits = {hit.memory.id: hit for hit in talk.search("Caroline puppy shelter", speaker_bonus=0.5, **QUIET)}
    plain = {hit.memory.id: hit for hit in talk.search("Caroline puppy shelter", speaker_bonus=0, **QUIET)}
    assert "speaker" not in plain["c"].factors["signals"]
    for name, factor in (("c", 1.5), ("m", 1.0), ("w", 1.5)):
        assert hits[name].score == pytest.approx(plain[name].score * factor / 1.5)
    assert hits["c"].factors["signals"]["speaker"]["raw"] == 1.0
    assert sum(hits["c"].factors["contributions"].values()) == pytest.approx(hits["c"].score)
    assert hits["m"].factors["signals"]["speaker"]["raw"] is None


def test_without_a_named_speaker_nothing_changes(talk: jiyi.Engine) -> None:
    asked = talk.search("who adopted a puppy", **QUIET)
    assert "speaker" not in asked[0].factors["signals"]
    assert asked.scores == talk.search("who adopted a puppy", speaker_bonus=0, **QUIET).scores


def test_naming_everybody_prefers_nobody(talk: jiyi.Engine) -> None:
    hits = talk.search("Do Caroline and Melanie have a puppy?", **QUIET)
    assert hits.ids[:2] == ["m", "c"]  # as stored


def test_what_happened_then_is_preferred(engine: jiyi.Engine) -> None:
    for days in (1, 3, 30, 200):
        engine.add("went hiking 去徒步", id=f"{days}", timestamp=NOW - timedelta(days=days))
    for query, first in (
        ("where did I go hiking yesterday", "1"),
        ("hiking in October 2026", "30"),
        ("上周五徒步", "3"),
        ("三天前徒步了吗", "3"),
        ("5月徒步", "200"),
    ):
        assert engine.search(query, **QUIET).ids[0] == first, query
    near = {hit.memory.id: hit for hit in engine.search("hiking yesterday", **QUIET)}
    date = {name: hit.factors["signals"]["date"]["raw"] for name, hit in near.items()}
    assert date["1"] == 1.0
    assert date["3"] == pytest.approx(2 ** -(1 + 4 / 24))  # 28 hours before that day began
    assert date["30"] is None
    assert engine.search("hiking yesterday", date_bonus=0, **QUIET).ids[0] == "1"  # the date's terms are left
    assert "date" not in engine.search("hiking", **QUIET)[0].factors["signals"]


def test_yesterday_counts_from_the_moment_that_is_given(engine: jiyi.Engine) -> None:
    engine.add("hiking", id="a", timestamp="2026-03-01T10:00:00Z")
    engine.add("hiking", id="b", timestamp="2026-03-02T10:00:00Z")
    settings = QUIET | {"now": "2026-03-02T12:00:00Z"}
    assert engine.search("hiking yesterday", **settings).ids[0] == "a"
    assert engine.search("hiking yesterday", **(settings | {"now": "2026-03-03T12:00:00Z"})).ids[0] == "b"


def test_bonuses_with_reciprocal_ranks(talk: jiyi.Engine) -> None:
    hits = talk.search("Caroline puppy", fusion="rrf", **QUIET)
    assert hits.ids[0] == "c"
    assert all(sum(hit.factors["contributions"].values()) == pytest.approx(hit.score) for hit in hits)


def test_settings_are_checked() -> None:
    for name in ("speaker_bonus", "date_bonus"):
        with pytest.raises(ValueError, match=name):
            SearchConfig(**{name: -0.1})  # type: ignore[arg-type]
