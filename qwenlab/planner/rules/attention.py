"""Attention backends, KV cache data types and the data type of the recurrent state."""

from __future__ import annotations

from qwenlab.planner.memory import gdn_prefill_backend
from qwenlab.planner.plan import Evidence
from qwenlab.planner.rules.context import ADA, AMPERE, Context
from qwenlab.planner.rules.model import Effect, Rule, Topic, always

FLASHINFER_WORKSPACE = 128 * 2**20
DATA_CENTRE_GIB = 48.0  # from here on the default workspace is no burden


def _kv(context: Context) -> Effect:
    return Effect(args={"kv-cache-dtype": context.shape.kv_dtype}, says={"dtype": context.shape.kv_dtype})


def _state(context: Context) -> Effect:
    return Effect(args={"mamba-ssm-cache-dtype": context.shape.ssm_dtype}, says={"dtype": context.shape.ssm_dtype})


def _gdn_prefill(context: Context) -> Effect:
    backend = gdn_prefill_backend(context.shape)
    return Effect(args={"gdn-prefill-backend": backend}, says={"backend": backend})


def _half_state(context: Context) -> bool:
    return context.shape.ssm_dtype in ("float16", "bfloat16")


def _fused(context: Context) -> bool:
    return context.lowest >= AMPERE and context.shape.ssm_dtype in ("bfloat16", "float32")


