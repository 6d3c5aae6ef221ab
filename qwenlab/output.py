"""Where commands write: files, whose faults name the file and the system's reason, and standard output."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 160


class OutputError(OSError):
    """A file cannot be written; the text names it and says why."""

    def __init__(self, path: Path | str, error: OSError) -> None:
        super().__init__(f"cannot write {error.filename or path}: {error.strerror}")


def named(text: str) -> Path:
    """A path from a command line, as argparse's `type`: an empty word (an unset variable) would mean this folder."""
    if not text:
        raise ArgumentTypeError("it names nothing")
    return Path(text)


def write_text(path: Path | str, text: str) -> None:
    """Write a whole file. Raises OutputError."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(path, error) from None


def console() -> Console:
    """Standard output for tables: a pipe or a file has no width, so it gets one at which nothing is cut."""
    from rich.console import Console  # recording a host needs this module where rich is not installed

    found = Console()
    return found if found.is_terminal else Console(width=max(PIPE_WIDTH, found.width))
