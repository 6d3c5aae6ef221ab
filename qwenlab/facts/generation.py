"""Whether what a host serves is kept as its last good generation."""

from __future__ import annotations

from pyinfra.api.facts import FactBase


class GenerationSaved(FactBase[bool]):
    """True when `save` has nothing to do."""

    def command(self) -> str:
        """A host without the program has saved nothing."""
        return "python3 /usr/local/lib/qwen/generation.py state 2>/dev/null; true"

    def process(self, output: list[str]) -> bool:
        """One word."""
        return output[-1:] == ["saved"]

    @staticmethod
    def default() -> bool:
        """Nothing was said."""
        return False
