"""Loaded weights of each rank: layers by stage, embedding and vision first, head and drafter last."""

from __future__ import annotations

from functools import lru_cache

from qwenlab.planner.catalogue import checkpoints, drafter_checkpoints
from qwenlab.planner.memory.config import layers_per_stage
from qwenlab.planner.shape import EngineShape

# Rotary tables, norms, convolution kernels and other buffers that "model loading" counts beside the weights: the
# difference between tensors and log on four loads (vLLM 0.30.0 on an H200, bf16: 50.22, 25.17 and 27.54 GiB;
# HyperQwen docs/gotchas.md 8: 14.26 GiB), 0.11 to 0.13 GiB.
BUFFERS_GIB = 0.12


def weights_per_rank(shape: EngineShape) -> list[float]:
    """GiB of weights on each card, in rank order (stage by stage, tp cards each; replica by replica)."""
    per_stage = weights_per_stage(shape)
    return [gib for _ in range(shape.dp) for gib in per_stage for _ in range(shape.tp)]


def weights_per_stage(shape: EngineShape) -> tuple[float, ...]:
    """GiB of weights on one card of each pipeline stage."""
    return _weights(
        shape.checkpoint,
        shape.drafter,
        shape.speculation.method if shape.speculation else None,
        layers_per_stage(shape, checkpoints()[shape.checkpoint].geometry.layers),
        shape.tp,
        shape.vision,
        shape.embedding_shared,
        shape.draft_head is not None,
    )


@lru_cache(maxsize=16_384)
def _weights(
    checkpoint: str,
    drafter: str | None,
    method: str | None,
    stages: tuple[int, ...],
    tp: int,
    vision: bool,
    embedding_shared: bool,
    draft_head: bool,
) -> tuple[float, ...]:
    spec = checkpoints()[checkpoint]
    model, gib = spec.geometry, spec.gib
    sizes = []
    first = 0
    for stage, layers in enumerate(stages):
        attention = sum(model.is_full_attention(layer) for layer in range(first, first + layers))
        size = attention * gib["attention_layer"] + (layers - attention) * gib["gdn_layer"]
        is_last = stage == len(stages) - 1
        # A stage after the first keeps a copy of the embedding in stock vLLM; with the patch only where a drafter
        # on the last stage reads it.
        if stage == 0 or not embedding_shared or (is_last and method is not None):
            size += gib["embedding"]
        if stage == 0 and vision:
            size += gib["vision"]
        if is_last:
            size += gib["lm_head"]
            if method == "mtp":
                size += gib["mtp"] + (gib["lm_head"] / 2 if draft_head else 0.0)
            if method == "dflash" and drafter is not None:
                size += drafter_checkpoints()[drafter].gib
        sizes.append(size / tp + BUFFERS_GIB)
        first += layers
    return tuple(sizes)
