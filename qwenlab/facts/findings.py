"""What the diagnosis rules look at."""

from __future__ import annotations

from dataclasses import dataclass

from qwenlab.facts.merge import Merged
from qwenlab.facts.recording import Recording
from qwenlab.facts.sources import Sources
from qwenlab.facts.usability import Objection
from qwenlab.host_inventory import Diagnosis, HostInventory, Severity


@dataclass(frozen=True)
class Findings:
    """The inventory so far (no diagnoses in it yet), the sources behind it, and each card's objection by position."""

    host: HostInventory
    sources: Sources
    recording: Recording
    cards: list[Merged]
    objections: list[Objection | None]
    conflicts: list[str]
    driver_failure: str | None


def error(code: str, text: str, gpu: str | None = None) -> Diagnosis:
    """A finding that keeps the host or the card from serving."""
    return Diagnosis(code=code, severity=Severity.ERROR, text=text, gpu=gpu)


def warning(code: str, text: str, gpu: str | None = None) -> Diagnosis:
    """A finding that costs speed or safety."""
    return Diagnosis(code=code, severity=Severity.WARNING, text=text, gpu=gpu)


def info(code: str, text: str, gpu: str | None = None) -> Diagnosis:
    """A finding worth knowing."""
    return Diagnosis(code=code, severity=Severity.INFO, text=text, gpu=gpu)
