"""docs/accuracy.md and its plot are what the code generates now."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from qwenlab.accuracy.page import page
from qwenlab.accuracy.plot import plot
from qwenlab.accuracy.reports import points

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_is_current() -> None:
    assert (DOCS / "accuracy.md").read_text(encoding="utf-8") == page(), "python -m qwenlab accuracy --write"


def test_the_plot_is_current_and_shows_every_rate() -> None:
    text = plot()
    assert (DOCS / "accuracy.svg").read_text(encoding="utf-8") == text, "python -m qwenlab accuracy --write"
    marks = list(ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}title"))
    assert len(marks) == sum(point.single_stream for point in points())
