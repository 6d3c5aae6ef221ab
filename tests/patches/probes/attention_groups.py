"""KV cache groups."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import torch
from probes.registry import Surroundings, probe

HOMES = ("vllm.v1.core.kv_cache_planning", "vllm.v1.core.kv_cache_utils")  # since 0.33.0, and before
FUNCTION = "_get_kv_cache_groups_uniform_page_size"


def planning() -> Any:
    """The module that makes the groups."""
    for name in HOMES:
        if importlib.util.find_spec(name) and hasattr(module := importlib.import_module(name), FUNCTION):
            return module
    raise ImportError(f"no {FUNCTION} in {', '.join(HOMES)}")


def group_sizes(full: int, recurrent: int, window: int) -> list[int]:
    """Layers in each group that the release makes of so many layers of each kind."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

    attention = {"block_size": 16, "num_kv_heads": 4, "head_size": 256, "dtype": torch.bfloat16}
    specs: dict[str, Any] = {}
    for index in range(full):
        specs[f"full.{index}"] = FullAttentionSpec(**attention)
    page = FullAttentionSpec(**attention).page_size_bytes
    for index in range(recurrent):
        specs[f"gdn.{index}"] = MambaSpec(
            block_size=16, shapes=((16, 16),), dtypes=(torch.float32,), page_size_padded=page
        )
    for index in range(window):
        specs[f"draft.{index}"] = SlidingWindowSpec(**attention, sliding_window=2048)
    groups = getattr(planning(), FUNCTION)(specs)
    return sorted((len(group.layer_names) for group in groups), reverse=True)


@probe("kv-group-size")
def window_layers_do_not_set_the_group_size(s: Surroundings) -> None:
    found = group_sizes(16, 48, 5)
    assert found == [8] * 8 + [5], f"16, 48 and 5 layers came out in groups of {found}"
    # shapes that the rule leaves alone: no drafter, MTP's extra layer, a drafter with as many layers as the model
    assert group_sizes(16, 48, 0) == [16] * 4
    assert group_sizes(17, 48, 0) == [17, 16, 16, 16]
    assert group_sizes(16, 48, 16) == [16] * 5
    # with nothing in common between the other buckets, small groups would cost more than they save: as released
    assert max(group_sizes(17, 48, 5)) == 5
