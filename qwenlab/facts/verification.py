"""The last verification of each engine, as it lies on the host."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any

from pyinfra.api.facts import FactBase

from qwenlab.facts.answers import reading

RESULTS = "/var/lib/qwenlab/verify"


@dataclass(frozen=True)
class VerifyResult:
    """What the battery said about one engine.

    Attributes:
        checks: name, `ok` (None: left out) and detail of each.
        rates: measured tokens per second and acceptance length; predicted: the plan's.
    """

    engine: str
    at: str
    release: str
    ok: bool
    judged: str = ""
    driver: str | None = None
    checks: list[dict[str, Any]] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    predicted: dict[str, float] = field(default_factory=dict)
    regressions: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For a person."""
        words = {True: "ok", False: "FAILED", None: "left out"}
        head = f"{self.engine} verified {self.at}, release {self.release} ({self.judged})"
        rows = [f"  {row['name']:<11} {words[row['ok']]:<8} {row['detail']}" for row in self.checks]
        for name, rate in self.rates.items():
            plan = f" (plan: {self.predicted[name]:.0f})" if name in self.predicted else ""
            rows.append(f"  {name:<20}{rate}{plan}")
        return [head, *rows, *(f"  regression: {text}" for text in self.regressions)]


def result_of(document: dict[str, Any]) -> VerifyResult:
    """A result from its document; what another version of the battery wrote beside it is left out.

    Raises:
        TypeError: a field is missing.
    """
    known = {one.name for one in fields(VerifyResult)}
    return VerifyResult(**{name: value for name, value in document.items() if name in known})


class VerifyResults(FactBase[list[VerifyResult]]):
    """Every engine's last result."""

    def command(self) -> str:
        """One JSON document a line."""
        newest = f"ls {RESULTS}/*.json 2>/dev/null | grep -v '[.]before[.]json$'"
        return f"{newest} | while read -r file; do tr -d '\\n' <\"$file\"; echo; done; true"

    def process(self, output: list[str]) -> list[VerifyResult]:
        """Raises `FactProcessError` for a document of another form; it fails this host alone."""
        with reading("a verification result"):
            return [result_of(json.loads(line)) for line in output if line.strip()]

    @staticmethod
    def default() -> list[VerifyResult]:
        """Never verified."""
        return []
