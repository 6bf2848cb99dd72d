"""Merges memories that say the same: one stays, with a count and all sources, and the others can be given back.

A group is a memory and those that are near-copies *of it*: by the words that they share (Jaccard), by their vectors
(cosine), and with the shared words in the same order. Members are never compared with each other, so A and C are not
merged because both are like B. What is never merged, however alike:

- memories of different kinds, speakers or expiry;
- texts of which one has a number, a sign, a weekday, a month or a negation that the other has not, as far as those are
  known (`_TELLING_WORDS` and below): "at 9" is not "at 10";
- facts of different subjects, predicates or objects, or with any other fact of their key between them in time;
- facts whose time another fact of their key shares, and memories whose time another of their session does: such ties
  are broken by what was stored first, and a merged memory counts as stored anew;
- procedures of different titles or steps.

The latest memory of a group stays, as it is the wording that was chosen last, together with when and by whom that was
said. Only a fact keeps the earliest time: it has held since then, so that `as_of` answers as before.
"""

from __future__ import annotations

import json
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from jiyi import originals
from jiyi.filter_fields import Condition
from jiyi.kernels.csr import number_values, sort_rows
from jiyi.kernels.near_copies import near_copies
from jiyi.ledger import LABEL_BITS, LABEL_MASK
from jiyi.memory import Memory, entity_key
from jiyi.originals import Original
from jiyi.store import Store
from jiyi.terms import word_term
from jiyi.text import is_run, segments

#: Where a merged memory says how many it was made of.
COUNT: Final = "merged"

_GROUPS_A_TRANSACTION: Final = 200

_TELLING_WORDS: Final = frozenset(
    "not no never none neither nor without cannot yes true false on off before after "
    "cant dont didnt wont isnt arent aint wasnt werent doesnt hasnt havent hadnt couldnt wouldnt shouldnt mustnt "
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion dozen "
    "first second third fourth fifth sixth seventh eighth ninth tenth half once twice thrice "
    "ii iii iv v vi vii viii ix x xi xii xiii xiv xv xvi xvii xviii xix xx "
    "monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun "
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec "
    "am pm morning noon afternoon evening night tonight yesterday today tomorrow last next "
    "he she him her his hers".split()
)
# Of a run of unspaced script: negations, numbers, who, and when.
_TELLING_PARTS: Final = re.compile(
    "[上下中]午|早上|早晨|晚上|傍晚|凌晨|夜里|夜裡|[今去明前后後]年|[今昨明前后後]天|[今昨明][早晚]|[上下本这這][个個]?[周週月]|"
    "[周週][日末]|星期[日天]|[礼禮]拜[日天]|[之以][前后後]|[不没沒无無未别別非勿莫甭零〇一二两兩三四五六七八九十百千万萬亿億半他她它牠]"
)
_DIGIT: Final = re.compile(r"\d")
# What is no word, with the digits on both sides (on the right one more sign may stand between, as in "-$5"); and small
# or circled figures, which folding makes plain ones: "10⁵" is not "105".
_SIGN: Final = re.compile(
    r"(?<!\d)(\d*+)([^\w\s]|[\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209f\u2150-\u218b\u2460-\u24ff\u2776-\u2793])"
    r"(?=[^\w\s]?(\d*))"
)
_FULL_WIDTH: Final = {0xFEE0 + code: code for code in range(0x21, 0x7F)}
_PUNCTUATION: Final = frozenset(".,;:!?。、'\"“”‘’()…[]{}「」『』《》〈〉【】«»‹›·`-–—/")
# Punctuation that says something beside digits, on either side, before them, or after them.
_BESIDE_DIGITS: Final = frozenset("-–—/:")
_BEFORE_DIGITS: Final = frozenset(".,")
_AFTER_DIGITS: Final = frozenset("'\"")


