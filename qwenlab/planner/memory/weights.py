"""Loaded weights of each rank: layers by stage, embedding and vision first, head and drafter last."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

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
        _Loaded(
            checkpoint=shape.checkpoint,
            drafter=shape.drafter,
            method=shape.speculation.method if shape.speculation else None,
            layers=layers_per_stage(shape, checkpoints()[shape.checkpoint].geometry.layers),
            tp=shape.tp,
            vision=shape.vision,
            embedding_shared=shape.embedding_shared,
            head_copied=shape.draft_head is not None,
        )
    )


class _Loaded(NamedTuple):
    """What of a shape decides about its weights: shapes that differ in windows, seats or cards share the answer."""

    checkpoint: str
    drafter: str | None
    method: str | None
    layers: tuple[int, ...]  # by stage
    tp: int
    vision: bool
    embedding_shared: bool
    head_copied: bool


@lru_cache(maxsize=16_384)
def _weights(loaded: _Loaded) -> tuple[float, ...]:
    spec = checkpoints()[loaded.checkpoint]
    model, gib = spec.geometry, spec.gib
    sizes = []
    first = 0
    for stage, layers in enumerate(loaded.layers):
        attention = sum(model.is_full_attention(layer) for layer in range(first, first + layers))
        size = attention * gib["attention_layer"] + (layers - attention) * gib["gdn_layer"]
        is_last = stage == len(loaded.layers) - 1
        # A stage after the first keeps a copy of the embedding in stock vLLM; with the patch only where a drafter
        # on the last stage reads it.
        if stage == 0 or not loaded.embedding_shared or (is_last and loaded.method is not None):
            size += gib["embedding"]
        if stage == 0 and loaded.vision:
            size += gib["vision"]
        if is_last:
            size += gib["lm_head"]
            if loaded.method == "mtp":
                size += gib["mtp"] + (gib["lm_head"] / 2 if loaded.head_copied else 0.0)
            if loaded.method == "dflash" and loaded.drafter is not None:
                size += drafter_checkpoints()[loaded.drafter].gib
        sizes.append(size / loaded.tp + BUFFERS_GIB)
        first += layers
    return tuple(sizes)
