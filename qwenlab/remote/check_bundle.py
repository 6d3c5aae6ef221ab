"""python3 - DIRECTORY PLACE... < check_bundle.py: hold files of a bundle against its manifest.

A place is a path, or a directory with a slash at its end, below the bundle's.
Sent on stdin, since it runs before anything is on the host. A file that was being carried (`.part`) gets its name when
it is whole and is removed when it is not; a file under its own name is only read. Prints how far it is, and
`damaged: PATH` for each file that is not as the manifest says. Exit codes: 0 all whole, 3 some are not.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

PART = ".part"
CHUNK = 4 << 20
SAY_EVERY_S = 15.0


DAMAGED = 3


def main(root: Path, places: list[str]) -> int:
    """Check every file of the manifest that is one of the places or lies below one."""
    manifest = json.loads((root / "bundle.json").read_text())
    below = tuple(place for place in places if place.endswith("/"))
    files = [file for file in manifest["files"] if file["path"] in places or file["path"].startswith(below)]
    total = sum(file["size"] for file in files)
    done, said, damaged = 0, time.monotonic(), []

    def count(size: int) -> None:
        nonlocal done, said
        done += size
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            print(f"checking the bundle: {done / 1e9:.1f} of {total / 1e9:.1f} GB", flush=True)

    for file in files:
        if not whole(root / file["path"], file, count):
            damaged.append(file["path"])
    for path in damaged:
        print("damaged: " + path, flush=True)
    os.sync()
    return DAMAGED if damaged else 0


def whole(path: Path, file: dict[str, object], count: Callable[[int], None]) -> bool:
    """Whether a file, or what was carried of it, has the size and digest that the manifest names."""
    part = path.with_name(path.name + PART)
    here = part if part.exists() else path
    try:
        good = here.stat().st_size == file["size"] and digest(here, count) == file["sha256"]
        if here is part:
            if good:
                part.chmod(0o644)
                part.replace(path)
            else:
                part.unlink()
    except OSError as error:
        print(f"{here}: {error.strerror}", flush=True)
        return False
    return good


def digest(path: Path, count: Callable[[int], None]) -> str:
    """sha256 of a file, in hex."""
    total = hashlib.sha256()
    with path.open("rb") as stream:
        while True:
            chunk = stream.read(CHUNK)
            if not chunk:
                return total.hexdigest()
            total.update(chunk)
            count(len(chunk))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
