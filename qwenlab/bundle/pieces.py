"""Split a bundle into pieces of a given size, and back.

The pieces are one xz-compressed tar, cut. `join.py` and `pieces.json` lie beside them, so that the other side needs
nothing but Python.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from threading import Thread
from typing import IO

from qwenlab.bundle import join as joining
from qwenlab.bundle.manifest import CHUNK, BundleError


def split(bundle: Path, out: Path, piece_bytes: int) -> int:
    """Write the bundle at `bundle` as pieces of at most `piece_bytes` into `out`; returns how many.

    Uses the `xz` command on all cores.

    Raises:
        BundleError: `out` is not empty, `xz` is missing or failed.
    """
    if piece_bytes < 1 << 20:
        raise BundleError("a piece must be 1 MiB or larger")
    if out.exists() and any(out.iterdir()):
        raise BundleError(f"{out} is not empty; name a new directory for the pieces")
    if shutil.which("xz") is None:
        raise BundleError("the xz command is missing (Debian and Ubuntu: apt-get install xz-utils)")
    out.mkdir(parents=True, exist_ok=True)
    xz = subprocess.Popen(
        ["xz", "--threads=0", "-6", "--stdout"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert xz.stdin is not None
    assert xz.stdout is not None
    pieces: list[dict[str, str | int]] = []
    feeder = Thread(target=_feed, args=(bundle, xz.stdin), daemon=True)
    feeder.start()
    while piece := _write_piece(xz.stdout, out / f"piece.{len(pieces):03d}", piece_bytes):
        pieces.append(piece)
    feeder.join()
    if xz.wait() != 0:
        raise BundleError(f"xz ended with {xz.returncode}")
    (out / joining.INDEX).write_text(json.dumps({"schema_version": 1, "pieces": pieces}, indent=2) + "\n")
    shutil.copyfile(joining.__file__, out / "join.py")
    return len(pieces)


def _feed(bundle: Path, sink: IO[bytes]) -> None:
    with sink, tarfile.open(fileobj=sink, mode="w|") as archive:
        for path in sorted(bundle.rglob("*")):
            archive.add(path, arcname=str(path.relative_to(bundle)), recursive=False, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _write_piece(source: IO[bytes], path: Path, limit: int) -> dict[str, str | int] | None:
    total, size = hashlib.sha256(), 0
    with path.open("wb") as stream:
        while size < limit and (chunk := source.read(min(CHUNK, limit - size))):
            stream.write(chunk)
            total.update(chunk)
            size += len(chunk)
    if size == 0:
        path.unlink()
        return None
    return {"path": path.name, "size": size, "sha256": total.hexdigest()}


def join(pieces: Path, target: Path) -> None:
    """Put the pieces in `pieces` together into the new directory `target`.

    Raises:
        BundleError: a piece is missing or damaged, or `target` exists; nothing is left behind.
    """
    if not (pieces / joining.INDEX).is_file():
        raise BundleError(f"{pieces} holds no {joining.INDEX}: no pieces of a bundle are there")
    try:
        joining.join(pieces, target)
    except SystemExit as error:
        raise BundleError(str(error)) from None
