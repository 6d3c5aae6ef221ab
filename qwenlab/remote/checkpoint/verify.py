"""`python -m qwenlab.remote.checkpoint.verify HOW DIRECTORY...`: which checkpoints are whole; changes nothing.

HOW is `off` (the manifest's word), `size` or `digest` (every byte is read). Prints one JSON object: directory to
`{"whole": ..., "wrong": [...], "manifest": ...}`; the manifest is given for whole ones. Standard library alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from qwenlab.remote.checkpoint import manifest


def main(arguments: list[str]) -> int:
    """Print the answer; always 0."""
    how, *directories = arguments
    print(json.dumps({name: state(Path(name), how) for name in directories}))
    return 0


def state(directory: Path, how: str) -> dict[str, Any]:
    """What one directory is."""
    known = manifest.read(directory)
    if known is None:
        return {"whole": False, "wrong": [], "manifest": None}
    wrong = (
        []
        if how == "off"
        else [entry.path for entry in manifest.wrong_files(directory, known.files, digests=how == "digest")]
    )
    return {"whole": not wrong, "wrong": wrong, "manifest": None if wrong else known.to_dict()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
