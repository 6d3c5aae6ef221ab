"""Files that a command writes for its caller: faults name the file and the system's reason."""

from __future__ import annotations

from pathlib import Path


class OutputError(OSError):
    """A file cannot be written; the text names it and says why."""

    def __init__(self, path: Path | str, error: OSError) -> None:
        super().__init__(f"cannot write {error.filename or path}: {error.strerror}")


def write_text(path: Path | str, text: str) -> None:
    """Write a whole file. Raises OutputError."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(path, error) from None
