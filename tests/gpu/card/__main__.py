"""Runs checks in the vLLM that is first on the path and prints one JSON object: check -> {text, figures}."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from card import block_fp8, kernels, memory
from card.elsewhere import Elsewhere

Check = Callable[[dict[str, Any]], None]
CHECKS: Mapping[str, Check] = {
    "cutlass-rows-sm90": block_fp8.the_tile_fits_the_rows,
    "gdn-state-bounds": kernels.a_request_reaches_no_state_but_its_own,
    "dflash-fixed-block": kernels.no_request_compiles_the_drafter_s_kernel,
    "quantized-embedding": kernels.a_packed_embedding_is_looked_up,
    "pinned-pool-release": memory.a_pinned_pool_finds_the_profile_run_s_memory_free,
    "sampler-warmup-cuda": kernels.a_warm_sampler_compiles_nothing,
}


def outcome(name: str) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    try:
        CHECKS[name](figures)
    except AssertionError as error:
        text = f"fails: {error}"
    except Elsewhere as error:
        text = f"elsewhere: {error}"
    except Exception as error:
        traceback.print_exc()
        text = f"breaks: {type(error).__name__}: {error}"
    else:
        text = "holds"
    return {"text": text, "figures": figures}


def main(*names: str) -> None:
    found = {name: outcome(name) for name in names}
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
