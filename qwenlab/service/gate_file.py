"""What the gate (qwenlab/remote/gate.py) checks before an engine starts, as the file that it reads."""

from __future__ import annotations

from typing import Any

from qwenlab.planner.plan import EnginePlan, RankMemory

END = "# end of file\n"
# Last line of an engine's settings and variables: what a power cut or a full disk cut off does not have it, and a file
# that a person edits still does.
SHM_SINGLE_MIB = 64
SHM_RANKS_MIB = 1024
# Ranks exchange through shared memory: vLLM's message queue keeps 10 chunks of VLLM_MQ_MAX_CHUNK_BYTES_MB = 16 MiB for
# every group of ranks (vLLM 0.33.0 distributed/device_communicators/shm_broadcast.py, envs.py), and NCCL without peer
# access moves data through it (NCCL user guide, "Shared Memory": 1 GiB for containers).


def gate_file(
    engine: EnginePlan,
    *,
    gpus: tuple[str, ...],
    host: str,
    port: int | None,
    checkpoints: list[str],
    release: str,
    home: str,
    files: list[str],
    secrets: list[str],
    wait_s: int,
) -> dict[str, Any]:
    """The gate file of one process of an engine; JSON-able.

    Args:
        gpus: UUIDs of the process's cards; memory is asked for on these alone.
        port: where it listens; None when another process of the engine does.
        files: what it is started with; each ends in `END`.
        wait_s: how long to wait for what may pass: a dying process, a taken port [seconds].
    """
    need = {rank.gpu: needed_mib(rank) for rank in engine.memory if rank.gpu in gpus}
    ranks = engine.tp * engine.pp * engine.dp
    return {
        "cards": list(gpus),
        "need_mib": need,
        "host": host,
        "port": port,
        "checkpoints": checkpoints,
        "release": release,
        "home": home,
        "files": files,
        "secrets": secrets,
        "shm_mib": SHM_RANKS_MIB if ranks > 1 else SHM_SINGLE_MIB,
        "wait_s": wait_s,
    }


def needed_mib(rank: RankMemory) -> int:
    """MiB that must be free on a rank's card: what the plan puts there, without what others hold and the margin."""
    return round((rank.weights + rank.kv + rank.workspace + rank.graphs) * 1024)
