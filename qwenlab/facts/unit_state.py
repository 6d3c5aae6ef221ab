"""Whether a systemd unit starts at boot and runs now."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from pyinfra.api.exceptions import FactProcessError
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


@dataclass(frozen=True)
class UnitRun:
    """Attributes:
    state: systemd's ActiveState, or `absent`.
    result: how it ended last: `success`, `exit-code`, `start-limit-hit`, `oom-kill` ...
    enabled: it starts at boot.
    """

    state: str = "absent"
    result: str = "success"
    enabled: bool = False


class UnitRuns(FactBase[dict[str, UnitRun]]):
    """How units run, by full name."""

    def command(self, units: tuple[str, ...]) -> str:
        """`units`: at least one full name."""
        names = " ".join(shlex.quote(unit) for unit in units)
        return f"systemctl show -p Id,LoadState,ActiveState,Result,UnitFileState {names} 2>/dev/null; true"

    def process(self, output: list[str]) -> dict[str, UnitRun]:
        """systemd's blocks, one a unit; an odd answer fails this host alone."""
        found = {}
        for block in "\n".join(line.strip() for line in output).split("\n\n"):
            known = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
            try:
                there = known["LoadState"] != "not-found"
                run = UnitRun(known["ActiveState"], known["Result"], known["UnitFileState"] in ("enabled", "static"))
                found[known["Id"]] = run if there else UnitRun()
            except KeyError as error:
                raise FactProcessError(f"the units' state could not be read: {output!r}") from error
        return found

    @staticmethod
    def default() -> dict[str, UnitRun]:
        """No systemd answers."""
        return {}
