"""Changes a store's embedder or renews its terms while it is in use: a job that builds, compares, switches.

The next generation of the columns is built beside the one that serves (`generations`), so searches and adds go on, and
a run that was stopped, even by kill -9, goes on from its last batch. Then one small transaction switches.
"""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from jiyi import generations
from jiyi.beside import Beside
from jiyi.comparison import checked_queries, compare, stored_queries
from jiyi.embedders import check_embedder, companion_of
from jiyi.errors import JiyiError, ModelError, StoreError
from jiyi.generation_builder import Builder, drop
from jiyi.generations import BUILDING, KEPT, Generation
from jiyi.models.files import ModelFilesError
from jiyi.models.protocols import Embedder, TokenTable
from jiyi.models.registry import load_embedder
from jiyi.quoted import quoted
from jiyi.reindex_events import (
    CaughtUp,
    Compared,
    Comparison,
    Done,
    Event,
    Failed,
    JobStatus,
    Progressed,
    Refused,
    ReindexPlan,
    ReindexReport,
    Started,
    State,
    Switched,
)
from jiyi.store import EXTERNAL, Store, known_embedder, store_of
from jiyi.terms import ANALYZER_VERSION
from jiyi.timestamps import to_seconds, utc_now

if TYPE_CHECKING:
    from jiyi.engine import Engine

#: What `tokenizer` may be: there is one, and a store may have terms of an earlier version of it.
TOKENIZERS: Final = ("current",)

# A transformer finds neighbours of like length among so many, and a run that is killed loses no more than them.
_BATCH: Final = 1_024
_SAMPLE: Final = 100
_MEASURED: Final = 32
_CHECKED_ON_RESUME: Final = 4
# What a row takes beside its bytes, and how full SQLite's pages are.
_ROW_OVERHEAD: Final = 64
_PAGE_FILL: Final = 0.85


class Cancelled(JiyiError):
    """The job was cancelled while it ran: what it had built is dropped, and nothing has changed."""

    def __init__(self) -> None:
        super().__init__("the reindex was cancelled; what it had built is dropped, and the store is as it was")


@dataclass(frozen=True, slots=True)
class _Target:
    """What the new generation shall be of."""

    embedder: Embedder | None
    table: TokenTable | None
    embeds: bool
    model: str | None
    dim: int | None
    table_name: str | None

    def is_of(self, found: Generation, vectors_version: int) -> bool:
        """Whether a generation that is being built is of this."""
        same_model = (found.embedder, found.dim, found.table) == (self.model, self.dim, self.table_name)
        copies = found.vectors_version == vectors_version
        return found.analyzer == ANALYZER_VERSION and copies != self.embeds and (copies or same_model)


