"""The interpreter's own vLLM with its whole series, as links: `python -m tests.gpu.patched_tree FOLDER`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from pathlib import Path

from qwenlab.patches.applier import apply_job
from qwenlab.patches.job import make_job
from qwenlab.patches.manifest import load


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        os.symlink(source, target)


def main(folder: str) -> None:
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise SystemExit("vLLM is not installed for this interpreter")
    version = importlib.metadata.version("vllm").partition("+")[0]
    site, target = Path(spec.origin).parents[1], Path(folder)
    shutil.copytree(site / "vllm", target / "vllm", copy_function=_link, ignore=shutil.ignore_patterns("__pycache__"))
    info = next(site.glob("vllm-*.dist-info"))
    shutil.copytree(info, target / info.name)
    apply_job(make_job(version, load(version).ids), target)
    print(version)


if __name__ == "__main__":
    main(*sys.argv[1:])
