"""`python -m qwenlab plan`: the plan for an inventory, as JSON, as text or as a page. Needs neither pyinfra nor GPUs.

Exit codes: 0 planned, 2 refused (the reasons are in the output), 64 wrong call, 66 inventory cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic import ValidationError
from rich.console import Console

from qwenlab.host_inventory import HostInventory
from qwenlab.planner import plan
from qwenlab.planner.explain import explain
from qwenlab.planner.html import page
from qwenlab.planner.plan import Workload
from qwenlab.settings import Settings, SettingsError, load

PLANNED, REFUSED, WRONG_CALL, NO_INPUT = 0, 2, 64, 66


def main(argv: list[str]) -> int:
    """Run the command."""
    options = _parser().parse_args(argv)
    try:
        inventory = _inventory(options.source)
    except (OSError, ValueError) as error:
        print(f"qwenlab plan: {options.source}: {_first_line(error)}", file=sys.stderr)
        return NO_INPUT
    try:
        settings = _settings(options)
    except SettingsError as error:
        print(f"qwenlab plan: {error}", file=sys.stderr)
        return WRONG_CALL
    made = plan(inventory, settings)
    if options.html:
        Path(options.html).write_text(page(made, inventory), encoding="utf-8")
    if options.json:
        print(made.model_dump_json(by_alias=True, indent=2))
    elif options.explain or not options.html:
        explain(made, inventory, Console())
    return PLANNED if made.status == "planned" else REFUSED


class _Parser(argparse.ArgumentParser):
    """argparse leaves with 2, which here means refused."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(WRONG_CALL, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="qwenlab plan",
        description="What would run on a host with these cards, and why.",
        epilog="exit code: 0 planned, 2 refused, 64 wrong call, 66 inventory cannot be read",
    )
    parser.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="FILE",
        help="inventory as `qwenlab probe --json` writes it; - is stdin",
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
    form.add_argument("--explain", action="store_true", help="the plan in words (default)")
    parser.add_argument("--html", metavar="FILE", help="write one self-contained page")
    return parser


def _inventory(source: str) -> HostInventory:
    text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    return HostInventory.model_validate_json(text)


def _settings(options: argparse.Namespace) -> Settings:
    data: dict[str, Any] = {}
    for pair in options.set:
        key, _, value = pair.partition("=")
        data[key if key.startswith("qwen_") else f"qwen_{key}"] = yaml.safe_load(value)
    for name in ("workload", "context", "concurrency", "vllm"):
        if getattr(options, name) is not None:
            data[f"qwen_{name}"] = getattr(options, name)
    if options.vision:
        data["qwen_vision"] = True
    return load(data)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"not an inventory: {where}: {first['msg']} ({error.error_count()} fault(s) in all)"
    return str(error).splitlines()[0]
