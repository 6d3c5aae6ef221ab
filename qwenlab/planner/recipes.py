"""How an engine may run on given silicon: drafter, KV data type and attention backend as one table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from packaging.version import Version

from qwenlab.planner.capabilities import ADA, AMPERE, BLACKWELL, HOPPER, ComputeCapability
from qwenlab.planner.catalogue import DEFAULT_MODEL, CheckpointSpec, checkpoints
from qwenlab.planner.layouts import Place
from qwenlab.planner.shape import Card
from qwenlab.settings import Settings

Method = Literal["mtp", "dflash"]
RETRAINED = ("abliterated", "uncensored")
AFTER: ComputeCapability = (99, 0)  # every card


@dataclass(frozen=True)
class Recipe:
    """One way to run a checkpoint.

    Attributes:
        method, tokens: speculation; None and 0 without.
        kv_dtype, backend: of the target; drafter_backend: of the drafter, None follows the KV data type.
        fp8_draft_head: an MTP draft goes through an FP8 copy of the head where the head has 16 bit.
        oldest, before: compute capabilities of the ranks: from `oldest` on, below `before`.
        quality: how much of a tie-break the KV data type costs; 1.0 is 16-bit.
        source: why the combination is in the table.
    """

    method: Method | None
    tokens: int
    kv_dtype: str
    backend: str
    quality: float
    source: str
    drafter_backend: str | None = None
    fp8_draft_head: bool = False
    oldest: ComputeCapability = AMPERE
    before: ComputeCapability = AFTER


RECIPES: tuple[Recipe, ...] = (
    Recipe(None, 0, "bfloat16", "FLASH_ATTN", 1.0, "HyperQwen launchers, SPEC=off"),
    Recipe(None, 0, "fp8", "FLASHINFER", 0.99, "HyperQwen batch/README.md"),
    Recipe(
        None, 0, "fp8", "FLASH_ATTN", 0.99, "vLLM 0.30.0 on an H200: FlashAttention 3", oldest=HOPPER, before=BLACKWELL
    ),
    Recipe(None, 0, "int4_per_token_head", "TRITON_ATTN", 0.93, "HyperQwen batch/README.md, KV=int4pth"),
    Recipe("mtp", 3, "bfloat16", "FLASH_ATTN", 1.0, "HyperQwen single-user/README.md"),
    Recipe("mtp", 4, "bfloat16", "FLASH_ATTN", 1.0, "HyperQwen single-user/README.md"),
    Recipe("mtp", 3, "fp8", "FLASHINFER", 0.99, "HyperQwen single-user/README.md, CTX=long"),
    Recipe("mtp", 4, "fp8", "FLASHINFER", 0.99, "club-3090 draft depth sweep: 4 is the knee"),
    *(
        Recipe("mtp", drafts, "fp8", "FLASH_ATTN", 0.99, why, fp8_draft_head=True, oldest=HOPPER, before=BLACKWELL)
        for drafts, why in (
            (1, "many streams on an H200 (docs/gpu_bench.md)"),
            (2, "many streams on an H200 (docs/gpu_bench.md)"),
            (3, "FlashAttention 3 takes fp8"),
            (4, "FlashAttention 3 takes fp8"),
        )
    ),
    Recipe("mtp", 3, "int8_per_token_head", "TRITON_ATTN", 0.99, "HyperQwen docs/multi-gpu.md #105, #217"),
    Recipe("mtp", 4, "int8_per_token_head", "TRITON_ATTN", 0.99, "HyperQwen docs/multi-gpu.md #105, #217"),
    Recipe("mtp", 3, "int4_per_token_head", "TRITON_ATTN", 0.93, "HyperQwen #160"),
    Recipe("dflash", 7, "bfloat16", "FLASH_ATTN", 1.0, "HyperQwen single-user/README.md; club-3090 dual-ultrafast"),
    Recipe("dflash", 7, "int8_per_token_head", "TRITON_ATTN", 0.99, "HyperQwen docs/long-context.md"),
    Recipe("dflash", 7, "int4_per_token_head", "TRITON_ATTN", 0.93, "HyperQwen alternative.sh"),
    Recipe("dflash", 7, "fp8", "FLASHINFER", 0.99, "ExTV/dual-gpus-vllm: drafter on Triton", "TRITON_ATTN", oldest=ADA),
)

# What a unit of KL divergence from BF16 costs in the score, by setting qwen_quality: at 4.5 a 4-bit checkpoint (0.0287)
# must be an eighth faster than BF16, an 8-bit one (0.003) hardly at all.
KLD_PRICE = {"speed": 0.0, "balanced": 4.5, "fidelity": 4.5}
FIDELITY_KLD = 0.01  # `fidelity` leaves out what diverges more
USUAL_KLD = {
    "int4": 0.0287,
    "nvfp4": 0.0177,
    "fp8": 0.0031,
}  # of formats whose checkpoint is not on the catalogue's panel
FEW_DRAFTS = 2
HEAD_BITS = 16
FP8_DRAFT_HEAD = Version("0.33.0")  # config/speculative.py draft_lm_head_quantization
PREPARED = 0.97  # a checkpoint that the host has to requantise first must be worth the hour


# What the model promises without a run to hold it against is not taken at its word: packed 8-bit weights on data-centre
# silicon, 4-bit ones on its Blackwell, NVFP4 emulated on Hopper, weights quantised while they are loaded elsewhere.
UNPROVEN = 0.6
_UNPROVEN = (  # kernels, from, until
    ("marlin-w8a16", HOPPER, (12, 0)),
    ("marlin-w4a16", BLACKWELL, (12, 0)),
    ("nvfp4", HOPPER, BLACKWELL),
    ("fp8-channel", (0, 0), HOPPER),
    ("fp8-channel", BLACKWELL, AFTER),
)


def format_weight(spec: CheckpointSpec, cards: tuple[Card, ...], quality: str) -> float:
    """Weight of a checkpoint in the score on these cards, by how near to BF16 it is; 0 leaves it out."""
    kld = spec.kld
    if kld is None:
        kld = next((usual for start, usual in USUAL_KLD.items() if spec.format.startswith(start)), 0.0)
    if quality == "fidelity" and kld > FIDELITY_KLD:
        return 0.0
    weight = 1 / (1 + KLD_PRICE[quality] * kld)
    if spec.format.endswith("prepared"):
        weight *= PREPARED
    for start, since, until in _UNPROVEN:
        if spec.kernels.startswith(start) and any(since <= card.compute_capability < until for card in cards):
            weight *= UNPROVEN
    return weight


def allowed(recipe: Recipe, spec: CheckpointSpec, cards: tuple[Card, ...], tp: int, pp: int) -> bool:
    """Whether silicon, kernels and vLLM take this combination."""
    capabilities = {card.compute_capability for card in cards}
    if min(capabilities) < max(recipe.oldest, spec.min_compute_capability) or max(capabilities) >= recipe.before:
        # Only the rank with the drafter needs the drafter's kernels.
        drafter_only = recipe.drafter_backend is not None and pp > 1
        if not drafter_only or cards[-1].compute_capability < recipe.oldest or min(capabilities) < AMPERE:
            return False
    if tp > 1 and not spec.weight_only and _mixed_within_groups(cards, tp):
        return False  # FP4 and FP8 activation kernels crash on the older rank (club-3090 #762)
    if recipe.method == "mtp":
        return spec.mtp and pp == 1  # the pipeline breaks MTP's acceptance (vllm-project/vllm #57755)
    return recipe.method != "dflash" or bool(spec.drafters)


def copies_head(recipe: Recipe, spec: CheckpointSpec) -> bool:
    """Whether an MTP draft goes through an FP8 copy of this checkpoint's head: vLLM makes one of a 16-bit head only."""
    return recipe.fp8_draft_head and spec.bits.lm_head == HEAD_BITS


