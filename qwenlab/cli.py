"""The command line of qwenlab: `python -m qwenlab COMMAND ...`.

Every command lives in a module of its own, imported only when it is called, so that `probe` and `plan`
work where pyinfra is not installed. A command is a function `main(argv: list[str]) -> int`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from importlib import import_module
from io import TextIOWrapper

from qwenlab import __version__
from qwenlab.output import OutputError

ARGPARSE_WRONG_CALL = 2
# As in sysexits.h; 128 and the signal's number for SIGINT and SIGPIPE, as a shell tells them.
WRONG_CALL, CANNOT_WRITE, IO_ERROR, INTERRUPTED, READER_GONE = 64, 73, 74, 130, 141

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module holding main(argv), one line of help)
    "accuracy": ("qwenlab.accuracy.cli", "how far the throughput model is from published measurements"),
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
}


def usage() -> str:
    """The text that `python -m qwenlab --help` prints."""
    width = max((len(name) for name in COMMANDS), default=0)
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [f"qwenlab {__version__}", "", "usage: python -m qwenlab COMMAND [options]    (each takes --help)", "", *lines]
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code (64 for a wrong call and 73 for an output file, as in sysexits.h)."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "--version"):
        try:
            print(__version__ if arguments[:1] == ["--version"] else usage(), flush=True)
        except BrokenPipeError:
            return _reader_gone()
        return 0 if arguments else WRONG_CALL
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"qwenlab: no command {name!r}\n\n{usage()}", file=sys.stderr)
        return WRONG_CALL
    _tolerate_narrow_encodings()
    try:
        run: Callable[[list[str]], int] = import_module(COMMANDS[name][0]).main
        code = run(rest)
        sys.stdout.flush()
    except SystemExit as stop:
        # argparse leaves with 2 for a wrong call, rich with 1 when the reader of a pipe has gone.
        if isinstance(stop.__context__, BrokenPipeError):
            return _reader_gone()
        return WRONG_CALL if stop.code == ARGPARSE_WRONG_CALL else int(stop.code or 0)
    except KeyboardInterrupt:
        print(f"\nqwenlab {name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except OutputError as error:
        print(f"qwenlab {name}: {error}", file=sys.stderr)
        return CANNOT_WRITE
    except OSError as error:
        _leave_stdout()
        about = f"{error.filename}: " if error.filename else ""
        print(f"qwenlab {name}: {about}{error.strerror or error}", file=sys.stderr)
        return CANNOT_WRITE if error.errno == errno.ENOSPC else IO_ERROR
    return code


def _tolerate_narrow_encodings() -> None:
    """Characters that the terminal's encoding lacks are replaced; only what was strict is changed."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _reader_gone() -> int:
    _leave_stdout()
    return READER_GONE


def _leave_stdout() -> None:
    """What is still buffered goes nowhere: the interpreter's own flush at exit would fail aloud."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output)
    os.close(nowhere)
