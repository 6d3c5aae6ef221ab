"""What is wrong with a host, or worth knowing, in words for its owner: all rules, the worst findings first."""

from __future__ import annotations

from collections.abc import Iterable

from qwenlab.facts import diagnoses_cards, diagnoses_driver, diagnoses_host, diagnoses_kernel
from qwenlab.facts.findings import Findings
from qwenlab.host_inventory import Diagnosis, Severity

__all__ = ["Findings", "diagnose"]

_RULES = (*diagnoses_driver.RULES, *diagnoses_kernel.RULES, *diagnoses_cards.RULES, *diagnoses_host.RULES)
_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def diagnose(findings: Findings) -> tuple[Diagnosis, ...]:
    """Every rule's findings, the worst first; what two rules see in one card is told once."""
    found: list[Diagnosis] = []
    for rule in _RULES:
        result: Iterable[Diagnosis] = rule(findings)
        found.extend(item for item in result if not _told(item, found))
    return tuple(sorted(found, key=lambda item: _ORDER[item.severity]))


def _told(item: Diagnosis, found: list[Diagnosis]) -> bool:
    return item.gpu is not None and any((one.code, one.gpu) == (item.code, item.gpu) for one in found)
