"""`python -m qwenlab probe`: what this machine, or a recorded one, is."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from qwenlab.facts.readings import ParseError
from qwenlab.facts.recording import Recording, load, save


def main(argv: list[str]) -> int:
    """Run the command. Exit codes: 0 cards can be used, 1 none can, 2 the recording cannot be read."""
    arguments = _parser().parse_args(argv)
    try:
        recording = _recording(arguments.source)
    except (OSError, ParseError) as error:
        print(f"qwenlab probe: {error}", file=sys.stderr)
        return 2
    if arguments.record:
        return _record(recording, arguments.record, scrub=arguments.scrub)
    from qwenlab.facts.inventory import build_inventory
    from qwenlab.facts.summary import summarise

    inventory = build_inventory(recording)
    if arguments.json:
        document = {
            "summary": summarise(inventory),
            "diagnoses": [item.model_dump(mode="json") for item in inventory.diagnoses],
            "inventory": inventory.model_dump(mode="json"),
        }
        print(json.dumps(document, indent=2))
    else:
        from qwenlab.facts.draw import show

        show(inventory)
    return 0 if inventory.usable_gpus else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m qwenlab probe",
        description="Tell what a host is: cards, links, driver, and what is wrong with it. Changes nothing.",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="PATH",
        help="read a recording instead of this machine: a directory (smi.xml, topo.txt ...) or a YAML file",
    )
    parser.add_argument("--json", action="store_true", help="print summary, diagnoses and the full inventory as JSON")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="write the raw captures to DIR and compare the sources (needs Python's standard library only)",
    )
    parser.add_argument(
        "--scrub", action="store_true", help="with --record: replace UUIDs, serials, host names and addresses"
    )
    return parser


def _recording(source: Path | None) -> Recording:
    if source is None:
        from qwenlab.facts.gather import gather_here

        return gather_here()
    if source.is_dir():
        return load(source)
    from qwenlab.facts.published import load_published

    return load_published(source)


def _record(recording: Recording, directory: Path, *, scrub: bool) -> int:
    from qwenlab.facts.agreement import compare
    from qwenlab.facts.scrub import scrubbed

    lines, agree = compare(recording)
    paths = save(scrubbed(recording) if scrub else recording, directory)
    print(f"{len(paths)} files in {directory}")
    print("\n".join(lines))
    return 0 if agree else 1
