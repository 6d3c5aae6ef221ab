"""Are the greedy tokens of a small model the same over every layout, and where not, is it rounding?

usage: python -m bench.gpu.equality REPORT

Reads a report of the group `equality` (bench/gpu/run.py). Every engine has also been given the reference's own tokens
and has said each one's log-probability, so that one early difference does not hide what comes after it. A difference
counts as rounding when

- the log-probabilities move no further from the reference's than `FACTOR` times what they move on the reference itself
  between a prompt read at once and tokens decoded one by one, and
- the reference's lead at the first difference is no larger than two such moves: one token's up, the other's down.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.gpu.layouts import TEACHER

FACTOR = 4.0  # as docs/served.md allows over tensor parallel on the CPU


@dataclass(frozen=True)
class Verdict:
    """One arm beside the reference.

    Attributes:
        equal: prompts with the same tokens; of: all.
        first: place (from 0) of each first difference; leads: the reference's lead there, nats.
        shift: largest move of a forced log-probability, nats; allowed: the bound for it.
    """

    name: str
    equal: int
    of: int
    first: tuple[int, ...]
    leads: tuple[float, ...]
    shift: float
    allowed: float

    @property
    def word(self) -> str:
        """`equal`, `rounding` or `different`."""
        if self.equal == self.of:
            return "equal"
        near = all(lead <= 2 * self.allowed for lead in self.leads)
        return "rounding" if near and self.shift <= self.allowed else "different"


def shift(one: list[list[float]], other: list[list[float]]) -> float:
    """Largest difference between two engines' log-probabilities of the same tokens, nats."""
    rows = zip(one, other, strict=True)
    return max((abs(a - b) for left, right in rows for a, b in zip(left, right, strict=True)), default=0.0)


def judge(results: list[dict[str, Any]]) -> list[Verdict]:
    """Every arm that answered, beside the reference.

    Raises:
        ValueError: the reference is not in the report, or did not answer.
    """
    answered = [one for one in results if one.get("forced")]
    reference = next((one for one in answered if one["name"] == TEACHER), None)
    if reference is None:
        raise ValueError(f"{TEACHER} has no answers in this report: run the group `equality` whole")
    decoded = [answer["logprobs"] for answer in reference["greedy"]]
    allowed = FACTOR * shift(decoded, reference["forced"])
    return [_verdict(one, reference, allowed) for one in answered]


def _verdict(arm: dict[str, Any], reference: dict[str, Any], allowed: float) -> Verdict:
    first, leads = [], []
    pairs = list(zip(arm["greedy"], reference["greedy"], strict=True))
    for mine, theirs in pairs:
        tokens = zip(mine["tokens"], theirs["tokens"], strict=True)
        place = next((at for at, (a, b) in enumerate(tokens) if a != b), None)
        if place is not None:
            first.append(place)
            leads.append(theirs["margins"][place])
    moved = shift(arm["forced"], reference["forced"])
    return Verdict(arm["name"], len(pairs) - len(first), len(pairs), tuple(first), tuple(leads), moved, allowed)


def main(path: Path) -> int:
    """Print the verdicts; 1 when an arm is different."""
    verdicts = judge(json.loads(path.read_text()))
    table = Table("arm", "equal", "first differences", "reference's lead there", "largest move", "verdict")
    for one in verdicts:
        table.add_row(
            one.name,
            f"{one.equal} of {one.of}",
            ", ".join(map(str, one.first)),
            ", ".join(f"{lead:.3f}" for lead in one.leads),
            f"{one.shift:.3f} of {one.allowed:.3f}",
            one.word,
        )
    Console().print(table)
    return int(any(one.word == "different" for one in verdicts))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
