"""Rehearsals on a host: what is in their way, and what came of the last one."""

from __future__ import annotations

import json
from typing import Any

from pyinfra.api.facts import FactBase

from qwenlab.facts.answers import reading, value_of
from qwenlab.service.rehearsal import RESULT

SERVING = r"""
systemctl list-units --plain --no-legend --state=active,activating 'qwen-engine@*' 2>/dev/null | while read -r unit rest
do
    name=${unit#qwen-engine@}; name=${name%.service}
    echo "$name $(tr -d '\n' < "/etc/qwen/engines/$name.gate.json" 2>/dev/null)"
done
true
"""


class ServingCards(FactBase[dict[str, tuple[str, ...]]]):
    """Engines that are up or starting, each with the UUIDs of its cards; none on the cpu engine."""

    def command(self) -> str:
        """One line an engine: its name and its gate file."""
        return SERVING.strip()

    def process(self, output: list[str]) -> dict[str, tuple[str, ...]]:
        """An engine whose gate file cannot be read counts as one on all cards."""
        found: dict[str, tuple[str, ...]] = {}
        for line in output:
            name, _, text = line.partition(" ")
            try:
                found[name] = tuple(json.loads(text)["cards"])
            except (ValueError, KeyError, TypeError):
                found[name] = ()
        return found

    @staticmethod
    def default() -> dict[str, tuple[str, ...]]:
        """Nothing serves."""
        return {}


class RehearsalResult(FactBase[list[dict[str, Any]]]):
    """What the last rehearsal said, engine by engine; it is taken away by being read."""

    def command(self) -> str:
        """Nothing when there was none."""
        return f"cat {RESULT} 2>/dev/null; rm -f {RESULT}; true"

    def process(self, output: list[str]) -> list[dict[str, Any]]:
        """Raises `FactProcessError` when it is something else; that fails this host alone."""
        with reading("the rehearsal's result"):
            said: list[dict[str, Any]] = value_of(output, list)
            return said

    @staticmethod
    def default() -> list[dict[str, Any]]:
        """There was none."""
        return []
