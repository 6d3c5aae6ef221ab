"""How a host serves, as its own program says."""

from __future__ import annotations

import json
from typing import Any

from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase


class HostStatus(FactBase[dict[str, Any]]):
    """The JSON object of /usr/local/lib/qwen/status.py; empty on a host that was never deployed."""

    def command(self) -> str:
        """Root reads the API key for /metrics."""
        return "python3 /usr/local/lib/qwen/status.py 2>/dev/null; true"

    def process(self, output: list[str]) -> dict[str, Any]:
        """Raises `FactProcessError` when it is no JSON object; that fails this host alone."""
        try:
            said = json.loads("\n".join(output))
        except ValueError as error:
            raise FactProcessError(f"the host's status could not be read: {error}") from error
        if not isinstance(said, dict):
            raise FactProcessError("the host's status could not be read: not an object")
        return said

    @staticmethod
    def default() -> dict[str, Any]:
        """Nothing is there."""
        return {}
