"""Settings by name: what each stands for, where a name can be given, and which models it brings or leaves alone."""

from __future__ import annotations

import json
import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import jiyi
from jiyi.cli import main
from jiyi.config import PRESETS, SHIPPED_CROSS_ENCODER, SearchConfig, preset_named
from jiyi.evaluation import EvalSet, Question, evaluate
from jiyi.hits import Hits
from jiyi.memory import Memory
from jiyi.models import available, records, registry
from tests.engine.conftest import Child
from tests.engine.embedders import HashTable, PairScorer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ["fast", "balanced", "best", "keyword", "dense", "late"]
TEXTS = ["I love hiking on the trail", "Redis is the database", "green tea in the morning", "周末喜欢去徒步"]

needs_the_cross_encoder = pytest.mark.skipif(
    not any(record.name == SHIPPED_CROSS_ENCODER for record in available()), reason="its weights are not here"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no model of an installed package."""
    monkeypatch.setenv("JIYI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(records, "minilm_installed", lambda: False)
    return tmp_path / "cache"


@pytest.fixture
def ranker(monkeypatch: pytest.MonkeyPatch) -> PairScorer:
    """A scorer in the place of the cross-encoder that ships."""
    scorer = PairScorer(name=SHIPPED_CROSS_ENCODER)

    def load(name: str, *, device: str) -> PairScorer:
        assert name == SHIPPED_CROSS_ENCODER
        return scorer

    monkeypatch.setattr("jiyi.search.load_cross_encoder", load)
    return scorer


def install(cache: Path, source: Path, name: str) -> None:
    """Put a model into the cache under one of the names that a new store looks for."""
    folder = cache / "models" / name
    shutil.copytree(source, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "name": name}))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedder of two layers with random weights, 32 wide."""
    pytest.importorskip("onnx", reason="needs the extra test")
    from tests.models.tiny_onnx import make_folder

    return make_folder(tmp_path_factory.mktemp("models") / "tiny", manifest={"dim": 32})


def answer(hits: Hits) -> dict[str, Any]:
    given = hits.to_dict()
    json.dumps(given, allow_nan=False)
    assert hits.explain()
    del given["timings_ms"]
    return given


# ------------------------------------------------------------------------------------------------- what they are


def test_the_names_are_those_documented() -> None:
    assert list(PRESETS) == NAMES
    assert all(name in jiyi.Engine.search.__doc__ for name in NAMES)  # type: ignore[operator]


def test_fast_is_the_default_and_asks_no_model() -> None:
    assert PRESETS["fast"] == SearchConfig()
    assert PRESETS["fast"].rerank == ()


def test_best_is_balanced_with_the_cross_encoder_that_ships() -> None:
    balanced = PRESETS["balanced"]
    assert balanced.rerank == ()
    assert balanced.dense_weight > PRESETS["fast"].dense_weight
    assert balanced.dense_weight + balanced.keyword_weight + balanced.late_weight == pytest.approx(1.0)
    assert balanced.with_overrides({"rerank": ("rerank-en",)}) == PRESETS["best"]


@pytest.mark.parametrize("name", ["keyword", "dense", "late"])
def test_one_signal_alone(name: str) -> None:
    with jiyi.open(embedder=HashTable()) as engine:
        engine.add_many(TEXTS)
        hits = engine.search("hiking on the trail", preset=name)
        assert hits[0].memory.text == TEXTS[0]
        assert {signal: factor["weight"] for signal, factor in hits[0].factors["signals"].items()} == {name: 1.0}
        others = {f"{signal}_weight": 0.0 for signal in ("keyword", "dense", "late") if signal != name}
        assert PRESETS[name] == SearchConfig(**others)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["nonsense", "", "FAST", " fast", 5, ["fast"], {"fast": 1}, b"fast"])
def test_an_unknown_name_lists_those_that_exist(engine: jiyi.Engine, folder: Path, name: Any) -> None:
    said = "unknown preset .*; presets are fast, balanced, best, keyword, dense, late"
    for call in (
        lambda: preset_named(name),
        lambda: engine.search("tea", preset=name),
        lambda: engine.search_many(["tea"], preset=name),
        lambda: engine.build_context(["tea"], preset=name),
        lambda: jiyi.open(folder, preset=name),
    ):
        with pytest.raises(ValueError, match=said):
            call()
    assert not folder.exists()


# ------------------------------------------------------------------------------------------- where they are given


