"""The first seed's reranker: its worked examples, a plain-Python copy of it, and lists from anywhere."""

from __future__ import annotations

import copy
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jiyi.memory import Memory
from jiyi.rerank import DefaultReranker, RerankerConfig
from jiyi.text import tokenize

NOW = datetime(2026, 3, 23, 12, tzinfo=UTC)
DAY_S = 86400.0

TYPESCRIPT = [
    {"id": "ts1", "content": "writing TypeScript backend with Express for REST API", "metadata": {"timestamp": NOW}},
    {"id": "ts2", "content": "building TypeScript backend API using Express framework", "metadata": {"timestamp": NOW}},
    {"id": "ts3", "content": "creating TypeScript REST API service with Express", "metadata": {"timestamp": NOW}},
    {
        "id": "py",
        "content": "analyzing data with Python TypeScript integration pipeline",
        "metadata": {"timestamp": NOW},
    },
]


def ids(items: Sequence[Any]) -> list[Any]:
    return [item["id"] for item in items]


def item(id_: str, text: str, age_s: float | None = 0.0) -> dict[str, Any]:
    return {"id": id_, "text": text, "timestamp": None if age_s is None else NOW - timedelta(seconds=age_s)}


# ------------------------------------------------------------------------------------------- the seed's examples


def test_jaccard_of_the_two_chinese_sentences_is_4_of_11() -> None:
    rows = DefaultReranker().explain("用户用 TypeScript 写后端 API", ["用户决定用 TypeScript 开发 API"], now=NOW)

    assert rows[0].jaccard == 4 / 11


def test_worked_example_at_lambda_0_6() -> None:
    reranker = DefaultReranker(RerankerConfig(recency_weight=0.0, mmr_lambda=0.6, max_results=3))

    assert ids(reranker.rerank("TypeScript", TYPESCRIPT, now=NOW)) == ["ts2", "py", "ts3"]


def test_worked_example_numbers_on_the_way() -> None:
    reranker = DefaultReranker(RerankerConfig(recency_weight=0.0, mmr_lambda=0.6, max_results=4))

    rows = reranker.explain("TypeScript", TYPESCRIPT, now=NOW)

    assert [row.id for row in rows] == ["ts2", "py", "ts3", "ts1"]
    assert [row.rank for row in rows] == [1, 2, 3, 4]
    assert [round(row.jaccard, 3) for row in rows] == [0.143, 0.143, 0.143, 0.125]
    # 0.6 × 0.143; 0.6 × 0.143 − 0.4 × 0.077; 0.6 × 0.143 − 0.4 × 0.273
    assert rows[0].mmr_score == pytest.approx(0.6 / 7)
    assert rows[1].mmr_score == pytest.approx(0.6 / 7 - 0.4 / 13)
    assert rows[2].mmr_score == pytest.approx(0.6 / 7 - 0.4 * 3 / 11)
    assert [round(row.mmr_score, 3) for row in rows[:3]] == [0.086, 0.055, -0.023]
    assert [row.because_of for row in rows] == [None, "ts2", "ts2", "ts3"]


def test_worked_example_score_of_the_one_not_chosen() -> None:
    # Without ts3 the choice comes to ts1 at the moment the seed shows: 0.6 × 0.125 − 0.4 × 0.364 = −0.071.
    three = [entry for entry in TYPESCRIPT if entry["id"] != "ts3"]
    reranker = DefaultReranker(RerankerConfig(recency_weight=0.0, mmr_lambda=0.6))

    rows = reranker.explain("TypeScript", three, now=NOW)

    assert [row.id for row in rows] == ["ts2", "py", "ts1"]
    assert rows[2].penalty == 4 / 11
    assert rows[2].mmr_score == pytest.approx(0.6 / 8 - 0.4 * 4 / 11)
    assert round(0.6 * rows[2].blended - 0.4 * round(rows[2].penalty, 3), 3) == -0.071  # the seed rounds 4/11 first


def test_worked_example_with_equal_recency_has_the_same_order() -> None:
    reranker = DefaultReranker(RerankerConfig(mmr_lambda=0.6, max_results=3))

    assert ids(reranker.rerank("TypeScript", TYPESCRIPT, now=NOW)) == ["ts2", "py", "ts3"]


