"""The command line of qwenlab: `python -m qwenlab COMMAND ...`.

Every command lives in a module of its own, imported only when it is called, so that `probe` and `plan`
work where pyinfra is not installed. A command is a function `main(argv: list[str]) -> int`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

from qwenlab import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module holding main(argv), one line of help)
    "bundle": ("qwenlab.bundle.cli", "make, split, join and verify an offline bundle for air-gapped hosts"),
    "lock": ("qwenlab.engine.lock", "resolve the engine locks anew (for maintainers)"),
    "memory": ("qwenlab.planner.memory.cli", "blocks, tokens and GiB of a KV pool for a given configuration"),
    "patches": (
        "qwenlab.patches.cli",
        "list, check and explain the patches that vLLM is built with, port them to another",
    ),
    "plan": ("qwenlab.plan_cli", "what would run on a host with these cards, and why: text, JSON or a page"),
    "probe": ("qwenlab.facts.cli", "tell what this machine or a recorded one is: cards, links, driver, faults"),
    "render": ("qwenlab.render_cli", "write every file that a deploy would put on a host, below a folder"),
    "rules": ("qwenlab.planner.rules.document", "print, write or check the table of planning rules"),
    "settings": ("qwenlab.settings.document", "print, write or check the table of settings"),
    "accuracy": ("qwenlab.accuracy.cli", "how far the throughput model is from published measurements"),
}


def usage() -> str:
    """The text that `python -m qwenlab --help` prints."""
    width = max((len(name) for name in COMMANDS), default=0)
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [f"qwenlab {__version__}", "", "usage: python -m qwenlab COMMAND [options]    (each takes --help)", "", *lines]
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code (64 for a wrong call, as in sysexits.h)."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 64
    if arguments[0] == "--version":
        print(__version__)
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"qwenlab: no command {name!r}\n\n{usage()}", file=sys.stderr)
        return 64
    run: Callable[[list[str]], int] = import_module(COMMANDS[name][0]).main
    return run(rest)
