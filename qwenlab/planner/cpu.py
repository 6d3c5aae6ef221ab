"""The plan of the cpu engine: one small checkpoint on the host's processor, nothing to choose."""

from __future__ import annotations

from qwenlab.host_inventory import HostInventory
from qwenlab.planner.plan import Checkpoint, EnginePlan, Evidence, HostPlan, Reason, Workload
from qwenlab.settings import Settings


def plan_cpu(inventory: HostInventory, settings: Settings) -> HostPlan:
    """One engine named `cpu` that serves `qwen_cpu_checkpoint`.

    Raises:
        ValueError: the settings name no checkpoint (they are refused before they get here).
    """
    if settings.cpu_checkpoint is None or settings.cpu_revision is None:
        raise ValueError("the cpu engine needs qwen_cpu_checkpoint and qwen_cpu_revision")
    engine = EnginePlan(
        name="cpu",
        port=settings.port,
        gpus=(),
        checkpoint=Checkpoint(repo=settings.cpu_checkpoint, revision=settings.cpu_revision, format="bf16"),
        kv_cache_dtype="auto",
        attention_backend=None,
        max_model_len=settings.cpu_context,
        max_num_seqs=settings.cpu_seats,
        args={
            "max-model-len": settings.cpu_context,
            "max-num-seqs": settings.cpu_seats,
            "enforce-eager": True,
            "language-model-only": True,
        },
        env={"VLLM_CPU_KVCACHE_SPACE": str(settings.cpu_kv_gib), "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
        reasons=(
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
        ),
    )
    workload = Workload.CHAT
    return HostPlan(status="planned", workload=workload, vllm=settings.release.vllm, engines=(engine,))
