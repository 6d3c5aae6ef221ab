"""What a bundle carries on request beside wheels: checkpoints from the hub, and a Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.parse import unquote
from urllib.request import urlopen

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError

from qwenlab.bundle.manifest import BundleError


def checkpoint(repo: str, revision: str, out: Path, say: Callable[[str], None]) -> None:
    """Download a checkpoint at one commit from the hub (HF_ENDPOINT, HF_TOKEN) into `out`.

    Raises:
        BundleError: it could not be had.
    """
    say(f"fetching {repo}@{revision}")
    try:
        snapshot_download(repo, revision=revision, local_dir=out)
    except (OSError, ValueError, HfHubHTTPError) as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BundleError(f"{repo}@{revision} could not be had from the hub: {said}") from None


def python_archive(minor: str, machine: str) -> str:
    """Address of the CPython that uv would install for a Python minor.

    Raises:
        BundleError: uv knows none.
    """
    command = ["uv", "python", "list", f"cpython-{minor}-linux-{machine}-gnu", "--only-downloads", "--no-config"]
    run = subprocess.run([*command, "--output-format", "json"], capture_output=True, text=True, check=False)
    found = json.loads(run.stdout or "[]") if run.returncode == 0 else []
    if not found:
        raise BundleError(f"uv knows no Python {minor} for {machine}: {run.stderr.strip()}")
    return str(found[0]["url"])


def python(minor: str, machine: str, out: Path, mirror: str | None, say: Callable[[str], None]) -> None:
    """Download the archive of a CPython into `out`, laid out as a mirror that uv reads (`<date>/<archive>`).

    Args:
        mirror: address in place of the releases of python-build-standalone, or None.

    Raises:
        BundleError: it could not be had.
    """
    address = python_archive(minor, machine)
    rest = address.partition("/releases/download/")[2]
    source = f"{mirror.rstrip('/')}/{rest}" if mirror else address
    place = out / unquote(rest)
    place.parent.mkdir(parents=True)
    say(f"fetching {source}")
    try:
        with urlopen(source, timeout=120) as response, place.open("wb") as sink:
            shutil.copyfileobj(response, sink)
    except (OSError, HTTPException) as error:
        raise BundleError(f"{source} could not be had ({error}); --python-mirror names another place") from None
