"""Hits as a picture: bars that add up, in a file of the kind its name says, whatever the text and the fonts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import jiyi
from jiyi.hits import Hits
from jiyi.pictures import PlotError
from jiyi.plot import Bars, bars_of
from tests.engine.embedders import HashTable, PairScorer, reads_latin

NOW = datetime(2026, 1, 8, tzinfo=UTC)
PNG = b"\x89PNG\r\n\x1a\n"

needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs the extra plot")


@pytest.fixture
def engine() -> Any:
    with jiyi.open(embedder=HashTable()) as opened:
        opened.add_many(
            [
                {"text": "where does ana live", "session": "s", "timestamp": NOW - timedelta(days=3)},
                {
                    "text": "berlin since last spring with her sister and dog",
                    "session": "s",
                    "timestamp": NOW - timedelta(days=2),
                },
                {"text": "周末喜欢去徒步，特别是越野路线", "id": "hiking", "kind": "archival"},
                {"text": "周末喜欢去徒步，特别是越野路线", "id": "copy", "kind": "archival"},
            ]
        )
        yield opened


@pytest.fixture
def hits(engine: jiyi.Engine) -> Hits:
    scorer = PairScorer(lambda query, text: -len(text), knows=reads_latin)
    return engine.search("where does ana live 徒步", now=NOW, rerank=scorer)


def add_up(bars: Bars) -> None:
    for i, score in enumerate(bars.scores):
        assert sum(amounts[i] for amounts in bars.parts.values()) == pytest.approx(score, abs=1e-9)


def test_the_bars_add_up_to_the_scores(engine: jiyi.Engine, hits: Hits) -> None:
    for each in (
        hits,
        engine.search("ana 徒步", now=NOW),
        engine.search("ana", now=NOW, fusion="rrf", diversity="none"),
    ):
        bars = bars_of(each, 40)
        assert len(bars.labels) == len(bars.scores) == len(each) == 4
        assert bars.scores == each.scores
        assert all(any(amounts) for amounts in bars.parts.values())
        add_up(bars)
    bars = bars_of(hits, 40)
    assert set(bars.parts) == {"dense", "keyword", "late", "lent", "recency", "rerank"}
    assert any(amount < 0 for amount in bars.parts["rerank"])  # what lowers a score is negative


def test_penalties_are_those_of_diversification(engine: jiyi.Engine, hits: Hits) -> None:
    assert bars_of(hits, 40).penalties == [hit.factors["mmr"]["penalty"] for hit in hits]
    assert max(bars_of(hits, 40).penalties or []) == 1.0
    assert bars_of(engine.search("ana", now=NOW, diversity="none"), 40).penalties is None


def test_labels_are_clipped_to_a_line(engine: jiyi.Engine) -> None:
    engine.add("ana\n\x1b[2J" + "猫" * 500, id="long")
    labels = bars_of(engine.search("ana 猫", now=NOW), 40).labels
    assert all(len(label) < 60 and label.isprintable() for label in labels)
    assert labels[0].startswith("1  ")


def test_only_the_first_hits(hits: Hits) -> None:
    assert bars_of(hits, 2).scores == hits.scores[:2]


def test_no_hits(engine: jiyi.Engine) -> None:
    bars = bars_of(engine.search("x", k=0), 40)
    assert (bars.labels, bars.scores, bars.parts, bars.penalties) == ([], [], {}, None)


@pytest.mark.parametrize("name", ["picture", "picture.gif", "picture.png.txt", ".png", ""])
def test_an_ending_that_is_not_known(hits: Hits, tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"must end in \.png, \.svg, \.pdf"):
        hits.plot(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("max_hits", "error"), [(0, ValueError), (-1, ValueError), (501, ValueError), (True, TypeError), ("5", TypeError)]
)
def test_a_bad_number_of_hits(hits: Hits, tmp_path: Path, max_hits: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_hits"):
        hits.plot(tmp_path / "picture.png", max_hits=max_hits)


def test_without_matplotlib_the_error_says_how_to_get_it(
    hits: Hits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PlotError, match=r"pip install 'jiyi\[plot\]'") as caught:
        hits.plot(tmp_path / "picture.png")
    assert isinstance(caught.value, jiyi.JiyiError)
    assert isinstance(caught.value, ImportError)


# ------------------------------------------------------------------------------------------------- with Matplotlib


@needs_matplotlib
def test_png_svg_and_pdf(hits: Hits, tmp_path: Path) -> None:
    png = hits.plot(tmp_path / "picture.PNG")
    assert png == tmp_path / "picture.PNG"
    assert png.read_bytes().startswith(PNG)
    root = ElementTree.fromstring(hits.plot(str(tmp_path / "picture.svg")).read_text(encoding="utf-8"))
    assert root.tag.endswith("svg")
    assert hits.plot(tmp_path / "picture.pdf").read_bytes().startswith(b"%PDF")


@needs_matplotlib
def test_what_is_drawn_is_what_adds_up(hits: Hits) -> None:
    from jiyi.plot import _drawn

    bars = bars_of(hits, 40)
    main, side = _drawn(bars, "a query", len(hits)).axes
    rows: dict[int, float] = {}
    for container in main.containers:
        for i, patch in enumerate(container):
            rows[i] = rows.get(i, 0.0) + patch.get_width()
    assert list(rows.values()) == pytest.approx(bars.scores, abs=1e-9)
    assert [patch.get_width() for patch in side.patches] == pytest.approx(bars.penalties)
    bottom, top = main.get_ylim()
    assert bottom > top  # the best hit stands above
    legend = [text.get_text() for text in main.get_figure().legends[0].get_texts()]
    assert set(legend) == {"score", "dense", "keyword", "late", "turn before", "recency", "rerank"}


@needs_matplotlib
@pytest.mark.parametrize(
    "text",
    ["$x_{1} and $y$", "$\\frac{", "\x1b[31m\x00\u202e", "\ud800", "👍🏽 emoji", "猫" * 300, "", "_underscore", "ก็ไทย"],
)
def test_hostile_text_is_drawn(engine: jiyi.Engine, tmp_path: Path, text: str) -> None:
    if text and "\x00" not in text and "\ud800" not in text:
        engine.add("ana " + text, id=text[:20])
    engine.search("ana " + text, now=NOW).plot(tmp_path / "picture.png")


@needs_matplotlib
def test_nothing_found_and_many_hits(engine: jiyi.Engine, tmp_path: Path) -> None:
    engine.search("x", k=0).plot(tmp_path / "nothing.svg")
    engine.add_many([f"ana {i}" for i in range(60)])
    engine.search("ana", k=60, now=NOW).plot(tmp_path / "many.svg")
    assert (tmp_path / "many.svg").stat().st_size > (tmp_path / "nothing.svg").stat().st_size


@needs_matplotlib
def test_no_state_is_left_behind(child: Any, tmp_path: Path) -> None:
    """A program that draws itself keeps its backend, its figures and its settings; a plain search imports nothing."""
    done = child(
        """
