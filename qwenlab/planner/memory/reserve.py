"""What a card holds beside weights and KV pool: CUDA context, activations, graphs, and the room left free.

Coefficients are per vLLM span and were fitted on published memory lines; docs/memory.md shows each against its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from packaging.version import Version

from qwenlab.planner.catalogue import GIB, checkpoints
from qwenlab.planner.shape import Card, EngineShape

MIB = 1 << 20


@dataclass(frozen=True)
class ReserveRules:
    """Coefficients of one span of versions, in GiB unless the name says otherwise.

    Attributes:
        since: first version.
        context: CUDA context, kernels' modules, allocator rounding: "non-torch memory" of vLLM's log.
        collectives: NCCL buffers and the all-reduce workspace of a card with tensor-parallel peers.
        stage_link: buffers between pipeline stages.
        activation_bytes: per batched token, divided by tensor parallelism, at the peak of the profile run.
        speculation: verify buffers, draft logits and states' workspace on the card that holds the drafter.
        graph_base, graph_per_query: captured graphs: fixed, and per query token of a full verify step of one seat.
    """

    since: str
    context: float
    collectives: float
    stage_link: float
    activation_bytes: int
    speculation: float
    graph_base: float
    graph_per_query: float


_TABLE = (
    ReserveRules("0.27", 0.42, 0.40, 0.10, 300 * 1024, 0.45, 0.12, 0.17),
    ReserveRules("0.29", 0.42, 0.40, 0.10, 300 * 1024, 0.45, 0.12, 0.17),
)

# Free room under which boxes died at the first real batch: between 396 and 436 MiB at eight seats on 24 GB
# (HyperQwen docs/gotchas.md 35); a 250K-token prefill grew a card by up to 264 MiB (ExTV/dual-gpus-vllm).
MARGIN_GIB = 0.43
# A desktop's share moves while it is used (0.4 to 1.8 GiB on one box, ExTV/dual-gpus-vllm).
DISPLAY_MARGIN_GIB = 0.35


@lru_cache(maxsize=64)
def reserve_rules(version: str) -> ReserveRules:
    """The coefficients for a vLLM version."""
    wanted = Version(version)
    return [rules for rules in _TABLE if Version(rules.since) <= wanted][-1]


def workspace_gib(shape: EngineShape, stage: int) -> float:
    """GiB of context, collectives, activations and logits on one card of a stage."""
    rules = reserve_rules(shape.vllm)
    model = checkpoints()[shape.checkpoint].geometry
    size = rules.context
    if shape.tp > 1:
        size += rules.collectives
    if shape.pp > 1:
        size += rules.stage_link
    size += shape.max_num_batched_tokens * rules.activation_bytes / shape.tp / GIB
    if stage == shape.pp - 1:
        tokens = shape.speculation.tokens if shape.speculation else 0
        rows = shape.max_num_seqs * (1 + tokens)
        size += rows * model.vocab_size * 6 / GIB  # 16-bit logits and their fp32 copy
        if tokens:
            size += rules.speculation
    return size


def graphs_gib(shape: EngineShape, stage: int) -> float:
    """GiB of captured CUDA graphs on one card of a stage."""
    rules = reserve_rules(shape.vllm)
    tokens = shape.speculation.tokens if shape.speculation and stage == shape.pp - 1 else 0
    return rules.graph_base + rules.graph_per_query * tokens


def margin_gib(card: Card) -> float:
    """GiB that stay free on a card."""
    return MARGIN_GIB + (DISPLAY_MARGIN_GIB if card.display_active else 0.0)
