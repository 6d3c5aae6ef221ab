"""Put a split bundle together again. Runs with nothing but Python's standard library: it travels with the pieces.

usage: python3 join.py PIECES_DIR TARGET_DIR
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

INDEX = "pieces.json"
CHUNK = 1 << 20


def _checked(folder: Path, pieces: list[dict[str, Any]]) -> Iterator[bytes]:
    """The bytes of all pieces in order; a piece whose digest differs ends the reading."""
    for piece in pieces:
        total = hashlib.sha256()
        with (folder / piece["path"]).open("rb") as stream:
            while chunk := stream.read(CHUNK):
                total.update(chunk)
                yield chunk
        if total.hexdigest() != piece["sha256"]:
            raise SystemExit(f"{piece['path']}: digest differs; copy this piece again")


class _Stream(io.RawIOBase):
    """A stream over an iterator of bytes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._chunks, b"")
        taken, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


def join(folder: Path, target: Path) -> None:
    """Unpack the pieces in `folder` into `target`, which must not exist; all or nothing.

    Raises:
        SystemExit: a missing or damaged piece, named; `target` is then not there.
    """
    pieces = json.loads((folder / INDEX).read_text())["pieces"]
    missing = [piece["path"] for piece in pieces if not (folder / piece["path"]).is_file()]
    if missing:
        raise SystemExit(f"missing: {', '.join(missing)} ({len(pieces)} pieces belong together)")
    if target.exists():
        raise SystemExit(f"{target} exists already; name a new directory")
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        stream = io.BufferedReader(_Stream(_checked(folder, pieces)), CHUNK)
        with tarfile.open(fileobj=stream, mode="r|xz") as archive:
            archive.extractall(partial, filter="data")
        while stream.read(CHUNK):  # a piece's digest is known only when it was read to its end
            pass
        partial.rename(target)
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise SystemExit(f"the pieces do not make a whole archive: {error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    join(Path(sys.argv[1]), Path(sys.argv[2]))