class ReindexJob:
    """One reindex of an engine's store, to be driven by a scheduler: `plan`, `run`, and from other threads `status`,
    `pause`, `resume`, `cancel`.

    What is done lies in the store: a job that went away with its process is made anew with the same arguments and goes
    on. A job runs once.
    """

    def __init__(
        self,
        engine: Engine,
        embedder: Embedder | str | None = None,
        *,
        tokenizer: str | None = None,
        batch_size: int | None = None,
        limit_rate: float | None = None,
        keep: bool = False,
        min_overlap: float | None = None,
        force: bool = False,
        queries: Sequence[str | Mapping[str, Any]] | None = None,
        sample: int = _SAMPLE,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        """Prepare a job; nothing is read or written yet.

        Args:
            engine: open for writing.
            embedder: a name or an object, see `jiyi.open`. None: the one the engine was opened with, unless `tokenizer`
                is given: then vectors are taken over as they are.
            tokenizer: "current" cuts every text into terms anew with this version of the tokenizer (there is one).
                Terms of an earlier version are renewed by any reindex.
            batch_size: memories embedded in one call, from 1; what a killed run loses. 1,024 when left out.
            limit_rate: memories a second at most, for live systems; None for full speed.
            keep: keep the generation that served, so that `rollback` can return to it. It takes disk until then, or
                until `drop_kept`.
            min_overlap: in [0, 1]: refuse to switch where the mean overlap@10 with the old answers is below.
            force: switch all the same, also where no comparison could be made or the disk seems too small.
            queries: what to compare by: texts (asked of the largest namespace), or mappings with query and namespace,
                as the lines of an eval set's `queries.jsonl`. None: what stored memories begin with.
            sample: how many of those, from 0, which compares nothing.
            on_event: told what happens, in the thread that runs the job; see `reindex_events`.

        Raises:
            ReadOnlyError: the engine cannot write.
            ModelError: there is no embedder, or it cannot be used.
            TypeError, ValueError: an argument is not as it must be.
        """
        self._store = store_of(engine)
        self._config = engine.config
        self._store.check_writable("reindex")
        if tokenizer is not None and tokenizer not in TOKENIZERS:
            raise ValueError(
                f"tokenizer is {quoted(tokenizer)}; it must be 'current' (this version's; there is one for all) or None"
            )
        self._batch_size = _checked_batch_size(batch_size, limit_rate)
        self._limit_rate = limit_rate
        self._keep = _checked_bool(keep, "keep")
        self._force = _checked_bool(force, "force")
        if min_overlap is not None and not (_is_number(min_overlap) and 0 <= min_overlap <= 1):
            raise ValueError(f"min_overlap is {quoted(min_overlap)}; it must be a share from 0 to 1")
        self._min_overlap = min_overlap
        if isinstance(sample, bool) or not isinstance(sample, int) or sample < 0:
            raise ValueError(f"sample is {quoted(sample)}; it must be a whole number from 0")
        self._sample = sample
        self._queries = checked_queries(queries)
        self._on_event = on_event
        self._target = _target(self._store, embedder, tokenizer)
        self._state: State = "new"
        self._error: str | None = None
        self._done = 0
        self._total = 0
        self._began: float | None = None
        self._counted = 0
        self._paused_s = 0.0
        self._go = threading.Event()
        self._go.set()
        self._cancelled = threading.Event()
        self._changing = threading.Lock()

    # ------------------------------------------------------------------------------------------- for a scheduler

    def plan(self) -> ReindexPlan:
        """Return what the job would do; embeds a few dozen memories to measure how long it takes. Writes nothing."""
        store, target = self._store, self._target
        store.check_usable()
        whole = store.ledger.count_all()
        building = self._building()
        done = 0 if building is None else min(building.done, whole)
        rate = self._measured_rate()
        if rate is not None and self._limit_rate is not None:
            rate = min(rate, self._limit_rate)
        row_bytes = self._row_bytes(target.dim)
        return ReindexPlan(
            memories=whole,
            done=done,
            embedder=target.model,
            dim=target.dim,
            embeds=target.embeds,
            recuts=store.stale_terms,
            seconds=None if rate is None else (whole - done) / rate,
            rate=rate,
            disk_bytes=round((whole - done) * row_bytes),
            free_bytes=self._free_bytes(),
        )

    def status(self) -> JobStatus:
        """Return where the job stands."""
        rate = self._rate()
        left = None if rate is None or not rate else max(self._total - self._done, 0) / rate
        return JobStatus(self._state, self._done, self._total, rate, left, self._error)

    def pause(self) -> None:
        """Wait after the batch at hand, until `resume` or `cancel`."""
        self._go.clear()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._go.set()

    def cancel(self) -> None:
        """Stop after the batch at hand and drop what is built; of a job that does not run, drop what its kind has left.

        A job that has switched, or is about to, is not undone; that is what `rollback` is for.
        """
        self._cancelled.set()
        self._go.set()
        with self._changing:
            if self._state in ("new", "refused", "failed", "interrupted"):
                with self._only_one():
                    self._release_built()
                    drop(self._store, lambda: None)
                self._state = "cancelled"

    def run(self) -> ReindexReport:
        """Build, catch up, compare, switch; return what was done. Blocks until it is.

        A refusal (`min_overlap`) is no error: `report.switched` is False and `report.refused` says why.

        Raises:
            StoreError: the store could not be written, or another reindex of it runs; what is done is kept.
            ValueError, DimensionError, TypeError: the embedder returned no usable vectors; likewise.
            Cancelled: `cancel` was called.
        """
        with self._changing:
            if self._cancelled.is_set():
                raise Cancelled
            if self._state != "new":
                raise StoreError(
                    f"this job is {self._state} and runs only once; make another, which goes on where it was"
                )
            self._state = "building"
        try:
            with self._only_one():
                report = self._run()
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
            self._error = str(error) or type(error).__name__
            self._state = "cancelled" if isinstance(error, Cancelled) else "interrupted" if interrupted else "failed"
            self._tell(Failed(self._error, self._state))
            raise
        return report

    # ------------------------------------------------------------------------------------------------- the steps

    def _run(self) -> ReindexReport:
        started = time.perf_counter()
        store, target = self._store, self._target
        store.check_usable()
        drop(store, self._between)
        found, resumed = self._found_or_begun()
        self._total = store.ledger.count_all()
        self._done = min(found.done, self._total)
        self._refuse_small_disk()
        builder = Builder(store, found, target.embedder, target.table, self._between)
        self._tell(Started(self._total, self._done, target.model, resumed))
        self._began = time.perf_counter()
        builder.sweep(self._batch_size, self._count)
        self._state = "catching up"
        meanwhile = builder.catch_up(self._batch_size)
        self._tell(CaughtUp(meanwhile))
        self._state = "comparing"
        beside = self._beside(self._reread(found))
        comparison, why_not = self._compared(beside)
        self._tell(Compared(comparison, why_not))
        refused = self._refusal(comparison, why_not)
        if refused is not None:
            self._state = "refused"
            self._tell(Refused(refused))
            return self._report(builder.taken, comparison, why_not, refused, started)
        builder.catch_up(self._batch_size)
        with self._changing:  # from here on it is too late to cancel
            self._check_cancelled()
            self._state = "switching"
        left = store.embedder, store.table, store.vectors_model
        _, waited_s = builder.finish(beside.make_ready(), keep=self._keep)
        if self._keep:
            store.left_models[left[2]] = left[0], left[1]
        self._done = self._total = store.ledger.count_all()
        self._tell(Switched(store.model, waited_s * 1000))
        self._state = "dropping"
        drop(store, self._go_on)
        report = self._report(builder.taken, comparison, why_not, None, started)
        self._state = "done"
        self._tell(Done(report))
        return report

    def _report(
        self, taken: int, comparison: Comparison | None, why_not: str | None, refused: str | None, started: float
    ) -> ReindexReport:
        return ReindexReport(
            memories=self._store.ledger.count_all(),
            embedded=taken,
            switched=refused is None,
            refused=refused,
            comparison=comparison,
            not_compared=why_not,
            embedder=self._store.model,
            kept=kept_generation(self._store) is not None,
            seconds=time.perf_counter() - started,
        )

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        with only_one(self._store):
            yield

    def _found_or_begun(self) -> tuple[Generation, bool]:
        """The generation that an earlier run has begun, if it is of the same and sound, or a new one."""
        store, target = self._store, self._target
        building = self._building()
        if building is not None:
            builder = Builder(store, building, target.embedder, target.table, lambda: None)
            if not builder.differs(_CHECKED_ON_RESUME):
                return building, True
        self._release_built()
        drop(store, self._between)
        with store.ledger.changing() as connection:
            begun = generations.begin(
                connection,
                embedder=target.model,
                dim=target.dim,
                table=target.table_name,
                analyzer=ANALYZER_VERSION,
                same_vectors=not target.embeds,
            )
        return begun, False

    def _building(self) -> Generation | None:
        """What an earlier run of the same target has begun."""
        with self._store.ledger.reading() as connection:
            every = generations.beside(connection)
        version = self._store.vectors_version
        return next((g for g in every if g.state == BUILDING and self._target.is_of(g, version)), None)

    def _release_built(self) -> None:
        with self._store.ledger.changing() as connection:
            for found in generations.beside(connection):
                if found.state == BUILDING:
                    generations.release(connection, found.number)

    def _reread(self, found: Generation) -> Generation:
        with self._store.ledger.reading() as connection:
            return next(each for each in generations.beside(connection) if each.number == found.number)

    def _beside(self, found: Generation) -> Beside:
        if not self._target.embeds:  # a first write may have told the store's model meanwhile
            found = replace(found, embedder=self._store.model, dim=self._store.dim)
        return Beside(self._store, found, self._target.embedder, self._target.table)

    def _compared(self, beside: Beside) -> tuple[Comparison | None, str | None]:
        store = self._store
        queries = self._queries if self._queries is not None else stored_queries(store.ledger, self._sample)
        if not queries:
            return None, "the store is empty" if self._sample else "sample=0"
        old: Store = store
        if store.mismatch is not None or (store.unusable is not None and store.model != EXTERNAL):
            model = None if store.model is None else known_embedder(store.model, store.device)
            if model is None:
                return None, f"the model that the old vectors come from, {quoted(store.model)}, cannot be had here"
            serving = Generation(
                store.generation, "serving", store.model, store.dim, None, None, store.vectors_version, 0, 0
            )
            old = Beside(store, serving, model, model if isinstance(model, TokenTable) else None)
        now_s = to_seconds(utc_now())
        return compare(old, beside, queries, self._config, now_s, given=self._queries is not None), None

    def _refusal(self, comparison: Comparison | None, why_not: str | None) -> str | None:
        if self._min_overlap is None or self._force:
            return None
        if comparison is None:
            if why_not == "the store is empty":
                return None
            return f"the answers could not be compared ({why_not}), and min_overlap={self._min_overlap:g} was asked for"
        if comparison.overlap_at_10 < self._min_overlap:
            return (
                f"overlap@10 with the old answers is {comparison.overlap_at_10:.3f} over {comparison.queries} queries, "
                f"below min_overlap={self._min_overlap:g}; what is built is kept, and force switches to it at once"
            )
        return None

    # ------------------------------------------------------------------------------------------------- pace, cost

    def _between(self) -> None:
        """Between batches: wait while paused or ahead of the rate, stop when cancelled."""
        self._check_cancelled()
        self._store.check_usable()
        if not self._go.is_set():
            before, began = self._state, time.perf_counter()
            self._state = "paused"
            while not self._go.wait(0.1):
                self._store.check_usable()
            self._state = before
            self._paused_s += time.perf_counter() - began
        if self._limit_rate is not None and self._began is not None:
            until = self._began + self._paused_s + self._counted / self._limit_rate
            while (left := until - time.perf_counter()) > 0 and not self._cancelled.is_set() and self._go.is_set():
                time.sleep(min(left, 0.1))
        self._check_cancelled()

    def _go_on(self) -> None:
        """Between steps after the switch, which cannot be cancelled any more."""
        self._store.check_usable()

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            self._release_built()
            drop(self._store, lambda: None)
            raise Cancelled

    def _count(self, batch: int) -> None:
        self._counted += batch
        self._done += batch
        self._total = max(self._total, self._done)
        rate = self._rate()
        if batch and rate:
            self._tell(Progressed(self._done, self._total, rate, (self._total - self._done) / rate))

    def _rate(self) -> float | None:
        if self._began is None or not self._counted:
            return None
        return self._counted / max(time.perf_counter() - self._began - self._paused_s, 1e-9)

    def _tell(self, event: Event) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def _measured_rate(self) -> float | None:
        store, embedder = self._store, self._target.embedder
        texts = [query.text for query in stored_queries(store.ledger, _MEASURED)]
        with store.ledger.reading() as connection:
            long = "SELECT text FROM memories ORDER BY key LIMIT ?"
            texts = [row[0] for row in connection.execute(long, (_MEASURED,))] or texts
        if not texts or embedder is None or not self._target.embeds:
            return None
        embedder.embed(texts[:1])
        started = time.perf_counter()
        embedder.embed(texts)
        return len(texts) / max(time.perf_counter() - started, 1e-9)

    def _row_bytes(self, dim: int | None) -> float:
        query = (
            "SELECT avg(length(terms) + length(freqs) + length(tokens)) FROM "
            "(SELECT terms, freqs, tokens FROM columns ORDER BY key LIMIT 200)"
        )
        with self._store.ledger.reading() as connection:
            average = connection.execute(query).fetchone()[0] or 0.0
        return float((average + 4 * (dim or 0) + _ROW_OVERHEAD) / _PAGE_FILL)

    def _free_bytes(self) -> int | None:
        if self._store.folder is None:
            return None
        with self._store.ledger.reading() as connection:
            pages = connection.execute("PRAGMA freelist_count").fetchone()[0]
            size = connection.execute("PRAGMA page_size").fetchone()[0]
        return int(shutil.disk_usage(self._store.folder).free) + int(pages * size)

    def _refuse_small_disk(self) -> None:
        """A disk that fills up would take down those who write beside."""
        free = self._free_bytes()
        need = round((self._total - self._done) * self._row_bytes(self._target.dim))
        if free is not None and need > free and not self._force:
            raise StoreError(
                f"the new generation takes about {need / 1e6:,.0f} MB beside the old one and {free / 1e6:,.0f} MB are "
                "free; free some, or go on with force"
            )


# ------------------------------------------------------------------------------------------------- back to the old


def rollback(
    store: Store,
    embedder: Embedder | str | None = None,
    *,
    keep: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ReindexReport:
    """Let the kept generation serve again; see `Engine.rollback`."""
    started = time.perf_counter()
    with only_one(store):
        found = kept_generation(store)
        if found is None:
            raise StoreError("there is no kept generation to go back to: reindex with keep=True first")
        model, table = _model_of(store, found, embedder)
        left = store.embedder, store.table, store.vectors_model
        builder = Builder(store, found, model, table, store.check_usable)
        with store.ledger.reading() as connection:
            whole = generations.count_behind(connection, found.number)
        builder.catch_up(_BATCH, None if progress is None else lambda count: progress(min(count, whole), whole))
        beside = Beside(store, found, model, table)
        builder.finish(beside.make_ready(), keep=keep)
        if keep:
            store.left_models[left[2]] = left[0], left[1]
        drop(store, store.check_usable)
    return ReindexReport(
        memories=store.ledger.count_all(),
        embedded=builder.taken,
        switched=True,
        refused=None,
        comparison=None,
        not_compared="a rollback compares nothing",
        embedder=store.model,
        kept=keep,
        seconds=time.perf_counter() - started,
    )


def drop_kept(store: Store) -> bool:
    """Drop the kept generation, and what a stopped drop has left; return whether there was a kept one."""
    with only_one(store):
        found = kept_generation(store)
        if found is not None:
            with store.ledger.changing() as connection:
                generations.release(connection, found.number)
        drop(store, store.check_usable)
    return found is not None


def kept_generation(store: Store) -> Generation | None:
    """Return the generation that `rollback` would go back to."""
    with store.ledger.reading() as connection:
        return next((found for found in generations.beside(connection) if found.state == KEPT), None)


@contextmanager
def only_one(store: Store) -> Iterator[None]:
    """Keep other reindexes of the store out.

    Raises:
        StoreError: one is running.
    """
    if not store.reindexing.acquire(blocking=False):
        raise StoreError("a reindex of this store is running in another thread; wait for it to end")
    try:
        yield
    finally:
        store.reindexing.release()


def _model_of(
    store: Store, found: Generation, given: Embedder | str | None
) -> tuple[Embedder | None, TokenTable | None]:
    """What the vectors of a kept generation come from."""
    if found.embedder is None or found.embedder == EXTERNAL:
        return None, None
    if found.vectors_version == store.vectors_version:
        return store.embedder, store.table
    embedder, table = store.left_models.get(f"{found.embedder}@{found.vectors_version}", (None, None))
    if given is not None:
        embedder, table = _loaded(store, given), None
        if (embedder.name, embedder.dim) != (found.embedder, found.dim):
            raise ModelError(
                f"the kept generation is of {quoted(found.embedder)} ({found.dim} dimensions), not of "
                f"{quoted(embedder.name)} ({embedder.dim})"
            )
    if embedder is None:
        embedder = known_embedder(found.embedder, store.device)
    if embedder is None:
        raise ModelError(
            f"the kept generation is of {quoted(found.embedder)}, which cannot be had here: give it, rollback(embedder)"
        )
    if table is None:
        table = _table_for(store, embedder)
        if table is not None and not isinstance(embedder, TokenTable) and table.name != found.table:
            table = None
    return embedder, table


def _target(store: Store, given: Embedder | str | None, tokenizer: str | None) -> _Target:
    if given is None and tokenizer is not None:
        name = store.ledger.manifest().get("table")
        return _Target(store.embedder, store.table, False, store.model, store.dim, name)
    chosen = store.embedder if given is None else _loaded(store, given)
    if chosen is None:
        raise ModelError("there is nothing to embed with: name an embedder, reindex('e5-static-256')")
    table = _table_for(store, chosen)
    if table is None and isinstance(given, str):
        table = companion_of(chosen)
    own = table is not None and not isinstance(chosen, TokenTable)
    return _Target(chosen, table, True, chosen.name, int(chosen.dim), table.name if table is not None and own else None)


def _loaded(store: Store, given: Embedder | str) -> Embedder:
    if isinstance(given, str):
        try:
            return load_embedder(given, device=store.device)
        except ModelFilesError as error:
            raise ModelError(f"the embedder {quoted(given)} cannot be used: {error}") from error
    if not isinstance(given, Embedder):
        raise TypeError(
            f"embedder must be a name or an object with name, dim, embed and embed_query, got {quoted(given)}"
        )
    check_embedder(given)
    return given


def _table_for(store: Store, embedder: Embedder) -> TokenTable | None:
    if isinstance(embedder, TokenTable):
        return embedder
    return store.companion


def _checked_batch_size(batch_size: int | None, limit_rate: float | None) -> int:
    if limit_rate is not None and not (_is_number(limit_rate) and 0 < limit_rate < math.inf):
        raise ValueError(f"limit_rate is {quoted(limit_rate)}; it must be memories a second, above 0")
    if batch_size is None:
        # No longer than a second at once, so that a limited job is even.
        return _BATCH if limit_rate is None else min(_BATCH, max(1, int(limit_rate)))
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or not 1 <= batch_size <= 1 << 20:
        raise ValueError(f"batch_size is {quoted(batch_size)}; it must be a whole number from 1 to {1 << 20}")
    return int(batch_size)


def _checked_bool(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be True or False, got {quoted(value)}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