def test_pure_relevance_takes_three_of_typescript() -> None:
    reranker = DefaultReranker(RerankerConfig(recency_weight=0.0, mmr_lambda=1.0, max_results=2))

    assert ids(reranker.rerank("TypeScript", TYPESCRIPT, now=NOW)) == ["ts2", "ts3"]


@pytest.mark.parametrize(("age_days", "expected"), [(0, 1.0), (7, 0.5), (14, 0.25), (21, 0.125), (3.5, 2**-0.5)])
def test_half_life_of_seven_days(age_days: float, expected: float) -> None:
    row = DefaultReranker().explain("tea", [item("a", "tea", age_days * DAY_S)], now=NOW)[0]

    assert row.recency == pytest.approx(expected, abs=1e-12)
    assert row.blended == pytest.approx(0.9 * 1.0 + 0.1 * expected)
    assert row.age_s == age_days * DAY_S


def test_defaults_are_the_seeds() -> None:
    assert RerankerConfig() == RerankerConfig(
        recency_weight=0.1, half_life_s=7 * 86400, mmr_lambda=0.7, mmr_candidate_window=20, max_results=5
    )


# --------------------------------------------------------------------------------- a plain copy of the seed's code


def seed_rerank(query: str, items: list[dict[str, Any]], config: RerankerConfig) -> list[str]:
    def jaccard(a: str, b: str) -> float:
        left, right = set(tokenize(a)), set(tokenize(b))
        return len(left & right) / len(left | right) if left | right else 0.0

    scored = []
    for entry in items:
        similarity = jaccard(query, entry["text"])
        age_s = max((NOW - entry["timestamp"]).total_seconds(), 0.0)
        if config.recency_weight > 0:
            recency = float(np.exp2(-age_s / config.half_life_s))
            similarity = similarity * (1 - config.recency_weight) + recency * config.recency_weight
        scored.append((similarity, entry))
    scored.sort(key=lambda pair: -pair[0])
    remaining = scored[: config.mmr_candidate_window]
    selected: list[tuple[float, dict[str, Any]]] = []
    while len(selected) < config.max_results and remaining:
        best, best_score = 0, -math.inf
        for i, (similarity, entry) in enumerate(remaining):
            worst = max((jaccard(entry["text"], other["text"]) for _, other in selected), default=0.0)
            score = config.mmr_lambda * similarity - (1 - config.mmr_lambda) * worst
            if score > best_score:
                best, best_score = i, score
        selected.append(remaining.pop(best))
    return [entry["id"] for _, entry in selected]


WORDS = st.sampled_from("redis cache 徒 步 周 末 hiking python 茶".split())
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)


@given(
    query=TEXTS,
    rows=st.lists(st.tuples(TEXTS, st.integers(-5, 40)), min_size=2, max_size=12),
    config=st.builds(
        RerankerConfig,
        recency_weight=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        mmr_lambda=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
        mmr_candidate_window=st.integers(1, 12),
        max_results=st.integers(1, 12),
    ),
)
def test_agrees_with_a_plain_copy_of_the_seed(query: str, rows: list[tuple[str, int]], config: RerankerConfig) -> None:
    items = [item(str(i), text, age * DAY_S) for i, (text, age) in enumerate(rows)]

    assert ids(DefaultReranker(config).rerank(query, items, now=NOW)) == seed_rerank(query, items, config)


def test_relevance_is_not_min_maxed() -> None:
    rows = DefaultReranker(RerankerConfig(recency_weight=0.0)).explain(
        "tea", [item("a", "tea with milk"), item("b", "tea with milk and sugar")], now=NOW
    )

    assert [(row.jaccard, row.blended) for row in rows] == [(1 / 3, 1 / 3), (1 / 5, 1 / 5)]


