# mypy: disable-error-code="import-not-found, misc"
"""Asks a real vLLM release how it would cut a KV pool; run by that release's own interpreter, not by the tests'.

    python vllm_pool_oracle.py < cases.json > answers.json

Only configuration objects and layers are stand-ins; block size, pages, groups, blocks per request, block counts and
the token figure all come from vLLM's own planning functions. A case is a dictionary of `KvConfig` fields plus `blocks`.
"""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from vllm.model_executor.layers.attention.attention import Attention
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator
from vllm.model_executor.models import ModelRegistry
from vllm.platforms.interface import Platform
from vllm.v1.attention.backend import AttentionBackend, AttentionType
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import MambaSpec

try:
    from vllm.v1.core import kv_cache_planning as planning
except ImportError:
    planning = kv_cache_utils
try:
    from vllm.model_executor.layers.mamba.abstract import get_mamba_prefill_checkpoint_grid
except ImportError:
    get_mamba_prefill_checkpoint_grid = None
try:
    from vllm.v1.kv_cache_interface import KVCacheLayout
except ImportError:
    KVCacheLayout = None

TORCH = {
    "fp8": torch.uint8,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "int8_per_token_head": torch.int8,
    "int4_per_token_head": torch.uint8,
}


class Off:
    """A configuration object whose unset switches are off and whose questions are answered with no."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith(("use_", "is_", "supports_", "needs_")) and self.__dict__.get("answers"):
            return lambda *_: False
        return None


class FixedBlocks(AttentionBackend):
    """FlashInfer's block sizes without FlashInfer, which does not import where there is no GPU."""

    @staticmethod
    def get_name() -> str:
        return "FLASHINFER"

    @staticmethod
    def get_supported_kernel_block_sizes(*_: Any, **__: Any) -> list[Any]:
        return [16, 32, 64]

    @classmethod
    def get_preferred_block_size(cls, default_block_size: int) -> int:
        return default_block_size