RULES = (
    Rule(
        id="attention-backend-explicit",
        topic=Topic.ATTENTION,
        when="always",
        applies=always,
        then=lambda c: Effect(
            args={"attention-backend": c.shape.attention_backend},
            says={"backend": c.shape.attention_backend, "dtype": c.shape.kv_dtype},
        ),
        because="{backend} serves {dtype} KV on every card here; left to itself each rank picks by its own card, and "
        "ranks that disagree end in 'Workers disagree on supported KV cache layouts'",
        source="vLLM 0.33.0 v1/attention/backends/utils.py resolve_kv_cache_layout",
        evidence=Evidence.DERIVED,
        sets=("attention-backend",),
    ),
    Rule(
        id="kv-fp8",
        topic=Topic.ATTENTION,
        when="fp8 KV",
        applies=lambda c: c.shape.kv_dtype == "fp8",
        then=_kv,
        because="fp8 KV halves the cache per token (2,048 B per attention layer instead of 4,096)",
        source="syv-ai/HyperQwen docs/long-context.md; noonghunna/club-3090 docs/DUAL_CARD.md",
        evidence=Evidence.MEASURED,
        sets=("kv-cache-dtype",),
    ),
    Rule(
        id="fp8-on-ampere-is-flashinfer",
        topic=Topic.ATTENTION,
        when="fp8 KV below compute capability 8.9",
        applies=lambda c: c.shape.kv_dtype.startswith("fp8") and c.lowest < ADA,
        then=lambda c: Effect(args={"attention-backend": c.shape.attention_backend}),
        because="below compute capability 8.9 Triton has no fp8 and FlashAttention 2 takes 16-bit KV only, so fp8 KV "
        "runs on FlashInfer or not at all",
        source="syv-ai/HyperQwen docs/gotchas.md 40; noonghunna/club-3090 docs/HARDWARE.md",
        evidence=Evidence.MEASURED,
        sets=("attention-backend",),
    ),
    Rule(
        id="int8-kv-for-mtp-above-one-card",
        topic=Topic.ATTENTION,
        when="MTP with tensor parallel and int8 KV",
        applies=lambda c: c.method == "mtp" and c.shape.tp > 1 and c.shape.kv_dtype == "int8_per_token_head",
        then=_kv,
        because="with MTP above one card int8 per token and head on TRITON_ATTN is 1.4 to 1.9 times as fast as fp8 on "
        "FlashInfer, which does not gain from more cards; the pool is 5 to 9 % smaller",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #105 (2 and 4x RTX 5060 Ti), #217 (2x RTX 3090)",
        evidence=Evidence.MEASURED,
        sets=("kv-cache-dtype",),
    ),
    Rule(
        id="bf16-kv-for-dflash-on-ampere",
        topic=Topic.ATTENTION,
        when="DFlash2 with 16-bit KV below compute capability 8.9",
        applies=lambda c: c.method == "dflash" and c.shape.kv_dtype == "bfloat16" and c.lowest < ADA,
        then=_kv,
        because="the drafter's attention is not causal: on Ampere that is FlashAttention 2 with 16-bit KV "
        "(132/227 tok/s on 2x RTX 3090), while fp8 sends it through FlashInfer (74/138)",
        source="noonghunna/club-3090 (dual-ultrafast against dual-superfast)",
        evidence=Evidence.MEASURED,
        sets=("kv-cache-dtype",),
    ),
    Rule(
        id="kv-dtype",
        topic=Topic.ATTENTION,
        when="any other KV data type",
        applies=lambda c: c.shape.kv_dtype != "fp8",
        then=_kv,
        because="{dtype} KV gave the best predicted speed of the data types whose pool holds the asked context",
        source="syv-ai/HyperQwen docs/long-context.md (bytes per token and speed by data type)",
        evidence=Evidence.DERIVED,
        sets=("kv-cache-dtype",),
    ),
    Rule(
        id="flashinfer-workspace",
        topic=Topic.ATTENTION,
        when="FlashInfer attention on a card below 48 GiB",
        applies=lambda c: (
            c.shape.attention_backend == "FLASHINFER" and min(card.memory_gib for card in c.cards) < DATA_CENTRE_GIB
        ),
        then=lambda _: Effect(env={"VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": str(FLASHINFER_WORKSPACE)}),
        because="FlashInfer's default workspace is 394 MiB and is taken lazily, so it runs out of memory only when "
        "the context is full; 128 MiB are enough",
        source="ExTV/dual-gpus-vllm docs/how-it-works.md; vLLM 0.33.0 envs.py",
        evidence=Evidence.MEASURED,
        sets=("VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE",),
    ),
    Rule(
        id="half-size-state",
        topic=Topic.ATTENTION,
        when="16-bit recurrent state",
        applies=_half_state,
        then=_state,
        because="the checkpoint asks for a 32-bit recurrent state, about 150 MB per resident request; {dtype} halves "
        "it at no measured loss of quality (64 instead of 37 resident requests on one card)",
        source="syv-ai/HyperQwen docs/optimizations.md, docs/gotchas.md 10, 39",
        evidence=Evidence.MEASURED,
        sets=("mamba-ssm-cache-dtype",),
    ),
    Rule(
        id="state-for-fused-decode",
        topic=Topic.ATTENTION,
        when="compute capability 8.0 and above with a bfloat16 or float32 recurrent state",
        applies=_fused,
        then=_state,
        because="vLLM's fused CUDA kernel for GDN decode takes a bfloat16 or float32 state only; float16 silently "
        "falls back to Triton (same memory, -1 % at one stream on an H200)",
        source="vLLM 0.33.0 and 0.32.0 model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py "
        "_fused_gdn_decode_unsupported_reason",
        evidence=Evidence.MEASURED,
        sets=("mamba-ssm-cache-dtype",),
    ),
    Rule(
        id="gdn-prefill-backend",
        topic=Topic.ATTENTION,
        when="the plan fixes the GDN prefill backend, or the cards would choose differently (0.33 and above)",
        applies=lambda c: gdn_prefill_backend(c.shape) is not None,
        then=_gdn_prefill,
        because="{backend} for GDN prefill on every rank: FlashInfer's kernel keeps one more recurrent state per "
        "request and wants blocks of 64 tokens, and ranks that cut the pool differently do not start together",
        source="vLLM 0.33.0 qwen_gdn_linear_attn.py _resolve_gdn_prefill_backend, kv_cache_planning.py "
        "get_global_kv_cache_groups",
        evidence=Evidence.DERIVED,
        sets=("gdn-prefill-backend",),
    ),
    Rule(
        id="dtype-bfloat16",
        topic=Topic.ATTENTION,
        when="compute capability 8.0 and above",
        applies=lambda c: c.lowest >= AMPERE,
        then=lambda _: Effect(args={"dtype": "bfloat16"}),
        because="float16 works without speculation only, and the fused GDN kernel wants bfloat16",
        source="syv-ai/HyperQwen #27; vLLM 0.33.0 qwen_gdn_linear_attn.py",
        evidence=Evidence.FIELD_REPORT,
        sets=("dtype",),
    ),
    Rule(
        id="dtype-float16-on-turing",
        topic=Topic.ATTENTION,
        when="below compute capability 8.0",
        applies=lambda c: c.lowest < AMPERE,
        then=lambda _: Effect(args={"dtype": "float16"}),
        because="Turing has no bfloat16 arithmetic",
        source="NVIDIA CUDA C++ Programming Guide, compute capabilities",
        evidence=Evidence.DERIVED,
        sets=("dtype",),
    ),
)