@pytest.mark.parametrize("name", NAMES)
def test_open_and_search_take_every_preset_alike(name: str, ranker: PairScorer) -> None:
    with jiyi.open(embedder=HashTable(), preset=name) as opened, jiyi.open(embedder=HashTable()) as plain:
        memories = [Memory(text=text, id=f"t{i}", timestamp=NOW) for i, text in enumerate(TEXTS)]
        opened.add_many(memories)
        plain.add_many(memories)
        assert opened.config == PRESETS[name]
        by_opening = answer(opened.search("hiking and tea", now=NOW))
        assert by_opening["hits"]
        assert answer(plain.search("hiking and tea", preset=name, now=NOW)) == by_opening
        assert answer(plain.search("hiking and tea", config=PRESETS[name], now=NOW)) == by_opening
        (many,) = plain.search_many(["hiking and tea"], preset=name, now=NOW)
        assert answer(many) == by_opening
        assert plain.build_context(["hiking and tea"], preset=name).memories
        # What a search names counts, not what the engine was opened with.
        assert answer(opened.search("hiking and tea", preset="keyword", now=NOW)) == answer(
            plain.search("hiking and tea", preset="keyword", now=NOW)
        )
    assert bool(ranker.calls) == (name == "best")


def test_single_settings_change_a_preset() -> None:
    with jiyi.open(embedder=HashTable(), preset="keyword") as engine:
        engine.add_many(TEXTS)
        hits = engine.search("hiking", preset="fast", late_weight=0)
        assert list(hits[0].factors["signals"]) == ["dense", "keyword"]
        with pytest.raises(ValueError, match="all 0"):
            engine.search("hiking", preset="late", late_weight=0)
        with pytest.raises(TypeError, match="unknown search setting"):
            engine.search("hiking", preset="late", presets="fast")


def test_a_preset_and_a_config_are_one_too_many(engine: jiyi.Engine, folder: Path) -> None:
    for call in (
        lambda: jiyi.open(folder, preset="fast", config=SearchConfig()),
        lambda: engine.search("tea", preset="fast", config=SearchConfig()),
        lambda: engine.search_many(["tea"], preset="fast", config=SearchConfig()),
    ):
        with pytest.raises(ValueError, match="a preset or a config, not both"):
            call()
    assert not folder.exists()


EVAL = EvalSet(
    [Memory(text=text, id=f"t{i}", timestamp=NOW) for i, text in enumerate(TEXTS)],
    [Question("q1", "default", "hiking trail", ("t0",), "one"), Question("q2", "default", "徒步", ("t3",), "two")],
)


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_takes_every_preset(name: str, ranker: PairScorer) -> None:
    run = evaluate(EVAL, preset=name, embedder=HashTable(), k=4)
    assert run.scores["all"]["recall@5"] == 1.0
    assert run.degraded == {}
    assert bool(ranker.calls) == (name == "best")


@pytest.mark.parametrize(("name", "used"), [("balanced", True), ("fast", False), (None, False)])
def test_evaluation_takes_the_transformer_that_a_new_store_would(
    cache: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, used: bool
) -> None:
    from jiyi.models.onnx_embedder import OnnxEmbedder

    install(cache, tiny, "e5-small")
    embedded: list[str] = []
    embed = OnnxEmbedder.embed

    def spied(self: OnnxEmbedder, texts: Any) -> Any:
        embedded.extend(texts)
        return embed(self, texts)

    monkeypatch.setattr(OnnxEmbedder, "embed", spied)
    assert evaluate(EVAL, preset=name, k=4).degraded == {}
    assert embedded == (TEXTS if used else [])


