"""What must hold of a store that a process left behind, however it ended."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jiyi
from tests.crash.child import TINY, embedder_named, unfound
from tests.crash.model import Item, Model, item_of, said
from tests.crash.script import FIRST_EMBEDDER


def check_store(folder: Path, allowed: Sequence[Model], *, indexed: bool, thorough: bool) -> list[str]:
    """Return what is wrong with a store, one line each.

    Args:
        folder: the store's; opened to read, then to write.
        allowed: what it may hold: with an unacknowledged call, and without it.
        indexed: its namespaces have indexes, small as they are.
        thorough: build the indexes again, compact, look for litter.
    """
    wrong: list[str] = []
    config = TINY if indexed else None
    try:
        with jiyi.open(folder, embedder=None, read_only=True) as reader:
            wrong += [f"read-only: {line}" for line in _differences(reader, allowed)]
            wrong += [f"read-only verify: {line}" for line in reader.verify()]
    except jiyi.StoreError as error:
        if any(not model.items for model in allowed) and not (folder / "ledger.sqlite-wal").exists():
            pass  # it died before there was a store
        elif not any(not model.items for model in allowed):
            wrong.append(f"read-only: {error}")
    name = _embedder_of(folder) or FIRST_EMBEDDER
    with jiyi.open(folder, embedder=embedder_named(name), index_config=config) as engine:
        held = [model for model in allowed if not _differences(engine, [model])]
        if not held:
            wrong += _differences(engine, allowed)
            return wrong
        if engine._store.mismatch is not None:
            wrong.append(f"mismatch: {engine._store.mismatch}")
        model = held[-1]
        wrong += [f"verify: {line}" for line in engine.verify()]
        wrong += [f"at once: {line} is not found" for line in unfound(engine, model.state(), 6 if thorough else 3)]
        if indexed and thorough:
            engine.flush()
            if engine.stats()["index_error"] is not None:
                wrong.append(f"index: {engine.stats()['index_error']}")
            wrong += [f"indexed: {line} is not found" for line in unfound(engine, model.state())]
            wrong += _plans_differ(engine, model)
        engine.add("one more", id="one more", namespace="ana", timestamp=1_700_000_000)
        if engine.get("one more", namespace="ana").text != "one more":
            wrong.append("what is added now cannot be read")
        engine.delete("one more", namespace="ana")
        if thorough:
            model = model.copy()
            removed = model.do_compact()
            if engine.compact() != removed:
                wrong.append(f"compact did not remove {removed}")
            engine.flush()
            wrong += [f"compacted: {line}" for line in _differences(engine, [model])]
            wrong += [f"compacted: {line} is not found" for line in unfound(engine, model.state())]
            numbers = engine._store.ledger.namespace_numbers()
    if thorough:
        wrong += [f"litter: {name}" for name in litter(folder, numbers)]
        with jiyi.open(folder, embedder=embedder_named(name), index_config=config) as engine:
            wrong += [f"reopened: {line}" for line in _differences(engine, [model])]
            wrong += [f"reopened: {line} is not found" for line in unfound(engine, model.state())]
    return wrong


def check_snapshots(parent: Path, states: dict[str, list[Model]]) -> list[str]:
    """Return what is wrong with the snapshots in a folder: each must be whole, whatever became of the call."""
    wrong: list[str] = []
    for folder in sorted(path for path in parent.glob("snapshot*") if path.is_dir() and any(path.iterdir())):
        if folder.name not in states:
            wrong.append(f"{folder.name} was never asked for")
            continue
        with jiyi.open(folder, embedder=None, read_only=True) as engine:
            wrong += [f"{folder.name}: {line}" for line in _differences(engine, states[folder.name])]
            wrong += [f"{folder.name}: verify: {line}" for line in engine.verify()]
    return wrong


def litter(folder: Path, numbers: set[int]) -> list[str]:
    """Return files of a closed store that nothing needs."""
    known = {"ledger.sqlite", "ledger.sums", "writer.lock", "indexes"}
    found = [path.name for path in folder.iterdir() if path.name not in known]
    seen: set[str] = set()
    indexes = folder / "indexes"
    for path in sorted(indexes.iterdir()) if indexes.is_dir() else []:
        name, _, sequence = path.name.rpartition("-")
        kind, _, number = name.partition("-")
        sound = kind.partition(".")[0] in ("graph", "keyword") and number.isdecimal() and sequence.isdecimal()
        if not sound or int(number) not in numbers or name in seen or not (path / "manifest.json").exists():
            found.append(f"indexes/{path.name}")
        seen.add(name)
    return found


def _embedder_of(folder: Path) -> str | None:
    try:
        with jiyi.open(folder, embedder=None, read_only=True) as reader:
            return reader._store.model
    except jiyi.StoreError:
        return None


def _differences(engine: jiyi.Engine, allowed: Sequence[Model]) -> list[str]:
    """Return how a store differs from the last of the states that it may be in; nothing if it is in any."""
    held = [item_of(memory) for memory in engine.list(namespace=None)]
    model_name = engine._store.model
    for model in allowed:
        if held == model.state() and (not held or model_name == model.embedder) and not _wrong_vectors(engine, model):
            return _hidden_differences(engine, model)
    lines = []
    for model in allowed:
        expected, vectors = model.state(), _wrong_vectors(engine, model)
        lines.append(
            f"against a state of {len(expected)}: {_first_difference(held, expected, model_name, model, vectors)}"
        )
    return lines


def _first_difference(
    held: list[Item], expected: list[Item], name: str | None, model: Model, wrong_vectors: list[str]
) -> str:
    def places(items: list[Item]) -> list[tuple[str, str]]:
        return [(item["namespace"], item["id"]) for item in items]

    missing = [place for place in places(expected) if place not in places(held)]
    beyond = [place for place in places(held) if place not in places(expected)]
    if missing or beyond:
        return f"missing {missing}, beyond {beyond}"
    if places(held) != places(expected):
        return f"another order: {places(held)} for {places(expected)}"
    for a, b in zip(held, expected, strict=True):
        if a != b:
            return json.dumps({"held": a, "expected": b}, ensure_ascii=False)
    return f"vectors of {name} for {model.embedder}; not as they were written: {wrong_vectors}"


def _hidden_differences(engine: jiyi.Engine, model: Model) -> list[str]:
    """What is hidden behind merged memories is as much there as what is seen."""
    with engine._store.ledger.reading() as connection:
        rows = connection.execute(
            "SELECT n.name, m.into_id, m.id FROM merged m JOIN namespaces n ON n.namespace = m.namespace"
        ).fetchall()
    held = sorted(rows)
    expected = sorted((place[0], place[1], item["id"]) for place, items in model.hidden.items() for item in items)
    return [] if held == expected else [f"hidden: {held} for {expected}"]


def _wrong_vectors(engine: jiyi.Engine, model: Model) -> list[str]:
    embedder = embedder_named(model.embedder)
    wrong = []
    for (namespace, memory_id), item in model.items.items():
        found = engine._store.ledger.find(namespace, memory_id)
        stored = None if found is None else engine._store.ledger.vector(found[0])
        expected = embedder.embed_query(said(item)) if item["vector"] is None else np.array(item["vector"], np.float32)
        if stored is None or not np.array_equal(np.frombuffer(stored, np.float32), expected):
            wrong.append(f"{namespace}/{memory_id}")
    return wrong


def _plans_differ(engine: jiyi.Engine, model: Model) -> list[str]:
    """With an index and without one the answer is the same."""
    wrong = []
    items = list(model.items.values())
    for item in random.Random(0).sample(items, min(3, len(items))):
        settings: dict[str, Any] = {"namespace": item["namespace"], "k": 5, "now": 1_900_000_000}
        answers = [
            engine.search(item["text"], **settings, dense_plan=plan, keyword_plan=plan).ids
            for plan in ("exact", "auto")
        ]
        if answers[0] != answers[1]:
            wrong.append(f"the indexes answer {answers[1]}, the exact plans {answers[0]}")
    return wrong