import sys
import jiyi
with jiyi.open(embedder=None) as engine:
    engine.add("cat")
    hits = engine.search("cat")
    hits.explain()
    assert not any(name.startswith("matplotlib") for name in sys.modules)
    hits.plot(sys.argv[1])
    assert "matplotlib.pyplot" not in sys.modules
    import matplotlib
    before = dict(matplotlib.rcParams)
    hits.plot(sys.argv[1])
    assert dict(matplotlib.rcParams) == before
""",
        tmp_path / "picture.png",
    )
    assert done.returncode == 0, done.stderr


@needs_matplotlib
def test_a_folder_that_is_not_there(hits: Hits, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hits.plot(tmp_path / "missing" / "picture.png")


def _font(path: Path, family: str, characters: str) -> None:
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    pen = TTGlyphPen(None)
    for point, draw in (((100, 0), pen.moveTo), ((100, 700), pen.lineTo), ((800, 700), pen.lineTo)):
        draw(point)
    pen.closePath()
    glyph = pen.glyph()
    names = [".notdef", *(f"uni{ord(character):04X}" for character in characters)]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(character): f"uni{ord(character):04X}" for character in characters})
    builder.setupGlyf(dict.fromkeys(names, glyph))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (900, 100)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)


@pytest.fixture
def only_base_fonts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Nothing installed but what comes with Matplotlib."""
    from matplotlib.font_manager import fontManager

    from jiyi.fonts import _characters_of

    base = [font for font in fontManager.ttflist if font.name == "DejaVu Sans" or "Last Resort" in font.name]
    monkeypatch.setattr(fontManager, "ttflist", list(base))
    _characters_of.cache_clear()
    fontManager._findfont_cached.cache_clear()
    yield fontManager
    fontManager._findfont_cached.cache_clear()


@needs_matplotlib
def test_a_font_that_has_the_characters_is_found(only_base_fonts: Any, tmp_path: Path, hits: Hits) -> None:
    from jiyi.fonts import fonts_for

    text = "徒步 and more"
    assert fonts_for(text) == (["DejaVu Sans"], frozenset("徒步"))
    every = "".join(sorted({character for hit in hits for character in hit.memory.text if ord(character) > 127}))
    _font(tmp_path / "han.ttf", "Only Han", every)
    only_base_fonts.addfont(str(tmp_path / "han.ttf"))
    assert fonts_for(text) == (["DejaVu Sans", "Only Han"], frozenset())
    assert fonts_for("plain") == (["DejaVu Sans"], frozenset())
    hits.plot(tmp_path / "picture.png")  # a missing glyph would be a warning, and warnings are errors here


@needs_matplotlib
def test_without_such_a_font_the_picture_says_so_and_shows_ids(only_base_fonts: Any, hits: Hits) -> None:
    from jiyi.plot import _drawn

    figure = _drawn(bars_of(hits, 40), hits.text, len(hits))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert any(label.endswith("  hiking") for label in labels)
    assert any(label.endswith("  where does ana live") for label in labels)
    assert "Noto Sans CJK" in figure.legends[0].get_title().get_text()
    assert figure.axes[0].get_title(loc="left") == "query: where does ana live ·"
