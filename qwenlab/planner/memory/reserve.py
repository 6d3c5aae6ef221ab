"""What a card holds beside weights and KV pool: CUDA context, activations, graphs, and the room left free.

The parts are physical, their coefficients fitted on published memory lines; docs/memory.md shows each line beside ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from packaging.version import Version

from qwenlab.planner.catalogue import GIB, checkpoints
from qwenlab.planner.shape import Card, EngineShape


@dataclass(frozen=True)
class ReserveRules:
    """Coefficients of one span of versions, in GiB unless the name says otherwise.

    Attributes:
        since: first version.
        context: CUDA context, kernels' modules, allocator rounding ("non-torch memory" in vLLM's log).
        data_centre_context: more of it on compute capability 9.x and 10.x, FlashInfer's workspaces among it.
        collectives: NCCL buffers and all-reduce workspace of a card with tensor-parallel peers.
        stage_link: buffers between pipeline stages.
        activation_bytes: per batched token at the peak of a step, divided by tensor parallelism.
        logit_bytes: per row and vocabulary entry: 16-bit logits and their fp32 copy.
        held_back: memory that the profiling of this span counted twice and never gave to the pool.
        mtp: GDN workspace of a verify step, which profiling does not see; divided by tensor parallelism.
        vision: activations of the vision tower on the first stage (two 4-megapixel images: 326 MiB, dual-gpus-vllm).
        graphs, graphs_per_seat: captured graphs without speculation; seats count up to 512.
        mtp_graphs_per_token: more of them per draft token, divided by tensor parallelism.
        dflash_graphs_fixed, dflash_graphs_shared, dflash_graphs_per_token: with a block drafter of seven tokens: on
            every card, divided by tensor parallelism, and per further token.
    """

    since: str
    context: float
    data_centre_context: float
    collectives: float
    stage_link: float
    activation_bytes: int
    logit_bytes: int
    held_back: float
    mtp: float
    vision: float
    graphs: float
    graphs_per_seat: float
    mtp_graphs_per_token: float
    dflash_graphs_fixed: float
    dflash_graphs_shared: float
    dflash_graphs_per_token: float


_BASE = ReserveRules(
    since="0.25",
    context=0.42,
    data_centre_context=0.60,
    collectives=0.45,
    stage_link=0.10,
    activation_bytes=240 * 1024,
    logit_bytes=6,
    held_back=0.0,
    mtp=0.45,
    vision=0.35,
    graphs=0.10,
    graphs_per_seat=0.0012,
    mtp_graphs_per_token=0.17,
    dflash_graphs_fixed=0.35,
    dflash_graphs_shared=1.10,
    dflash_graphs_per_token=0.05,
)
_TABLE = (_BASE, replace(_BASE, since="0.27", held_back=0.90), replace(_BASE, since="0.29"))
TRAINED_TOKENS = 7
CAPTURED_SEATS = 512

# Free room under which boxes died at the first real batch: between 396 and 436 MiB at eight seats on 24 GB
# (HyperQwen docs/gotchas.md 35); a 250K-token prefill grew a card by up to 264 MiB (ExTV/dual-gpus-vllm).
MARGIN_GIB = 0.43
# A data-centre card serves long prefills for many at once, and a few GiB of pool are nothing to it.
LARGE_CARD_GIB = 40.0
LARGE_CARD_MARGIN = 0.015
# A desktop's share moves while it is used (0.4 to 1.8 GiB on one box, ExTV/dual-gpus-vllm).
DISPLAY_MARGIN_GIB = 0.35


@lru_cache(maxsize=64)
def reserve_rules(version: str) -> ReserveRules:
    """The coefficients for a vLLM version."""
    wanted = Version(version)
    return next((rules for rules in reversed(_TABLE) if Version(rules.since) <= wanted), _BASE)


def workspace_gib(shape: EngineShape, stage: int) -> float:
    """GiB of context, collectives, activations and logits on one card of a stage; the larger where cards differ."""
    rules = reserve_rules(shape.vllm)
    size = rules.context + rules.held_back
    cards = shape.cards[stage * shape.tp : (stage + 1) * shape.tp]
    if any(card.compute_capability[0] in (9, 10) for card in cards):
        size += rules.data_centre_context
    if shape.tp > 1:
        size += rules.collectives
    if shape.pp > 1:
        size += rules.stage_link
    if shape.vision and stage == 0:
        size += rules.vision
    size += shape.max_num_batched_tokens * rules.activation_bytes / shape.tp / GIB
    if stage == shape.pp - 1:
        speculation = shape.speculation
        rows = min(shape.max_num_seqs * (1 + (speculation.tokens if speculation else 0)), shape.max_num_batched_tokens)
        size += rows * checkpoints()[shape.checkpoint].geometry.vocab_size * rules.logit_bytes / GIB
        if speculation and speculation.method == "mtp":
            size += rules.mtp / shape.tp
    return size


def graphs_gib(shape: EngineShape, stage: int) -> float:
    """GiB of captured CUDA graphs on one card of a stage; the drafter's are on the last."""
    rules = reserve_rules(shape.vllm)
    size = rules.graphs + rules.graphs_per_seat * min(shape.max_num_seqs, CAPTURED_SEATS)
    speculation = shape.speculation
    if speculation is None or stage != shape.pp - 1:
        return size
    if speculation.method == "mtp":
        return size + rules.mtp_graphs_per_token * speculation.tokens / shape.tp
    further = rules.dflash_graphs_per_token * max(0, speculation.tokens - TRAINED_TOKENS)
    return rules.dflash_graphs_fixed + (rules.dflash_graphs_shared + further) / shape.tp


def margin_gib(card: Card) -> float:
    """GiB that stay free on a card."""
    large = LARGE_CARD_MARGIN * max(0.0, card.memory_gib - LARGE_CARD_GIB)
    return MARGIN_GIB + large + (DISPLAY_MARGIN_GIB if card.display_active else 0.0)
