"""`python -m qwenlab probe`: what this machine, or a recorded one, is."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qwenlab.facts.recording import Recording, save
from qwenlab.output import OutputError, named

if TYPE_CHECKING:
    from qwenlab.host_inventory import HostInventory

NO_INPUT = 66


def main(argv: list[str]) -> int:
    """Run the command. Exit codes: 0 cards can be used, 1 none can, 66 what --from names is no host."""
    arguments = _parser().parse_args(argv)
    if arguments.source is None:
        from qwenlab.facts.gather import gather_here

        found: Recording | HostInventory = gather_here()
    else:
        from qwenlab.inventory_source import UnreadableError, read_source

        try:
            found = read_source(arguments.source)
        except UnreadableError as error:
            print(f"qwenlab probe: {error}", file=sys.stderr)
            return NO_INPUT
    if arguments.record:
        if not isinstance(found, Recording):
            print(
                f"qwenlab probe: {arguments.source} is an inventory; only a recording can be recorded", file=sys.stderr
            )
            return NO_INPUT
        return _record(found, arguments.record, scrub=arguments.scrub)
    from qwenlab.facts.inventory import build_inventory
    from qwenlab.facts.summary import summarise

    inventory = build_inventory(found) if isinstance(found, Recording) else found
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
        metavar="PATH",
        help="read this instead of the machine: a directory (smi.xml, topo.txt ...), a YAML file, an inventory, or -",
    )
    parser.add_argument("--json", action="store_true", help="print summary, diagnoses and the full inventory as JSON")
    parser.add_argument(
        "--record",
        type=named,
        metavar="DIR",
        help="write the raw captures to DIR and compare the sources (needs Python's standard library only)",
    )
    parser.add_argument(
        "--scrub", action="store_true", help="with --record: replace UUIDs, serials, host names and addresses"
    )
    return parser


def _record(recording: Recording, directory: Path, *, scrub: bool) -> int:
    from qwenlab.facts.agreement import compare
    from qwenlab.facts.scrub import scrubbed

    lines, agree = compare(recording)
    try:
        paths = save(scrubbed(recording) if scrub else recording, directory)
    except OSError as error:
        raise OutputError(directory, error) from None
    print(f"{len(paths)} files in {directory}")
    print("\n".join(lines))
    return 0 if agree else 1
