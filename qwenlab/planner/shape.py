"""The shape of one engine: what the memory model, the throughput model and the rules all take as input.

A candidate layout is a list of shapes with the cards that each one uses. Nothing here is decided; it is only named.
"""

from __future__ import annotations

from dataclasses import dataclass

from qwenlab.host_inventory import GpuPair
from qwenlab.planner.plan import Speculation


@dataclass(frozen=True)
class Card:
    """One card as the planner sees it; sizes in GiB, bandwidth in GB/s (1e9), rates in TFLOP/s (dense).

    Attributes:
        memory_gib: total VRAM that CUDA can see.
        in_use_gib: taken by others when read (a desktop, WSL2's share).
        bandwidth_gb_s: data-sheet memory bandwidth.
        fp16_tflops: dense tensor rate with 16-bit inputs.
        fp8_tflops, int8_tops: None where the card has no such unit.
        pcie_gb_s: one direction, of the slot path.
    """

    uuid: str
    index: int
    name: str
    compute_capability: tuple[int, int]
    memory_gib: float
    in_use_gib: float
    bandwidth_gb_s: float
    fp16_tflops: float
    fp8_tflops: float | None
    int8_tops: float | None
    pcie_gb_s: float
    power_limit_w: float | None = None
    display_active: bool = False


@dataclass(frozen=True)
class EngineShape:
    """One engine on given cards, before rules turn it into arguments.

    Attributes:
        checkpoint, drafter: keys of the catalogue; drafter is None without DFlash.
        cards: in rank order; with pp > 1 stage by stage (stage 0 first), tp cards each; with dp > 1 replica by replica.
        links: what is known between the cards, by `Card.index`.
        partition: layers per pipeline stage; None when pp == 1.
        kv_dtype: vLLM's `--kv-cache-dtype` word; ssm_dtype: `--mamba-ssm-cache-dtype` word.
        kv_bytes: pinned pool per card in bytes; None lets vLLM size it from gpu_memory_utilization.
        vllm: version whose block rules hold, e.g. "0.33.0".
        beside_gib: measured by rank: what the engine takes of a card beside the KV pool; None: the model's answer.
        grouping_patched: the KV group-size patch of the series is applied.
        block_size: tokens for `--block-size`; None lets the memory model choose (`kv_layout(shape).block_size`).
        drafter_attention_backend: of the drafter's layers; None follows the KV data type.
        draft_head: word for an MTP drafter's own copy of a 16-bit head, "fp8"; None: it drafts through the target's.
        gdn_prefill_backend: "triton", "flashinfer" or None for vLLM's own choice by compute capability.
        in_flight_capped: the pipeline's in-flight batches are capped at one per stage (patch of the series).
        embedding_shared: later pipeline stages carry no unused copy of the embedding (patch of the series).
    """

    checkpoint: str
    cards: tuple[Card, ...]
    vllm: str
    links: tuple[GpuPair, ...] = ()
    drafter: str | None = None
    speculation: Speculation | None = None
    tp: int = 1
    pp: int = 1
    dp: int = 1
    partition: tuple[int, ...] | None = None
    kv_dtype: str = "fp8"
    ssm_dtype: str = "float16"
    attention_backend: str = "FLASHINFER"
    max_model_len: int = 262_144
    max_num_seqs: int = 4
    max_num_batched_tokens: int = 2048
    prefix_cache: bool = True
    async_scheduling: bool = True
    vision: bool = False
    kv_bytes: int | None = None
    beside_gib: tuple[float, ...] | None = None
    gpu_memory_utilization: float | None = None
    grouping_patched: bool = True
    block_size: int | None = None
    drafter_attention_backend: str | None = None
    draft_head: str | None = None
    gdn_prefill_backend: str | None = None
    in_flight_capped: bool = True
    embedding_shared: bool = True
