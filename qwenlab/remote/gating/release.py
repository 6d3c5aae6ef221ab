"""The engine release: whole, and its patched files as the build left them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from qwenlab.remote.gating.look import Gate, Problem

RECEIPT = "qwenlab-patches.json"  # in site-packages: digests of what the series touched, see qwenlab.patches.applier
PATCHES = "patches"  # the series' step in a release's record, see qwenlab.operations.patch


def check_release(gate: Gate) -> Iterator[Problem]:
    """The release can be run, and nobody changed what the patch series made of it.

    Only the files of the series are read, a dozen of some ten thousand: a start shall not wait for more, and these are
    the ones that people edit, and that an upgrade inside the environment puts back to stock.
    """
    release = Path(gate.asked["release"])
    runs, mark = os.access(release / "venv/bin/python", os.X_OK), release / "release.json"
    if not runs or not mark.exists():
        yield Problem(f"the engine release {release} is not complete: deploy again", mute=not runs)
    elif changed := changed_files(release):
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        # a release with its mark counts as whole, so a deploy alone would build nothing
        yield Problem(
            f"{changed[0]}{more} is not as the release was built: systemctl stop qwen; rm {mark}; and deploy again, "
            "which builds it anew; a change of your own goes into a patch series (qwen_extra_patches)"
        )


def changed_files(release: Path) -> list[Path]:
    """Files of the patch series that are gone or differ from the receipt; record or receipt where that is damaged."""
    mark = release / "release.json"
    try:
        patched = PATCHES in json.loads(mark.read_text())["steps"]
    except (OSError, ValueError, KeyError, TypeError):
        return [mark]
    if not patched:
        return []
    site = next(release.glob("venv/lib/python3*/site-packages"), release)
    try:
        digests: dict[str, str] = json.loads((site / RECEIPT).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return [site / RECEIPT]
    return [site / path for path, expected in digests.items() if _digest(site / path) != expected]


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