def drafts_among_many(recipe: Recipe, place: Place) -> bool:
    """Whether the throughput model is to judge this recipe among many streams; without a draft it always is.

    Only where speculating in batches was measured: MTP with one or two drafts on one card of compute capability 9.0.
    """
    if recipe.method is None:
        return True
    few = recipe.method == "mtp" and recipe.tokens <= FEW_DRAFTS
    return few and len(place.cards) == 1 and place.cards[0].compute_capability == HOPPER


def _mixed_within_groups(cards: tuple[Card, ...], tp: int) -> bool:
    groups = (cards[i : i + tp] for i in range(0, len(cards), tp))
    return any(len({card.compute_capability for card in group}) > 1 for group in groups)


@dataclass(frozen=True)
class Knobs:
    """What the user fixed, and the version to plan for; hashable, so that evaluations can be shared."""

    vllm: str
    quality: str = "balanced"
    checkpoint: str | None = None
    speculation: str | None = None
    draft_tokens: int | None = None
    kv_cache_dtype: str | None = None
    layer_split: tuple[int, ...] | None = None


def knobs_of(settings: Settings) -> Knobs:
    """The knobs that the settings turn."""
    return Knobs(
        vllm=settings.release.vllm,
        quality=settings.quality,
        checkpoint=settings.checkpoint,
        speculation=settings.speculation,
        draft_tokens=settings.draft_tokens,
        kv_cache_dtype=settings.kv_cache_dtype,
        layer_split=tuple(settings.layer_split) if settings.layer_split else None,
    )


@cache
def combinations_for(knobs: Knobs) -> tuple[tuple[CheckpointSpec, Recipe], ...]:
    """Checkpoints and recipes that the knobs leave.

    Weights that somebody trained to behave differently are only taken when the user names them.
    """
    return tuple((spec, recipe) for spec in _checkpoints_for(knobs) for recipe in _recipes_for(knobs))


def _checkpoints_for(knobs: Knobs) -> list[CheckpointSpec]:
    if knobs.checkpoint is not None:
        return [spec for spec in checkpoints().values() if spec.named(knobs.checkpoint)]
    return [
        spec
        for spec in checkpoints().values()
        if spec.model == DEFAULT_MODEL
        and format_weight(spec, (), knobs.quality) > 0
        and not any(word in spec.repo.lower() for word in RETRAINED)
    ]


def _recipes_for(knobs: Knobs) -> list[Recipe]:
    known = Version(knobs.vllm) >= FP8_DRAFT_HEAD
    found = [
        recipe if known else replace(recipe, fp8_draft_head=False)
        for recipe in RECIPES
        if knobs.speculation in (None, recipe.method or "off") and knobs.kv_cache_dtype in (None, recipe.kv_dtype)
    ]
    if knobs.draft_tokens is None:
        return found
    with_length = (replace(recipe, tokens=knobs.draft_tokens if recipe.method else 0) for recipe in found)
    return list(dict.fromkeys(with_length))
