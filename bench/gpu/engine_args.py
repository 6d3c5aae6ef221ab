"""vLLM's arguments that the arms of several groups share."""

from __future__ import annotations

from typing import Any


def base_args(max_model_len: int) -> dict[str, Any]:
    """What every arm shares: dummy weights, no vision, a served name that the client knows."""
    return {
        "served-model-name": ["q"],
        "load-format": "dummy",
        "language-model-only": True,
        "max-model-len": max_model_len,
    }


def pinned_args(max_model_len: int, kv_dtype: str, *, seats: int, pin: int) -> dict[str, Any]:
    """An engine that starts quickly, for the size of its KV pool: `pin` bytes, whatever the card has free."""
    return base_args(max_model_len) | {
        "kv-cache-dtype": kv_dtype,
        "mamba-ssm-cache-dtype": "bfloat16",
        "attention-backend": "FLASH_ATTN",
        "max-num-seqs": seats,
        "max-num-batched-tokens": 4096,
        "kv-cache-memory-bytes": pin,
        "gpu-memory-utilization": 0.3,
        "enforce-eager": True,
    }
