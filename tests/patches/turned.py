"""Which tests turn on a new release: `python -m tests.patches.turned OLD NEW`.

Runs the probes of the series of OLD on the released NEW. "red" patches are still needed; a probe that holds names a
patch to retire; one that breaks names what moved. Used by `python -m qwenlab patches port OLD NEW --tests`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from qwenlab.patches.manifest import load
from tests.patches.trees import stock

HERE = Path(__file__).parent


def turned(old: str, new: str) -> dict[str, str]:
    """Outcome of each probe of the series of `old` on the released `new`."""
    with tempfile.TemporaryDirectory(prefix="qwenlab-turned-") as name:
        folder = Path(name)
        tree = stock(new, folder / "tree")
        done = subprocess.run(
            [str(tree.python), "-m", "probes", new, str(folder), *load(old).ids],
            cwd=HERE,
            env=tree.environ({"CUDA_VISIBLE_DEVICES": ""}, first=[HERE / "v2_on_cpu"]),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


WORDS = {"holds": "turned green: retire it", "fails": "red: still needed", "breaks": "breaks: read what moved"}


def main(old: str, new: str) -> None:
    for name, outcome in turned(old, new).items():
        kind = outcome.partition(":")[0]
        print(f"{name}: {WORDS[kind]}{'' if kind == 'holds' else f' ({outcome[:140]})'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
