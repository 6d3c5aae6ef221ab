"""Errors of the memory model: a question that has no answer, in words for the person who asked."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


class MemoryModelError(ValueError):
    """The configuration is none that vLLM would run; the message says what is wrong and what to do."""


class UnknownName(MemoryModelError):
    """A word that is in no table."""

    def __init__(self, what: str, word: str, known: Sequence[str]) -> None:
        near = get_close_matches(word, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        super().__init__(f"unknown {what} {word!r}; {hint}")
