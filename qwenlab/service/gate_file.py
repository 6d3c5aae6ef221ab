"""What the gate (qwenlab/remote/gate.py) checks before an engine starts, as the file that it reads."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Start:
    """What one process of an engine is started with.

    Attributes:
        gpus: UUIDs of its cards; memory is asked for on these alone.
        port: where it listens; None when another process of the engine does.
        wait_s: how long to wait for what may pass: a dying process, a taken port [seconds].
        release, home: directories.
        checkpoints: directories; files: settings and variables, each of which ends in `END`.
    """

    gpus: tuple[str, ...]
    host: str
    port: int | None
    wait_s: int
    release: str
    home: str
    checkpoints: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def gate_file(engine: EnginePlan, start: Start) -> dict[str, Any]:
    """The gate file of one process of an engine; JSON-able."""
    ranks = engine.tp * engine.pp * engine.dp
    return {
        "cards": start.gpus,
        "need_mib": {rank.gpu: needed_mib(rank) for rank in engine.memory if rank.gpu in start.gpus},
        "host": start.host,
        "port": start.port,
        "checkpoints": start.checkpoints,
        "release": start.release,
        "home": start.home,
        "files": start.files,
        "secrets": start.secrets,
        "shm_mib": SHM_RANKS_MIB if ranks > 1 else SHM_SINGLE_MIB,
        "wait_s": start.wait_s,
    }


def needed_mib(rank: RankMemory) -> int:
    """MiB that must be free on a rank's card: what the plan puts there, without what others hold and the margin."""
    return round((rank.weights + rank.kv + rank.workspace + rank.graphs) * 1024)
