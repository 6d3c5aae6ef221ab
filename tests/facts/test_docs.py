"""docs/inventory.md names every diagnosis, and none that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

from qwenlab.facts import kernel_log, peer_verdicts
from qwenlab.facts.smi_values import _FAILURES

ROOT = Path(__file__).parents[2]


def codes_in_source() -> set[str]:
    """Codes as they are given to a diagnosis or an objection in the source."""
    found: set[str] = {code for code, _ in _FAILURES} | {f"peer_test_{verdict}" for verdict in peer_verdicts._BAD}
    for path in (ROOT / "qwenlab/facts").glob("*.py"):
        text = path.read_text()
        found |= set(re.findall(r'\b(?:error|warning|info|Objection|Failure)\(\s*"([a-z0-9_]+)"', text))
    found |= {name for name, _ in kernel_log._CONDITIONS}
    return found | {"needs_open_module", "needs_proprietary_module", "probe_timeout"}


def test_every_diagnosis_is_documented() -> None:
    table = (ROOT / "docs/inventory.md").read_text().split("## Diagnoses")[1].split("##")[0]
    documented = {code for row in re.findall(r"^\| ([a-z0-9_, ]+) \|", table, re.MULTILINE) for code in row.split(", ")}
    documented -= {"code"}
    assert codes_in_source() == documented
