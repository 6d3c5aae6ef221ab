"""Names that people bring along from vLLM and its kin, and the settings that say the same here."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from qwenlab.settings.planner import SETTING_OF

_OTHERS = {
    "tp": "qwen_tensor_parallel",
    "tp_size": "qwen_tensor_parallel",
    "pp": "qwen_pipeline_parallel",
    "pp_size": "qwen_pipeline_parallel",
    "dp": "qwen_data_parallel",
    "dp_size": "qwen_data_parallel",
    "gpus": "qwen_cards",
    "gpu_ids": "qwen_cards",
    "devices": "qwen_cards",
    "cuda_visible_devices": "qwen_cards",
    "ctx": "qwen_context",
    "ctx_size": "qwen_context",
    "context_length": "qwen_context",
    "max_context": "qwen_context",
    "max_num_seqs": "qwen_concurrency",
    "seats": "qwen_concurrency",
    "parallel": "qwen_concurrency",
    "kv_dtype": "qwen_kv_cache_dtype",
    "address": "qwen_bind",
    "listen": "qwen_bind",
    "listen_address": "qwen_bind",
    "quantization": "qwen_checkpoint",
    "model_name": "qwen_served_model_names",
    "model_dir": "qwen_model_directory",
    "models_dir": "qwen_model_directory",
    "speculative_config": "qwen_speculation and qwen_draft_tokens",
    "num_speculative_tokens": "qwen_draft_tokens",
    "language_model_only": "qwen_vision",
    "p2p": "qwen_verify_peers: the live peer test decides about peer access",
    "peer_access": "qwen_verify_peers: the live peer test decides about peer access",
    "power_limit": "qwen_power_limit_w",
    "driver": "qwen_driver_branch or qwen_driver_version",
}


@cache
def vllm_options() -> frozenset[str]:
    """The options of `vllm serve` in the pinned releases (qwenlab/data/vllm_options.txt)."""
    text = files("qwenlab.data").joinpath("vllm_options.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def meant(name: str) -> str | None:
    """What a key without its prefix is called here; None where it is nobody's name for anything."""
    option = name.replace("_", "-").removeprefix("vllm-")
    own = SETTING_OF.get(option) or _OTHERS.get(name.lower())
    if own is None and option in vllm_options():
        return f"it is vLLM's own argument: write qwen_engine_args = {{'{option}': ...}}"
    return f"here it is {own}" if own else None
