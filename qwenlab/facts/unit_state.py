"""Whether a systemd unit starts at boot and runs now."""

from __future__ import annotations

import shlex

from pyinfra.api.facts import FactBase


class UnitState(FactBase[str]):
    """systemd's two words, e.g. `enabled active`; `static` counts as enabled, an absent unit is `absent`."""

    def command(self, unit: str) -> str:
        """`unit`: full name."""
        name = shlex.quote(unit)
        return (
            f"enabled=$(systemctl is-enabled {name} 2>/dev/null); "
            f'[ "$enabled" != static ] || enabled=enabled; '
            f'echo "${{enabled:-absent}} $(systemctl is-active {name} 2>/dev/null)"'
        )

    def process(self, output: list[str]) -> str:
        """The line."""
        return output[-1].strip()

    @staticmethod
    def default() -> str:
        """Nothing known."""
        return "absent inactive"
