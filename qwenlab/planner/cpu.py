"""The plan of the cpu engine: one small checkpoint on the host's processor, nothing to choose."""

from __future__ import annotations

from typing import Any

from qwenlab.host_inventory import HostInventory
from qwenlab.planner.checks import ports_refusal
from qwenlab.planner.measured import as_measured, expired, measurement_of
from qwenlab.planner.plan import Checkpoint, EnginePlan, Evidence, HostPlan, Reason, Workload
from qwenlab.planner.rules.overrides import force, seats_of
from qwenlab.settings import Settings

REASONS = (
    Reason(
        rule="cpu-eager",
        text="no compilation: it would need a C++ compiler on the host and gains nothing at this size",
        source="vLLM 0.32.0 compilation/ (Inductor's CPU backend calls g++)",
        evidence=Evidence.DERIVED,
        sets=("enforce-eager",),
    ),
    Reason(
        rule="cpu-nobind",
        text="threads are not bound to cores: in a container the core numbers are not the machine's",
        source="vLLM 0.32.0 docs/getting_started/installation/cpu.md",
        evidence=Evidence.DERIVED,
        sets=("VLLM_CPU_OMP_THREADS_BIND",),
    ),
)
RANKS = (
    Reason(
        rule="cpu-threads",
        text="ranks share the cores: each would start a thread a core, and all of them wait for each other busily, so "
        "that a token takes seconds",
        source="vLLM 0.32.0 csrc/cpu/shm.cpp (wait_for_one), utils/ompmultiprocessing.py (nobind sets no number)",
        evidence=Evidence.MEASURED,
        sets=("OMP_NUM_THREADS",),
    ),
    Reason(
        rule="cpu-ranks-eager",
        text="ranks look tokens up with a function that is compiled by itself, also with enforce-eager, and would end "
        "the engine at its first request where the host has no C++ compiler",
        source="vLLM 0.32.0 model_executor/layers/vocab_parallel_embedding.py (get_masked_input_and_mask)",
        evidence=Evidence.MEASURED,
        sets=("TORCHDYNAMO_DISABLE",),
    ),
)


def plan_cpu(inventory: HostInventory, settings: Settings) -> HostPlan:
    """`qwen_cpu_engines` engines named `cpu`, `cpu2`, ...: the same checkpoint, each on a port of its own.

    `qwen_tensor_parallel`, `qwen_engine_args` and `qwen_engine_env` hold for each of them.

    Raises:
        ValueError: the settings name no checkpoint (they are refused before they get here).
    """
    if settings.cpu_checkpoint is None or settings.cpu_revision is None:
        raise ValueError("the cpu engine needs qwen_cpu_checkpoint and qwen_cpu_revision")
    checkpoint = Checkpoint(repo=settings.cpu_checkpoint, revision=settings.cpu_revision, format="bf16")
    refusal = ports_refusal(settings, settings.cpu_engines)
    places = () if refusal else range(settings.cpu_engines)
    engines = tuple(_measured(_engine(place, checkpoint, inventory, settings), inventory, settings) for place in places)
    return HostPlan(
        status="planned" if refusal is None else "refused",
        workload=Workload.CHAT,
        vllm=settings.release.vllm,
        engines=engines,
        refusals=(refusal,) if refusal else (),
        warnings=tuple(dict.fromkeys(warning for engine in engines for warning in engine.warnings)),
    )


def _engine(place: int, checkpoint: Checkpoint, inventory: HostInventory, settings: Settings) -> EnginePlan:
    ranks = settings.tensor_parallel or 1
    args: dict[str, Any] = {
        "max-model-len": settings.cpu_context,
        "max-num-seqs": settings.cpu_seats,
        "enforce-eager": True,
        "language-model-only": True,
        **({"tensor-parallel-size": ranks} if ranks > 1 else {}),
    }
    env = {"VLLM_CPU_KVCACHE_SPACE": str(settings.cpu_kv_gib), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    if ranks > 1:
        env |= {"OMP_NUM_THREADS": str(max(1, (inventory.cpu_count or 1) // ranks)), "TORCHDYNAMO_DISABLE": "1"}
    forced = force(args, env, settings.engine_args, settings.engine_env)
    return EnginePlan(
        # the first keeps its name when more are added, so that it need not restart
        name="cpu" if place == 0 else f"cpu{place + 1}",
        port=settings.port + place,
        gpus=(),
        tp=ranks,
        checkpoint=checkpoint,
        kv_cache_dtype="auto",
        attention_backend=None,
        max_model_len=settings.cpu_context,
        max_num_seqs=seats_of(forced.args, settings.cpu_seats),
        args=forced.args,
        env=forced.env,
        reasons=(*REASONS, *(RANKS if ranks > 1 else ()), *forced.reasons),
        warnings=forced.warnings,
    )


def _measured(engine: EnginePlan, inventory: HostInventory, settings: Settings) -> EnginePlan:
    """With what was measured on this host; the pool's size is the user's here, so nothing else changes."""
    vllm = settings.release.vllm
    found = measurement_of(engine, inventory, vllm)
    if found is not None:
        return as_measured(engine, found)
    words = expired(engine, inventory, vllm)
    return engine.model_copy(update={"warnings": (*engine.warnings, words)}) if words else engine
