"""What plays/calibrate.py has measured on a host."""

from __future__ import annotations

from pyinfra.api.facts import FactBase

from qwenlab.facts.answers import kept_record
from qwenlab.measurement import Calibration, Measurement

CALIBRATION = "/etc/qwen/calibration.json"


class Measurements(FactBase[tuple[Measurement, ...]]):
    """The record of a host; empty when nothing was measured."""

    def command(self) -> str:
        """The file, where there is one."""
        return f"cat {CALIBRATION} 2>/dev/null; true"

    def process(self, output: list[str]) -> tuple[Measurement, ...]:
        """A damaged record counts as none: the plan is then made without, and another calibration writes it anew."""
        kept = kept_record(output, Calibration)
        return kept.engines if kept is not None else ()

    @staticmethod
    def default() -> tuple[Measurement, ...]:
        """Nothing was measured."""
        return ()
