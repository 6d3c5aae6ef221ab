"""Runs the checks of `card/` in the released vLLM and in the patched one. Standard library only.

`QWENLAB_STOCK_PYTHON` is the interpreter of an installed, untouched release. `QWENLAB_PATCHED_PYTHON` is that of the
same release with the whole series applied; without it a patched tree is made beside the released one, as links, and put
first on the path. Both are given one card: the first that is visible.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STOCK, PATCHED = "QWENLAB_STOCK_PYTHON", "QWENLAB_PATCHED_PYTHON"
LIMIT_S = 240
# Words with which a check fails on the released vLLM. A check without words holds there too: it says what the release
# has of its own that other releases are given by a patch.
WITHOUT: Mapping[str, str | None] = {
    "cutlass-rows-sm90": "8,065 rows take",
    "gdn-state-bounds": "another request's state",
    "dflash-fixed-block": "kernels compiled for",
    "quantized-embedding": "no weight_packed",
    "pinned-pool-release": "GiB stay with the allocator",
    "sampler-warmup-cuda": None,
}


@dataclass(frozen=True)
class Outcome:
    """What one check said of one vLLM.

    Attributes:
        text: "holds", "fails: <the assertion's words>", "breaks: <any other exception>" or, where the defect needs
            another card, "elsewhere: <this one>".
        figures: what was measured.
    """

    text: str
    figures: Mapping[str, Any]


def stock_python() -> str:
    """The interpreter with the released vLLM. Raises RuntimeError when none is named."""
    python = os.environ.get(STOCK)
    if not python:
        raise RuntimeError(f"{STOCK} is not set: name the Python of an installed, untouched vLLM")
    return python


@functools.cache
def outcomes(kind: str) -> Mapping[str, Outcome]:
    """Every check's outcome on "stock" or "patched"; one process imports vLLM once and runs them all."""
    with tempfile.TemporaryDirectory(prefix="qwenlab-gpu-") as name:
        python, path = stock_python(), [str(HERE), str(ROOT / "tests" / "patches")]
        if kind == "patched" and PATCHED in os.environ:
            python = os.environ[PATCHED]
        elif kind == "patched":
            tree = Path(name) / "tree"
            _run([python, "-m", "tests.gpu.patched_tree", str(tree)], {"PYTHONPATH": _joined([str(ROOT)])})
            path.append(str(tree))
        done = _run([python, "-m", "card", *WITHOUT], {"PYTHONPATH": _joined(path), "VLLM_CACHE_ROOT": f"{name}/cache"})
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return {check: Outcome(**outcome) for check, outcome in found.items()}


def problem(check: str, kind: str) -> str | None:
    """Why a check's outcome is not the expected one; None if it is."""
    outcome, words = outcomes(kind)[check], WITHOUT[check]
    if outcome.text.startswith("elsewhere: "):
        return None
    if kind == "stock" and words is not None:
        red = outcome.text.startswith("fails: ") and words in outcome.text
        return None if red else f"the released vLLM should fail with {words!r}, but: {outcome.text}"
    return None if outcome.text == "holds" else outcome.text


def _joined(path: list[str]) -> str:
    return os.pathsep.join([*path, *filter(None, [os.environ.get("PYTHONPATH")])])


def _run(command: list[str], extra: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    # triton's and Inductor's caches would hide that a kernel is compiled
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": card, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory(prefix="qwenlab-gpu-cache-") as cache:
        environ |= {"TRITON_CACHE_DIR": f"{cache}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", **extra}
        done = subprocess.run(
            command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:3])} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done
