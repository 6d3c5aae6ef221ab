"""Configuration and memory of the worker."""

# ruff: noqa: PT008 (plain functions stand in for plain functions)
from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

from probes.registry import Surroundings, probe


def in_flight(pp: int, *, drafter: bool, extra: dict[str, Any], asynchronous: bool = True) -> int:
    from vllm.config import VllmConfig

    config: Any = SimpleNamespace(
        parallel_config=SimpleNamespace(pipeline_parallel_size=pp),
        scheduler_config=SimpleNamespace(async_scheduling=asynchronous),
        speculative_config=SimpleNamespace() if drafter else None,
        additional_config=extra,
        use_v2_model_runner=True,
    )
    config._caps_pp_batches = lambda: VllmConfig._caps_pp_batches(config)
    value = VllmConfig.max_concurrent_batches
    getter: Any = getattr(value, "func", None) or value.fget
    return int(getter(config))


@probe("pp-batch-cap")
def the_switch_keeps_one_batch_a_stage(s: Surroundings) -> None:
    switch = {"cap_pp_batches": True}
    found = in_flight(2, drafter=True, extra=switch)
    assert found == 2, f"{found} batches in flight over two stages"
    assert in_flight(3, drafter=True, extra=switch) == 3
    assert in_flight(2, drafter=True, extra={}) == 3, "without the switch nothing changes"
    assert in_flight(2, drafter=False, extra=switch) == 3, "without a drafter nothing changes"
    assert in_flight(1, drafter=True, extra=switch) == 2, "without a pipeline nothing changes"


@probe("pinned-pool-release")
def the_cache_is_emptied_between_profile_run_and_pool(s: Surroundings) -> None:
    from vllm.v1.worker import gpu_worker

    calls: list[str] = []
    worker: Any = mock.MagicMock()
    worker.cache_config.kv_cache_memory_bytes = 1 << 30
    worker.init_snapshot.free_memory = 4 << 30
    worker.model_runner.profile_run.side_effect = lambda **_: calls.append("profile")

    def reserve(size: int, *_: object) -> int:
        calls.append("pool")
        return size

    with (
        mock.patch.object(gpu_worker, "maybe_apply_startup_plan"),
        mock.patch.object(gpu_worker, "set_current_vllm_config", lambda _: nullcontext()),
        mock.patch.object(gpu_worker, "reserve_mm_ipc_gpu_memory", reserve),
        mock.patch("torch.accelerator.synchronize", lambda *_: calls.append("synchronize")),
        mock.patch("torch.accelerator.empty_cache", lambda *_: calls.append("empty")),
    ):
        size = gpu_worker.Worker.determine_available_memory(worker)
    assert size == 1 << 30
    assert calls == ["profile", "synchronize", "empty", "pool"], f"what happened: {', '.join(calls)}"


@probe("sampler-warmup-cuda")
def the_verifier_s_kernels_are_registered_with_a_drafter(s: Surroundings) -> None:
    assert registers(cuda=True, drafter=True), "top-k and top-p are not registered for warm-up on CUDA with a drafter"
    assert not registers(cuda=True, drafter=False), "without a drafter start-up would take longer for nothing"
    assert registers(cuda=False, drafter=False), "ROCm registers them always"


def registers(*, cuda: bool, drafter: bool) -> bool:
    """Whether `load_model` registers the warm-ups of top-k and top-p; everything around them is a stand-in."""
    from vllm.v1.sample.ops import topk_topp_sampler
    from vllm.v1.worker.gpu import model_runner

    calls: list[str] = []
    runner: Any = mock.MagicMock()
    runner.is_last_pp_rank, runner.is_pooling_model = True, False
    runner.use_aux_hidden_state_outputs = runner.lora_config = False
    runner.vllm_config.watermark_config = None
    runner.parallel_config.enable_batch_sharded_sampling = False
    runner.num_speculative_steps = 7 if drafter else 0
    runner.speculative_config = object() if drafter else None
    platform = mock.MagicMock()
    platform.is_rocm.return_value, platform.is_cuda.return_value = not cuda, cuda

    class Reached(Exception):
        pass

    state = mock.MagicMock()
    state.num_new_sampled_tokens_per_step = 1
    state.custom_sampler.side_effect = Reached
    with (
        mock.patch.object(model_runner, "current_platform", platform),
        mock.patch.object(model_runner, "DeviceMemoryProfiler", mock.MagicMock()),
        mock.patch.object(model_runner, "get_model_loader", mock.MagicMock()),
        mock.patch.object(model_runner, "format_gib", str),
        mock.patch.object(model_runner, "init_model_state", lambda *_: state),
        mock.patch.object(model_runner, "build_custom_logits_processors", mock.MagicMock()),
        mock.patch.object(model_runner, "Sampler", mock.MagicMock(side_effect=Reached)),
        mock.patch.object(topk_topp_sampler, "register_top_k_top_p_warmups", lambda: calls.append("registered")),
    ):
        load: Any = model_runner.GPUModelRunner.load_model
        try:
            getattr(load, "__wrapped__", load)(runner, model=mock.MagicMock())
        except Reached:
            return bool(calls)
    raise RuntimeError("load_model did not get as far as the samplers")
