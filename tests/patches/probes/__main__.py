"""Runs every probe in the vLLM that is first on the path, and prints one JSON object: patch id -> outcome.

    python -m probes VERSION CHECKPOINTS        (in the folder above, under the interpreter of tests.vllm_env)

A probe is a function that asserts what a patch is for. Its outcome is "holds", "fails: <the assertion's words>" or
"breaks: <any other exception>".
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from probes import attention_groups, block_fp8, configuration, embeddings, kernels, offload, parsing, relay, serving
from probes.registry import PROBES, Surroundings

MODULES = (attention_groups, block_fp8, configuration, embeddings, kernels, offload, parsing, relay, serving)


def outcome(name: str, surroundings: Surroundings) -> str:
    try:
        PROBES[name](surroundings)
    except AssertionError as error:
        return f"fails: {error}"
    except Exception as error:
        traceback.print_exc()
        return f"breaks: {type(error).__name__}: {error}"
    return "holds"


def main(version: str, checkpoints: str, *names: str) -> None:
    surroundings = Surroundings(version, Path(checkpoints))
    found = {name: outcome(name, surroundings) for name in names}
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
