"""What is wrong with a host, or worth knowing, in words for its owner: all rules, the worst findings first."""

from __future__ import annotations

from collections.abc import Iterable

from qwenlab.facts import diagnoses_cards, diagnoses_driver, diagnoses_host
from qwenlab.facts.findings import Findings
from qwenlab.host_inventory import Diagnosis, Severity

__all__ = ["Findings", "diagnose"]

_RULES = (*diagnoses_driver.RULES, *diagnoses_cards.RULES, *diagnoses_host.RULES)
_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def diagnose(findings: Findings) -> tuple[Diagnosis, ...]:
    """Every rule's findings, the worst first."""
    found: list[Diagnosis] = []
    for rule in _RULES:
        result: Iterable[Diagnosis] = rule(findings)
        found.extend(result)
    return tuple(sorted(found, key=lambda item: _ORDER[item.severity]))
