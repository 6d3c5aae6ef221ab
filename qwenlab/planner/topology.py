"""Cards and links of a host in words: shared by the terminal's and the page's drawing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from qwenlab.host_inventory import Gpu, GpuPair, HostInventory
from qwenlab.planner.plan import EnginePlan, HostPlan
from qwenlab.planner.rules.links import peer_access


@dataclass(frozen=True)
class Seat:
    """One rank of one engine: the card that it sits on and what it computes."""

    engine: str
    uuid: str
    role: str


def gpu_of(inventory: HostInventory, uuid: str) -> Gpu | None:
    """The card that a plan names."""
    return next((gpu for gpu in inventory.gpus if gpu.uuid == uuid), None)


def card_name(inventory: HostInventory, uuid: str) -> str:
    """`[1] NVIDIA GeForce RTX 5090`, or the UUID where the inventory does not hold the card."""
    gpu = gpu_of(inventory, uuid)
    return f"[{gpu.index}] {gpu.name or 'unnamed card'}" if gpu else uuid


def link_word(pair: GpuPair | None) -> str:
    """What lies between two cards: NV4, NVSwitch, PHB with or without peer access."""
    if pair is None:
        return "?"
    if pair.nvswitch:
        return "NVSwitch"
    if pair.nvlink_lanes:
        return f"NV{pair.nvlink_lanes}" + ("" if peer_access(pair) else " refused")
    path = pair.ancestor.value if pair.ancestor else "PCIe"
    return f"{path} peer" if peer_access(pair) else path


def form(engine: EnginePlan) -> str:
    """`TP=2`, `PP=2 (13,51)`, `TP=2 x DP=2`, `one card`, `on the processor`."""
    if not engine.gpus:
        return "on the processor"
    parts = [f"{name}={size}" for name, size in (("TP", engine.tp), ("PP", engine.pp), ("DP", engine.dp)) if size > 1]
    split = f" (layers {','.join(str(count) for count in engine.partition)})" if engine.partition else ""
    return (" x ".join(parts) or "one card") + split


def seats(engine: EnginePlan) -> tuple[Seat, ...]:
    """Every rank of an engine in rank order."""
    found = []
    per_replica = engine.tp * engine.pp
    starts = (0, *accumulate(engine.partition)) if engine.partition else ()
    for rank, uuid in enumerate(engine.gpus):
        replica, place = divmod(rank, per_replica)
        stage, shard = divmod(place, engine.tp)
        words = [f"copy {replica + 1}"] if engine.dp > 1 else []
        if starts:
            words.append(f"stage {stage}: layers {starts[stage]}-{starts[stage + 1] - 1}")
        if engine.tp > 1:
            words.append(f"shard {shard + 1} of {engine.tp}")
        found.append(Seat(engine.name, uuid, ", ".join(words) or "all layers"))
    return tuple(found)


def model_words(engine: EnginePlan) -> str:
    """Checkpoint, speculation, window and seats in one line."""
    drafts = f", {engine.speculation.method} x{engine.speculation.tokens}" if engine.speculation else ", no speculation"
    backend = f" on {engine.attention_backend}" if engine.attention_backend else ""
    return (
        f"{engine.checkpoint.repo} ({engine.checkpoint.format}){drafts}, {kv_type(engine)} KV{backend}; "
        f"{engine.max_model_len:,} tokens, {engine.max_num_seqs} seats"
    )


def kv_type(engine: EnginePlan) -> str:
    """The KV cache's data type; vLLM's `auto`, which the cpu engine is left with, is that of the weights."""
    return f"{engine.checkpoint.format} (the model's)" if engine.kv_cache_dtype == "auto" else engine.kv_cache_dtype


def speed_words(engine: EnginePlan) -> str:
    """What the throughput model expects, or that it says nothing."""
    expected = engine.predicted
    if expected is None:
        return "no prediction"
    words = [f"{expected.decode_tok_s:,.0f} tok/s for one stream"]
    if expected.aggregate_tok_s is not None and expected.concurrency is not None and expected.concurrency > 1:
        words.append(f"{expected.aggregate_tok_s:,.0f} tok/s over {expected.concurrency} streams")
    if expected.prefill_tok_s is not None:
        words.append(f"prefill {expected.prefill_tok_s:,.0f} tok/s")
    return ", ".join(words)


def value_of(engine: EnginePlan, name: str) -> object:
    """The value that an argument or variable has in an engine (per process where only processes have it).

    `option.key` is a key of a JSON option.
    """
    if name in engine.args:
        return engine.args[name]
    option, _, key = name.partition(".")
    if key and isinstance(engine.args.get(option), dict):
        return engine.args[option].get(key, "")
    if name in engine.env:
        return engine.env[name]
    own = [f"process {p.node_rank}: {p.env[name]}" for p in engine.processes if name in p.env]
    return "; ".join(own) or ("patch" if name in engine.patches else "")


def headline(plan: HostPlan) -> str:
    """One line about the whole host."""
    engines = f"{len(plan.engines)} engine{'' if len(plan.engines) == 1 else 's'}"
    status = engines if plan.status == "planned" else "refused"
    return f"{status} for workload {plan.workload.value}, vLLM {plan.vllm}"