def ask(case: dict[str, Any]) -> dict[str, Any]:
    """vLLM's figures for one case."""
    tp, k, ssm = case["tp"], case["draft_tokens"], TORCH[case["ssm_dtype"]]
    stages = case["partition"]
    shapes = MambaStateShapeCalculator.gated_delta_net_state_shape(tp, 16, 48, 128, 128, 4, k)
    shapes = tuple(tuple(shape) for shape in shapes)
    layers: dict[str, Any] = {}
    in_flight = len(stages) + (case["async_scheduling"] and not (len(stages) > 1 and case["in_flight_capped"]))
    config = Off(
        cache_config=Off(
            block_size=case["block_size"] or 16,
            user_specified_block_size=case["block_size"] is not None,
            cache_dtype=case["kv_dtype"],
            mamba_cache_mode="align" if case["prefix_cache"] else "none",
            mamba_block_size=case["max_model_len"],
            enable_prefix_caching=case["prefix_cache"],
            num_gpu_blocks_override=case["blocks"],
            kv_cache_dtype_skip_layers=[],
            get_resolved_kv_cache_layout=lambda: KVCacheLayout["LBNHC"] if KVCacheLayout else None,
            use_replayssm=False,
        ),
        model_config=Off(
            max_model_len=case["max_model_len"],
            original_max_model_len=case["max_model_len"],
            is_hybrid=True,
            use_mla=False,
            dtype=torch.bfloat16,
            architecture="Qwen3_5ForConditionalGeneration",
            get_num_kv_heads=lambda _: max(1, 4 // tp),
            get_head_size=lambda: 256,
            supports_kv_cache_grouping=False,
        ),
        parallel_config=Off(
            tensor_parallel_size=tp, decode_context_parallel_size=1, pipeline_parallel_size=len(stages)
        ),
        scheduler_config=Off(disable_hybrid_kv_cache_manager=False, max_num_batched_tokens=0),
        attention_config=Off(),
        compilation_config=Off(static_forward_context=layers),
        speculative_config=Off(method=case["method"], num_speculative_tokens=k, answers=True) if k else None,
        device_config=Off(device_type="cuda"),
        max_in_flight_tokens=in_flight * case["max_num_batched_tokens"],
        num_speculative_tokens=k,
        num_prefill_lookahead_tokens=1 if k else 0,
    )
    backend = backend_of(case["kv_dtype"], None)
    drafter_backend = backend_of(case["kv_dtype"], case["drafter_backend"])
    checkpoints = case["gdn_flashinfer"] and get_mamba_prefill_checkpoint_grid is not None
    mamba = mamba_layer(shapes, ssm, checkpoints)
    model = SimpleNamespace(
        get_mamba_state_shape_from_config=lambda _: shapes,
        get_mamba_state_dtype_from_config=lambda _: (torch.bfloat16, ssm),
    )
    layers["gdn"] = mamba
    with (
        patch.object(ModelRegistry, "resolve_model_cls", lambda *_, **__: (model, "")),
        patch.object(Platform, "_find_non_ssm_backend", lambda *_: backend, create=True),
        patch.object(Platform, "_find_non_ssm_backends", lambda *_: [backend, drafter_backend], create=True),
        patch("vllm.config.vllm.set_current_vllm_config", lambda *_, **__: nothing()),
        patch("vllm.config.set_current_vllm_config", lambda *_, **__: nothing()),
        patch("vllm.model_executor.layers.mamba.abstract.get_layers_from_vllm_config", lambda *_: layers, create=True),
    ):
        Platform.update_block_size_for_backend(config)
        workers, layer = [], 0
        for stage, count in enumerate(stages):
            specs: dict[str, Any] = {}
            for index in range(layer, layer + count):
                if index % 4 == 3:
                    specs[f"layers.{index}.attn"] = attention(config, backend, case, max(1, 4 // tp), 256, None)
                else:
                    specs[f"layers.{index}.gdn"] = state(config, mamba, checkpoints)
            layer += count
            if stage == len(stages) - 1 and case["method"] == "mtp":
                specs["mtp.attn"] = attention(config, backend, case, max(1, 4 // tp), 256, None)
            if stage == len(stages) - 1 and case["method"] == "dflash":
                for index in range(5):
                    specs[f"draft.{index}.attn"] = attention(config, drafter_backend, case, max(1, 8 // tp), 128, 2048)
            workers.append(specs)
        return figures(config, workers)


def figures(config: Any, workers: list[dict[str, Any]]) -> dict[str, Any]:
    plan = planning.get_kv_cache_configs
    extra = []
    if hasattr(planning, "get_global_kv_cache_groups") and len(inspect.signature(plan).parameters) == 4:
        extra = [planning.get_global_kv_cache_groups(config, workers)]
    refused = None
    try:
        configs = plan(config, workers, [1 << 40] * len(workers), *extra)
    except ValueError as error:
        refused = str(error)
        blocks, config.cache_config.num_gpu_blocks_override = config.cache_config.num_gpu_blocks_override, None
        configs = plan(config, workers, [1 << 44] * len(workers), *extra)
        for one in configs:
            one.num_blocks = blocks
        sizes = None
    else:
        sizes = [one.kv_cache_tensors[0].size for one in configs]
    scheduler = kv_cache_utils.generate_scheduler_kv_cache_config(configs)
    tokens, concurrency = kv_cache_utils.get_kv_cache_capacity(config, scheduler)
    groups = scheduler.kv_cache_groups
    specs = [group.kv_cache_spec for group in groups]
    return {
        "block_size": config.cache_config.block_size,
        "page_bytes": groups[0].kv_cache_spec.page_size_bytes,
        "groups": len(groups),
        "group_blocks": sorted({spec.block_size for spec in specs if not isinstance(spec, MambaSpec)}),
        "blocks_per_request": round(scheduler.num_blocks / concurrency),
        "num_blocks": scheduler.num_blocks,
        "pool_tokens": tokens,
        "slots": [max(len(group.layer_names) for group in one.kv_cache_groups) for one in configs],
        "tensor_bytes": sizes,
        "refused": refused,
    }


def backend_of(kv_dtype: str, name: str | None) -> type[AttentionBackend]:
    if name is None:
        name = "FLASHINFER" if kv_dtype == "fp8" else "TRITON_ATTN"
    return FixedBlocks if name == "FLASHINFER" else TritonAttentionBackend


def attention(config: Any, backend: Any, case: dict[str, Any], heads: int, size: int, window: int | None) -> Any:
    layer = SimpleNamespace(
        attn_type=AttentionType.DECODER,
        kv_cache_dtype=case["kv_dtype"],
        sliding_window=window,
        attn_backend=backend,
        num_kv_heads=heads,
        head_size=size,
        head_size_v=size,
        kv_cache_torch_dtype=TORCH[case["kv_dtype"]],
    )
    spec = Attention.get_kv_cache_spec(layer, config)
    try:
        from vllm.v1.worker.utils import customize_attention_spec
    except ImportError:
        spec = backend.customize_spec(spec) if hasattr(backend, "customize_spec") else spec
        # 0.27 and 0.28 pad a page only where the backend says that it finds pages by their stride; Triton's does.
        return replace(spec, indexes_kv_by_block_stride=True) if hasattr(spec, "indexes_kv_by_block_stride") else spec
    return customize_attention_spec(backend, spec)


def mamba_layer(shapes: Any, ssm: torch.dtype, checkpoints: bool) -> Any:
    return SimpleNamespace(
        get_state_shape=lambda: shapes,
        get_state_dtype=lambda: (torch.bfloat16, ssm),
        mamba_type=MambaAttentionBackendEnum.GDN_ATTN,
        is_kv_cache_tp_replicated=False,
        get_prefill_checkpoint_alignment=lambda: 64 if checkpoints else None,
    )


def state(config: Any, layer: Any, checkpoints: bool) -> Any:
    spec = MambaBase.get_kv_cache_spec(layer, config)
    if checkpoints and config.cache_config.mamba_cache_mode == "align":
        # What Qwen's GDN layer adds when its prefill runs FlashInfer's kernels.
        grid = get_mamba_prefill_checkpoint_grid(config)
        return replace(spec, num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=grid)
    return spec


class nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def main() -> None:
    answers = []
    for case in json.load(sys.stdin):
        answers.append(ask(case))
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
