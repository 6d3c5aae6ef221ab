"""`python -m qwenlab plan`: the plan for an inventory, as JSON, as text or as a page. Needs neither pyinfra nor GPUs.

Exit codes: 0 planned, 2 refused (the reasons are in the output), 64 wrong call, 66 inventory cannot be read,
73 cannot write.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from qwenlab import given
from qwenlab.output import console, named, write_text
from qwenlab.planner import plan
from qwenlab.planner.brief import brief
from qwenlab.planner.explain import explain
from qwenlab.planner.html import page
from qwenlab.planner.plan import Workload

PLANNED, REFUSED = 0, 2


def main(argv: list[str]) -> int:
    """Run the command."""
    options = _parser().parse_args(argv)
    try:
        inventory, settings = given.read(options, _settings(options))
    except given.GivenError as error:
        print(f"qwenlab plan: {error}", file=sys.stderr)
        return error.code
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
        prog="python -m qwenlab plan",
        description="What would run on a host with these cards, and why.",
        epilog=f"exit code: 0 planned, 2 refused, {given.EXIT_CODES}",
    )
    given.add_options(parser, "qwen_tensor_parallel=2")
    parser.add_argument("--workload", choices=[workload.value for workload in Workload], help="what to be good at")
    parser.add_argument("--context", type=int, metavar="N", help="tokens that one request must be able to hold")
    parser.add_argument("--concurrency", type=int, metavar="N", help="requests at the same time over the whole host")
    parser.add_argument("--vision", action="store_true", help="take images")
    parser.add_argument("--vllm", metavar="VERSION", help="vLLM version; default: the pinned one")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the plan as JSON")
    form.add_argument("--explain", action="store_true", help="every argument with its reason, and what lost")
    parser.add_argument("--html", type=named, metavar="FILE", help="write one self-contained page")
    return parser


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that have an option of their own."""
    names = ("workload", "context", "concurrency", "vllm")
    data = {f"qwen_{name}": getattr(options, name) for name in names if getattr(options, name) is not None}
    return {**data, "qwen_vision": True} if options.vision else data
