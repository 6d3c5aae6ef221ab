"""From catalogue and cards to the throughput model's input: what a step reads, and on which silicon."""

from __future__ import annotations

from functools import cache, lru_cache

from qwenlab.planner.catalogue import GIB, checkpoints, drafter_checkpoints
from qwenlab.planner.layouts import Place
from qwenlab.planner.memory.kv_dtypes import kv_dtype
from qwenlab.planner.recipes import Recipe, copies_head
from qwenlab.planner.shape import Card
from qwenlab.planner.throughput import Silicon, WeightTraffic, Work

# First compute capability whose kernels multiply 8-bit or 4-bit inputs; older cards unpack weights (Marlin) or emulate.
NATIVE = {"fp8-block": (8, 9), "fp8-channel": (8, 9), "nvfp4": (10, 0)}
KERNEL = {"fp8-block": "8-block", "fp8-channel": "8", "nvfp4": "8"}  # in the throughput model's words
PACKED = {"marlin-w4a16": 4, "marlin-w8a16": 8}


def work_of(checkpoint: str, recipe: Recipe, place: Place, split: tuple[int, ...], depth: int) -> Work:
    """The throughput model's view of a recipe on a place, for one stream with `depth` tokens in its cache."""
    kv_bytes, drafter_gb = _sizes(checkpoint, recipe.kv_dtype, recipe.method)
    return Work(
        cards=_silicon(place.cards, checkpoint),
        weights=traffic(checkpoint, copied_head=copies_head(recipe, checkpoints()[checkpoint])),
        kv_bytes=kv_bytes,
        backend=_backend(recipe.backend, place.cards),
        layers=split,
        tp=place.tp,
        link=place.link,
        draft=recipe.method,
        draft_tokens=recipe.tokens,
        drafter_gb=drafter_gb,
        state_bytes=2,
        depth=depth,
    )


@cache
def _sizes(checkpoint: str, kv_dtype_word: str, method: str | None) -> tuple[float, float]:
    """Bytes of one token in one attention layer's cache, and 1e9 bytes of the drafter."""
    spec = checkpoints()[checkpoint]
    attention = spec.geometry.attention
    drafter = drafter_checkpoints()[spec.drafters[0]].gib * GIB / 1e9 if method == "dflash" else 0.0
    return kv_dtype(kv_dtype_word).token_bytes(attention.kv_heads, attention.head_dim), drafter


@lru_cache(maxsize=4096)
def _backend(word: str, cards: tuple[Card, ...]) -> str:
    """TensorRT-LLM's kernels behind FlashInfer on 10.x capture speculative steps whole, as FLASH_ATTN's do."""
    lowest = min(card.compute_capability for card in cards)
    return "FLASH_ATTN" if word == "FLASHINFER" and lowest[0] == 10 else word


@cache
def traffic(checkpoint: str, copied_head: bool = False) -> WeightTraffic:
    """Bytes (1e9) of each part of a checkpoint that a step reads; a draft may go through an 8-bit copy of the head."""
    spec = checkpoints()[checkpoint]
    gib, geometry = spec.gib, spec.geometry
    body = geometry.attention_layers * gib["attention_layer"] + geometry.gdn_layers * gib["gdn_layer"]
    head = gib["lm_head"] * GIB / 1e9
    return WeightTraffic(
        body=body * GIB / 1e9,
        head=head,
        mtp=gib["mtp"] * GIB / 1e9,
        draft_head=head / 2 if copied_head else head,
        kernel=KERNEL.get(spec.kernels, "16"),
        packed_bits=PACKED.get(spec.kernels, 0),
    )


@lru_cache(maxsize=4096)
def _silicon(cards: tuple[Card, ...], checkpoint: str) -> tuple[Silicon, ...]:
    native = NATIVE.get(checkpoints()[checkpoint].kernels)
    return tuple(
        Silicon(
            bandwidth_gb_s=card.bandwidth_gb_s,
            fp16_tflops=card.fp16_tflops,
            fp8_tflops=card.fp8_tflops if native is not None and card.compute_capability >= native else None,
            compute_capability=card.compute_capability,
            pcie_gb_s=card.pcie_gb_s,
        )
        for card in cards
    )