def test_window_is_cut_before_mmr() -> None:
    copies = [item(f"copy{i}", "tea") for i in range(3)]
    other = item("other", "tea and cake")
    narrow = DefaultReranker(RerankerConfig(mmr_lambda=0.0, mmr_candidate_window=3, max_results=2))
    wide = DefaultReranker(RerankerConfig(mmr_lambda=0.0, mmr_candidate_window=4, max_results=2))

    assert ids(narrow.rerank("tea", [*copies, other], now=NOW)) == ["copy0", "copy1"]
    assert ids(wide.rerank("tea", [*copies, other], now=NOW)) == ["copy0", "other"]


def test_no_more_than_the_window_come_back() -> None:
    reranker = DefaultReranker(RerankerConfig(mmr_candidate_window=2, max_results=5))

    assert len(reranker.rerank("tea", [item(str(i), f"tea {i}") for i in range(4)], now=NOW)) == 2


# ----------------------------------------------------------------------------------------------- lists from anywhere


def test_returns_the_callers_own_objects_unmodified() -> None:
    items = [item("a", "tea"), item("b", "coffee"), item("c", "tea and coffee")]
    before = copy.deepcopy(items)

    answer = DefaultReranker().rerank("coffee", items, now=NOW)

    assert ids(answer) == ["b", "c", "a"]
    assert all(any(got is given for given in items) for got in answer)
    assert items == before


@pytest.mark.parametrize("items", [[], [{"no": "fields at all"}]])
def test_none_or_one_come_back_as_they_are(items: list[Any]) -> None:
    answer = DefaultReranker().rerank("tea", items, now=NOW)

    assert answer == items
    assert all(got is given for got, given in zip(answer, items, strict=True))


def test_memories() -> None:
    old = Memory(text="tea in the morning", timestamp=NOW - timedelta(days=30))
    new = Memory(text="tea in the morning", timestamp=NOW)

    assert DefaultReranker().rerank("tea", [old, new], now=NOW)[0] is new


def test_hits_by_their_memory() -> None:
    hits = [SimpleNamespace(memory=Memory(text=text, id=text, timestamp=NOW), score=0.5) for text in ("cake", "tea")]

    rows = DefaultReranker().explain("tea", hits, now=NOW)

    assert [row.id for row in rows] == ["tea", "cake"]
    assert rows[0].item is hits[1]


def test_objects_with_attributes() -> None:
    @dataclass
    class Document:
        content: str
        metadata: dict[str, Any] = field(default_factory=dict)

    documents = [Document("cake"), Document("tea", {"timestamp": "2026-03-01T00:00:00Z"})]

    rows = DefaultReranker().explain("tea", documents, now=NOW)

    assert [row.item for row in rows] == [documents[1], documents[0]]
    assert [row.age_s for row in rows] == [22.5 * DAY_S, None]


def test_texts_alone() -> None:
    assert DefaultReranker().rerank("茶", ["咖啡", "喝茶"], now=NOW) == ["喝茶", "咖啡"]


def test_named_fields_and_functions() -> None:
    items = [
        {"key": 1, "value": {"body": "cake"}, "created.at": NOW.timestamp()},
        {"key": 2, "value": {"body": "tea"}, "created.at": NOW.timestamp() - 7 * DAY_S},
    ]
    by_name = DefaultReranker(text="value.body", timestamp="created.at", id="key")
    by_function = DefaultReranker(
        text=lambda entry: entry["value"]["body"],
        timestamp=lambda entry: entry["created.at"],
        id=lambda entry: entry["key"],
    )

    for reranker in (by_name, by_function):
        rows = reranker.explain("tea", items, now=NOW)
        assert [(row.id, row.age_s) for row in rows] == [(2, 7 * DAY_S), (1, 0.0)]


def test_content_counts_where_text_is_none() -> None:
    items = [{"id": "a", "text": None, "content": "tea"}, {"id": "b", "text": "cake"}]

    assert ids(DefaultReranker().rerank("tea", items, now=NOW)) == ["a", "b"]


def test_a_generator_is_read_once() -> None:
    assert ids(DefaultReranker().rerank("tea", (item(text, text) for text in ("cake", "tea")), now=NOW)) == [
        "tea",
        "cake",
    ]


# ------------------------------------------------------------------------------------------------------- corner cases


