"""The demo, printed: what was remembered, questions, two scenes, timings."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import jiyi
from jiyi.demo.data import NAMESPACE, DemoData, load
from jiyi.demo.page import Page
from jiyi.demo.scenes import EXPLAINED, HIKING_ID, PYTHON_ID, QUESTIONS, redis_scene, typescript_scene
from jiyi.engine import Engine
from jiyi.explain import clipped
from jiyi.hits import Hit, Hits
from jiyi.language import is_chinese
from jiyi.memory import KINDS
from jiyi.models.protocols import Embedder
from jiyi.terminal import cut


def show(store: str | os.PathLike[str] | None = None, *, embedder: Embedder | str | None = "default") -> None:
    """Print the demo.

    Args:
        store: the folder to keep the store in; a temporary one when left out.
        embedder: see `jiyi.open`.
    """
    data = load()
    page = Page()
    page.line(
        page.styled("jiyi 记忆", "bold") + "  a memory for AI agents, in one process: no server, no network, no key"
    )
    page.line("Compiling kernels, up to a minute the first time on a machine … ", "dim", end="")
    warmup_s = _timed(jiyi.warmup)
    page.line(f"ready in {warmup_s:.1f} s", "dim")
    with _folder(store) as folder, jiyi.open(folder, embedder=embedder) as engine:
        ingest_s = _timed(lambda: engine.add_many(data.memories))
        _remembered(page, engine, data, ingest_s)
        _questions(page, engine, data)
        _copies(page, engine, data)
        _who_she_is(page, engine, data)
        _timings(page, engine, data, ingest_s)
    if store is not None:
        page.line(f"\nThe store is in {store}. Ask it yourself:")
        page.line(f'  jiyi search "Redis" --namespace {NAMESPACE} --store {store}')


@contextmanager
def _folder(store: str | os.PathLike[str] | None) -> Iterator[Path]:
    if store is not None:
        yield Path(store)
        return
    with tempfile.TemporaryDirectory(prefix="jiyi-demo-") as folder:
        yield Path(folder)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _remembered(page: Page, engine: Engine, data: DemoData, seconds: float) -> None:
    first, last = min(m.timestamp for m in data.memories), max(m.timestamp for m in data.memories)
    page.heading("What is remembered")
    page.line(
        f"{len(data.memories)} memories of 林悦 (Lin), a backend developer in Hangzhou, {first:%Y-%m-%d} to "
        f"{last:%Y-%m-%d}, stored and searchable in {1000 * seconds:.0f} ms."
    )
    chinese = Counter(memory.kind for memory in data.memories if is_chinese(memory.text))
    meanings = dict(zip(KINDS, ("what happened", "facts", "who she is", "how to do things"), strict=True))
    for kind, count in engine.stats()["kinds"].items():
        languages = f"{chinese[kind]:3} Chinese {count - chinese[kind]:3} English"
        page.line(f"  {kind:11} {count:4}  {page.styled(languages, 'dim')}   {meanings[kind]}")
    page.line(f"Asked as of {data.now:%Y-%m-%d %H:%M} UTC, her last message, so that ages stay what they are.", "dim")


def _questions(page: Page, engine: Engine, data: DemoData) -> None:
    page.heading("Questions, in either language about either")
    page.line(
        "Chosen because they go well; `jiyi eval` scores all 26 of the demo's questions, and some find nothing of use."
    )
    for query in QUESTIONS:
        page.line(page.styled("? ", "cyan") + page.styled(query, "bold"))
        for hit in engine.search(query, namespace=NAMESPACE, k=2, now=data.now):
            page.line("  " + _hit(page, hit, page.width - 2))
    hits = engine.search(EXPLAINED, namespace=NAMESPACE, k=3, now=data.now)
    page.line(page.styled("? ", "cyan") + page.styled(EXPLAINED, "bold"))
    for hit in hits:
        page.line("  " + _hit(page, hit, page.width - 2))
    page.line()
    page.line("hits.explain() shows every number behind every rank of the last one:", "dim")
    for line in hits.explain().splitlines()[1:]:
        page.line(cut(line, page.width))


def _copies(page: Page, engine: Engine, data: DemoData) -> None:
    scene = typescript_scene(engine, data)
    page.heading("Scene: one decision, told three times, takes every place")
    page.line(page.styled("? ", "cyan") + page.styled(scene.query, "bold") + "  (k = 3)")
    page.beside(
        ["plain top 3 (fused score only)", *_column(scene.plain)],
        ["jiyi (recency and diversity)", *_column(scene.jiyi)],
    )
    for name, hits in (("plain", scene.plain), ("jiyi", scene.jiyi)):
        _verdict(page, name, PYTHON_ID in hits.ids, f"that she is also learning Python ({PYTHON_ID})", "the agent")


def _who_she_is(page: Page, engine: Engine, data: DemoData) -> None:
    scene = redis_scene(engine, data)
    hiking = engine.get(HIKING_ID, namespace=NAMESPACE)
    page.heading("Scene: who she is, when she asks about something else")
    page.line("The conversation ends:", "dim")
    for message in data.messages[-3:]:
        page.line(f"  {message['role']:9}  {clipped(message['content'], page.width - 13)}")
    page.line("Plain top 5 for the last message:", "dim")
    for hit in scene.plain:
        page.line("  " + _hit(page, hit, page.width - 2))
    page.line("build_context searches without fillers and small talk, keeps places for who she is, and returns:", "dim")
    for line in scene.context.text.splitlines():
        shown = cut(f"  │ {line}", page.width)
        page.line(shown, "green" if hiking.text in line else "cyan")
    page.line(f"  {scene.context.tokens} tokens", "dim")
    _verdict(page, "plain", HIKING_ID in scene.plain.ids, f"“{hiking.text}”", "the prompt")
    _verdict(page, "jiyi", hiking.text in scene.context.text, f"“{hiking.text}”", "the prompt")


def _timings(page: Page, engine: Engine, data: DemoData, ingest_s: float) -> None:
    page.heading("Timings, of this run")
    searches = [
        _timed(partial(engine.search, question.query, namespace=NAMESPACE, now=data.now)) for question in data.questions
    ]
    contexts = [
        _timed(partial(engine.build_context, data.messages, namespace=NAMESPACE, now=data.now)) for _ in data.questions
    ]
    count = len(data.memories)
    page.line(f"  store {count} memories    {1000 * ingest_s:8.2f} ms   ({count / ingest_s:,.0f} a second)")
    page.line(f"  search, p50           {1000 * median(searches):8.2f} ms   (of {len(searches)} questions)")
    page.line(f"  build_context, p50    {1000 * median(contexts):8.2f} ms")


def _hit(page: Page, hit: Hit, columns: int) -> str:
    """A hit's rank, score, day, kind, id and as much of its text as fits."""
    memory = hit.memory
    head = f"{hit.rank}  {hit.score:.2f}  {memory.timestamp:%m-%d}  {memory.kind:10}  {memory.id:4}  "
    return page.styled(head, "dim") + clipped(memory.text, columns - len(head))


def _column(hits: Hits) -> list[str]:
    return [f"{hit.rank}  {hit.score:.2f}  {hit.memory.id:4}  {hit.memory.text}" for hit in hits]


def _verdict(page: Page, name: str, reaches: bool, what: str, whom: str) -> None:
    mark = page.styled("✓", "green") if reaches else page.styled("✗", "red")
    page.line(f"{mark} {name:5}  {what} {'reaches' if reaches else 'never reaches'} {whom}")
