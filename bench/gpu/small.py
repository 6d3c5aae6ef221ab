"""Write a small random checkpoint and drafter whose head sizes the GPU kernels take, the same on every layout.

usage: PYTHON -m bench.gpu.small FOLDER     (an engine release's Python: it has torch, safetensors and tokenizers)
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.patches import make_checkpoints

# Heads as wide as those of Qwen3.8-27B's recurrence and DFlash2; two ranks can share them.
SIZES = {"HIDDEN": 512, "INTER": 1024, "HEADS": 8, "KV_HEADS": 4, "HEAD_DIM": 128}
RECURRENCE = {"GDN_K_HEADS": 4, "GDN_V_HEADS": 8, "GDN_DIM": 128}
MROPE = [8, 4, 4]  # half of the rotated quarter of a head of 128


def main(folder: Path) -> None:
    """Write `target` and `drafter` below `folder`."""
    for name, value in (SIZES | RECURRENCE).items():
        setattr(make_checkpoints, name, value)
    config = make_checkpoints.target_config()
    config["text_config"]["rope_parameters"]["mrope_section"] = MROPE
    make_checkpoints.write(folder / "target", config, make_checkpoints.target_weights())
    make_checkpoints.write(folder / "drafter", make_checkpoints.draft_config(), make_checkpoints.draft_weights())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