@dataclass(frozen=True, slots=True)
class Merge:
    """One memory that (would) stand for several."""

    memory: Memory
    """It, with the count in `metadata["merged"]`."""
    originals: tuple[Memory, ...]
    """What was merged, as it was, latest first: the first stays, with its id."""


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What `Engine.consolidate` did, or would do."""

    merges: tuple[Merge, ...]
    """Latest first."""
    dry_run: bool

    @property
    def ids(self) -> list[str]:
        """Of the memories that stand for several: what `unconsolidate` takes."""
        return [merge.memory.id for merge in self.merges]

    @property
    def removed(self) -> int:
        """How many memories there are fewer."""
        return sum(len(merge.originals) - 1 for merge in self.merges)


Held = tuple[int, Memory]
"""Key and memory."""


def consolidate(
    store: Store,
    namespace: str,
    condition: Condition,
    *,
    min_jaccard: float,
    min_cosine: float,
    now: datetime,
    dry_run: bool,
) -> Consolidated:
    """Merge near-identical memories that a condition (which names the namespace) holds for; see `Engine.consolidate`.

    Memories that change while they are compared are left as they are. What was merged when a later transaction fails
    stays merged.
    """
    sequence = store.ledger.manifest()["sequence"]
    held = [
        item
        for item in store.ledger.select(condition.sql, condition.parameters)
        if item[1].expires_at is None or item[1].expires_at > now
    ]
    held.sort(key=lambda item: (item[1].timestamp, item[0] & LABEL_MASK), reverse=True)
    groups = _groups(store, namespace, held, min_jaccard, min_cosine)
    if dry_run:
        return Consolidated(tuple(_merge([memory for _, memory in group]) for group in groups), True)
    done: list[Merge] = []
    for start in range(0, len(groups), _GROUPS_A_TRANSACTION):
        part = groups[start : start + _GROUPS_A_TRANSACTION]
        with store.writing():
            if store.ledger.manifest()["sequence"] != sequence:  # others have written, maybe between those of a group
                facts = any(memory.subject is not None for group in part for _, memory in group)
                part = _orderly(store, namespace, _facts(store, namespace) if facts else {}, part)
            done.extend(_write(store, namespace, part))
            sequence = store.ledger.manifest()["sequence"]
    return Consolidated(tuple(done), False)


def unconsolidate(store: Store, namespace: str, ids: Iterable[str]) -> int:
    """Give back what was merged into memories; see `Engine.unconsolidate`."""
    with store.writing():
        number = store.ledger.namespace_number(namespace)
        if number is None:
            return 0
        return store.give_back(number, ids)


# ------------------------------------------------------------------------------------------------------- finding


def _groups(
    store: Store, namespace: str, held: Sequence[Held], min_jaccard: float, min_cosine: float
) -> list[list[Held]]:
    """Groups of two and more, the one that stays first."""
    partition = store.partition(namespace)
    if partition is None or len(held) < 2:
        return []
    view = partition.view
    labels = np.array([key & LABEL_MASK for key, _ in held], dtype=np.int64)
    rows = np.searchsorted(view.labels, labels)
    known = rows < len(view.labels)
    known[known] = (view.labels[rows[known]] == labels[known]) & (view.live[rows[known]] == 1)
    if not known.all():  # changed since they were read
        held = [item for item, here in zip(held, known.tolist(), strict=True) if here]
        rows = rows[known]

    facts = _facts(store, namespace) if any(memory.subject is not None for _, memory in held) else {}
    texts = [_words(memory.text) for _, memory in held]
    blocks = [(*_block(memory), telling) for (_, memory), (_, telling) in zip(held, texts, strict=True)]
    runs = _runs(facts, {key: block for (key, _), block in zip(held, blocks, strict=True)})
    flat: list[int] = []
    numbers: dict[tuple[object, ...], int] = {}
    of_row = np.empty(len(held), dtype=np.uint64)
    indptr = np.zeros(len(held) + 1, dtype=np.int64)
    for i, (key, _) in enumerate(held):
        flat.extend(texts[i][0])
        indptr[i + 1] = len(flat)
        of_row[i] = numbers.setdefault((*blocks[i], runs.get(key)), len(numbers))
    # Words of different blocks are different words, so nothing is compared across blocks.
    spread = np.repeat(of_row * np.uint64(0x9E3779B97F4A7C15), np.diff(indptr))
    numbered, distinct = number_values(np.array(flat, dtype=np.uint64) ^ spread)
    by_rarity = np.argsort(np.bincount(numbered, minlength=len(distinct)), kind="stable")
    rank = np.empty(len(distinct), dtype=np.uint32)
    rank[by_rarity] = np.arange(len(distinct), dtype=np.uint32)
    order = rank[numbered]
    ids, _ = sort_rows(indptr, order, np.ones(len(order), dtype=np.uint16))
    if view.vectors is None:
        vectors, has_vector = np.zeros((len(held), 0), np.float32), np.zeros(len(held), np.int64)
    else:
        vectors, has_vector = view.vectors[rows], view.has_vector[rows].astype(np.int64)
    leaders = near_copies(indptr, ids, order, vectors, has_vector, min_jaccard, min_cosine)

    members: dict[int, list[Held]] = {}
    for row in np.flatnonzero(leaders != np.arange(len(leaders))).tolist():
        leader = int(leaders[row])
        members.setdefault(leader, [held[leader]]).append(held[row])
    groups = [members[leader] for leader in sorted(members)]
    return _orderly(store, namespace, facts, groups)


def _words(text: str) -> tuple[list[int], tuple[str, ...]]:
    """The distinct words and characters of a text as they first stand in it, and those that make all the difference."""
    words: dict[int, None] = {}
    telling = _signs(text)
    for segment in segments(text):
        if is_run(segment):
            words.update(dict.fromkeys(map(word_term, segment)))
            telling.extend(_TELLING_PARTS.findall(segment))
        else:
            words[word_term(segment)] = None
            if segment in _TELLING_WORDS or segment.endswith("n't") or _DIGIT.search(segment):
                telling.append(segment.replace("'", ""))
    return list(words), tuple(telling)


def _signs(text: str) -> list[str]:
    """What stands in a text besides words and plain punctuation, in order, each with the digits beside it."""
    signs: list[str] = []
    for found in _SIGN.finditer(unicodedata.normalize("NFC", text).translate(_FULL_WIDTH)):
        before, sign, after = found.groups()
        if sign in _PUNCTUATION:
            tells = (
                (sign in _BESIDE_DIGITS and (before or after))
                or (sign in _BEFORE_DIGITS and after)
                or (sign in _AFTER_DIGITS and before)
            )
        else:
            tells = unicodedata.category(sign)[0] not in "MC"  # vowel signs and joiners belong to words
        if tells:
            signs.append(f"{before}{sign}{after}")
    return signs


def _block(memory: Memory) -> tuple[object, ...]:
    """What a memory has in common with those that it may be merged with, besides its text."""
    said = None if memory.object is None else (memory.fact_key, entity_key(memory.object), memory.multivalued)
    steps = (memory.title and entity_key(memory.title), *map(entity_key, memory.steps))
    return (memory.kind, memory.speaker, memory.expires_at, said, steps)


def _facts(store: Store, namespace: str) -> dict[str, list[Held]]:
    """All facts of a namespace, whatever is looked at, by what they are about: of each in the order they held in."""
    facts: dict[str, list[Held]] = {}
    every = store.ledger.select(
        "n.name = ? AND m.subject IS NOT NULL", (namespace,), order=f"m.timestamp_us, m.key & {LABEL_MASK}"
    )
    for key, memory in every:
        facts.setdefault(str(memory.fact_key), []).append((key, memory))
    return facts


def _runs(facts: Mapping[str, Sequence[Held]], blocks: Mapping[int, object]) -> dict[int, int]:
    """For each fact, by key, the number of its run: of facts of one block with no other fact between."""
    runs: dict[int, int] = {}
    for about in facts.values():
        last: object = None
        run = 0
        for key, _ in about:
            block = blocks.get(key, key)  # what is not looked at is of no block, and between others all the same
            run += block != last
            last = block
            runs[key] = run
    return runs


def _orderly(
    store: Store, namespace: str, facts: Mapping[str, Sequence[Held]], groups: Sequence[Sequence[Held]]
) -> list[list[Held]]:
    """What of the groups can be merged without any order changing."""
    places = {key: place for about in facts.values() for place, (key, _) in enumerate(about)}
    ties = _ties(store, namespace, facts, groups)
    return [kept for group in groups if len(kept := _in_order(group, places, ties)) > 1]


def _ties(
    store: Store, namespace: str, facts: Mapping[str, Sequence[Held]], groups: Sequence[Sequence[Held]]
) -> dict[int, set[int]]:
    """For each memory of groups that others share an order and a time with, all those keys."""
    together: dict[tuple[object, ...], set[int]] = {}
    sessions = sorted({memory.session for group in groups for _, memory in group if memory.session is not None})
    if sessions:
        query = (
            "SELECT m.session, m.timestamp_us, m.key FROM memories m JOIN namespaces n ON n.namespace = m.namespace "
            "WHERE n.name = ? AND m.session IN (SELECT value FROM json_each(?))"
        )
        with store.ledger.reading() as connection:
            for session, moment_us, key in connection.execute(query, (namespace, json.dumps(sessions))):
                together.setdefault(("session", session, moment_us), set()).add(key)
    for about, of_it in facts.items():
        for key, memory in of_it:
            together.setdefault(("fact", about, memory.timestamp), set()).add(key)
    ties: dict[int, set[int]] = {}
    for keys in together.values():
        if len(keys) > 1:
            for key in keys:
                ties.setdefault(key, set()).update(keys)
    return ties


def _in_order(group: Sequence[Held], places: Mapping[int, int], ties: Mapping[int, set[int]]) -> list[Held]:
    """Those of a group that can be merged without any order changing; none when its first cannot."""
    kept = list(group)
    while kept:
        keys = {key for key, _ in kept}
        left = [item for item in kept if ties.get(item[0], keys) <= keys]
        if not left or left[0] != kept[0]:
            return []
        place = places.get(left[0][0])
        if place is not None:  # facts of other words may stand between those of a group
            left = [item for item in left if item[0] in places]  # but for what was deleted meanwhile
            here = {places[key] for key, _ in left}
            lowest = highest = place
            while lowest - 1 in here:
                lowest -= 1
            while highest + 1 in here:
                highest += 1
            left = [item for item in left if lowest <= places[item[0]] <= highest]
        if len(left) == len(kept):
            break
        kept = left
    return kept


# ------------------------------------------------------------------------------------------------------- merging


def _merge(group: Sequence[Memory], count: int | None = None) -> Merge:
    """What a group becomes. The first stays; count: of memories that it stands for, if some stood for several."""
    kept = group[0]
    sources = dict.fromkeys(source for memory in group for source in memory.sources)
    sources.update(dict.fromkeys(memory.id for memory in group[1:]))
    sources.pop(kept.id, None)
    used = [memory.last_used for memory in group if memory.last_used is not None]
    merged = replace(
        kept,
        timestamp=kept.timestamp if kept.subject is None else min(memory.timestamp for memory in group),
        metadata={**kept.metadata, COUNT: len(group) if count is None else count},
        sources=tuple(sources),
        uses=sum(memory.uses for memory in group),
        last_used=max(used, default=None),
        successes=sum(memory.successes for memory in group),
        failures=sum(memory.failures for memory in group),
    )
    return Merge(merged, tuple(group))


def _write(store: Store, namespace: str, groups: Sequence[Sequence[Held]]) -> list[Merge]:
    """Merge groups in one transaction, but for those of which a memory has changed since."""
    model = store.vectors_model
    with store.writing():
        fresh = store.ledger.memories([key for group in groups for key, _ in group], namespace)
        merges: list[Merge] = []
        vectors: list[NDArray[np.float32] | None] = []
        ending: list[int] = []
        hidden: list[tuple[str, list[str], list[Original]]] = []
        for group in groups:
            if not all(key in fresh for key, _ in group):
                continue
            members = [fresh[key] for key, _ in group]
            as_stored = sorted(key for key, _ in group)
            behind = [original for key in as_stored for original in _originals(store, key, fresh[key], model)]
            merges.append(_merge(members, len(behind)))
            hidden.append((members[0].id, [memory.id for memory in members], behind))
            ending.extend(key for key, _ in group[1:])
            vector = store.ledger.vector(group[0][0])
            vectors.append(None if vector is None else np.frombuffer(vector, np.float32))
        if merges:
            number = groups[0][0][0] >> LABEL_BITS
            then = partial(_hide, number=number, hidden=hidden)
            store.write(
                [merge.memory for merge in merges], vectors, ending=ending, hiding=True, keep_merged=True, then=then
            )
    return merges


def _originals(store: Store, key: int, memory: Memory, model: str) -> list[Original]:
    """What was merged into a memory before, or itself."""
    with store.ledger.reading() as connection:
        before = originals.of(connection, key >> LABEL_BITS, memory.id)
    return before or [Original(memory, store.ledger.vector(key), model)]


def _hide(connection: sqlite3.Connection, number: int, hidden: Iterable[tuple[str, list[str], list[Original]]]) -> None:
    for into_id, members, behind in hidden:
        for member in members:
            originals.drop(connection, number, member)
        originals.keep(connection, number, into_id, behind)
