"""Write a small random checkpoint and drafter whose head sizes the GPU kernels take, the same on every layout.

usage: PYTHON -m bench.gpu.small FOLDER     (an engine release's Python: it has NumPy)
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.lab.tiny_model import TinyModel
from tests.patches import make_checkpoints

# Heads as wide as those of Qwen3.8-27B's recurrence and DFlash2; two ranks can share them.
MODEL = TinyModel(
    hidden=512,
    intermediate=1024,
    vocabulary=1024,
    heads=8,
    kv_heads=4,
    gdn_key_heads=4,
    gdn_value_heads=8,
    head_dim=128,
)


def main(folder: Path) -> None:
    """Write `target` and `drafter` below `folder`."""
    make_checkpoints.main(folder, MODEL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
