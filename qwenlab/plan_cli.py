"""`python -m qwenlab plan`: the plan for an inventory, as JSON, as text or as a page. Needs neither pyinfra nor GPUs.

Exit codes: 0 planned, 2 refused (the reasons are in the output), 64 wrong call, 66 inventory cannot be read,
73 cannot write.
"""

from __future__ import annotations

import argparse
import sys

from qwenlab.inventory_source import KINDS, UnreadableError, read_inventory
from qwenlab.output import console, write_text
from qwenlab.planner import plan
from qwenlab.planner.brief import brief
from qwenlab.planner.explain import explain
from qwenlab.planner.html import page
from qwenlab.planner.plan import Workload
from qwenlab.settings import Settings, SettingsError, load
from qwenlab.settings.pairs import from_pairs

PLANNED, REFUSED, WRONG_CALL, NO_INPUT = 0, 2, 64, 66


def main(argv: list[str]) -> int:
    """Run the command."""
    options = _parser().parse_args(argv)
    try:
        inventory = read_inventory(options.source)
    except UnreadableError as error:
        print(f"qwenlab plan: {error}", file=sys.stderr)
        return NO_INPUT
    try:
        settings = _settings(options)
    except SettingsError as error:
        print(f"qwenlab plan: {error}", file=sys.stderr)
        return WRONG_CALL
    made = plan(inventory, settings)
    if options.html is not None:
        write_text(options.html, page(made, inventory))
    if options.json:
        print(made.model_dump_json(by_alias=True, indent=2))
    elif options.explain:
        explain(made, inventory, console())
    elif options.html is None:
        brief(made, inventory, console())
    return PLANNED if made.status == "planned" else REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="qwenlab plan",
        description="What would run on a host with these cards, and why.",
        epilog="exit code: 0 planned, 2 refused, 64 wrong call, 66 inventory cannot be read",
    )
    parser.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="FILE",
        help=KINDS,
    )
    parser.add_argument("--workload", choices=[workload.value for workload in Workload], help="what to be good at")
    parser.add_argument("--context", type=int, metavar="N", help="tokens that one request must be able to hold")
    parser.add_argument("--concurrency", type=int, metavar="N", help="requests at the same time over the whole host")
    parser.add_argument("--vision", action="store_true", help="take images")
    parser.add_argument("--vllm", metavar="VERSION", help="vLLM version; default: the pinned one")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any other setting, its value in YAML, e.g. qwen_tensor_parallel=2; may be repeated",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the plan as JSON")
    form.add_argument("--explain", action="store_true", help="every argument with its reason, and what lost")
    parser.add_argument("--html", metavar="FILE", help="write one self-contained page")
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    data = from_pairs(options.set)
    for name in ("workload", "context", "concurrency", "vllm"):
        if getattr(options, name) is not None:
            data[f"qwen_{name}"] = getattr(options, name)
    if options.vision:
        data["qwen_vision"] = True
    return load(data)
