"""The table of probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Surroundings:
    """What a probe may use: the release's version and the tiny checkpoints."""

    version: str
    checkpoints: Path

    @property
    def target(self) -> str:
        return str(self.checkpoints / "target")

    @property
    def drafter(self) -> str:
        return str(self.checkpoints / "drafter")


Probe = Callable[[Surroundings], None]
PROBES: dict[str, Probe] = {}


def probe(patch: str) -> Callable[[Probe], Probe]:
    """Register a function as the probe of a patch."""

    def register(function: Probe) -> Probe:
        PROBES[patch] = function
        return function

    return register
