"""Memory that the worker leaves for the KV pool."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

import torch

GIB = 1 << 30
PROFILED_GIB = 8


def a_pinned_pool_finds_the_profile_run_s_memory_free(figures: dict[str, Any]) -> None:
    """What the profile run's dummy batch took is free for others when a pinned pool is about to be taken."""
    from vllm.v1.worker import gpu_worker

    def profile(**_: object) -> None:
        torch.empty(PROFILED_GIB * GIB, dtype=torch.uint8, device="cuda").zero_()

    def left(size: int, *_: object) -> int:
        figures["reserved_gib"] = round(torch.cuda.memory_reserved() / GIB, 2)
        figures["free_gib"] = round(torch.cuda.mem_get_info()[0] / GIB, 2)
        return size

    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0] / GIB
    worker: Any = mock.MagicMock()
    worker.cache_config.kv_cache_memory_bytes = GIB
    worker.init_snapshot.free_memory = torch.cuda.mem_get_info()[0]
    worker.model_runner.profile_run.side_effect = profile
    with (
        mock.patch.object(gpu_worker, "maybe_apply_startup_plan"),
        mock.patch.object(gpu_worker, "set_current_vllm_config", lambda _: nullcontext()),  # noqa: PT008
        mock.patch.object(gpu_worker, "reserve_mm_ipc_gpu_memory", left),
    ):
        gpu_worker.Worker.determine_available_memory(worker)
    missing = before - figures["free_gib"]
    assert missing < 1, f"{missing:.1f} GiB stay with the allocator beside the pinned pool"
