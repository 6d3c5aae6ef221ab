"""From catalogue and cards to the throughput model's input: what a step reads, and on which silicon."""

from __future__ import annotations

from functools import cache

from qwenlab.planner.catalogue import GIB, checkpoints, drafter_checkpoints
from qwenlab.planner.layouts import Place
from qwenlab.planner.memory.kv_dtypes import kv_dtype
from qwenlab.planner.recipes import Recipe
from qwenlab.planner.shape import Card
from qwenlab.planner.throughput import Silicon, WeightTraffic, Work

# First compute capability whose kernels multiply 8-bit or 4-bit inputs; older cards unpack weights (Marlin) or emulate.
NATIVE = {"fp8-block": (8, 9), "nvfp4": (10, 0)}


def work_of(checkpoint: str, recipe: Recipe, place: Place, split: tuple[int, ...], depth: int) -> Work:
    """The throughput model's view of a recipe on a place, for one stream with `depth` tokens in its cache."""
    spec = checkpoints()[checkpoint]
    native = NATIVE.get(spec.kernels)
    attention = spec.geometry.attention
    backend = recipe.backend
    if backend == "FLASHINFER" and min(card.compute_capability for card in place.cards)[0] == 10:
        backend = "FLASH_ATTN"  # TensorRT-LLM's kernels behind FlashInfer capture speculative steps whole on 10.x
    return Work(
        cards=tuple(_silicon(card, native) for card in place.cards),
        weights=traffic(checkpoint),
        kv_bytes=kv_dtype(recipe.kv_dtype).token_bytes(attention.kv_heads, attention.head_dim),
        backend=backend,
        layers=split,
        tp=place.tp,
        link=place.link,
        draft=recipe.method,
        draft_tokens=recipe.tokens,
        drafter_gb=_drafter_gb(spec.drafters[0]) if recipe.method == "dflash" else 0.0,
        state_bytes=2,
        depth=depth,
    )


@cache
def traffic(checkpoint: str) -> WeightTraffic:
    """Bytes (1e9) of each part of a checkpoint that a step reads."""
    spec = checkpoints()[checkpoint]
    gib, geometry = spec.gib, spec.geometry
    body = geometry.attention_layers * gib["attention_layer"] + geometry.gdn_layers * gib["gdn_layer"]
    head = gib["lm_head"] * GIB / 1e9
    return WeightTraffic(
        body=body * GIB / 1e9,
        head=head,
        mtp=gib["mtp"] * GIB / 1e9,
        draft_head=head,
        kernel="8" if spec.kernels in NATIVE else "16",
    )


@cache
def _silicon(card: Card, native: tuple[int, int] | None) -> Silicon:
    eight_bit = native is not None and card.compute_capability >= native
    return Silicon(
        bandwidth_gb_s=card.bandwidth_gb_s,
        fp16_tflops=card.fp16_tflops,
        fp8_tflops=card.fp8_tflops if eight_bit else None,
        compute_capability=card.compute_capability,
        pcie_gb_s=card.pcie_gb_s,
    )


def _drafter_gb(drafter: str) -> float:
    return drafter_checkpoints()[drafter].gib * GIB / 1e9
