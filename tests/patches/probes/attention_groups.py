"""KV cache groups."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from probes.registry import Surroundings, probe

HOME = {"0.33.0": "vllm.v1.core.kv_cache_planning", "0.32.0": "vllm.v1.core.kv_cache_utils"}


def group_sizes(version: str, full: int, recurrent: int, window: int, *, window_is_full: bool = False) -> list[int]:
    """Layers in each group that the release makes of so many layers of each kind."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

    module: Any = importlib.import_module(HOME[version])
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
        kind = FullAttentionSpec if window_is_full else SlidingWindowSpec
        specs[f"draft.{index}"] = kind(**{**attention, "sliding_window": 2048})
    groups = module._get_kv_cache_groups_uniform_page_size(specs)
    return sorted((len(group.layer_names) for group in groups), reverse=True)


@probe("kv-group-size")
def window_layers_do_not_set_the_group_size(s: Surroundings) -> None:
    found = group_sizes(s.version, 16, 48, 5)
    assert found == [8] * 8 + [5], f"16, 48 and 5 layers came out in groups of {found}"
    # shapes that the rule leaves alone: no drafter, MTP's extra layer, a drafter with as many layers as the model
    assert group_sizes(s.version, 16, 48, 0) == [16] * 4
    assert group_sizes(s.version, 17, 48, 0) == [17, 16, 16, 16]
    assert group_sizes(s.version, 16, 48, 16) == [16] * 5
    # with nothing in common between the other buckets, small groups would cost more than they save: as released
    assert max(group_sizes(s.version, 17, 48, 5)) == 5
