"""What a store must hold, in plain Python: dictionaries, and one method for each call that the scripts make."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import jiyi

Item = dict[str, Any]
"""A memory as plain values: times as epoch seconds, `vector` a list of floats as it was given, or None."""
Place = tuple[str, str]
"""Namespace and id."""

#: Before every moment that a test runs at, and after it.
LONG_AGO, FAR_AHEAD = 1_000_000_000, 4_000_000_000


class Refused(Exception):
    """The call must be refused, with an error of this name."""


def said(item: Item) -> str:
    """What an embedder is given of a memory: who said it belongs to it."""
    return item["text"] if item["speaker"] is None else f"{item['speaker']}: {item['text']}"


def item_of(memory: jiyi.Memory) -> Item:
    """A memory as plain values, but for its vector."""

    def seconds(moment: Any) -> float | None:
        return None if moment is None else moment.timestamp()

    return {
        "namespace": memory.namespace,
        "id": memory.id,
        "text": memory.text,
        "kind": memory.kind,
        "timestamp": seconds(memory.timestamp),
        "session": memory.session,
        "speaker": memory.speaker,
        "metadata": dict(memory.metadata),
        "expires_at": seconds(memory.expires_at),
        "sources": list(memory.sources),
        "uses": memory.uses,
        "last_used": seconds(memory.last_used),
    }


class Model:
    """A store: memories in the order they were stored, and what is hidden behind merged ones."""

    def __init__(self, embedder: str) -> None:
        self.embedder = embedder
        self.items: dict[Place, Item] = {}
        self.hidden: dict[Place, list[Item]] = {}

    def copy(self) -> Model:
        return copy.deepcopy(self)

    def state(self) -> list[Item]:
        """Everything that `Engine.list` shows, in its order."""
        return [{name: value for name, value in item.items() if name != "vector"} for item in self.items.values()]

    def apply(self, call: dict[str, Any]) -> Any:
        """Do what a call does; return what it returns."""
        work: Callable[..., Any] = getattr(self, "do_" + call["call"])
        return work(**{name: value for name, value in call.items() if name != "call"})

    # -------------------------------------------------------------------------------------------- the calls

    def do_add(self, item: Item) -> str:
        return self.do_add_many([item])[0]

    def do_add_many(self, items: list[Item]) -> list[str]:
        for item in items:
            place = item["namespace"], item["id"]
            if place in self.hidden:
                self._give_back(place)
        for item in items:
            self._put(item)
        return [item["id"] for item in items]

    def _put(self, item: Item) -> None:
        place = item["namespace"], item["id"]
        before = self.items.pop(place, None)
        used = (
            {"uses": 0, "last_used": None} if before is None else {name: before[name] for name in ("uses", "last_used")}
        )
        for leader in [leader for leader in self.hidden if leader != place and leader[0] == place[0]]:
            self.hidden[leader] = [hidden for hidden in self.hidden[leader] if hidden["id"] != place[1]]
        self.items[place] = {**copy.deepcopy(item), **used}

    def _give_back(self, leader: Place) -> None:
        for item in self.hidden.pop(leader):
            place = item["namespace"], item["id"]
            self.items.pop(place, None)
            self.items[place] = item

    def do_update(self, namespace: str, id: str, fields: dict[str, Any]) -> Item:
        place = namespace, id
        if place not in self.items:
            raise Refused("NotFoundError")
        item = self.items.pop(place)
        if "text" in fields and fields["text"] != item["text"]:
            item["vector"] = None
        self.items[place] = {**item, **fields}
        return {name: value for name, value in self.items[place].items() if name != "vector"}

    def _end(self, places: Iterable[Place]) -> int:
        ended = [place for place in places if self.items.pop(place, None) is not None]
        for place in ended:
            self.hidden.pop(place, None)
        return len(ended)

    def do_delete(self, namespace: str, ids: list[str]) -> int:
        return self._end([(namespace, memory_id) for memory_id in ids])

    def do_forget(self, namespace: str, session: str) -> int:
        return self._end([p for p, item in self.items.items() if p[0] == namespace and item["session"] == session])

    def do_erase(self, namespace: str, ids: list[str]) -> int:
        for leader, hidden in self.hidden.items():
            if leader[0] == namespace and leader[1] not in ids and any(item["id"] in ids for item in hidden):
                raise Refused("ValueError")
        return self.do_delete(namespace, ids)

    def do_compact(self) -> int:
        return self._end([p for p, item in self.items.items() if item["expires_at"] == LONG_AGO])

    def do_reinforce(self, namespace: str, ids: list[str], now: int) -> int:
        found = [item for memory_id in ids if (item := self.items.get((namespace, memory_id))) is not None]
        for item in found:
            item["uses"] += 1
            item["last_used"] = max(now, item["last_used"] or 0)
        return len(found)

    def do_reindex(self, embedder: str) -> int:
        self.embedder = embedder
        for item in [*self.items.values(), *(item for hidden in self.hidden.values() for item in hidden)]:
            item["vector"] = None
        return len(self.items)

    def do_consolidate(self, namespace: str) -> int:
        """The scripts' texts are equal or have little in common, so that equal ones are all there is to merge."""
        order = {place: i for i, place in enumerate(self.items)}
        latest_first = sorted(
            (place for place in self.items if place[0] == namespace and self.items[place]["expires_at"] != LONG_AGO),
            key=lambda place: (self.items[place]["timestamp"], order[place]),
            reverse=True,
        )
        groups: dict[tuple[object, ...], list[Place]] = {}
        for place in latest_first:
            item = self.items[place]
            alike = tuple(repr(item[name]) for name in ("text", "kind", "speaker", "expires_at", "vector"))
            groups.setdefault(alike, []).append(place)
        merging = [group for group in groups.values() if len(group) > 1]
        for group in merging:
            self._merge(group, order)
        return sum(len(group) - 1 for group in merging)

    def _merge(self, group: list[Place], order: dict[Place, int]) -> None:
        members = [self.items[place] for place in group]
        kept = copy.deepcopy(members[0])
        behind = [
            item
            for place in sorted(group, key=order.__getitem__)
            for item in self.hidden.get(place, [copy.deepcopy(self.items[place])])
        ]
        sources = dict.fromkeys(source for member in members for source in member["sources"])
        sources.update(dict.fromkeys(member["id"] for member in members[1:]))
        sources.pop(kept["id"], None)
        kept["sources"] = list(sources)
        kept["metadata"] = {**kept["metadata"], "merged": len(behind)}
        kept["uses"] = sum(member["uses"] for member in members)
        kept["last_used"] = max((m["last_used"] for m in members if m["last_used"] is not None), default=None)
        for place in group:
            del self.items[place]
            self.hidden.pop(place, None)
        self.items[group[0]] = kept
        self.hidden[group[0]] = sorted(behind, key=lambda item: item["timestamp"])

    def do_unconsolidate(self, namespace: str, ids: list[str]) -> int:
        leaders = [(namespace, memory_id) for memory_id in ids if (namespace, memory_id) in self.hidden]
        given = sum(len(self.hidden[leader]) for leader in leaders)
        for leader in leaders:
            self._give_back(leader)
        return given

    def do_snapshot(self, name: str) -> None:
        pass

    def do_flush(self) -> None:
        pass

    def do_reopen(self) -> None:
        pass
