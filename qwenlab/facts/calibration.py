"""What plays/calibrate.py has measured on a host."""

from __future__ import annotations

from pydantic import ValidationError
from pyinfra.api.facts import FactBase

from qwenlab.measurement import Calibration, Measurement

CALIBRATION = "/etc/qwen/calibration.json"


class Measurements(FactBase[tuple[Measurement, ...]]):
    """The record of a host; empty when nothing was measured."""

    def command(self) -> str:
        """The file, where there is one."""
        return f"cat {CALIBRATION} 2>/dev/null; true"

    def process(self, output: list[str]) -> tuple[Measurement, ...]:
        """A damaged record counts as none: the plan is then made without, and another calibration writes it anew."""
        try:
            return Calibration.model_validate_json("\n".join(output)).engines
        except ValidationError:
            return ()

    @staticmethod
    def default() -> tuple[Measurement, ...]:
        """Nothing was measured."""
        return ()
