"""Searching several namespaces: the answer is that of one that holds all of them."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jiyi
from jiyi.config import IndexConfig
from jiyi.memory import Memory
from jiyi.spaces import checked_namespaces, names_in, only_name
from tests.engine.embedders import HashEmbedder, HashTable, PairScorer

NOW = 1_770_000_000.0
DAY = 86_400.0
WORDS = {
    "en": "tea coffee hiking trail deploy redis cache friday meeting garden train ticket piano lesson winter".split(),
    "zh": "喜欢 徒步 咖啡 龙井茶 部署 缓存 周五 会议 花园 火车票 钢琴课 冬天 越野 路线 服务器".split(),
}
NAMES = ["ana", "org/team/a", "org/team/b", "小明", "100%_a*"]


# --------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name", ["ana", "a*", "*", "**", "a\\*", "a\\\\*", "\\*", "a\\", "100%_", "org/team/*", "小明*", "a*b", "\u200b*"]
)
def test_exact_names_that_namespace_and_no_other(name: str) -> None:
    with jiyi.open(embedder=None) as engine:
        engine.add("hiking", namespace=name, id="own")
        for other in ("a", "ab", "org/team/x", "a*c", "小明明", "\\", "a\\b", "\u200bz", "***"):
            engine.add("hiking", namespace=other)
        asked = jiyi.exact_namespace(name)
        assert only_name(asked) == name
        for given in (asked, [asked], (asked, asked)):
            assert engine.search("hiking", namespace=given, k=50).ids == ["own"]
            assert engine.count(namespace=given) == 1
            assert [memory.id for memory in engine.list(namespace=given)] == ["own"]


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("org/*", ["org/a", "org/a/b", "org/"]),
        ("org*", ["org", "org/a", "org/a/b", "org/", "organ"]),
        ("org/a*", ["org/a", "org/a/b"]),
        ("100%*", ["100%"]),
        ("_*", ["_x"]),
        ("小*", ["小明", "小明/工作"]),
        ("O*", ["Org/a"]),
        ("nobody*", []),
        ("a\\\\*", ["a\\*", "a\\b"]),
        ("\U0001f600*", ["\U0001f600\U0010ffff"]),
    ],
)
def test_a_prefix_is_plain_text(prefix: str, found: list[str]) -> None:
    names = "org org/a org/a/b org/ organ Org/a 100% 1000 _x yx 小明 小明/工作 大明 a\\* a\\b a* \U0001f600\U0010ffff"
    with jiyi.open(embedder=None) as engine:
        for name in names.split():
            engine.add("tea 茶", namespace=name, id=name)
        assert sorted(engine.search("tea", namespace=prefix, k=50).ids) == sorted(found)
        assert engine.count(namespace=prefix) == len(found)
        assert sorted(memory.namespace for memory in engine.list(namespace=[prefix])) == sorted(found)


def test_star_alone_is_all_of_them_and_lists_mix(engine: jiyi.Engine) -> None:
    for name in NAMES:
        engine.add("hiking 徒步", namespace=name, id=name)
    assert sorted(engine.search("徒步", namespace="*", k=9).ids) == sorted(NAMES)
    assert engine.count(namespace="*") == engine.count(namespace=None) == len(NAMES)
    asked = ["org/team/*", "小明", "org/team/a", "nobody", "小明"]
    assert sorted(engine.search("hiking", namespace=asked, k=9).ids) == ["org/team/a", "org/team/b", "小明"]
    assert [hit.memory.namespace for hit in engine.search("hiking", namespace=("小明", "nobody"))] == ["小明"]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ([], ValueError, "empty list"),
        ((), ValueError, "empty list"),
        ([""], ValueError, "empty"),
        ("", ValueError, "empty"),
        (["ana", 3], TypeError, "int in it"),
        ({"ana": 1}, TypeError, "a list of them, got dict"),
        ({"ana"}, TypeError, "a list of them, got set"),
        (b"ana", TypeError, "bytes"),
        (["a\0b"], ValueError, "U\\+0000"),
        (["x" * 513], ValueError, "513"),
        ("x" * 513 + "*", ValueError, "513"),
        ("\ud800*", ValueError, "surrogate"),
        (None, TypeError, "NoneType"),
    ],
)
def test_what_is_no_namespace_is_an_error(engine: jiyi.Engine, given: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        engine.search("hiking", namespace=given)
    with pytest.raises(error, match=said):
        engine.build_context(["hiking"], namespace=given)
    if given is not None:
        with pytest.raises(error, match=said):
            engine.list(namespace=given)
        with pytest.raises(error, match=said):
            engine.count(namespace=given)


def test_calls_that_write_take_exactly_one_name(engine: jiyi.Engine) -> None:
    engine.add("hiking", namespace="a*", id="x")
    engine.add("hiking", namespace="ab", id="x")
    calls = [
        lambda n: engine.add("tea", namespace=n),
        lambda n: engine.add_many(["tea"], namespace=n),
        lambda n: engine.update("x", namespace=n, text="tea"),
        lambda n: engine.delete("x", namespace=n),
        lambda n: engine.forget({}, namespace=n),
        lambda n: engine.reinforce("x", namespace=n),
        lambda n: engine.get("x", namespace=n),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="namespace must be text, got list; give exactly one"):
            call(["a*", "ab"])
    with pytest.raises(ValueError, match="takes no prefix"):
        engine.forget({}, namespace="ab*")
    with pytest.raises(ValueError, match="takes no prefix"):
        engine.forget({}, namespace="ab*", dry_run=True)
    # As they are called: no prefix, whatever they end in.
    assert engine.forget({}, namespace="a*", dry_run=True) == 1
    assert engine.get("x", namespace="a*").namespace == "a*"
    assert engine.forget({}, namespace="a*") == 1
    assert engine.count(namespace="ab") == 1


def test_names_are_looked_up_as_they_are_stored() -> None:
    assert checked_namespaces(["b", "a", "b"]) == ("b", "a")
    assert checked_namespaces("b*") == "b*"
    assert only_name("b*") is None
    assert only_name(("b",)) == "b"
    assert only_name(("a", "b")) is None
    with jiyi.open(embedder=None) as engine:
        engine.add_many([Memory(text="x", namespace=name) for name in ("b", "ba", "a")])
        assert names_in(engine._store.ledger, ("b*", "ba", "zz")) == ["b", "ba", "zz"]


# ----------------------------------------------------------------------------------------------- one merged namespace


class Twins:
    """Two stores with the same history, one of them in several namespaces. Ids and texts are the same in both."""

    def __init__(self, seed: int, folder: Path, embedder: Any, dim: int | None = None) -> None:
        self.rng = random.Random(seed)
        self.names = NAMES[: self.rng.randint(1, 5)]
        self.folder, self.embedder, self.dim = folder, embedder, dim
        self.home: dict[str, str] = {}
        self.count = 0
        self.open()

    def open(self) -> None:
        given: dict[str, Any] = {"embedder": self.embedder, "dim": self.dim}
        self.split = jiyi.open(self.folder / "split", **given)
        self.merged = jiyi.open(self.folder / "merged", **given)

    def close(self) -> None:
        self.split.close()
        self.merged.close()

    def words(self, count: int) -> str:
        language = self.rng.choice(("en", "zh"))
        words = self.rng.choices(WORDS[language], k=count)
        return " ".join(words) if language == "en" else "".join(words)

    def memory(self) -> tuple[str, dict[str, Any], Any]:
        rng = self.rng
        name = rng.choice(self.names)
        # What only matters within a namespace bears its name: sessions, and what facts are about.
        fields: dict[str, Any] = {
            "id": f"m{self.count}",
            "timestamp": NOW - rng.choice((0, 1, 5, 60, 400)) * DAY - rng.randint(-5, 5),
            "session": rng.choice((None, f"{name} s1", f"{name} s2")),
            "speaker": rng.choice((None, None, "Ana", "小明")),
            "metadata": {"mood": rng.choice(("good", "bad")), "n": rng.randint(0, 3)},
            "expires_at": rng.choice((None, None, None, NOW, NOW - DAY, NOW + DAY)),
            "kind": rng.choice(("episodic", "episodic", "archival", "procedural")),
        }
        text = self.words(rng.choice((1, 2, 4, 8, 20)))
        if rng.random() < 0.25:
            fields |= {"kind": "semantic", "subject": f"{rng.choice('XY')} {name}", "predicate": "likes"}
            fields["object"] = text
        self.count += 1
        self.home[fields["id"]] = name
        vector = None
        if self.dim is not None and rng.random() < 0.8:
            vector = np.array([rng.gauss(0, 1) for _ in range(self.dim)])
        return name, {"text": text, **fields}, vector

    def step(self) -> None:
        rng = self.rng
        known = sorted(self.home)
        kind = rng.random()
        if kind < 0.3 or len(known) < 5:
            name, fields, vector = self.memory()
            self.split.add({**fields, "namespace": name}, vector=vector)
            self.merged.add(fields, vector=vector)
        elif kind < 0.6:
            batch = [self.memory() for _ in range(rng.randint(2, 12))]
            vectors = None if self.dim is None else [vector for *_, vector in batch]
            self.split.add_many([{**fields, "namespace": name} for name, fields, _ in batch], vectors=vectors)
            self.merged.add_many([fields for _, fields, _ in batch], vectors=vectors)
        elif kind < 0.7:
            chosen = rng.choice(known)
            self.split.delete(chosen, namespace=self.home.pop(chosen))
            self.merged.delete(chosen)
        elif kind < 0.8:
            chosen, text = rng.choice(known), self.words(5)
            self.split.update(chosen, namespace=self.home[chosen], text=text)
            self.merged.update(chosen, text=text)
        elif kind < 0.85:
            chosen = rng.choice(known)
            self.split.reinforce(chosen, namespace=self.home[chosen], now=NOW - DAY)
            self.merged.reinforce(chosen, now=NOW - DAY)
        else:
            self.compare()

    def question(self) -> tuple[str, dict[str, Any]]:
        rng = self.rng
        where = rng.choice(
            (
                None,
                None,
                {"kind": {"in": ["episodic", "semantic"]}},
                {"metadata.mood": "good", "timestamp": {"gte": NOW - 10 * DAY}},
                {"speaker": "小明"},
                {"not": {"metadata.n": {"gt": 1}}},
                {"id": "nothing"},
            )
        )
        settings: dict[str, Any] = {
            "k": rng.choice((1, 3, 10, 60)),
            "where": where,
            "now": NOW,
            "as_of": rng.choice((None, None, NOW - 3 * DAY)),
            "preset": rng.choice((None, None, "keyword", "dense", "late")),
            "diversity": rng.choice(("jaccard", "jaccard", "cosine", "none")),
            "fusion": rng.choice(("weighted", "weighted", "rrf")),
            "normalization": rng.choice(("minmax", "minmax", "zscore", "rank")),
            "rerank": rng.choice(((), (), "bm25", PairScorer())),
            "reinforcement": rng.choice(("none", "last_use", "half_life")),
            "neighbor_share": rng.choice((0.0, 0.8)),
            "pool_min": rng.choice((1, 5, 50)),
            "neighbors": rng.choice((0, 0, 2)),
        }
        if self.dim is not None and rng.random() < 0.8:
            settings["query_vector"] = np.array([rng.gauss(0, 1) for _ in range(self.dim)])
        return rng.choice((self.words(2), self.words(5), f"{self.words(1)} Ana 小明", "")), settings

    def compare(self) -> None:
        text, settings = self.question()
        asked = self.rng.choice((self.names, tuple(map(jiyi.exact_namespace, reversed(self.names))), "*"))
        if isinstance(asked, list):
            asked = [jiyi.exact_namespace(name) for name in asked]
        several = self.split.search(text, namespace=asked, **settings)
        one = self.merged.search(text, **settings)
        assert several.ids == one.ids, (text, settings)
        assert several.scores == one.scores  # to the bit
        assert [hit.factors for hit in several] == [hit.factors for hit in one]
        for theirs, ours in zip(several, one, strict=True):
            assert [turn.id for turn in theirs.before] == [turn.id for turn in ours.before]
            assert [turn.id for turn in theirs.after] == [turn.id for turn in ours.after]
        assert several.degraded == one.degraded
        assert several.plans == one.plans
        assert [hit.memory.namespace for hit in several] == [self.home[memory_id] for memory_id in one.ids]
        assert (several[:1] == []) == (one[:1] == [])


@pytest.mark.parametrize(
    ("embedder", "dim"),
    [(HashTable(), None), (HashEmbedder(), None), (None, 8), (None, None)],
    ids=["table", "embedder", "vectors", "words"],
)
@pytest.mark.parametrize("seed", range(4))
def test_several_namespaces_answer_as_one(
    seed: int, embedder: Any, dim: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jiyi.partition._SETTLE_ROWS", 10)
    with closing(Twins(seed, tmp_path, embedder, dim)) as twins:
        for _ in range(60):
            twins.step()
        for _ in range(15):
            twins.compare()
        twins.close()
        twins.open()
        for _ in range(15):
            twins.compare()
        twins.split.compact(now=NOW)
        twins.merged.compact(now=NOW)
        for _ in range(15):
            twins.compare()


def test_equal_texts_of_two_namespaces_stand_as_they_were_stored(engine: jiyi.Engine) -> None:
    """A namespace numbers its words as it meets them; that must not show in the last bit of a score."""
    words = WORDS["en"] + WORDS["zh"]
    rng = random.Random(3)
    engine.search("tea", namespace=["a", "b"])
    for name in ("a", "b"):  # loaded one after the other, so that each meets the words in another order
        engine.add(" ".join(rng.sample(words, 20)), namespace=name)
        engine.search("tea", namespace=name)
    for i in range(40):
        text = " ".join(rng.choices(words, k=9))
        for name in rng.sample(["a", "b"], 2):
            engine.add(text, namespace=name, id=f"{i:02} {name}", timestamp=NOW)
    stored = [(memory.namespace, memory.id) for memory in engine.list(namespace=["a", "b"])]
    for _ in range(30):
        hits = engine.search(" ".join(rng.sample(words, 7)), namespace=["a", "b"], k=60, now=NOW, diversity="none")
        by_text: dict[str, list[Any]] = {}
        for hit in hits:
            by_text.setdefault(hit.memory.text, []).append((hit.score, (hit.memory.namespace, hit.memory.id)))
        for copies in by_text.values():
            assert len({score for score, _ in copies}) == 1
            places = [stored.index(place) for _, place in copies]
            assert places == sorted(places)


def test_a_session_of_the_same_name_is_another_one_in_another_namespace(engine: jiyi.Engine) -> None:
    for name, texts in (("a", ["where is the key?", "unrelated"]), ("b", ["other", "under the mat, by the door"])):
        for i, text in enumerate(texts):
            engine.add(text, namespace=name, session="s", id=f"{name}{i}", timestamp=NOW + i)
    hits = {hit.memory.id: hit.factors["lent"] for hit in engine.search("key", namespace=["a", "b"], now=NOW)}
    assert hits["a1"] is not None
    assert hits.get("b1") is None


@pytest.mark.parametrize(("subject", "object"), [("Ana", "tea"), ("小明", "龙井茶")])
def test_facts_supersede_within_a_namespace_only(engine: jiyi.Engine, subject: str, object: str) -> None:
    for name, when in (("a", NOW), ("b", NOW + 1)):
        engine.add(
            Memory.fact(subject, "likes", f"{object} {name}", id=name, timestamp=when, namespace=name),
        )
    engine.add(Memory.fact(subject, "likes", f"{object} new", id="c", timestamp=NOW + 2, namespace="a"))
    assert sorted(engine.search(object, namespace=["a", "b"], now=NOW + 9).ids) == ["b", "c"]
    assert sorted(engine.search(object, namespace=["a", "b"], as_of=NOW + 1).ids) == ["a", "b"]


def test_facts_lead_to_others_of_their_namespace(engine: jiyi.Engine) -> None:
    for name in ("a", "b"):
        placed: dict[str, Any] = {"namespace": name, "timestamp": NOW}
        engine.add(Memory.fact("Ana", "works at", f"Initech {name}", id=f"work {name}", **placed))
        engine.add(Memory.fact(f"Initech {name}", "has its seat in", "莱比锡", id=f"seat {name}", **placed))
    hits = engine.search("where is Ana's employer", namespace="*", k=9, now=NOW, fact_hops=1)
    led = {hit.memory.id: hit.factors["led"]["by"] for hit in hits if hit.factors.get("led") is not None}
    assert led == {"seat a": "work a", "seat b": "work b"}


def test_indexed_plans_obey_the_same_walls(tmp_path: Path, hash_embedder: HashEmbedder) -> None:
    config = IndexConfig(dense_rows=20, keyword_rows=20)
    rng = random.Random(5)
    with jiyi.open(tmp_path, embedder=hash_embedder, index_config=config) as engine:
        for name in ("a", "b", "c"):
            engine.add_many(
                [
                    Memory(
                        text=" ".join(rng.choices(WORDS["en"] + WORDS["zh"], k=6)),
                        namespace=name,
                        id=f"{name}{i}",
                        timestamp=NOW,
                        metadata={"even": i % 2 == 0},
                    )
                    for i in range(60 if name != "c" else 5)
                ]
            )
        engine.flush()
        asked: dict[str, Any] = {"namespace": ["a", "c", "b"], "k": 8, "now": NOW, "where": {"metadata.even": True}}
        indexed = engine.search("龙井茶 hiking trail", dense_plan="indexed", keyword_plan="indexed", **asked)
        exactly = engine.search("龙井茶 hiking trail", dense_plan="exact", keyword_plan="exact", **asked)
        assert indexed.plans == {"dense": "indexed", "keyword": "indexed"}
        assert exactly.plans == {"dense": "exact", "keyword": "exact"}
        assert indexed.ids == exactly.ids
        assert indexed.scores == exactly.scores


# ------------------------------------------------------------------------------------------------------ other calls


def test_search_many_is_several_searches(engine: jiyi.Engine) -> None:
    for i, name in enumerate(NAMES):
        engine.add(f"{WORDS['en'][i]} {WORDS['zh'][i]} hiking", namespace=name, id=name, timestamp=NOW)
    settings: dict[str, Any] = {"namespace": ["ana", "org/*"], "now": NOW, "rerank": PairScorer()}
    queries = ["hiking", "徒步", "tea"]
    assert [hits.ids for hits in engine.search_many(queries, **settings)] == [
        engine.search(query, **settings).ids for query in queries
    ]


def test_the_same_id_in_two_namespaces_is_two_memories(engine: jiyi.Engine) -> None:
    for name in ("a", "b"):
        engine.add(f"hiking 徒步 {name}", namespace=name, id="same", kind="archival", timestamp=NOW)
    hits = engine.search("徒步", namespace=["a", "b"], now=NOW)
    assert [(hit.memory.namespace, hit.memory.id) for hit in hits] == [("a", "same"), ("b", "same")]
    context = engine.build_context(["hiking?"], namespace=["a", "b"], now=NOW, reinforce=True)
    assert [(memory.namespace, memory.id) for memory in context.memories] in (
        [("a", "same"), ("b", "same")],
        [("b", "same"), ("a", "same")],
    )
    assert [engine.get("same", namespace=name).uses for name in ("a", "b")] == [1, 1]


def test_a_context_takes_its_slots_from_all(engine: jiyi.Engine) -> None:
    engine.add("用户周末喜欢去徒步", namespace="小明/关于我", kind="archival", id="about", timestamp=NOW - DAY)
    engine.add("Redis is our cache", namespace="小明/工作", id="work", timestamp=NOW)
    engine.add(
        Memory.procedure("Restart Redis", ["drain", "restart"], namespace="team", id="how", timestamp=NOW - 9 * DAY)
    )
    context = engine.build_context(["How do I restart Redis?"], namespace=["小明/*", "team"], now=NOW)
    assert set(context.ids) == {"about", "work", "how"}


def test_what_has_a_record_can_be_replayed(engine: jiyi.Engine) -> None:
    engine.add("hiking", namespace="a*", id="x", timestamp=NOW)
    engine.add("hiking 徒步", namespace="b", id="y", timestamp=NOW)
    hits = engine.search("hiking", namespace=["b", jiyi.exact_namespace("a*")], now=NOW)
    record = type(hits.query_record).from_json(hits.query_record.to_json())
    assert record.namespace == ("b", "a\\*")
    assert set(record.generation) == {"a*", "b"}
    assert engine.replay(record).same
    engine.add("hiking trail hiking", namespace="b", timestamp=NOW)
    assert not engine.replay(record).same
    prefix = engine.search("hiking", namespace="*", now=NOW).query_record
    engine.add("hiking trail", namespace="小明", timestamp=NOW)
    assert "the namespace '小明' is new" in engine.replay(prefix).changes


def test_a_thousand_namespaces_need_no_more_memory_than_the_store_may_take(tmp_path: Path) -> None:
    words = WORDS["en"] + WORDS["zh"]
    rng = random.Random(9)
    memories = [
        Memory(text=" ".join(rng.choices(words, k=5)), namespace=f"user/{i % 200:03}", id=f"{i}", timestamp=NOW)
        for i in range(1_000)
    ]
    with jiyi.open(tmp_path, embedder=None) as engine:
        engine.add_many(memories)
        roomy = engine.search("龙井茶 hiking piano", namespace="user/*", k=20, now=NOW)
    with jiyi.open(tmp_path, embedder=None, memory_budget_mb=0.2) as engine:
        tight = engine.search("龙井茶 hiking piano", namespace="user/*", k=20, now=NOW)
        assert engine.stats()["loaded_bytes"] <= 0.2 * 2**20
        assert engine.stats()["loaded_namespaces"] < 100
    assert tight.ids == roomy.ids
    assert tight.scores == roomy.scores


@pytest.mark.parametrize("memory_budget_mb", [1024, 0.05])
def test_searches_answer_while_others_write(tmp_path: Path, memory_budget_mb: float) -> None:
    names, failed, done = ["a", "b", "小明"], [], threading.Event()

    def write(engine: jiyi.Engine) -> None:
        rng = random.Random(1)
        try:
            for i in range(150):
                name = rng.choice(names)
                engine.add(f"hiking 徒步 {rng.choice(WORDS['zh'])}", namespace=name, id=f"m{i % 20}", timestamp=NOW)
                engine.delete(f"m{rng.randrange(20)}", namespace=rng.choice(names))
                if i % 40 == 39:
                    engine.compact()
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    with jiyi.open(tmp_path, embedder=None, memory_budget_mb=memory_budget_mb) as engine:
        writer = threading.Thread(target=write, args=(engine,))
        writer.start()
        searched = 0
        while not done.is_set() or searched < 20:
            searched += 1
            hits = engine.search("徒步 hiking", namespace=names, k=10, now=NOW, where={"text": {"exists": True}})
            places = [(hit.memory.namespace, hit.memory.id) for hit in hits]
            assert len(set(places)) == len(places)
            assert {name for name, _ in places} <= set(names)
        writer.join()
        assert failed == []
        stored = {(memory.namespace, memory.id) for memory in engine.list(namespace=names)}
        hits = engine.search("徒步 hiking", namespace=names, k=100, now=NOW)
        assert {(hit.memory.namespace, hit.memory.id) for hit in hits} == stored


@pytest.mark.parametrize("memory_budget_mb", [1024, 0.02])
def test_a_reindex_on_the_way_starts_the_search_again(memory_budget_mb: float) -> None:
    class Reindexing(HashEmbedder):
        """Puts another model in its place while a query is embedded."""

        engine: jiyi.Engine | None = None

        def embed_query(self, text: str) -> Any:
            if (engine := self.engine) is not None:
                self.engine = None
                engine.reindex(HashEmbedder(16, "other"))
            return super().embed_query(text)

    embedder = Reindexing()
    with jiyi.open(embedder=embedder, memory_budget_mb=memory_budget_mb) as engine:
        for i in range(40):
            engine.add(f"hiking 徒步 {WORDS['en'][i % 15]}", namespace=f"n{i % 8}", id=f"{i}", timestamp=NOW)
        embedder.engine = engine
        hits = engine.search("hiking piano", namespace="*", now=NOW)
        assert hits.query_record.vectors == "other"
        again = engine.search("hiking piano", namespace="*", now=NOW)
    assert (hits.ids, hits.scores) == (again.ids, again.scores)


def test_nothing_stored_anywhere_is_an_empty_answer(engine: jiyi.Engine) -> None:
    for namespace in (["a", "b"], "a*", "*"):
        hits = engine.search("hiking 徒步", namespace=namespace)
        assert hits.ids == []
        assert "nothing found" in hits.explain()
        assert engine.build_context(["hiking"], namespace=namespace).text == ""
    engine.add("hiking", namespace="a", id="x")
    engine.delete("x", namespace="a")
    assert engine.search("hiking", namespace=["a", "b"]).ids == []
    assert engine.search("hiking", namespace=["a", "b"], k=0).ids == []


def test_an_embedder_gets_the_question_once(engine: jiyi.Engine) -> None:
    from tests.engine.embedders import SpyEmbedder

    spy = SpyEmbedder()
    with jiyi.open(embedder=spy) as opened:
        for i in range(30):  # "ana" is in nearly every memory of all together, and in none of the second namespace
            opened.add(f"ana {WORDS['en'][i % 15]}", namespace="a", timestamp=NOW)
        opened.add("piano", namespace="b", timestamp=NOW)
        opened.search("ana piano", namespace=["a", "b"], now=NOW)
    assert spy.queries == ["piano"]
