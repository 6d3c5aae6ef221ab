"""Print the job that applies the whole series of the default pin (for `qwenlab/patches/applier.py`).

usage: python -m bench.gpu.patch_job
"""

from __future__ import annotations

import json
import sys

from qwenlab.engine.pins import pins
from qwenlab.patches.job import make_job
from qwenlab.patches.manifest import load


def main() -> None:
    """Write the job to stdout."""
    vllm = pins().release("cuda").vllm
    json.dump(make_job(vllm, load(vllm).ids), sys.stdout)


if __name__ == "__main__":
    main()
