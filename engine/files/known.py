"""What a store has already of the rows of a file: reading a file again should change nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jiyi.memory import USAGE, Memory
from jiyi.store import Store


class Known(Enum):
    """What a store has of a memory."""

    NEW = "new"
    OTHER = "other"
    """Its id, for something else."""
    SAME = "same"


def known(
    store: Store, memories: Sequence[Memory], vectors: Sequence[NDArray[np.float32] | None], dated: Sequence[bool]
) -> list[Known]:
    """Return what the store has of memories, by id.

    The same is what storing it again would not change: every field is, the time aside where the row does not tell one,
    and usage where it tells none; and so is the vector, or there is one where the row brings none.
    """
    found = [Known.NEW] * len(memories)
    places: dict[str, dict[str, list[int]]] = {}
    for i, memory in enumerate(memories):
        places.setdefault(memory.namespace, {}).setdefault(memory.id, []).append(i)
    embeds = store.embedder is not None and store.mismatch is None
    by_id = "SELECT key, id FROM memories WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))"
    by_key = "SELECT key, vector FROM columns WHERE key IN (SELECT value FROM json_each(?))"
    with store.ledger.reading() as connection:
        for name, ids in places.items():
            number = connection.execute("SELECT namespace FROM namespaces WHERE name = ?", (name,)).fetchone()
            if number is None:
                continue
            keys = dict(connection.execute(by_id, (*number, json.dumps(list(ids)))).fetchall())
            if not keys:
                continue
            damaged: list[int] = []  # what a file brings back is no reason to refuse the file
            stored = store.ledger.memories_on(connection, list(keys), name, damaged)
            for key in damaged:
                for i in ids[keys[key]]:
                    found[i] = Known.OTHER
            own_vectors = dict(connection.execute(by_key, (json.dumps(list(keys)),)).fetchall())
            for key, memory_id in keys.items():
                if key not in stored:
                    continue
                has = own_vectors.get(key)
                for i in ids[memory_id]:
                    vector = vectors[i]
                    fits = (has is not None or not embeds) if vector is None else vector.tobytes() == has
                    same = fits and same_memory(stored[key], memories[i], dated=dated[i])
                    found[i] = Known.SAME if same else Known.OTHER
    return found


def same_memory(stored: Memory, given: Memory, *, dated: bool) -> bool:
    """Return whether a memory is stored as it is given, as far as that says."""
    changes: dict[str, Any] = {} if dated else {"timestamp": stored.timestamp}
    if not any(getattr(given, name) for name in USAGE):
        changes |= {name: getattr(stored, name) for name in USAGE}
    if stored != (replace(given, **changes) if changes else given):
        return False
    # 1, 1.0 and True are equal, and not the same.
    return not stored.metadata or _json(stored) == _json(given)


def _json(memory: Memory) -> str:
    return json.dumps(memory.metadata, ensure_ascii=False, sort_keys=True)