def test_evaluation_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "memories.jsonl").write_text(json.dumps({"text": TEXTS[0], "id": "a"}) + "\n")
    question = {"qid": "q", "namespace": "default", "query": "hiking", "relevant": ["a"], "category": "one"}
    (tmp_path / "queries.jsonl").write_text(json.dumps(question) + "\n")
    for name in ("fast", "balanced", "keyword", "dense", "late"):
        assert main(["eval", str(tmp_path), "--preset", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["scores"]["all"]["recall@1"] == 1.0
    assert main(["eval", str(tmp_path), "--preset", "nonsense"]) == 2
    assert "presets are fast, balanced, best" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- models that they bring


def _model_of(folder: Path) -> dict[str, Any]:
    ledger = sqlite3.connect(folder / "ledger.sqlite")
    try:
        manifest = dict(ledger.execute("SELECT key, value FROM manifest"))
    finally:
        ledger.close()
    return {key: manifest.get(key) for key in ("embedder", "dim", "table")}


TABLE = {"embedder": "e5-static-256", "dim": 256, "table": None}
TRANSFORMER = {"embedder": "e5-small", "dim": 32, "table": "e5-static-256"}


@pytest.mark.parametrize("name", [None, *NAMES])
def test_a_new_store_takes_a_transformer_where_one_is_installed(
    folder: Path, cache: Path, tiny: Path, name: str | None
) -> None:
    install(cache, tiny, "e5-small")
    with jiyi.open(folder, preset=name) as engine:
        engine.add_many(TEXTS)
        hits = engine.search("hiking", rerank=())
        assert hits[0].memory.text == TEXTS[0]
        assert hits.degraded == ()
    assert _model_of(folder) == (TRANSFORMER if name in ("balanced", "best") else TABLE)
    with jiyi.open(folder, preset="balanced") as engine:  # a store keeps its model, whatever it is opened for
        assert engine.search("hiking").degraded == ()
        engine.add("more")
    with jiyi.open(folder) as engine:
        assert engine.search("hiking").degraded == ()
        assert engine.stats()["mismatch"] is None


@pytest.mark.parametrize("name", ["balanced", "best"])
def test_and_the_table_that_ships_where_none_is(folder: Path, name: str) -> None:
    with jiyi.open(folder, preset=name) as engine:
        engine.add_many(TEXTS)
        hits = engine.search("hiking", rerank=())
        assert list(hits[0].factors["signals"]) == ["dense", "keyword", "late"]
        assert hits.degraded == ()
    assert _model_of(folder) == TABLE


def test_the_best_of_those_installed_is_taken(folder: Path, cache: Path, tiny: Path) -> None:
    install(cache, tiny, "bge-m3")
    install(cache, tiny, "multilingual-e5-small")
    install(cache, tiny, "bge-small-en-v1.5")
    with jiyi.open(folder, preset="balanced") as engine:
        engine.add("tea")
    assert _model_of(folder)["embedder"] == "multilingual-e5-small"


def test_a_model_that_reads_one_language_is_not_taken(folder: Path, cache: Path, tiny: Path) -> None:
    install(cache, tiny, "bge-small-en-v1.5")
    with jiyi.open(folder, preset="balanced") as engine:
        engine.add("tea")
    assert _model_of(folder) == TABLE


def test_an_embedder_that_is_named_counts_more_than_the_preset(folder: Path, cache: Path, tiny: Path) -> None:
    install(cache, tiny, "e5-small")
    with jiyi.open(folder, preset="balanced", embedder="e5-static-256") as engine:
        engine.add("tea")
    assert _model_of(folder) == TABLE
    with jiyi.open(preset="balanced", embedder=None) as engine:
        engine.add("tea")
        assert engine.stats()["embedder"] is None
        assert engine.search("tea").ids


def test_a_transformer_that_is_damaged_leaves_words(folder: Path, cache: Path, tiny: Path) -> None:
    install(cache, tiny, "e5-small")
    (cache / "models" / "e5-small" / "model.onnx").write_bytes(b"\x00" * 100)
    with jiyi.open(folder, preset="balanced") as engine:
        with pytest.raises(jiyi.ModelError, match=r"model\.onnx"):
            engine.add("tea")
        assert engine.count() == 0
        assert list(engine.search("tea")) == []
    (cache / "models" / "e5-small" / "manifest.json").write_text("{")  # and this one is not even a candidate
    with jiyi.open(folder, preset="balanced") as engine:
        engine.add("tea")
    assert _model_of(folder) == TABLE


def test_several_scorers_on_the_command_line(
    folder: Path, ranker: PairScorer, capsys: pytest.CaptureFixture[str]
) -> None:
    with jiyi.open(folder) as engine:
        engine.add_many(TEXTS)

    def reranked(value: str) -> list[str]:
        assert main(["search", "tea", "--store", str(folder), "--json", "--explain", "--set", f"rerank={value}"]) == 0
        return list(json.loads(capsys.readouterr().out.splitlines()[0])["factors"].get("reranked", ()))

    assert reranked(f"bm25,{SHIPPED_CROSS_ENCODER}") == ["bm25", SHIPPED_CROSS_ENCODER]
    assert reranked(f'["{SHIPPED_CROSS_ENCODER}", "bm25"]') == [SHIPPED_CROSS_ENCODER, "bm25"]
    assert reranked("bm25") == ["bm25"]
    assert reranked("") == []


def test_a_store_whose_own_model_was_damaged_since_says_so(folder: Path, cache: Path, tiny: Path) -> None:
    install(cache, tiny, "e5-small")
    with jiyi.open(folder, preset="balanced") as engine:
        engine.add("tea")
    model = cache / "models" / "e5-small" / "model.onnx"
    content = model.read_bytes()
    for damage in (content[:-5], content[:-5] + b"flip!"):
        model.write_bytes(damage)
        registry._loaded.clear()
        with jiyi.open(folder) as engine:
            hits = engine.search("tea")
            assert [hit.memory.text for hit in hits] == ["tea"]
            (told,) = [str(note) for note in hits.degraded if note.stage == "dense"]
            assert "which cannot be loaded (" in told
            assert "model.onnx" in told
            assert "mend it" in told
            assert engine.stats()["mismatch"] in told
            with pytest.raises(jiyi.ModelMismatchError, match="cannot be loaded") as refused:
                engine.add("more")
            assert refused.value.damage is not None
    model.unlink()
    (model.parent / "manifest.json").unlink()
    model.parent.joinpath("tokenizer.json").unlink()
    model.parent.rmdir()
    with jiyi.open(folder) as engine, pytest.raises(jiyi.ModelMismatchError, match="open it with"):
        engine.add("more")  # there is no such model: nothing is damaged


def test_damage_to_what_ships_is_told_and_takes_no_other_model(
    folder: Path, cache: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "manifest.json").write_text("{")
    for module in ("jiyi.models.records", "jiyi.models.registry", "jiyi.models.static", "jiyi.embedders"):
        monkeypatch.setattr(f"{module}.SHIPPED_FOLDER", weights)
    install(cache, tiny, "bge-small-en-v1.5")

    def damaged() -> Any:
        raise jiyi.models.ModelFilesError(weights / "manifest.json", "is not a manifest")

    monkeypatch.setattr("jiyi.models.static.StaticEmbedder.load", damaged)
    with jiyi.open(folder) as engine:
        with pytest.raises(jiyi.ModelError, match="is not a manifest"):
            engine.add("tea")
        assert list(engine.search("tea")) == []
    with jiyi.open(embedder="bge-small-en-v1.5") as engine:  # late interaction goes, the model stays
        engine.add(TEXTS[0])
        assert list(engine.search("hiking")[0].factors["signals"]) == ["dense", "keyword"]


@needs_the_cross_encoder
def test_best_with_the_cross_encoder_that_ships() -> None:
    with jiyi.open(preset="best") as engine:
        engine.add_many(
            [
                "Ana moved to Paris in May",
                "I bought a new laptop",
                "周末喜欢去徒步，特别是越野路线",
                "Bob walks his dog",
            ]
        )
        hits = engine.search("Where does Ana live now?", k=4)
        assert hits[0].memory.text == "Ana moved to Paris in May"
        assert [str(note) for note in hits.degraded if "cannot read the" in str(note)] == []
        assert hits[0].factors["reranked"][SHIPPED_CROSS_ENCODER]["raw"] is not None
        answer(hits)
        chinese = engine.search("周末去哪里徒步", k=4)
        assert chinese[0].memory.text.startswith("周末")
        assert [str(note) for note in chinese.degraded] == [
            f"rerank: {SHIPPED_CROSS_ENCODER} cannot read the language of this query"
        ]
        answer(chinese)


# ----------------------------------------------------------------------------------------- what is not imported

LOADED = (
    "print(sorted(m for m in sys.modules if m.split('.')[0] in ('onnxruntime', 'torch', 'onnx', 'huggingface_hub')))"
)


@pytest.mark.parametrize(
    ("code", "fresh"),
    [
        ("import jiyi", True),
        ("import jiyi, jiyi.engine, jiyi.models, jiyi.cli, jiyi.evaluation", True),
        ("import jiyi; e = jiyi.open(); e.add('tea'); assert e.search('tea', preset='fast').degraded == ()", False),
        ("import jiyi; e = jiyi.open(preset='balanced'); e.add('tea'); assert e.search('tea').ids", False),
        (
            "import jiyi; e = jiyi.open(device='cuda'); e.add('tea'); e.search_many(['tea'], rerank='bm25')[0].ids[0]",
            False,
        ),
    ],
)
def test_what_needs_no_session_imports_no_runtime(child: Child, cache: Path, code: str, fresh: bool) -> None:
    done = child(f"{code}\n{LOADED}", fresh=fresh, env={"JIYI_CACHE": str(cache)})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "[]"


def test_a_preset_that_finds_a_transformer_opens_it_only_then(child: Child, cache: Path, tiny: Path) -> None:
    install(cache, tiny, "e5-small")
    fast = child(f"import jiyi; jiyi.open(preset='fast')\n{LOADED}", env={"JIYI_CACHE": str(cache)})
    assert (fast.stdout.strip(), fast.stderr) == ("[]", "")
    balanced = child(f"import jiyi; jiyi.open(preset='balanced')\n{LOADED}", env={"JIYI_CACHE": str(cache)})
    assert "'onnxruntime'" in balanced.stdout


def test_rerank_takes_a_list_and_none_is_none() -> None:
    assert jiyi.SearchConfig(rerank=["bm25"]).rerank == ("bm25",)  # type: ignore[arg-type]
    assert jiyi.SearchConfig(rerank=[]).rerank == ()  # type: ignore[arg-type]
    assert jiyi.SearchConfig(rerank=None).rerank == ()  # type: ignore[arg-type]


def test_a_budget_beyond_all_numbers_is_no_limit() -> None:
    with jiyi.open(None) as engine:
        engine.add("tea")
        assert engine.search("tea", rerank="bm25", budget_ms=10**400).degraded == ()
