"""`python -m qwenlab accuracy`: print, write or refit the throughput model's accuracy."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from qwenlab.accuracy.fit import fit, held_out, loss
from qwenlab.accuracy.page import page
from qwenlab.accuracy.plot import plot
from qwenlab.accuracy.reports import points
from qwenlab.output import write_text
from qwenlab.planner.throughput.calibration import constants

DOCS = Path(__file__).resolve().parents[2] / "docs"


def main(argv: list[str]) -> int:
    """Print the page; `--write` puts page and plot into docs/; `--fit` prints constants fitted from the present."""
    parser = argparse.ArgumentParser(prog="python -m qwenlab accuracy", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md and docs/accuracy.svg")
    parser.add_argument("--fit", action="store_true", help="fit the constants on the reports and print them")
    options = parser.parse_args(argv)
    if options.fit:
        best = fit(points(), constants())
        used = [p for p in points() if p.single_stream and not held_out(p.machine)]
        sys.stdout.write(f"# mean absolute log error {loss(used, constants()):.4f} -> {loss(used, best):.4f}\n")
        for name, value in asdict(best).items():
            sys.stdout.write(f"{name}: {value}\n")
    elif options.write:
        write_text(DOCS / "accuracy.md", page())
        write_text(DOCS / "accuracy.svg", plot())
    else:
        sys.stdout.write(page())
    return 0