def test_ties_go_to_the_earlier_item() -> None:
    items = [item(str(i), f"word{i}") for i in range(30)]

    assert ids(DefaultReranker().rerank("nothing shared", items, now=NOW)) == ["0", "1", "2", "3", "4"]


def test_an_id_counts_once_at_its_first_place() -> None:
    items = [item("a", "tea"), item("b", "cake"), item("a", "tea and cake and more")]

    answer = DefaultReranker().rerank("tea", items, now=NOW)

    assert ids(answer) == ["a", "b"]
    assert answer[0] is items[0]


def test_items_without_ids_are_all_different_and_known_by_place() -> None:
    items = [{"text": "cake"}, {"text": "tea", "id": None}, {"text": "tea"}]

    rows = DefaultReranker(RerankerConfig(mmr_lambda=0.5)).explain("tea", items, now=NOW)

    assert [row.id for row in rows] == [1, 0, 2]
    assert rows[2].because_of == 1


def test_uuids_and_numbers_are_ids() -> None:
    key = uuid.uuid4()
    rows = DefaultReranker().explain("tea", [{"id": key, "text": "tea"}, {"id": 7, "text": "cake"}], now=NOW)

    assert [row.id for row in rows] == [key, 7]


def test_an_unknown_time_is_recency_0_and_never_speaks_for_an_item() -> None:
    unknown, old, new = item("unknown", "tea", None), item("old", "tea", 14 * DAY_S), item("new", "tea")
    reranker = DefaultReranker(RerankerConfig(mmr_lambda=1.0))

    rows = reranker.explain("tea", [unknown, old, new], now=NOW)

    assert [(row.id, row.recency, row.age_s) for row in rows] == [
        ("new", 1.0, 0.0),
        ("old", 0.25, 14 * DAY_S),
        ("unknown", 0.0, None),
    ]


def test_items_that_all_lack_a_time_keep_the_order_of_relevance() -> None:
    items = [{"text": "tea and cake"}, {"text": "tea"}]

    assert DefaultReranker().rerank("tea", items, now=NOW) == [items[1], items[0]]


@pytest.mark.parametrize("ahead", [timedelta(days=1), timedelta(days=365), datetime.max.replace(tzinfo=UTC) - NOW])
def test_the_future_is_age_0(ahead: timedelta) -> None:
    config = RerankerConfig(half_life_s=1.0)
    row = DefaultReranker(config).explain("tea", [{"text": "tea", "timestamp": NOW + ahead}], now=NOW)[0]

    assert (row.age_s, row.recency, row.blended) == (0.0, 1.0, 1.0)


def test_naive_datetimes_are_utc_and_all_forms_of_a_time_agree() -> None:
    moment = NOW - timedelta(days=7)
    forms = [
        moment.replace(tzinfo=None),
        moment.astimezone(timezone(timedelta(hours=8))),
        moment.isoformat(),
        moment.timestamp(),
    ]

    rows = DefaultReranker().explain(
        "tea", [{"text": f"tea {i}", "timestamp": form} for i, form in enumerate(forms)], now=NOW
    )

    assert [row.recency for row in rows] == [pytest.approx(0.5)] * 4


def test_now_is_the_present_when_left_out() -> None:
    row = DefaultReranker().explain("tea", [{"text": "tea", "timestamp": "2020-01-01"}])[0]

    assert row.age_s is not None
    assert row.age_s > 5 * 365 * DAY_S


@pytest.mark.parametrize("text", ["", "！？", "👍", "\x00\u202e", "x" * 10_000, "\ud800"])
def test_any_text_is_a_query_and_an_item(text: str) -> None:
    items = [{"text": text}, {"text": "tea"}]

    assert len(DefaultReranker().rerank(text, items, now=NOW)) == 2


def test_two_empty_texts_are_not_alike() -> None:
    rows = DefaultReranker().explain("", [{"text": ""}, {"text": "！"}], now=NOW)

    assert [(row.jaccard, row.penalty, row.because_of) for row in rows] == [(0.0, 0.0, None)] * 2


