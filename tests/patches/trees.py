"""A vLLM release as released and with the whole series applied, side by side, for tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qwenlab.patches.applier import apply_job
from qwenlab.patches.job import make_job
from qwenlab.patches.manifest import load
from tests.vllm_env import VllmEnvironment, environment


@dataclass(frozen=True)
class Tree:
    """One importable tree.

    Attributes:
        name: "stock" or "patched".
        folder: holds the package `vllm` and its metadata.
    """

    name: str
    base: VllmEnvironment
    folder: Path

    @property
    def python(self) -> Path:
        """Interpreter that the tree belongs to."""
        return self.base.python

    def environ(self, extra: Mapping[str, str] | None = None, *, first: Sequence[Path] = ()) -> dict[str, str]:
        """Environment of a child process in which `import vllm` is this tree."""
        return self.base.environ(extra, first=[*first, self.folder])


def copy_tree(version: str, folder: Path) -> Path:
    """The release below `folder`, hard-linked (the applier renames, so the original stays), with its metadata.

    The metadata says "+cpu": by it vLLM decides for its CPU platform.
    """
    source = environment(version).tree
    shutil.copytree(source / "vllm", folder / "vllm", copy_function=_link, symlinks=True)
    info = folder / f"vllm-{version}+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return folder


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # the cache lies on another file system
        shutil.copy2(source, target)


def stock(version: str, folder: Path) -> Tree:
    """The release as it is."""
    return Tree("stock", environment(version), copy_tree(version, folder))


def patched(version: str, folder: Path) -> Tree:
    """The release with every patch of its series."""
    copy_tree(version, folder)
    apply_job(make_job(version, load(version).ids), folder)
    return Tree("patched", environment(version), folder)
