"""Scripts: what a child does to its store, drawn from a seed."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any, Final

from tests.crash.model import FAR_AHEAD, LONG_AGO, Item, Model, Refused

Call = dict[str, Any]

_SYLLABLES: Final = "ba de fi go hu ka le mi no pu ra se ti vo wu xa ye zi".split()
_HAN: Final = "山水云火木金石月风花鸟鱼"
_NAMESPACES: Final = ("ana", "张三", "b/../b")
_KINDS: Final = (
    "add add_many update delete forget erase compact reinforce reindex consolidate unconsolidate replace snapshot "
    "flush reopen consolidate replace"
).split()
DIMENSIONS: Final = {"hash-a": 8, "hash-b": 12}
FIRST_EMBEDDER: Final = "hash-a"


class _Writer:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.model = Model(FIRST_EMBEDDER)
        self.made = 0
        self.snapshots = 0

    def text(self) -> str:
        words = ["".join(self.rng.choices(_SYLLABLES, k=3)) for _ in range(self.rng.randint(5, 9))]
        return " ".join([*words, "".join(self.rng.choices(_HAN, k=3))])

    def item(self, namespace: str, memory_id: str | None = None, copied: Item | None = None) -> Item:
        self.made += 1
        rng = self.rng
        vector = None
        if copied is None and rng.random() < 0.3:
            vector = [round(rng.uniform(-1, 1), 3) for _ in range(DIMENSIONS[self.model.embedder])]
        return {
            "namespace": namespace,
            "id": memory_id or f"m{self.made}",
            "text": self.text() if copied is None else copied["text"],
            "kind": rng.choice(["episodic", "archival"]) if copied is None else copied["kind"],
            "timestamp": 1_700_000_000 + 60 * self.made,
            "session": rng.choice([None, "s1", "s2"]) if copied is None else None,
            "speaker": rng.choice([None, "user"]) if copied is None else copied["speaker"],
            "metadata": rng.choice([{}, {"n": self.made, "tags": ["a", "b"]}]),
            "expires_at": rng.choice([None, None, None, FAR_AHEAD, LONG_AGO])
            if copied is None
            else copied["expires_at"],
            "sources": [],
            "vector": vector,
        }

    def some(self, namespace: str, most: int) -> list[str]:
        ids = [memory_id for name, memory_id in self.model.items if name == namespace]
        return self.rng.sample(ids, min(len(ids), self.rng.randint(1, most)))

    def call(self, kind: str) -> Call:
        rng = self.rng
        namespace = rng.choices(_NAMESPACES, weights=[6, 2, 1])[0]
        there = [item for item in self.model.items.values() if item["namespace"] == namespace]
        match kind:
            case "add":
                return {"call": "add", "item": self.item(namespace)}
            case "add_many":
                items = [self.item(rng.choice([namespace, *_NAMESPACES])) for _ in range(rng.randint(2, 6))]
                plain = [item for item in [*there, *items] if item["vector"] is None and item["namespace"] == namespace]
                if plain:
                    copied = rng.choice(plain)
                    items += [self.item(namespace, copied=copied) for _ in range(rng.randint(0, 3))]
                return {"call": "add_many", "items": items}
            case "replace":
                leaders = [memory_id for name, memory_id in self.model.hidden if name == namespace]
                hidden = [i["id"] for p, items in self.model.hidden.items() if p[0] == namespace for i in items]
                ids = [*leaders, *leaders, *hidden, *self.some(namespace, 3)]
                return {"call": "add", "item": self.item(namespace, rng.choice(ids) if ids else None)}
            case "update":
                fields = rng.choice([{"text": self.text()}, {"metadata": {"seen": self.made}}, {"session": "s2"}])
                return {"call": "update", "namespace": namespace, "id": (self.some(namespace, 1) or ["none"])[0]} | {
                    "fields": fields
                }
            case "delete" | "erase":
                return {"call": kind, "namespace": namespace, "ids": [*self.some(namespace, 3), "none"]}
            case "forget":
                return {"call": "forget", "namespace": namespace, "session": rng.choice(["s1", "s2"])}
            case "reinforce":
                moment = 1_800_000_000 + self.made
                return {"call": "reinforce", "namespace": namespace, "ids": self.some(namespace, 3), "now": moment}
            case "reindex":
                return {"call": "reindex", "embedder": rng.choice(list(DIMENSIONS))}
            case "consolidate":
                return {"call": "consolidate", "namespace": namespace}
            case "unconsolidate":
                leaders = [memory_id for name, memory_id in self.model.hidden if name == namespace]
                return {"call": "unconsolidate", "namespace": namespace, "ids": leaders[:2]}
            case "snapshot":
                self.snapshots += 1
                return {"call": "snapshot", "name": f"snapshot{self.snapshots}"}
            case _:
                return {"call": kind}


def every_kind(seed: int, times: int = 1) -> list[Call]:
    """Return a script with every kind of call in it, so many times, in an order of the seed's, on a store that holds
    some memories by then."""
    writer = _Writer(seed)
    rest = [kind for kind in _KINDS for _ in range(times)]
    writer.rng.shuffle(rest)
    calls: list[Call] = []
    for kind in ["add_many", "add_many", "add_many", *rest]:
        calls.append(writer.call(kind))
        with suppress(Refused):
            writer.model.apply(calls[-1])
    return calls