@given(st.lists(TEXTS, min_size=2, max_size=8, unique=True))
def test_lambda_1_is_the_order_of_blended_scores(texts: list[str]) -> None:
    config = RerankerConfig(mmr_lambda=1.0, max_results=8)
    rows = DefaultReranker(config).explain("redis 茶", [{"text": text} for text in texts], now=NOW)

    scores = [row.blended for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert [row.mmr_score for row in rows] == scores


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"recency_weight": -0.1}, ValueError, "recency_weight is -0.1; it must be a number from 0 to 1"),
        ({"recency_weight": 1.5}, ValueError, "0 to 1"),
        ({"recency_weight": math.nan}, ValueError, "recency_weight is nan"),
        ({"recency_weight": "0.1"}, TypeError, "recency_weight is '0.1' \\(str\\)"),
        ({"mmr_lambda": 1.01}, ValueError, "mmr_lambda is 1.01"),
        ({"mmr_lambda": True}, TypeError, "mmr_lambda is True"),
        ({"half_life_s": 0}, ValueError, "half_life_s is 0.0; it must be a finite number of seconds above 0"),
        ({"half_life_s": math.inf}, ValueError, "half_life_s"),
        ({"half_life_s": timedelta(days=7)}, TypeError, "half_life_s"),
        ({"mmr_candidate_window": 0}, ValueError, "mmr_candidate_window is 0; it must be a whole number from 1 on"),
        ({"max_results": -1}, ValueError, "max_results is -1"),
        ({"max_results": 2.5}, TypeError, "max_results is 2.5 \\(float\\)"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        RerankerConfig(**settings)


@pytest.mark.parametrize(
    ("second", "error", "said"),
    [
        ({"id": "b"}, ValueError, "item 1 \\(dict\\) has no text or content or page_content or memory.text; say where"),
        ({"text": b"tea"}, TypeError, "the text of item 1 is bytes; it must be text \\(decode bytes first\\)"),
        (
            {"text": "tea", "timestamp": 1_774_267_200_000},
            ValueError,
            "timestamp of item 1 1774267200000 looks like millisec",
        ),
        (
            {"text": "tea", "timestamp": "last week"},
            ValueError,
            "timestamp of item 1 'last week' is not an ISO 8601 time",
        ),
        ({"text": "tea", "timestamp": math.nan}, ValueError, "timestamp of item 1 is n"),
        ({"text": "tea", "timestamp": [2026]}, TypeError, "timestamp of item 1 must be a datetime"),
        ({"text": "tea", "id": ["b"]}, TypeError, "the id of item 1 is list"),
        (None, ValueError, "item 1 \\(NoneType\\) has no text"),
    ],
)
def test_bad_items_are_named(second: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        DefaultReranker().rerank("tea", [item("a", "tea"), second], now=NOW)


@pytest.mark.parametrize("name", ["timestamp", "id"])
def test_a_named_field_that_no_item_has_is_misspelt(name: str) -> None:
    with pytest.raises(ValueError, match=f"no item has the field 'createdat' that {name}= names"):
        DefaultReranker(**{name: "createdat"}).rerank("tea", [item("a", "tea"), item("b", "cake")], now=NOW)


def test_a_named_field_that_some_items_have_is_unknown_for_the_others() -> None:
    items = [{"text": "tea", "at": NOW}, {"text": "cake"}]

    assert [row.age_s for row in DefaultReranker(timestamp="at").explain("tea", items, now=NOW)] == [0.0, None]


@pytest.mark.parametrize(
    ("query", "items", "said"),
    [
        (None, [], "query is NoneType; it must be text"),
        ("tea", "tea", "items is str; it must be a list of items"),
        ("tea", {"id": "a", "text": "tea"}, "items is dict"),
        ("tea", 5, "items is int"),
    ],
)
def test_bad_arguments(query: Any, items: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        DefaultReranker().rerank(query, items)


def test_bad_construction() -> None:
    with pytest.raises(TypeError, match="config is dict; pass a RerankerConfig"):
        DefaultReranker({"max_results": 3})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="text is int; it must be the name of a field or a function"):
        DefaultReranker(text=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="id is empty"):
        DefaultReranker(id="")
