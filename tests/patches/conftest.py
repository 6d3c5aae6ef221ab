"""Trees, checkpoints and probe outcomes that the engine tests of the series share."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from qwenlab.patches.manifest import load
from tests.patches import make_checkpoints
from tests.patches.trees import Tree, patched, stock

HERE = Path(__file__).parent
MAKERS = {"stock": stock, "patched": patched}

TreeOf = Callable[[str, str], Tree]
Outcomes = Callable[[str, str], dict[str, str]]


@pytest.fixture(scope="session")
def tree_of(tmp_path_factory: pytest.TempPathFactory) -> TreeOf:
    """Tree by release and kind ("stock", "patched"), made once."""

    @functools.cache
    def make(version: str, kind: str) -> Tree:
        return MAKERS[kind](version, tmp_path_factory.mktemp(f"{kind}-{version}"))

    return make


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny target and drafter."""
    folder = tmp_path_factory.mktemp("checkpoints")
    make_checkpoints.main(folder)
    return folder


@pytest.fixture(scope="session")
def outcomes(tree_of: TreeOf, checkpoints: Path) -> Outcomes:
    """What every probe of a release says of a tree: one process imports vLLM once and runs them all."""

    @functools.cache
    def run(version: str, kind: str) -> dict[str, str]:
        tree = tree_of(version, kind)
        done = subprocess.run(
            [str(tree.python), "-m", "probes", version, str(checkpoints), *load(version).ids],
            cwd=HERE,
            env=tree.environ({"CUDA_VISIBLE_DEVICES": ""}, first=[HERE / "v2_on_cpu"]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        print(f"\nvLLM {version} {kind}:")
        for name, outcome in found.items():
            print(f"  {name}: {outcome}")
        return found

    return run
