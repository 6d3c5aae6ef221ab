"""How a host serves, as its own program says."""

from __future__ import annotations

from typing import Any

from pyinfra.api.facts import FactBase

from qwenlab.facts.answers import reading, value_of


class HostStatus(FactBase[dict[str, Any]]):
    """The JSON object of /usr/local/lib/qwen/status.py; empty on a host that was never deployed."""

    def command(self) -> str:
        """Root reads the API key for /metrics; -B: nothing is written, not even compiled parts."""
        return "python3 -B /usr/local/lib/qwen/status.py 2>/dev/null; true"

    def process(self, output: list[str]) -> dict[str, Any]:
        """Raises `FactProcessError` when it is no JSON object; that fails this host alone."""
        with reading("the host's status"):
            said: dict[str, Any] = value_of(output, dict)
            return said

    @staticmethod
    def default() -> dict[str, Any]:
        """Nothing is there."""
        return {}
