"""docs/memory.md is what the model says today."""

from __future__ import annotations

from qwenlab.planner.memory.document import MARKDOWN, document, main


def test_the_document_is_current() -> None:
    assert MARKDOWN.read_text(encoding="utf-8") == document(), "python -m qwenlab.planner.memory.document --write"
    assert main(["--check"]) == 0


def test_misses_are_listed_with_their_error_and_reason() -> None:
    text = document()
    assert "## Published pools that are not" in text
    assert "the fork's base is not known" in text
    assert " % |" in text
