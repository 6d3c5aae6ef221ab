"""What an engine's shape may not be. The search for layouts drops every shape that breaks one of these."""

from __future__ import annotations

from qwenlab.planner.catalogue import checkpoints
from qwenlab.planner.geometry import LEAST_STAGE_LAYERS
from qwenlab.planner.memory import tensor_parallel_fits
from qwenlab.planner.plan import Evidence
from qwenlab.planner.rules import links
from qwenlab.planner.rules.context import AMPERE, ComputeCapability
from qwenlab.planner.rules.model import ShapeRule, Topic
from qwenlab.planner.shape import EngineShape
from qwenlab.planner.throughput.acceptance import TRAINED_BLOCK

MOST_DRAFTS = 15
OLDEST: ComputeCapability = (7, 5)
NAMES_OF_METHODS = ("eagle-", "eagle3", "dflash", "dspark")

# KV data types that a backend serves: vLLM 0.33.0 v1/attention/backends/*.py (supported_kv_cache_dtypes); the oldest
# compute capability that does is from HyperQwen docs/gotchas.md 40 and club-3090 docs/HARDWARE.md.
SERVES: dict[tuple[str, str], ComputeCapability] = {
    ("FLASH_ATTN", "bfloat16"): (8, 0),
    ("FLASH_ATTN", "float16"): (8, 0),
    ("FLASH_ATTN", "fp8"): (9, 0),
    ("FLASHINFER", "bfloat16"): (8, 0),
    ("FLASHINFER", "float16"): (8, 0),
    ("FLASHINFER", "fp8"): (8, 0),
    ("TRITON_ATTN", "bfloat16"): (8, 0),
    ("TRITON_ATTN", "float16"): (7, 5),
    ("TRITON_ATTN", "fp8"): (8, 9),
    ("TRITON_ATTN", "fp8_per_token_head"): (8, 9),
    ("TRITON_ATTN", "int8_per_token_head"): (7, 5),
    ("TRITON_ATTN", "int4_per_token_head"): (7, 5),
}
FLASH_ATTN_FP8 = {9}  # major versions whose FlashAttention takes fp8 KV (FlashAttention 3)


def _method(shape: EngineShape) -> str | None:
    return shape.speculation.method if shape.speculation else None


def _drafts(shape: EngineShape) -> int:
    return shape.speculation.tokens if shape.speculation else 0


def _capabilities(shape: EngineShape) -> list[ComputeCapability]:
    return [card.compute_capability for card in shape.cards]


def _unserved(kv_dtype: str, backend: str | None, capabilities: list[ComputeCapability]) -> bool:
    if backend is None:
        return False
    oldest = SERVES.get((backend, kv_dtype))
    if oldest is None or min(capabilities) < oldest:
        return True
    on_flash = backend == "FLASH_ATTN" and kv_dtype == "fp8"
    return on_flash and any(capability[0] not in FLASH_ATTN_FP8 for capability in capabilities)


def _drafter_unserved(shape: EngineShape) -> bool:
    """The drafter runs on the last stage only."""
    per_replica = shape.tp * shape.pp
    last = [card.compute_capability for i, card in enumerate(shape.cards) if i % per_replica >= per_replica - shape.tp]
    return _method(shape) == "dflash" and _unserved(shape.kv_dtype, shape.drafter_attention_backend, last)


def _too_old(shape: EngineShape) -> bool:
    oldest = max(OLDEST, checkpoints()[shape.checkpoint].min_compute_capability)
    return min(_capabilities(shape)) < oldest


def _mixed_group(shape: EngineShape) -> bool:
    return any(len({card.compute_capability for card in group}) > 1 for group in links.tensor_groups(shape))


def _mixed_activations(shape: EngineShape) -> bool:
    return _mixed_group(shape) and not checkpoints()[shape.checkpoint].weight_only


def _lowest_not_first(shape: EngineShape) -> bool:
    return any(
        group[0].compute_capability != min(card.compute_capability for card in group)
        for group in links.tensor_groups(shape)
    )


