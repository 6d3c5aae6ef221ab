"""docs/choice.md is what the planner chooses now."""

from __future__ import annotations

from tests.planner.choice_page import PAGE, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.planner.choice_page --write"