def _mislabelled(shape: EngineShape) -> bool:
    repo = checkpoints()[shape.checkpoint].repo.lower()
    return _method(shape) == "mtp" and any(word in repo for word in NAMES_OF_METHODS)


LIMITS = (
    ShapeRule(
        id="tensor-parallel-divides-heads",
        topic=Topic.LAYOUT,
        when="tensor parallel",
        broken=lambda s: not tensor_parallel_fits(checkpoints()[s.checkpoint].geometry, s.tp),
        because="the 24 query heads and 4 KV heads divide by 1, 2, 4 and (KV heads copied) 8 only: on three cards TP=2 "
        "and one engine beside it",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #104; noonghunna/club-3090 docs/MULTI_CARD.md",
        evidence=Evidence.MEASURED,
    ),
    ShapeRule(
        id="ranks-match-cards",
        topic=Topic.LAYOUT,
        when="always",
        broken=lambda s: len(s.cards) != s.tp * s.pp * s.dp,
        because="every rank has a card of its own",
        source="vLLM 0.33.0 config/parallel.py",
        evidence=Evidence.DERIVED,
    ),
    ShapeRule(
        id="four-layers-a-stage",
        topic=Topic.LAYOUT,
        when="pipeline",
        broken=lambda s: s.partition is not None and min(s.partition) < LEAST_STAGE_LAYERS,
        because="a stage of fewer than four layers may hold no full-attention layer, and stages then disagree on the "
        "KV cache layout and do not start",
        source="vLLM 0.33.0 v1/attention/backends/utils.py resolve_kv_cache_layout (tried on the CPU at 3,5)",
        evidence=Evidence.MEASURED,
    ),
    ShapeRule(
        id="no-mtp-over-a-pipeline",
        topic=Topic.LAYOUT,
        when="pipeline with MTP before vLLM 0.32, or without the capped batches",
        broken=lambda s: s.pp > 1 and _method(s) == "mtp" and (_before(s, (0, 32)) or not s.in_flight_capped),
        because="before 0.32 the recurrent states of overlapping requests are mixed up over a pipeline: acceptance "
        "falls from 46 to 8 % and text degenerates",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #160; vllm-project/vllm #57755, #55951",
        evidence=Evidence.MEASURED,
    ),
    ShapeRule(
        id="async-with-pipeline-and-drafter",
        topic=Topic.LAYOUT,
        when="pipeline with speculation",
        broken=lambda s: s.pp > 1 and s.speculation is not None and not s.async_scheduling,
        because="the synchronous scheduler asserts in prepare_inputs when a pipeline drafts",
        source="vllm-project/vllm #52071 (run at 0.32.0 and 0.33.0)",
        evidence=Evidence.MEASURED,
    ),
    ShapeRule(
        id="mixed-silicon-wants-weight-only",
        topic=Topic.LAYOUT,
        when="tensor parallel over different compute capabilities",
        broken=_mixed_activations,
        because="FP8 and FP4 activation kernels of the newer card do not exist on the older one; weight-only kernels "
        "(Marlin) agree on every card",
        source="noonghunna/club-3090 #762",
        evidence=Evidence.FIELD_REPORT,
    ),
    ShapeRule(
        id="lowest-capability-first",
        topic=Topic.LAYOUT,
        when="tensor parallel over different compute capabilities",
        broken=_lowest_not_first,
        because="vLLM asks device 0 what the cards can do; with the oldest card first every choice runs on all of them",
        source="vLLM 0.33.0 platforms/cuda.py get_device_capability; ExTV/dual-gpus-vllm patch 13",
        evidence=Evidence.DERIVED,
    ),
    ShapeRule(
        id="block-drafter-over-a-pipeline",
        topic=Topic.LAYOUT,
        when="pipeline with DFlash2 before vLLM 0.32",
        broken=lambda s: s.pp > 1 and _method(s) == "dflash" and _before(s, (0, 32)),
        because="the drafter needs layers of the first stage; the relay is patched into 0.32 and later only",
        source="vLLM 0.33.0 v1/worker/gpu/spec_decode/eagle/eagle3_utils.py",
        evidence=Evidence.MEASURED,
    ),
    ShapeRule(
        id="oldest-card",
        topic=Topic.LAYOUT,
        when="always",
        broken=_too_old,
        because="the checkpoint's kernels need a newer card (compute capability 7.5 at the very least)",
        source="qwenlab data/checkpoints.yaml; vLLM 0.33.0 documentation, supported hardware",
        evidence=Evidence.DERIVED,
    ),
    ShapeRule(
        id="backend-serves-kv-dtype",
        topic=Topic.ATTENTION,
        when="always",
        broken=lambda s: _unserved(s.kv_dtype, s.attention_backend, _capabilities(s)),
        because="this attention backend does not serve this KV data type on one of the cards (fp8 below 8.9 is "
        "FlashInfer's alone, int8 and int4 per token and head are Triton's alone)",
        source="syv-ai/HyperQwen docs/gotchas.md 40; vLLM 0.33.0 v1/attention/backends/",
        evidence=Evidence.MEASURED,
    ),
    ShapeRule(
        id="drafter-backend-serves-kv-dtype",
        topic=Topic.ATTENTION,
        when="DFlash2",
        broken=_drafter_unserved,
        because="the drafter's attention backend does not serve this KV data type on a card of the last stage",
        source="syv-ai/HyperQwen docs/gotchas.md 40; vLLM 0.33.0 v1/attention/backends/",
        evidence=Evidence.MEASURED,
    ),
    ShapeRule(
        id="bfloat16-from-ampere",
        topic=Topic.ATTENTION,
        when="below compute capability 8.0",
        broken=lambda s: (
            min(_capabilities(s)) < AMPERE and (s.speculation is not None or "bfloat16" in (s.kv_dtype, s.ssm_dtype))
        ),
        because="Turing has no bfloat16, and float16 serves this model without speculation only",
        source="syv-ai/HyperQwen #27; NVIDIA CUDA C++ Programming Guide",
        evidence=Evidence.DERIVED,
    ),
    ShapeRule(
        id="drafter-for-these-weights",
        topic=Topic.SPECULATION,
        when="any speculation",
        broken=lambda s: _method(s) == "dflash" and s.drafter not in checkpoints()[s.checkpoint].drafters,
        because="the drafter was not trained for this checkpoint's model",
        source="qwenlab data/checkpoints.yaml",
        evidence=Evidence.DERIVED,
    ),
    ShapeRule(
        id="checkpoint-has-an-mtp-head",
        topic=Topic.SPECULATION,
        when="MTP",
        broken=lambda s: _method(s) == "mtp" and not checkpoints()[s.checkpoint].mtp,
        because="the checkpoint carries no MTP head",
        source="qwenlab data/checkpoints.yaml",
        evidence=Evidence.DERIVED,
    ),
    ShapeRule(
        id="path-names-no-other-method",
        topic=Topic.SPECULATION,
        when="MTP",
        broken=_mislabelled,
        because="the checkpoint's path names another method (dflash, eagle ...), which vLLM takes for the drafter's "
        "although MTP is asked for, and crashes",
        source="syv-ai/HyperQwen docs/gotchas.md 14; vLLM 0.33.0 config/speculative.py",
        evidence=Evidence.MEASURED,
    ),
    ShapeRule(
        id="trained-draft-length",
        topic=Topic.SPECULATION,
        when="DFlash2",
        broken=lambda s: _method(s) == "dflash" and (_drafts(s) > MOST_DRAFTS or (len(s.cards) > 1 and _untrained(s))),
        because="DFlash2 is trained for 7 tokens; above one card more cost 27 to 42 %",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #40, #105",
        evidence=Evidence.MEASURED,
    ),
)


def _before(shape: EngineShape, version: tuple[int, int]) -> bool:
    major, minor = shape.vllm.split(".")[:2]
    return (int(major), int(minor)) < version


def _untrained(shape: EngineShape) -> bool:
    return _drafts(shape) > TRAINED_BLOCK["dflash"]


def violations(shape: EngineShape) -> tuple[ShapeRule, ...]:
    """The limits that a shape breaks; empty for a shape that may be planned."""
    return tuple(limit for limit in LIMITS if limit.broken(shape))
